"""What a Description must satisfy before it can become a System.

`check_structure` raises for what cannot be compiled (names, topology, numbers); `validate` does that and
then judges the physics, see `physics.py`: unphysical models are common in the wild, so they warn unless
`strict`. Every message names the file, the element and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from jaxrbd.errors import ModelError, short, warn
from jaxrbd.joints import TYPES
from jaxrbd.model import checks
from jaxrbd.model.description import (
    MAX_FREEDOMS,
    MAX_LINKS,
    WORLD,
    Actuator,
    Description,
    Joint,
    Keyframe,
    Linear,
    Loop,
)
from jaxrbd.model.mass_rank import idle_joints
from jaxrbd.model.names import hint
from jaxrbd.model.physics import unphysical
from jaxrbd.model.rigid_tree import RigidTree

TOO_LARGE = "This is no robot; split the model into several."
LOOP_KINDS = ("connect", "weld", "hinge", "distance", "coupling")


@dataclass(frozen=True)
class Lines:
    """Lines of the file where bodies and joints stand, in the description's order; 0 or absent: unknown."""

    bodies: tuple[int, ...] = ()
    joints: tuple[int, ...] = ()


def validate(description: Description, strict: bool = False) -> None:
    """Raise ModelError if the model cannot be compiled; warn (or, if `strict`, raise) if it is unphysical."""
    check_structure(description)
    tree = RigidTree(description)
    judge(tree, idle_joints(tree), strict)


def judge(tree: RigidTree, idle: list[tuple[str, int]], strict: bool) -> None:
    """Warn, or raise if `strict`, about what is unphysical in a sound model, given its `idle_joints`."""
    description, problems = tree.description, unphysical(tree, idle)
    if not problems:
        return
    cause = "unphysical: " + "; ".join(f"{what}: {listing(names)}" for what, names in problems.items())
    if strict:
        raise ModelError(description.source, cause, "Correct these, or load with strict=False.")
    text = f"{description.source}: {cause}. Correct these; strict=True refuses such a model."
    warn(text)


def check_structure(description: Description, lines: Lines | None = None) -> None:
    """Raise ModelError unless names, references, topology and numbers are sound."""
    check_size(description)
    _Checker(description, lines or Lines()).run()


def check_size(description: Description) -> None:
    """Raise ModelError for a model without bodies or with absurdly many, before any work is done on it."""
    if not description.bodies:
        raise ModelError(description.source, "the model has no bodies", "Add at least one body.")
    freedoms = sum(TYPES[joint.type].nv for joint in description.joints if joint.type in TYPES)
    links = max(len(description.bodies), len(description.joints))
    for count, most, what in ((links, MAX_LINKS, "links"), (freedoms, MAX_FREEDOMS, "degrees of freedom")):
        if count > most:
            raise ModelError(description.source, f"{count} {what}, more than {most}", TOO_LARGE)


def listing(items: Iterable[str], limit: int = 8) -> str:
    """The items after one another in about 200 characters, the tail of a long list as "and 12 more"."""
    items = [short(item) for item in items]
    shown = len(items) if len(items) <= limit else limit - 1
    while shown > 1 and len(", ".join(items[:shown])) > 200:
        shown -= 1
    more = f" and {len(items) - shown} more" if shown < len(items) else ""
    return ", ".join(items[:shown]) + more


class _Checker:
    def __init__(self, description: Description, lines: Lines):
        self.d, self.source = description, description.source
        self.bodies = {body.name for body in description.bodies}
        self.joints = {joint.name: joint for joint in description.joints}
        self.bodies_at = _places(self.source, "link", description.bodies, lines.bodies)
        self.joints_at = _places(self.source, "joint", description.joints, lines.joints)

    def run(self) -> None:
        self.names()
        for place, body in self.bodies_at:
            self.body(place, body)
        for place, joint in self.joints_at:
            self.joint(place, joint)
        self.topology()
        self.mimics()
        for loop in self.d.loops:
            self.loop(f'{self.source}, loop "{loop.name}"', loop)
        for linear in self.d.linear:
            self.linear(f'{self.source}, coupling "{linear.name}"', linear)
        for actuator in self.d.actuators:
            self.actuator(f'{self.source}, actuator "{actuator.name}"', actuator)
        for frame in self.d.frames:
            place = f'{self.source}, frame "{frame.name}"'
            self.body_exists(place, "body", frame.body)
            checks.check_pose(place, "pose", frame.pose)
        for key in self.d.keyframes:
            self.keyframe(f'{self.source}, keyframe "{key.name}"', key)
        for shape in self.d.world_shapes:
            checks.check_shape(f"{self.source}, world", shape)
        checks.check_array(self.source, "gravity", self.d.gravity, (3,))

    def names(self) -> None:
        _check_unique("link", ((place, body.name) for place, body in self.bodies_at))
        _check_unique("joint", ((place, joint.name) for place, joint in self.joints_at))
        frames = [(f'{self.source}, frame "{f.name}"', f.name) for f in self.d.frames]
        _check_unique("frame", frames)
        for place, name in frames:
            if name in self.bodies:  # links are frames too, and are looked up by name
                raise ModelError(place, "a link has the same name", "Rename the frame.")

    def body(self, place: str, body) -> None:
        if body.name == WORLD:
            raise ModelError(place, "this name is reserved for the ground", "Rename the link.")
        mass = checks.check_array(place, "mass", body.mass, ())
        if mass < 0.0:
            raise ModelError(place, f"negative mass {float(mass):g}", "A mass is zero or more kilograms.")
        checks.check_array(place, "centre of mass", body.com, (3,))
        inertia = checks.check_array(place, "inertia", body.inertia, (3, 3))
        if np.max(np.abs(inertia - inertia.T)) > 1e-9 * np.max(np.abs(inertia)):
            raise ModelError(place, "the inertia is not symmetric", "Give a symmetric 3x3 matrix.")
        for shape in body.shapes:
            checks.check_shape(place, shape)

    def joint(self, place: str, joint: Joint) -> None:
        if joint.type not in TYPES:
            raise ModelError(place, f'unknown joint type "{joint.type}"', hint(joint.type, TYPES))
        self.body_exists(place, "parent link", joint.parent)
        self.body_exists(place, "child link", joint.child, world=False)
        checks.check_pose(place, "placement", joint.placement)
        checks.check_pose(place, "offset", joint.offset)
        checks.check_axes(place, joint)
        checks.check_limits(place, joint)

    def body_exists(self, place: str, role: str, name: str, world: bool = True) -> None:
        if name in self.bodies or (world and name == WORLD):
            return
        if name == WORLD:
            raise ModelError(place, f"the {role} is the ground", "Exchange parent and child.")
        remedy = f'Add <link name="{name}"/> or correct the name. {hint(name, sorted(self.bodies))}'
        raise ModelError(place, f'the {role} "{name}" does not exist', remedy)

    def topology(self) -> None:
        """A forest rooted in the ground: each body the child of one joint, and no joints in a circle."""
        parent_joint: dict[str, Joint] = {}
        for place, joint in self.joints_at:
            first = parent_joint.setdefault(joint.child, joint)
            if first is not joint:
                cause = f'link "{joint.child}" is already the child of joint "{first.name}"'
                raise ModelError(
                    place, cause, "A link has one parent joint; close loops with a loop constraint."
                )
        for place, body in self.bodies_at:
            if body.name not in parent_joint:
                raise ModelError(
                    place, "no joint has this link as its child", "Attach it to the ground or a link."
                )
        grounded = {WORLD}
        for place, body in self.bodies_at:
            path: dict[str, None] = {}
            name = body.name
            while name not in grounded:
                if name in path:
                    circle = [*list(path)[list(path).index(name) :], name]
                    remedy = "Remove one of their joints; close loops with a loop constraint."
                    raise ModelError(
                        place, f"the links form a cycle: {' <- '.join(_abridged(circle))}", remedy
                    )
                path[name] = None
                name = parent_joint[name].parent
            grounded.update(path)

    def mimics(self) -> None:
        for place, joint in self.joints_at:
            if joint.mimic is None:
                continue
            target = self.joints.get(joint.mimic.joint)
            if target is None:
                remedy = f"Correct the name. {hint(joint.mimic.joint, sorted(self.joints))}"
                raise ModelError(place, f'mimics joint "{joint.mimic.joint}", which does not exist', remedy)
            if target.name == joint.name:
                raise ModelError(place, "mimics itself", "Name another joint in <mimic>.")
            for who in (joint, target):
                if TYPES[who.type].nv != 1:
                    cause = (
                        f'mimic between joints needs one degree of freedom each, "{who.name}" is {who.type}'
                    )
                    raise ModelError(place, cause, "Remove <mimic> or change the joint.")
            checks.check_array(place, "mimic multiplier", joint.mimic.ratio, ())
            checks.check_array(place, "mimic offset", joint.mimic.offset, ())
        self.mimic_cycles()

    def linear(self, place: str, x: Linear) -> None:
        if len(x.joints) != len(x.coefficients) or not x.joints:
            cause = f"{len(x.joints)} joints, but {len(x.coefficients)} coefficients"
            raise ModelError(place, cause, "Give one coefficient for each joint.")
        if len(set(x.joints)) != len(x.joints):
            raise ModelError(place, "names a joint twice", "Add up its coefficients.")
        for name in x.joints:
            joint = self.joints.get(name)
            if joint is None:
                remedy = f"Correct the name. {hint(name, sorted(self.joints))}"
                raise ModelError(place, f'couples joint "{short(name)}", which does not exist', remedy)
            if TYPES[joint.type].sizes != (1, 1):
                cause = f'couples joint "{short(name)}" of type {joint.type}, expected one coordinate'
                raise ModelError(place, cause, "Couple revolute or prismatic joints.")
        checks.check_array(place, "coefficients", x.coefficients, (len(x.joints),))
        checks.check_array(place, "offset", x.offset, ())

    def mimic_cycles(self) -> None:
        sound: set[str] = set()
        for place, joint in self.joints_at:
            path: set[str] = set()
            while joint.name not in sound and joint.mimic is not None:
                if joint.name in path:
                    raise ModelError(
                        place, "mimic joints follow each other in a circle", "Remove one <mimic>."
                    )
                path.add(joint.name)
                joint = self.joints[joint.mimic.joint]
            sound |= path

    def loop(self, place: str, loop: Loop) -> None:
        if loop.kind not in LOOP_KINDS:
            raise ModelError(place, f'unknown kind "{loop.kind}"', hint(loop.kind, LOOP_KINDS))
        if loop.kind == "coupling":
            self.joint_exists(place, loop.body_a)
            if loop.body_b:
                self.joint_exists(place, loop.body_b)
        else:
            self.body_exists(place, "body_a", loop.body_a)
            self.body_exists(place, "body_b", loop.body_b)
        checks.check_pose(place, "pose_a", loop.pose_a)
        checks.check_pose(place, "pose_b", loop.pose_b)
        checks.check_array(place, "coefficients", loop.coefficients, (len(loop.coefficients),))

    def joint_exists(self, place: str, name: str) -> Joint:
        if name not in self.joints:
            near = hint(name, sorted(self.joints))
            raise ModelError(place, f'refers to joint "{name}", which does not exist', near)
        return self.joints[name]

    def actuator(self, place: str, actuator: Actuator) -> None:
        nv = TYPES[self.joint_exists(place, actuator.joint).type].nv
        if not 0 <= actuator.dof < nv:
            cause = f'degree of freedom {actuator.dof} of joint "{actuator.joint}", which has {nv}'
            raise ModelError(place, cause, "Count from 0 within the joint; fixed joints have none.")
        checks.check_array(place, "gear", actuator.gear, ())
        checks.check_array(place, "gain", actuator.gain, ())
        checks.check_array(place, "bias", actuator.bias, (3,))
        for what, limits in (
            ("control range", actuator.control_range),
            ("force range", actuator.force_range),
        ):
            low, high = checks.check_array(place, what, limits, (2,), finite=False)
            checks.check_order(place, what, low, high)

    def keyframe(self, place: str, key: Keyframe) -> None:
        nq, nv = np.sum([TYPES[joint.type].sizes for joint in self.d.joints], axis=0)
        checks.check_array(place, "q", key.q, (nq,))
        if key.v is not None:
            checks.check_array(place, "v", key.v, (nv,))
        if key.u is not None:
            checks.check_array(place, "u", key.u, (len(self.d.actuators),))


# --- names and lists ---------------------------------------------------------------------------------


def _places(source: str, kind: str, items, lines: tuple[int, ...]) -> list[tuple]:
    """Pairs of where an item stands and the item."""
    numbered = zip_longest(items, lines, fillvalue=0)
    at = lambda item, n: f'{source}, {kind} "{short(str(item.name))}"' + (f" (line {n})" if n else "")  # noqa: E731
    return [(at(item, n), item) for item, n in numbered]


def _check_unique(kind: str, named: Iterable[tuple[str, str]]) -> None:
    seen: set[str] = set()
    for place, name in named:
        if not isinstance(name, str) or not name:
            raise ModelError(place, f"a {kind} without a name", f"Give every {kind} a name.")
        if name in seen:
            raise ModelError(place, f"another {kind} has the same name", "Rename one of them.")
        seen.add(name)


def _abridged(names: list[str]) -> list[str]:
    return names if len(names) <= 8 else [*names[:6], "...", names[-1]]
