"""Loops and couplings in URDF: the elements <loop> and <coupling> of URDF+, and what we add to them.

    <loop name="..." type="revolute">
      <predecessor link="..."><origin .../></predecessor>
      <successor link="..."><origin .../></successor>
      <axis xyz="..."/>
    </loop>
    <coupling name="...">
      <predecessor link="..."/><successor link="..."/><ratio value="..."/>
    </coupling>
    <coupling name="..."><term joint="..." coefficient="..."/>...<offset value="..."/></coupling>

A loop is revolute or continuous (a hinge about the axis, which is given in both frames), fixed (a weld),
spherical (a point) or distance (with length="..."). A coupling with a ratio says  ratio times the sum of q on
the way to the predecessor = the same sum for the successor, from their nearest common ancestor on; one with
terms is any linear relation. A joint says independent="false" (or "False") if it shall follow others.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence

import numpy as np

from jaxrbd.errors import ModelError, short, warn
from jaxrbd.joints import TYPES
from jaxrbd.model.description import Joint, Linear, Loop, Pose
from jaxrbd.model.names import hint
from jaxrbd.model.urdf_values import Reader
from jaxrbd.model.xml_safe import Element

_KINDS = {
    "revolute": "hinge",
    "continuous": "hinge",
    "fixed": "weld",
    "spherical": "connect",
    "ball": "connect",
}
_KINDS["distance"] = "distance"
_NAMES = {"hinge": "revolute", "weld": "fixed", "connect": "spherical", "distance": "distance"}


def read_independent(read: Reader, joint: Element) -> bool:
    text = joint.get("independent", "true")
    if text.lower() not in ("true", "false"):
        raise ModelError(read.at(joint), f'independent="{short(text)}"', 'Write "true" or "false".')
    return text.lower() == "true"


def read_loops(
    read: Reader, root: Element, joints: Sequence[Joint]
) -> tuple[tuple[Loop, ...], tuple[Linear, ...]]:
    """All <loop> and <coupling> elements of a robot."""
    tree = _Tree(joints)
    loops = [_loop(read, e, tree, k) for k, e in enumerate(root.all("loop"))]
    linear = [_coupling(read, e, tree, k) for k, e in enumerate(root.all("coupling"))]
    return tuple(loops), tuple(linear)


class _Tree:
    """Joints by the links they move."""

    def __init__(self, joints: Sequence[Joint]):
        self.joints = {j.name: j for j in joints}
        self.above = {j.child: j for j in joints}
        self.links = {j.parent for j in joints} | set(self.above)

    def chain(self, link: str) -> list[Joint]:
        """Joints from a link to the root."""
        found: list[Joint] = []
        while link in self.above and len(found) <= len(self.above):
            found.append(self.above[link])
            link = found[-1].parent
        return found


def _end(read: Reader, owner: Element, tag: str, tree: _Tree) -> tuple[str, Pose]:
    element = owner.find(tag)
    if element is None:
        raise ModelError(read.at(owner), f"no <{tag}>", f'Add <{tag} link="..."/>.')
    link = read.attribute(owner, element, "link")
    if link not in tree.links:
        remedy = f"Correct the name. {hint(link, sorted(tree.links))}"
        raise ModelError(read.at(owner), f'the {tag} link "{short(link)}" does not exist', remedy)
    return link, read.pose(owner, element)


def _loop(read: Reader, element: Element, tree: _Tree, number: int) -> Loop:
    kind = element.get("type", "")
    if kind not in _KINDS:
        raise ModelError(read.at(element), f'unknown loop type "{short(kind)}"', hint(kind, sorted(_KINDS)))
    (a, X_a), (b, X_b) = (_end(read, element, tag, tree) for tag in ("predecessor", "successor"))
    numbers: tuple[float, ...] = ()
    if _KINDS[kind] == "distance":
        numbers = (read.number(element, element, "length"),)
    if _KINDS[kind] == "hinge":
        axis = element.find("axis")
        z = np.array([1.0, 0.0, 0.0]) if axis is None else read.vector(element, axis, "xyz")
        if not np.any(z):
            raise ModelError(read.at(element), "the axis is zero", "Give the axis of the revolute loop.")
        turn = Pose(_frame_with_z(z))
        X_a, X_b = X_a @ turn, X_b @ turn
    active = element.get("active", "true").lower() != "false"
    return Loop(element.get("name") or f"loop_{number}", _KINDS[kind], a, b, X_a, X_b, numbers, active)


def _frame_with_z(z: np.ndarray) -> np.ndarray:
    z = z / np.linalg.norm(z)
    if z[2] == 1.0:
        return np.eye(3)
    x = np.cross([0.0, 1.0, 0.0] if abs(z[1]) < 0.9 else [1.0, 0.0, 0.0], z)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], 1)


def _coupling(read: Reader, element: Element, tree: _Tree, number: int) -> Linear:
    name = element.get("name") or f"coupling_{number}"
    terms = element.all("term")
    if terms:
        joints = tuple(read.attribute(element, x, "joint") for x in terms)
        numbers = tuple(read.number(element, x, "coefficient") for x in terms)
        offset = element.find("offset")
        return Linear(name, joints, numbers, 0.0 if offset is None else read.number(element, offset, "value"))
    (a, _), (b, _) = (_end(read, element, tag, tree) for tag in ("predecessor", "successor"))
    ratio = element.find("ratio")
    if ratio is None:
        raise ModelError(read.at(element), "no <ratio>", 'Add <ratio value="..."/>.')
    value = read.number(element, ratio, "value")
    to_a, to_b = tree.chain(a), tree.chain(b)
    common = {j.name for j in to_a} & {j.name for j in to_b}
    parts = [(j, -value) for j in to_a if j.name not in common] + [
        (j, 1.0) for j in to_b if j.name not in common
    ]
    parts = [(j, c) for j, c in parts if j.type != "fixed"]
    for j, _ in parts:
        if TYPES[j.type].sizes != (1, 1):
            cause = f'joint "{short(j.name)}" on its way is {j.type}, expected one coordinate'
            raise ModelError(read.at(element), cause, "Couple links behind revolute or prismatic joints.")
    if len(parts) < 2:
        raise ModelError(read.at(element), "it couples no two joints", "Name links that move apart.")
    _warn_unless_parallel(read, element, [j for j, _ in parts], tree)
    return Linear(name, tuple(j.name for j, _ in parts), tuple(c for _, c in parts))


def _warn_unless_parallel(read: Reader, element: Element, joints: list[Joint], tree: _Tree) -> None:
    """A sum of angles is an angle only about one axis."""
    axes = []
    for joint in joints:
        R = np.eye(3)
        for j in reversed(tree.chain(joint.child)):
            R = R @ j.placement.R
        axes.append(R @ joint.axis)
    for joint, axis in zip(joints, axes):
        if axis @ axes[0] < 0.999:
            warn(
                f"{read.at(element)}: the axes of joints {joints[0].name!r} and {joint.name!r} are not "
                "parallel; their coordinates are added all the same."
            )
            return


def write_loops(
    robot: ET.Element, loops: Sequence[Loop], linear: Sequence[Linear], origin: Callable, text: Callable
) -> list[Loop]:
    """Add the elements of loops and couplings; returns loops that have no form here (polynomials)."""
    left = []
    for loop in loops:
        if loop.kind == "coupling":
            c = [*loop.coefficients, 0.0, 0.0]
            if any(loop.coefficients[2:]) or not loop.active or not loop.body_b:
                left.append(loop)
                continue
            _write_linear(robot, Linear(loop.name, (loop.body_a, loop.body_b), (1.0, -c[1]), c[0]), text)
            continue
        element = ET.SubElement(robot, "loop", name=loop.name, type=_NAMES[loop.kind])
        for tag, body, pose in (
            ("predecessor", loop.body_a, loop.pose_a),
            ("successor", loop.body_b, loop.pose_b),
        ):
            origin(ET.SubElement(element, tag, link=body), pose)
        if loop.kind == "hinge":
            ET.SubElement(element, "axis", xyz="0 0 1")
        if loop.kind == "distance":
            element.set("length", text(loop.coefficients[0]))
        if not loop.active:
            element.set("active", "false")
    for x in linear:
        _write_linear(robot, x, text)
    return left


def _write_linear(robot: ET.Element, x: Linear, text: Callable) -> None:
    element = ET.SubElement(robot, "coupling", name=x.name)
    for joint, number in zip(x.joints, x.coefficients):
        ET.SubElement(element, "term", joint=joint, coefficient=text(number))
    if x.offset:
        ET.SubElement(element, "offset", value=text(x.offset))
