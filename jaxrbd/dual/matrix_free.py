"""ADMM without the matrix of D, on an operator ([LOOPS] Eq. 168).

With preconditioner p, (P D P + δ)^-1 = P^-1 (D + δ P^-2)^-1 P^-1: an operator damped by δ / p_r² per row
solves ADMM's linear system in O(n + m). Every other penalty needs new factors, also O(n + m).
Implicit gradients form the matrix, by a product per row, when they are asked for and not before.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrbd.dual.admm import ADMM
from jaxrbd.dual.kernels import given_kernel
from jaxrbd.dual.problem import Problem
from jaxrbd.dual.residuals import measured
from jaxrbd.dual.scaling import Scaled, block_largest, radii, widths
from jaxrbd.typing import Array


def solve_free(problem: Problem, solver: ADMM, lam: Array) -> list[Array]:
    """λ, v⁺, numbers of `Residuals`, iterations, modes: as the kernel of dense problems, for one problem."""
    if solver.gradients == "unrolled":
        return _iterate(solver, problem, lam)
    return _with_rule(solver, problem, lam)


def _iterate(solver: ADMM, problem: Problem, lam: Array) -> list[Array]:
    D: Any = problem.D
    blocks = problem.blocks
    column = lambda x: x[..., None]  # noqa: E731
    friction, v_f, bound = column(problem.friction), column(problem.v_f), column(problem.bound)
    s, mu = widths(blocks, friction), radii(blocks, friction)
    apply = lambda x: column(D.apply(x[:, 0]))  # noqa: E731
    d = block_largest(blocks, s * s * column(D.diagonal()))
    p = 1 / jnp.sqrt(d) if solver.precondition else jnp.ones_like(d)
    g = s * p
    live = g > 0
    scale = jnp.where(live, g, 1)

    def factor(delta):
        # rows without friction of their own have g = 0 there: damped so much that they do not move
        damping = jnp.where(live, delta / scale**2, 1e12 * (1 + delta) * jnp.max(d))
        damped = D.damped(damping[:, 0])
        inside = lambda b: column(damped.solve(jnp.where(live, b / scale, 0)[:, 0])) / scale  # noqa: E731
        return lambda b: jnp.where(live, inside(b), b / delta)

    start = column(lam) / jnp.where(live, g, 1)
    first_box, first_contact = blocks.first_box, blocks.first_contact
    mine = Scaled(
        blocks, mu, bound / p[first_box:first_contact], g * v_f, start, lambda x: g * apply(g * x), factor
    )
    y, iterations = solver.iterate(mine, p, d, bound)
    lam = g * y
    v = apply(lam) + v_f
    numbers, modes = measured(blocks, mu, bound, d, p * y, s * v, solver.model)
    return [x[..., 0] for x in (lam, v, numbers, iterations, modes)]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _with_rule(solver: ADMM, problem: Problem, lam: Array) -> list[Array]:
    return _iterate(solver, problem, lam)


@_with_rule.defjvp
def _tangent(solver: ADMM, primals, tangents):
    problem, lam = primals
    out = _with_rule(solver, problem, lam)
    known = lax.stop_gradient(out[0])
    eps = solver.smoothing if solver.gradients == "smooth" else 0.0

    def at(problem):
        D: Any = problem.D
        D = D.dense()
        return given_kernel(solver.model, eps)(problem.replace(D=0.5 * (D + D.T)), known)[:2]

    moved = jax.jvp(at, (problem,), (tangents[0],))[1]
    return out, [*moved, *(jnp.zeros_like(x) for x in out[2:])]
