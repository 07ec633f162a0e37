"""Stepping under constraints: accelerations by constrained dynamics, then back onto phi = 0 and J v = 0.

Integrated accelerations drift off the constraints by what the integrator misses. Two remedies: Baumgarte
gains in the constraints, which pull back over a time constant, and `projection`, which puts q and v back
after every step. Projection takes any state, also one far off: its first step then jumps. That is said, by
`stats.moved` and `result`, and with a `StateWarning` where values are known.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints import (
    Projection,
    constrained_dynamics,
    constraint_error,
    project,
)
from jaxrbd.constraints.data import as_constraints
from jaxrbd.constraints.projection import velocity_jump
from jaxrbd.constraints.soft import Soft
from jaxrbd.constraints.solver import Solver
from jaxrbd.errors import StateWarning
from jaxrbd.integrators.free_bodies import carry
from jaxrbd.integrators.momentum import carry_momentum
from jaxrbd.model.system import System, pytree
from jaxrbd.simulate import State, body_forces, check_integrator, joint_forces, read_state, roll
from jaxrbd.solution import Result, Solution, largest, worst
from jaxrbd.tree.manifold import difference

FROM_DRIFT = Projection(iterations=2)  # what one step leaves shrinks quadratically
JUMP = 1e-3  # rad or m: further than this, and than the step itself, projection does not correct drift


@pytree
class ConstrainedStepStats:
    """Multipliers (m,) at the start of the step [N, N m], the largest residual of the solver [m/s²] over the
    stages, the largest |phi| [m, rad] after the step, and the largest coordinate [rad, m] by which projection
    moved q."""

    lam: jax.Array
    residual: jax.Array
    error: jax.Array
    moved: jax.Array


def constrained_step(
    sys: System,
    state: State,
    u,
    constraints,
    integrator=None,
    solver: Solver | None = None,
    projection: Projection | None = FROM_DRIFT,
    f_ext=None,
) -> Solution:
    """One time step on the constraints: Solution(State, result, stats); arguments as of `step`.

    `projection` uses the same `solver` unless it has its own (the default instead of `Soft`); it stops the
    rows, so constraints that follow a `target` need None, which leaves the drift to Baumgarte gains.
    `result` is the worst of every stage's and the projection's. It is `not_converged` as well where
    projection moved a coordinate by more than 1e-3 rad or m and by more than the step did: the state was off
    its constraints. `project` it first, or make the constraints with q=.
    """
    con = as_constraints(constraints)
    q, v = read_state(sys, state)
    if projection is not None:
        _warn_if_off(sys, con, q)
    stages: list[Solution] = []

    def acceleration(sys, q, v):
        tau, f = joint_forces(sys, q, v, u), body_forces(sys, q, v, f_ext)
        stages.append(constrained_dynamics(sys, q, v, tau, con, solver, f))
        return stages[-1].value.a

    start = q
    q, v = check_integrator(integrator).step(sys, q, v, acceleration)
    results = [s.result for s in stages]
    if projection is None:
        error, moved = largest(constraint_error(sys, con, q)), jnp.zeros((), sys.dtype)
    else:
        if projection.solver is None:
            projection = replace(projection, solver=None if isinstance(solver, Soft) else solver)
        back = project(sys, con, q, None, projection)
        # q turns the axes that the velocities of free bodies are given in
        bring = carry_momentum if getattr(integrator, "conserve_momentum", False) else carry
        v = bring(sys, q, v, back.value.q)
        jump = velocity_jump(sys, back.value.q, v, con, 1, projection.solver)
        moved, stepped = largest(difference(sys, q, back.value.q)), largest(difference(sys, start, q))
        jumped = jnp.where(moved > jnp.maximum(JUMP, stepped), Result.not_converged, Result.converged)
        q, v, error = back.value.q, v + jump.value.a, back.stats.error
        results += [back.result, jump.result, jumped]
    residual = largest(jnp.stack([s.stats.residual for s in stages]))
    stats = ConstrainedStepStats(stages[0].value.lam, residual, error, moved)
    return Solution(State(q, v), worst(*results), stats)


def constrained_rollout(
    sys: System,
    state: State,
    controls,
    constraints,
    integrator=None,
    *,
    solver: Solver | None = None,
    projection: Projection | None = FROM_DRIFT,
    f_ext=None,
    steps: int | None = None,
    checkpoint: int | str | None = None,
) -> Solution:
    """The `Solution` of every step, stacked: leaves (T, ...). Controls, steps, checkpoint as of `rollout`.

    A start that is off its constraints is said by the first step's `result` and `stats.moved`.
    """
    con, integrator = as_constraints(constraints), check_integrator(integrator)
    if projection is not None:
        _warn_if_off(sys, con, read_state(sys, state)[0])

    def advance(s, u):
        after = constrained_step(sys, s, u, con, integrator, solver, projection, f_ext)
        return after.value, after

    return roll(sys, advance, state, controls, integrator.dt, steps, checkpoint)[1]


def _warn_if_off(sys: System, con, q) -> None:
    """Name the constraint that q misses most; under jit values are not known, and the result tells."""
    phi = constraint_error(sys, con, q)
    if isinstance(phi, jax.core.Tracer):
        return
    phi = np.abs(np.asarray(phi))
    if not phi.size or not phi.max() > JUMP:
        return
    owners = np.repeat(np.arange(len(con.entries)), [e.rows for e in con.entries])
    entry = con.entries[owners[phi.argmax()]]
    if not entry.placed:
        return  # `project` refuses it
    warnings.warn(
        f"the state is off the constraint {entry.name!r} by {phi.max():.3g} m or rad: the first step jumps "
        "there. Start from rbd.project(sys, constraints, q).value.q, or make the constraint with q=.",
        StateWarning,
        stacklevel=3,
    )
