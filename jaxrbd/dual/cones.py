"""The cones of a dual problem and their projectors, on arrays with the batch last ([LOOPS] VI-C).

K = R per joint row, R₊ per limit, [-bound, bound] per box, and per contact the Coulomb cone
K_μ = {|λ_T| ≤ μ λ_N}. `mu` has one radius per contact: contacts with spinning and rolling friction are
scaled beforehand so that their cones are round (`problem.rounded`).
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxrbd.dual.blocks import Blocks
from jaxrbd.typing import Array


def norm(t: Array, axis: int) -> Array:
    """|t|, whose derivative at zero is zero."""
    square = jnp.sum(t * t, axis)
    live = square > 0
    return jnp.where(live, jnp.sqrt(jnp.where(live, square, 1)), 0)


def project_cone(x: Array, mu: Array) -> Array:
    """P_K of rows (n, d, B) for radii (n, B): polar first, so that μ = 0 needs no care. [LOOPS] Eq. 150."""
    t, n = x[:, :-1], x[:, -1]
    r = norm(t, 1)
    height = (mu * r + n) / (mu * mu + 1)
    onto = jnp.concatenate([(mu * height / jnp.where(r > 0, r, 1))[:, None] * t, height[:, None]], 1)
    inside, polar = (r <= mu * n)[:, None], (mu * r <= -n)[:, None]
    return jnp.where(polar, 0, jnp.where(inside, x, onto))


def project_dual_cone(x: Array, mu: Array) -> Array:
    """P_K* of rows (n, d, B), K* = {μ |v_T| ≤ v_N}: membership first. [LOOPS] Eq. 151."""
    t, n = x[:, :-1], x[:, -1]
    r = norm(t, 1)
    length = (r + mu * n) / (mu * mu + 1)
    onto = jnp.concatenate([(length / jnp.where(r > 0, r, 1))[:, None] * t, (mu * length)[:, None]], 1)
    inside, polar = (mu * r <= n)[:, None], (r <= -mu * n)[:, None]
    return jnp.where(inside, x, jnp.where(polar, 0, onto))


def project_disk(t: Array, radius: Array) -> Array:
    """Tangents (k, B) onto |t| ≤ radius."""
    r = norm(t, 0)
    return t * jnp.where(r > radius, radius / jnp.where(r > 0, r, 1), 1)


def project(blocks: Blocks, mu: Array, bound: Array, x: Array) -> Array:
    """P_K of all rows, (m, B)."""
    a, b, c = blocks.first_limit, blocks.first_box, blocks.first_contact
    parts = [x[:a], jnp.maximum(x[a:b], 0), jnp.clip(x[b:c], -bound, bound)]
    for run, rows in blocks.split(x):
        radius = mu[run.contact : run.contact + run.number]
        found = jnp.maximum(rows, 0) if run.dim == 1 else project_cone(rows, radius)
        parts.append(found.reshape((-1,) + x.shape[1:]))
    return jnp.concatenate(parts)


def outside_dual(blocks: Blocks, mu: Array, bound: Array, lam: Array, v: Array) -> Array:
    """v - P_K*(v) of all rows, (m, B); for boxes what of v no force at λ can account for."""
    a, b, c = blocks.first_limit, blocks.first_box, blocks.first_contact
    box = v[b:c]
    upper, lower = lam[b:c] >= bound, lam[b:c] <= -bound
    # at the upper bound v may be negative, at the lower one positive; with a bound of zero both
    box = jnp.where(upper, jnp.maximum(box, 0), box)
    box = jnp.where(lower, jnp.where(upper, 0, jnp.minimum(v[b:c], 0)), box)
    parts = [v[:a], jnp.minimum(v[a:b], 0), box]
    for run, rows in blocks.split(v):
        radius = mu[run.contact : run.contact + run.number]
        found = jnp.minimum(rows, 0) if run.dim == 1 else rows - project_dual_cone(rows, radius)
        parts.append(found.reshape((-1,) + v.shape[1:]))
    return jnp.concatenate(parts)


def de_saxce(blocks: Blocks, mu: Array, v: Array) -> Array:
    """Γ(v): μ |v_T| along the normals of contacts, zero elsewhere. [LOOPS] Eq. 14."""
    parts = [jnp.zeros_like(v[: blocks.first_contact])]
    for run, rows in blocks.split(v):
        radius = mu[run.contact : run.contact + run.number]
        lift = radius * norm(rows[:, :-1], 1)
        found = jnp.concatenate([jnp.zeros_like(rows[:, :-1]), lift[:, None]], 1)
        parts.append(found.reshape((-1,) + v.shape[1:]))
    return jnp.concatenate(parts)
