"""The joint types by name, and how to add one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from jaxrbd.errors import ArgumentError
from jaxrbd.joints.groups import SE3, SO3
from jaxrbd.joints.record import AXIS, AXIS2, NORMAL, PITCH, Column, JointType, X, Y, Z

_TURN, _SLIDE = Column(turns=1), Column(slides=1)
_TURNS = tuple(Column(turns=1, axis=k) for k in (X, Y, Z))
_SLIDES = tuple(Column(slides=1, axis=k) for k in (X, Y, Z))

_types = {
    record.name: record
    for record in (
        JointType("fixed", (), axis=False, limited=False, urdf="fixed"),
        JointType("revolute", (_TURN,), urdf="revolute"),
        JointType("continuous", (_TURN,), limited=False, urdf="continuous"),
        JointType("prismatic", (_SLIDE,), urdf="prismatic"),
        JointType("screw", (Column(turns=1, slides=PITCH),)),
        # q = (angle about the axis, shift along it)
        JointType("cylindrical", (_TURN, _SLIDE), urdf_parts=(("revolute", AXIS), ("prismatic", AXIS))),
        # q = (angle about axis, angle about axis2)
        JointType(
            "universal",
            (_TURN, Column(turns=1, axis=AXIS2)),
            axis2="apart",
            urdf_parts=(("revolute", AXIS), ("revolute", AXIS2)),
        ),
        # q = (x, y, angle); x along axis2, the normal is axis
        JointType(
            "planar",
            (Column(slides=1, axis=AXIS2), Column(slides=1, axis=NORMAL), _TURN),
            axis2="normal",
            limited=False,
            urdf="planar",
        ),
        # q = quaternion (w, x, y, z); v = body-frame angular velocity
        JointType("spherical", _TURNS, SO3, axis=False, limited=False),
        # q = (position, quaternion); v = body-frame twist, angular first
        JointType("free", _TURNS + _SLIDES, SE3, axis=False, limited=False, urdf="floating"),
    )
}

TYPES: Mapping[str, JointType] = MappingProxyType(_types)


def register(record: JointType) -> JointType:
    """Make a joint type known by its name to `Builder`, `load`, `load_system` and all algorithms.

    For the life of the process: programs compiled for a type keep what it was, so a name is given once.
    """
    if not isinstance(record, JointType):
        raise ArgumentError(f"register: {record!r:.60} is not a JointType. Pass rbd.joints.JointType(...).")
    if not record.columns:
        raise ArgumentError(f"register: joint type {record.name!r} has no columns. Give at least one Column.")
    if _types.setdefault(record.name, record) != record:
        raise ArgumentError(
            f"register: there is a joint type {record.name!r} already. Choose another name; a type cannot "
            "change while programs for it may be compiled."
        )
    return record
