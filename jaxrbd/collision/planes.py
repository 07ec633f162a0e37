"""Shapes against a plane: the half space z < 0 in the plane's axes."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from jaxrbd.collision.manifold import clipped, support_face
from jaxrbd.collision.shapes import Placed, Touch, polytope, rounded
from jaxrbd.collision.vectors import across, dot, fixed, off_axis, root
from jaxrbd.typing import Array


def _heights(points: Array, B: Placed) -> Touch:
    """Every point against the plane, the deepest first."""
    n = B.R[:, 2]
    d = (points - B.p) @ n
    order = jnp.argsort(fixed(d))
    points, d = points[order], d[order]
    return Touch(
        d, points, points - d[:, None] * n, jnp.broadcast_to(n, points.shape), jnp.ones(len(d), bool)
    )


def sphere(A: Placed, B: Placed) -> Touch:
    """1 place."""
    return rounded(_heights(A.p[None], B), A.size[0], 0.0)


def capsule(A: Placed, B: Placed) -> Touch:
    """2 places: the ends."""
    core, radius = polytope("capsule", A)
    return rounded(_heights(core.vertices, B), radius, 0.0)


def ellipsoid(A: Placed, B: Placed) -> Touch:
    """1 place: the support point p - R S² Rᵀ n / |S Rᵀ n|."""
    s = A.size[:3] * (A.R.T @ B.R[:, 2])
    return _heights((A.p - A.R @ (A.size[:3] * s) / root(dot(s, s)))[None], B)


def cylinder(A: Placed, B: Placed) -> Touch:
    """4 places: both ends of the lowest line of the side, and two more of the lower rim, 120° apart."""
    n, z, radius = B.R[:, 2], A.R[:, 2], A.size[0]
    down = off_axis(-n, z, A.R[:, 0])
    low = A.p - jnp.where(dot(n, z) >= 0, 1, -1) * z * A.size[1] / 2
    side = jnp.cross(z, down)
    third = jnp.sqrt(jnp.asarray(0.75, n.dtype))
    rim = [radius * down, radius * (-0.5 * down + third * side), radius * (-0.5 * down - third * side)]
    return _heights(jnp.stack([low + r for r in rim] + [2 * A.p - low + rim[0]]), B)


def convex(kind: str) -> Callable[[Placed, Placed], Touch]:
    """4 places: the deepest vertex, and those of the lowest face that lie widest apart."""

    def against(A: Placed, B: Placed) -> Touch:
        core, _ = polytope(kind, A)
        n = B.R[:, 2]
        heights = (core.vertices - B.p) @ n
        k = jnp.argmin(fixed(heights))
        a, d = core.vertices[k], heights[k]
        face = support_face(core, -n)
        # a square of the plane that the face is over
        wide = fixed(jnp.max(jnp.abs(face - a))) * 2 + 1
        t, o = across(fixed(n))
        b = a - d * n
        floor = jnp.stack([b + wide * (x * t + y * o) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))])
        floor = floor - ((floor - B.p) @ n)[:, None] * n
        return clipped(d, a, b, n, face, floor, 4)

    return against


PLANES = {
    "sphere": sphere,
    "capsule": capsule,
    "ellipsoid": ellipsoid,
    "cylinder": cylinder,
    "box": convex("box"),
    "convex": convex("convex"),
}
