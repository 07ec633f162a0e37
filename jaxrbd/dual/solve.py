"""`dual.solve`: one problem, or a batch of them under `vmap`, by any of the solvers."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp

from jaxrbd.dual.implicit import rules
from jaxrbd.dual.problem import Problem, radii, widths
from jaxrbd.dual.reduced import Reduced
from jaxrbd.dual.residuals import NUMBERS, Residuals, residuals
from jaxrbd.dual.solver import Rows, Solver
from jaxrbd.dual.splitting import NBGS, RAISIM
from jaxrbd.engine.kernel import kernel
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import pytree
from jaxrbd.solution import Result, Solution
from jaxrbd.typing import Array, ArrayLike

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
    residuals: Residuals
    iterations: jax.Array


def solve(problem: Problem, solver: Solver | None = None, warm_start: ArrayLike | None = None) -> Solution:
    """Solution(Impulses(lam, v), result, DualStats): K ∋ λ ⟂ v⁺ + Γ(v⁺) ∈ K* (NCP), or without Γ (CCP).

    `converged` where the scaled natural map of the solver's model is at most its tolerance (if it has
    none, 1e-6 m/s in float64, 1e-4 in float32), else `not_converged`. `warm_start`: λ to start from.
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
    if problem.D.ndim != 2:
        raise ArgumentError(f"solve: D has shape {problem.D.shape}. This problem is batched: vmap over it.")
    lam = jnp.zeros(m, dtype) if warm_start is None else jnp.asarray(warm_start, dtype)
    if lam.shape != (m,):
        raise ArgumentError(f"solve: warm_start has shape {lam.shape}, expected ({m},).")
    lam, v, numbers, iterations = solver_kernel(solver)(problem, lam)
    x = [numbers[k] for k in range(NUMBERS)]
    found = Residuals(x[0], x[1], x[2], x[3], x[4], x[5], row=x[6].astype(jnp.int32))
    stats = DualStats(found, iterations.astype(jnp.int32))
    worst = stats.residuals.ncp if solver.model == "ncp" else stats.residuals.ccp
    limit = solver.tolerance or TOLERANCE[jnp.dtype(dtype).itemsize]
    good = jnp.all(jnp.isfinite(lam)) & (worst <= limit)
    result = jnp.where(good, Result.converged, Result.not_converged).astype(jnp.int32)
    return Solution(Impulses(lam, v), result, stats)


def _suits(problem: Problem, solver: Solver) -> None:
    dims = problem.blocks.contacts
    solver = solver.inner if isinstance(solver, Reduced) else solver
    flat = isinstance(solver, RAISIM) or (isinstance(solver, NBGS) and solver.local_law == "dissipation")
    if flat and any(d > 3 for d in dims):
        raise ArgumentError(
            f"solve: contact {next(k for k, d in enumerate(dims) if d > 3)} has dimension {max(dims)}, but "
            f"{type(solver).__name__} searches a circle of directions. Use NBGS() or ADMM()."
        )


@lru_cache(maxsize=256)
def solver_kernel(solver: Solver):
    def run(problem: Problem, lam: Array) -> list:
        blocks = problem.blocks
        size = max(x.shape[-1] for x in jax.tree.leaves((problem, lam)))
        wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + (size,))  # noqa: E731
        D, v_f, friction, bound, lam = map(
            wide, (problem.D, problem.v_f, problem.friction, problem.bound, lam)
        )
        mu = radii(blocks, friction)
        if any(d > 3 for d in blocks.contacts):
            s = widths(blocks, friction)
            D, v_f, lam = s[:, None] * D * s[None], s * v_f, lam / jnp.where(s > 0, s, 1)
        else:
            s = None
        found = solver.run(Rows(blocks, mu, bound, D, v_f, lam))
        v, numbers = residuals(blocks, mu, bound, D, v_f, found.lam, solver.model)
        if s is None:
            return [found.lam, v, numbers, found.iterations]
        lam = s * found.lam
        return [lam, jnp.sum(wide(problem.D) * lam[None], 1) + wide(problem.v_f), numbers, found.iterations]

    shape = lambda problem, lam: [lam.shape, lam.shape, (NUMBERS,), ()]  # noqa: E731
    extent = lambda problem: (2 * max(problem.blocks.rows, 4), 2)  # noqa: E731
    made = kernel(shape, extent)(run)
    if solver.gradients != "unrolled":
        eps = solver.smoothing if solver.gradients == "smooth" else 0.0
        made.derivatives(*rules(solver.model, eps), uses_output=True)
    return made
