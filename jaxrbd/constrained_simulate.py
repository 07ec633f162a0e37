"""Stepping under constraints: accelerations by constrained dynamics, then back onto phi = 0 and J v = 0.

Integrated accelerations drift off the constraints by what the integrator misses. Two remedies: Baumgarte
gains in the constraints, which pull back over a time constant, and `projection`, which puts q and v back
after every step.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from jaxrbd.constraints import (
    Projection,
    constrained_dynamics,
    constraint_error,
    project,
)
from jaxrbd.constraints.data import as_constraints
from jaxrbd.constraints.solvers import Proximal, Soft
from jaxrbd.model.system import System, pytree
from jaxrbd.simulate import State, body_forces, check_integrator, joint_forces, read_state, roll
from jaxrbd.solution import Solution, largest

FROM_DRIFT = Projection(iterations=2)  # what one step leaves shrinks quadratically


@pytree
class ConstrainedStepStats:
    """Multipliers (m,) at the start of the step [N, N m], the largest residual of the solver [m/s²] over the
    stages, and the largest |phi| [m, rad] after the step."""

    lam: jax.Array
    residual: jax.Array
    error: jax.Array


def constrained_step(
    sys: System,
    state: State,
    u,
    constraints,
    integrator=None,
    solver: Proximal | None = None,
    projection: Projection | None = FROM_DRIFT,
    f_ext=None,
) -> Solution:
    """One time step on the constraints: Solution(State, result, stats); arguments as of `step`.

    `projection` uses the same `solver` unless it has its own (the default instead of `Soft`); it stops the
    rows, so constraints that follow a `target` need None, which leaves the drift to Baumgarte gains.
    `result` is `converged` if every stage and the projection were.
    """
    con = as_constraints(constraints)
    q, v = read_state(sys, state)
    stages: list[Solution] = []

    def acceleration(sys, q, v):
        tau, f = joint_forces(sys, q, v, u), body_forces(sys, q, v, f_ext)
        stages.append(constrained_dynamics(sys, q, v, tau, con, solver, f))
        return stages[-1].value.a

    q, v = check_integrator(integrator).step(sys, q, v, acceleration)
    results = [s.result for s in stages]
    if projection is None:
        error = largest(constraint_error(sys, con, q))
    else:
        if projection.solver is None:
            projection = replace(projection, solver=None if isinstance(solver, Soft) else solver)
        back = project(sys, con, q, v, projection)
        q, v, error = back.value.q, back.value.v, back.stats.error
        results.append(back.result)
    residual = largest(jnp.stack([s.stats.residual for s in stages]))
    stats = ConstrainedStepStats(stages[0].value.lam, residual, error)
    return Solution(State(q, v), jnp.max(jnp.stack(results)), stats)


def constrained_rollout(
    sys: System,
    state: State,
    controls,
    constraints,
    integrator=None,
    *,
    solver: Proximal | None = None,
    projection: Projection | None = FROM_DRIFT,
    f_ext=None,
    steps: int | None = None,
    checkpoint: int | str | None = None,
) -> Solution:
    """The `Solution` of every step, stacked: leaves (T, ...). Controls, steps, checkpoint as of `rollout`."""
    con, integrator = as_constraints(constraints), check_integrator(integrator)

    def advance(s, u):
        after = constrained_step(sys, s, u, con, integrator, solver, projection, f_ext)
        return after.value, after

    return roll(sys, advance, state, controls, integrator.dt, steps, checkpoint)[1]
