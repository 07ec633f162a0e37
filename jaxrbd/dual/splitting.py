"""[LOOPS] Algorithm 5: joints, limits, boxes and contacts in turn, each by its own block of D (Gauss-Seidel).

PGS, NBGS and RAISIM differ in what they do with one contact (`local.py`) and in whether that hears of the De
Saxcé term of its own velocity.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrbd.dual.blocks import Blocks
from jaxrbd.dual.cones import de_saxce, norm
from jaxrbd.dual.local import ConeStep, ConicSection, Contact, ExactCoulomb, Local, NormalThenTangent
from jaxrbd.dual.residuals import largest, scaled_map
from jaxrbd.dual.scaling import block_mobility
from jaxrbd.dual.small import damped_inverse, times
from jaxrbd.dual.solver import Answer, Rows, Solver
from jaxrbd.errors import ArgumentError
from jaxrbd.typing import Array


class Part(NamedTuple):
    """Blocks of one kind, handled one after the other: what each of them needs, first axis the block."""

    answer: Any  # (what one block needs, its λ, its velocity without itself) -> λ
    xs: tuple
    size: int


@dataclass(frozen=True)
class Splitting(Solver):
    """What PGS, NBGS and RAISIM share.

    `omega`: relaxation of the first sweep; times `decay` after every sweep, never below `omega_min`.
    """

    omega: float = 1.0
    decay: float = 1.0
    omega_min: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        name = type(self).__name__
        for key, high in (("omega", 2.0), ("decay", 1.0), ("omega_min", 2.0)):
            if not 0 < getattr(self, key) <= high:
                raise ArgumentError(f"{name}: {key} is {getattr(self, key)!r}, expected in (0, {high:g}].")

    @property
    @abstractmethod
    def local(self) -> Local:
        """What is done with one contact."""

    @property
    def lifts(self) -> bool:
        """Whether a contact's local problem has the De Saxcé term."""
        return False

    def settled(self, rows: Rows, d: Array, before: Array, lam: Array) -> Array:
        """Where to stop: (B,) flags."""
        del before
        v = times(rows.D, lam) + rows.v_f
        if self.model == "ncp":
            v = v + de_saxce(rows.blocks, rows.mu, v)
        return largest(scaled_map(rows.blocks, rows.mu, rows.bound, d, lam, v)) <= self.tolerance

    def run(self, rows: Rows) -> Answer:
        parts = parts_of(rows, self.local, self.lifts)
        count = rows.lam.shape[1:]

        def sweep(i, lam):
            omega = jnp.maximum(self.omega_min, self.omega * self.decay**i)
            for part in parts:
                lam = over_blocks(part, lam, omega.astype(lam.dtype))
            return lam

        if self.tolerance is None:
            lam = lax.fori_loop(0, self.iterations, lambda i, lam: sweep(i, lam), rows.lam)
            return Answer(lam, jnp.full(count, self.iterations, lam.dtype))
        d = block_mobility(rows.blocks, rows.D)

        def more(state):
            i, _, done, _ = state
            return (i < self.iterations) & ~jnp.all(done)

        def step(state):
            i, lam, done, used = state
            new = jnp.where(done, lam, sweep(i, lam))
            used = used + jnp.where(done, 0, 1)
            return i + 1, new, done | self.settled(rows, d, lam, new), used

        nobody = jnp.zeros(count, bool)
        start = (jnp.asarray(0), rows.lam, nobody, jnp.zeros(count, rows.lam.dtype))
        _, lam, _, used = lax.while_loop(more, step, start)
        return Answer(lam, used)


def over_blocks(part: Part, lam: Array, omega: Array) -> Array:
    """One block after the other; λ_k ← (1 - ω) λ_k + ω (its answer to the velocity that the others cause)."""

    def visit(lam, x):
        start, D, v_f, *own = x
        mine = lax.dynamic_slice_in_dim(lam, start, part.size)
        block = lax.dynamic_slice_in_dim(D, start, part.size, 1)
        b = v_f + times(D, lam) - times(block, mine)  # [LOOPS] Alg. 5, lines 4, 9, 15
        new = part.answer(own, mine, b)
        return lax.dynamic_update_slice_in_dim(lam, mine + omega * (new - mine), start, 0), None

    return lax.scan(visit, lam, part.xs)[0]


def parts_of(rows: Rows, local: Local, lifts: bool) -> list[Part]:
    blocks, D, v_f = rows.blocks, rows.D, rows.v_f
    parts = [joint_part(rows, start, size, count) for start, size, count in joint_runs(blocks)]
    if blocks.limits:
        parts.append(scalar_part(rows, blocks.first_limit, blocks.limits, _one_sided, ()))
    if blocks.boxes:
        parts.append(scalar_part(rows, blocks.first_box, blocks.boxes, _boxed, (rows.bound,)))
    for run in blocks.runs:
        if run.dim == 1:
            parts.append(scalar_part(rows, run.row, run.number, _one_sided, ()))
            continue
        starts, own_rows, own_v = cut(D, v_f, run.row, run.number, run.dim)
        mu = rows.mu[run.contact : run.contact + run.number]
        square = own_blocks(own_rows, starts, run.dim)  # (n, d, d, B)
        ready = local.prepare(jnp.moveaxis(square, 0, 2), mu)
        ready = tuple(jnp.moveaxis(x, -2, 0) for x in ready)

        def answer(own, lam, b):
            square, mu, *ready = own
            lift = jnp.zeros_like(mu)
            if lifts:  # Algorithm 5, line 16
                lift = mu * norm((times(square, lam) + b)[:-1], 0)
            return local.answer(Contact(square, mu, tuple(ready)), lam, b, lift)

        parts.append(Part(answer, (starts, own_rows, own_v, square, mu, *ready), run.dim))
    return parts


def joint_runs(blocks: Blocks) -> list[tuple[int, int, int]]:
    """(first row, rows of each, how many) of joints of one size that follow each other."""
    found: list[tuple[int, int, int]] = []
    row = 0
    for size in blocks.joints:
        if found and found[-1][1] == size:
            found[-1] = (found[-1][0], size, found[-1][2] + 1)
        else:
            found.append((row, size, 1))
        row += size
    return found


def joint_part(rows: Rows, start: int, size: int, count: int) -> Part:
    starts, own_rows, own_v = cut(rows.D, rows.v_f, start, count, size)
    square = jnp.moveaxis(own_blocks(own_rows, starts, size), 0, 2)
    eps = float(np.finfo(rows.D.dtype).eps)
    inverse = jnp.moveaxis(damped_inverse(square, 16 * eps), 2, 0)
    answer = lambda own, lam, b: -times(own[0], b)  # noqa: E731
    return Part(answer, (starts, own_rows, own_v, inverse), size)


def scalar_part(rows: Rows, start: int, count: int, rule, more: tuple) -> Part:
    starts, own_rows, own_v = cut(rows.D, rows.v_f, start, count, 1)
    mobility = own_blocks(own_rows, starts, 1)[:, 0, 0]
    give = jnp.where(mobility > 0, 1 / jnp.where(mobility > 0, mobility, 1), 0)
    answer = lambda own, lam, b: rule(-own[0] * b, *own[1:])  # noqa: E731
    return Part(answer, (starts, own_rows, own_v, give, *more), 1)


def _one_sided(lam):
    return jnp.maximum(lam, 0)


def _boxed(lam, bound):
    return jnp.clip(lam, -bound, bound)


def cut(D: Array, v_f: Array, start: int, count: int, size: int):
    """First rows (n,), rows of D (n, size, m, B) and of v_f (n, size, B) of blocks of one size."""
    end = start + count * size
    own = D[start:end].reshape((count, size) + D.shape[1:])
    return start + size * jnp.arange(count), own, v_f[start:end].reshape((count, size) + v_f.shape[1:])


def own_blocks(own: Array, starts: Array, size: int) -> Array:
    """The diagonal blocks, (n, size, size, B), of rows (n, size, m, B)."""
    return jax.vmap(lambda D, start: lax.dynamic_slice_in_dim(D, start, size, 1))(own, starts)


# --- the solvers ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PGS(Splitting):
    """Projected Gauss-Seidel: `law="ccp"` after Tasora (Algorithm 2), "ncp" (Algorithm 3).

    `step="printed"` takes the steps of the document, with which some problems never converge.
    `de_saxce`: Table I gives PGS-CCP that term, VI-E does not; with it, it solves the NCP.
    """

    law: str = "ncp"
    step: str = "largest"
    de_saxce: bool = False

    def __post_init__(self):
        super().__post_init__()
        self.option("law", ("ccp", "ncp"))
        self.option("step", ("largest", "printed"))

    @property
    def model(self) -> str:
        return "ncp" if self.law == "ncp" or self.de_saxce else "ccp"

    @property
    def lifts(self) -> bool:
        return self.law == "ccp" and self.de_saxce

    @property
    def local(self) -> Local:
        printed = self.step == "printed"
        return ConeStep(printed) if self.law == "ccp" else NormalThenTangent(printed)


@dataclass(frozen=True)
class NBGS(Splitting):
    """Nonlinear block Gauss-Seidel: every contact is solved for good, the others held.

    `local_law="coulomb"` solves the contact's own NCP and is what to use for robots on their feet;
    "dissipation" is the document's (Preclik), which is not an NCP solution where a contact's normal and
    tangents are coupled.
    """

    iterations: int = 8
    local_law: str = "coulomb"

    def __post_init__(self):
        super().__post_init__()
        self.option("local_law", ("coulomb", "dissipation"))

    @property
    def model(self) -> str:
        return "ncp"

    @property
    def local(self) -> Local:
        return ExactCoulomb() if self.local_law == "coulomb" else ConicSection("all")


@dataclass(frozen=True)
class RAISIM(Splitting):
    """Hwangbo's solver: the conic section by bisection; `de_saxce` as amended by Le Lidec (RAISIM-DS).

    `early_stopping`: stop where the objective ½ λᵀDλ + λᵀv_f changes by less than this share (RAISIM-DS-ES),
    instead of where the residual is small.
    """

    de_saxce: bool = False
    early_stopping: float | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.early_stopping is not None:
            if not self.early_stopping > 0:
                raise ArgumentError(
                    f"RAISIM: early_stopping is {self.early_stopping!r}, expected a positive number or None."
                )
            if self.tolerance is None:
                raise ArgumentError(
                    "RAISIM: early_stopping needs a tolerance, by which the answer is judged."
                )

    @property
    def model(self) -> str:
        return "ncp"

    @property
    def lifts(self) -> bool:
        return self.de_saxce

    @property
    def local(self) -> Local:
        return ConicSection("bisection")

    def settled(self, rows, d, before, lam):
        if self.early_stopping is None:
            return super().settled(rows, d, before, lam)
        energy = lambda x: jnp.sum(x * (0.5 * times(rows.D, x) + rows.v_f), 0)  # noqa: E731
        old, new = energy(before), energy(lam)
        return jnp.abs(new - old) <= self.early_stopping * jnp.abs(new)
