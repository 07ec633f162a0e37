"""What acts along the freedoms of joints in maximal coordinates, as rows of a step's dual problem.

Of a freedom with rate w, armature a, damper b and servos of gains k_p, k_d ([LOOPS] IV: implicit joint rows)

    λ = a (w - w⁺) - dt b w⁺ + dt (c - k_p (x + dt w⁺) - k_d w⁺),    m = a + dt (b + k_d) + dt² k_p
    w⁺ + λ / m = (a w + dt (c - k_p x)) / m

is a row of compliance R = 1/m; c is what the servo gives at rest at zero. Limits are one-sided rows, dry
friction is a box, and a servo of bounded force a box with compliance. Springs and torques act through
`Maximal.forces`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import combine
from jaxrbd.contact.joint_rows import JointRows
from jaxrbd.forces import applied_force, joint_coordinates, joint_positions, passive_force
from jaxrbd.maximal.joint_rows import one_by_one, rates
from jaxrbd.model.system import System, pytree, static
from jaxrbd.typing import Array

if TYPE_CHECKING:
    from jaxrbd.maximal.maximal import Maximal


@dataclass(frozen=True)
class Slots:
    """Which freedoms have which rows: read off the numbers once, when the mechanism is cut."""

    limits: tuple[int, ...] = ()
    dry: tuple[int, ...] = ()
    inert: tuple[int, ...] = ()  # with armature or a damper
    servos: tuple[int, ...] = ()  # actuators with a gain on position or velocity, as strong as they need be
    bounded: tuple[int, ...] = ()  # and those whose force is bounded


def slots_of(sys: System) -> Slots:
    t = sys.topology
    host = lambda x: np.asarray(jax.device_get(x))  # noqa: E731
    order = lambda mask: one_by_one(t, np.flatnonzero(mask).tolist())  # noqa: E731
    lower, upper, effort = host(sys.lower), host(sys.upper), host(sys.effort_limit)
    scalar = joint_coordinates(t) < sys.nq
    dofs = np.array(t.actuator_dofs, int)
    implicit = (host(sys.actuator_bias)[:, 1:] < 0).any(1) & (host(sys.actuator_gear) != 0)
    bounded = implicit & (np.isfinite(effort[dofs]) | np.isfinite(host(sys.force_range)).all(1))
    strong = np.flatnonzero(bounded).tolist()
    place = {d: k for k, d in enumerate(order(np.isin(np.arange(sys.nv), dofs[strong])))}
    return Slots(
        order((np.isfinite(lower) | np.isfinite(upper)) & scalar),
        order(host(sys.friction) > 0),
        order((host(sys.armature) > 0) | (host(sys.damping) > 0)),
        tuple(np.flatnonzero(implicit & ~bounded).tolist()),
        tuple(sorted(strong, key=lambda k: place[int(dofs[k])])),
    )


class Servos(NamedTuple):
    """Actuators as  force = c - k_p x - k_d w  of their freedom, within (low, high)."""

    dofs: np.ndarray
    c: Array
    kp: Array
    kd: Array
    low: Array
    high: Array


def servos_of(sys: System, u: Array, which: tuple[int, ...]) -> Servos:
    k = np.array(which, int)
    dofs = np.array(sys.topology.actuator_dofs, int)[k]
    gear, bias = sys.actuator_gear[k], sys.actuator_bias[k]
    u = jnp.clip(u[k], sys.control_range[k, 0], sys.control_range[k, 1])
    reach, most = gear[:, None] * sys.force_range[k], sys.effort_limit[dofs]
    return Servos(
        dofs,
        gear * (sys.actuator_gain[k] * u + bias[:, 0]),
        -(gear**2) * bias[:, 1],
        -(gear**2) * bias[:, 2],
        jnp.maximum(jnp.min(reach, 1), -most),
        jnp.minimum(jnp.max(reach, 1), most),
    )


@pytree
class JointLaws:
    """`Maximal.joints`: what `HardContact(joints=...)` calls at the start of a step."""

    maximal: Maximal
    u: jax.Array | None
    limits: bool = static(default=True)
    dry_friction: bool = static(default=True)
    implicit: bool = static(default=True)

    def __call__(self, free: System, Q: Array, V: Array, dt: Array) -> JointRows:
        m = self.maximal
        sys, slots, x = m.origin, m.slots, m.original()
        driven = self.implicit and self.u is not None
        limits = slots.limits if self.limits else ()
        dry = slots.dry if self.dry_friction else ()
        u = jnp.zeros(sys.nu, sys.dtype) if self.u is None else self.u
        servos = servos_of(sys, u, slots.servos if driven else ())
        strong = servos_of(sys, u, slots.bounded if driven else ())
        soft = one_by_one(sys.topology, {*slots.inert, *servos.dofs.tolist()})

        q, v = m.from_maximal(Q, V, near=self._near(servos))
        place = joint_positions(sys, q)
        none = jnp.zeros(sys.nv, sys.dtype)
        sum_up = lambda y: none.at[servos.dofs].add(y)  # noqa: E731
        inertia = sys.armature + dt * sys.damping + sum_up(dt * servos.kd + dt**2 * servos.kp)
        momentum = sys.armature * v + sum_up(dt * (servos.c - servos.kp * place[servos.dofs]))
        stiff = dt * strong.kd + dt**2 * strong.kp
        centre = (strong.low + strong.high) / 2
        pull = dt * (strong.c - strong.kp * place[strong.dofs] - centre)
        rubs = jnp.zeros(len(dry), sys.dtype)
        at = np.array(soft, int)
        gap, sign = _nearer_limit(sys, np.array(limits, int), place)
        one = lambda dofs: jnp.ones(len(dofs), sys.dtype)  # noqa: E731
        boxes = [rates(x, dofs, one(dofs)) for dofs in (dry, strong.dofs.tolist()) if len(dofs)]
        return JointRows(
            soft=rates(x, soft, one(soft)) if soft else None,
            limits=rates(x, limits, sign) if limits else None,
            boxes=combine(*boxes) if boxes else None,
            compliance=jnp.concatenate([_over(1.0, inertia[at]), rubs, _over(1.0, stiff)]),
            target=jnp.concatenate([_over(momentum[at], inertia[at]), rubs, _over(pull, stiff)]),
            gap=gap,
            bound=jnp.concatenate([sys.friction[np.array(dry, int)], (strong.high - strong.low) / 2]),
            force=m.forces(Q, self._force(q, v, u, driven) + none.at[strong.dofs].add(centre)),
        )

    def _near(self, servos: Servos) -> Array:
        """q whose angles are to be understood by: the middle of their limits, or what servos reach for."""
        sys = self.maximal.origin
        low, high = jnp.isfinite(sys.lower), jnp.isfinite(sys.upper)
        lower, upper = jnp.where(low, sys.lower, sys.upper), jnp.where(high, sys.upper, sys.lower)
        reach = jnp.zeros(sys.nv, sys.dtype).at[servos.dofs].set(_over(servos.c, servos.kp))
        middle = jnp.where(
            low | high, (jnp.where(low | high, lower, 0) + jnp.where(low | high, upper, 0)) / 2, reach
        )
        coordinate = joint_coordinates(sys.topology)
        return jnp.zeros(sys.nq + 1, sys.dtype).at[coordinate].set(middle)[:-1]

    def _force(self, q: Array, v: Array, u: Array, driven: bool) -> Array:
        """Of springs and torques: of all that has no row."""
        sys, slots = self.maximal.origin, self.maximal.slots
        rest = lambda x, rows: x.at[np.array(rows, int)].set(0)  # noqa: E731
        some = {"damping": rest(sys.damping, slots.inert)}
        if self.dry_friction:
            some["friction"] = rest(sys.friction, slots.dry)
        if self.limits:
            some["limit_stiffness"] = rest(sys.limit_stiffness, slots.limits)
            some["limit_damping"] = rest(sys.limit_damping, slots.limits)
        if driven:
            some["actuator_gear"] = rest(sys.actuator_gear, slots.servos + slots.bounded)
        sys = sys.replace(**some)
        tau = passive_force(sys, q, v)
        return tau if self.u is None else tau + applied_force(sys, q, v, u)


def _nearer_limit(sys: System, dofs: np.ndarray, place: Array) -> tuple[Array, Array]:
    """Gaps, and the signs of the rates that open them."""
    big = jnp.asarray(1e6, sys.dtype)  # so that limits at infinity leave no NaN
    below = place[dofs] - jnp.maximum(sys.lower[dofs], -big)
    above = jnp.minimum(sys.upper[dofs], big) - place[dofs]
    near = below <= above
    return jnp.where(near, below, above), jnp.where(near, 1.0, -1.0).astype(sys.dtype)


def _over(x, m: Array) -> Array:
    """x / m; of a row that has lost its inertia 0, or a compliance so large that it does nothing."""
    safe = jnp.where(m > 0, m, 1)
    return jnp.where(m > 0, x / safe, 1e12 if isinstance(x, float) else 0.0)
