"""The base of a robot: the joint between the ground and what walks, flies or stands on it.

Trees of a model as seen from the ground: those whose root joint is free, or whose root is a massless link
with floating joints on it ("world" in many URDFs), have a base already; a tree on a fixed root joint can get
one. Joints of other types on the ground are part of the mechanism and stay.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jaxrbd.errors import ArgumentError, warn
from jaxrbd.joints import TYPES
from jaxrbd.joints.matrices import quaternion_from_matrix
from jaxrbd.model.description import WORLD, Description, Joint, Keyframe, Pose
from jaxrbd.model.edit_descriptions import fix_joints, joint_pose
from jaxrbd.model.validate import listing

ROOT = "root"


def set_base(description: Description, base: str | None) -> Description:
    """A sound description with its base joints made "free" or "fixed"; None leaves it as it is.

    "free": a base that exists stays. Else fixed root joints of trees with a moving joint become free, or,
    if there is none, that of the only tree with mass (not in MJCF, where such a body belongs to the
    ground). One base is called "root"; of several, those added are "root", "root_<body>", ....
    "fixed": bases stop where the default pose has them.
    """
    if base not in (None, "free", "fixed"):
        raise ArgumentError(f'base is {base!r}, expected None, "free" or "fixed".')
    if base is None:
        return description
    mass = {body.name: body.mass for body in description.bodies}
    children: dict[str, list[Joint]] = {}
    for joint in description.joints:
        children.setdefault(joint.parent, []).append(joint)
    trees = [_Tree(joint, children, mass) for joint in children[WORLD]]
    bases = [joint for tree in trees for joint in tree.bases]
    return _fixed(description, bases) if base == "fixed" else _freed(description, trees, bases)


def pose_coordinates(pose: Pose) -> np.ndarray:
    """q of a free joint on the ground that stands there."""
    return np.concatenate([pose.p, quaternion_from_matrix(pose.R)])


class _Tree:
    """What hangs on one joint of the ground."""

    def __init__(self, root: Joint, children: dict[str, list[Joint]], mass: dict[str, float]):
        self.root, self.bases = root, [root] if TYPES[root.type].free else []
        self.moving, self.heavy, standing = False, False, 0.0
        floating = []
        todo = [(root, root.type == "fixed")]
        while todo:
            joint, stands = todo.pop()
            self.heavy |= mass[joint.child] > 0.0
            standing += mass[joint.child] if stands else 0.0
            for child in children.get(joint.child, []):
                self.moving |= child.type != "fixed"
                floating += [child] if stands and TYPES[child.type].free else []
                todo.append((child, stands and child.type == "fixed"))
        if root.type == "fixed" and standing == 0.0:
            self.bases = floating[::-1]


def _freed(d: Description, trees: list[_Tree], bases: list[Joint]) -> Description:
    fixed = [tree for tree in trees if tree.root.type == "fixed" and not tree.bases]
    chosen = [tree for tree in fixed if tree.moving]
    if not chosen and not bases and not d.scenery:
        heavy = [tree for tree in fixed if tree.heavy]
        chosen = heavy if len(heavy) == 1 else []
    if not chosen and not bases:
        warn(
            f'{d.source}: base="free" finds nothing to free: no tree on a fixed root has a moving joint, '
            "nor is one of them the only one with mass. Give the body that should float a free joint."
        )
        return d
    added = {tree.root.name: replace(tree.root, type="free", lower=-np.inf, upper=np.inf) for tree in chosen}
    keyframes = tuple(_with_poses(d, key, added) for key in d.keyframes)
    joints = tuple(added.get(joint.name, joint) for joint in d.joints)
    d = d.replace(joints=joints, keyframes=keyframes)
    named = list(added) if added else [joint.name for joint in bases if len(bases) == 1]
    return _renamed(d, _root_names(d, named))


def _fixed(d: Description, bases: list[Joint]) -> Description:
    home = next((key.q for key in d.keyframes if key.name == "home"), None)
    starts = np.cumsum([0] + [TYPES[joint.type].nq for joint in d.joints])
    start = {joint.name: at for joint, at in zip(d.joints, starts)}
    joint_of = {joint.child: joint for joint in d.joints}
    poses = {}
    for joint in bases:
        if home is None:
            pose = joint.placement if joint.parent == WORLD else Pose()
        else:  # q is the pose in the world
            at, parent = start[joint.name], joint.parent
            pose = joint_pose(joint, np.asarray(home, float)[at : at + 7])
            if parent != WORLD:
                pose = (_standing(joint_of, parent) @ joint.placement).inverse() @ pose
        poses[joint.name] = pose
    d, lost = fix_joints(d, poses)
    if lost:
        warn(f'{d.source}: base="fixed" drops {listing(lost, 12)}.')
    return d


def _standing(joint_of: dict[str, Joint], link: str) -> Pose:
    """Where a link that is fixed to the ground stands."""
    pose = Pose()
    while link != WORLD:
        joint = joint_of[link]
        pose, link = joint.placement @ joint.offset @ pose, joint.parent
    return pose


def _with_poses(d: Description, key: Keyframe, added: dict[str, Joint]) -> Keyframe:
    """A keyframe with the poses at which the added free joints stand; they do not move."""
    q, v, at_q, at_v = [], [], 0, 0
    for joint in d.joints:
        nq, nv = TYPES[joint.type].sizes
        if joint.name in added:
            q.append(pose_coordinates(joint.placement))
            v.append(np.zeros(6))
        q.append(np.asarray(key.q, float)[at_q : at_q + nq])
        v.append(np.zeros(nv) if key.v is None else np.asarray(key.v, float)[at_v : at_v + nv])
        at_q, at_v = at_q + nq, at_v + nv
    return replace(key, q=np.concatenate([np.zeros(0), *q]), v=np.concatenate([np.zeros(0), *v]))


def _root_names(d: Description, bases: list[str]) -> dict[str, str]:
    """New names: "root" for the first, "root_<body>" for more; a fixed joint of that name makes room."""
    child = {joint.name: joint.child for joint in d.joints}
    kinds = {joint.name: joint.type for joint in d.joints}
    new: dict[str, str] = {}
    taken = set(child) - set(bases)
    for i, name in enumerate(bases):
        wanted = ROOT if i == 0 else f"{ROOT}_{child[name]}"
        if wanted in taken and kinds[wanted] == "fixed":
            new[wanted] = _free_name(f"world_{wanted}", taken)
            taken = (taken - {wanted}) | {new[wanted]}
        new[name] = _free_name(wanted, taken)
        taken.add(new[name])
    return {old: name for old, name in new.items() if old != name}


def _free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"world_{name}"
    return name


def _renamed(d: Description, new: dict[str, str]) -> Description:
    if not new:
        return d

    def of(name: str) -> str:
        return new.get(name, name)

    joints = []
    for joint in d.joints:
        mimic = joint.mimic and replace(joint.mimic, joint=of(joint.mimic.joint))
        joints.append(replace(joint, name=of(joint.name), mimic=mimic))
    loops = [
        replace(loop, body_a=of(loop.body_a), body_b=of(loop.body_b)) if loop.kind == "coupling" else loop
        for loop in d.loops
    ]
    actuators = tuple(replace(a, joint=of(a.joint)) for a in d.actuators)
    linear = tuple(replace(x, joints=tuple(map(of, x.joints))) for x in d.linear)
    return d.replace(joints=tuple(joints), loops=tuple(loops), linear=linear, actuators=actuators)
