"""What a dual solver is: a frozen value with `run`, which sees arrays with the batch last and no robot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from jaxrbd.dual.blocks import Blocks
from jaxrbd.errors import ArgumentError
from jaxrbd.typing import Array

GRADIENTS = ("implicit", "unrolled", "smooth")


class Rows(NamedTuple):
    """A problem as solvers see it: cones are round, leaves have the batch last."""

    blocks: Blocks
    mu: Array  # radius per contact, (nc, B)
    bound: Array  # (boxes, B)
    D: Array  # (m, m, B)
    v_f: Array  # (m, B)
    lam: Array  # where to start, (m, B)


class Answer(NamedTuple):
    lam: Array  # (m, B)
    iterations: Array  # (B,)


@dataclass(frozen=True)
class Solver(ABC):
    """Settings that dual solvers share; each writes `run(rows) -> Answer`.

    `iterations`: how many at most; all of them are made without a `tolerance` [m/s], with one each problem
    stops where the scaled natural map of the solver's model is below it.
    `gradients`: "implicit" differentiates the solution at the natural map, with memory that does not grow
    with iterations; "unrolled" the iterations themselves; "smooth" as implicit, with the cones' edges
    rounded by `smoothing` [m/s], so that contacts about to open or close are felt.
    `warm_scale`: the share of a warm start that is believed; 0.9 where contacts come and go.
    """

    iterations: int = 50
    tolerance: float | None = None
    gradients: str = "implicit"
    smoothing: float = 1e-2
    warm_scale: float = 1.0

    def __post_init__(self):
        name = type(self).__name__
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise ArgumentError(f"{name}: iterations is {self.iterations!r}, expected a positive integer.")
        if self.tolerance is not None and not self.tolerance > 0:
            raise ArgumentError(
                f"{name}: tolerance is {self.tolerance!r}, expected a positive number or None."
            )
        if self.gradients not in GRADIENTS:
            raise ArgumentError(f"{name}: gradients is {self.gradients!r}, expected one of {GRADIENTS}.")
        if self.gradients == "unrolled" and self.tolerance is not None:
            raise ArgumentError(
                f"{name}: unrolled gradients need a fixed number of iterations. Leave tolerance out, or use "
                "gradients='implicit'."
            )
        if not 0 <= self.warm_scale <= 1:
            raise ArgumentError(f"{name}: warm_scale is {self.warm_scale!r}, expected in [0, 1].")
        if not self.smoothing > 0:
            raise ArgumentError(f"{name}: smoothing is {self.smoothing!r}, expected a positive number.")

    @property
    @abstractmethod
    def model(self) -> str:
        """ "ccp" or "ncp": whose natural map the solver brings to zero."""

    @abstractmethod
    def run(self, rows: Rows) -> Answer:
        """λ and how many iterations it took."""

    def option(self, name: str, known: tuple) -> None:
        value = getattr(self, name)
        if value not in known:
            raise ArgumentError(f"{type(self).__name__}: {name} is {value!r}, expected one of {known}.")
