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
    """How a solver ended; `Result(int(solution.result)).name` is readable."""

    converged = 0  # the answer meets the tolerance
    not_converged = 1  # the iterations ran out while the answer was still moving
    stationary = 2  # nothing left to gain, yet it misses the tolerance: infeasible or a local minimum


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


def worst(*results):
    """The most severe of several results, element by element: converged < stationary < not_converged."""
    order = (Result.converged, Result.stationary, Result.not_converged)
    found = jnp.full((), Result.converged, jnp.int32)
    for severe in order[1:]:
        hit = jnp.any(jnp.stack([jnp.asarray(r) == severe for r in results]), 0)
        found = jnp.where(hit, severe, found)
    return found.astype(jnp.int32)


def largest(x, axis=None):
    """Largest magnitude, for reports and limits: a constant to derivatives.

    JAX differentiates a maximum by looking for the number that equals it. Compiled into another loop, that
    number may be rounded otherwise, then none is equal and the derivative is 0/0.
    """
    return jax.lax.stop_gradient(jnp.max(jnp.abs(x), axis, initial=0))
