"""Convex bodies as patches of support functions, sorted by how many directions have the same normals.

A face has one normal; an edge, or the side of a cylinder, a circle of them about its direction e; a vertex, a
rim and an ellipsoid an open set. On each patch h(n) = n·c + |M n|.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxrbd.collision.manifold import support_face
from jaxrbd.collision.shapes import Placed, Polytope, face_normals, polytope
from jaxrbd.collision.vectors import divide, dot, fixed, off_axis, root, unit
from jaxrbd.typing import Array


class Patches(NamedTuple):
    """A convex body; `out` are rough outward directions, where a search may start."""

    c: Array  # (P, 3) vertices, rims, ellipsoids
    M: Array  # (P, 3, 3)
    out: Array  # (P, 3)
    line_c: Array  # (L, 3) edges and sides
    line_M: Array  # (L, 3, 3)
    line_out: Array  # (L, 3)
    e: Array  # (L, 3) their directions
    ends: Array  # (L, 2) where they begin and end, from line_c along e
    normals: Array  # (N, 3) of faces, outward
    axes: Array  # (M, 3) of what is curved


def patches(kind: str, x: Placed) -> tuple[Patches, Array | float]:
    """(core, radius)."""
    if kind == "ellipsoid":
        return _ellipsoid(x), 0.0
    if kind == "cylinder":
        return _cylinder(x), 0.0
    core, radius = polytope(kind, x)
    return polytope_patches(core), radius


def _ellipsoid(x: Placed) -> Patches:
    none, square = jnp.zeros((0, 3), x.p.dtype), jnp.zeros((0, 3, 3), x.p.dtype)
    c = x.p[None]
    return Patches(
        c,
        (x.R * x.size[:3]).T[None],
        0 * c,
        none,
        square,
        none,
        none,
        none[:, :2],
        none,
        jnp.concatenate([x.R.T, -x.R.T]),
    )


def _cylinder(x: Placed) -> Patches:
    z, half = x.R[:, 2], x.size[1] / 2
    M = (x.size[0] * (jnp.eye(3, dtype=x.p.dtype) - jnp.outer(z, z)))[None]
    caps = jnp.stack([z, -z])
    axes = jnp.stack([x.R[:, 0], x.R[:, 1], -x.R[:, 0], -x.R[:, 1]])
    ends = jnp.stack([-half, half])[None]
    p = x.p[None]
    return Patches(p + half * caps, jnp.concatenate([M, M]), caps, p, M, 0 * p, z[None], ends, caps, axes)


def polytope_patches(x: Polytope) -> Patches:
    v = x.vertices
    none = jnp.zeros((0, 3), v.dtype)
    centre = jnp.mean(v, 0)
    square = lambda n: jnp.zeros((n, 3, 3), v.dtype)  # noqa: E731
    if len(v) == 1:
        return Patches(v, square(1), 0 * v, none, square(0), none, none, none[:, :2], none, none)
    p, q = v[x.edges[:, 0]], v[x.edges[:, 1]]
    u = q - p
    size = root(dot(u, u))
    up = jnp.zeros(3, v.dtype).at[2].set(1)
    normals = none if x.triples is None else face_normals(x)
    return Patches(
        v,
        square(len(v)),
        v - centre,
        p,
        square(len(p)),
        (p + q) / 2 - centre,
        unit(u, up),
        jnp.stack([0 * size, size], 1),
        normals,
        none,
    )


def pushed(M: Array, n: Array) -> tuple[Array, Array]:
    """(|M n|, its gradient Mᵀ M n / |M n|), over leading axes; zero where rounding decides."""
    m, s = stretched(M, n)
    u = divide(m, s[..., None])
    return s, jnp.sum(M * u[..., :, None], -2)


def stretched(M: Array, n: Array) -> tuple[Array, Array]:
    """(M n, |M n|)."""
    m = jnp.sum(M * n[..., None, :], -1)
    square, size = dot(m, m), jnp.sum(fixed(M) ** 2, (-1, -2))
    noise = (32 * jnp.finfo(m.dtype).eps) ** 2 * size
    return m, root(jnp.where(square > noise, square, 0))


def separation(A: Patches, B: Patches, n: Array) -> tuple[Array, Array, Array]:
    """min_A n·a - max_B n·b for one direction, and the patches that take them."""
    low = A.c @ n - pushed(A.M, jnp.broadcast_to(n, A.c.shape))[0]
    high = B.c @ n + pushed(B.M, jnp.broadcast_to(n, B.c.shape))[0]
    i, j = jnp.argmin(low), jnp.argmax(high)
    return low[i] - high[j], i, j


def flat(kind: str, x: Placed, direction: Array) -> Array:
    """The face (K, 3) that looks most along a direction; of a cylinder an octagon in a cap, or a line."""
    if kind != "cylinder":
        return support_face(polytope(kind, x)[0], direction)
    z, r, half = x.R[:, 2], x.size[0], x.size[1] / 2
    along = dot(direction, z)
    low = off_axis(direction, z, x.R[:, 0])
    end = jnp.where(along >= 0, 1, -1) * half * z
    turn = 2 * jnp.pi / 8 * jnp.arange(8, dtype=z.dtype)
    cap = end + r * (jnp.cos(turn)[:, None] * low + jnp.sin(turn)[:, None] * jnp.cross(z, low))
    line = r * low + jnp.where(jnp.arange(8) < 4, 1, -1)[:, None] * end
    return x.p + jnp.where(jnp.abs(fixed(along)) > 0.7, cap, line)
