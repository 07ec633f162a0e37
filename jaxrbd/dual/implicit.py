"""Derivatives of a solution, by the natural map in coordinates where every cone is round and self-dual.

λ = S λ̃ with S the frictions of a contact's rows, and  F(λ̃) = λ̃ - P(λ̃ - R (S v⁺ + Γ̃)) = 0,  R = 1 / mobility
per block. dF = 0 is a linear system in dλ̃, solved in the sense of least squares: where rows are redundant λ
is not unique, yet v⁺ is, and its derivative is right. Smoothing replaces the positive part of the cones'
eigenvalues by (s + √(s² + 4 ε²)) / 2.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.dual.blocks import Blocks
from jaxrbd.dual.cones import de_saxce, norm
from jaxrbd.dual.problem import Problem
from jaxrbd.dual.scaling import block_mobility, widths
from jaxrbd.dual.small import inverse, times
from jaxrbd.engine.programs import merge, partial_jvp, partial_vjp
from jaxrbd.typing import Array


def positive(s: Array, eps: float) -> Array:
    return jnp.maximum(s, 0) if eps == 0 else 0.5 * (s + jnp.sqrt(s * s + 4 * eps * eps))


def round_cone(x: Array, eps: float) -> Array:
    """Projection of (n, d, B) onto |t| ≤ n by its two eigenvalues n ± |t|."""
    t, n = x[:, :-1], x[:, -1]
    r = norm(t, 1)
    low, high = positive(n - r, eps), positive(n + r, eps)
    away = r > 0
    # at the axis both eigenvalues are equal and their difference quotient is the derivative
    gap = jnp.where(away, (high - low) / (2 * jnp.where(away, r, 1)), (positive(n, eps) > 0).astype(x.dtype))
    return jnp.concatenate([gap[:, None] * t, 0.5 * (low + high)[:, None]], 1)


def round_project(blocks: Blocks, bound: Array, eps: float, x: Array) -> Array:
    a, b, c = blocks.first_limit, blocks.first_box, blocks.first_contact
    box = x[b:c]
    box = positive(box + bound, eps) - positive(box - bound, eps) - bound
    parts = [x[:a], positive(x[a:b], eps), box]
    for run, rows in blocks.split(x):
        found = positive(rows, eps) if run.dim == 1 else round_cone(rows, eps)
        parts.append(found.reshape((-1,) + x.shape[1:]))
    return jnp.concatenate(parts)


def lifted(blocks: Blocks, model: str, v: Array) -> Array:
    one = jnp.ones((len(blocks.contacts), 1), v.dtype)
    return v + de_saxce(blocks, one, v) if model == "ncp" else v


def natural(problem: Problem, model: str, eps: float, rate: Array, u: Array) -> Array:
    """F at λ̃ = u, (m, B); `rate` is R, held."""
    blocks = problem.blocks
    S = widths(blocks, problem.friction, every=True)
    v = times(problem.D, S * u) + problem.v_f
    return u - round_project(blocks, problem.bound, eps, u - rate * lifted(blocks, model, S * v))


def jacobian(problem: Problem, model: str, eps: float, rate: Array, u: Array) -> Array:
    """∂F/∂λ̃, (m, m, B): I - P' (I - R A S D S), blocks of P' and A by forward mode."""
    blocks = problem.blocks
    S = widths(blocks, problem.friction, every=True)
    v = S * (times(problem.D, S * u) + problem.v_f)
    eye = jnp.eye(blocks.rows, dtype=u.dtype)[:, :, None]
    N = S[:, None] * problem.D * S[None]
    AN = along(lambda y: lifted(blocks, model, y), v, N)
    inner = eye - rate[:, None] * AN
    at = u - rate * lifted(blocks, model, v)
    return eye - along(lambda y: round_project(blocks, problem.bound, eps, y), at, inner)


def along(f, x: Array, directions: Array) -> Array:
    """f'(x) times columns (m, k, B)."""
    push = lambda d: jax.jvp(f, (x,), (d,))[1]  # noqa: E731
    return jax.vmap(push, 1, 1)(jnp.broadcast_to(directions, directions.shape[:-1] + x.shape[-1:]))


def least_squares(A: Array, b: Array, refinements: int = 3) -> Array:
    """x with A x = b where that can be met, small otherwise: damped normal equations, refined."""
    k = A.shape[0]
    AtA = jax.vmap(lambda col: jnp.sum(A * col[:, None], 0), 1, 1)(A)
    mean = jnp.mean(jnp.diagonal(AtA), -1)
    eps = {8: 1e-11, 4: 1e-5}[A.dtype.itemsize]
    inv = inverse(AtA + jnp.where(mean > 0, eps * mean, 1) * jnp.eye(k, dtype=A.dtype)[:, :, None])
    transposed = jnp.swapaxes(A, 0, 1)
    x = times(inv, times(transposed, b))
    for _ in range(refinements):
        x = x + times(inv, times(transposed, b - times(A, x)))
    return x


def outputs(problem: Problem, u: Array) -> list[Array]:
    """λ and v⁺ from λ̃."""
    lam = widths(problem.blocks, problem.friction, every=True) * u
    return [lam, times(problem.D, lam) + problem.v_f]


def rules(model: str, eps: float):
    """Tangent and adjoint of (problem, λ_0) -> λ, v⁺, ..., for `Kernel.derivatives`; λ_0 does not matter."""

    def at(args, out):
        problem = args[0]
        size = max(x.shape[-1] for x in jax.tree.leaves((args, out)))
        wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + (size,))  # noqa: E731
        problem = jax.tree.map(wide, problem)
        S = widths(problem.blocks, problem.friction, every=True)
        u = wide(out[0]) / jnp.where(S > 0, S, 1)
        rate = 1 / block_mobility(problem.blocks, problem.D)
        return problem, u, rate, size

    def both(treedef, u, rate, size):
        wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + (size,))  # noqa: E731

        def run(leaves):
            problem = jax.tree.map(wide, jax.tree.unflatten(treedef, leaves)[0])
            return [natural(problem, model, eps, rate, u), *outputs(problem, u)]

        return run

    def tangent(args, out, tangents):
        leaves, treedef = jax.tree.flatten(args)
        problem, u, rate, size = at(args, out)
        moved = partial_jvp(both(treedef, u, rate, size), leaves, treedef.flatten_up_to(tangents))
        du = least_squares(jacobian(problem, model, eps, rate, u), -moved[0])
        found = [a + b for a, b in zip(moved[1:], jax.jvp(lambda u: outputs(problem, u), (u,), (du,))[1])]
        still = lambda x: jnp.zeros(x.shape[:-1] + (size,), x.dtype)  # noqa: E731
        return [*found, *(still(x) for x in out[2:])]

    def adjoint(args, out, wanted, cotangents):
        leaves, treedef = jax.tree.flatten(args)
        active = treedef.flatten_up_to(wanted)
        problem, u, rate, size = at(args, out)
        push = [jnp.broadcast_to(x, x.shape[:-1] + (size,)) for x in cotangents[:2]]
        (pull,) = jax.vjp(lambda u: outputs(problem, u), u)[1](push)
        w = least_squares(jnp.swapaxes(jacobian(problem, model, eps, rate, u), 0, 1), pull)
        grads = partial_vjp(both(treedef, u, rate, size), leaves, active, [-w, *push])
        return jax.tree.unflatten(treedef, merge([None] * len(leaves), active, grads))

    return tangent, adjoint
