"""Stepping and rollouts: state and controls in, next state out."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.errors import ArgumentError
from jaxrbd.forces import applied_force, passive_force
from jaxrbd.integrators import SemiImplicitEuler
from jaxrbd.model.system import System, pytree
from jaxrbd.tree.aba import forward_dynamics
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.manifold import difference, integrate, neutral


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


def read_state(sys: System, state):
    """(q, v) of a State, checked."""
    if not (hasattr(state, "q") and hasattr(state, "v")):
        raise ArgumentError(
            f"state is a {type(state).__name__}, expected a State. Write rbd.State(q, v), or "
            "rbd.State.at_rest(sys) for the neutral configuration at rest."
        )
    return arguments(sys, q=state.q, v=state.v)


def step(sys: System, state: State, u=None, integrator=None, f_ext=None) -> State:
    """One time step. `u`: controls (nu,) if the model has actuators, or joint forces (nv,); None for none.

    `integrator` has the length of the step; by default it is SemiImplicitEuler(dt=1e-3), a millisecond.
    Springs, damping, dry friction and limits of the model act as well (`passive_force`). `f_ext`: forces on
    bodies (nb, 6), or a function (sys, q, v) that gives them, such as `ground_springs`.
    """
    q, v = read_state(sys, state)

    def acceleration(sys, q, v):
        return forward_dynamics(sys, q, v, joint_forces(sys, q, v, u), body_forces(sys, q, v, f_ext))

    return State(*check_integrator(integrator).step(sys, q, v, acceleration))


def joint_forces(sys: System, q, v, u):
    """What acts at the joints during a step: controls and the model's passive forces."""
    return applied_force(sys, q, v, u) + passive_force(sys, q, v)


def body_forces(sys: System, q, v, f_ext):
    """What acts on the bodies at a state: None, an array (nb, 6), or a function of (sys, q, v)."""
    return f_ext(sys, q, v) if callable(f_ext) else f_ext


def rollout(
    sys: System,
    state: State,
    controls=None,
    integrator=None,
    *,
    steps: int | None = None,
    checkpoint: int | str | None = None,
    keep: str = "all",
    f_ext=None,
) -> State:
    """States after each step, stacked: leaves (T, ...). The initial state is not repeated.

    `integrator`: SemiImplicitEuler(dt=1e-3) unless given, so that T steps are T milliseconds.
    `controls`: (T, nu) or (T, nv), or None together with `steps`; or a function (q, v, t) -> u with `steps`.
    `checkpoint` matters for reverse mode only: a number of steps per segment, or "sqrt" for √T. Within a
    segment everything is computed again from the state at its start, so what is kept for the backward
    pass grows with T / segment + segment instead of T. The numbers stay the same.
    With keep="last" the path is the last state alone, leaves (1, ...): a cost of the final state then needs
    no memory for T states, which "sqrt" would otherwise be dominated by. `f_ext` as in `step`.
    """
    integrator = check_integrator(integrator)
    if keep not in ("all", "last"):
        raise ArgumentError(f'keep is {keep!r}, expected "all" or "last".')

    def advance(s, u):
        s = step(sys, s, u, integrator, f_ext)
        return s, s if keep == "all" else None

    last, path = roll(sys, advance, state, controls, integrator.dt, steps, checkpoint)
    return path if keep == "all" else jax.tree.map(lambda x: x[None], last)


def roll(sys: System, advance, state: State, controls, dt, steps: int | None, checkpoint):
    """Scan advance(state, u) -> (state, what to keep) over the controls: (last state, what was kept)."""
    if callable(controls) or controls is None:
        if steps is None:
            raise ArgumentError("rollout: pass `steps` when the controls are a function or None.")
        xs = jnp.arange(steps)
        dt = jnp.asarray(dt, sys.dtype)
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

    def once(s, x):
        return advance(s, control(s, x))

    start = State(*read_state(sys, state))
    return _scan_in_segments(once, start, xs, _segment(checkpoint, xs.shape[0]))


def _segment(checkpoint, steps: int) -> int | None:
    if checkpoint is None:
        return None
    if checkpoint == "sqrt":
        return max(1, round(steps**0.5))
    if isinstance(checkpoint, int) and not isinstance(checkpoint, bool) and checkpoint > 0:
        return checkpoint
    raise ArgumentError(
        f'checkpoint is {checkpoint!r}, expected None, "sqrt", or a positive number of steps per segment.'
    )


def _scan_in_segments(advance, start, xs, segment: int | None):
    """lax.scan whose reverse mode keeps one carry per segment; the last segment may be shorter."""
    if segment is None:
        return jax.lax.scan(advance, start, xs)
    steps = xs.shape[0]
    whole = steps // segment * segment
    run = jax.checkpoint(lambda carry, x: jax.lax.scan(advance, carry, x), prevent_cse=False)
    carry, parts = start, []
    if whole:
        carry, ys = jax.lax.scan(run, carry, xs[:whole].reshape((-1, segment) + xs.shape[1:]))
        parts.append(jax.tree.map(lambda y: y.reshape((whole,) + y.shape[2:]), ys))
    if whole < steps or not parts:
        carry, ys = run(carry, xs[whole:])
        parts.append(ys)
    return carry, jax.tree.map(lambda *y: jnp.concatenate(y), *parts)


def linearize(sys: System, state: State, u=None, integrator=None, f_ext=None):
    """(A, B) with  dx' = A dx + B du  for one step of any integrator; x = (q, v) in the tangent space.

    A is (2 nv, 2 nv) and B (2 nv, nu) for actuator controls or (2 nv, nv) for joint forces. A change dq
    means integrate(q, dq), and the new state's change is measured by `difference`. vmap it for batches.
    """
    q, v = read_state(sys, state)
    if u is None:
        u = jnp.zeros(sys.nv, sys.dtype)
    u = jnp.asarray(u, sys.dtype)
    after = step(sys, State(q, v), u, integrator, f_ext)

    def flow(dx, du):
        moved = State(integrate(sys, q, dx[: sys.nv]), v + dx[sys.nv :])
        new = step(sys, moved, u + du, integrator, f_ext)
        return jnp.concatenate([difference(sys, after.q, new.q), new.v - after.v])

    return jax.jacfwd(flow, (0, 1))(jnp.zeros(2 * sys.nv, sys.dtype), jnp.zeros_like(u))


def check_integrator(integrator):
    """The integrator, or the default one."""
    if integrator is None:
        return SemiImplicitEuler(dt=1e-3)
    if isinstance(integrator, type):
        raise ArgumentError(
            f"integrator is the class {integrator.__name__}, expected an object with a time step. "
            f"Write {integrator.__name__}(dt=1e-3)."
        )
    if not hasattr(integrator, "step"):
        raise ArgumentError(
            f"integrator is {integrator!r}, expected an integrator object such as SemiImplicitEuler(dt=1e-3)."
        )
    return integrator
