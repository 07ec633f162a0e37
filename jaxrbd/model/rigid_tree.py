"""The moving bodies of a Description: links on fixed joints merged, parents before children."""

from __future__ import annotations

import numpy as np

from jaxrbd.model.description import JOINT_SIZES, WORLD, Description, Joint, Pose
from jaxrbd.model.rotations import matrix_from_quaternion


class RigidTree:
    """Joints that move, depth first, with their parents and placements; and where every link sits."""

    def __init__(self, description: Description):
        self.description = description
        bodies = {b.name: b for b in description.bodies}
        children: dict[str, list[Joint]] = {}
        for j in description.joints:
            children.setdefault(j.parent, []).append(j)
        self.joints: list[Joint] = []
        self.parents: list[int] = []  # index of the joint that moves the parent, -1 for the ground
        self.placements: list[Pose] = []  # joint frame in the moving parent
        self.link_names: list[str] = []  # in the order in which they were met
        self.link_body: list[int] = []  # the moving body that carries each link
        self.link_pose: list[Pose] = []  # its pose in that body's joint frame
        self.body_frames: list[int] = []  # the link that each joint moves
        todo = [(j, -1, Pose()) for j in reversed(children.get(WORLD, []))]
        while todo:
            j, carrier, X_carrier_parent = todo.pop()
            X = X_carrier_parent @ j.placement
            if j.type == "fixed":
                pose = X @ j.offset
            else:
                self.joints.append(j)
                self.parents.append(carrier)
                self.placements.append(X)
                self.body_frames.append(len(self.link_names))
                carrier, pose = len(self.joints) - 1, j.offset
            self.link_names.append(j.child)
            self.link_body.append(carrier)
            self.link_pose.append(pose)
            todo += [(c, carrier, pose) for c in reversed(children.get(j.child, []))]
        self.links = [bodies[name] for name in self.link_names]

    def inertias(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of every moving body in its joint frame: mass, centre of mass, inertia about that centre."""
        nb, owner = len(self.joints), np.array(self.link_body, int)
        mass, moment, inertia = np.zeros(nb), np.zeros((nb, 3)), np.zeros((nb, 3, 3))
        carried = np.flatnonzero(owner >= 0)
        if not len(carried):
            return mass, moment, inertia
        owner, links = owner[carried], [self.links[i] for i in carried]
        poses = [self.link_pose[i] for i in carried]
        R, p = np.array([X.R for X in poses]), np.array([X.p for X in poses])
        m = np.array([link.mass for link in links], float)
        c = (R @ np.array([link.com for link in links], float)[..., None])[..., 0] + p
        np.add.at(mass, owner, m)
        np.add.at(moment, owner, m[:, None] * c)
        com = moment / np.where(mass > 0.0, mass, 1.0)[:, None]
        d = c - com[owner]  # about the common centre at once: no difference of large numbers
        away = np.sum(d * d, 1)[:, None, None] * np.eye(3) - d[:, :, None] * d[:, None, :]
        turned = R @ np.array([link.inertia for link in links], float) @ R.transpose(0, 2, 1)
        np.add.at(inertia, owner, turned + m[:, None, None] * away)
        return mass, com, inertia


def per_dof(joint: Joint, key: str) -> np.ndarray:
    """A joint's parameter as one number per degree of freedom."""
    nv = JOINT_SIZES[joint.type][1]
    return np.broadcast_to(np.asarray(getattr(joint, key), float).reshape(-1), (nv,)).astype(float)


def unit(axis) -> np.ndarray:
    a = np.asarray(axis, float)
    n = np.linalg.norm(a)
    return a / n if n > 0 else np.array([0.0, 0.0, 1.0])


def second_axis(joint: Joint) -> np.ndarray:
    """axis2 as given; for planar joints made normal to the axis; a perpendicular where absent."""
    a = unit(joint.axis)
    if joint.axis2 is not None:
        b = unit(joint.axis2)
        if joint.type != "planar":
            return b
    else:
        b = np.array([1.0, 0.0, 0.0])
        if abs(a @ b) > 1 - 1e-6:
            b = np.array([0.0, 1.0, 0.0])
    b = b - (a @ b) * a
    return unit(b)


def columns(joint: Joint, before: Pose, after: Pose) -> np.ndarray:
    """What the joint's freedoms do, (6, nv), angular first, about the origin of the poses.

    `before` is the joint frame without and `after` with the joint's own motion. Columns of spherical, free
    and planar joints are those of the moved frame, which spans the same motions.
    """
    first = before if joint.type == "universal" else after
    a, b = first.R @ unit(joint.axis), after.R @ second_axis(joint)
    turn = lambda s: np.concatenate([s, np.cross(after.p, s)])  # noqa: E731
    slide = lambda s: np.concatenate([np.zeros(3), s])  # noqa: E731
    t = joint.type
    if t in ("revolute", "continuous"):
        cols = [turn(a)]
    elif t == "prismatic":
        cols = [slide(a)]
    elif t == "screw":
        cols = [turn(a) + joint.pitch * slide(a)]
    elif t == "cylindrical":
        cols = [turn(a), slide(a)]
    elif t == "universal":
        cols = [turn(a), turn(b)]
    elif t == "planar":
        cols = [slide(b), slide(np.cross(a, b)), turn(a)]
    else:
        cols = [turn(e) for e in after.R.T] + ([slide(e) for e in after.R.T] if t == "free" else [])
    return np.stack(cols, 1)


def joint_pose(joint: Joint, q: np.ndarray) -> Pose:
    """Placement of a joint's moving side in its fixed side at coordinates q."""
    t, a = joint.type, unit(joint.axis)
    b = second_axis(joint)
    if t == "free":
        return Pose(matrix_from_quaternion(q[3:]), q[:3])
    if t == "spherical":
        return Pose(matrix_from_quaternion(q))
    if t == "prismatic":
        return Pose(p=q[0] * a)
    if t == "planar":
        return Pose(_turn(a, q[2]), q[0] * b + q[1] * np.cross(a, b))
    if t == "universal":
        return Pose(_turn(a, q[0]) @ _turn(b, q[1]))
    shift = {"screw": joint.pitch * q[0], "cylindrical": q[-1]}.get(t, 0.0)
    return Pose(_turn(a, q[0]), shift * a)


def _turn(axis: np.ndarray, angle: float) -> np.ndarray:
    return matrix_from_quaternion([np.cos(angle / 2), *(np.sin(angle / 2) * axis)])
