"""Stepping and rollouts: state and controls in, next state out."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.errors import ArgumentError
from jaxrbd.forces import applied_force, passive_force
from jaxrbd.integrators import SemiImplicitEuler
from jaxrbd.model.system import System, pytree
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.manifold import neutral


@pytree
class State:
    """Configuration q (nq,) and velocity v (nv,)."""

    q: jax.Array
    v: jax.Array

    @staticmethod
    def at_rest(sys: System, q=None) -> State:
        """Zero velocity, at q or at the neutral configuration."""
        q = neutral(sys) if q is None else jnp.asarray(q, sys.dtype)
        return State(q, jnp.zeros(sys.nv, sys.dtype))


def step(sys: System, state: State, u=None, integrator=None, f_ext=None) -> State:
    """One time step. `u`: controls (nu,) if the model has actuators, or joint forces (nv,); None for none.

    Springs, damping, dry friction and limits of the model act as well (`passive_force`).
    """
    integrator = _integrator(integrator)
    q, v = arguments(sys, q=state.q, v=state.v)

    def force(q, v):
        return applied_force(sys, q, v, u) + passive_force(sys, q, v)

    return State(*integrator.step(sys, q, v, force, f_ext))


def rollout(sys: System, state: State, controls=None, integrator=None, *, steps: int | None = None) -> State:
    """States after each step, stacked: leaves (T, ...). The initial state is not repeated.

    `controls`: (T, nu) or (T, nv), or None together with `steps`; or a function (q, v, t) -> u with `steps`.
    """
    integrator = _integrator(integrator)
    if callable(controls) or controls is None:
        if steps is None:
            raise ArgumentError("rollout: pass `steps` when the controls are a function or None.")
        xs = jnp.arange(steps)
        dt = jnp.asarray(integrator.dt, sys.dtype)
        policy = controls or (lambda q, v, t: None)
        control = lambda s, x: policy(s.q, s.v, dt * x)  # noqa: E731
    else:
        xs = jnp.asarray(controls, sys.dtype)
        if xs.ndim != 2 or xs.shape[1] not in (sys.nu, sys.nv):
            raise ArgumentError(
                f"controls has shape {xs.shape}, expected (T, nu) = (T, {sys.nu}) or (T, nv) = (T, {sys.nv})."
            )
        if steps is not None and steps != xs.shape[0]:
            raise ArgumentError(
                f"steps is {steps}, but controls has {xs.shape[0]} rows. Leave one of them out."
            )
        control = lambda s, x: x  # noqa: E731

    def advance(s, x):
        s = step(sys, s, control(s, x), integrator)
        return s, s

    start = State(*arguments(sys, q=state.q, v=state.v))
    return jax.lax.scan(advance, start, xs)[1]


def _integrator(integrator):
    if integrator is None:
        return SemiImplicitEuler(dt=1e-3)
    if not hasattr(integrator, "step"):
        raise ArgumentError(
            f"integrator is {integrator!r}, expected an integrator object such as SemiImplicitEuler(dt=1e-3)."
        )
    return integrator
