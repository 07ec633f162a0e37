"""A System cut at its joints: free bodies, and the joints as rows of constraints ([LOOPS] IV)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, combine
from jaxrbd.constraints.kinds.frames import Frames as Rows
from jaxrbd.constraints.kinds.frames import between_frames
from jaxrbd.constraints.kinds.of_model import of_model
from jaxrbd.constraints.kinds.placing import Options, Place
from jaxrbd.errors import ArgumentError, warn
from jaxrbd.joints import TYPES
from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.joints.rotations import quaternion_of
from jaxrbd.maximal.geometry import (
    HELD,
    Frames,
    align,
    apply,
    axes_of,
    check_type,
    columns,
    coordinates,
    dual_columns,
    frames,
    links,
    placed,
    vee,
)
from jaxrbd.maximal.rows import couplings, crosses, threads
from jaxrbd.model.compile import build
from jaxrbd.model.describe import describe
from jaxrbd.model.description import WORLD, Description, Joint, Pose
from jaxrbd.model.system import System, Topology, check_system, pytree
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.frames import frame_poses
from jaxrbd.tree.manifold import integrate
from jaxrbd.typing import Array, ArrayLike


@pytree
class Maximal:
    """A mechanism in maximal coordinates; `maximal` makes it.

    `system` has a free joint per body, in the order of the original's bodies, so that Q is (position,
    quaternion) and V (angular, linear velocity in the body's axes) of one body after the other.
    `constraints` are the joints, then the loops and couplings of the model. `origin` is the System as it was.
    """

    system: System
    constraints: Constraints | None
    origin: System

    def to_maximal(self, q: ArrayLike, v: ArrayLike | None = None) -> tuple[Array, Array]:
        """(Q, V) of every body from the coordinates of the joints."""
        sys = self.origin
        q, v = arguments(sys, q=q, v=jnp.zeros(sys.nv, sys.dtype) if v is None else v)
        own = np.array(sys.topology.body_frames)
        poses = lambda t: [x[own] for x in frame_poses(sys, integrate(sys, q, t * v))]  # noqa: E731
        zero, one = jnp.zeros((), sys.dtype), jnp.ones((), sys.dtype)
        (R, p), (dR, dp) = jax.jvp(poses, (zero,), (one,))
        quaternion = quaternion_of(jnp.moveaxis(R, 0, -1), 0).T
        V = jnp.concatenate([vee(R, dR), apply(jnp.swapaxes(R, 1, 2), dp)], 1)
        return jnp.concatenate([p, quaternion], 1).reshape(-1), V.reshape(-1)

    def from_maximal(
        self, Q: ArrayLike, V: ArrayLike | None = None, near: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        """(q, v) of the joints, whatever the error of their rows. Angles are in (-pi, pi], or by whole turns
        as close as can be to those of `near`, a q of before.
        """
        sys = self.origin
        Q, V = arguments(self.system, q=Q, v=jnp.zeros(self.system.nv, sys.dtype) if V is None else V)
        (R, p), at = _joints(sys, Q)
        relative = _relative_twists(sys, at, R, p, V)
        turn, shift = at.relative()
        q, v = jnp.zeros(sys.nq, sys.dtype), jnp.zeros(sys.nv, sys.dtype)
        for group in groups(sys.topology):
            i = group.bodies
            axes = axes_of(sys, i)
            q = q.at[group.q].set(coordinates(group.kind, turn[i], shift[i], axes))
            dual = dual_columns(columns(group.kind, at.before[i], at.after[i], axes))
            v = v.at[group.v].set(jnp.einsum("nsk,ns->nk", dual, relative[i]))
        if near is not None:
            (near,) = arguments(sys, q=near)
            whole = 2 * np.pi * jnp.round((near - q) / (2 * np.pi))
            q = q + jnp.where(_angles(sys.topology), whole, 0)
        return q, v

    def forces(self, Q: ArrayLike, tau: ArrayLike) -> Array:
        """Forces at the joints as forces on the bodies: tau (nv,) of the original -> (system.nv,).

        They do the same work. With the forces of springs, dampers and actuators of the original:

        q, v = m.from_maximal(Q, V)
        m.forces(Q, rbd.passive_force(m.origin, q, v) + rbd.actuator_force(m.origin, q, v, u))
        """
        sys = self.origin
        (tau,), (Q,) = arguments(sys, tau=tau), arguments(self.system, q=Q)
        (R, p), at = _joints(sys, Q)
        wrench = jnp.zeros((sys.nb, 6), sys.dtype)  # on the child at the joint, in world axes
        for group in groups(sys.topology):
            i = group.bodies
            dual = dual_columns(columns(group.kind, at.before[i], at.after[i], axes_of(sys, i)))
            wrench = wrench.at[i].set(jnp.einsum("nsk,nk->ns", dual, tau[group.v]))
        parents = np.array(sys.parents)
        inner = np.flatnonzero(parents >= 0)
        on_child = _along_twists(R[:-1], p[:-1], at.point, wrench)
        on_parent = _along_twists(R[parents[inner]], p[parents[inner]], at.point[inner], -wrench[inner])
        return on_child.at[parents[inner]].add(on_parent).reshape(-1)


def maximal(sys: System) -> Maximal:
    """The same mechanism in maximal coordinates: six numbers of velocity per body, joints as constraints.

    Every joint type of the library, loops and couplings of the model included; couplings hold velocities, so
    that no whole turn is lost, and what is off stays off. Give `constraints=m.constraints` to
    `constrained_dynamics`, `step` with HardContact, or `delassus_matrix`; positions come back from
    `m.from_maximal`. Joint limits, dry friction and armature are not carried over (a warning names them);
    springs, dampers and actuators are, by `m.forces`. Call it outside of jit; derivatives by placements of
    joints do not reach the rows, those by masses, Q and V do. [LOOPS] IV.
    """
    t = check_system(sys, "maximal").topology
    if t.clusters:
        raise ArgumentError(
            f"maximal: {sys.name!r} has loops inside of its state. Pass sys.tree, whose loops become rows."
        )
    for name, kind in zip(t.joint_names, t.joint_types):
        check_type(name, kind)
    _name_losses(sys)
    free = build(_cut(describe(sys), sys), dtype=sys.dtype)
    if free.body_names != sys.body_names:
        raise ArgumentError(
            f"maximal: the bodies of {sys.name!r} changed their order, which is a defect here."
        )
    q0 = jax.jit(lambda q: Maximal(free, None, sys).to_maximal(q)[0])(sys.q0)
    free = free.replace(q0=q0)
    parts = [_joint_rows(sys, free, i) for i in range(sys.nb) if HELD[t.joint_types[i]]]
    parts += threads(sys, free) + crosses(sys, free)
    if any(kind != "coupling" and on for kind, on in zip(t.loop_kinds, t.loop_active)):
        parts.append(of_model(free))
    parts += couplings(sys, free)
    return Maximal(free, combine(*parts) if parts else None, sys)


def _cut(d: Description, sys: System) -> Description:
    """Every moving joint becomes a free one on the world; loops between bodies stay."""
    t = sys.topology
    moving = set(t.joint_names)
    free = lambda j: Joint(j.name, "free", WORLD, j.child)  # noqa: E731
    joints = tuple(free(j) if j.name in moving else j for j in d.joints)
    loops = tuple(x for x in d.loops if x.kind != "coupling")
    return replace(d, joints=joints, loops=loops, linear=(), actuators=(), keyframes=())


def _name_losses(sys: System) -> None:
    lost = []
    inner = np.array([t != "free" for t in sys.joint_types])
    dofs = np.repeat(inner, np.diff(sys.topology.v_starts))
    host = lambda x: np.asarray(jax.device_get(x))[dofs]  # noqa: E731
    if (np.isfinite(host(sys.lower)) | np.isfinite(host(sys.upper))).any():
        lost.append("joint limits")
    if (host(sys.friction) > 0).any():
        lost.append("dry friction")
    if (host(sys.armature) > 0).any():
        lost.append("armature")
    if lost:
        warn(f"maximal: {', '.join(lost)} of {sys.name!r} are not carried over to maximal coordinates.")


def _joint_rows(sys: System, free: System, i: int) -> Constraints:
    """The directions that joint i holds, between the frames of two links (or of one and the world)."""
    t = sys.topology
    kind, parent, name = t.joint_types[i], t.parents[i], t.joint_names[i]
    axis, axis2 = np.asarray(sys.axis[i], float), np.asarray(sys.axis2[i], float)
    turn = align(axis, axis2 if kind == "planar" else None)
    joint = _pose(sys.joint_quaternion[i], sys.joint_position[i])
    behind = _link_in_body(sys, i).inverse() @ Pose(turn)
    front = joint @ Pose(turn) if parent < 0 else _link_in_body(sys, parent).inverse() @ joint @ Pose(turn)
    to = None if parent < 0 else t.body_names[parent]
    place = Place((behind.R, behind.p), (front.R, front.p))
    return between_frames(free, Rows, t.body_names[i], to, HELD[kind], place, Options(name=name))


def _pose(quaternion, position) -> Pose:
    return Pose(matrix_from_quaternion(np.asarray(quaternion, float)), np.asarray(position, float))


def _link_in_body(sys: System, body: int) -> Pose:
    """Where the link that carries a body's name sits in the body."""
    frame = sys.topology.body_frames[body]
    return _pose(sys.frame_quaternion[frame], sys.frame_position[frame])


# --- where joints are ------------------------------------------------------------------------------------


class Group(NamedTuple):
    """Joints of one type: their bodies, and where their numbers stand in q and v."""

    kind: str
    bodies: np.ndarray
    q: np.ndarray  # (n, nq)
    v: np.ndarray  # (n, nv)


@lru_cache(maxsize=64)
def groups(t: Topology) -> tuple[Group, ...]:
    found = []
    for kind in dict.fromkeys(t.joint_types):
        bodies = np.array([i for i, other in enumerate(t.joint_types) if other == kind])
        span = lambda starts: np.stack([np.arange(starts[i], starts[i + 1]) for i in bodies])  # noqa: E731, B023
        found.append(Group(kind, bodies, span(t.q_starts), span(t.v_starts)))
    return tuple(found)


def _angles(t: Topology) -> np.ndarray:
    """(nq,) which coordinates are angles."""
    mask = np.zeros(t.nq, bool)
    for group in groups(t):
        if not TYPES[group.kind].on_manifold:
            mask[group.q] = TYPES[group.kind].angles
    return mask


def _joints(sys: System, Q: Array) -> tuple[tuple[Array, Array], Frames]:
    """Poses of the bodies' links and the world, and the frames of all joints."""
    every = np.arange(sys.nb)
    R, p = links(Q)
    return (R, p), frames(placed(sys, every), R, p, every, np.array(sys.parents))


def _relative_twists(sys: System, at: Frames, R: Array, p: Array, V: Array) -> Array:
    """(nb, 6) of every body in its parent, at the joint, in world axes."""
    V = jnp.concatenate([V.reshape(-1, 6), jnp.zeros((1, 6), V.dtype)])  # the world stands still
    angular, linear = apply(R, V[:, :3]), apply(R, V[:, 3:])

    def at_joint(i):
        return jnp.concatenate([angular[i], linear[i] + jnp.cross(angular[i], at.point - p[i])], 1)

    return at_joint(np.arange(sys.nb)) - at_joint(np.array(sys.parents))


def _along_twists(R: Array, p: Array, point: Array, wrench: Array) -> Array:
    """Wrenches in world axes at points, (n, 6), as forces along V of bodies at (R, p)."""
    moment = wrench[:, :3] + jnp.cross(point - p, wrench[:, 3:])
    turned = jnp.swapaxes(R, 1, 2)
    return jnp.concatenate([apply(turned, moment), apply(turned, wrench[:, 3:])], 1)
