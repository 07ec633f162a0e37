"""Joints eliminated exactly, the rest by another solver.

With E the rows of joints and R the others,  D_EE λ_E = -(v_E + D_ER λ_R)  leaves for the rest

    D' = D_RR - D_RE D_EE⁻¹ D_ER,   v' = v_R - D_RE D_EE⁻¹ v_E,

the problem that minimal coordinates would have had. Loops may hold a direction more than once: D_EE is then
singular, and the inverse that of D_EE + ε, refined, which is right for all that D_EE can do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import jax
import jax.numpy as jnp

from jaxrbd.dual.blocks import Blocks
from jaxrbd.dual.scaling import diagonal
from jaxrbd.dual.small import inverse, times
from jaxrbd.dual.solver import Answer, Rows, Solver
from jaxrbd.dual.splitting import NBGS
from jaxrbd.errors import ArgumentError
from jaxrbd.typing import Array

DAMPING = {8: 1e-9, 4: 1e-5}  # ε, of a mobility; by bytes of a number
REFINEMENTS = 3
SWEEPS = NBGS()


@dataclass(frozen=True)
class Reduced(Solver):
    """For maximal coordinates, long chains of joints and stiff rows of joints: what `inner` sees has none.

    Costs a dense inverse of the rows of joints. Everything else (iterations, tolerance, gradients) is
    `inner`'s.
    """

    iterations: int = field(init=False, default=1)
    tolerance: float | None = field(init=False, default=None)
    gradients: str = field(init=False, default="implicit")
    smoothing: float = field(init=False, default=1e-2)
    warm_scale: float = field(init=False, default=1.0)
    inner: Solver = SWEEPS

    def __post_init__(self):
        if not isinstance(self.inner, Solver) or isinstance(self.inner, Reduced):
            raise ArgumentError(
                f"Reduced: inner is {self.inner!r:.80}, expected another solver such as dual.NBGS()."
            )
        for shared in fields(Solver):
            object.__setattr__(self, shared.name, getattr(self.inner, shared.name))

    @property
    def model(self) -> str:
        return self.inner.model

    def run(self, rows: Rows) -> Answer:
        blocks, m = rows.blocks, rows.blocks.first_limit
        if not m:
            return self.inner.run(rows)
        D, v = rows.D, rows.v_f
        right = jnp.concatenate([D[:m, m:], v[:m, None]], 1)
        solved = solve_joints(D[:m, :m], right)
        X, x = solved[:, :-1], solved[:, -1]
        rest = Blocks((), blocks.limits, blocks.boxes, blocks.contacts)
        if not rest.rows:
            return Answer(-x, jnp.ones_like(v[0]))
        small = D[m:, m:] - product(D[m:, :m], X)
        small = 0.5 * (small + jnp.swapaxes(small, 0, 1))
        found = self.inner.run(
            Rows(rest, rows.mu, rows.bound, small, v[m:] - times(D[m:, :m], x), rows.lam[m:])
        )
        return Answer(jnp.concatenate([-x - times(X, found.lam), found.lam]), found.iterations)


def solve_joints(A: Array, b: Array) -> Array:
    """A^-1 b, (m, m, B) and (m, n, B), where A may be singular and b within its range."""
    size = diagonal(A)
    p = 1 / jnp.sqrt(jnp.where(size > 0, size, 1))
    scaled, b = p[:, None] * A * p[None], p[:, None] * b
    eps = DAMPING[A.dtype.itemsize]
    inv = inverse(scaled + eps * jnp.eye(A.shape[0], dtype=A.dtype)[:, :, None])
    x = product(inv, b)
    for _ in range(REFINEMENTS):
        x = x + product(inv, b - product(scaled, x))
    return p[:, None] * x


def product(A: Array, B: Array) -> Array:
    """(k, n, ...) times (n, l, ...)."""
    return jax.vmap(lambda column: times(A, column), 1, 1)(B)
