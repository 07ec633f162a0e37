"""The part of a right-hand side that no motion can meet:  s = r - J x,  x minimising  sum of w (r - J x)².

Where rows contradict each other, a proximal iteration never comes to rest: multipliers grow along the left
null space of J, and their rounding with them. With s taken out of the right-hand side, J a = c - s can be met
exactly and has the weighted least-squares accelerations of J a = c. It depends on J and the weights alone, not on
masses. O(m² n) and dense: for the states that need it only.

Singular values of J (rows scaled to one) tell dependent rows from nearly dependent ones. The weighted problem
is solved in an orthonormal basis of the range by QR with rows sorted by weight and columns pivoted, which is
accurate for weights that differ by any factor (Cox and Higham, 1998).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Unmeetable(NamedTuple):
    part: Any  # (m, B) s
    doubt: Any  # (B,) how far rounding of J may move accelerations, over those of one unit of s


def unmeetable(J, r, weight) -> Unmeetable:
    """s of J (m, nv, B), r (m, B) and weights (m, B)."""
    part, doubt = jax.vmap(_one, in_axes=-1, out_axes=-1)(J, r, jnp.broadcast_to(weight, r.shape))
    return Unmeetable(part, doubt)


def _one(J, r, weight):
    eps = jnp.finfo(J.dtype).eps
    length = jnp.sqrt(jnp.sum(J * J, 1))
    moves = length > 1e3 * eps * jnp.max(length)  # other rows are rounding: nothing meets them
    length = jnp.where(moves, length, 1)
    U, sigma, _ = jnp.linalg.svd(jnp.where(moves, 1 / length, 0)[:, None] * J, full_matrices=False)
    # rows that repeat each other differ by the rounding of kinematics, some hundred eps
    cut = 1e3 * eps * sigma[0]
    inside = sigma > cut
    order = jnp.argsort(-weight * length * length)
    root = jnp.sqrt(weight / jnp.max(weight)) * length
    Q, R, columns = jax.scipy.linalg.qr(
        (root[:, None] * (U * inside))[order], mode="economic", pivoting=True
    )
    diagonal = jnp.abs(jnp.diagonal(R))
    lives = diagonal > 0
    R = jnp.where(lives[:, None] & lives[None], R, 0) + jnp.diag(jnp.where(lives, 0.0, 1.0).astype(J.dtype))
    s = r
    for _ in range(3):  # light rows are seen as soon as the heavy ones are met
        y = jnp.where(lives, Q.T @ (root * s / length)[order], 0)
        x = jax.scipy.linalg.solve_triangular(R, y)
        s = s - length * ((U * inside)[:, columns] @ x)
    smallest = jnp.min(jnp.where(inside, sigma, jnp.inf)) / sigma[0]
    # between the rounding of kinematics and what eigenvalues of J M^-1 Jᵀ resolve nobody can tell
    unclear = jnp.any((sigma > 0.03 * cut) & (sigma < 10 * cut))
    return s, jnp.where(unclear, jnp.inf, eps / (smallest * smallest))
