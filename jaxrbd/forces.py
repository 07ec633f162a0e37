"""Forces at the joints that come from the model: springs, damping, dry friction, limits, actuators."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from inspect import signature

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.errors import ArgumentError
from jaxrbd.joints import TYPES
from jaxrbd.model.system import System, Topology
from jaxrbd.tree.arguments import arguments, array
from jaxrbd.tree.opening import joint_forces, opened
from jaxrbd.typing import Array, ArrayLike

# These forces cost little: reverse mode computes their insides again rather than keep them for every step.
_forgetful = partial(jax.checkpoint, prevent_cse=False)

ForceLike = ArrayLike | Callable[..., ArrayLike]  # numbers, or a function (sys, q, v), or (sys, q, v, t)


@lru_cache(maxsize=512)
def _scalar_coordinates(t: Topology):
    """(dofs, q indices) of the degrees of freedom that have a scalar coordinate."""
    dofs: list[int] = []
    coords: list[int] = []
    for kind, q, v, v_end in zip(t.joint_types, t.q_starts, t.v_starts, t.v_starts[1:]):
        if not TYPES[kind].on_manifold:
            dofs += range(v, v_end)
            coords += range(q, q + v_end - v)
    return np.array(dofs, int), np.array(coords, int)


def joint_coordinates(t: Topology) -> np.ndarray:
    """Where in q the scalar coordinate of every degree of freedom stands, (nv,); nq where it has none."""
    dofs, coords = _scalar_coordinates(t)
    index = np.full(t.nv, t.nq)
    index[dofs] = coords
    return index


def joint_positions(sys: System, q):
    """Scalar coordinate of every degree of freedom, (nv,); spherical and free joints give zero."""
    index = joint_coordinates(sys.topology)
    if (index < sys.nq).all():
        return gather(q, index)
    return gather(jnp.concatenate([q, jnp.zeros(1, q.dtype)]), index)


def passive_force(sys: System, q: ArrayLike, v: ArrayLike) -> Array:
    """Springs, damping, smoothed dry friction and limit springs: the joint forces that `step` adds, (nv,).

    tau = -k (q - q_rest) - d v - friction tanh(v / slip_speed) - limit springs. Springs and limits act on
    joints with scalar coordinates. With clusters these are the joints of the open tree, and Gᵀ their forces.
    """
    q, v = arguments(sys, q=q, v=v)
    return joint_forces(sys, q, _passive_force(*opened(sys, q, v)))


@_forgetful
def _passive_force(sys: System, q, v):
    x = joint_positions(sys, q)
    has_coordinate = np.zeros(sys.nv)
    has_coordinate[_scalar_coordinates(sys.topology)[0]] = 1
    stiffness = sys.stiffness * jnp.asarray(has_coordinate, q.dtype)
    tau = -stiffness * (x - sys.spring_reference) - sys.damping * v
    tau = tau - sys.friction * jnp.tanh(v / sys.slip_speed)
    return tau + limit_force(sys, x, v)


@_forgetful
def friction_secant(sys: System, v):
    """The damper that does at velocity v what dry friction does: friction tanh(v / s) / v, (nv,)."""
    x = v / sys.slip_speed
    small = jnp.abs(x) < (1e-3 if x.dtype == jnp.float64 else 1e-2)
    safe = jnp.where(small, 1, x)
    slope = jnp.where(small, 1 - x * x / 3 + 2 * x**4 / 15, jnp.tanh(safe) / safe)
    return sys.friction / sys.slip_speed * slope


def limit_force(sys: System, x, v):
    """Smooth one-sided springs outside the joint limits; the damper fades in with the depth."""
    big = jnp.finfo(x.dtype).max  # so that infinite limits leave no NaN in gradients
    below = jnp.maximum(jnp.maximum(sys.lower, -big) - x, 0)
    above = jnp.maximum(x - jnp.minimum(sys.upper, big), 0)
    depth = below + above
    fade = depth / (depth + 1e-2)
    return sys.limit_stiffness * (below - above) - sys.limit_damping * v * fade


def actuator_force(sys: System, q: ArrayLike, v: ArrayLike, u: ArrayLike) -> Array:
    """Joint forces (nv,) of the actuators for controls u (nu,), clipped to control and force ranges.

    Each actuator gives gear * clip(gain u + bias0 + bias1 gear q + bias2 gear v); the joint's sum is
    clipped to its effort limit.
    """
    q, v = arguments(sys, q=q, v=v)
    u = array("u", u, (sys.nu,), f"(nu,) = ({sys.nu},)", sys.dtype)
    if sys.nu == 0:
        return jnp.zeros(sys.nv, q.dtype)
    tree, q_t, v_t = opened(sys, q, v)
    return joint_forces(sys, q, _actuator_force(tree, q_t, v_t, u))


@_forgetful
def _actuator_force(sys: System, q, v, u):
    dofs = np.array(sys.topology.actuator_dofs, int)
    u = jnp.clip(u, sys.control_range[:, 0], sys.control_range[:, 1])
    length = sys.actuator_gear * gather(joint_positions(sys, q), dofs)
    speed = sys.actuator_gear * gather(v, dofs)
    b = sys.actuator_bias
    force = sys.actuator_gain * u + b[:, 0] + b[:, 1] * length + b[:, 2] * speed
    force = sys.actuator_gear * jnp.clip(force, sys.force_range[:, 0], sys.force_range[:, 1])
    tau = _sum_by_dof(force, dofs, sys.nv)
    return jnp.clip(tau, -sys.effort_limit, sys.effort_limit)


def actuator_rates(sys: System, q, v, u):
    """How the actuators' force at each freedom grows with its coordinate and its velocity, (nv,) each."""
    coordinates = _scalar_coordinates(sys.topology)[1]
    dq = jnp.zeros_like(q).at[coordinates].set(1.0)
    by = lambda dq, dv: jax.jvp(lambda q, v: _actuator_force(sys, q, v, u), (q, v), (dq, dv))[1]  # noqa: E731
    return by(dq, jnp.zeros_like(v)), by(jnp.zeros_like(q), jnp.ones_like(v))


def _sum_by_dof(force, dofs, nv):
    lists = [np.flatnonzero(dofs == d).tolist() for d in range(nv)]
    most = max([1] + [len(x) for x in lists])
    table = np.array([x + [len(dofs)] * (most - len(x)) for x in lists])
    padded = jnp.concatenate([force, jnp.zeros(1, force.dtype)])
    return sum(gather(padded, table[:, k]) for k in range(most))


def applied_force(sys: System, q, v, u, tau=None):
    """Joint forces (nv,) from outside: of the actuators under controls u, and tau as it is.

    A model without actuators has nobody to control, so there u (nv,) is a joint force itself.
    """
    if u is None:
        return jnp.zeros(sys.nv, sys.dtype) if tau is None else tau
    driven = jnp.asarray(u, sys.dtype) if sys.nu == 0 < jnp.size(u) else actuator_force(sys, q, v, u)
    return driven if tau is None else driven + tau


def check_controls(sys: System, u):
    """u as an array, checked: (nu,), or joint forces (nv,) of a model without actuators."""
    shape = jnp.shape(u)
    if shape == (sys.nu,) or (sys.nu == 0 and shape == (sys.nv,)):
        return jnp.asarray(u, sys.dtype)
    if sys.nu == 0:
        expected = f"({sys.nv},) joint forces: {sys.name!r} has no actuators."
    else:
        expected = f"(nu,) = ({sys.nu},) controls of the actuators."
        if shape == (sys.nv,):
            expected += " Joint forces (nv,) are tau=, which is added to what the actuators do."
    raise ArgumentError(f"u has shape {shape}, expected {expected}")


def as_force(name: str, force, expected: str, shape: tuple[int, ...], dtype):
    """A force as a pytree: None, an array, or a function.

    A callable pytree such as `GroundSprings`, or a `jax.tree_util.Partial` with arguments, has its parameters
    as leaves. A plain function is wrapped so that it has none; JAX sees what it closes over as usual.
    """
    if callable(force):
        return jax.tree_util.Partial(force) if jax.tree_util.all_leaves([force]) else force
    return None if force is None else array(name, force, shape, f"{expected}, or a function", dtype)


def force_at(name: str, force, sys: System, q, v, t):
    """A force at a state: as it is, or what a function (sys, q, v) gives, called with t= if it asks for t."""
    if not callable(force):
        return force
    value = force(sys, q, v, t=t) if is_timed(force) else force(sys, q, v)
    shape, expected = ((sys.nv,), "(nv,)") if name == "tau" else ((sys.nb, 6), "(nb, 6)")
    return array(f"{name}(sys, q, v)", value, shape, f"{expected} = {shape}", sys.dtype)


def is_timed(force) -> bool:
    """Whether a force function asks for the time."""
    return callable(force) and "t" in signature(force).parameters
