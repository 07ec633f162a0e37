"""How ADMM chooses its penalty ρ: [LOOPS] Eqs. 171 and 172, and OSQP's rule.

`first(L, eta)` from the largest eigenvalue L of D; `next(rho, primal, dual, L, eta)` after every `every`
iterations. ρ is kept within [1e-6, 1e6] times L: without bounds it ran to 1e-53.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from jaxrbd.errors import ArgumentError
from jaxrbd.typing import Array


@dataclass(frozen=True)
class Penalty:
    """`every`: iterations between changes; the inverse of D + (η + ρ) is computed anew at each.

    `relative`: residuals are compared relative to the size of impulses and velocities; the document compares
    them as they are, and then a light box under a heavy one is not noticed.
    """

    every: int = 5
    relative: bool = True

    def __post_init__(self):
        if not isinstance(self.every, int) or self.every < 1:
            raise ArgumentError(
                f"{type(self).__name__}: every is {self.every!r}, expected a positive integer."
            )

    def first(self, L: Array, eta: float) -> Array:
        return L

    def next(self, rho: Array, primal: Array, dual: Array, L: Array, eta: float) -> Array:
        return rho

    @property
    def fixed(self) -> bool:
        return False


@dataclass(frozen=True)
class Fixed(Penalty):
    """ρ = `rho` times the largest mobility of a block, which preconditioning makes 1."""

    rho: float = 1.0

    def first(self, L, eta):
        return jnp.full_like(L, self.rho)

    @property
    def fixed(self) -> bool:
        return True


@dataclass(frozen=True)
class Linear(Penalty):
    """Eq. 171: times or divided by `factor` where primal and dual residual differ by more than `ratio`."""

    rho: float = 1.0
    ratio: float = 10.0
    factor: float = 1.5

    def first(self, L, eta):
        return jnp.full_like(L, self.rho)

    def next(self, rho, primal, dual, L, eta):
        return _stepped(rho, primal, dual, self.ratio, jnp.full_like(rho, self.factor))


@dataclass(frozen=True)
class Spectral(Penalty):
    """Eq. 172: from √(L m) (L / m)^`start`, times or divided by (L / m)^`power`; m = η."""

    ratio: float = 10.0
    start: float = 0.2
    power: float = 0.05

    def first(self, L, eta):
        return jnp.sqrt(L * eta) * (L / eta) ** self.start

    def next(self, rho, primal, dual, L, eta):
        return _stepped(rho, primal, dual, self.ratio, (L / eta) ** self.power)


@dataclass(frozen=True)
class Balanced(Penalty):
    """ρ times √(primal / dual) where that is beyond `ratio`."""

    rho: float = 1.0
    ratio: float = 2.0

    def first(self, L, eta):
        return jnp.full_like(L, self.rho)

    def next(self, rho, primal, dual, L, eta):
        change = jnp.sqrt(primal / jnp.where(dual > 0, dual, 1))
        change = jnp.where((dual > 0) & (primal > 0), jnp.clip(change, 0.03, 30.0), 1)
        return jnp.where((change > self.ratio) | (change < 1 / self.ratio), rho * change, rho)


def _stepped(rho, primal, dual, ratio: float, factor):
    up, down = primal > ratio * dual, dual > ratio * primal
    return jnp.where(up, rho * factor, jnp.where(down, rho / factor, rho))
