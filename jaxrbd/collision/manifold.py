"""Further places of contact: two faces clipped against each other, seen along the normal.

Faces are polygons (K, 3), counterclockwise or not, padded by repetition; a segment is a polygon without area.
Places are vertices of one inside the other, and crossings of their sides. Up to four are kept: the nearest,
the farthest from it, and the farthest on either side of the line between these two.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.collision.segments import on_segment
from jaxrbd.collision.shapes import FAR, Polytope, Touch, face_normals
from jaxrbd.collision.vectors import across, divide, dot, fixed, root, slack
from jaxrbd.typing import Array

STEEP = 0.05  # cosine between normal and face below which the face is seen edge-on


def support_face(x: Polytope, direction: Array) -> Array:
    """The face (K, 3) that looks most along a direction; of a point or a segment, itself."""
    if x.triples is None:
        return x.vertices
    assert x.polygons is not None
    return x.vertices[x.polygons[jnp.argmax(fixed(face_normals(x)) @ fixed(direction))]]


def clipped(distance: Array, a: Array, b: Array, n: Array, face_a: Array, face_b: Array, count: int) -> Touch:
    """`count` places between two faces; the nearest points (a, b) are one candidate among them."""
    tol = slack(face_a - a, face_b - a, a - b)
    frame = jnp.stack(across(n))
    seen_a, seen_b = (face_a - a) @ frame.T, (face_b - a) @ frame.T
    found = [(a[None], b[None], jnp.ones(1, bool))]
    if len(face_a) > 1 and len(face_b) > 2:
        height, inside = _over(seen_a, face_a, face_b, seen_b, n, tol)
        found.append((face_a, face_a - height[:, None] * n, inside))
    if len(face_b) > 1 and len(face_a) > 2:
        height, inside = _over(seen_b, face_b, face_a, seen_a, n, tol)
        found.append((face_b - height[:, None] * n, face_b, inside))
    if len(face_a) > 1 and len(face_b) > 1:
        found.append(_crossings(face_a, seen_a, face_b, seen_b))
    xs, ys, valid = (jnp.concatenate(x) for x in zip(*found))
    along = (xs - ys) @ n
    flat = [fixed(x - a) @ fixed(frame).T for x in (xs, ys)]
    middle = (flat[0] + flat[1]) / 2
    # of parallel faces the witness is any of many points, maybe beyond the other face: clipped ones are not
    level = valid & (fixed(along) <= fixed(distance) + tol)
    instead = jnp.any(level[1:])
    tied = jnp.any(level & (dot(middle, middle) > (8 * tol) ** 2))
    here = jnp.zeros((1, 2), n.dtype)
    beyond = jnp.zeros((), bool)
    for seen, face in ((seen_a, face_a), (seen_b, face_b)):
        if len(face) > 1:
            rim = on_segment(here, seen, jnp.roll(seen, -1, 0))
            off = jnp.all(dot(rim, rim) > (8 * tol) ** 2)
            inside = _flat(face, n, tol)[2] & _within(here, seen, face, n, tol)[0]
            beyond = beyond | (off & ~inside)
    valid = valid.at[0].set(~(instead & beyond))
    rank = jnp.where(valid, fixed(along), FAR).at[0].add(jnp.where(tied, 2, -2) * tol)
    index, good = spread(rank, middle, valid, count, tol)
    d = jnp.where(good, along[index], FAR)
    d = d.at[0].set(jnp.where(index[0] == 0, distance, d[0]))
    pick = jnp.where(good, index, index[0])
    return Touch(d, xs[pick], ys[pick], jnp.broadcast_to(n, (count, 3)), good)


def _over(seen: Array, points: Array, face: Array, outline: Array, n: Array, tol: Array):
    """Heights along n of points over the plane of a face, and which of them are over the face."""
    middle, area, flat = _flat(face, n, tol)
    height = divide(dot(points - middle, area), jnp.where(flat, dot(area, n), 0))
    return height, _within(seen, outline, face, n, tol) & flat


def _flat(face: Array, n: Array, tol: Array) -> tuple[Array, Array, Array]:
    """(middle, area along the normal, whether there is some area seen along n)."""
    middle = jnp.mean(face, 0)
    spokes = face - middle
    area = jnp.sum(jnp.cross(spokes, jnp.roll(spokes, -1, 0)), 0)
    facing, size = fixed(dot(area, n)), root(fixed(dot(area, area)))
    return middle, area, (jnp.abs(facing) > STEEP * size) & (size > tol * jnp.max(jnp.abs(fixed(spokes))))


def _within(seen: Array, outline: Array, face: Array, n: Array, tol: Array) -> Array:
    """Which points lie inside an outline, as seen along n."""
    u = fixed(jnp.roll(outline, -1, 0) - outline)[None]
    r = fixed(seen[:, None] - outline[None])
    turn = (u[..., 0] * r[..., 1] - u[..., 1] * r[..., 0]) * jnp.sign(fixed(dot(_flat(face, n, tol)[1], n)))
    return jnp.all(turn >= -tol * jnp.sqrt(dot(u, u)), 1)


def _crossings(face_a: Array, seen_a: Array, face_b: Array, seen_b: Array):
    """Places where sides of two outlines cross."""
    p, q = seen_a[:, None], seen_b[None]
    u, v = jnp.roll(seen_a, -1, 0)[:, None] - p, jnp.roll(seen_b, -1, 0)[None] - q
    cross = lambda x, y: x[..., 0] * y[..., 1] - x[..., 1] * y[..., 0]  # noqa: E731
    det = cross(u, v)
    small = 1e3 * jnp.finfo(det.dtype).eps * jnp.sqrt(fixed(dot(u, u) * dot(v, v)))
    det = jnp.where(jnp.abs(det) > small, det, 0)
    s, t = divide(cross(q - p, v), det), divide(cross(q - p, u), det)
    valid = (det != 0) & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)
    a = face_a[:, None] + s[..., None] * (jnp.roll(face_a, -1, 0) - face_a)[:, None]
    b = face_b[None] + t[..., None] * (jnp.roll(face_b, -1, 0) - face_b)[None]
    return a.reshape(-1, 3), b.reshape(-1, 3), valid.ravel()


def spread(rank: Array, flat: Array, valid: Array, count: int, tol: Array):
    """Indices of up to four candidates that lie wide apart, and which of them exist."""
    first = jnp.argmin(rank)
    away = flat - flat[first]
    square = jnp.where(valid, dot(away, away), -1.0)
    second = jnp.argmax(square)
    index, good = [first, second], [jnp.asarray(True), square[second] > (8 * tol) ** 2]
    along = away[second]
    turn = jnp.where(valid, along[0] * away[:, 1] - along[1] * away[:, 0], 0)
    for side in (1, -1):
        k = jnp.argmax(side * turn)
        index.append(k)
        good.append(side * turn[k] > 8 * tol * jnp.sqrt(jnp.maximum(square[second], 0)))
    return jnp.stack(index)[:count], jax.lax.stop_gradient(jnp.stack(good)[:count])
