"""Shapes as collision sees them: placed in the world, the convex ones as polytopes or patches.

Polytopes carry indices as data, padded by repetition (what is listed twice changes nothing), so that
different hulls share one program. A shape of smooth parts is described by patches: on one
its support function is h(n) = n·c + |M n|, with M = 0 for a vertex, S Rᵀ for an ellipsoid and r (1 - z zᵀ)
for the rim of a cylinder.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrbd.collision.vectors import unit
from jaxrbd.typing import Array


class Hull(NamedTuple):
    """A convex polytope in the axes of its shape; indices point into `vertices` and `polygons`."""

    vertices: Array  # (V, 3)
    edges: Array  # (E, 2)
    sides: Array  # (E, 2) the two faces that meet in an edge
    triples: Array  # (F, 3) three vertices of a face, counterclockwise from outside
    polygons: Array  # (F, K) all vertices of a face, counterclockwise


class Placed(NamedTuple):
    """A shape in the world, x = R x_shape + p; `size` as in `Shape`; `data` a Hull or a Grid, or None."""

    R: Array
    p: Array
    size: Array
    data: tuple | None = None


class Touch(NamedTuple):
    """k places where two shapes are nearest, the nearest first.

    distance  (k,)    m   signed along the normal: n · (a - b)
    a, b      (k, 3)  m   points of A and of B
    normal    (k, 3)  1   from B to A
    valid     (k,)        whether the place exists; the first always does
    """

    distance: Array
    a: Array
    b: Array
    normal: Array
    valid: Array


class Polytope(NamedTuple):
    """A convex polytope in the world; a point or a segment has neither sides nor faces."""

    vertices: Array
    edges: Array
    sides: Array | None = None
    triples: Array | None = None
    polygons: Array | None = None


SIGNS = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
FAR = 1e3  # what `distance` says of a place that does not exist, m


def _box_indices() -> tuple[np.ndarray, ...]:
    normals = np.concatenate([-np.eye(3), np.eye(3)])
    polygons = []
    for n in normals:
        at = np.flatnonzero(SIGNS @ n > 0)
        u = np.roll(np.abs(n), 1)
        v = np.cross(n, u)
        polygons.append(at[np.argsort(np.arctan2(SIGNS[at] @ v, SIGNS[at] @ u))])
    faces = np.array(polygons)
    edges = np.array([(i, j) for i in range(8) for j in range(i) if (SIGNS[i] != SIGNS[j]).sum() == 1])
    sides = np.array([[f for f in range(6) if i in faces[f] and j in faces[f]] for i, j in edges])
    return edges, sides, faces[:, :3], faces


BOX = _box_indices()
_SEGMENT = np.array([[0, 1]])
_POINT = np.array([[0, 0]])


def single(distance: Array, a: Array, b: Array, normal: Array) -> Touch:
    """One place as a Touch."""
    return Touch(distance[None], a[None], b[None], normal[None], jnp.ones(1, bool))


def rounded(found: Touch, radius_a: Array | float, radius_b: Array | float) -> Touch:
    """What is found between two cores, for the bodies within these radii of them."""
    n = found.normal
    a, b = found.a - radius_a * n, found.b + radius_b * n
    distance = jnp.where(found.valid, found.distance - radius_a - radius_b, found.distance)
    return Touch(distance, a, b, n, found.valid)


def polytope(kind: str, x: Placed) -> tuple[Polytope, Array | float]:
    """(core, radius) of a sphere, capsule, box or convex body."""
    if kind == "sphere":
        return Polytope(x.p[None], jnp.asarray(_POINT)), x.size[0]
    if kind == "capsule":
        half = x.R[:, 2] * x.size[1] / 2
        return Polytope(jnp.stack([x.p - half, x.p + half]), jnp.asarray(_SEGMENT)), x.size[0]
    if kind == "box":
        vertices = x.p + (jnp.asarray(SIGNS, x.p.dtype) * x.size[:3] / 2) @ x.R.T
        return Polytope(vertices, *(jnp.asarray(i) for i in BOX)), 0.0
    assert isinstance(x.data, Hull)
    indices = (jnp.asarray(i) for i in x.data[1:])
    return Polytope(x.p + (x.data.vertices * x.size[:3]) @ x.R.T, *indices), 0.0


def face_normals(x: Polytope) -> Array:
    """(F, 3), outward."""
    assert x.triples is not None
    v = x.vertices[x.triples]
    up = jnp.zeros(3, v.dtype).at[2].set(1)
    return unit(jnp.cross(v[:, 1] - v[:, 0], v[:, 2] - v[:, 0]), up)
