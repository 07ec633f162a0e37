"""Heightfields: a window of cells around a shape, each two triangular prisms, every prism a polytope.

Apart from the field the nearest prism is exact. Where a shape overlaps a prism, walls between prisms are no
way out: their normals are replaced by that of the triangle on top. A place at the rim of a triangle counts
only if the surface beyond does not rise towards the shape, so flat ground has no inner edges.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.collision.broad import bounding_sphere
from jaxrbd.collision.manifold import clipped, spread, support_face
from jaxrbd.collision.patches import flat, patches, pushed
from jaxrbd.collision.patches import polytope_patches as prism_patches
from jaxrbd.collision.polytopes import separate as polytope_separate
from jaxrbd.collision.shapes import FAR, Placed, Polytope, Touch, face_normals, polytope, rounded, single
from jaxrbd.collision.smooth import separate as smooth_separate
from jaxrbd.collision.vectors import dot, fixed, slack, unit
from jaxrbd.typing import Array

PLACES = 4
ROUND = ("cylinder", "ellipsoid")
_EDGES = np.array([[0, 1], [1, 2], [2, 0], [3, 4], [4, 5], [5, 3], [0, 3], [1, 4], [2, 5]])
_SIDES = np.array([[0, 2], [0, 3], [0, 4], [1, 2], [1, 3], [1, 4], [4, 2], [2, 3], [3, 4]])
_FACES = np.array([[0, 1, 2, 2], [3, 5, 4, 4], [0, 3, 4, 1], [1, 4, 5, 2], [2, 5, 3, 0]])


class Grid(NamedTuple):
    """Elevations (rows, columns) as shares of the field's top; rows along y, columns along x.

    `window` is not read: its shape says how many (rows, columns) of cells are looked at around a shape.
    """

    elevation: Array
    window: Array

    @property
    def cells(self) -> tuple[int, int]:
        rows, columns = np.shape(self.window)[-2:]
        return rows, columns


def window_of(elevation: np.ndarray, size: np.ndarray, radius: float) -> tuple[int, int]:
    """Cells (rows, columns) that a sphere of this radius can be over."""
    rows, columns = elevation.shape
    steps = 2 * size[1] / (rows - 1), 2 * size[0] / (columns - 1)
    need = [int(np.ceil(2 * radius / h)) + 1 for h in steps]
    return min(need[0], rows - 1), min(need[1], columns - 1)


def heightfield(kind: str, A: Placed, B: Placed) -> Touch:
    """Four places of a shape A and the field B."""
    assert isinstance(B.data, Grid)
    x = A._replace(R=B.R.T @ A.R, p=B.R.T @ (A.p - B.p))
    tops, beyond, stars = _triangles(kind, x, B)
    bottom = -B.size[3] - jnp.max(B.size[:2])
    found = jax.vmap(lambda w, o, s: _prism(kind, x, w, o, s, bottom))(tops, beyond, stars)
    kept = _chosen(Touch(*(y.reshape(-1, *y.shape[2:]) for y in found)))
    turn = lambda y: y @ B.R.T  # noqa: E731
    return Touch(kept.distance, turn(kept.a) + B.p, turn(kept.b) + B.p, turn(kept.normal), kept.valid)


def _triangles(kind: str, x: Placed, B: Placed) -> tuple[Array, Array, Array]:
    """Corners (n, 3, 3), counterclockwise from above, the corners beyond its sides and around its corners."""
    grid: Any = B.data
    z, (rows, columns) = grid.elevation, grid.cells
    height, width = z.shape
    step = jnp.stack([2 * B.size[0] / (width - 1), 2 * B.size[1] / (height - 1)])
    centre = fixed(bounding_sphere(kind, x)[0])
    at = (centre[:2] + B.size[:2]) / fixed(step)
    first = [
        jnp.clip(jnp.round(at[k] - n / 2).astype(int), 0, total - 1 - n)
        for k, n, total in ((0, columns, width), (1, rows, height))
    ]
    # one more corner on each side, for the triangles beyond; outside of the field the rim is repeated
    r = jnp.arange(-1, rows + 2) + first[1]
    c = jnp.arange(-1, columns + 2) + first[0]
    heights = z[jnp.clip(r, 0, height - 1)][:, jnp.clip(c, 0, width - 1)] * B.size[2]
    X = jnp.broadcast_to(c * step[0] - B.size[0], heights.shape)
    Y = jnp.broadcast_to((r * step[1] - B.size[1])[:, None], heights.shape)
    v = jnp.stack([X, Y, heights], -1)
    i, j = (k.ravel() + 1 for k in np.indices((rows, columns)))
    low = [(i, j), (i, j + 1), (i + 1, j)]
    high = [(i + 1, j + 1), (i + 1, j), (i, j + 1)]
    beyond_low = [(i - 1, j + 1), (i + 1, j + 1), (i + 1, j - 1)]
    beyond_high = [(i + 2, j), (i, j), (i, j + 2)]
    pick = lambda places: jnp.stack([v[a, b] for a, b in places], 1)  # noqa: E731
    around = [(0, 1), (1, 0), (1, -1), (0, -1), (-1, 0), (-1, 1)]
    star = lambda places: jnp.stack([pick([(a + k, b + m) for a, b in places]) for k, m in around], 2)  # noqa: E731
    return (
        jnp.concatenate([pick(low), pick(high)]),
        jnp.concatenate([pick(beyond_low), pick(beyond_high)]),
        jnp.concatenate([star(low), star(high)]),
    )


def _prism(kind: str, x: Placed, top: Array, beyond: Array, star: Array, bottom: Array) -> Touch:
    """Places of a shape and one prism; those that belong to its neighbours are not valid."""
    prism = Polytope(
        jnp.concatenate([top, top.at[:, 2].set(bottom)]),
        jnp.asarray(_EDGES),
        jnp.asarray(_SIDES),
        jnp.asarray(_FACES[:, :3]),
        jnp.asarray(_FACES),
    )
    N = face_normals(prism)[0]
    tol = 8 * slack(top, x.p)
    if kind in ROUND:
        body, radius = patches(kind, x)
        d, a, b, n = smooth_separate(body, prism_patches(prism))
        low = body.c @ -N + pushed(body.M, jnp.broadcast_to(-N, body.c.shape))[0]
        k = jnp.argmax(fixed(low))
        deepest = body.c[k] - pushed(body.M[k], N)[1]
    else:
        core, radius = polytope(kind, x)
        d, a, b, n = polytope_separate(core, prism)
        deepest = core.vertices[jnp.argmin(fixed(core.vertices @ N))]
    kept = _belongs(fixed(b), n, top, beyond, star, N, tol) & (fixed(dot(n, N)) > 0.05)
    replace = (d <= 0) & ~kept
    sink = dot(N, deepest - top[0])
    d, a, b, n = (
        jnp.where(replace, new, old)
        for new, old in ((sink, d), (deepest, a), (deepest - sink * N, b), (N, n))
    )
    if kind in ("sphere", "ellipsoid"):
        found = single(d, a, b, n)
    else:
        own = flat(kind, x, -n) if kind == "cylinder" else support_face(core, -n)
        found = clipped(d, a, b, n, own, top, 4 if kind != "capsule" else 2)
    good = jax.vmap(lambda p: _belongs(p, n, top, beyond, star, N, tol))(fixed(found.b))
    return rounded(found._replace(valid=found.valid & good & (kept | replace)), radius, 0.0)


def _belongs(p: Array, n: Array, top: Array, beyond: Array, star: Array, N: Array, tol: Array) -> Array:
    """Whether a point is of this triangle, and the surface beyond its rim does not rise along n."""
    top, beyond, star, N, n = fixed((top, beyond, star, N, n))
    u = jnp.roll(top, -1, 0) - top
    inward = dot(jnp.cross(N, unit(u, N)), p - top)
    blocked = jnp.any((inward <= tol) & (dot(beyond - p, n) > tol))
    corner = dot(p - top, p - top) <= tol**2
    blocked = blocked | jnp.any(corner[:, None] & (dot(star - p, n) > tol))
    return jnp.all(inward >= -tol) & ~blocked & (jnp.abs(dot(N, p - top[0])) <= tol)


def _chosen(found: Touch) -> Touch:
    """The nearest place, and others about as near that lie wide apart."""
    d = jnp.where(found.valid, found.distance, jnp.inf)
    any_valid = jnp.any(found.valid)
    rank = fixed(jnp.where(any_valid, d, found.distance))
    least, tol = jnp.min(rank), slack(found.a, found.b)
    wide = jnp.max(jnp.abs(fixed(found.b) - fixed(found.b)[jnp.argmin(rank)]))
    near = found.valid & (rank <= jnp.maximum(least, 0) + 0.1 * wide)
    index, good = spread(rank, fixed(found.b)[:, :2], near, PLACES, tol)
    pick = jnp.where(good, index, index[0])
    return Touch(
        jnp.where(good, found.distance[pick], FAR), found.a[pick], found.b[pick], found.normal[pick], good
    )
