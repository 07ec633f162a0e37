"""Coordinates of the solvers, batch last: cones made round, mobilities of blocks, preconditioning."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrbd.dual.blocks import Blocks
from jaxrbd.typing import Array


class Scaled(NamedTuple):
    """A problem as ADMM sees it: preconditioned, D as functions, with or without its matrix."""

    blocks: Blocks
    mu: Array  # radius per contact, (nc, B)
    bound: Array  # (boxes, B)
    v_f: Array  # (m, B)
    lam: Array  # where to start, (m, B)
    apply: Callable[[Array], Array]  # D x
    factor: Callable[[Array], Callable[[Array], Array]]  # δ (B,) -> x ↦ (D + δ)^-1 x


def radii(blocks: Blocks, friction: Array) -> Array:
    """Radius of every contact's round cone, (nc, B): 1 where rows are scaled, else the sliding friction."""
    scaled = np.array([d > 3 for d in blocks.contacts], bool).reshape(-1, 1)
    return jnp.where(scaled, 1.0, friction[:, 0]).astype(friction.dtype)


def widths(blocks: Blocks, friction: Array, every: bool = False) -> Array:
    """Scale s of every row, λ = s λ̃, that makes cones round: frictions of contacts with spin, else 1.

    `every`: of all contacts with friction, so that all radii are 1.
    """
    batch = friction.shape[-1:]
    parts = [jnp.ones((blocks.first_contact,) + batch, friction.dtype)]
    kinds = {1: (), 3: (0, 0), 4: (0, 0, 1), 6: (0, 0, 1, 2, 2)}
    for run in blocks.runs:
        mine = friction[run.contact : run.contact + run.number]
        one = jnp.ones_like(mine[:, :1])
        if run.dim > 3 or (every and run.dim > 1):
            rows = jnp.concatenate([mine[:, list(kinds[run.dim])], one], 1)
        else:
            rows = jnp.concatenate([one] * run.dim, 1)
        parts.append(rows.reshape((-1,) + batch))
    return jnp.concatenate(parts)


def diagonal(D: Array) -> Array:
    """(m, B) of (m, m, B)."""
    return jnp.moveaxis(jnp.diagonal(D), -1, 0)


def block_mobility(blocks: Blocks, D: Array) -> Array:
    """The largest diagonal entry of every row's block, (m, B); 1 where a block does not move."""
    return block_largest(blocks, diagonal(D))


def block_largest(blocks: Blocks, mobility: Array) -> Array:
    """The same from the diagonal, (m, B)."""
    if not blocks.rows:
        return jnp.zeros((0,) + mobility.shape[1:], mobility.dtype)
    largest = jnp.max(mobility[blocks.table], 1)
    return jnp.where(largest > 0, largest, 1)[blocks.owner]
