"""Constraints as data: what is held together, with every number a differentiable leaf.

A `Constraints` holds any number of constraints, one after another; `combine` (or a list) joins several.
Each constraint ties frame A to frame B, which may be the world, and owns some of the rows of

    J(q) a + J̇(q, v) v = a*,      a* = target - damping (J v) - stiffness phi(q)     (Baumgarte)

Rows of "frame" constraints are directions of the relative pose of A in B, in the axes of B, measured at A:
turning about x, y, z, then shifting along x, y, z. Connect, weld, hinge and point-on-plane are subsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.errors import ArgumentError
from jaxrbd.model.dtypes import resolve_dtype
from jaxrbd.model.system import System, find, pytree, static

_WORDS = {(0, 1, 2, 3, 4, 5): "weld", (3, 4, 5): "connect", (5,): "point_on_plane"}


@dataclass(frozen=True)
class Entry:
    """The static part of one constraint: `a`, `b` are frames (-1: the world) or, for couplings, freedoms."""

    kind: str  # frame, hinge, distance, rolling, coupling, velocity
    name: str
    a: int
    b: int
    mask: tuple[int, ...]  # which of the six directions; (5,) for rows that are a single number
    pattern: tuple[tuple[int, int], ...] = ()  # velocity rows: (row, freedom) of the entries
    placed: bool = True  # False: held to the world where it is, so that phi means nothing

    @property
    def rows(self) -> int:
        return len(self.mask)

    @property
    def word(self) -> str:
        """What a reader would call it: frame constraints by the function that makes them."""
        return _WORDS.get(self.mask, "hold") if self.kind == "frame" else self.kind


@pytree
class Constraints:
    """Any number of constraints; make them with the functions of `kinds.py`."""

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

    def replace(self, **leaves) -> Constraints:
        """A copy with some leaves exchanged."""
        return dataclass_replace(self, **leaves)

    def astype(self, dtype) -> Constraints:
        """A copy in another precision, for a System in that precision."""
        dtype = resolve_dtype(dtype)
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), self)

    def __repr__(self):
        shown = [f"{e.word} {e.name!r} {e.rows}" for e in self.entries[:6]]
        more = [f"and {len(self.entries) - 6} more"] if len(self.entries) > 6 else []
        shape = getattr(self.weight, "shape", ())
        batch = f", batch={shape[0]}" if len(shape) == 2 else ""
        return f"Constraints({self.rows} rows: {', '.join(shown + more)}{batch})"


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
    parts = [c.replace(weight=row_weights(c.entries, c.weight)) for c in constraints]
    leaves = jax.tree.map(join, *(jax.tree.leaves(c) for c in parts))
    entries = sum((c.entries for c in constraints), ())
    treedef = jax.tree.structure(dataclass_replace(constraints[0], entries=entries))
    return jax.tree.unflatten(treedef, leaves)


def row_weights(entries: tuple[Entry, ...], weight):
    """One weight per row, (m, ...), from one per row or one per constraint."""
    owner = np.repeat(np.arange(len(entries)), [e.rows for e in entries])
    return weight if weight.shape[0] == len(owner) else gather(weight, owner)


def as_constraints(constraints) -> Constraints:
    """One set from a set or a sequence of sets."""
    if isinstance(constraints, Constraints):
        return constraints
    if isinstance(constraints, Sequence) and not isinstance(constraints, str):
        return combine(*constraints)
    raise ArgumentError(
        f"constraints is {type(constraints).__name__}, expected Constraints or a list of them: "
        "rbd.constraints.weld(sys, 'foot', q=q), for example."
    )


def check_constraints(sys: System, con: Constraints) -> None:
    """Constraints made for another System are found out by their frame and freedom numbers and precision."""
    frames, nv = len(sys.frame_names), sys.nv
    for e in con.entries:
        joint = e.kind in ("coupling", "velocity")
        most = max([e.a, e.b, *(d for _, d in e.pattern)])
        if most >= (nv if joint else frames):
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
