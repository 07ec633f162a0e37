"""[PROX]'s classic resolution without damping, for comparison."""

from __future__ import annotations

import jax.numpy as jnp

from jaxrbd.constraints.joint_space import dense_jacobian, moving, on_mass_factor
from jaxrbd.constraints.method import Found, Settings
from jaxrbd.constraints.prox_ltl import damped_inverse
from jaxrbd.constraints.solver import Proximal
from jaxrbd.constraints.task import Task
from jaxrbd.model.system import pytree, static
from jaxrbd.solution import Result


@pytree
class Classic(Proximal):
    """lam = (J M^-1 Jᵀ)^-1 (c - J a_free), [PROX]: it fails, and says so, where rows depend on each other.

    A second time with the residuals of the first tells whether it did; what misses the rows is not even the
    least-squares answer.
    """

    iterations: int = static(default=1)

    @property
    def settings(self) -> Settings:
        return Settings(2, fixed=True)

    def solve(self, task: Task, settings: Settings) -> Found:
        undamped = lambda mobility, _: jnp.full_like(mobility, jnp.inf)  # noqa: E731
        found = on_mass_factor(task, settings, damped_inverse, undamped)
        # a row that nothing moves is rounding, and so is its multiplier, though the second time repeats both
        right = (found.verdict == Result.converged) & jnp.all(moving(dense_jacobian(task)), 0)
        verdict = jnp.where(right, found.verdict, Result.not_converged)
        return found._replace(verdict=verdict.astype(found.verdict.dtype))
