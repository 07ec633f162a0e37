"""Rows of joints that are no direction of one body in another: threads, crosses, couplings.

Written as functions of the poses of the two or more bodies that they concern.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints
from jaxrbd.constraints.kinds.function import function, velocity_function
from jaxrbd.maximal.geometry import (
    Axes,
    Frames,
    Layout,
    Placed,
    angle_about,
    apply,
    axes_of,
    columns,
    coordinates,
    dual_columns,
    frames,
    links,
    placed,
    relative_twists,
)
from jaxrbd.model.system import System
from jaxrbd.tree.manifold import integrate
from jaxrbd.typing import Array


@dataclass(frozen=True)
class Between:
    """The pose behind a joint in the one in front of it, from poses of bodies: (1, 3, 3) and (1, 3)."""

    child: int  # bodies in the order of Q
    parent: int  # -1: the world
    kind: str

    def frames(self, Q: Array, x: Placed) -> Frames:
        R, p = links(Q)
        return frames(x, R, p, np.array([self.child]), np.array([self.parent]))

    def pose(self, Q: Array, x: Placed) -> tuple[Array, Array]:
        return self.frames(Q, x).relative()

    def coordinate(self, Q: Array, x: tuple[Placed, Axes]) -> Array:
        """The joint's one number."""
        return coordinates(self.kind, *self.pose(Q, x[0]), x[1])[0, 0]


@dataclass(frozen=True)
class Thread:
    """Shift along the axis less pitch times angle, whole turns left out."""

    at: Between

    def __call__(self, free: System, Q: Array, x: tuple[Placed, Axes]) -> Array:
        turn, shift = self.at.pose(Q, x[0])
        axis, pitch = x[1].axis, x[1].pitch[0]
        off = jnp.sum(shift * axis) - pitch * angle_about(axis, turn)[0]
        lead = 2 * np.pi * pitch
        safe = jnp.where(lead == 0, 1, lead)
        return off - jnp.where(lead == 0, 0, lead * jax.lax.stop_gradient(jnp.round(off / safe)))


@dataclass(frozen=True)
class Cross:
    """The angle between the two axes of a universal joint, by its cosine."""

    at: Between

    def __call__(self, free: System, Q: Array, x: tuple[Placed, Axes]) -> Array:
        turn, _ = self.at.pose(Q, x[0])
        a, b = x[1].axis, x[1].axis2
        return jnp.sum(a * apply(turn, b)) - jnp.sum(a * b)


@dataclass(frozen=True)
class Coupling(ABC):
    """Rates of joints under a relation f(q_1, q_2, ...) = 0 of their coordinates: df/dt."""

    joints: tuple[Between, ...]

    @abstractmethod
    def relation(self, q: Array, x: dict[str, Any]) -> Array:
        """f, one number."""

    def __call__(self, free: System, Q: Array, V: Array, x: dict[str, Any]) -> Array:
        def along(t):
            moved = integrate(free, Q, t * V)
            q = jnp.stack([j.coordinate(moved, y) for j, y in zip(self.joints, x["joints"])])
            return self.relation(q, x)

        zero = jnp.zeros((), Q.dtype)
        return jax.jvp(along, (zero,), (jnp.ones_like(zero),))[1]


@dataclass(frozen=True)
class Polynomial(Coupling):
    """q_1 less a polynomial of q_2; or less a constant where there is no second joint."""

    def relation(self, q: Array, x: dict[str, Any]) -> Array:
        if len(self.joints) == 1:
            return q[0]
        return q[0] - jnp.polyval(x["coefficients"][::-1], q[1])


@dataclass(frozen=True)
class Sum(Coupling):
    def relation(self, q: Array, x: dict[str, Any]) -> Array:
        return jnp.sum(x["coefficients"] * q)


@dataclass(frozen=True)
class Rate:
    """Rates of some freedoms of one joint, each times a sign."""

    at: Between
    dofs: tuple[int, ...]  # counted within the joint

    def __call__(self, free: System, Q: Array, V: Array, x: tuple[Placed, Axes, Array]) -> Array:
        R, p = links(Q)
        at = self.at.frames(Q, x[0])
        children, parents = np.array([self.at.child]), np.array([self.at.parent])
        dual = dual_columns(columns(self.at.kind, at.before, at.after, x[1]))
        rates = jnp.einsum("nsk,ns->k", dual, relative_twists(at, R, p, V, children, parents))
        return x[2] * rates[np.array(self.dofs)]


class Original(NamedTuple):
    """The System as it was, its bodies in free ones, and between which of them its joints are."""

    sys: System
    free: System
    layout: Layout

    def between(self, i: int) -> Between:
        return Between(self.layout.children[i], self.layout.parents[i], self.sys.joint_types[i])

    def numbers(self, i: int) -> tuple[Placed, Axes]:
        """What a `Between` reads."""
        mine = np.array([i])
        return placed(self.sys, self.layout, mine), axes_of(self.sys, mine)

    def names(self, joints) -> list[str]:
        """Free joints of the bodies on both sides of these."""
        sides = [self.between(i) for i in joints]
        bodies = {b for j in sides for b in (j.child, j.parent) if b >= 0}
        return [self.free.joint_names[b] for b in sorted(bodies)]


def _of_type(x: Original, kind: str, make, word: str) -> list[Constraints]:
    return [
        function(x.free, make(x.between(i)), params=x.numbers(i), joints=x.names([i]), name=f"{name} {word}")
        for i, (name, own) in enumerate(zip(x.sys.joint_names, x.sys.joint_types))
        if own == kind
    ]


def threads(x: Original) -> list[Constraints]:
    """One row per screw."""
    return _of_type(x, "screw", Thread, "thread")


def crosses(x: Original) -> list[Constraints]:
    """One row per universal joint."""
    return _of_type(x, "universal", Cross, "cross")


def rate(x: Original, i: int, dofs: tuple[int, ...], sign: Array) -> Constraints:
    """sign times the rates of some freedoms of joint i, which are counted within it."""
    return velocity_function(
        x.free, Rate(x.between(i), dofs), params=(*x.numbers(i), sign), joints=x.names([i]),
        name=f"{x.sys.joint_names[i]} rate",
    )  # fmt: skip


def couplings(x: Original) -> list[Constraints]:
    """One row per coupling, mimic joint and linear coupling of the model, at the level of velocities."""
    sys = x.sys
    t, found = sys.topology, []

    def add(kind: type[Coupling], name: str, joints, coefficients) -> None:
        row = kind(tuple(x.between(j) for j in joints))
        params = {"joints": [x.numbers(j) for j in joints], "coefficients": coefficients}
        found.append(velocity_function(x.free, row, params=params, joints=x.names(joints), name=name))

    for k, (name, kind, (a, b)) in enumerate(zip(t.loop_names, t.loop_kinds, t.loop_frames)):
        if kind == "coupling" and t.loop_active[k]:
            add(Polynomial, name, (a,) if a == b else (a, b), sys.loop_coefficients[k])
    for k, (joint, leader) in enumerate(t.mimics):
        line = jnp.stack([sys.mimic_offset[k], sys.mimic_ratio[k]])
        add(Polynomial, f"{sys.joint_names[joint]} mimics", (joint, leader), line)
    at = 0
    for name, joints in zip(t.linear_names, t.linear_joints):
        add(Sum, name, joints, sys.linear_coefficients[at : at + len(joints)])
        at += len(joints)
    return found
