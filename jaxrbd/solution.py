"""Solution(value, result, stats): what every iterative solver returns.

Under jit a numerical failure cannot raise, so it is part of the answer: `result` is an integer array that
compares with the members of `Result`, `stats` says how far the solver came. Both batch with the value.
"""

from __future__ import annotations

import enum
from typing import Any

import jax
import jax.numpy as jnp

from jaxrbd.model.system import pytree


class Result(enum.IntEnum):
    """How a solver ended, from good to bad; `Result(int(solution.result)).name` is readable."""

    converged = 0  # the answer meets the tolerance
    stationary = 1  # nothing left to gain, yet it misses the tolerance: infeasible or a local minimum
    not_converged = 2  # the answer was still moving, or nobody can tell whether it is right


@pytree
class Solution:
    """The answer, how the solver ended (an int32 array of `Result` codes) and its numbers."""

    value: Any
    result: jax.Array
    stats: Any

    @property
    def converged(self) -> jax.Array:
        """True where the answer meets the tolerance; one flag per problem of a batch."""
        return self.result == Result.converged


def largest(x, axis=None):
    """Largest magnitude, for reports and limits: a constant to derivatives.

    JAX differentiates a maximum by looking for the number that equals it. Compiled into another loop, that
    number may be rounded otherwise, then none is equal and the derivative is 0/0.
    """
    return jax.lax.stop_gradient(jnp.max(jnp.abs(x), axis, initial=0))
