"""[LOOPS] Algorithm 6: proximal ADMM for the NCP (Carpentier) and, without Γ and η, for the CCP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrbd.dual.cones import de_saxce, project
from jaxrbd.dual.penalties import Penalty, Spectral
from jaxrbd.dual.polish import polished
from jaxrbd.dual.residuals import largest, scaled_map
from jaxrbd.dual.scaling import Scaled, block_mobility
from jaxrbd.dual.small import inverse, times
from jaxrbd.dual.solver import Answer, Rows, Solver
from jaxrbd.errors import ArgumentError
from jaxrbd.typing import Array


class State(NamedTuple):
    """Iterates in preconditioned coordinates; the last three are of the acceleration."""

    x: Array
    y: Array
    z: Array
    lead: Array  # Nesterov's number a, (B,)
    before: tuple[Array, Array]  # y and z that were extrapolated from
    merit: Array  # (B,)


SPECTRAL = Spectral(every=5)
POLISH = 3  # with a matrix; there is none on an operator


@dataclass(frozen=True)
class ADMM(Solver):
    """All rows at once: a linear solve with D + (η + ρ), a projection, a step of the dual variable.

    For loops, stacks, redundant rows and large mass ratios, where sweeps over contacts crawl.
    `law`: "ncp" or "ccp"; `penalty`: `Fixed`, `Linear`, `Spectral` or `Balanced`; `omega`: over-relaxation;
    `precondition`: blocks are scaled to a mobility of one; `accelerate`: Nesterov's extrapolation, restarted
    where it does not pay; `polish`: at most so many steps of Newton's method at the end, each kept where it
    lowers the residual (None: 3, and none on an operator, which has no matrix).
    """

    iterations: int = 100
    law: str = "ncp"
    penalty: Penalty = SPECTRAL
    omega: float = 1.6
    eta: float = 1e-6
    precondition: bool = True
    accelerate: bool = False
    polish: int | None = None

    def __post_init__(self):
        super().__post_init__()
        self.option("law", ("ccp", "ncp"))
        if not isinstance(self.penalty, Penalty):
            raise ArgumentError(
                f"ADMM: penalty is {self.penalty!r}, expected dual.Fixed(), Linear(), Spectral() or "
                "Balanced()."
            )
        if not 0 < self.omega < 2:
            raise ArgumentError(f"ADMM: omega is {self.omega!r}, expected in (0, 2).")
        if self.polish is not None and (not isinstance(self.polish, int) or self.polish < 0):
            raise ArgumentError(f"ADMM: polish is {self.polish!r}, expected 0, 1, 2, ... or None.")
        if not self.eta > 0:
            raise ArgumentError(f"ADMM: eta is {self.eta!r}, expected a small positive number.")

    @property
    def model(self) -> str:
        return self.law

    def run(self, rows: Rows) -> Answer:
        d = block_mobility(rows.blocks, rows.D)
        p = 1 / jnp.sqrt(d) if self.precondition else jnp.ones_like(rows.v_f)
        y, used = self.iterate(dense(rows, p), p, d, rows.bound)
        steps = POLISH if self.polish is None else self.polish
        return Answer(polished(rows, p * y, self.law, steps) if steps else p * y, used)

    def iterate(self, mine: Scaled, p: Array, d: Array, bound: Array) -> tuple[Array, Array]:
        """y = λ / p and iterations; `d` and `bound` are those of the problem without preconditioning."""
        eta = self.eta if self.law == "ncp" else 0.0
        top = lax.stop_gradient(largest_eigenvalue(mine))
        start = mine.lam
        z = mine.apply(start) + mine.v_f
        z = z + self.lift(mine, z)
        one, zero = jnp.ones_like(top), jnp.full_like(top, jnp.inf)
        state = State(start, start, z, one, (start, z), zero)
        rho = jnp.clip(self.penalty.first(top, self.eta), 1e-6 * top, 1e6 * top)
        single = self.penalty.fixed and self.tolerance is None
        every = self.iterations if single else min(self.penalty.every, self.iterations)

        def stretch(state, rho, count: int):
            """`count` iterations with one penalty."""
            solve = mine.factor(eta + rho)
            return lax.fori_loop(0, count, lambda _, s: self.step(mine, solve, rho, eta, s), state)

        def adapted(state, rho):
            v = mine.apply(state.x) + mine.v_f + self.lift(mine, state.z)
            primal, dual = largest(state.x - state.y), largest(v - state.z)
            if self.penalty.relative:
                primal = primal / (jnp.maximum(largest(state.x), largest(state.y)) + 1e-30)
                dual = dual / (jnp.maximum(largest(state.z), largest(mine.v_f)) + 1e-30)
            new = self.penalty.next(rho, primal, dual, top, self.eta)
            return lax.stop_gradient(jnp.clip(new, 1e-6 * top, 1e6 * top))

        if self.tolerance is None:
            full, rest = divmod(self.iterations, every)

            def change(_, both):
                state = stretch(both[0], both[1], every)
                return state, adapted(state, both[1])

            if full > 1 or (full and rest):
                state, rho = lax.fori_loop(0, full - (not rest), change, (state, rho))
            state = stretch(state, rho, rest or every)
            return state.y, jnp.full_like(top, self.iterations)

        def settled(y):
            v = (mine.apply(y) + mine.v_f) / jnp.where(p > 0, p, 1)
            v = v + self.lift(mine, v)
            return largest(scaled_map(mine.blocks, mine.mu, bound, d, p * y, v)) <= self.tolerance

        def more(loop):
            i, *_, done, _ = loop
            return (i < self.iterations) & ~jnp.all(done)

        def advance(loop):
            i, state, rho, done, used = loop
            new = stretch(state, rho, every)
            keep = lambda old, new: jnp.where(done, old, new)  # noqa: E731
            new = jax.tree.map(keep, state, new)
            rho = keep(rho, adapted(new, rho))
            return i + every, new, rho, done | settled(new.y), used + jnp.where(done, 0, every)

        nobody = jnp.zeros(top.shape, bool)
        loop = (jnp.asarray(0), state, rho, nobody, jnp.zeros_like(top))
        _, state, _, _, used = lax.while_loop(more, advance, loop)
        return state.y, jnp.minimum(used, self.iterations)

    def lift(self, rows: Scaled, v: Array) -> Array:
        return de_saxce(rows.blocks, rows.mu, v) if self.law == "ncp" else jnp.zeros_like(v)

    def step(
        self, rows: Scaled, solve: Callable[[Array], Array], rho: Array, eta: float, now: State
    ) -> State:
        """[LOOPS] Algorithm 6, lines 4 to 9. Γ from z: no product with D."""
        s = self.lift(rows, now.z)
        x = -solve(rows.v_f + s - eta * now.x - rho * now.y - now.z)
        relaxed = self.omega * x + (1 - self.omega) * now.y
        y = project(rows.blocks, rows.mu, rows.bound, relaxed - now.z / rho)
        z = now.z - rho * (relaxed - y)
        if not self.accelerate:
            return now._replace(x=x, y=y, z=z)
        y0, z0 = now.before
        merit = jnp.sum((z - now.z) ** 2, 0) / rho + rho * jnp.sum((y - now.y) ** 2, 0)
        good = merit < 0.999 * now.merit
        lead = jnp.where(good, (1 + jnp.sqrt(1 + 4 * now.lead**2)) / 2, 1)
        pull = jnp.where(good, (now.lead - 1) / lead, 0)
        return State(
            x, y + pull * (y - y0), z + pull * (z - z0), lead, (y, z), jnp.where(good, merit, now.merit)
        )


def dense(rows: Rows, p: Array) -> Scaled:
    """The problem of λ / p, (m, B), equal within a block: every block's largest mobility is one."""
    blocks = rows.blocks
    D = p[:, None] * rows.D * p[None]
    eye = jnp.eye(blocks.rows, dtype=p.dtype)[:, :, None]

    def factor(delta):
        A = inverse(D + delta * eye)
        return lambda b: times(A, b)

    bound = rows.bound / p[blocks.first_box : blocks.first_contact]
    return Scaled(blocks, rows.mu, bound, p * rows.v_f, rows.lam / p, lambda x: times(D, x), factor)


def largest_eigenvalue(mine: Scaled, iterations: int = 12) -> Array:
    """Of D by power iteration from a fixed start, (B,)."""
    like = mine.v_f
    x = 1 + 0.5 * jnp.sin(1.0 + 7.0 * jnp.arange(len(like), dtype=like.dtype))[:, None] + 0 * like

    def once(_, both):
        x, _ = both
        y = mine.apply(x)
        size = jnp.sqrt(jnp.sum(y * y, 0))
        return y / jnp.where(size > 0, size, 1), size / jnp.sqrt(jnp.sum(x * x, 0))

    found = lax.fori_loop(0, iterations, once, (x, jnp.zeros(like.shape[1:], like.dtype)))[1]
    return jnp.where(found > 0, found, 1)
