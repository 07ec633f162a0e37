"""Random pairs of shapes for `test_collision.py`, and the same pairs in coal."""

import numpy as np
from scipy.spatial.transform import Rotation

from jaxrbd.collision.hulls import convex_hull, padded
from jaxrbd.collision.shapes import Hull, Placed

POINTS = 14  # of the clouds whose hulls stand for meshes
SIZES = (POINTS, 3 * POINTS - 6, 2 * POINTS - 4, 8)


def rotation(rng, n):
    return Rotation.random(n, random_state=rng).as_matrix()


def hulls(rng, n):
    """n hulls, padded to one size: every third is a box given by its corners, so that it has square faces."""
    made = []
    for k in range(n):
        points = rng.normal(size=(POINTS, 3))
        points *= rng.uniform(0.3, 0.7, 3) / np.linalg.norm(points, axis=1)[:, None]
        if k % 3 == 0:
            corners = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
            points = corners * rng.uniform(0.1, 0.5, 3)
        made.append(padded(convex_hull(points), SIZES))
    return Hull(*(np.stack(x) for x in zip(*made)))


def shapes(kind, rng, n):
    """Placed shapes (R, p, size, data) of one kind, at the origin, about 0.5 m large."""
    size = np.zeros((n, 4))
    data = None
    if kind == "sphere":
        size[:, 0] = rng.uniform(0.1, 0.5, n)
    elif kind in ("capsule", "cylinder"):
        size[:, 0], size[:, 1] = rng.uniform(0.05, 0.4, n), rng.uniform(0.1, 1.0, n)
    elif kind == "box":
        size[:, :3] = rng.uniform(0.1, 1.0, (n, 3))
    elif kind == "ellipsoid":
        size[:, :3] = rng.uniform(0.1, 0.6, (n, 3))
    elif kind == "convex":
        size[:, :3] = rng.uniform(0.7, 1.3, (n, 3))
        data = hulls(rng, n)
    return Placed(rotation(rng, n), np.zeros((n, 3)), size, data)


def pairs(a, b, rng, n):
    """Pairs at distances from deep overlap to 1.5 m; a third of them turned alike, or by quarter turns."""
    A, B = shapes(a, rng, n), shapes(b, rng, n)
    away = rng.normal(size=(n, 3))
    away *= (rng.uniform(0, 1.5, n) / np.linalg.norm(away, axis=1))[:, None]
    R = np.array(B.R)
    alike = np.arange(n) % 6
    R[alike == 1] = A.R[alike == 1]
    quarter = Rotation.from_euler("xyz", rng.integers(0, 4, ((alike == 2).sum(), 3)) * 90, degrees=True)
    R[alike == 2] = A.R[alike == 2] @ quarter.as_matrix()
    return A, B._replace(R=R, p=away)


def as_coal(kind, x, k):
    """(shape, transform) of coal for pair k."""
    import coal

    s, p = x.size[k], x.p[k]
    R = np.array(x.R[k])
    if kind == "sphere":
        shape = coal.Sphere(s[0])
    elif kind == "capsule":
        shape = coal.Capsule(s[0], s[1])
    elif kind == "cylinder":
        shape = coal.Cylinder(s[0], s[1])
    elif kind == "box":
        shape = coal.Box(*s[:3])
    elif kind == "ellipsoid":
        shape = coal.Ellipsoid(*s[:3])
    elif kind == "plane":
        shape = coal.Halfspace(np.array([0, 0, 1.0]), 0.0)
    else:
        shape = convex_of_coal(x.data.vertices[k] * s[:3])
    return shape, coal.Transform3s(R, np.array(p))


def convex_of_coal(points):
    import coal
    from scipy.spatial import ConvexHull

    points = np.unique(points, axis=0)
    hull = ConvexHull(points)
    vertices, triangles = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
    for v in points:
        vertices.append(np.array(v))
    for t, n in zip(hull.simplices, hull.equations[:, :3]):
        i, j, k = map(int, t)
        if np.cross(points[j] - points[i], points[k] - points[i]) @ n < 0:
            j, k = k, j
        triangles.append(coal.Triangle(i, j, k))
    return coal.Convex(vertices, triangles)


def coal_distance(a, b, A, B, k):
    """(signed distance, normal from B to A) by coal."""
    import coal

    request, result = coal.DistanceRequest(), coal.DistanceResult()
    request.enable_signed_distance = True
    request.gjk_tolerance = request.epa_tolerance = 1e-8
    request.gjk_max_iterations = request.epa_max_iterations = 1000
    d = coal.distance(*as_coal(a, A, k), *as_coal(b, B, k), request, result)
    return d, -np.array(result.normal)


def reach(kind, x, n):
    """max n·y over every shape (and, of hulls, over its vertices), for directions n; plain NumPy."""
    local = np.einsum("kji,kj->ki", x.R, n)
    s = x.size
    if kind == "sphere":
        own = s[:, 0]
    elif kind == "capsule":
        own = s[:, 0] + s[:, 1] / 2 * np.abs(local[:, 2])
    elif kind == "cylinder":
        own = s[:, 0] * np.hypot(local[:, 0], local[:, 1]) + s[:, 1] / 2 * np.abs(local[:, 2])
    elif kind == "box":
        own = np.sum(s[:, :3] / 2 * np.abs(local), 1)
    elif kind == "ellipsoid":
        own = np.linalg.norm(s[:, :3] * local, axis=1)
    elif kind == "plane":
        own = np.where(local[:, 2] > 1 - 1e-12, 0.0, np.inf)
    else:
        own = np.max(np.einsum("kvi,ki->kv", x.data.vertices, s[:, :3] * local), 1)
    return own + np.sum(x.p * n, 1)


def separation(a, b, A, B, n):
    """How far A is from B along n, a lower bound of the signed distance; n points from B to A."""
    return -reach(a, A, -n) - reach(b, B, n)


def outside(kind, x, points):
    """How far points (k, 3) are outside their shapes, in one norm or another: not above zero inside."""
    y = np.einsum("kji,kj->ki", x.R, points - x.p)
    s = x.size
    if kind == "sphere":
        return np.linalg.norm(y, axis=1) - s[:, 0]
    if kind == "capsule":
        y[:, 2] -= np.clip(y[:, 2], -s[:, 1] / 2, s[:, 1] / 2)
        return np.linalg.norm(y, axis=1) - s[:, 0]
    if kind == "cylinder":
        return np.maximum(np.hypot(y[:, 0], y[:, 1]) - s[:, 0], np.abs(y[:, 2]) - s[:, 1] / 2)
    if kind == "box":
        return np.max(np.abs(y) - s[:, :3] / 2, 1)
    if kind == "ellipsoid":
        return (np.linalg.norm(y / s[:, :3], axis=1) - 1) * s[:, :3].min(1)
    if kind == "plane":
        return y[:, 2]
    v = x.data.vertices * s[:, None, :3]
    corners = np.stack([v[k][x.data.triples[k]] for k in range(len(v))])
    n = np.cross(corners[:, :, 1] - corners[:, :, 0], corners[:, :, 2] - corners[:, :, 0])
    n /= np.linalg.norm(n, axis=-1, keepdims=True)
    return np.max(np.einsum("kfi,kfi->kf", n, y[:, None] - corners[:, :, 0]), 1)


def turned(x, h, w, u, ds):
    """The shapes after a small motion: turned by h w about themselves, moved by h u, sizes grown by h ds."""
    R = x.R @ Rotation.from_rotvec(h * w).as_matrix()
    return x._replace(R=R, p=x.p + h * u, size=x.size + h * ds)


def field_distance(kind, A, k, z, size):
    """The least distance of shape k to the prisms under a field's triangles, by coal."""
    import coal

    rows, columns = z.shape
    x, y = np.linspace(-size[0], size[0], columns), np.linspace(-size[1], size[1], rows)
    bottom = -size[3] - size[:2].max()
    shape, pose = as_coal(kind, A, k)
    request, least = coal.DistanceRequest(), np.inf
    request.enable_signed_distance = True
    request.gjk_tolerance = request.epa_tolerance = 1e-8
    request.gjk_max_iterations = request.epa_max_iterations = 1000
    at = lambda i, j: np.array([x[j], y[i], z[i, j] * size[2]])  # noqa: E731
    for i in range(rows - 1):
        for j in range(columns - 1):
            for corners in (((i, j), (i, j + 1), (i + 1, j)), ((i + 1, j + 1), (i + 1, j), (i, j + 1))):
                top = np.array([at(*c) for c in corners])
                low = top.copy()
                low[:, 2] = bottom
                prism = convex_of_coal(np.concatenate([top, low]))
                d = coal.distance(shape, pose, prism, coal.Transform3s(), request, coal.DistanceResult())
                least = min(least, d)
    return least
