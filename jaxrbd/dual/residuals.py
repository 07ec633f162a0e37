"""How far λ is from a solution, without preconditioning ([LOOPS] VI-D): L∞ over rows.

The natural map λ - P_K(λ - v̂) mixes impulses and velocities; the scaled one, d (λ - P_K(λ - v̂ / d)) with d
the largest mobility of a block, is a velocity [m/s] whatever the masses, and is what *converged* means.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.dual.blocks import Blocks
from jaxrbd.dual.cones import de_saxce, outside_dual, project
from jaxrbd.dual.problem import block_mobility
from jaxrbd.dual.small import times
from jaxrbd.model.system import pytree
from jaxrbd.typing import Array


@pytree
class Residuals:
    """Of one answer; each is the largest over the rows.

    primal            |λ - P_K(λ)|, how far impulses leave their cones [N s]
    dual              |v - P_K*(v)|, of the solver's model: v = v⁺ (CCP) or v̂ (NCP) [m/s]
    complementarity   |λ·v| of limits and contacts [J]
    natural           |λ - P_K(λ - v)| of the solver's model, as the document has it
    ccp, ncp          scaled natural map of either model [m/s]
    row               where the one of the solver's model is largest
    """

    primal: jax.Array
    dual: jax.Array
    complementarity: jax.Array
    natural: jax.Array
    ccp: jax.Array
    ncp: jax.Array
    row: jax.Array


NUMBERS = 7


def largest(x: Array) -> Array:
    return jnp.max(jnp.abs(x), 0, initial=0)


def scaled_map(blocks: Blocks, mu, bound, d, lam, v) -> Array:
    """d (λ - P_K(λ - v / d)), (m, B)."""
    return d * (lam - project(blocks, mu, bound, lam - v / d))


def residuals(blocks: Blocks, mu, bound, D, v_f, lam, model: str) -> tuple[Array, Array]:
    """v⁺ and the numbers of `Residuals` in its order, (NUMBERS, B)."""
    v = times(D, lam) + v_f
    lifted = v + de_saxce(blocks, mu, v)
    own = lifted if model == "ncp" else v
    d = block_mobility(blocks, D)
    ccp, ncp = (scaled_map(blocks, mu, bound, d, lam, x) for x in (v, lifted))
    mine = jnp.abs(ncp if model == "ncp" else ccp)
    power = [lam[blocks.first_limit : blocks.first_box] * own[blocks.first_limit : blocks.first_box]]
    power += [jnp.sum(a * b, 1) for (_, a), (_, b) in zip(blocks.split(lam), blocks.split(own))]
    row = jnp.argmax(mine, 0) if blocks.rows else jnp.zeros(lam.shape[1:])
    found = [
        largest(lam - project(blocks, mu, bound, lam)),
        largest(outside_dual(blocks, mu, bound, lam, own)),
        largest(jnp.concatenate(power)),
        largest(lam - project(blocks, mu, bound, lam - own)),
        largest(ccp),
        largest(ncp),
        row.astype(lam.dtype),
    ]
    return v, jnp.stack(found)
