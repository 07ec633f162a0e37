"""The end of an explicit step: back onto phi = 0 and J v = 0.

Integrated accelerations drift off the constraints by what the integrator misses. Two remedies: Baumgarte
gains in the constraints, which pull back over a time constant, and `projection`, which puts q and v back
after every step. Projection takes any state, also one far off: its first step then jumps. That is said, by
`stats.moved` and `result`, and with a `StateWarning` where values are known.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints import Projection, constraint_error, project
from jaxrbd.constraints.projection import velocity_jump
from jaxrbd.constraints.soft import Soft
from jaxrbd.errors import StateWarning
from jaxrbd.integrators.contract import State, StepProblem
from jaxrbd.model.system import pytree
from jaxrbd.solution import Result, Solution, largest, worst
from jaxrbd.tree.manifold import difference

FROM_DRIFT = Projection(iterations=2)  # what one step leaves shrinks quadratically
JUMP = 1e-3  # rad or m: further than this, and than the step itself, projection does not correct drift


@pytree
class StepStats:
    """Multipliers (m,) at the start of the step [N, N m], the largest residual of the solver [m/s²] over the
    stages, the largest |phi| [m, rad] after the step, and the largest coordinate [rad, m] by which projection
    moved q."""

    lam: jax.Array
    residual: jax.Array
    error: jax.Array
    moved: jax.Array


def settle(problem: StepProblem, stages: list[Solution], start, q, v, carry: Callable) -> Solution:
    """Solution(State, result, StepStats) of a step from configuration `start` to (q, v), put back onto the
    constraints; a free one is what it is.

    `stages`: the accelerations that the step used. carry(sys, q, v, q1): the velocity v at q as one at q1.
    `result` is the worst of the stages and the projection, and `not_converged` as well where projection
    moved a coordinate by more than `JUMP` and by more than the step did: the state was off its constraints.
    """
    sys, con, projection = problem.sys, problem.constraints, problem.projection
    if con is None:
        return Solution(State(q, v), stages[0].result, None)
    results = [s.result for s in stages]
    if projection is None:
        error, moved = largest(constraint_error(sys, con, q)), jnp.zeros((), sys.dtype)
    else:
        if projection.solver is None:
            solver = problem.solver
            projection = replace(projection, solver=None if isinstance(solver, Soft) else solver)
        back = project(sys, con, q, None, projection)
        v = carry(sys, q, v, back.value.q)  # q turns the axes that the velocities of free bodies are given in
        jump = velocity_jump(sys, back.value.q, v, con, 1, projection.solver)
        moved, stepped = largest(difference(sys, q, back.value.q)), largest(difference(sys, start, q))
        jumped = jnp.where(moved > jnp.maximum(JUMP, stepped), Result.not_converged, Result.converged)
        q, v, error = back.value.q, v + jump.value.a, back.stats.error
        results += [back.result, jump.result, jumped]
    residual = largest(jnp.stack([s.stats.residual for s in stages]))
    stats = StepStats(stages[0].value.lam, residual, error, moved)
    return Solution(State(q, v), worst(*results), stats)


def warn_if_off(problem: StepProblem, q, stacklevel: int = 3) -> None:
    """Name the constraint that q misses most; under jit values are not known, and the result tells."""
    con = problem.constraints
    if con is None or problem.projection is None:
        return
    phi = constraint_error(problem.sys, con, q)
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
        stacklevel=stacklevel,
    )
