"""Dense algebra of many small symmetric matrices at once: (k, k, ...), the batch last.

Rank-one updates and rotations by multiply-and-sum: on arrays of this shape they are several times faster
than LAPACK called matrix by matrix.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxrbd.typing import Array


def times(A: Array, x: Array) -> Array:
    """A x: (k, n, ...) and (n, ...)."""
    return jnp.sum(A * x[None], 1)


def inverse(A: Array) -> Array:
    """A^-1 of positive definite A by Gauss-Jordan elimination without pivoting."""
    k = A.shape[0]
    index = jnp.arange(k).reshape((k,) + (1,) * (A.ndim - 2))

    def pivot(p, A):
        row, col = lax.dynamic_index_in_dim(A, p, 0, False), lax.dynamic_index_in_dim(A, p, 1, False)
        d = 1 / lax.dynamic_index_in_dim(row, p, 0, False)
        mine = index == p
        row = jnp.where(mine, d, row * d)
        rest = jnp.where(mine[None], 0, A) - jnp.where(mine, 0, col)[:, None] * row[None]
        return jnp.where(mine[:, None], row[None], rest)

    return lax.fori_loop(0, k, pivot, A)


def damped_inverse(A: Array, share: float) -> Array:
    """(A + ε)^-1 with ε = share of the mean diagonal entry, and at least what keeps zero matrices alive."""
    k = A.shape[0]
    mean = sum(A[i, i] for i in range(k)) / k if k <= 8 else jnp.mean(jnp.diagonal(A), -1)
    eye = jnp.eye(k, dtype=A.dtype).reshape((k, k) + (1,) * (A.ndim - 2))
    return inverse(A + eye * jnp.where(mean > 0, share * mean, 1))


def eigen(A: Array, sweeps: int = 5) -> tuple[Array, Array]:
    """Eigenvalues (k, ...) and eigenvectors (k, k, ...) in columns, by cyclic Jacobi rotations; k ≤ 6."""
    k = A.shape[0]
    eye = jnp.eye(k, dtype=A.dtype).reshape((k, k) + (1,) * (A.ndim - 2))
    U = jnp.broadcast_to(eye, A.shape)
    if k == 1:
        return A[0], U

    def sweep(_, both):
        A, U = both
        for p in range(k):
            for q in range(p + 1, k):
                c, s = _rotation(A[p, p], A[q, q], A[p, q])
                A = _turn(_turn(A, p, q, c, s, 0), p, q, c, s, 1)
                U = _turn(U, p, q, c, s, 1)
        return A, U

    A, U = sweep(0, (A, U)) if k == 2 else lax.fori_loop(0, sweeps, sweep, (A, U))
    return jnp.stack([A[i, i] for i in range(k)]), U


def _rotation(a, b, off):
    """Cosine and sine that make the off-diagonal entry vanish."""
    still = off == 0
    ratio = (b - a) / (2 * jnp.where(still, 1, off))
    sign = jnp.where(ratio >= 0, 1.0, -1.0).astype(a.dtype)
    t = jnp.where(still, 0, sign / (jnp.abs(ratio) + jnp.sqrt(ratio * ratio + 1)))
    c = 1 / jnp.sqrt(t * t + 1)
    return c, t * c


def _turn(A, p: int, q: int, c, s, axis: int):
    rows = [A[i] if axis == 0 else A[:, i] for i in range(A.shape[0])]
    rows[p], rows[q] = c * rows[p] - s * rows[q], s * rows[p] + c * rows[q]
    return jnp.stack(rows, axis)
