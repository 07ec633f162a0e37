"""The part of a right-hand side that no motion can meet:  s = r - J x,  x minimising  sum of w (r - J x)².

Where rows contradict each other, a proximal iteration never comes to rest: multipliers grow along the left
null space of J, and their rounding with them. With s taken out of the right-hand side, J a = c - s can be
met exactly and has the weighted least-squares accelerations of J a = c. It depends on J and the weights
alone, not on masses. O(m² n), for the states that need it only.

Rows are taken in the order of their weights, the heaviest first. A row that depends on those before it,
J_d = sum of C_dp J_p, contradicts them by g_d = r_d - sum of C_dp r_p, and s of least weight with
s_d - sum of C_dp s_p = g_d is the answer. In this order every relation ends at its lightest row, so that the
equations for it, 1 + C W_p^-1 Cᵀ W_d, are near the identity, whatever the weights are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular

# A row that adds less than this to those before it depends on them: more than the rounding of kinematics
# leaves of rows that repeat each other, less than eigenvalues of J M^-1 Jᵀ resolve.
CUT = {"float64": 1e-10, "float32": 1e-4}


class Unmeetable(NamedTuple):
    part: Any  # (m, B) s
    doubt: Any  # (B,) how far rounding of J may move accelerations, per unit of s


def unmeetable(J, r, weight) -> Unmeetable:
    """s of J (m, nv, B), r (m, B) and weights (m, B)."""
    weight = jnp.broadcast_to(weight, r.shape)
    return Unmeetable(*jax.vmap(_one, in_axes=-1, out_axes=-1)(J, r, weight))


def _one(J, r, weight):
    eps = jnp.finfo(J.dtype).eps
    length = jnp.sqrt(jnp.sum(J * J, 1))
    moves = length > 1e3 * eps * jnp.max(length)  # other rows are rounding: nothing meets them
    length = jnp.where(moves, length, 1)
    weight = weight * length * length
    order = jnp.argsort(-weight)
    unit = (jnp.where(moves, 1 / length, 0)[:, None] * J)[order]
    r, w = (r / length)[order], (weight / jnp.max(weight))[order]
    cut = CUT[J.dtype.name]
    T, new = _dependence(unit, cut)
    depends = jnp.diagonal(T) == 0
    own = jnp.where(depends, 1.0, 0.0).astype(J.dtype)
    # J_p = T_pp' b_p' of the independent rows, J_d = T_dp b_p of the dependent ones: C = T_dp T_pp^-1
    pivots = jnp.where(depends[:, None], 0, T) + jnp.diag(own)
    C = solve_triangular(pivots, jnp.where(depends[:, None], T, 0).T, lower=True, trans=1).T
    g = jnp.where(depends, r - C @ r, 0)
    scaled = jnp.sqrt(w)[:, None] * C / jnp.sqrt(w)[None]
    y = cho_solve(cho_factor(jnp.eye(len(r), dtype=J.dtype) + scaled @ scaled.T, lower=True), jnp.sqrt(w) * g)
    s = jnp.where(depends, y / jnp.sqrt(w), 0) - (scaled.T @ y) / jnp.sqrt(w)
    # nearly dependent rows, and those of which nobody can tell
    smallest = jnp.min(jnp.where(depends, 1, new))
    unclear = jnp.any((new > 0.3 * cut) & (new < 10 * cut))
    doubt = jnp.where(unclear, jnp.inf, eps / (smallest * smallest))
    return length * jnp.zeros_like(s).at[order].set(s), doubt


def _dependence(unit, cut):
    """Rows over an orthonormal basis of those before them: T, lower triangular, T_ii = 0 of dependent rows.

    Gram and Schmidt, twice. The second result is the length of what each row adds.
    """
    m = unit.shape[0]

    def add(i, carry):
        basis, T, new = carry
        row = unit[i]
        along = basis @ row
        rest = row - along @ basis
        again = basis @ rest
        rest = rest - again @ basis
        length = jnp.sqrt(jnp.sum(rest * rest))
        independent = length > cut
        basis = basis.at[i].set(jnp.where(independent, rest / jnp.where(independent, length, 1), 0))
        T = T.at[i].set(along + again).at[i, i].set(jnp.where(independent, length, 0))
        return basis, T, new.at[i].set(length)

    start = (jnp.zeros_like(unit), jnp.zeros((m, m), unit.dtype), jnp.zeros(m, unit.dtype))
    _, T, new = jax.lax.fori_loop(0, m, add, start)
    return T, new
