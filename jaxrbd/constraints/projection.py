"""Back onto the constraints:  q with phi(q) = 0, then v with J(q) v = 0.

Each Newton iteration moves q by the shortest step in the metric of the mass matrix,
dq = -M^-1 Jᵀ (J M^-1 Jᵀ)⁺ phi(q), which is constrained dynamics without gravity, at rest, with a* = -phi;
the velocities change once, by the same problem with a* = -J v. So every solver of constrained dynamics
serves here, redundant rows do no harm, and what cannot be met is met in the sense of least squares.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jaxrbd.constraints.data import Constraints, ConstraintsLike, as_constraints
from jaxrbd.constraints.dynamics import constrained_dynamics
from jaxrbd.constraints.jacobian import constraint_velocity, evaluate
from jaxrbd.constraints.solver import Solver
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, pytree, static
from jaxrbd.solution import Result, Solution, largest
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.manifold import integrate
from jaxrbd.typing import ArrayLike


@pytree
class Projection:
    """Settings of `project`: a fixed number of Newton iterations.

    From the drift of a time step one or two suffice, from a rough guess about ten. `solver`: the one that
    each iteration uses; `step_limit` [rad or m] bounds every coordinate of an iteration; `tolerance`
    [m, rad] of `converged` defaults to 1e-10, or 1e-5 in float32.
    """

    iterations: int = static(default=10)
    solver: Solver | None = None
    step_limit: float = 0.5
    tolerance: float | None = None

    def __post_init__(self):
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise ArgumentError(
                f"Projection: iterations is {self.iterations!r}, expected a positive integer."
            )
        for name in ("step_limit", "tolerance"):
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not value > 0:
                raise ArgumentError(f"Projection: {name} is {value!r}, expected a positive number.")


@pytree
class Projected:
    """Configuration q (nq,) and velocity v (nv,), None if none was given."""

    q: jax.Array
    v: jax.Array | None


@pytree
class ProjectionStats:
    """Largest |phi| [m, rad] and |J v| that remain, and the largest coordinate of the last step."""

    error: jax.Array
    velocity_error: jax.Array
    change: jax.Array


def project(
    sys: System,
    constraints: ConstraintsLike,
    q: ArrayLike,
    v: ArrayLike | None = None,
    settings: Projection | None = None,
) -> Solution:
    """Solution(Projected(q, v)) with phi(q) = 0 and J v = 0, near the given state in the mass metric.

    Rows at the level of velocities have phi = 0, and q moves along them only. `result` is `stationary` where
    the iteration has come to rest without meeting the rows. The derivative is that of the iterations, in
    which `step_limit` is a constant factor.
    """
    con = as_constraints(constraints)
    settings = Projection() if settings is None else settings
    if not isinstance(settings, Projection):
        raise ArgumentError(f"project: settings is {settings!r}, expected Projection(...).")
    (q,) = arguments(sys, q=q)
    _require_places(con)
    limit = jnp.asarray(settings.step_limit, sys.dtype)
    pull = con.replace(  # a* = -phi
        stiffness=jnp.ones_like(con.stiffness),
        damping=jnp.zeros_like(con.damping),
        target=jnp.zeros_like(con.target),
    )

    q, change = _newton(sys, pull, settings.solver, q, limit, settings.iterations)
    if v is not None:
        (v,) = arguments(sys, v=v)
        v = v + velocity_jump(sys, q, v, con, 1, settings.solver).value.a
    speed = jnp.zeros(sys.nv, sys.dtype) if v is None else v
    phi, u, *_ = evaluate(sys, con, q, speed, None)
    stats = ProjectionStats(largest(phi), largest(u), change)
    scale = jnp.maximum(1, largest(speed))
    return Solution(Projected(q, v), _classify(settings, stats, scale), stats)


@partial(jax.jit, static_argnames="iterations", inline=True)  # a loop outside jit would compile in every call
def _newton(sys: System, pull: Constraints, solver: Solver | None, q, limit, iterations: int):
    """q after so many steps of Newton's iteration, none longer than `limit`; and the length of the last."""

    def once(carry, _):
        q, _ = carry
        dq = at_rest(sys, q, pull, solver).value.a
        longest = largest(dq)
        dq = dq * jnp.where(longest > limit, limit / jnp.where(longest > limit, longest, 1), 1)
        return (integrate(sys, q, dq), longest), None

    return jax.lax.scan(once, (q, jnp.zeros((), sys.dtype)), length=iterations)[0]


def at_rest(sys: System, q, con: Constraints, solver: Solver | None) -> Solution:
    """M a = Jᵀ lam, J a = a*: constrained dynamics without gravity, velocity and joint forces."""
    floating = sys.replace(gravity=jnp.zeros_like(sys.gravity))
    still = jnp.zeros(sys.nv, sys.dtype)
    return constrained_dynamics(floating, q, still, still, con, solver)


def velocity_jump(sys: System, q, v, con: Constraints, share, solver: Solver | None) -> Solution:
    """M dv = Jᵀ lam, J dv = -share J v: `share` is 1 to stop the rows, 1 + e to reflect them."""
    push = con.replace(  # a* = -share J v
        stiffness=jnp.zeros_like(con.stiffness),
        damping=jnp.zeros_like(con.damping),
        target=-share * constraint_velocity(sys, con, q, v),
    )
    return at_rest(sys, q, push, solver)


def _require_places(con: Constraints) -> None:
    lost = [e.name for e in con.entries if not e.placed]
    if lost:
        raise ArgumentError(
            f"project: the constraint {lost[0]!r} holds to the world, but nobody said where. "
            "Make it with q=, a configuration that meets it, or anchor=."
        )


def _classify(settings: Projection, stats: ProjectionStats, scale):
    double = stats.error.dtype == jnp.float64
    tolerance = (1e-10 if double else 1e-5) if settings.tolerance is None else settings.tolerance
    met = (stats.error <= tolerance) & (stats.velocity_error <= tolerance * scale)
    still = stats.change <= (1e-6 if double else 1e-3)
    failure = jnp.where(still, Result.stationary, Result.not_converged)
    return jnp.where(met, Result.converged, failure).astype(jnp.int32)
