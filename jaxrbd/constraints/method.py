"""What methods, iterations and callers hand to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

MOST = 48  # iterations where their number is left to the method


@dataclass(frozen=True)
class Settings:
    """Static choices. `iterations` None: as many as the verdict needs, at most `MOST`.

    `adaptive`: where they do not settle, the penalties grow and the iterations go on. `fixed` leaves out
    everything that reverse mode cannot pass: iterations are then a scan.
    """

    iterations: int | None
    tolerance: float | None = None
    adaptive: bool = False
    fixed: bool = False
    judged: bool = True  # whether anybody reads the verdict

    @property
    def length(self) -> int:
        """Of the history."""
        return self.iterations or MOST


class Method(NamedTuple):
    """A factored problem, batch last."""

    zero: Any  # accelerations of zero, any pytree
    correct: (
        Callable  # (a, lam, r, load) -> (da, dlam); the forces of the problem act times `load`, None for 1
    )
    rows: Callable  # a -> J a
    size: Callable  # a -> largest joint acceleration, (B,)
    jacobian: Callable  # () -> J, (m, nv, B)
    first: Callable | None = None  # (lam, r) -> (da, dlam) at a = 0, where there is a cheaper way


class Iterate(NamedTuple):
    a: Any
    lam: Any
    r: Any  # c - s - J a
    s: Any  # what no motion can meet
    step: Any  # (B,) size of the last step, relative to a
    doubt: Any  # (B,) how far s may be off, in units of a
    count: Any  # (B,) iterations since the last start
    total: Any  # (B,) all iterations
    looked: Any  # (B,) bool: s was computed
    done: Any  # (B,) bool
    burst: Any  # (B,) how many conjugate gradients are still to come
    tired: Any  # (B,) bool: a burst of them is over
    way: Any  # (da, dlam, J da, zᵀK z): the direction of the last one


class Found(NamedTuple):
    a: Any  # of the method's own kind
    lam: Any  # (m, B)
    history: Any  # (iterations, B) largest |J a - c| after each iteration
    change: Any  # (B,) the last step
    iterations: Any  # (B,)
    verdict: Any  # (B,) `Result` as a number
