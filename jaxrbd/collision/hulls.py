"""Convex hulls of points on the host: vertices, edges and flat faces as padded indices.

Triangles of scipy's hull that lie in one plane are one face. A hull with more vertices than the limit is
replaced by the hull of some of them, chosen so that the largest distance of a point outside it is small.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from jaxrbd.collision.shapes import Hull
from jaxrbd.errors import ArgumentError, warn
from jaxrbd.typing import Numbers

MAX_POINTS = 2_000_000
FLAT = 1e-7  # 1 - cosine between triangles of one face


def convex_hull(points: Numbers, max_vertices: int = 32, name: str = "points") -> Hull:
    """The hull of points (n, 3) with at most `max_vertices` vertices; a warning says what that cuts off."""
    from scipy.spatial import ConvexHull, QhullError

    x = np.asarray(points, float)
    if x.ndim != 2 or x.shape[1] != 3 or not np.isfinite(x).all():
        raise ArgumentError(f"hull of {name}: shape {x.shape}, expected (n, 3), all finite.")
    if max_vertices < 4:
        raise ArgumentError(f"hull of {name}: max_vertices is {max_vertices}, expected at least 4.")
    if len(x) > MAX_POINTS:
        raise ArgumentError(
            f"hull of {name}: {len(x)} points, more than {MAX_POINTS}. Simplify the mesh, or use a primitive."
        )
    try:
        hull = ConvexHull(x)
        x = x[hull.vertices]
        if len(x) > max_vertices:
            x, cut = _fewer(x, max_vertices)
            warn(
                f"hull of {name}: {len(hull.vertices)} vertices, reduced to {max_vertices}, which cuts off "
                f"up to {cut:.2g} m. Raise max_vertices=, or use primitives."
            )
        hull = ConvexHull(x)
    except QhullError:
        raise ArgumentError(
            f"hull of {name}: its points lie in a plane or a line. Give it a thickness, or use a thin box."
        ) from None
    return _faces(x, hull)


def _fewer(x: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    """Some of the points, and how far the others lie outside their hull: the farthest is added in turn."""
    from scipy.spatial import ConvexHull

    chosen = list(dict.fromkeys([*np.argmax(x, 0).tolist(), *np.argmin(x, 0).tolist()]))
    while len(chosen) < 4 or np.linalg.matrix_rank(x[chosen] - x[chosen[0]], 1e-9) < 3:
        base = x[chosen] - x[chosen[0]]
        _, s, rows = np.linalg.svd(base, full_matrices=True)
        free = rows[np.sum(s > 1e-9) :]
        chosen.append(int(np.argmax(np.abs((x - x[chosen[0]]) @ free.T).max(1))))
    while True:
        planes = ConvexHull(x[chosen]).equations
        outside = (x @ planes[:, :3].T + planes[:, 3]).max(1)
        far = int(np.argmax(outside))
        if len(chosen) >= count or outside[far] <= 0:
            return x[chosen], float(max(outside[far], 0))
        chosen.append(far)


def _faces(x: np.ndarray, hull: Any) -> Hull:
    """Merge triangles of one plane; order each face; find the two faces of every edge."""
    normals, group = hull.equations[:, :3], np.full(len(hull.simplices), -1)
    count = 0
    for seed in range(len(group)):
        if group[seed] >= 0:
            continue
        group[seed], stack = count, [seed]
        while stack:
            for other in hull.neighbors[stack.pop()]:
                if group[other] < 0 and 1 - normals[other] @ normals[seed] < FLAT:
                    group[other] = count
                    stack.append(other)
        count += 1
    polygons, triples = [], []
    around: dict[tuple[int, int], list[int]] = {}
    for g in range(count):
        n = normals[np.flatnonzero(group == g)[0]]
        at = np.unique(hull.simplices[group == g])
        r = x[at] - x[at].mean(0)
        u = r[np.argmax(np.sum(r * r, 1))]
        at = at[np.argsort(np.arctan2(r @ np.cross(n, u), r @ u))]
        polygons.append(at)
        triples.append(_widest(x, at))
        for i, j in zip(at, np.roll(at, -1)):
            around.setdefault((min(i, j), max(i, j)), []).append(g)
    edges = [(e, f) for e, f in around.items() if len(f) == 2]
    K = max(map(len, polygons))
    padded = np.array([np.concatenate([p, np.full(K - len(p), p[-1])]) for p in polygons])
    return Hull(
        x, np.array([e for e, _ in edges]), np.array([f for _, f in edges]), np.array(triples), padded
    )


def _widest(x: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Three vertices of a face, in its order, that span much of it."""
    i = 0
    square = np.sum((x[at] - x[at[i]]) ** 2, 1)
    j = int(np.argmax(square))
    c = np.cross(x[at[j]] - x[at[i]], x[at] - x[at[i]])
    k = int(np.argmax(np.sum(c * c, 1)))
    return at[np.sort([i, j, k])]


def padded(hull: Hull, sizes: tuple[int, ...]) -> Hull:
    """The same hull with (vertices, edges, faces, vertices of a face) repeated up to these numbers."""

    def longer(x: np.ndarray, n: int, axis: int = 0) -> np.ndarray:
        return np.concatenate([x, np.repeat(np.take(x, [-1], axis), n - x.shape[axis], axis)], axis)

    V, E, F, K = sizes
    v, e, s, t, p = (np.asarray(x) for x in hull)
    return Hull(longer(v, V), longer(e, E), longer(s, E), longer(t, F), longer(longer(p, K, 1), F))


def hull_sizes(hull: Hull) -> tuple[int, ...]:
    """(vertices, edges, faces, vertices of a face)."""
    return len(hull.vertices), len(hull.edges), *np.shape(hull.polygons)


@lru_cache(maxsize=256)
def mesh_hull(path: str, max_vertices: int) -> Hull:
    """The hull of a mesh file, read through trimesh."""
    try:
        import trimesh
    except ModuleNotFoundError:
        raise ArgumentError(
            "Reading meshes needs trimesh. Install it with: pip install 'jaxrbd[mesh]'"
        ) from None
    try:
        mesh = trimesh.load_scene(path).to_mesh()
    except Exception as error:
        raise ArgumentError(
            f"mesh {path}: cannot be read ({type(error).__name__}: {str(error)[:80]}). Save it as STL or OBJ."
        ) from None
    if len(mesh.faces) == 0:
        raise ArgumentError(f"mesh {path}: it has no triangles. Save it as a surface of triangles.")
    return convex_hull(mesh.vertices, max_vertices, path)
