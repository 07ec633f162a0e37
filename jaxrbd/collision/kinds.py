"""Which pairs of kinds there are: the function of each, and how many places it gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxrbd.collision import segments
from jaxrbd.collision.heightfield import PLACES, heightfield
from jaxrbd.collision.manifold import clipped, support_face
from jaxrbd.collision.planes import PLANES
from jaxrbd.collision.polytopes import separate
from jaxrbd.collision.shapes import Placed, Touch, polytope, rounded, single
from jaxrbd.collision.smooth import smooth

PairFunction = Callable[[Placed, Placed], Touch]

KINDS = ("sphere", "capsule", "cylinder", "ellipsoid", "box", "convex", "plane", "heightfield")


def polytopes(kind_a: str, kind_b: str, count: int, A: Placed, B: Placed) -> Touch:
    """Cores that are polytopes, points or segments, and the radii around them."""
    (a, radius_a), (b, radius_b) = polytope(kind_a, A), polytope(kind_b, B)
    d, x, y, n = separate(a, b)
    if count == 1:
        found = single(d, x, y, n)
    else:
        found = clipped(d, x, y, n, support_face(a, -n), support_face(b, n), count)
    return rounded(found, radius_a, radius_b)


PAIRS: dict[tuple[str, str], tuple[PairFunction, int]] = {
    ("sphere", "sphere"): (segments.sphere_sphere, 1),
    ("sphere", "capsule"): (segments.sphere_capsule, 1),
    ("sphere", "cylinder"): (segments.sphere_cylinder, 1),
    ("capsule", "capsule"): (segments.capsule_capsule, 1),
}
for _kind, _count in (("sphere", 1), ("capsule", 2), ("box", 4), ("convex", 4)):
    for _other in ("box", "convex"):
        if (_other, _kind) not in PAIRS:
            PAIRS[_kind, _other] = (partial(polytopes, _kind, _other, _count), _count)
for _kind, _count in (("sphere", 1), ("capsule", 2), ("cylinder", 4), ("box", 4), ("convex", 4)):
    if _kind != "sphere":
        _key = ("cylinder", _kind) if _kind in ("cylinder", "box", "convex") else (_kind, "cylinder")
        PAIRS[_key] = (partial(smooth, *_key, _count), _count)
    _key = ("ellipsoid", _kind) if _kind in ("box", "convex") else (_kind, "ellipsoid")
    PAIRS[_key] = (partial(smooth, *_key, 1), 1)
PAIRS["ellipsoid", "ellipsoid"] = (partial(smooth, "ellipsoid", "ellipsoid", 1), 1)
for _kind in ("sphere", "capsule", "cylinder", "ellipsoid", "box", "convex"):
    PAIRS[_kind, "heightfield"] = (partial(heightfield, _kind), PLACES)
for _kind, _function in PLANES.items():
    PAIRS[_kind, "plane"] = (
        _function,
        {"sphere": 1, "capsule": 2, "ellipsoid": 1}.get(_kind, 4),
    )


def touch(kind_a: str, kind_b: str, A: Placed, B: Placed) -> Touch:
    """Where two shapes are nearest: signed distances, points and normals; kinds in the order of `KINDS`."""
    function, _ = PAIRS[kind_a, kind_b]
    origin = A.p  # near it numbers are small, which matters in float32
    found = function(A._replace(p=A.p - origin), B._replace(p=B.p - origin))
    return found._replace(a=found.a + origin, b=found.b + origin)


def swapped(found: Touch) -> Touch:
    """The same places with A and B exchanged."""
    return Touch(found.distance, found.b, found.a, -found.normal, found.valid)
