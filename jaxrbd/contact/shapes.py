"""Contacts from shapes: the nearest places of contact of a pair table, as slots of a pool."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.collision.distances import default_pairs, touches
from jaxrbd.collision.table import Pairs
from jaxrbd.contact.contacts import MASKS, frictions
from jaxrbd.contact.pooled import Pooled, pooled
from jaxrbd.contact.softening import CFM, Softening
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, check_system, pytree, static
from jaxrbd.typing import ArrayLike


@pytree
class BetweenShapes:
    """`between_shapes`'s contacts as a function of (sys, q); every number is a leaf."""

    table: Pairs
    friction: jax.Array  # (pairs, 3)
    restitution: jax.Array  # (pairs,)
    margin: jax.Array  # ()
    softening: Softening | CFM | None
    slots: int = static()
    dim: int = static()
    budget: int | None = static()

    def __call__(self, sys: System, q: ArrayLike) -> Pooled:
        found = touches(sys, q, self.table, budget=self.budget, margin=self.margin)
        near = found.valid & (found.distance < self.margin)
        far = jnp.where(near, jax.lax.stop_gradient(found.distance), jnp.inf)
        _, k = jax.lax.top_k(-far, min(self.slots, len(far)))
        bodies = jnp.where(near[k, None], jnp.stack([found.body_a[k], found.body_b[k]], 1), -1)
        return pooled(
            sys,
            bodies,
            found.position[k],
            jnp.where(near[k, None], found.normal[k], jnp.array([0.0, 0.0, 1.0], sys.dtype)),
            jnp.where(near[k], found.distance[k], self.margin),
            self.friction[found.pair[k]],
            self.restitution[found.pair[k]],
            self.dim,
            self.softening,
            jnp.maximum(jnp.sum(near) - self.slots, 0) + found.dropped,
        )


def between_shapes(
    sys: System,
    table: Pairs | None = None,
    *,
    slots: int = 8,
    friction: ArrayLike = 0.5,
    restitution: ArrayLike = 0.0,
    dim: int = 3,
    margin: ArrayLike = 0.05,
    budget: int | None = None,
    softening: Softening | CFM | None = None,
) -> BetweenShapes:
    """Contacts between the shapes of a System, for `step(..., contacts=)` with `HardContact`.

    `table`: which shapes, `rbd.collision.pairs(sys, ...)`; by default all that may touch. The `slots` nearest
    places within `margin` [m] have rows; `stats.dropped` of a step counts the others, and pairs that the
    broad phase left out although they may be near. `friction` and `restitution`: a number, or one per pair
    of the table (`friction` (pairs, 3) for `dim` 4 and 6). `budget`: of the broad phase.
    """
    table = default_pairs(check_system(sys, "between_shapes", single=False)) if table is None else table
    if not isinstance(table, Pairs):
        raise ArgumentError(
            f"between_shapes: the table is a {type(table).__name__}. Make it with rbd.collision.pairs(sys)."
        )
    n = len(table)
    if not n:
        raise ArgumentError(
            f"between_shapes: no shapes of {sys.name!r} may touch. Add a ground plane with "
            "Builder.ground(), give links collision shapes, or include pairs in the table."
        )
    if not isinstance(slots, int) or slots < 1:
        raise ArgumentError(f"between_shapes: slots is {slots!r}, expected a positive integer.")
    if dim not in MASKS:
        raise ArgumentError(f"between_shapes: dim is {dim!r}, expected 1, 3, 4 or 6.")
    e = jnp.asarray(restitution, sys.dtype)
    if e.shape not in ((), (n,)):
        raise ArgumentError(f"between_shapes: restitution has shape {e.shape}, expected a number or ({n},).")
    made = BetweenShapes(
        table,
        jnp.broadcast_to(frictions(sys, friction, (dim,) * n, "between_shapes"), (n, 3)),
        jnp.broadcast_to(e, (n,)),
        jnp.asarray(margin, sys.dtype),
        softening,
        slots,
        dim,
        budget,
    )
    jax.eval_shape(made, sys, sys.q0)  # what is wrong is said here, not in the first step
    return made
