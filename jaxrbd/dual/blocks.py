"""How the rows of a dual problem are grouped: joints, limits, boxes, contacts, in this order ([LOOPS] III).

A joint's rows are equalities (λ free, v = 0), a limit is one-sided (0 ≤ λ ⟂ v ≥ 0), a box is dry friction
(|λ| ≤ bound, and v opposes it where it slips), a contact has its normal last and 0, 2, 3 or 5 rows
of friction before it: two tangents, then spin, then two of rolling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.typing import Array

DIMENSIONS = (1, 3, 4, 6)


class Run(NamedTuple):
    """Contacts of one dimension that follow each other: their first row, their first contact, how many."""

    row: int
    contact: int
    number: int
    dim: int

    @property
    def end(self) -> int:
        return self.row + self.number * self.dim


@dataclass(frozen=True)
class Blocks:
    """Rows of every joint, number of limits, number of boxes, dimension of every contact."""

    joints: tuple[int, ...] = ()
    limits: int = 0
    boxes: int = 0
    contacts: tuple[int, ...] = ()

    def __post_init__(self):
        for name in ("joints", "contacts"):
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(isinstance(n, int) for n in value):
                raise ArgumentError(f"Blocks: {name} is {value!r}, expected a tuple of integers.")
        for name in ("limits", "boxes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise ArgumentError(f"Blocks: {name} is {value!r}, expected 0, 1, 2, ...")
        if any(n < 1 for n in self.joints):
            raise ArgumentError(f"Blocks: a joint has {min(self.joints)} rows, expected at least one.")
        for k, n in enumerate(self.contacts):
            if n not in DIMENSIONS:
                raise ArgumentError(
                    f"Blocks: contact {k} has dimension {n}, expected 1 (no friction), 3 (sliding), 4 (and "
                    "spinning) or 6 (and rolling)."
                )

    @property
    def first_limit(self) -> int:
        return sum(self.joints)

    @property
    def first_box(self) -> int:
        return self.first_limit + self.limits

    @property
    def first_contact(self) -> int:
        return self.first_box + self.boxes

    @property
    def rows(self) -> int:
        return self.first_contact + sum(self.contacts)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        found: list[Run] = []
        row = self.first_contact
        for k, dim in enumerate(self.contacts):
            if found and found[-1].dim == dim:
                found[-1] = found[-1]._replace(number=found[-1].number + 1)
            else:
                found.append(Run(row, k, 1, dim))
            row += dim
        return tuple(found)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Rows of every block."""
        return self.joints + (1,) * (self.limits + self.boxes) + self.contacts

    @cached_property
    def owner(self) -> np.ndarray:
        """The block of every row."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def starts(self) -> np.ndarray:
        """The first row of every block."""
        return np.cumsum((0, *self.sizes))[:-1]

    @cached_property
    def table(self) -> np.ndarray:
        """The rows of every block, (blocks, most rows of one); shorter ones repeat their last."""
        most = np.arange(max(self.sizes, default=0))
        return self.starts[:, None] + np.minimum(most, np.array(self.sizes, int)[:, None] - 1)

    @cached_property
    def normals(self) -> np.ndarray:
        """The row of every contact's normal."""
        return self.first_contact + np.cumsum(self.contacts, dtype=int) - 1

    def split(self, x) -> Iterator[tuple[Run, Array]]:
        """(run, rows of x as (number, dim, ...)) for every run of contacts."""
        for run in self.runs:
            yield run, x[run.row : run.end].reshape((run.number, run.dim) + x.shape[1:])
