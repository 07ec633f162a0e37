"""Constraints as data: what is held together, with every number a differentiable leaf.

A `Constraints` holds any number of constraints, one after another; `combine` (or a list) joins several.
Each constraint ties frame A to frame B, which may be the world, or joints to each other, and owns some of
the rows of

    J(q) a + J̇(q, v) v = a*,      a* = target - damping (J v) - stiffness phi(q)     (Baumgarte)

What the rows are is known to its kind, a subclass of `Entry`, one file per kind in `kinds/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.errors import ArgumentError
from jaxrbd.model.dtypes import resolve_dtype
from jaxrbd.model.system import System, Topology, find, pytree, static
from jaxrbd.tree.opening import tree_of
from jaxrbd.tree.spatial import Force
from jaxrbd.typing import Array, DTypeLike


class Part(NamedTuple):
    """Rows of one family of constraints; an axis of the batch may be 1 where nothing depends on it."""

    phi: Any  # (n, B)
    u: Any  # J v
    gamma: Any  # J a + J̇v of rows on bodies, J̇v of rows on joints
    KA: Force | None = None  # (n, B) wrenches on body A, in the axes of its node
    KB: Force | None = None
    kappa: Any = None  # one (entries, B) per constraint: the numbers of its `joint_entries`


@dataclass(frozen=True)
class Entry(ABC):
    """The static part of one constraint. Its class is its kind: what its rows are and where they act.

    Constraints of one `family` are evaluated together. A kind is a frozen dataclass, so that it can be
    compared and hashed: programs are compiled once per topology and tuple of entries.
    """

    name: str
    placed = True  # False: held to the world where it is, so that phi means nothing

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many."""

    @property
    @abstractmethod
    def word(self) -> str:
        """What a reader would call it."""

    @property
    def family(self) -> type[Entry]:
        """The class whose `evaluate` serves this constraint."""
        return type(self)

    @classmethod
    @abstractmethod
    def evaluate(cls, scene, which: np.ndarray) -> Part:
        """Rows of the constraints `which`, all of this family, in the order of `places`.

        `scene`: the System, the constraints, and the state (`rows.Scene`), batch last.
        """

    @classmethod
    def places(cls, entries: Sequence[Entry]) -> tuple[list[list[int]], int]:
        """Where the rows of each constraint stand in what `evaluate` gives, and how many stand there."""
        starts = np.cumsum([0, *(e.rows for e in entries)])
        return [list(range(s, s + e.rows)) for s, e in zip(starts, entries)], int(starts[-1])

    def bodies(self, t: Topology) -> tuple[int, int]:
        """A and B, -1 for the world and where rows act on joints."""
        return -1, -1

    @property
    def joint_entries(self) -> Sequence[tuple[int, int]]:
        """(row, freedom) of the entries on joints, in the order of `Part.kappa`."""
        return ()

    @abstractmethod
    def fits(self, sys: System) -> bool:
        """Whether the System has what this constraint names."""


@pytree
class Constraints:
    """Any number of constraints; make them with the functions of `kinds/`."""

    entries: tuple[Entry, ...] = static()
    position_a: jax.Array  # (nc, 3) where the constraint sits in frame A
    quaternion_a: jax.Array  # (nc, 4)
    position_b: jax.Array  # (nc, 3) and in frame B or in the world
    quaternion_b: jax.Array  # (nc, 4)
    parameter: jax.Array  # (nc, 5) length, radius, or the polynomial of a coupling
    coefficients: jax.Array  # (ne,) entries of velocity rows
    weight: jax.Array  # (m,) one per row, or (nc,) one per constraint: decides where rows contradict
    stiffness: jax.Array  # (nc,) Baumgarte, 1/s²
    damping: jax.Array  # (nc,) Baumgarte, 1/s
    target: jax.Array  # (m,) acceleration wanted beside Baumgarte's
    params: tuple[Any, ...]  # (nc,) pytrees: what a user's function reads, None of other kinds

    @property
    def rows(self) -> int:
        """m, the number of scalar rows."""
        return sum(e.rows for e in self.entries)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(e.name for e in self.entries)

    def row_index(self, name: str) -> slice:
        """Where a constraint's rows (and multipliers) stand."""
        i = find(self.names, name, "constraint")
        if self.names.count(name) > 1:
            raise ArgumentError(
                f"{self.names.count(name)} constraints are named {name!r}. Tell them apart with name=."
            )
        start = sum(e.rows for e in self.entries[:i])
        return slice(start, start + self.entries[i].rows)

    def replace(self, **leaves: Any) -> Constraints:
        """A copy with some leaves exchanged."""
        return dataclass_replace(self, **leaves)

    def astype(self, dtype: DTypeLike) -> Constraints:
        """A copy in another precision, for a System in that precision."""
        target = resolve_dtype(dtype)
        return jax.tree.map(lambda x: jnp.asarray(x, target), self)

    def __repr__(self) -> str:
        shown = [f"{e.word} {e.name!r} {e.rows}" for e in self.entries[:6]]
        more = [f"and {len(self.entries) - 6} more"] if len(self.entries) > 6 else []
        shape: tuple[int, ...] = getattr(self.weight, "shape", ())
        batch = f", batch={shape[0]}" if len(shape) == 2 else ""
        return f"Constraints({self.rows} rows: {', '.join(shown + more)}{batch})"


ConstraintsLike = Constraints | Sequence[Constraints]  # what functions take: a set, or several


def combine(*constraints: Constraints) -> Constraints:
    """Several sets as one, in the given order."""
    if not constraints:
        raise ArgumentError("combine: no constraints given. Use forward_dynamics for a free system.")
    for c in constraints:
        if not isinstance(c, Constraints):
            raise ArgumentError(
                f"constraints hold {c!r}, expected what rbd.constraints.weld and others give."
            )
    join = lambda *leaves: jnp.concatenate(leaves)  # noqa: E731
    parts = [c.replace(weight=row_weights(c.entries, c.weight), params=()) for c in constraints]
    leaves = jax.tree.map(join, *(jax.tree.leaves(c) for c in parts))
    entries = sum((c.entries for c in constraints), ())
    treedef = jax.tree.structure(dataclass_replace(parts[0], entries=entries))
    return jax.tree.unflatten(treedef, leaves).replace(params=sum((c.params for c in constraints), ()))


def row_weights(entries: tuple[Entry, ...], weight: Array) -> Array:
    """One weight per row, (m, ...), from one per row or one per constraint."""
    owner = np.repeat(np.arange(len(entries)), [e.rows for e in entries])
    return weight if weight.shape[0] == len(owner) else gather(weight, owner)


def as_constraints(constraints: ConstraintsLike) -> Constraints:
    """One set from a set or a sequence of sets."""
    if isinstance(constraints, Constraints):
        return constraints
    if isinstance(constraints, Sequence) and not isinstance(constraints, str):
        return combine(*constraints)
    raise ArgumentError(
        f"constraints is {type(constraints).__name__}, expected Constraints or a list of them: "
        "rbd.constraints.weld(sys, 'foot', q=q), for example."
    )


def fitting(sys: System, constraints: ConstraintsLike) -> Constraints:
    """One set, made for this System."""
    con = as_constraints(constraints)
    check_constraints(sys, con)
    return con


def check_constraints(sys: System, con: Constraints) -> None:
    """Constraints made for another System are found out by their frame and freedom numbers and precision."""
    whole = tree_of(sys)
    for e in con.entries:
        if not e.fits(whole):
            raise ArgumentError(
                f"constraint {e.name!r} does not fit {sys.name!r}: it was made for another System."
            )
    if con.weight.shape not in ((con.rows,), (len(con.entries),)):
        raise ArgumentError(
            f"weight has shape {con.weight.shape}, expected one per row, ({con.rows},), or one per "
            f"constraint, ({len(con.entries)},)."
        )
    if con.weight.dtype != sys.dtype:
        raise ArgumentError(
            f"the constraints are {con.weight.dtype}, {sys.name!r} is {sys.dtype}. Use constraints.astype."
        )
