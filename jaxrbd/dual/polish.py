"""Newton's method on the natural map, where ADMM leaves off: near a solution it crawls along, Newton jumps.

One step is one linear system of m rows, as dear as one change of ADMM's penalty. It is kept where it lowers
the scaled natural map, problem by problem, and ignored elsewhere.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxrbd.dual.cones import de_saxce, project
from jaxrbd.dual.implicit import jacobian, least_squares, natural
from jaxrbd.dual.problem import Problem
from jaxrbd.dual.residuals import largest, scaled_map
from jaxrbd.dual.scaling import block_mobility, widths
from jaxrbd.dual.small import times
from jaxrbd.dual.solver import Rows
from jaxrbd.typing import Array

SHARES = (1.0, 0.5, 0.25, 0.1)  # of Newton's step, of which the best is taken


def polished(rows: Rows, lam: Array, model: str, steps: int) -> Array:
    """λ after at most so many steps; its derivative is that of the solution, the matrix being held."""
    blocks = rows.blocks
    # cones of rows are round already: one radius stands for all frictions of a contact
    problem = Problem(rows.D, rows.v_f, jnp.stack([rows.mu] * 3, 1), rows.bound, blocks)
    held = jax.tree.map(lax.stop_gradient, problem)
    d = block_mobility(blocks, rows.D)
    S = widths(blocks, problem.friction, every=True)

    def error(lam):
        v = times(rows.D, lam) + rows.v_f
        v = v + de_saxce(blocks, rows.mu, v) if model == "ncp" else v
        return lax.stop_gradient(largest(scaled_map(blocks, rows.mu, rows.bound, d, lam, v)))

    def step(_, lam):
        u = lam / jnp.where(S > 0, S, 1)
        matrix = jacobian(held, model, 0.0, 1 / d, lax.stop_gradient(u))
        change = least_squares(lax.stop_gradient(matrix), natural(problem, model, 0.0, 1 / d, u))
        best, found = error(lam), lam
        for share in SHARES:
            new = project(blocks, rows.mu, rows.bound, S * (u - share * change))
            less = error(new)
            found, best = jnp.where(less < best, new, found), jnp.minimum(less, best)
        return found

    return lax.fori_loop(0, steps, step, lam)
