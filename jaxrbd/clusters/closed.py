"""Close loops at run time, batched: Newton steps in the joints that follow, independent ones held."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.model.system import System, pytree
from jaxrbd.solution import Result, Solution
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.manifold import close, is_closed
from jaxrbd.tree.mechanism import mechanism_of
from jaxrbd.tree.opening import loop_error
from jaxrbd.typing import ArrayLike


@pytree
class LoopStats:
    """The largest error that is left [m, rad, m²], and the smallest pivot (see `LoopError`)."""

    error: jax.Array
    pivot: jax.Array


def close_loops(sys: System, q: ArrayLike, iterations: int = 12) -> Solution:
    """Solution(q, result, LoopStats): q with the joints of loops moved so that they close.

    Independent joints keep their coordinates. `not_converged` where an error above rounding is left: the
    loops cannot close there, or q was too far away; that q is finite, and the one given if the search left
    all numbers. Derivatives are those of the closed configuration (implicit function theorem), by q and by
    the System.
    """
    (q,) = arguments(sys, q=q)
    one = jnp.ones((), q.dtype)
    if not (sys.topology.clusters and mechanism_of(sys.topology).groups):
        return Solution(q, jnp.int32(Result.converged), LoopStats(0 * one, one))
    found = close(sys, q, iterations)
    good = jnp.isfinite(found).all()
    found = jnp.where(good, found, q)
    state = loop_error(sys, found)
    error = jnp.max(jnp.abs(state.error))
    result = jnp.where(good & is_closed(error), Result.converged, Result.not_converged).astype(jnp.int32)
    return Solution(found, result, LoopStats(error, jnp.min(state.pivot)))
