"""Solvers as kernels: a problem in, λ and what is known of it out, with derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from jaxrbd.dual.implicit import rules
from jaxrbd.dual.problem import Problem
from jaxrbd.dual.residuals import NUMBERS, measured
from jaxrbd.dual.scaling import block_mobility, radii, widths
from jaxrbd.dual.small import times
from jaxrbd.dual.solver import Answer, Rows, Solver
from jaxrbd.engine.kernel import kernel
from jaxrbd.typing import Array


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
        v, d = times(D, found.lam) + v_f, block_mobility(blocks, D)
        numbers, kinds = measured(blocks, mu, bound, d, found.lam, v, solver.model)
        if s is None:
            return [found.lam, v, numbers, found.iterations, kinds]
        lam = s * found.lam
        return [lam, times(wide(problem.D), lam) + wide(problem.v_f), numbers, found.iterations, kinds]

    def shape(problem, lam):
        b = problem.blocks
        return [lam.shape, lam.shape, (NUMBERS,), (), (b.limits + b.boxes + len(b.contacts),)]

    extent = lambda problem: (2 * max(problem.blocks.rows, 4), 2)  # noqa: E731
    made = kernel(shape, extent)(run)
    if solver.gradients != "unrolled":
        eps = solver.smoothing if solver.gradients == "smooth" else 0.0
        made.derivatives(*rules(solver.model, eps), uses_output=True)
    return made


@dataclass(frozen=True)
class _Given(Solver):
    """The λ it is given, which others have found: for its derivative."""

    law: str = "ncp"

    @property
    def model(self) -> str:
        return self.law

    def run(self, rows: Rows) -> Answer:
        return Answer(rows.lam, jnp.zeros(rows.lam.shape[1:], rows.lam.dtype))


def given_kernel(model: str, eps: float):
    """A kernel whose derivatives are those of the solution at the λ that it gets."""
    how: dict[str, Any] = {"gradients": "smooth", "smoothing": eps} if eps else {}
    return solver_kernel(_Given(law=model, **how))
