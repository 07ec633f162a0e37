"""Rows at the level of velocities with constant entries: matrix v = 0."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, Entry, Part
from jaxrbd.constraints.kinds.placing import Baumgarte, Options, one_entry
from jaxrbd.constraints.rows import Scene
from jaxrbd.engine.gather import gather
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System
from jaxrbd.typing import Numbers


@dataclass(frozen=True)
class VelocityRows(Entry):
    """The entries of the matrix that are not zero; their numbers stand in `coefficients`."""

    count: int
    pattern: tuple[tuple[int, int], ...]  # (row, freedom)

    @property
    def rows(self) -> int:
        return self.count

    @property
    def word(self) -> str:
        return "velocity"

    @property
    def joint_entries(self) -> tuple[tuple[int, int], ...]:
        return self.pattern

    def fits(self, sys: System) -> bool:
        return max(d for _, d in self.pattern) < sys.nv

    @classmethod
    def evaluate(cls, scene: Scene, which: np.ndarray) -> Part:
        sums, kappa, start = [], [], 0
        for k in which:
            e = scene.con.entries[k]
            kappa.append(scene.con.coefficients[start : start + len(e.pattern)])
            x = kappa[-1] * gather(scene.v, np.array([d for _, d in e.pattern]))
            start += len(e.pattern)
            for i in range(e.rows):
                sums.append(sum(x[k] for k, (row, _) in enumerate(e.pattern) if row == i))
        u = jnp.stack(sums)
        return Part(jnp.zeros_like(u), u, jnp.zeros_like(u), kappa=kappa)


def velocity_rows(
    sys: System,
    matrix: Numbers,
    *,
    weight: Numbers = 1.0,
    baumgarte: Baumgarte | None = None,
    target: Numbers | None = None,
    name: str | None = None,
) -> Constraints:
    """Rows that hold at the level of velocities, matrix (m, nv): matrix v = 0, with constant entries."""
    A = np.asarray(matrix, float)
    if A.ndim != 2 or A.shape[1] != sys.nv or not len(A) or not A.any(axis=1).all():
        raise ArgumentError(
            f"velocity_rows: matrix has shape {A.shape}, expected (m, {sys.nv}), m > 0 and no row zero."
        )
    pattern = tuple((int(i), int(j)) for i, j in zip(*np.nonzero(A)))
    entry = VelocityRows(name or "velocity_rows", len(A), pattern)
    return one_entry(sys, entry, Options(weight, baumgarte, target, name), coefficients=A[A != 0])
