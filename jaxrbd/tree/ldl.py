"""Small symmetric systems, written out in scalars: L D Lᵀ."""

from __future__ import annotations

from typing import Any


def factor_ldl(M):
    """L (unit, lower) and D of a small symmetric positive definite matrix written out in scalars."""
    n = len(M)
    L: list[list[Any]] = [[None] * n for _ in range(n)]
    D: list[Any] = [None] * n
    for j in range(n):
        D[j] = M[j][j] - sum(L[j][k] * L[j][k] * D[k] for k in range(j)) if j else M[j][j]
        inverse = 1 / D[j]
        for i in range(j + 1, n):
            t = M[i][j] - sum(L[i][k] * L[j][k] * D[k] for k in range(j)) if j else M[i][j]
            L[i][j] = t * inverse
    return L, D


def solve_ldl(M, b):
    """Solve a small symmetric positive definite system written out in scalars, by L D Lᵀ."""
    n = len(b)
    L, D = factor_ldl(M)
    x = list(b)
    for i in range(n):
        for k in range(i):
            x[i] = x[i] - L[i][k] * x[k]
    x = [x[i] / D[i] for i in range(n)]
    for i in reversed(range(n)):
        for k in range(i + 1, n):
            x[i] = x[i] - L[k][i] * x[k]
    return x
