"""A System cut at its joints: free bodies, and the joints as rows of constraints ([LOOPS] IV)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints
from jaxrbd.errors import ArgumentError
from jaxrbd.forces import check_controls
from jaxrbd.joints import TYPES
from jaxrbd.joints.rotations import quaternion_of
from jaxrbd.maximal.geometry import (
    Frames,
    Layout,
    apply,
    axes_of,
    check_type,
    columns,
    coordinates,
    dual_columns,
    frames,
    links,
    placed,
    relative_twists,
    vee,
)
from jaxrbd.maximal.graph import spread
from jaxrbd.maximal.joint_rows import mechanism_rows
from jaxrbd.maximal.laws import JointLaws, Slots, slots_of
from jaxrbd.maximal.rows import Original
from jaxrbd.model.builder import Builder
from jaxrbd.model.compile import build
from jaxrbd.model.describe import describe
from jaxrbd.model.description import WORLD, Description, Joint
from jaxrbd.model.system import System, Topology, check_system, pytree, static
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.frames import frame_poses
from jaxrbd.tree.manifold import integrate
from jaxrbd.typing import Array, ArrayLike, DTypeLike


@pytree
class Maximal:
    """A mechanism in maximal coordinates; `maximal` makes it.

    `system` has a free joint per body, in the order of the original's bodies, so that Q is (position,
    quaternion) and V (angular, linear velocity in the body's axes) of one body after the other.
    `constraints` are the joints, then the loops and couplings of the model. `origin` is the System as it was;
    of a graph, a tree with a stand-in of unit mass for the child of every joint that closes it, which says
    what q and v are, but not how they move.
    """

    system: System
    constraints: Constraints | None
    origin: System
    layout: Layout = static()
    slots: Slots = static()

    def to_maximal(self, q: ArrayLike, v: ArrayLike | None = None) -> tuple[Array, Array]:
        """(Q, V) of every body from the coordinates of the joints."""
        sys = self.origin
        q, v = arguments(sys, q=q, v=jnp.zeros(sys.nv, sys.dtype) if v is None else v)
        own = self.layout.body_links(sys.topology)
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
        (R, p), at, children, parents = self._frames(Q)
        relative = relative_twists(at, R, p, V, children, parents)
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
        (R, p), at, children, parents = self._frames(Q)
        wrench = jnp.zeros((sys.nb, 6), sys.dtype)  # on the child at the joint, in world axes
        for group in groups(sys.topology):
            i = group.bodies
            dual = dual_columns(columns(group.kind, at.before[i], at.after[i], axes_of(sys, i)))
            wrench = wrench.at[i].set(jnp.einsum("nsk,nk->ns", dual, tau[group.v]))
        on_bodies = jnp.zeros((self.system.nb + 1, 6), sys.dtype)  # the last one is the world
        for side, sign in ((children, 1), (parents, -1)):
            on_bodies = on_bodies.at[side].add(_along_twists(R[side], p[side], at.point, sign * wrench))
        return on_bodies[:-1].reshape(-1)

    def _frames(self, Q: Array) -> tuple[tuple[Array, Array], Frames, np.ndarray, np.ndarray]:
        """Poses of the bodies' links and the world, the frames of all joints, and between whom these are."""
        children, parents = (np.array(x, int) for x in (self.layout.children, self.layout.parents))
        R, p = links(Q)
        at = placed(self.origin, self.layout, np.arange(self.origin.nb))
        return (R, p), frames(at, R, p, children, parents), children, parents

    def original(self) -> Original:
        """What functions of rows read."""
        return Original(self.origin, self.system, self.layout)

    def at(self, sys: System) -> Maximal:
        """The same mechanism with other numbers: masses, placements, axes, limits, all leaves of `sys`, which
        is `origin` with some of them exchanged. A pure function: derivatives reach them all through it. Rows
        are where they were: a joint that had no limit, friction or armature gets none.
        """
        check_system(sys, "Maximal.at")
        if sys.topology != self.origin.topology:
            raise ArgumentError(
                f"Maximal.at: {sys.name!r} is no {self.origin.name!r} with other numbers. Make it by "
                "m.origin.replace(...)."
            )
        free = _with_numbers(self.system, sys)
        return replace(
            self, system=free, origin=sys, constraints=mechanism_rows(Original(sys, free, self.layout))
        )

    def joints(
        self,
        u: ArrayLike | None = None,
        *,
        limits: bool = True,
        dry_friction: bool = True,
        implicit: bool = True,
    ) -> JointLaws:
        """What acts along the freedoms of the joints, for `HardContact(joints=...)`: limits, dry friction,
        armature and dampers as rows of the dual problem, springs and actuators under controls u.

        Servos (actuators with a gain on position or velocity) are rows, too, implicit in what they measure
        and bounded by their force; `implicit=False` leaves them forces at the start of the step.
        """
        controls = None if u is None else check_controls(self.origin, u)
        return JointLaws(self, controls, limits, dry_friction, implicit)


def maximal(model: System | Builder | Description, *, dtype: DTypeLike | None = None) -> Maximal:
    """The same mechanism in maximal coordinates: six numbers of velocity per body, joints as constraints.

    Every joint type of the library, loops and couplings of the model included; couplings hold velocities, so
    that no whole turn is lost, and what is off stays off. Give `constraints=m.constraints` to
    `constrained_dynamics`, `step` with HardContact, or `delassus_matrix`; positions come back from
    `m.from_maximal`. What else joints do goes into a step by `HardContact(joints=m.joints(u))`.

    A `Builder(graph=True)`, or a Description, may have any graph of joints: several on one body, rings, no
    root. What no joint holds to the world is free. Call it outside of jit; inside, `m.at(sys)` makes it anew
    with other numbers. [LOOPS] IV.
    """
    stand_ins: dict[str, str] = {}
    if isinstance(model, System):
        sys = model
        if dtype is not None:
            sys = sys.astype(dtype)
    else:
        d, stand_ins = spread(model.description() if isinstance(model, Builder) else model)
        sys = build(d, dtype=dtype)
    t = check_system(sys, "maximal").topology
    if t.clusters:
        raise ArgumentError(
            f"maximal: {sys.name!r} has loops inside of its state. Pass sys.tree, whose loops become rows."
        )
    for name, kind in zip(t.joint_names, t.joint_types):
        check_type(name, kind)
    free = build(_cut(describe(sys), sys, stand_ins), dtype=sys.dtype)
    made = Maximal(free, None, sys, _layout(sys, free, stand_ins), slots_of(sys))
    return _finished(made)


@jax.jit
def _finished(m: Maximal) -> Maximal:
    """With its rows, and the default pose of the original."""
    m = m.at(m.origin)
    return replace(m, system=m.system.replace(q0=m.to_maximal(m.origin.q0)[0]))


def _cut(d: Description, sys: System, stand_ins: dict[str, str]) -> Description:
    """Every moving joint becomes a free one on the world; loops between bodies stay."""
    moving = set(sys.topology.joint_names)
    free = lambda j: Joint(j.name, "free", WORLD, j.child)  # noqa: E731
    joints = tuple(free(j) if j.name in moving else j for j in d.joints if j.child not in stand_ins)
    bodies = tuple(b for b in d.bodies if b.name not in stand_ins)
    loops = tuple(x for x in d.loops if x.kind != "coupling")
    return replace(d, bodies=bodies, joints=joints, loops=loops, linear=(), actuators=(), keyframes=())


def _layout(sys: System, free: System, stand_ins: dict[str, str]) -> Layout:
    t = sys.topology
    if free.body_names != tuple(name for name in t.body_names if name not in stand_ins):
        raise ArgumentError(
            f"maximal: the bodies of {sys.name!r} changed their order, which is a defect here."
        )
    link = {name: i for i, name in enumerate(t.frame_names[: t.link_count])}
    links = tuple(link[stand_ins.get(name, name)] for name in t.body_names)
    number = {t.body_names.index(name): n for n, name in enumerate(free.body_names)} | {-1: -1}
    children = tuple(number[t.frame_bodies[i]] for i in links)
    return Layout(children, tuple(number[i] for i in t.parents), links)


def _with_numbers(free: System, sys: System) -> System:
    """The free bodies with masses, places of frames and loops, and gravity of the original, by name."""
    t, own = free.topology, sys.topology
    where = {name: i for i, name in enumerate(own.frame_names)}
    frames = np.array([where[name] for name in t.frame_names])
    links = frames[: t.link_count]
    loops = np.array([own.loop_names.index(name) for name in t.loop_names], int)
    return free.replace(
        mass=sys.mass[links],
        com=sys.com[links],
        inertia=sys.inertia[links],
        frame_position=sys.frame_position[frames],
        frame_quaternion=sys.frame_quaternion[frames],
        gravity=sys.gravity,
        loop_position=sys.loop_position[loops],
        loop_quaternion=sys.loop_quaternion[loops],
        loop_coefficients=sys.loop_coefficients[loops],
    )


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


def _along_twists(R: Array, p: Array, point: Array, wrench: Array) -> Array:
    """Wrenches in world axes at points, (n, 6), as forces along V of bodies at (R, p)."""
    moment = wrench[:, :3] + jnp.cross(point - p, wrench[:, 3:])
    turned = jnp.swapaxes(R, 1, 2)
    return jnp.concatenate([apply(turned, moment), apply(turned, wrench[:, 3:])], 1)
