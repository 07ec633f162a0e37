"""`dual.solve`: one problem, or a batch of them under `vmap`, by any of the solvers."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.dual.admm import ADMM
from jaxrbd.dual.kernels import solver_kernel
from jaxrbd.dual.matrix_free import solve_free
from jaxrbd.dual.operator import is_operator
from jaxrbd.dual.problem import Problem
from jaxrbd.dual.reduced import Reduced
from jaxrbd.dual.residuals import NUMBERS, Residuals
from jaxrbd.dual.solver import Solver
from jaxrbd.dual.splitting import NBGS, RAISIM
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import pytree
from jaxrbd.solution import Result, Solution
from jaxrbd.typing import ArrayLike

TOLERANCE = {8: 1e-6, 4: 1e-4}  # [m/s], where the solver has none of its own; by bytes of a number


@pytree
class Impulses:
    """λ (m,) [N s, N m s] along the rows, and their velocities v⁺ (m,) afterwards.

    Where rows are redundant v⁺ is unique and λ is not: only v⁺ has a derivative there.
    """

    lam: jax.Array
    v: jax.Array


@pytree
class DualStats:
    """`modes`: one `Mode` per limit, box and contact, in this order ([LOOPS] Eq. 46)."""

    residuals: Residuals
    iterations: jax.Array
    modes: jax.Array


def solve(problem: Problem, solver: Solver | None = None, warm_start: ArrayLike | None = None) -> Solution:
    """Solution(Impulses(lam, v), result, DualStats): K ∋ λ ⟂ v⁺ + Γ(v⁺) ∈ K* (NCP), or without Γ (CCP).

    `converged` where the scaled natural map of the solver's model is at most its tolerance (if it has
    none, 1e-6 m/s in float64, 1e-4 in float32), else `not_converged`. `warm_start`: λ to start from,
    times the solver's `warm_scale`. A problem on an operator is solved without its matrix, by `ADMM`.
    """
    if not isinstance(problem, Problem):
        raise ArgumentError(f"solve: problem is {problem!r:.80}, expected one made by dual.problem(...).")
    solver = NBGS() if solver is None else solver
    if isinstance(solver, type) and issubclass(solver, Solver):
        raise ArgumentError(f"solve: solver is the class {solver.__name__}. Write {solver.__name__}().")
    if not isinstance(solver, Solver):
        raise ArgumentError(f"solve: solver is {solver!r:.80}, expected dual.NBGS(), dual.ADMM() or another.")
    _suits(problem, solver)
    m, dtype = problem.blocks.rows, problem.v_f.dtype
    if problem.v_f.ndim != 1:
        raise ArgumentError(
            f"solve: v_f has shape {problem.v_f.shape}. This problem is a batch: vmap over it."
        )
    lam = jnp.zeros(m, dtype) if warm_start is None else jnp.asarray(warm_start, dtype)
    if lam.shape != (m,):
        raise ArgumentError(f"solve: warm_start has shape {lam.shape}, expected ({m},).")
    lam = solver.warm_scale * lam
    if is_operator(problem.D):
        assert isinstance(solver, ADMM)  # `_suits` has seen to it
        lam, v, numbers, iterations, kinds = solve_free(problem, solver, lam)
    else:
        lam, v, numbers, iterations, kinds = solver_kernel(solver)(problem, lam)
    x = [numbers[k] for k in range(NUMBERS)]
    found = Residuals(x[0], x[1], x[2], x[3], x[4], x[5], row=x[6].astype(jnp.int32))
    stats = DualStats(found, iterations.astype(jnp.int32), kinds.astype(jnp.int32))
    worst = stats.residuals.ncp if solver.model == "ncp" else stats.residuals.ccp
    limit = solver.tolerance or TOLERANCE[jnp.dtype(dtype).itemsize]
    good = jnp.all(jnp.isfinite(lam)) & (worst <= limit)
    result = jnp.where(good, Result.converged, Result.not_converged).astype(jnp.int32)
    return Solution(Impulses(lam, v), result, stats)


def _suits(problem: Problem, solver: Solver) -> None:
    if is_operator(problem.D) and not (isinstance(solver, ADMM) and not solver.polish):
        raise ArgumentError(
            f"solve: D is a {type(problem.D).__name__}, of which {solver} needs the matrix. Use "
            "dual.ADMM(polish=0), or make the problem with D.dense()."
        )
    dims = problem.blocks.contacts
    solver = solver.inner if isinstance(solver, Reduced) else solver
    flat = isinstance(solver, RAISIM) or (isinstance(solver, NBGS) and solver.local_law == "dissipation")
    if flat and any(d > 3 for d in dims):
        raise ArgumentError(
            f"solve: contact {next(k for k, d in enumerate(dims) if d > 3)} has dimension {max(dims)}, but "
            f"{type(solver).__name__} searches a circle of directions. Use NBGS() or ADMM()."
        )
