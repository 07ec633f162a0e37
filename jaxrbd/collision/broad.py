"""Broad phase: of all pairs of one group the nearest by bounding spheres, a fixed number of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxrbd.collision.shapes import Hull, Placed
from jaxrbd.collision.vectors import length
from jaxrbd.typing import Array

if TYPE_CHECKING:
    from jaxrbd.collision.table import Group


def bounding_sphere(kind: str, x: Placed) -> tuple[Array, Array]:
    """(centre, radius) of a sphere around a shape."""
    s = x.size
    if kind == "sphere":
        return x.p, s[0]
    if kind == "capsule":
        return x.p, s[0] + s[1] / 2
    if kind == "cylinder":
        return x.p, jnp.hypot(s[0], s[1] / 2)
    if kind == "box":
        return x.p, length(s[:3]) / 2
    if kind == "ellipsoid":
        return x.p, jnp.max(s[:3])
    if kind == "heightfield":
        low = -s[3] - jnp.maximum(s[0], s[1])
        return x.p + x.R[:, 2] * (s[2] + low) / 2, length(jnp.stack([s[0], s[1], (s[2] - low) / 2]))
    assert isinstance(x.data, Hull)
    v = x.data.vertices * s[:3]
    middle = (jnp.max(v, 0) + jnp.min(v, 0)) / 2
    return x.p + x.R @ middle, jnp.max(length(v - middle))


def bound(kinds: tuple[str, str], A: Placed, B: Placed) -> Array:
    """A lower bound of the signed distance of two shapes that are apart."""
    centre, radius = bounding_sphere(kinds[0], A)
    if kinds[1] == "plane":
        return B.R[:, 2] @ (centre - B.p) - radius
    other, more = bounding_sphere(kinds[1], B)
    return length(centre - other) - radius - more


def nearest_pairs(g: Group, A: Placed, B: Placed, budget: int, margin: float) -> tuple[Array, Array]:
    """(indices of the `budget` nearest pairs, how many others are nearer than the margin)."""
    d = jax.lax.stop_gradient(jax.vmap(lambda a, b: bound(g.kinds, a, b))(A, B))
    near = jax.lax.top_k(-d, budget)[1]
    return near, jnp.sum(d < margin) - jnp.sum(d[near] < margin)
