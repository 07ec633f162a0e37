"""A joint that follows another: gears and mimic joints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, Entry, Part
from jaxrbd.constraints.kinds.placing import Baumgarte, Options, one_entry
from jaxrbd.constraints.rows import Scene
from jaxrbd.engine.gather import gather
from jaxrbd.errors import ArgumentError
from jaxrbd.forces import joint_coordinates
from jaxrbd.joints import TYPES
from jaxrbd.model.system import System, find
from jaxrbd.typing import Array, ArrayLike, Numbers


@dataclass(frozen=True)
class Coupling(Entry):
    """x_dof = P(x_leader), P a polynomial of five numbers; a leader of -1 is nobody, and P a constant."""

    dof: int
    leader: int
    rows = 1

    @property
    def word(self) -> str:
        return "coupling"

    @property
    def joint_entries(self) -> list[tuple[int, int]]:
        return [(0, d) for d in (self.dof, self.leader) if d >= 0]

    def fits(self, sys: System) -> bool:
        return max(self.dof, self.leader) < sys.nv

    @classmethod
    def evaluate(cls, scene: Scene, which: np.ndarray) -> Part:
        """u = v_a - P' v_b,  J̇v = -P'' v_b²."""
        t, q, v = scene.sys.topology, scene.q, scene.v
        entries = [scene.con.entries[k] for k in which]
        a, b = np.array([e.dof for e in entries]), np.array([e.leader for e in entries])
        coordinate = joint_coordinates(t)
        pad = lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])])  # noqa: E731
        x = gather(pad(q), np.where(b >= 0, coordinate[b], t.nq))
        vb = gather(pad(v), np.where(b >= 0, b, t.nv))
        c = gather(scene.con.parameter, which)
        power = [c[:, 0], c[:, 1], c[:, 2], c[:, 3], c[:, 4]]
        value = power[0] + x * (power[1] + x * (power[2] + x * (power[3] + x * power[4])))
        slope = power[1] + x * (2 * power[2] + x * (3 * power[3] + x * 4 * power[4]))
        bend = 2 * power[2] + x * (6 * power[3] + x * 12 * power[4])
        one = jnp.ones((1,) + v.shape[-1:], v.dtype)
        kappa = [
            one if e.leader < 0 else jnp.concatenate([one, -slope[k : k + 1]]) for k, e in enumerate(entries)
        ]
        return Part(gather(q, coordinate[a]) - value, gather(v, a) - slope * vb, -bend * vb * vb, kappa=kappa)


def coupling(
    sys: System,
    joint: str,
    to: str | None,
    *,
    ratio: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    polynomial: Sequence[ArrayLike] | Array | np.ndarray | None = None,
    weight: Numbers = 1.0,
    baumgarte: Baumgarte | None = None,
    target: Numbers | None = None,
    name: str | None = None,
) -> Constraints:
    """q_joint = offset + ratio q_to, or a polynomial (c0, ..., c4) of q_to: one row (gears, mimic joints).

    With `to` None the joint is held at `offset`.
    """
    if (ratio is None) == (polynomial is None) and to is not None:
        raise ArgumentError(f"coupling({joint!r}): give either ratio= or polynomial=.")
    if polynomial is not None and offset is not None:
        raise ArgumentError(f"coupling({joint!r}): the polynomial has an offset already. Leave offset= out.")
    if to is None and ratio is not None:
        raise ArgumentError(f"coupling({joint!r}): a ratio needs a joint: name it in `to`, or leave it out.")
    offset = 0.0 if offset is None else offset
    if joint == to:
        raise ArgumentError(f"coupling({joint!r}): a joint cannot be coupled to itself. Name two joints.")
    numbers = list(polynomial) if polynomial is not None else [offset] if to is None else [offset, ratio]
    if not 1 <= len(numbers) <= 5:
        raise ArgumentError(
            f"coupling({joint!r}): the polynomial has {len(numbers)} numbers, expected 1 to 5."
        )
    leader = -1 if to is None else scalar_dof(sys, to)
    entry = Coupling(name or joint, scalar_dof(sys, joint), leader)
    return one_entry(sys, entry, Options(weight, baumgarte, target, name), parameter=numbers)


def scalar_dof(sys: System, joint: str) -> int:
    i = find(sys.joint_names, joint, "joint")
    if TYPES[sys.joint_types[i]].sizes != (1, 1):
        raise ArgumentError(
            f"coupling: joint {joint!r} is {sys.joint_types[i]}, expected one with a scalar coordinate."
        )
    return sys.topology.v_starts[i]
