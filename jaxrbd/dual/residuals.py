"""How far λ is from a solution, without preconditioning ([LOOPS] VI-D): L∞ over rows.

The natural map λ - P_K(λ - v̂) mixes impulses and velocities; the scaled one, d (λ - P_K(λ - v̂ / d)) with d
the largest mobility of a block, is a velocity [m/s] whatever the masses, and is what *converged* means.
"""

from __future__ import annotations

from enum import IntEnum

import jax
import jax.numpy as jnp

from jaxrbd.dual.blocks import Blocks
from jaxrbd.dual.cones import de_saxce, norm, outside_dual, project
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


def measured(
    blocks: Blocks, mu: Array, bound: Array, d: Array, lam: Array, v: Array, model: str
) -> tuple[Array, Array]:
    """The numbers of `Residuals` in its order, (NUMBERS, B), and modes of limits, boxes, contacts."""
    lifted = v + de_saxce(blocks, mu, v)
    own = lifted if model == "ncp" else v
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
    return jnp.stack(found), modes(blocks, mu, bound, lam - own / d)


class Mode(IntEnum):
    """What a limit, box or contact does: [LOOPS] Eq. 46."""

    open = 0  # limits and contacts: no force
    stick = 1  # boxes and contacts with friction: no motion, a force within the bound or cone
    slip = 2  # boxes and contacts with friction: the force is on the boundary
    closed = 3  # limits and contacts of dimension 1: they push


def modes(blocks: Blocks, mu: Array, bound: Array, x: Array) -> Array:
    """[LOOPS] Eq. 46, (limits + boxes + contacts, B), by the piece of P_K that x = λ - v̂ / d is in.

    At a solution that is Eq. 46 itself, and between solutions it needs no thresholds. A contact that rests
    without force sticks; one that slides along without force is open.
    """
    a, b, c = blocks.first_limit, blocks.first_box, blocks.first_contact
    limits = jnp.where(x[a:b] > 0, int(Mode.closed), int(Mode.open))
    boxes = jnp.where(jnp.abs(x[b:c]) <= bound, int(Mode.stick), int(Mode.slip))
    parts = [limits, boxes]
    for run, rows in blocks.split(x):
        if run.dim == 1:
            parts.append(jnp.where(rows[:, 0] > 0, int(Mode.closed), int(Mode.open)))
            continue
        radius = mu[run.contact : run.contact + run.number]
        r, n = norm(rows[:, :-1], 1), rows[:, -1]
        open_ = jnp.where(radius * r <= -n, int(Mode.open), int(Mode.slip))
        parts.append(jnp.where(r <= radius * n, int(Mode.stick), open_))
    return jnp.concatenate(parts).astype(x.dtype)
