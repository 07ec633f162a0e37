"""Build a model in Python: bodies first, then the joints between them.

    b = Builder("pendulum")
    b.body("rod", mass=1.0, shapes=[capsule_between(0.02, (0, 0, 0), (0, 0, -1))])
    b.joint("hinge", "revolute", parent=None, child="rod", axis=(0, 1, 0))
    sys = b.build()

Every call checks what it can at once and raises `ModelError` naming the element. Calls return the builder,
so that they chain. A body that no joint moves is a root: it stands fixed in the world, or gets the joint
that `build(base="free")` adds. The q of a free joint on the world is the body's pose in the world, and its
`xyz` and `rpy` are where the default pose q0 puts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxrbd.errors import ModelError
from jaxrbd.joints import TYPES
from jaxrbd.joints.matrices import matrix_from_rpy
from jaxrbd.model import shapes as _shapes
from jaxrbd.model import values
from jaxrbd.model.compile import build
from jaxrbd.model.description import (
    MAX_LINKS,
    WORLD,
    Actuator,
    Body,
    Description,
    Frame,
    Joint,
    Linear,
    Loop,
    Mimic,
    PerDof,
    Pose,
    Shape,
)
from jaxrbd.model.keyframes import named_keyframe
from jaxrbd.model.names import hint
from jaxrbd.model.system import System
from jaxrbd.typing import Numbers

LOOP_KINDS = ("connect", "weld", "hinge", "distance", "coupling")
ACTUATOR_KINDS = ("torque", "position", "velocity")


class Builder:
    """Collects bodies, joints, loops, frames, actuators and keyframes; `description()` gives the model."""

    box = staticmethod(_shapes.box)
    sphere = staticmethod(_shapes.sphere)
    cylinder = staticmethod(_shapes.cylinder)
    capsule = staticmethod(_shapes.capsule)
    ellipsoid = staticmethod(_shapes.ellipsoid)
    capsule_between = staticmethod(_shapes.capsule_between)

    def __init__(self, name: str = "model", gravity: Numbers = (0.0, 0.0, -9.81), *, graph: bool = False):
        """`graph`: joints may form any graph, several on one body, rings; `rbd.maximal(b)` takes those."""
        self.name, self.graph = name, graph
        self.gravity = values.vector(f"model {name!r}", "gravity", gravity)
        self._bodies: dict[str, Body] = {}
        self._joints: dict[str, Joint] = {}
        self._loops: dict[str, Loop] = {}
        self._gears: dict[str, Linear] = {}
        self._frames: dict[str, Frame] = {}
        self._actuators: dict[str, Actuator] = {}
        self._keyframes: dict[str, tuple] = {}
        self._world_shapes: list[Shape] = []
        self._parent_joint: dict[str, Joint] = {}  # child body -> the joint that moves it
        self._parents: set[str] = set()  # bodies that carry a joint

    def body(
        self,
        name: str,
        mass: float = 0.0,
        com: Numbers | None = None,
        inertia: Numbers | None = None,
        shapes: Sequence[Shape] = (),
    ) -> Builder:
        """Add a link. `inertia` is about the centre of mass `com`, in body axes: a scalar, 3 or 3×3 numbers.

        What is left out comes from the collision shapes as solids of uniform density (all shapes if none
        collides); without shapes the centre is the body's origin and the body a point mass.
        """
        where = self._new("body", name, self._bodies)
        if len(self._bodies) >= MAX_LINKS:
            raise ModelError(where, f"more than {MAX_LINKS} bodies", "Split the model into several.")
        if name == WORLD:
            raise ModelError(where, "this name means the ground", "Choose another name.")
        if name in self._frames:
            raise ModelError(where, "a frame has this name", "Bodies and frames share one set of names.")
        if not np.isfinite(mass) or mass < 0:
            raise ModelError(where, f"the mass {mass} is not a finite number >= 0", "Give it in kilograms.")
        solid = [s for s in shapes if s.role == "collision"] or list(shapes)
        if solid and mass > 0 and (com is None or inertia is None):
            com_solid, inertia_solid = _shapes.solid_body(solid, mass)
        else:
            com_solid, inertia_solid = np.zeros(3), np.zeros((3, 3))
        com = com_solid if com is None else values.vector(where, "com", com)
        tensor = inertia_solid if inertia is None else values.tensor(where, inertia)
        self._bodies[name] = Body(name, float(mass), com, tensor, tuple(shapes))
        return self

    def ground(self, *shapes: Shape) -> Builder:
        """Add geometry that is fixed to the world; without arguments, the plane z = 0."""
        self._world_shapes += shapes or (Shape("plane"),)
        return self

    def joint(
        self,
        name: str,
        type: str,
        parent: str | None,
        child: str,
        xyz: Numbers = (0.0, 0.0, 0.0),
        rpy: Numbers | None = None,
        R: Numbers | None = None,
        axis: Numbers = (0.0, 0.0, 1.0),
        axis2: Numbers | None = None,
        pitch: float = 0.0,
        limits: Sequence[PerDof] | np.ndarray | None = None,
        effort: PerDof = np.inf,
        velocity: PerDof = np.inf,
        damping: PerDof = 0.0,
        friction: PerDof = 0.0,
        armature: PerDof = 0.0,
        stiffness: PerDof = 0.0,
        spring_reference: PerDof = 0.0,
        mimic: Mimic | None = None,
        offset: Pose | None = None,
    ) -> Builder:
        """Let `child` move in `parent` (None: the world) about a frame at `xyz` turned by `rpy` or `R`.

        Quantities per degree of freedom are floats or sequences of nv; `limits` is (lower, upper). `axis2` is
        the second axis of a universal joint and the x direction of a planar one (perpendicular to `axis`,
        chosen if left out); `pitch` of a screw is in metres per radian.
        """
        where = self._new("joint", name, self._joints)
        if type not in TYPES:
            raise ModelError(where, f"unknown joint type {type!r}", hint(type, TYPES))
        parent = WORLD if parent is None else parent
        self._need_body(where, "parent", parent, world=True)
        self._need_body(where, "child", child)
        if self.graph:
            if parent == child:
                raise ModelError(where, f"it joins {child!r} to itself", "Join two bodies.")
        else:
            self._check_tree(where, parent, child)
        if rpy is not None and R is not None:
            raise ModelError(where, "both rpy and R were given", "Give one of them.")
        rotation = (
            values.rotation_matrix(where, R)
            if R is not None
            else matrix_from_rpy(values.vector(where, "rpy", (0, 0, 0) if rpy is None else rpy))
        )
        axis, axis2 = values.axes(where, type, axis, axis2)
        if not np.isfinite(pitch):
            raise ModelError(where, f"the pitch {pitch} is not finite", "Give metres per radian.")
        nv = TYPES[type].nv
        lower, upper = values.limits(where, limits, nv)
        amounts = values.amounts(
            where,
            nv,
            velocity_limit=velocity,
            effort_limit=effort,
            damping=damping,
            friction=friction,
            armature=armature,
            stiffness=stiffness,
        )
        if mimic is not None and mimic.joint not in self._joints:
            raise ModelError(where, f"mimics the unknown joint {mimic.joint!r}", "Declare that joint before.")
        joint = Joint(
            name,
            type,
            parent,
            child,
            Pose(rotation, values.vector(where, "xyz", xyz)),
            offset or Pose(),
            axis,
            axis2,
            float(pitch),
            lower,
            upper,
            spring_reference=values.per_dof(where, "spring_reference", spring_reference, nv),
            mimic=mimic,
            **amounts,
        )
        self._joints[name] = self._parent_joint[child] = joint
        self._parents.add(parent)
        return self

    def loop(
        self,
        name: str,
        kind: str,
        a: str,
        b: str | None = None,
        pose_a: Pose | None = None,
        pose_b: Pose | None = None,
        coefficients: Sequence[float] = (),
        active: bool = True,
    ) -> Builder:
        """Close a loop between bodies `a` and `b` (None: the world), or couple joint `a` to joint `b`.

        `kind` is connect, weld, hinge, distance or coupling. A coupling is q_a = Σ coefficients[k] q_b^k.
        """
        where = self._new("loop", name, self._loops)
        if kind not in LOOP_KINDS:
            raise ModelError(where, f"unknown kind {kind!r}", hint(kind, LOOP_KINDS))
        if kind == "coupling":
            self._need_joint(where, a)
            self._need_joint(where, b)
            if len(coefficients) < 2:
                raise ModelError(where, "a coupling needs coefficients", "Give (offset, ratio, ...).")
        else:
            b = WORLD if b is None else b
            self._need_body(where, "body", a, world=True)
            self._need_body(where, "body", b, world=True)
        numbers = tuple(float(c) for c in coefficients)
        self._loops[name] = Loop(name, kind, a, str(b), pose_a or Pose(), pose_b or Pose(), numbers, active)
        return self

    def gear(self, name: str, terms: Mapping[str, float], offset: float = 0.0) -> Builder:
        """Couple joints linearly: sum of coefficient times q over `terms` (joint: coefficient) = offset.

        A rotor that turns six times its link: gear("g", {"rotor": 1, "link": -6}). Belts that run past a
        knee: {"ankle_rotor": 1, "knee": -6, "ankle": -6}.
        """
        where = self._new("gear", name, self._gears)
        if len(terms) < 2:
            raise ModelError(where, f"{len(terms)} joints", "Couple two joints at least.")
        for joint in terms:
            self._need_joint(where, joint)
        self._gears[name] = Linear(name, tuple(terms), tuple(map(float, terms.values())), float(offset))
        return self

    def frame(
        self, name: str, body: str | None, xyz: Numbers = (0.0, 0.0, 0.0), rpy: Numbers = (0.0, 0.0, 0.0)
    ) -> Builder:
        """Name a frame fixed to `body` (None: the world), such as a tool point or a sensor."""
        where = self._new("frame", name, self._frames)
        if name in self._bodies or name == WORLD:
            raise ModelError(where, "a body has this name", "Bodies and frames share one set of names.")
        body = WORLD if body is None else body
        self._need_body(where, "body", body, world=True)
        placement = _shapes.pose(values.vector(where, "xyz", xyz), values.vector(where, "rpy", rpy))
        self._frames[name] = Frame(name, body, placement)
        return self

    def actuator(
        self,
        joint: str,
        kind: str = "torque",
        kp: float = 0.0,
        kd: float = 0.0,
        gear: float = 1.0,
        limits: Numbers = (-np.inf, np.inf),
        control_range: Numbers = (-np.inf, np.inf),
        dof: int = 0,
        name: str | None = None,
    ) -> Builder:
        """Drive one degree of freedom of `joint`: by a torque, or by PD control towards u.

        With q and v of that degree of freedom:  torque: u;  position: kp (u - gear q) - kd gear v;
        velocity: kd (u - gear v); clipped to `limits`, then times `gear`.
        """
        name = name or (joint if dof == 0 else f"{joint}_{dof}")
        where = self._new("actuator", name, self._actuators)
        self._need_joint(where, joint)
        if kind not in ACTUATOR_KINDS:
            raise ModelError(where, f"unknown kind {kind!r}", hint(kind, ACTUATOR_KINDS))
        nv = TYPES[self._joints[joint].type].nv
        if not 0 <= dof < nv:
            raise ModelError(where, f"joint {joint!r} has no degree of freedom {dof}", f"It has {nv}.")
        if not all(np.isfinite(x) for x in (kp, kd, gear)) or kp < 0 or kd < 0:
            raise ModelError(where, f"bad gains kp={kp}, kd={kd}, gear={gear}", "kp, kd >= 0, all finite.")
        if (kind == "position" and kp == 0) or (kind == "velocity" and kd == 0):
            raise ModelError(where, f"a {kind} actuator without gain", "Give kp (position) or kd (velocity).")
        gain = {"torque": 1.0, "position": kp, "velocity": kd}[kind]
        bias = {"torque": (0.0, 0.0, 0.0), "position": (0.0, -kp, -kd), "velocity": (0.0, 0.0, -kd)}[kind]
        force, control = (
            values.interval(where, "limits", limits),
            values.interval(where, "control_range", control_range),
        )
        self._actuators[name] = Actuator(
            name, joint, dof, kind, float(gear), float(gain), bias, control, force
        )
        return self

    def keyframe(
        self,
        name: str,
        q: Numbers | Mapping[str, Numbers],
        v: Numbers | Mapping[str, Numbers] | None = None,
        u: Numbers | None = None,
    ) -> Builder:
        """Name a configuration. `q` and `v` are arrays, or map joint names to numbers (the rest is neutral,
        and free joints on the world are at their placement).

        Arrays follow the order in which the joints were declared, `u` that of the actuators.
        """
        where = self._new("keyframe", name, self._keyframes)
        for numbers, column in ((q, 0), (v, 1)):
            if isinstance(numbers, Mapping):
                for joint, number in numbers.items():
                    self._need_joint(where, joint)
                    size, got = TYPES[self._joints[joint].type].sizes[column], np.size(number)
                    if got != size:
                        raise ModelError(where, f"joint {joint!r} takes {size} numbers, not {got}", "")
        self._keyframes[name] = (q, v, u)
        return self

    def joint_named(self, name: str) -> Joint:
        """A joint declared earlier."""
        self._need_joint(f"<builder {self.name}>", name)
        return self._joints[name]

    def description(self) -> Description:
        """The model as plain data."""
        if not self._bodies:
            raise ModelError(f"model {self.name!r}", "there is no body", "Add one with body(...).")
        joints = tuple(self._joints.values())
        return Description(
            name=self.name,
            bodies=tuple(self._bodies.values()),
            joints=joints if self.graph else self._root_joints() + joints,
            loops=tuple(self._loops.values()),
            linear=tuple(self._gears.values()),
            actuators=tuple(self._actuators.values()),
            frames=tuple(self._frames.values()),
            keyframes=tuple(
                named_keyframe(f"<builder {self.name}>", name, joints, len(self._actuators), *given)
                for name, given in self._keyframes.items()
            ),
            world_shapes=tuple(self._world_shapes),
            gravity=self.gravity,
            source=f"<builder {self.name}>",
        )

    def build(self, **options: Any) -> System:
        """Compile to a System; options as of `build(description, dtype=, strict=, base=)`."""
        if self.graph:
            where = f"<builder {self.name}>"
            cause = "its joints may form any graph, but those of a System form a tree"
            raise ModelError(
                where, cause, "Use rbd.maximal(b), or leave out graph=True and close with loop(...)."
            )
        return build(self.description(), **options)

    # --- checks ------------------------------------------------------------------------------------------

    def _new(self, kind: str, name: str, table: Mapping) -> str:
        where = f"<builder {self.name}>, {kind} {name!r}"
        if not isinstance(name, str) or not name:
            raise ModelError(where, "the name is not a non-empty string", "Give it a name.")
        if name in table:
            raise ModelError(where, f"a {kind} of this name exists already", "Choose another name.")
        return where

    def _need_body(self, where: str, role: str, name: str, world: bool = False) -> None:
        if name not in self._bodies and not (world and name == WORLD):
            remedy = f"Add body({name!r}, ...) before this call. {hint(name, self._bodies)}"
            raise ModelError(where, f"unknown {role} {name!r}", remedy)

    def _need_joint(self, where: str, name: str | None) -> None:
        if name not in self._joints:
            remedy = f"Add joint({name!r}, ...) before this call. {hint(name, self._joints)}"
            raise ModelError(where, f"unknown joint {name!r}", remedy)

    def _check_tree(self, where: str, parent: str, child: str) -> None:
        if child in self._parent_joint:
            other = self._parent_joint[child].name
            cause = f"body {child!r} is already the child of joint {other!r}"
            raise ModelError(where, cause, "Close the second path with loop(...).")
        if child != parent and child not in self._parents:
            return  # nothing hangs on it, so it is nobody's ancestor
        ancestor = parent
        while ancestor != child and ancestor in self._parent_joint:
            ancestor = self._parent_joint[ancestor].parent
        if ancestor == child:
            raise ModelError(
                where, f"body {child!r} would be its own ancestor", "Close the cycle with loop(...)."
            )

    def _root_joints(self) -> tuple[Joint, ...]:
        roots = [name for name in self._bodies if name not in self._parent_joint]
        names = ["root"] if len(roots) == 1 else [f"root_{name}" for name in roots]
        for joint, body in zip(names, roots):
            if joint in self._joints:
                where = f"<builder {self.name}>, body {body!r}"
                raise ModelError(
                    where, f"its root joint would be named {joint!r}, as another is", "Join it yourself."
                )
        return tuple(Joint(joint, "fixed", WORLD, body) for joint, body in zip(names, roots))
