"""Dynamics under constraints: M(q) a + b(q, v) = tau + J(q)ᵀ lam,  J a + J̇v = a*."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp

from jaxrbd.constraints.caba import ConstrainedABA
from jaxrbd.constraints.clustered import cluster_residuals, forward_cluster_task, linear_cluster_task
from jaxrbd.constraints.data import ConstraintsLike, as_constraints, check_constraints
from jaxrbd.constraints.method import Found, Settings
from jaxrbd.constraints.solver import Solver
from jaxrbd.constraints.task import forward_task, linear_task, residuals
from jaxrbd.engine.programs import merge, partial_jvp, partial_vjp
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, pytree
from jaxrbd.solution import Result, Solution
from jaxrbd.tree.arguments import arguments, array, external, require_mass
from jaxrbd.tree.kernels import kernel
from jaxrbd.typing import ArrayLike


@pytree
class ConstrainedMotion:
    """Joint accelerations a (nv,) and multipliers lam (m,): forces [N, N m] along the rows."""

    a: jax.Array
    lam: jax.Array


@pytree
class ProximalStats:
    """How far a solver came; numbers are the largest over the rows or joints.

    `residual`: |J a + J̇v - a*| at the end; `history`: the same after every iteration. `change`: the last
    step of a, which unbalanced forces and rows drive alike. `iterations`: how many were made.
    """

    residual: jax.Array
    history: jax.Array
    change: jax.Array
    iterations: jax.Array


def constrained_dynamics(
    sys: System,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    constraints: ConstraintsLike,
    solver: Solver | None = None,
    f_ext: ArrayLike | None = None,
    warm_start: ArrayLike | None = None,
) -> Solution:
    """Accelerations and multipliers under constraints:  M a + b = tau + Jᵀ lam,  J a + J̇v = a*.

    Returns Solution(ConstrainedMotion(a, lam), result, stats). `result` is `converged` where the rows are
    met, `stationary` where they contradict each other and a is the least-squares answer in their weights,
    `not_converged` where a may be off by more than 1e-6 (1e-2 in float32) of the largest acceleration.
    `constraints`: a `Constraints` or a list; `warm_start`: multipliers to start from.
    """
    con = as_constraints(constraints)
    solver = ConstrainedABA() if solver is None else solver
    check_solver(solver)
    q, v, tau = arguments(sys, q=q, v=v, tau=tau)
    f_ext = external(sys, f_ext, q.dtype)
    require_mass(sys, "constrained_dynamics")
    check_constraints(sys, con)
    lam = jnp.zeros(con.rows, q.dtype) if warm_start is None else warm_start  # [CABA] Alg. 3, line 1
    lam = array("warm_start", lam, (con.rows,), f"(m,) = ({con.rows},)", sys.dtype)
    numbers, form = jax.tree.flatten(solver)
    numbers = [jnp.asarray(x, q.dtype) for x in numbers]
    run = solver_kernel(form, solver.settings, solver.gradients)
    a, lam, history, change, iterations, verdict = run(sys, con, q, v, tau, f_ext, lam, numbers)
    stats = ProximalStats(history[-1], history, change, jnp.round(iterations).astype(jnp.int32))
    finite = jnp.all(jnp.isfinite(a)) & jnp.all(jnp.isfinite(lam))
    result = jnp.where(finite, jnp.round(verdict), Result.not_converged).astype(jnp.int32)
    return Solution(ConstrainedMotion(a, lam), result, stats)


def check_solver(solver) -> None:
    if isinstance(solver, type):
        raise ArgumentError(
            f"constrained_dynamics: solver is the class {solver.__name__}, expected a value. "
            f"Write {solver.__name__}()."
        )
    if not isinstance(solver, Solver):
        raise ArgumentError(
            f"constrained_dynamics: solver is {solver!r}, expected ConstrainedABA() or another of ours, "
            "or a subclass of rbd.constraints.Solver of your own."
        )
    if type(solver).solve is Solver.solve:
        raise ArgumentError(
            f"constrained_dynamics: {type(solver).__name__} does not say how it solves. "
            "Write solve(self, task, settings)."
        )


@lru_cache(maxsize=256)
def solver_kernel(form, settings: Settings, gradients: str):
    """The kernel of one solver, by the structure of its value; implicit gradients are rules of its own."""

    def run(sys, con, q, v, tau, f_ext, lam, numbers):
        solver = jax.tree.unflatten(form, numbers)
        make = forward_cluster_task if sys.topology.clusters else forward_task
        return list(solver.solve(make(sys, con, q, v, tau, f_ext, lam, _penalty(solver)), settings))

    shape = lambda sys, con, *_: [(sys.nv,), (con.rows,), (settings.length,), (), (), ()]  # noqa: E731
    made = kernel(shape)(run)
    if gradients == "implicit":
        made.derivatives(*implicit_rules(form, settings), uses_output=True)
    return made


def _penalty(solver):
    return getattr(solver, "mu", None)


# --- derivatives of the solution -----------------------------------------------------------------------


def batch_of(tree) -> int:
    return max(x.shape[-1] for x in jax.tree.leaves(tree))


def implicit_rules(form, settings: Settings):
    """Tangent and adjoint: the same linear problem with another right-hand side, by the same solver."""
    fixed = Settings(max(settings.iterations or 5, 3), fixed=True, judged=False)

    def at_solution(treedef, out, size: int):
        wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + (size,))  # noqa: E731

        def run(leaves):
            sys, con, *state = jax.tree.unflatten(treedef, leaves)
            q, v, tau, f_ext, _, _ = jax.tree.map(wide, state)
            both = cluster_residuals if sys.topology.clusters else residuals
            return both(sys, con, q, v, tau, f_ext, wide(out[0]), wide(out[1]))

        return run

    def linear(args, f, c) -> Found:
        sys, con, q, _, _, _, _, numbers = args
        n = batch_of((args, f, c))
        wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + (n,))  # noqa: E731
        q, f, c, numbers = jax.tree.map(wide, (q, f, c, numbers))
        solver = jax.tree.unflatten(form, numbers)
        make = linear_cluster_task if sys.topology.clusters else linear_task
        return solver.solve(make(sys, con, q, f, c, _penalty(solver)), fixed)

    def tangent(args, out, tangents):
        leaves, treedef = jax.tree.flatten(args)
        run = at_solution(treedef, out, batch_of((args, out)))
        moved = partial_jvp(run, leaves, treedef.flatten_up_to(tangents))
        found = linear(args, -moved[0], -moved[1])
        still = lambda x: jnp.zeros(x.shape[:-1] + found.a.shape[-1:], x.dtype)  # noqa: E731
        return [found.a, found.lam, *(still(x) for x in out[2:])]

    def adjoint(args, out, wanted, cotangents):
        # [[M, -Jᵀ], [J, 0]]ᵀ (w, eta) = (cotangents of a and lam)
        found = linear(args, cotangents[0], -cotangents[1])
        leaves, treedef = jax.tree.flatten(args)
        active = treedef.flatten_up_to(wanted)
        run = at_solution(treedef, out, batch_of((args, out)))
        grads = partial_vjp(run, leaves, active, [-found.a, found.lam])
        return jax.tree.unflatten(treedef, merge([None] * len(leaves), active, grads))

    return tangent, adjoint
