"""Nearest points of segments, and pairs of shapes that have a closed form with them.

The feature (an end or the inside of a segment) is chosen without gradients, its points are recomputed.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxrbd.collision.shapes import Placed, Touch, rounded, single
from jaxrbd.collision.vectors import across, divide, dot, fixed, length, slack, unit
from jaxrbd.typing import Array


def on_segment(x: Array, p: Array, q: Array) -> Array:
    """Point of the segment p q next to x."""
    u = q - p
    return p + jnp.clip(divide(dot(x - p, u), dot(u, u)), 0, 1)[..., None] * u


def line_parameters(p: Array, u: Array, q: Array, v: Array) -> tuple[Array, Array, Array]:
    """s and t of the nearest points p + s u and q + t v of two lines, and |u × v|² / (|u|² |v|²)."""
    uu, vv, uv, r = dot(u, u), dot(v, v), dot(u, v), q - p
    ur, vr = dot(u, r), dot(v, r)
    c = jnp.cross(u, v)
    det = dot(c, c)
    return divide(ur * vv - vr * uv, det), divide(ur * uv - vr * uu, det), divide(det, uu * vv)


def between_segments(p: Array, p2: Array, q: Array, q2: Array) -> tuple[Array, Array, Array]:
    """Nearest points of the segments p p2 and q q2, and whether they lie inside both, u × v between them.

    Of parallel segments they are those in the middle of the overlap.
    """
    u, v = p2 - p, q2 - q
    s, t, sine = line_parameters(p, u, q, v)
    eps = jnp.finfo(p.dtype).eps
    inside = (sine > 16 * eps) & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)
    ends_a = [(x, on_segment(x, q, q2)) for x in (p, p2)]
    ends_b = [(on_segment(x, p, p2), x) for x in (q, q2)]
    a = jnp.stack([x for x, _ in (*ends_a, *ends_b)])
    b = jnp.stack([y for _, y in (*ends_a, *ends_b)])
    square = fixed(dot(a - b, a - b))
    # ends that are equally near: the segments are parallel, and the middle of these ends is as near
    least, size = jnp.min(square), jnp.max(square) + fixed(dot(u, u) + dot(v, v))
    tied = (square <= least + 64 * eps * size) & (sine <= 16 * eps)
    first = jnp.arange(4) == jnp.argmin(square)
    weight = jnp.where(tied, 1.0, first.astype(p.dtype))[:, None]
    weight = weight / jnp.sum(weight)
    inner_a, inner_b = p + s * u, q + t * v
    a, b = jnp.sum(weight * a, 0), jnp.sum(weight * b, 0)
    return jnp.where(inside, inner_a, a), jnp.where(inside, inner_b, b), inside


def _ends(x: Placed) -> tuple[Array, Array]:
    half = x.R[:, 2] * x.size[1] / 2
    return x.p - half, x.p + half


def _cores(A: Placed, B: Placed, a: Array, b: Array, otherwise: Array) -> Touch:
    """From nearest points of two cores; where these cross, the normal is `otherwise`."""
    apart = length(fixed(a - b)) > slack(a, b, A.size, B.size)
    n = unit(jnp.where(apart, a - b, otherwise), otherwise)
    d = jnp.where(apart, length(a - b), dot(n, a - b))
    return rounded(single(d, a, b, n), A.size[0], B.size[0])


def sphere_sphere(A: Placed, B: Placed) -> Touch:
    """|p_A - p_B| - r_A - r_B; z is the normal at coincident centres."""
    up = jnp.zeros_like(A.p).at[2].set(1)
    return _cores(A, B, A.p, B.p, up)


def sphere_capsule(A: Placed, B: Placed) -> Touch:
    """Centre and axis."""
    return _cores(A, B, A.p, on_segment(A.p, *_ends(B)), B.R[:, 0])


def capsule_capsule(A: Placed, B: Placed) -> Touch:
    """Axis and axis; where they cross, the normal stands on both."""
    a, b, inside = between_segments(*_ends(A), *_ends(B))
    both = unit(jnp.cross(A.R[:, 2], B.R[:, 2]), across(A.R[:, 2])[0])
    n = jnp.where(fixed(dot(both, a - b)) < 0, -1, 1) * both
    crossing = rounded(single(dot(n, a - b), a, b, n), A.size[0], B.size[0])
    ends = _cores(A, B, a, b, both)
    return Touch(*(jnp.where(inside, x, y) for x, y in zip(crossing, ends)))


def sphere_cylinder(A: Placed, B: Placed) -> Touch:
    """Centre against side, cap or rim, in the cylinder's axes."""
    x = B.R.T @ (A.p - B.p)
    radius, half = B.size[0], B.size[1] / 2
    out = unit(x[:2], jnp.zeros(2, x.dtype).at[0].set(1))
    sign = jnp.where(x[2] >= 0, 1.0, -1.0)
    side, cap = dot(out, x[:2]) - radius, sign * x[2] - half
    zero = jnp.zeros_like(side)
    radial = jnp.concatenate([out, zero[None]])
    axial = jnp.stack([zero, zero, zero + sign])
    rim = (side > 0) & (cap > 0)
    corner = side * radial + cap * axial
    n = jnp.where(rim, unit(corner, axial), jnp.where(side > cap, radial, axial))
    d = jnp.where(rim, length(corner), jnp.where(side > cap, side, cap))
    n = B.R @ n
    return rounded(single(d, A.p, A.p - d * n, n), A.size[0], 0.0)
