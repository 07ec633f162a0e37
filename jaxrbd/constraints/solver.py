"""What `constrained_dynamics` asks of a solver, and the settings that the proximal ones share.

Four solvers with one idea each ([CABA] Fig. 6): multipliers first (`ProxLTL`, `ProxPV`) or accelerations
first (`ProxLTLs`, `ConstrainedABA`), in joint space (`ProxLTL`, `ProxLTLs`) or along the links (`ProxPV`,
`ConstrainedABA`). All are proximal: redundant or singular rows do no harm, and rows that contradict each
other are met in the sense of least squares.
"""

from __future__ import annotations

import jax
import numpy as np

from jaxrbd.constraints.method import Found, Settings
from jaxrbd.constraints.task import Task
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import pytree, static
from jaxrbd.typing import ArrayLike

UNROLLED = 5  # iterations to differentiate unless users say how many


@pytree
class Solver:
    """A frozen value (decorate it with `rbd.pytree`) that solves  M a = f + Jᵀ lam,  J a = c.

    Subclasses write `solve`; jit, vmap, gradients and every caller of a solver then work. `gradients`:
    "implicit" differentiates the solution by one more `solve` with settings.fixed, "unrolled" the code of
    `solve` itself, which then must be free of while loops.
    """

    gradients: str = static(default="implicit", kw_only=True)

    def solve(self, task: Task, settings: Settings) -> Found:
        """Accelerations, multipliers and how it went, for leaves with the batch last (`Task`, `Found`).

        A leaf `mu` of the solver, if it has one, comes as `task.R`, times the weights of the rows.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `solve(self, task, settings)`.")

    @property
    def settings(self) -> Settings:
        """How `constrained_dynamics` calls `solve`."""
        return Settings(iterations=1, fixed=self.gradients == "unrolled")


@pytree
class Proximal(Solver):
    """Settings that the proximal solvers share.

    `mu`: penalty as in [CABA] (Pinocchio's mu is its inverse), times the weights of the rows. By default each
    row has its own, from the inertia that it moves (`penalties.py`): no tuning for grams or tons.
    `iterations`: how many; by default as many as it takes to know that the answer is right, at most 48.
    With a `tolerance` [m/s², rad/s²] each state stops where the rows are met or the accelerations rest within
    it, and `converged` means the rows alone. `adaptive`: where that does not suffice, near singular postures
    or with a small mu, penalties grow a hundredfold, twice at most, for one more factorisation each.
    `gradients`: "implicit" differentiates the solution by one more solve, with memory that does not grow with
    iterations; it takes the rows to be met, so where they contradict each other "unrolled" is right: the
    iterations themselves are differentiated, 5 of them unless you say how many.
    """

    mu: ArrayLike | None = None
    iterations: int | None = static(default=None)
    tolerance: float | None = static(default=None)
    adaptive: bool = static(default=False)

    def __post_init__(self):
        name = type(self).__name__
        numbers = (int, float, np.ndarray, np.generic, jax.Array)
        mu = self.mu if isinstance(self.mu, numbers) and not isinstance(self.mu, jax.core.Tracer) else 1.0
        if np.ndim(mu) == 0 and not 0 < float(mu) < np.inf:
            raise ArgumentError(f"{name}: mu is {mu!r}, expected a positive penalty such as 1e6.")
        if isinstance(self.mu, (int, np.number)):  # one type for JAX, which would compile anew for another
            object.__setattr__(self, "mu", float(self.mu))
        if self.iterations is not None and (not isinstance(self.iterations, int) or self.iterations < 1):
            raise ArgumentError(f"{name}: iterations is {self.iterations!r}, expected a positive integer.")
        if self.tolerance is not None and not self.tolerance > 0:
            raise ArgumentError(
                f"{name}: tolerance is {self.tolerance!r}, expected a positive number or None."
            )
        if self.gradients not in ("implicit", "unrolled"):
            raise ArgumentError(
                f"{name}: gradients is {self.gradients!r}, expected 'implicit' or 'unrolled'."
            )
        if self.gradients == "unrolled" and self.adaptive:
            raise ArgumentError(f"{name}: adaptive penalties have implicit gradients only.")
        if self.gradients == "unrolled" and self.tolerance is not None:
            raise ArgumentError(
                f"{name}: unrolled gradients need a fixed number of iterations. Leave tolerance out, or use "
                "gradients='implicit'."
            )

    @property
    def settings(self) -> Settings:
        unrolled = self.gradients == "unrolled"
        count = UNROLLED if unrolled and self.iterations is None else self.iterations
        return Settings(count, self.tolerance, self.adaptive, fixed=unrolled)
