"""URDF writer: a `Description` as the text of a robot file, so that read_urdf(write_urdf(d)) equals d.

What URDF lacks is split, refused or dropped with a warning, never altered silently:
- universal and cylindrical joints "j" become "j_1" and "j_2" with a massless link "j_between";
- an `offset` becomes a fixed joint "j_offset" behind a massless link "j_frame"; frames become links;
- a root joint that is not plainly fixed gets a link "world" below it;
- screw and spherical joints, and several roots, are refused;
- loops and couplings become <loop> and <coupling> (`urdf_loops`);
- polynomial couplings, actuators, keyframes, gravity, shapes fixed to the ground and planes are named in a
  ModelWarning.
Armature, springs and axis2 are written as attributes that other readers skip, and a missing limit as 1e30.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from jaxrbd.errors import ModelError, warn
from jaxrbd.joints import TYPES
from jaxrbd.model.description import WORLD, Body, Description, Joint, Loop, Pose, Shape
from jaxrbd.model.urdf import NO_LIMIT
from jaxrbd.model.urdf_loops import write_loops
from jaxrbd.model.validate import check_structure, listing

_PER_DOF = ("lower", "upper", "velocity_limit", "effort_limit")
_DYNAMICS = ("damping", "friction", "armature", "stiffness", "spring_reference")


def write_urdf(description: Description) -> str:
    """The URDF text of a description; numbers are written so that reading returns them to the last bit."""
    check_structure(description)
    writer = _Writer(description)
    writer.write()
    if writer.dropped:
        text = f"{description.source}: a URDF cannot hold, and this one lacks: {listing(writer.dropped, 12)}."
        warn(text)
    ET.indent(writer.robot)
    return '<?xml version="1.0"?>\n' + ET.tostring(writer.robot, encoding="unicode") + "\n"


class _Writer:
    def __init__(self, description: Description):
        self.d = description
        self.robot = ET.Element("robot", name=description.name)
        self.links = {body.name for body in description.bodies} | {frame.name for frame in description.frames}
        self.joints = {joint.name for joint in description.joints}
        self.dropped = [f'{kind} "{item.name}"' for kind, items in _items(description) for item in items]
        if not np.array_equal(description.gravity, Description().gravity):
            self.dropped.append("gravity")
        if description.world_shapes:
            self.dropped.append("shapes fixed to the ground")

    def write(self) -> None:
        for name in sorted(self.links | self.joints | {self.d.name}):
            if any(ord(c) < 32 for c in name):
                cause = f"the name {name!r} has a control character, which XML cannot hold"
                raise ModelError(self.d.source, cause, "Rename it.")
        root = self.root_joint()
        for body in self.d.bodies:
            self.body(body)
        for joint in self.d.joints:
            if joint is not root:
                self.joint(joint)
        ground = ""
        if not _plainly_fixed(root):
            ground = _unused("world", self.links)
            self.link(ground)
            self.joint(replace(root, parent=ground))
        for frame in self.d.frames:
            if frame.body == WORLD and not ground:
                self.dropped.append(f'frame "{frame.name}"')
                continue
            self.link(frame.name)
            parent = ground if frame.body == WORLD else frame.body
            name = _unused(f"{frame.name}_fixed", self.joints)
            self.joint(Joint(name, "fixed", parent, frame.name, frame.pose))
        base = ground or self.root_joint().child
        loops = [_grounded(loop, base) for loop in self.d.loops]
        left = write_loops(self.robot, loops, self.d.linear, _origin, _text)
        self.dropped += [f'coupling "{x.name}"' for x in left]

    def root_joint(self) -> Joint:
        roots = [joint for joint in self.d.joints if joint.parent == WORLD]
        if len(roots) > 1:
            names = listing(f'"{joint.child}"' for joint in roots)
            remedy = "Write each tree to its own file, or join them by fixed joints first."
            raise ModelError(self.d.source, f"{len(roots)} roots, {names}; a URDF is one tree", remedy)
        return roots[0]

    # --- links ---

    def link(self, name: str) -> ET.Element:
        return ET.SubElement(self.robot, "link", name=name)

    def body(self, body: Body) -> None:
        link = self.link(body.name)
        I = np.asarray(body.inertia, dtype=float)
        if body.mass != 0.0 or I.any() or np.any(body.com):
            inertial = ET.SubElement(link, "inertial")
            _origin(inertial, Pose(p=np.asarray(body.com, dtype=float)))
            ET.SubElement(inertial, "mass", value=_text(body.mass))
            moments = {f"i{'xyz'[i]}{'xyz'[j]}": _text(I[i, j]) for i in range(3) for j in range(i, 3)}
            ET.SubElement(inertial, "inertia", moments)
        for shape in body.shapes:
            self.shape(link, body, shape)
        frictions = {shape.friction for shape in body.shapes if shape.role == "collision"}
        known = {x for x in frictions if x is not None}
        if known:
            if len(frictions) > 1:
                self.dropped.append(f'different friction within link "{body.name}"')
            else:
                contact = ET.SubElement(link, "contact")
                ET.SubElement(contact, "lateral_friction", value=_text(known.pop()))

    def shape(self, link: ET.Element, body: Body, shape: Shape) -> None:
        size = [_text(x) for x in shape.size]
        if shape.kind == "box":
            attributes = {"size": " ".join(size)}
        elif shape.kind == "sphere":
            attributes = {"radius": size[0]}
        elif shape.kind in ("cylinder", "capsule"):
            attributes = {"radius": size[0], "length": size[1]}
        elif shape.kind == "mesh" and shape.mesh:
            attributes = {"filename": shape.mesh} | (
                {} if set(shape.size) == {1.0} else {"scale": " ".join(size)}
            )
        else:
            self.dropped.append(f'{shape.kind} of link "{body.name}"')
            return
        element = ET.SubElement(link, shape.role, {"name": shape.name} if shape.name else {})
        _origin(element, shape.pose)
        ET.SubElement(ET.SubElement(element, "geometry"), shape.kind, attributes)
        if shape.rgba is not None:
            # an empty name keeps the colour local to this shape
            material = ET.SubElement(element, "material", name="")
            ET.SubElement(material, "color", rgba=" ".join(_text(x) for x in shape.rgba))

    # --- joints ---

    def joint(self, joint: Joint) -> None:
        if not (record := TYPES[joint.type]).urdf and not record.urdf_parts:
            remedy = "Save the System instead, or replace the joint (spherical: by three revolute ones)."
            cause = f"URDF has no {joint.type} joint"
            raise ModelError(f'{self.d.source}, joint "{joint.name}"', cause, remedy)
        if joint.type == "fixed":
            joint = replace(joint, placement=joint.placement @ joint.offset, offset=Pose())
        elif not _identity(joint.offset):
            frame = _unused(f"{joint.name}_frame", self.links)
            self.link(frame)
            self.joint(replace(joint, child=frame, offset=Pose()))
            name = _unused(f"{joint.name}_offset", self.joints)
            self.single(Joint(name, "fixed", frame, joint.child, joint.offset))
            return
        if record.urdf_parts:
            self.split(joint)
        else:
            self.single(joint)

    def split(self, joint: Joint) -> None:
        parts = TYPES[joint.type].urdf_parts
        links = [_unused(f"{joint.name}_between", self.links) for _ in parts[1:]]
        for link in links:
            self.link(link)
        names = [_unused(f"{joint.name}_{i}", self.joints) for i in range(1, len(parts) + 1)]
        axes = (joint.axis, _perpendicular(joint.axis) if joint.axis2 is None else joint.axis2)
        ends = zip((joint.parent, *links), (*links, joint.child))
        for i, ((kind, axis), name, (parent, child)) in enumerate(zip(parts, names, ends)):
            values: dict[str, Any] = {key: float(_per_dof(joint, key)[i]) for key in _PER_DOF + _DYNAMICS}
            placement = Pose() if i else joint.placement
            single = replace(joint, type=kind, name=name, parent=parent, child=child, placement=placement)
            self.single(replace(single, axis=axes[axis], axis2=None, **values))

    def single(self, joint: Joint) -> None:
        element = ET.SubElement(self.robot, "joint", name=joint.name, type=TYPES[joint.type].urdf)
        if not joint.independent:
            element.set("independent", "false")
        _origin(element, joint.placement)
        ET.SubElement(element, "parent", link=joint.parent)
        ET.SubElement(element, "child", link=joint.child)
        if joint.type == "fixed":
            return
        if TYPES[joint.type].axis:
            axis = ET.SubElement(element, "axis", xyz=_vector(joint.axis))
            if TYPES[joint.type].axis2 and joint.axis2 is not None:
                axis.set("xyz2", _vector(joint.axis2))
        self.limits(element, joint)
        self.dynamics(element, joint)
        if joint.mimic is not None:
            numbers = {"multiplier": _text(joint.mimic.ratio), "offset": _text(joint.mimic.offset)}
            ET.SubElement(element, "mimic", {"joint": joint.mimic.joint} | numbers)

    def limits(self, element: ET.Element, joint: Joint) -> None:
        lower, upper, velocity, effort = (self.scalar(joint, key) for key in _PER_DOF)
        bounded = TYPES[joint.type].limited
        if not bounded and (lower > -np.inf or upper < np.inf):
            self.dropped.append(f'position limits of joint "{joint.name}"')
        if bounded or min(velocity, effort) < np.inf:  # other readers want all four for bounded joints
            values = {"effort": effort, "velocity": velocity}
            values = ({"lower": lower, "upper": upper} if bounded else {}) | values
            ET.SubElement(element, "limit", {key: _text(_finite(x)) for key, x in values.items()})

    def dynamics(self, element: ET.Element, joint: Joint) -> None:
        values = {key: self.scalar(joint, key) for key in _DYNAMICS}
        written = {key: _text(value) for key, value in values.items() if value != 0.0}
        if written:  # urdfdom refuses the element without damping or friction
            ET.SubElement(element, "dynamics", {"damping": "0"} | written)

    def scalar(self, joint: Joint, key: str) -> float:
        """The value that all degrees of freedom share; if they differ, it is dropped for the default."""
        values = _per_dof(joint, key)
        if np.all(values == values[0]):
            return float(values[0])
        self.dropped.append(f'{key} per degree of freedom of joint "{joint.name}"')
        return float(getattr(Joint("", joint.type, "", ""), key))


def _items(d: Description) -> tuple[tuple[str, tuple], ...]:
    return ("actuator", d.actuators), ("keyframe", d.keyframes)


def _grounded(loop: Loop, root: str) -> Loop:
    """A loop whose ends on the world are on the ground's link."""
    if loop.kind == "coupling":
        return loop
    end = lambda body: root if body == WORLD else body  # noqa: E731
    return replace(loop, body_a=end(loop.body_a), body_b=end(loop.body_b))


def _plainly_fixed(joint: Joint) -> bool:
    return joint.type == "fixed" and _identity(joint.placement @ joint.offset)


def _identity(pose: Pose) -> bool:
    return np.array_equal(pose.R, np.eye(3)) and not np.any(pose.p)


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _per_dof(joint: Joint, key: str) -> np.ndarray:
    return np.broadcast_to(np.asarray(getattr(joint, key), dtype=float), (TYPES[joint.type].nv,))


def _perpendicular(axis: np.ndarray) -> np.ndarray:
    """The compiler's choice for a second axis that was left out: x, or y, made normal to the axis."""
    n = np.asarray(axis, dtype=float) / np.linalg.norm(axis)
    x = np.array([1.0, 0.0, 0.0]) if abs(n[0]) <= 1.0 - 1e-6 else np.array([0.0, 1.0, 0.0])
    x = x - (n @ x) * n
    return x / np.linalg.norm(x)


def _finite(limit: float) -> float:
    return math.copysign(NO_LIMIT, limit) if abs(limit) > NO_LIMIT else limit


def _origin(element: ET.Element, pose: Pose) -> None:
    if not _identity(pose):
        ET.SubElement(
            element, "origin", xyz=_vector(pose.p), rpy=_vector(_rpy(np.asarray(pose.R, dtype=float)))
        )


def _rpy(R: np.ndarray) -> np.ndarray:
    """Angles with R = Rz(yaw) Ry(pitch) Rx(roll), to the last digits also near pitch = ±90°."""
    yaw = math.atan2(R[1, 0], R[0, 0])
    c, s = math.cos(yaw), math.sin(yaw)
    pitch = math.atan2(-R[2, 0], c * R[0, 0] + s * R[1, 0])
    roll = math.atan2(s * R[0, 2] - c * R[1, 2], c * R[1, 1] - s * R[0, 1])  # second row of Rz(-yaw) R
    return np.array([roll, pitch, yaw])


def _vector(values: Iterable[float]) -> str:
    return " ".join(_text(x) for x in values)


def _text(value: float) -> str:
    value = float(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
