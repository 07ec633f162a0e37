"""Numbers, axes, limits, placements and shapes of a Description, each refused with its place and remedy.

`place` is the element that a message names, such as: robot.urdf, joint "knee" (line 12).
"""

from __future__ import annotations

import numpy as np

from jaxrbd.errors import ModelError
from jaxrbd.joints import TYPES
from jaxrbd.model.description import Joint, Pose, Shape
from jaxrbd.model.names import hint

SHAPE_SIZES = {
    "box": 3,
    "sphere": 1,
    "cylinder": 2,
    "capsule": 2,
    "ellipsoid": 3,
    "plane": None,
    "mesh": 3,
    "heightfield": 4,
}
LARGEST = 1e60  # of any number in a model: products of five such still are numbers
_PER_DOF = ("damping", "friction", "armature", "stiffness", "spring_reference")


def check_array(place: str, what: str, value, shape: tuple[int, ...], finite: bool = True) -> np.ndarray:
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ModelError(place, f"{what} is not numeric: {value!r:.60}", "Give plain numbers.") from None
    if array.shape != shape:
        expected = f"expected {shape}" if shape else "expected a single number"
        raise ModelError(place, f"{what} has shape {array.shape}", f"Wrong number of values, {expected}.")
    if np.isnan(array).any() or (finite and np.isinf(array).any()):
        raise ModelError(place, f"{what} has a NaN or infinite number", "Give finite numbers.")
    if finite and np.any(np.abs(array) > LARGEST):
        raise ModelError(place, f"{what} has a number beyond {LARGEST:g}", "Give SI units: m, kg, s, rad.")
    return array


def check_order(place: str, what: str, low, high) -> None:
    if np.any(np.asarray(low) > np.asarray(high)):
        raise ModelError(place, f"{what} reversed: lower {low} exceeds upper {high}", "Exchange the two.")


def check_pose(place: str, what: str, pose: Pose) -> None:
    R = check_array(place, f"rotation of its {what}", pose.R, (3, 3))
    check_array(place, f"position of its {what}", pose.p, (3,))
    if np.max(np.abs(R @ R.T - np.eye(3))) > 1e-6 or np.linalg.det(R) < 0.0:
        raise ModelError(place, f"its {what} is not a rotation", "Give an orthonormal right-handed matrix.")


def check_shape(place: str, shape: Shape) -> None:
    if shape.kind not in SHAPE_SIZES:
        raise ModelError(place, f'unknown shape "{shape.kind}"', hint(shape.kind, SHAPE_SIZES))
    count = SHAPE_SIZES[shape.kind]
    check_array(place, f"size of a {shape.kind}", shape.size, (len(shape.size) if count is None else count,))
    check_pose(place, f"{shape.role} {shape.kind}", shape.pose)
    if shape.rgba is not None:
        check_array(place, "rgba", shape.rgba, (4,))
    if shape.friction is not None:
        check_array(place, "friction of a shape", shape.friction, ())


def check_axes(place: str, joint: Joint) -> None:
    record = TYPES[joint.type]
    if not record.axis:
        return
    axis = _check_axis(place, "axis", joint.axis)
    check_array(place, "pitch", joint.pitch, ())
    if not record.axis2 or joint.axis2 is None:
        return
    axis2 = _check_axis(place, "axis2", joint.axis2)
    if record.axis2 == "apart" and np.linalg.norm(np.cross(axis, axis2)) < 1e-6:
        raise ModelError(place, "the two axes are parallel", f"A {joint.type} joint needs two directions.")
    if record.axis2 == "normal" and abs(axis @ axis2) > 1e-6:
        raise ModelError(
            place, "axis2 is not perpendicular to the normal", "It is the x direction in the plane."
        )


def _check_axis(place: str, what: str, value) -> np.ndarray:
    axis = check_array(place, what, value, (3,))
    scale = np.max(np.abs(axis))
    if scale < 1e-100:
        raise ModelError(place, f"{what} is zero", 'Give a direction such as "0 0 1".')
    axis = axis / scale
    return axis / np.linalg.norm(axis)


def check_limits(place: str, joint: Joint) -> None:
    nv = TYPES[joint.type].nv
    for what in _PER_DOF:
        _per_dof(place, what, getattr(joint, what), nv)
    low = _per_dof(place, "lower limit", joint.lower, nv, finite=False)
    high = _per_dof(place, "upper limit", joint.upper, nv, finite=False)
    check_order(place, "limits", low, high)
    if np.any(low == np.inf) or np.any(high == -np.inf):
        raise ModelError(
            place, "limits leave no position", "Use -inf for no lower and inf for no upper limit."
        )
    for what, value in (("velocity limit", joint.velocity_limit), ("effort limit", joint.effort_limit)):
        if np.any(_per_dof(place, what, value, nv, finite=False) < 0.0):
            raise ModelError(place, f"negative {what}", "A limit is zero or more.")


def _per_dof(place: str, what: str, value, nv: int, finite: bool = True) -> np.ndarray:
    return check_array(place, what, value, () if np.ndim(value) == 0 else (nv,), finite)
