"""The moving bodies of a Description: links on fixed joints merged, parents before children."""

from __future__ import annotations

import numpy as np

from jaxrbd.joints import TYPES, Geometry
from jaxrbd.model.description import WORLD, Description, Joint, Pose


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
    nv = TYPES[joint.type].nv
    return np.broadcast_to(np.asarray(getattr(joint, key), float).reshape(-1), (nv,)).astype(float)


def unit(axis) -> np.ndarray:
    a = np.asarray(axis, float)
    n = np.linalg.norm(a)
    return a / n if n > 0 else np.array([0.0, 0.0, 1.0])


def second_axis(joint: Joint) -> np.ndarray:
    """axis2 as given, made normal to the axis where the type wants it; a perpendicular where absent."""
    a = unit(joint.axis)
    if joint.axis2 is not None:
        b = unit(joint.axis2)
        if TYPES[joint.type].axis2 != "normal":
            return b
    else:
        b = np.array([1.0, 0.0, 0.0])
        if abs(a @ b) > 1 - 1e-6:
            b = np.array([0.0, 1.0, 0.0])
    b = b - (a @ b) * a
    return unit(b)


def joint_motion(joint: Joint, q: np.ndarray, before: Pose | None = None) -> tuple[Pose, np.ndarray]:
    """Where the moving side of a joint stands whose fixed side is at `before`; and its columns, (6, nv).

    Columns are twists, angular first, about the origin and in the axes of the poses.
    """
    X = Pose() if before is None else before
    geometry = Geometry(unit(joint.axis), second_axis(joint), joint.pitch)
    R, p, S = TYPES[joint.type].motion(q, geometry, X.R, X.p)
    return Pose(R, p), S


def joint_pose(joint: Joint, q: np.ndarray) -> Pose:
    """Placement of a joint's moving side in its fixed side at coordinates q."""
    return joint_motion(joint, q)[0]
