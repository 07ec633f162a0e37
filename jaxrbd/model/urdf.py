"""URDF reader: the text of a robot file becomes a `Description`.

Accepted beyond the specification, all ignored or harmless elsewhere:
- joint types `spherical` (or `ball`), `screw` (`<axis xyz pitch>`, metres per radian), `cylindrical`
  and `universal` (`<axis xyz xyz2>`); `xyz2` is also the x direction of a `planar` joint;
- `<dynamics armature stiffness spring_reference>` beside `damping` and `friction`;
- `<capsule radius length>`, and `<contact><lateral_friction value>` for a link's collision shapes;
- limits of 1e30 or more mean "none", as do `lower` and `upper` both left out (one alone left out is 0,
  as specified). Continuous, planar, floating and spherical joints have no position limits.

Directives that an expanded xacro file still holds are skipped with a warning; so are <loop> and <coupling>.
Transmissions, safety controllers, sensors and simulator tags are skipped: the controls of a URDF robot
are its joint forces. Oddities that have one sensible reading are corrected, and listed in one
ModelWarning. The root link is fixed to the ground by a joint "root".
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from jaxrbd.errors import ModelError, short, warn
from jaxrbd.joints import TYPES
from jaxrbd.model.description import MAX_FREEDOMS, WORLD, Body, Description, Joint, Mimic
from jaxrbd.model.mesh_paths import package_folders
from jaxrbd.model.names import hint
from jaxrbd.model.urdf_loops import read_independent, read_loops
from jaxrbd.model.urdf_shapes import Meshes, read_materials, read_shapes
from jaxrbd.model.urdf_values import Reader
from jaxrbd.model.validate import Lines, check_structure, listing
from jaxrbd.model.xml_safe import Element, parse_xml
from jaxrbd.typing import StrPath

NO_LIMIT = 1e30  # what a file writes where Description has infinity; fits float32
_XACRO = "Expand it first, with `xacro file.xacro > file.urdf`, and load the result."
_HARMLESS = ("property", "arg", "macro")  # directives that define something and bring nothing by themselves
_EMPTY = ("include", "if", "unless")  # harmless if nothing is inside and the robot is whole without them
_TYPES = {r.urdf: r.name for r in TYPES.values() if r.urdf not in ("", r.name)}
_TYPES["ball"] = "spherical"
_SINGLE = {"inertial", "origin", "mass", "inertia", "axis", "limit", "dynamics", "mimic", "parent", "child"}


def read_urdf(
    text: str | bytes | Element,
    source: str = "<string>",
    folder: StrPath | None = None,
    package_dirs: Iterable[StrPath] = (),
) -> Description:
    """Description of the robot in the URDF `text`; `source` is its name in messages.

    Meshes are looked up only inside `folder` (that of the file) and `package_dirs`; those not found are
    listed in one ModelWarning and keep their name. Structural errors raise ModelError; whether masses
    and inertias are physical is for `validate` to say.
    """
    root = text if isinstance(text, Element) else parse_xml(text, source)
    leftovers = _leftovers(root, source)
    read = Reader(source)
    meshes = Meshes(folder, package_folders(package_dirs))
    links, joint_elements = root.all("link"), root.all("joint")
    freedoms = sum(TYPES[t].nv for j in joint_elements if (t := j.get("type", "")) in TYPES)
    if freedoms > MAX_FREEDOMS:
        cause = f"{freedoms} degrees of freedom, more than {MAX_FREEDOMS}"
        raise ModelError(source, cause, "This is no robot; split the model into several.")

    materials = read_materials(read, root)
    bodies = tuple(_body(read, link, materials, meshes) for link in links)
    joints, notes = _with_known_mimics(tuple(_joint(read, joint) for joint in joint_elements))
    notes += _repeated(read, links + joint_elements)
    if not bodies:
        raise ModelError(
            source, "no <link> in <robot>", "A robot needs at least one link; is this the whole file?"
        )

    roots = _roots(bodies, joints)
    grounded = _grounded(roots, joints)
    name = root.get("name") or os.path.splitext(os.path.basename(source))[0]
    loops, linear = read_loops(read, root, grounded + joints)
    description = Description(
        name=name, bodies=bodies, joints=grounded + joints, loops=loops, linear=linear, source=source
    )
    lines = Lines(
        bodies=tuple(link.line for link in links),
        joints=(0,) * len(grounded) + tuple(joint.line for joint in joint_elements),
    )
    try:
        check_structure(description, lines)
        if len(roots) > 1:
            raise ModelError(
                f"{source}, <robot>",
                f"{len(roots)} root links: {listing(roots)}; a URDF is one tree",
                "Join them by a joint, add the missing <child>, or load them as separate models.",
            )
    except ModelError as error:
        if not leftovers:
            raise
        hint = f"{error.remedy} Or is something missing? {_skipped(leftovers)} {_XACRO}"
        raise ModelError(error.where, error.cause, hint) from None
    _warn_skipped(leftovers, source)
    if notes:
        warn(f"{source}: read with corrections: {listing(notes)}.")
    meshes.warn(source)
    return description


# --- links -------------------------------------------------------------------------------------------


def _body(read: Reader, link: Element, materials: dict[str, tuple[float, ...]], meshes: Meshes) -> Body:
    name = read.name(link)
    shapes = read_shapes(read, link, materials, meshes)
    inertial = link.find("inertial")
    if inertial is None:
        return Body(name, shapes=shapes)
    mass = inertial.find("mass")
    if mass is None:
        raise ModelError(
            read.at(link), "<inertial> without <mass>", 'Add <mass value="..."/> or drop <inertial>.'
        )
    pose = read.pose(link, inertial)
    return Body(
        name,
        mass=read.number(link, mass, "value"),
        com=pose.p,
        inertia=_inertia(read, link, inertial.find("inertia"), pose.R),
        shapes=shapes,
    )


def _inertia(read: Reader, link: Element, element: Element | None, R: np.ndarray) -> np.ndarray:
    """Rotated from the axes of the inertial frame to those of the link, R I Rᵀ; absent means a point mass."""
    if element is None:
        return np.zeros((3, 3))
    xx, yy, zz = (read.number(link, element, key) for key in ("ixx", "iyy", "izz"))
    xy, xz, yz = (read.number(link, element, key, 0.0) for key in ("ixy", "ixz", "iyz"))
    inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    if np.array_equal(R, np.eye(3)):
        return inertia
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large is refused with its place
        rotated = R @ inertia @ R.T
        return 0.5 * (rotated + rotated.T)


# --- joints ------------------------------------------------------------------------------------------


def _joint(read: Reader, joint: Element) -> Joint:
    name = read.name(joint)
    kind = read.attribute(joint, joint, "type")
    kind = _TYPES.get(kind, kind)
    if kind not in TYPES:
        known = sorted((set(TYPES) - {"free"}) | set(_TYPES))
        raise ModelError(read.at(joint), f'unknown joint type "{short(kind)}"', hint(kind, known))
    fields = _axes(read, joint, kind) if TYPES[kind].axis else {}
    fields |= _limits(read, joint, kind) | _dynamics(read, joint, kind)
    return Joint(
        name,
        kind,
        parent=_link_name(read, joint, "parent"),
        child=_link_name(read, joint, "child"),
        placement=read.pose(joint, joint),
        mimic=_mimic(read, joint) if kind != "fixed" else None,
        independent=read_independent(read, joint),
        **fields,
    )


def _link_name(read: Reader, joint: Element, tag: str) -> str:
    element = joint.find(tag)
    if element is None:
        raise ModelError(read.at(joint), f"no <{tag}>", f'Add <{tag} link="..."/>.')
    name = read.attribute(joint, element, "link")
    if name == WORLD:
        raise ModelError(read.at(joint), f'the {tag} link "{name}" is a reserved name', "Rename it.")
    return name


def _axes(read: Reader, joint: Element, kind: str) -> dict[str, Any]:
    """Unit axes; a zero axis is left for `check_structure` to refuse."""
    element = joint.find("axis")
    fields: dict[str, Any] = {"axis": np.array([1.0, 0.0, 0.0])}
    if element is not None:
        fields["axis"] = _unit(read.vector(joint, element, "xyz", fields["axis"]))
    if element is not None and element.get("xyz2") is not None:
        fields["axis2"] = _unit(read.vector(joint, element, "xyz2"))
    if kind == "screw":
        if element is None or element.get("pitch") is None:
            raise ModelError(
                read.at(joint), "screw without pitch", 'Write <axis xyz="..." pitch="..."/>, m/rad.'
            )
        fields["pitch"] = read.number(joint, element, "pitch")
    return fields


def _limits(read: Reader, joint: Element, kind: str) -> dict[str, Any]:
    element = joint.find("limit")
    if element is None or kind == "fixed":
        return {}
    fields: dict[str, Any] = {}
    for key, attribute in (("effort_limit", "effort"), ("velocity_limit", "velocity")):
        fields[key] = _infinite_if_huge(read.number(joint, element, attribute, np.inf))
    if TYPES[kind].limited and (element.get("lower") is not None or element.get("upper") is not None):
        for key in ("lower", "upper"):
            numbers = read.numbers(joint, element, key, TYPES[kind].nv, 0.0)
            fields[key] = _infinite_if_huge(numbers)
    return fields


def _dynamics(read: Reader, joint: Element, kind: str) -> dict[str, Any]:
    element = joint.find("dynamics")
    if element is None or kind == "fixed":
        return {}
    keys = ("damping", "friction", "armature", "stiffness", "spring_reference")
    return {key: read.number(joint, element, key) for key in keys if element.get(key) is not None}


def _mimic(read: Reader, joint: Element) -> Mimic | None:
    element = joint.find("mimic")
    if element is None:
        return None
    ratio = read.number(joint, element, "multiplier", 1.0)
    return Mimic(read.attribute(joint, element, "joint"), ratio, read.number(joint, element, "offset", 0.0))


def _unit(axis: np.ndarray) -> np.ndarray:
    scale = np.max(np.abs(axis))
    if scale == 0.0:
        return axis
    axis = axis / scale  # so that squares neither overflow nor vanish
    return axis / np.linalg.norm(axis)


def _infinite_if_huge(value: float | tuple[float, ...]) -> float | tuple[float, ...]:
    if isinstance(value, tuple):
        return tuple(float(np.copysign(np.inf, x)) if abs(x) >= NO_LIMIT else x for x in value)
    return float(np.copysign(np.inf, value)) if abs(value) >= NO_LIMIT else value


# --- the file as a whole -----------------------------------------------------------------------------


def _leftovers(root: Element, source: str) -> list[Element]:
    """Xacro directives in an expanded file; ModelError for other formats and unexpanded files."""
    prefixes = {
        key.partition(":")[2] for key, uri in root.items() if key.startswith("xmlns:") and "xacro" in uri
    }
    prefixes.add("xacro")
    xacro = [e for e in root.iter() if e.tag.partition(":")[1] and e.tag.partition(":")[0] in prefixes]
    for element in xacro:
        name = element.tag.partition(":")[2]
        brings = name not in _HARMLESS and any(e.tag in ("link", "joint") for e in element.iter())
        if name not in _HARMLESS + _EMPTY or brings:  # a macro is called, or links are inside
            raise _unexpanded([element], source)
    if xacro and root.find("link") is None:
        raise _unexpanded(xacro, source)
    if root.tag != "robot":
        where = f"{source}, <{short(root.tag)}> (line {root.line})"
        raise ModelError(
            where, "not a URDF: its root is not <robot>", "Give a URDF (<robot>) or MJCF (<mujoco>)."
        )
    for part in root:
        if part.tag not in ("link", "joint", "material"):
            continue
        for element in part.iter():
            for key, value in element.items():
                if "${" in value or "$(" in value:
                    where = f'{source}, {part.tag} "{short(part.get("name", ""))}" (line {element.line})'
                    cause = f'unresolved xacro expression {key}="{short(value)}"'
                    raise ModelError(where, cause, _XACRO)
    marked = {id(element) for element in xacro}
    for parent in list(root.iter()) if xacro else ():
        parent[:] = [child for child in parent if id(child) not in marked]
    return xacro


def _unexpanded(xacro: list[Element], source: str) -> ModelError:
    where = f"{source}, <{short(xacro[0].tag)}> (line {xacro[0].line})"
    return ModelError(where, "this is a xacro file", _XACRO)


def _skipped(xacro: list[Element]) -> str:
    return f"Xacro directives skipped: {listing(f'<{e.tag}> (line {e.line})' for e in xacro)}."


def _warn_skipped(xacro: list[Element], source: str) -> None:
    if xacro:
        warn(f"{source}: {_skipped(xacro)} If parts of the robot are missing: {_XACRO}")


def _repeated(read: Reader, parts: list[Element]) -> list[str]:
    """Elements that may occur once but occur again: the first counts, as in other readers."""
    notes = []
    for part in parts:
        for element in part.iter():
            tags = [child.tag for child in element if child.tag in _SINGLE]
            twice = sorted({tag for tag in tags if tags.count(tag) > 1})
            notes += [f"the first <{tag}> of {read.at(part, file=False)} counts" for tag in twice]
    return notes


def _with_known_mimics(joints: tuple[Joint, ...]) -> tuple[tuple[Joint, ...], list[str]]:
    """Mimics that forgot the prefix of their own joint ("Left_q2" follows "q1", meaning "Left_q1") gain it.

    Seen in files where a macro was instantiated for several limbs; any other missing name stays an error.
    """
    names, repaired, notes = {joint.name for joint in joints}, [], []
    for joint in joints:
        if joint.mimic is not None and joint.mimic.joint not in names:
            prefixes = [joint.name[:i] for i in range(1, len(joint.name)) if joint.name[i - 1] in "_-/.:"]
            found = [p + joint.mimic.joint for p in prefixes if p + joint.mimic.joint in names - {joint.name}]
            if len(found) == 1:
                notes.append(f'mimic "{joint.mimic.joint}" of joint "{joint.name}" is "{found[0]}"')
                joint = replace(joint, mimic=replace(joint.mimic, joint=found[0]))
        repaired.append(joint)
    return tuple(repaired), notes


def _roots(bodies: tuple[Body, ...], joints: tuple[Joint, ...]) -> list[str]:
    children = {joint.child for joint in joints}
    return list(dict.fromkeys(body.name for body in bodies if body.name not in children))


def _grounded(roots: list[str], joints: tuple[Joint, ...]) -> tuple[Joint, ...]:
    """The joint "root" that fixes the robot to the ground; "world_root" if the file has a "root" itself."""
    taken = {joint.name for joint in joints}
    grounded = []
    for link in roots:
        name = "root"
        while name in taken:
            name = f"world_{name}"
        taken.add(name)
        grounded.append(Joint(name, "fixed", WORLD, link))
    return tuple(grounded)
