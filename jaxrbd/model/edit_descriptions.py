"""Description -> Description: fix joints, rename, move the world of one model into another, join several.

Keyframes are carried along: they lose the coordinates of fixed joints, and are joined by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.joints import TYPES
from jaxrbd.model.description import WORLD, Description, Joint, Keyframe, Linear, Loop, Pose, Shape
from jaxrbd.model.rigid_tree import joint_pose
from jaxrbd.model.validate import listing

DEFAULT = "<default>"  # a keyframe that carries q0 through an edit
_MOTION = ("lower", "upper", "velocity_limit", "effort_limit", "damping", "friction", "armature")
_SPRING = ("stiffness", "spring_reference")

Positions = Mapping[str, np.ndarray | Pose]  # of joints by name: their coordinates, or where they stand


def fix_joints(d: Description, positions: Positions) -> tuple[Description, list[str]]:
    """Turn joints into fixed ones, at coordinates or at a Pose; also says what was dropped with them."""
    still = Joint("", "fixed", "", "")
    defaults = {key: getattr(still, key) for key in _MOTION + _SPRING}
    joints, lost = [], []
    for j in d.joints:
        if j.name in positions:
            where = positions[j.name]
            X = where if isinstance(where, Pose) else joint_pose(j, where)
            if TYPES[j.type].free and j.parent == WORLD:  # q is the pose in the world
                j = replace(j, placement=Pose())
            if j.mimic is not None:
                lost.append(f'the mimic of joint "{j.name}"')
            j = replace(j, type="fixed", placement=j.placement @ X, mimic=None, **defaults)
        elif j.mimic is not None and j.mimic.joint in positions:
            lost.append(f'the mimic of joint "{j.name}"')
            j = replace(j, mimic=None)
        joints.append(j)
    kept = [a.joint not in positions for a in d.actuators]
    lost += [f'actuator "{a.name}"' for a, keep in zip(d.actuators, kept) if not keep]
    d = replace(
        d,
        keyframes=tuple(_reduced(d, key, positions, np.array(kept, bool)) for key in d.keyframes),
        actuators=tuple(a for a, keep in zip(d.actuators, kept) if keep),
    )
    d = replace(d, joints=tuple(joints))
    loops = [(loop, _adapted(d, loop, positions)) for loop in d.loops]
    lost += [f'loop "{loop.name}"' for loop, new in loops if new is None]
    d = replace(d, loops=tuple(new for _, new in loops if new is not None))
    return replace(
        d, linear=tuple(_fewer(x, positions) for x in d.linear if set(x.joints) - set(positions))
    ), lost


def _fewer(x: Linear, positions: Positions) -> Linear:
    """A linear coupling with the terms of fixed joints on its right-hand side."""
    kept = [(j, c) for j, c in zip(x.joints, x.coefficients) if j not in positions]
    gone = [
        c * float(np.ravel(np.asarray(positions[j]))[0])
        for j, c in zip(x.joints, x.coefficients)
        if j in positions
    ]
    return Linear(x.name, tuple(j for j, _ in kept), tuple(c for _, c in kept), x.offset - sum(gone))


def _reduced(d: Description, key: Keyframe, positions: Positions, kept: np.ndarray) -> Keyframe:
    """A keyframe without the coordinates of fixed joints and the controls of dropped actuators."""
    mask = lambda column: np.repeat(  # noqa: E731
        [j.name not in positions for j in d.joints], [TYPES[j.type].sizes[column] for j in d.joints]
    )
    q, v = np.asarray(key.q)[mask(0)], None if key.v is None else np.asarray(key.v)[mask(1)]
    return Keyframe(key.name, q, v, None if key.u is None else np.asarray(key.u)[kept])


def _adapted(d: Description, loop: Loop, positions: Positions) -> Loop | None:
    """A loop after some joints were fixed, or None if it has nothing left to hold."""
    if loop.kind == "coupling":
        if loop.body_a in positions:
            return None
        if loop.body_b in positions:
            where = positions[loop.body_b]
            if isinstance(where, Pose) or np.size(where) != 1:
                return None
            value = np.polynomial.Polynomial(loop.coefficients)(float(where[0]))
            return replace(loop, body_b=loop.body_a, coefficients=(float(value),))
        return loop
    joint_of = {j.child: j for j in d.joints}
    ends = []
    for name in (loop.body_a, loop.body_b):
        while name != WORLD and joint_of[name].type == "fixed":
            name = joint_of[name].parent
        ends.append(name)
    return None if ends[0] == ends[1] else loop


# --- joining descriptions ----------------------------------------------------------------------------


def prefixed(d: Description, prefix: str) -> Description:
    """The description with `prefix` before every name but the ground's and the keyframes'."""
    if not prefix:
        return d
    new = lambda name: name if name in ("", WORLD) else prefix + name  # noqa: E731
    renamed = lambda shapes: tuple(replace(s, name=new(s.name)) for s in shapes)  # noqa: E731
    joints = [
        replace(
            j,
            name=new(j.name),
            parent=new(j.parent),
            child=new(j.child),
            mimic=j.mimic and replace(j.mimic, joint=new(j.mimic.joint)),
        )
        for j in d.joints
    ]
    return replace(
        d,
        bodies=tuple(replace(b, name=new(b.name), shapes=renamed(b.shapes)) for b in d.bodies),
        joints=tuple(joints),
        loops=tuple(
            replace(x, name=new(x.name), body_a=new(x.body_a), body_b=new(x.body_b)) for x in d.loops
        ),
        linear=tuple(replace(x, name=new(x.name), joints=tuple(map(new, x.joints))) for x in d.linear),
        actuators=tuple(replace(a, name=new(a.name), joint=new(a.joint)) for a in d.actuators),
        frames=tuple(replace(f, name=new(f.name), body=new(f.body)) for f in d.frames),
        world_shapes=renamed(d.world_shapes),
        exclusions=tuple((new(a), new(b)) for a, b in d.exclusions),
        contact_pairs=tuple((new(a), new(b)) for a, b in d.contact_pairs),
    )


def mounted(d: Description, body: str, X: Pose) -> Description:
    """The description with its world at pose X in a body of another one."""
    joints = [
        replace(j, parent=body, placement=X @ j.placement) if j.parent == WORLD else j for j in d.joints
    ]
    frames = [replace(f, body=body, pose=X @ f.pose) if f.body == WORLD else f for f in d.frames]
    loops = []
    for loop in d.loops:
        if loop.kind != "coupling" and loop.body_a == WORLD:
            loop = replace(loop, body_a=body, pose_a=X @ loop.pose_a)
        if loop.kind != "coupling" and loop.body_b == WORLD:
            loop = replace(loop, body_b=body, pose_b=X @ loop.pose_b)
        loops.append(loop)
    exclusions = [tuple(body if x == WORLD else x for x in pair) for pair in d.exclusions]
    return replace(
        d,
        joints=tuple(joints),
        frames=tuple(frames),
        loops=tuple(loops),
        world_shapes=(),
        exclusions=tuple((a, b) for a, b in exclusions if a != b),
    )


def join(parts: Sequence[Description], name: str, remedy: str) -> Description:
    """One description of several, whose names must differ (those of fixed joints are made to)."""
    taken = {j.name for d in parts for j in d.joints if j.type != "fixed"}
    joints = []
    for j in (j for d in parts for j in d.joints):
        if j.type == "fixed":
            unused = j.name
            while unused in taken:
                unused += "_"
            taken.add(unused)
            j = replace(j, name=unused)
        joints.append(j)
    of = lambda key: tuple(item for d in parts for item in getattr(d, key))  # noqa: E731
    groups = {
        "link or frame": [x.name for x in of("bodies") + of("frames")],
        "joint": [j.name for j in joints],
        "actuator": [a.name for a in of("actuators")],
        "loop": [x.name for x in of("loops")],
        "coupling": [x.name for x in of("linear")],
    }
    for kind, names in groups.items():
        twice = [n for n, count in Counter(names).items() if count > 1]
        if twice:
            raise ArgumentError(f"both models have a {kind} named {listing(map(repr, twice))}. {remedy}.")
    return parts[0].replace(
        name=name,
        bodies=of("bodies"),
        joints=tuple(joints),
        loops=of("loops"),
        linear=of("linear"),
        actuators=of("actuators"),
        frames=of("frames"),
        keyframes=_joined_keyframes(parts),
        exclusions=of("exclusions"),
        contact_pairs=of("contact_pairs"),
        world_shapes=tuple({_identity(s): s for s in of("world_shapes")}.values()),
    )


def _joined_keyframes(parts: Sequence[Description]) -> tuple[Keyframe, ...]:
    """Keyframes by name; a part without one stands at its default pose."""
    tables = [{key.name: key for key in d.keyframes} for d in parts]
    names = dict.fromkeys(key.name for d in parts for key in d.keyframes)
    filled = lambda x, n: np.zeros(n) if x is None else x  # noqa: E731
    result = []
    for name in names:
        keys = [table.get(name, table[DEFAULT]) for table in tables]
        v = [filled(k.v, sum(TYPES[j.type].nv for j in d.joints)) for k, d in zip(keys, parts)]
        u = [filled(k.u, len(d.actuators)) for k, d in zip(keys, parts)]
        q = [k.q for k in keys]
        result.append(Keyframe(name, np.concatenate(q), np.concatenate(v), np.concatenate(u)))
    return tuple(result)


def _identity(s: Shape) -> tuple:
    """What makes two ground shapes the same; names do not count."""
    return (
        s.kind,
        s.size,
        s.pose.R.tobytes(),
        s.pose.p.tobytes(),
        s.role,
        s.mesh,
        s.rgba,
        s.friction,
        s.masks,
    )
