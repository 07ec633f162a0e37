"""[LOOPS] Algorithm 6: proximal ADMM for the NCP (Carpentier) and, without Γ and η, for the CCP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrbd.dual.cones import de_saxce, project
from jaxrbd.dual.penalties import Penalty, Spectral
from jaxrbd.dual.problem import block_mobility
from jaxrbd.dual.residuals import largest, scaled_map
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


@dataclass(frozen=True)
class ADMM(Solver):
    """All rows at once: a linear solve with D + (η + ρ), a projection, a step of the dual variable.

    For loops, stacks, redundant rows and large mass ratios, where sweeps over contacts crawl.
    `law`: "ncp" or "ccp"; `penalty`: `Fixed`, `Linear`, `Spectral` or `Balanced`; `omega`: over-relaxation;
    `precondition`: blocks are scaled to a mobility of one; `accelerate`: Nesterov's extrapolation, restarted
    where it does not pay.
    """

    iterations: int = 100
    law: str = "ncp"
    penalty: Penalty = SPECTRAL
    omega: float = 1.6
    eta: float = 1e-6
    precondition: bool = True
    accelerate: bool = False

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
        if not self.eta > 0:
            raise ArgumentError(f"ADMM: eta is {self.eta!r}, expected a small positive number.")

    @property
    def model(self) -> str:
        return self.law

    def run(self, rows: Rows) -> Answer:
        p, mine = preconditioned(rows) if self.precondition else (jnp.ones_like(rows.v_f), rows)
        eta = self.eta if self.law == "ncp" else 0.0
        top = lax.stop_gradient(largest_eigenvalue(mine.D))
        start = mine.lam
        z = times(mine.D, start) + mine.v_f
        z = z + self.lift(mine, z)
        one, zero = jnp.ones_like(top), jnp.full_like(top, jnp.inf)
        state = State(start, start, z, one, (start, z), zero)
        rho = jnp.clip(self.penalty.first(top, self.eta), 1e-6 * top, 1e6 * top)
        single = self.penalty.fixed and self.tolerance is None
        every = self.iterations if single else min(self.penalty.every, self.iterations)
        eye = jnp.eye(rows.blocks.rows, dtype=p.dtype)[:, :, None]
        d = block_mobility(rows.blocks, rows.D)

        def stretch(state, rho, count: int):
            """`count` iterations with one penalty."""
            A = inverse(mine.D + (eta + rho) * eye)
            return lax.fori_loop(0, count, lambda _, s: self.step(mine, A, rho, eta, s), state)

        def adapted(state, rho):
            v = times(mine.D, state.x) + mine.v_f + self.lift(mine, state.z)
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
            return Answer(p * state.y, jnp.full_like(top, self.iterations))

        def settled(lam):
            v = times(rows.D, lam) + rows.v_f
            v = v + self.lift(rows, v)
            return largest(scaled_map(rows.blocks, rows.mu, rows.bound, d, lam, v)) <= self.tolerance

        def more(loop):
            i, *_, done, _ = loop
            return (i < self.iterations) & ~jnp.all(done)

        def advance(loop):
            i, state, rho, done, used = loop
            new = stretch(state, rho, every)
            keep = lambda old, new: jnp.where(done, old, new)  # noqa: E731
            new = jax.tree.map(keep, state, new)
            rho = keep(rho, adapted(new, rho))
            return i + every, new, rho, done | settled(p * new.y), used + jnp.where(done, 0, every)

        nobody = jnp.zeros(top.shape, bool)
        loop = (jnp.asarray(0), state, rho, nobody, jnp.zeros_like(top))
        _, state, _, _, used = lax.while_loop(more, advance, loop)
        return Answer(p * state.y, jnp.minimum(used, self.iterations))

    def lift(self, rows: Rows, v: Array) -> Array:
        return de_saxce(rows.blocks, rows.mu, v) if self.law == "ncp" else jnp.zeros_like(v)

    def step(self, rows: Rows, A: Array, rho: Array, eta: float, now: State) -> State:
        """[LOOPS] Algorithm 6, lines 4 to 9. Γ from z, not from v⁺(y), with which it diverged."""
        s = self.lift(rows, now.z)
        x = -times(A, rows.v_f + s - eta * now.x - rho * now.y - now.z)
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


def preconditioned(rows: Rows) -> tuple[Array, Rows]:
    """p (m, B), equal within a block, and the problem of λ / p: every block's largest mobility is one."""
    blocks = rows.blocks
    p = 1 / jnp.sqrt(block_mobility(blocks, rows.D))
    bound = rows.bound / p[blocks.first_box : blocks.first_contact]
    D = p[:, None] * rows.D * p[None]
    return p, rows._replace(D=D, v_f=p * rows.v_f, bound=bound, lam=rows.lam / p)


def largest_eigenvalue(D: Array, iterations: int = 12) -> Array:
    """By power iteration from a fixed start, (B,); no smaller than the largest diagonal entry."""
    m = D.shape[0]
    x = 1 + 0.5 * jnp.sin(1.0 + 7.0 * jnp.arange(m, dtype=D.dtype))[:, None] + 0 * D[:, 0]

    def once(_, both):
        x, _ = both
        y = times(D, x)
        size = jnp.sqrt(jnp.sum(y * y, 0))
        return y / jnp.where(size > 0, size, 1), size / jnp.sqrt(jnp.sum(x * x, 0))

    found = lax.fori_loop(0, iterations, once, (x, jnp.zeros(D.shape[2:], D.dtype)))[1]
    return jnp.where(found > 0, found, 1)
