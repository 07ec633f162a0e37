"""What a joint leaves free between two poses: its coordinates, its columns, and the directions it holds.

For n joints of one type at once. `turn` (n, 3, 3) and `shift` (n, 3) are the pose behind the joint in the one
in front of it; columns are twists, angular first, at the point behind the joint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.joints.rotations import quaternion_of
from jaxrbd.model.system import System, Topology
from jaxrbd.tree.spatial import rotation_from_quaternion
from jaxrbd.typing import Array

# of `constraints.hold`, with z along the axis (planar: its normal): turns about x, y, z, then shifts
HELD = {
    "revolute": (0, 1, 3, 4, 5),
    "continuous": (0, 1, 3, 4, 5),
    "prismatic": (0, 1, 2, 3, 4),
    "screw": (0, 1, 3, 4),  # and the thread, a row of its own
    "cylindrical": (0, 1, 3, 4),
    "universal": (3, 4, 5),  # and the cross, a row of its own
    "planar": (0, 1, 5),
    "spherical": (3, 4, 5),
    "free": (),
}


class Axes(NamedTuple):
    """Of n joints: two unit vectors (n, 3) in the joint's frame, and the pitch (n,) of screws."""

    axis: Array
    axis2: Array
    pitch: Array


class Placed(NamedTuple):
    """Of n joints: their placement in the parent body, and those of the links that bodies are named after."""

    joint_turn: Array  # (n, 3, 3)
    joint_position: Array  # (n, 3)
    child_turn: Array
    child_position: Array
    parent_turn: Array
    parent_position: Array

    def behind(self) -> tuple[Array, Array]:
        """The frames behind the joints in the links of their children."""
        return inverse(self.child_turn, self.child_position)

    def front(self) -> tuple[Array, Array]:
        """The frames in front of the joints in the links of their parents, or in the world."""
        turn, position = inverse(self.parent_turn, self.parent_position)
        return compose(turn, position, self.joint_turn, self.joint_position)


@dataclass(frozen=True)
class Layout:
    """Between which bodies the joints of the original are, in the order of Q; -1 is the world.

    `links`: of every joint, the link of the original that it moves. It is the child's own one, but for joints
    that close a graph: the original has a stand-in for their child, and this is whom it stands in for.
    """

    children: tuple[int, ...]
    parents: tuple[int, ...]
    links: tuple[int, ...]

    def body_links(self, t: Topology) -> np.ndarray:
        """The links that bodies are named after, in the order of Q, as frames of the original."""
        return np.array([own for own, link in zip(t.body_frames, self.links) if own == link], int)


class Frames(NamedTuple):
    """Of n joints in the world: the frame in front, (n, 3, 3) and (n, 3), and the one behind."""

    before: Array
    front: Array
    after: Array
    point: Array

    def relative(self) -> tuple[Array, Array]:
        """The pose behind the joint in the one in front of it."""
        back = jnp.swapaxes(self.before, 1, 2)
        return back @ self.after, apply(back, self.point - self.front)


def placed(sys: System, layout: Layout, joints: np.ndarray) -> Placed:
    """What `frames` reads of the original. q of a free joint on the ground is the pose in the world."""
    t = sys.topology
    parents = np.array(layout.parents, int)[joints]
    root = (np.array(t.joint_types)[joints] == "free") & (np.array(t.parents)[joints] < 0)
    own = np.array(t.body_frames)[joints]
    named = layout.body_links(t)

    def pose(turn: Array, position: Array, still: np.ndarray) -> tuple[Array, Array]:
        eye = jnp.eye(3, dtype=sys.dtype)
        return jnp.where(still[:, None, None], eye, matrices(turn)), jnp.where(still[:, None], 0, position)

    def link(frames: np.ndarray, still: np.ndarray) -> tuple[Array, Array]:
        return pose(sys.frame_quaternion[frames], sys.frame_position[frames], still)

    joint = pose(sys.joint_quaternion[joints], sys.joint_position[joints], root)
    moving = np.zeros(len(joints), bool)
    child = link(own, moving)
    stands_for = np.array(layout.links, int)[joints]
    if (stands_for != own).any():  # by way of whom the stand-in stands for
        bodies = named[np.array(layout.children, int)[joints]]
        own_link = compose(*inverse(*link(stands_for, moving)), *link(bodies, moving))
        child = compose(*child, *own_link)
    return Placed(*joint, *child, *link(named[parents], parents < 0))


def links(Q: Array) -> tuple[Array, Array]:
    """Poses of the bodies' links, (nb + 1, 3, 3) and (nb + 1, 3); the last one, number -1, is the world."""
    poses = jnp.concatenate([Q.reshape(-1, 7), jnp.array([[0.0, 0, 0, 1, 0, 0, 0]], Q.dtype)])
    return matrices(poses[:, 3:]), poses[:, :3]


def frames(x: Placed, R: Array, p: Array, children: np.ndarray, parents: np.ndarray) -> Frames:
    """Joints between bodies whose `links` are at (R, p)."""

    after, point = compose(R[children], p[children], *x.behind())
    before, front = compose(R[parents], p[parents], *x.front())
    return Frames(before, front, after, point)


def relative_twists(
    at: Frames, R: Array, p: Array, V: Array, children: np.ndarray, parents: np.ndarray
) -> Array:
    """(n, 6) of every child in its parent, at the joint, in world axes."""
    V = jnp.concatenate([V.reshape(-1, 6), jnp.zeros((1, 6), V.dtype)])  # the world stands still
    angular, linear = apply(R, V[:, :3]), apply(R, V[:, 3:])

    def at_joint(i):
        return jnp.concatenate([angular[i], linear[i] + jnp.cross(angular[i], at.point - p[i])], 1)

    return at_joint(children) - at_joint(parents)


def compose(R: Array, p: Array, R2: Array, p2: Array) -> tuple[Array, Array]:
    """Poses one after the other, n of each."""
    return R @ R2, p + apply(R, p2)


def inverse(R: Array, p: Array) -> tuple[Array, Array]:
    back = jnp.swapaxes(R, 1, 2)
    return back, -apply(back, p)


def axes_of(sys: System, bodies: np.ndarray) -> Axes:
    return Axes(sys.axis[bodies], sys.axis2[bodies], sys.pitch[bodies])


def check_type(name: str, kind: str) -> None:
    if kind not in HELD:
        raise ArgumentError(
            f"maximal: joint {name!r} is of type {kind!r}, whose rows in maximal coordinates are not known. "
            f"Those of the library are: {', '.join(HELD)}."
        )


def coordinates(kind: str, turn: Array, shift: Array, axes: Axes) -> Array:
    """q of every joint, (n, nq); angles in (-pi, pi]."""
    dot = lambda a, b: jnp.sum(a * b, -1)  # noqa: E731
    if kind in ("revolute", "continuous", "screw"):
        return angle_about(axes.axis, turn)[:, None]
    if kind == "prismatic":
        return dot(axes.axis, shift)[:, None]
    if kind == "cylindrical":
        return jnp.stack([angle_about(axes.axis, turn), dot(axes.axis, shift)], 1)
    if kind == "universal":  # turn = Rot(axis, q1) Rot(axis2, q2): what each leaves of the other's axis
        first = angle_between(axes.axis, axes.axis2, apply(turn, axes.axis2))
        second = angle_between(axes.axis2, apply(jnp.swapaxes(turn, 1, 2), axes.axis), axes.axis)
        return jnp.stack([first, second], 1)
    if kind == "planar":
        normal = jnp.cross(axes.axis, axes.axis2)
        return jnp.stack([dot(axes.axis2, shift), dot(normal, shift), angle_about(axes.axis, turn)], 1)
    quaternion = quaternion_of(jnp.moveaxis(turn, 0, -1), 0).T
    return quaternion if kind == "spherical" else jnp.concatenate([shift, quaternion], 1)


def columns(kind: str, before: Array, after: Array, axes: Axes) -> Array:
    """(n, 6, nv) in world axes; `before` and `after` (n, 3, 3) turn the joint's two frames to the world."""
    a, b = apply(before, axes.axis), apply(before, axes.axis2)
    angular = lambda x: jnp.concatenate([x, 0 * x], 1)  # noqa: E731
    linear = lambda x: jnp.concatenate([0 * x, x], 1)  # noqa: E731
    if kind in ("revolute", "continuous"):
        found = [angular(a)]
    elif kind == "prismatic":
        found = [linear(a)]
    elif kind == "screw":
        found = [jnp.concatenate([a, axes.pitch[:, None] * a], 1)]
    elif kind == "cylindrical":
        found = [angular(a), linear(a)]
    elif kind == "universal":
        found = [angular(a), angular(apply(after, axes.axis2))]
    elif kind == "planar":
        found = [linear(b), linear(jnp.cross(a, b)), angular(a)]
    else:  # the child's own axes
        found = [angular(after[:, :, k]) for k in range(3)]
        found += [linear(after[:, :, k]) for k in range(3)] if kind == "free" else []
    return jnp.stack(found, 2)


def dual_columns(S: Array) -> Array:
    """S (Sᵀ S)^-1, (n, 6, nv): wrenches that do unit work on one column and none on the others."""
    return S @ jnp.linalg.inv(jnp.swapaxes(S, 1, 2) @ S)


def align(axis: Array, axis2: Array | None = None) -> Array:
    """Rotations whose last column is the axis, and whose first is axis2 where there is one; (n, 3, 3)."""
    if axis2 is None:
        unit = jnp.eye(3, dtype=axis.dtype)[jnp.argmin(jnp.abs(axis), 1)]
        axis2 = jnp.cross(jnp.cross(axis, unit), axis)
        axis2 = axis2 / jnp.sqrt(jnp.sum(axis2**2, 1, keepdims=True))
    return jnp.stack([axis2, jnp.cross(axis, axis2), axis], 2)


def angle_about(axis: Array, turn: Array) -> Array:
    """Of rotations (n, 3, 3) about known axes (n, 3)."""
    skew = jnp.stack(
        [turn[:, 2, 1] - turn[:, 1, 2], turn[:, 0, 2] - turn[:, 2, 0], turn[:, 1, 0] - turn[:, 0, 1]], 1
    )
    return jnp.arctan2(jnp.sum(axis * skew, 1), jnp.trace(turn, axis1=1, axis2=2) - 1)


def angle_between(axis: Array, x: Array, y: Array) -> Array:
    """The turn about the axis that takes x to y."""
    along = lambda z: z - axis * jnp.sum(axis * z, -1, keepdims=True)  # noqa: E731
    x, y = along(x), along(y)
    return jnp.arctan2(jnp.sum(axis * jnp.cross(x, y), -1), jnp.sum(x * y, -1))


def apply(R: Array, x: Array) -> Array:
    """R x, (n, 3, 3) and (n, 3)."""
    return jnp.sum(R * x[:, None, :], -1)


def matrices(quaternions: Array) -> Array:
    """(n, 3, 3) of quaternions (n, 4) of any length."""
    return jnp.stack([jnp.stack(row, -1) for row in rotation_from_quaternion(*quaternions.T)], 1)


def vee(R: Array, dR: Array) -> Array:
    """Body-frame angular velocity (n, 3) of rotations that change by dR."""
    W = jnp.swapaxes(R, 1, 2) @ dR
    return jnp.stack([W[:, 2, 1] - W[:, 1, 2], W[:, 0, 2] - W[:, 2, 0], W[:, 1, 0] - W[:, 0, 1]], 1) / 2
