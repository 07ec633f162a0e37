"""A linear coupling of several joints: belts that run past other joints, tendons over fixed pulleys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, Entry, Part
from jaxrbd.constraints.kinds.coupling import scalar_dof
from jaxrbd.constraints.kinds.placing import Baumgarte, Options, one_entry
from jaxrbd.constraints.rows import Scene
from jaxrbd.engine.gather import gather
from jaxrbd.errors import ArgumentError
from jaxrbd.forces import joint_coordinates
from jaxrbd.model.system import System
from jaxrbd.typing import ArrayLike, Numbers


@dataclass(frozen=True)
class LinearCoupling(Entry):
    """Sum of coefficient times x over `dofs` = offset; its parameter is (offset, coefficients)."""

    dofs: tuple[int, ...]
    rows = 1

    @property
    def word(self) -> str:
        return "linear coupling"

    @property
    def joint_entries(self) -> list[tuple[int, int]]:
        return [(0, d) for d in self.dofs]

    def fits(self, sys: System) -> bool:
        return max(self.dofs) < sys.nv

    @classmethod
    def evaluate(cls, scene: Scene, which: np.ndarray) -> Part:
        """u = Σ c v,  J̇v = 0."""
        t, q, v = scene.sys.topology, scene.q, scene.v
        coordinate = joint_coordinates(t)
        q = jnp.concatenate([q, jnp.zeros_like(q[:1])])  # of a freedom without a scalar coordinate: zero
        c = gather(scene.con.parameter, which)
        error, speed, kappa = [], [], []
        for k, e in enumerate([scene.con.entries[i] for i in which]):
            numbers = c[k, 1 : 1 + len(e.dofs)]
            dofs = np.array(e.dofs)
            error.append(jnp.sum(numbers * gather(q, coordinate[dofs]), 0) - c[k, 0])
            speed.append(jnp.sum(numbers * gather(v, dofs), 0))
            kappa.append(numbers)
        speeds = jnp.stack(speed)
        return Part(jnp.stack(error), speeds, jnp.zeros_like(speeds), kappa=kappa)


def linear(
    sys: System,
    terms: Mapping[str, ArrayLike],
    *,
    offset: ArrayLike = 0.0,
    weight: Numbers = 1.0,
    baumgarte: Baumgarte | None = None,
    target: Numbers | None = None,
    name: str | None = None,
) -> Constraints:
    """Sum of coefficient times q over `terms` (joint: coefficient) = offset: one row."""
    if not 1 <= len(terms) <= 4:
        raise ArgumentError(
            f"linear: {len(terms)} joints, expected one to four with their coefficients. For more, write the "
            'row with constraints.function, or load the model with loops="cluster".'
        )
    entry = LinearCoupling(name or "+".join(terms), tuple(scalar_dof(sys, j) for j in terms))
    numbers = [offset, *terms.values()]
    return one_entry(sys, entry, Options(weight, baumgarte, target, name), parameter=numbers)
