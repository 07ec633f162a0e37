"""Convex polytopes: signed distance by separating axes and nearest features, exact for both signs.

Overlapping: the distance is the largest of the separations  min_A n·a - max_B n·b  over the normals of the
Minkowski difference, which are those of faces and of pairs of edges whose arcs on the Gauss map cross.
Apart: the least distance of vertex and face, edge and edge, vertex and edge. Points and segments are
polytopes without faces. The feature is chosen without gradients; distance, points and normal are then
recomputed from its vertices.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxrbd.collision.segments import line_parameters, on_segment
from jaxrbd.collision.shapes import Polytope, face_normals
from jaxrbd.collision.vectors import dot, fixed, slack, unit
from jaxrbd.typing import Array

FACE_VERTEX, VERTEX_FACE, EDGE_EDGE, VERTEX_EDGE, EDGE_VERTEX = range(5)


class Pick(NamedTuple):
    """A pair of features: its kind, their indices, the sign of the normal, and a normal to fall back on."""

    kind: Array
    i: Array
    j: Array
    sign: Array
    normal: Array


def separate(A: Polytope, B: Polytope) -> tuple[Array, Array, Array, Array]:
    """(distance, a, b, normal from B to A)."""
    return _recompute(A, B, pick(fixed(A), fixed(B)))


def _recompute(A: Polytope, B: Polytope, at: Pick) -> tuple[Array, Array, Array, Array]:
    """Distance, points and normal of a pair of features, in closed form."""
    results = []
    for kind in range(5):
        if kind == FACE_VERTEX:
            found = _against_face(A, B, at.i, at.j, -1) if A.triples is not None else None
        elif kind == VERTEX_FACE:
            found = _against_face(B, A, at.i, at.j, 1) if B.triples is not None else None
        elif kind == EDGE_EDGE:
            found = _between_edges(A, B, at)
        elif kind == VERTEX_EDGE:
            found = _against_edge(A, B, at, 1)
        else:
            found = _against_edge(B, A, at, -1)
        results.append(found)
    chosen = next(r for r in results if r is not None)
    for kind, found in enumerate(results):
        if found is not None:
            chosen = tuple(jnp.where(at.kind == kind, x, y) for x, y in zip(found, chosen))
    return chosen


def _against_face(A: Polytope, B: Polytope, face: Array, vertex: Array, sign: int):
    """A's face and B's vertex, whichever of the two is called A outside."""
    assert A.triples is not None
    face = jnp.minimum(face, len(A.triples) - 1)
    N = face_normals(A._replace(triples=A.triples[face][None]))[0]
    x = B.vertices[jnp.minimum(vertex, len(B.vertices) - 1)]
    d = dot(N, x - A.vertices[A.triples[face, 0]])
    y = x - d * N
    return (d, y, x, -N) if sign < 0 else (d, x, y, N)


def _edge(A: Polytope, i: Array) -> tuple[Array, Array]:
    ends = A.vertices[A.edges[jnp.minimum(i, len(A.edges) - 1)]]
    return ends[0], ends[1]


def _between_edges(A: Polytope, B: Polytope, at: Pick):
    p, p2 = _edge(A, at.i)
    q, q2 = _edge(B, at.j)
    u, v = p2 - p, q2 - q
    s, t, _ = line_parameters(p, u, q, v)
    n = at.sign * unit(jnp.cross(u, v), at.sign * at.normal)
    a, b = p + s * u, q + t * v
    return dot(n, a - b), a, b, n


def _against_edge(A: Polytope, B: Polytope, at: Pick, sign: int):
    i, j = (at.i, at.j) if sign > 0 else (at.j, at.i)
    x = A.vertices[jnp.minimum(i, len(A.vertices) - 1)]
    y = on_segment(x, *_edge(B, j))
    tol = slack(A.vertices, B.vertices)
    away = sign * (x - y)
    n = unit(jnp.where(dot(fixed(away), fixed(away)) > tol**2, away, at.normal), at.normal)
    d = dot(n, away)
    return (d, x, y, n) if sign > 0 else (d, y, x, n)


# --- the search, without gradients -----------------------------------------------------------------------


def pick(A: Polytope, B: Polytope) -> Pick:
    """The features between which the signed distance is taken."""
    tol = slack(A.vertices, B.vertices)
    inf = jnp.inf
    none = (jnp.asarray(-inf, tol.dtype), jnp.zeros((), int), jnp.zeros((), int), jnp.zeros(3, tol.dtype))
    up = jnp.zeros(3, tol.dtype).at[2].set(1)
    sA, iA, jA, nA = _best_face(A, B) if A.triples is not None else none
    sB, iB, jB, nB = _best_face(B, A) if B.triples is not None else none
    edges = _Edges(A, B, tol)
    sE, iE, jE, signE, nE = edges.deepest(A, B)
    axis = jnp.argmax(jnp.stack([sA, sB, sE - tol]))
    normal = jnp.stack([-nA, nB, nE])[axis]
    # shapes that touch are told apart by the axis: nearest features that coincide have no direction
    apart = jnp.maximum(jnp.maximum(sA, sB), sE) > 4 * tol
    if A.triples is None and B.triples is None:
        apart, normal = jnp.asarray(True), up
    fA = _inside(A, iA, B.vertices[jA], tol) if A.triples is not None else jnp.asarray(False)
    fB = _inside(B, iB, A.vertices[jB], tol) if B.triples is not None else jnp.asarray(False)
    dE, iN, jN, signN = edges.nearest()
    dV, iV, jV = _vertex_edge(A, B)
    dW, jW, iW = _vertex_edge(B, A)
    apart_scores = jnp.stack(
        [jnp.where(fA & (sA > -tol), sA, inf), jnp.where(fB & (sB > -tol), sB, inf) + tol, dE + tol, dV, dW]
    )
    apart_scores = apart_scores + jnp.array([0, 0, 0, 2, 2]) * tol
    near = jnp.argmin(apart_scores)
    kind = jnp.where(apart, near, axis)
    i = jnp.where(apart, jnp.stack([iA, iB, iN, iV, iW])[near], jnp.stack([iA, iB, iE])[axis])
    j = jnp.where(apart, jnp.stack([jA, jB, jN, jV, jW])[near], jnp.stack([jA, jB, jE])[axis])
    return Pick(kind, i, j, jnp.where(apart, signN, signE), unit(normal, up))


def _best_face(A: Polytope, B: Polytope):
    """(separation, face of A, vertex of B, the face's normal)."""
    assert A.triples is not None
    N = face_normals(A)
    height = N @ B.vertices.T - dot(N, A.vertices[A.triples[:, 0]])[:, None]
    low = jnp.min(height, 1)
    face = jnp.argmax(low)
    return low[face], face, jnp.argmin(height[face]), N[face]


def _inside(A: Polytope, face: Array, x: Array, tol: Array) -> Array:
    """Whether x, moved along the normal of a face, lands in the face."""
    assert A.polygons is not None and A.triples is not None
    w = A.vertices[A.polygons[face]]
    N = face_normals(A._replace(triples=A.triples[face][None]))[0]
    u = jnp.roll(w, -1, 0) - w
    return jnp.all(dot(jnp.cross(u, x - w), N) >= -tol * jnp.sqrt(dot(u, u)))


def _vertex_edge(A: Polytope, B: Polytope):
    """(distance, vertex of A, edge of B)."""
    ends = B.vertices[B.edges]
    x = A.vertices[:, None]
    y = on_segment(x, ends[None, :, 0], ends[None, :, 1])
    square = dot(x - y, x - y)
    k = jnp.argmin(square)
    i, j = jnp.unravel_index(k, square.shape)
    return jnp.sqrt(square[i, j]), i, j


class _Edges:
    """All pairs of edges: normals that stand on both, and where their lines are nearest."""

    def __init__(self, A: Polytope, B: Polytope, tol: Array):
        p, q = A.vertices[A.edges[:, 0]], B.vertices[B.edges[:, 0]]
        u, v = A.vertices[A.edges[:, 1]] - p, B.vertices[B.edges[:, 1]] - q
        p, u, q, v = p[:, None], u[:, None], q[None], v[None]
        self.s, self.t, sine = line_parameters(p, u, q, v)
        self.crossing = sine > 256 * jnp.finfo(tol.dtype).eps ** 1.5
        self.n = unit(jnp.cross(u, v), jnp.zeros(3, tol.dtype))
        self.along = dot(self.n, p - q)

    def nearest(self):
        """(distance, edge, edge, sign) over pairs whose nearest points lie inside both."""
        inside = self.crossing & (self.s >= 0) & (self.s <= 1) & (self.t >= 0) & (self.t <= 1)
        d = jnp.where(inside, jnp.abs(self.along), jnp.inf)
        i, j = jnp.unravel_index(jnp.argmin(d), d.shape)
        return d[i, j], i, j, jnp.where(self.along[i, j] < 0, -1.0, 1.0).astype(d.dtype)

    def deepest(self, A: Polytope, B: Polytope):
        """(separation, edge, edge, sign, normal) over pairs that carry a face of the Minkowski difference."""
        eps = 16 * jnp.finfo(self.n.dtype).eps
        plus, minus = self.crossing, self.crossing
        for X, sign, axis in ((A, -1, 1), (B, 1, 0)):
            if X.sides is None:
                continue
            first, second = (jnp.expand_dims(x, axis) for x in _arcs(X))
            on, off = sign * dot(self.n, first), sign * dot(self.n, second)
            plus = plus & (on >= -eps) & (off >= -eps)
            minus = minus & (on <= eps) & (off <= eps)
        if A.sides is None and B.sides is None:
            plus = minus = jnp.zeros_like(plus)
        s = jnp.where(plus, self.along, jnp.where(minus, -self.along, -jnp.inf))
        i, j = jnp.unravel_index(jnp.argmax(s), s.shape)
        sign = jnp.where(plus[i, j], 1.0, -1.0).astype(s.dtype)
        return s[i, j], i, j, sign, sign * self.n[i, j]


def _arcs(x: Polytope) -> tuple[Array, Array]:
    """Per edge two vectors: a direction across the edge lies between its faces' normals if both see it."""
    assert x.sides is not None
    N = face_normals(x)[x.sides]
    first, second = N[:, 0], N[:, 1]
    e = unit(jnp.cross(first, second), jnp.zeros(3, N.dtype))
    return jnp.cross(e, first), jnp.cross(second, e)
