"""What a joint leaves free between two poses: its coordinates, its columns, and the directions it holds.

For n joints of one type at once. `turn` (n, 3, 3) and `shift` (n, 3) are the pose behind the joint in the one
in front of it; columns are twists, angular first, at the point behind the joint.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.joints.rotations import quaternion_of
from jaxrbd.model.system import System
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

    joint_quaternion: Array  # (n, 4)
    joint_position: Array  # (n, 3)
    child_quaternion: Array
    child_position: Array
    parent_quaternion: Array
    parent_position: Array


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


def placed(sys: System, bodies: np.ndarray) -> Placed:
    """What `frames` reads of a System. q of a free joint on the ground is the pose in the world."""
    t = sys.topology
    parents = np.array(t.parents)[bodies]
    still = jnp.array([1.0, 0, 0, 0], sys.dtype)
    root = ((np.array(t.joint_types)[bodies] == "free") & (parents < 0))[:, None]
    own, carrier = np.array(t.body_frames)[bodies], np.array(t.body_frames)[parents]
    ground = (parents < 0)[:, None]
    return Placed(
        jnp.where(root, still, sys.joint_quaternion[bodies]),
        jnp.where(root, 0, sys.joint_position[bodies]),
        sys.frame_quaternion[own],
        sys.frame_position[own],
        jnp.where(ground, still, sys.frame_quaternion[carrier]),
        jnp.where(ground, 0, sys.frame_position[carrier]),
    )


def links(Q: Array) -> tuple[Array, Array]:
    """Poses of the bodies' links, (nb + 1, 3, 3) and (nb + 1, 3); the last one, number -1, is the world."""
    poses = jnp.concatenate([Q.reshape(-1, 7), jnp.array([[0.0, 0, 0, 1, 0, 0, 0]], Q.dtype)])
    return matrices(poses[:, 3:]), poses[:, :3]


def frames(x: Placed, R: Array, p: Array, children: np.ndarray, parents: np.ndarray) -> Frames:
    """Joints between bodies whose `links` are at (R, p)."""

    def body(i, quaternion, position):
        turned = R[i] @ jnp.swapaxes(matrices(quaternion), 1, 2)
        return turned, p[i] - apply(turned, position)

    after, point = body(children, x.child_quaternion, x.child_position)
    R_p, p_p = body(parents, x.parent_quaternion, x.parent_position)
    return Frames(R_p @ matrices(x.joint_quaternion), p_p + apply(R_p, x.joint_position), after, point)


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


def align(axis: np.ndarray, axis2: np.ndarray | None) -> np.ndarray:
    """A rotation whose last column is the axis, and whose first is axis2 where there is one; (3, 3)."""
    if axis2 is None:
        unit = np.eye(3)[np.argmin(np.abs(axis))]
        axis2 = np.cross(np.cross(axis, unit), axis)
        axis2 = axis2 / np.linalg.norm(axis2)
    return np.stack([axis2, np.cross(axis, axis2), axis], 1)


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
