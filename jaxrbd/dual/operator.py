"""What a dual problem needs of D when it has no matrix: an operator, for `ADMM` (`matrix_free.py`)."""

from __future__ import annotations

from typing import Any, Protocol

from jaxrbd.typing import Array


class Damped(Protocol):
    """(D + damping)^-1."""

    def solve(self, x: Any) -> Array:
        """(m,)."""
        ...


class Operator(Protocol):
    """D = J M^-1 Jᵀ as functions: `constraints.delassus_operator` makes one."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def apply(self, x: Any) -> Array:
        """D x, (m,)."""
        ...

    def damped(self, damping: Any) -> Damped:
        """What solves with D + diag(damping), damping (m,) positive."""
        ...

    def diagonal(self) -> Array:
        """(m,)."""
        ...

    def dense(self) -> Array:
        """D, (m, m)."""
        ...


def is_operator(D: Any) -> bool:
    return all(hasattr(D, name) for name in ("apply", "damped", "diagonal", "dense", "shape"))
