"""Primitive shapes and the inertia of the solid bodies they bound.

For uniform density, a solid of mass m with inertia I_c about its centre contributes to a body, about the
body's centre of mass c, the rotated tensor plus Steiner's term:  R I_c Rᵀ + m (|d|² 1 - d dᵀ),  d = p - c.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxrbd.errors import ModelError
from jaxrbd.joints.matrices import matrix_from_rpy
from jaxrbd.model.description import Pose, Shape
from jaxrbd.typing import Numbers


def pose(xyz: Numbers = (0.0, 0.0, 0.0), rpy: Numbers = (0.0, 0.0, 0.0)) -> Pose:
    """Placement from a position and roll-pitch-yaw angles."""
    return Pose(matrix_from_rpy(np.asarray(rpy, float)), np.asarray(xyz, float))


def box(x: float, y: float, z: float, xyz: Numbers = (0, 0, 0), rpy: Numbers = (0, 0, 0), **kw: Any) -> Shape:
    """Box with full side lengths x, y, z. Further keywords are fields of `Shape` (role, rgba, friction…)."""
    return _shape("box", (x, y, z), xyz, rpy, kw)


def sphere(radius: float, xyz: Numbers = (0, 0, 0), **kw: Any) -> Shape:
    """Sphere about `xyz`."""
    return _shape("sphere", (radius,), xyz, (0, 0, 0), kw)


def cylinder(
    radius: float, length: float, xyz: Numbers = (0, 0, 0), rpy: Numbers = (0, 0, 0), **kw: Any
) -> Shape:
    """Cylinder along its own z, centred at `xyz`."""
    return _shape("cylinder", (radius, length), xyz, rpy, kw)


def capsule(
    radius: float, length: float, xyz: Numbers = (0, 0, 0), rpy: Numbers = (0, 0, 0), **kw: Any
) -> Shape:
    """Capsule along its own z, centred at `xyz`; `length` is that of the straight part, without the caps."""
    return _shape("capsule", (radius, length), xyz, rpy, kw)


def ellipsoid(
    a: float, b: float, c: float, xyz: Numbers = (0, 0, 0), rpy: Numbers = (0, 0, 0), **kw: Any
) -> Shape:
    """Ellipsoid with semi-axes a, b, c."""
    return _shape("ellipsoid", (a, b, c), xyz, rpy, kw)


def capsule_between(radius: float, start: Numbers, end: Numbers, **kw: Any) -> Shape:
    """Capsule whose straight part runs from `start` to `end`."""
    start, end = np.asarray(start, float), np.asarray(end, float)
    length = float(np.linalg.norm(end - start))
    if length == 0.0:
        return sphere(radius, start, **kw)
    z = (end - start) / length
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x /= np.linalg.norm(x)
    return Shape(
        "capsule", (radius, length), Pose(np.stack([x, np.cross(z, x), z], 1), (start + end) / 2), **kw
    )


def volume(shape: Shape) -> float:
    """Volume of a solid primitive [m³]; meshes, planes and height fields have none here and raise."""
    s = shape.size
    if shape.kind == "box":
        return s[0] * s[1] * s[2]
    if shape.kind == "sphere":
        return 4 / 3 * np.pi * s[0] ** 3
    if shape.kind == "cylinder":
        return np.pi * s[0] ** 2 * s[1]
    if shape.kind == "capsule":
        return np.pi * s[0] ** 2 * (s[1] + 4 / 3 * s[0])
    if shape.kind == "ellipsoid":
        return 4 / 3 * np.pi * s[0] * s[1] * s[2]
    raise ModelError(
        f"shape {shape.name or shape.kind!r}",
        f"the inertia of a solid {shape.kind} is not known",
        "Give the body its inertia explicitly, or use box, sphere, cylinder, capsule or ellipsoid.",
    )


def solid_inertia(shape: Shape, mass: float) -> np.ndarray:
    """Inertia tensor of a solid primitive of uniform density, about its own centre, in its own axes."""
    s = shape.size
    if shape.kind == "box":
        x2, y2, z2 = np.square(s)
        return mass / 12 * np.diag([y2 + z2, x2 + z2, x2 + y2])
    if shape.kind in ("sphere", "ellipsoid"):
        x2, y2, z2 = np.square(np.broadcast_to(s, 3))
        return mass / 5 * np.diag([y2 + z2, x2 + z2, x2 + y2])
    if shape.kind == "cylinder":
        r2, l2 = np.square(s)
        return mass * np.diag([r2 / 4 + l2 / 12, r2 / 4 + l2 / 12, r2 / 2])
    if shape.kind == "capsule":
        (r, length), total = s, volume(shape)
        m_cyl, m_caps = mass * np.pi * r**2 * length / total, mass * 4 / 3 * np.pi * r**3 / total
        # two half balls, each with its centre of mass 3r/8 beyond the end of the straight part
        across = m_cyl * (r**2 / 4 + length**2 / 12) + m_caps * (
            0.4 * r**2 + length**2 / 4 + 3 / 8 * r * length
        )
        return np.diag([across, across, (m_cyl / 2 + 0.4 * m_caps) * r**2])
    volume(shape)  # raises for a kind without a solid
    raise AssertionError(shape.kind)


def solid_body(shapes: Iterable[Shape], mass: float) -> tuple[np.ndarray, np.ndarray]:
    """Centre of mass and inertia about it of `shapes` sharing `mass` in proportion to their volumes."""
    shapes = tuple(shapes)
    volumes = np.array([volume(s) for s in shapes])
    masses = mass * volumes / volumes.sum()
    com = masses @ np.stack([s.pose.p for s in shapes]) / mass if mass else np.zeros(3)
    inertia = np.zeros((3, 3))
    for s, m in zip(shapes, masses):
        d = s.pose.p - com
        inertia += s.pose.R @ solid_inertia(s, m) @ s.pose.R.T + m * (d @ d * np.eye(3) - np.outer(d, d))
    return com, inertia


def _shape(kind, size, xyz, rpy, kw) -> Shape:
    size = tuple(float(x) for x in size)
    if not all(np.isfinite(x) and x > 0 for x in size[:1]) or not all(
        np.isfinite(x) and x >= 0 for x in size
    ):
        raise ModelError(f"{kind} shape", f"the size {size} is not positive", "Give lengths in metres.")
    return Shape(kind, size, pose(xyz, rpy), **kw)
