"""Rows of a mechanism at one configuration: loops, limits, dry friction and contacts, with their J and D.

Where every row has its bodies for good and rows are few, all are rows of `constraints`, and D = J M^-1 Jᵀ
comes from its Delassus algorithms; many rows, and rows whose bodies or joints are data, have a dense J.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, combine
from jaxrbd.constraints.delassus import delassus_matrix
from jaxrbd.constraints.jacobian import constraint_acceleration, constraint_jacobian, constraint_velocity
from jaxrbd.constraints.kinds.linear import LinearCoupling
from jaxrbd.contact.contacts import Contacts, contact_rows
from jaxrbd.contact.joint_rows import JointRows
from jaxrbd.contact.pooled import Pooled, pooled_bias, pooled_jacobian
from jaxrbd.dual.blocks import Blocks
from jaxrbd.engine.gather import gather
from jaxrbd.forces import joint_coordinates
from jaxrbd.joints import TYPES
from jaxrbd.model.system import System, Topology
from jaxrbd.tree.aba import mass_matrix_inverse
from jaxrbd.tree.opening import opened, tree_of, with_columns
from jaxrbd.typing import Array

FEW_ROWS = 15  # up to so many PV-OSIMr is the fastest Delassus algorithm, above it EFPA
FEWER = 0.7  # rows per freedom of the System; with more, a J written down and M^-1 are faster


class Rows(NamedTuple):
    """Rows of a mechanism at one configuration, in the order of `blocks`, and what their gaps are."""

    rows: Constraints | None  # all of them, None where J is written down
    parts: tuple[Constraints | None, ...]  # in the order of `row_groups`
    J: Array | None  # (m, nv) where it is known
    loops: Constraints | None
    blocks: Blocks
    gap: Array  # of limits, then of contacts
    bound: Array  # of boxes, as forces
    contacts: Contacts | Pooled | None
    chosen: Array | None  # (k, limits): which limits have rows, one 1 per row; None: all of them
    unserved: Array  # how many limits are violated and have no row
    joints: JointRows | None = None  # from outside: they stand behind loops, limits and dry friction

    def velocity(self, sys: System, q: Array, u: Array) -> Array:
        if self.J is not None:
            return jnp.sum(self.J * u, 1)
        assert self.rows is not None
        return constraint_velocity(sys, self.rows, q, u)


@lru_cache(maxsize=512)
def limited(
    t: Topology, lower: tuple[bool, ...], friction: tuple[bool, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Degrees of freedom of the open tree with a limit, and with dry friction; free joints have neither."""
    scalar = joint_coordinates(t) < t.nq
    return np.flatnonzero(np.array(lower, bool) & scalar), np.flatnonzero(
        np.array(friction, bool) & ~floats(t)
    )


@lru_cache(maxsize=512)
def floats(t: Topology) -> np.ndarray:
    """Which degrees of freedom are a free joint's: nothing holds them, so no row acts on one alone."""
    counts = [j - i for i, j in zip(t.v_starts, t.v_starts[1:])]
    return np.repeat([TYPES[kind].free for kind in t.joint_types], counts).astype(bool)


def scalar_rows(sys: System, word: str, dofs: np.ndarray, sign: Array) -> Constraints:
    """sign times the rate of each degree of freedom."""
    n, m, dtype = len(dofs), len(dofs), sys.dtype
    zero = jnp.zeros(n, dtype)
    parameter = jnp.concatenate([zero[:, None], sign[:, None], jnp.zeros((n, 3), dtype)], 1)
    place, turn = jnp.zeros((n, 3), dtype), jnp.tile(jnp.array([1.0, 0, 0, 0], dtype), (n, 1))
    entries = tuple(LinearCoupling(f"{word} {d}", (int(d),)) for d in dofs)
    return Constraints(
        entries, place, turn, place, turn, parameter, jnp.zeros(0, dtype), jnp.ones(m, dtype), zero, zero,
        jnp.zeros(m, dtype), (None,) * n,
    )  # fmt: skip


def nearer_limits(sys: System, q: Array, limits: np.ndarray) -> tuple[Array, Array]:
    """Of each limited degree of freedom: the distance to its nearer limit, and which it is (1: the lower)."""
    tree, q_t = opened(sys, q)
    x = gather(q_t, joint_coordinates(tree.topology)[limits])
    big = jnp.asarray(1e6, sys.dtype)  # so that limits at infinity leave no NaN
    below = x - jnp.maximum(gather(sys.lower, limits), -big)
    above = jnp.minimum(gather(sys.upper, limits), big) - x
    near = below <= above
    return jnp.where(near, below, above), jnp.where(near, 1.0, -1.0).astype(sys.dtype)


def mechanism_rows(
    sys: System,
    q: Array,
    loops: Constraints | None,
    found: Contacts | Pooled | None,
    limits: np.ndarray,
    dry: np.ndarray,
    budget: int | None = None,
    more: JointRows | None = None,
) -> Rows:
    """`limits` and `dry`: degrees of freedom with a limit and with dry friction. The nearer limit counts.

    `budget`: only so many limits, the nearest of all, have rows. `more` are rows from outside.
    """
    soft, one_sided, boxes = (0, 0, 0) if more is None else more.counts
    dtype, gaps = sys.dtype, []
    chosen, sign, unserved = None, jnp.zeros(0, dtype), jnp.int32(0)
    if len(limits):
        gap, sign = nearer_limits(sys, q, limits)
        if budget is not None and budget < len(limits):
            _, which = jax.lax.top_k(-jax.lax.stop_gradient(gap), budget)
            chosen = (which[:, None] == np.arange(len(limits))).astype(dtype)
            violated = jnp.sum(gap < 0)
            gap = jnp.sum(chosen * gap, 1)
            unserved = (violated - jnp.sum(gap < 0)).astype(jnp.int32)
        gaps.append(gap)
    if more is not None:
        gaps.append(more.gap)
    if found is not None and len(found):
        gaps.append(found.gap)
    else:
        found = None
    blocks = Blocks(
        (() if loops is None else tuple(e.rows for e in loops.entries)) + (1,) * soft,
        (len(limits) if chosen is None else chosen.shape[0]) + one_sided,
        len(dry) + boxes,
        () if found is None else found.dims,
    )
    parts = row_groups(sys, q, loops, found, limits, sign, dry, more)
    rows, J = None, None
    if chosen is None and not isinstance(found, Pooled) and blocks.rows <= FEWER * sys.nv:
        rows = combine(*(part for part in parts if part is not None))
    else:
        J = gathered_jacobian(sys, q, parts, found, limits, sign, chosen, dry)
    bound = gather(sys.friction, dry) if len(dry) else jnp.zeros(0, dtype)
    return Rows(
        rows, tuple(parts), J, loops, blocks,
        jnp.concatenate(gaps) if gaps else jnp.zeros(0, dtype),
        bound if more is None else jnp.concatenate([bound, more.bound]),
        found, chosen, unserved, more,
    )  # fmt: skip


def row_groups(sys, q, loops, found, limits, sign, dry, more) -> list[Constraints | None]:
    """All rows in the order of blocks but those of pools; the third and fifth group are the System's own."""
    soft, one_sided, boxes = (None, None, None) if more is None else (more.soft, more.limits, more.boxes)
    return [
        loops,
        soft,
        scalar_rows(sys, "limit", limits, sign) if len(limits) else None,
        one_sided,
        scalar_rows(sys, "friction", dry, jnp.ones(len(dry), sys.dtype)) if len(dry) else None,
        boxes,
        contact_rows(sys, q, found) if isinstance(found, Contacts) else None,
    ]


def gathered_jacobian(sys, q, parts, found, limits, sign, chosen, dry) -> Array:
    """J (m, nv), every row written down; of the System's own limits only the chosen ones."""
    eye = jnp.eye(tree_of(sys).nv, dtype=sys.dtype)
    J = [None if p is None or k in (2, 4) else constraint_jacobian(sys, p, q) for k, p in enumerate(parts)]
    if len(limits):
        own = sign[:, None] * eye[limits]
        J[2] = with_columns(sys, q, own if chosen is None else chosen @ own)
    if len(dry):
        J[4] = with_columns(sys, q, eye[dry])
    if isinstance(found, Pooled):
        J[6] = pooled_jacobian(sys, q, found)
    return jnp.concatenate([x for x in J if x is not None])


def turning(sys: System, made: Rows, q: Array, v: Array, every: bool) -> Array:
    """J̇v (m,) of loops, or of every row."""
    if every and made.rows is not None:
        return constraint_acceleration(sys, made.rows, q, v)
    blocks, found = made.blocks, made.contacts
    bias = [
        None if part is None else constraint_acceleration(sys, part, q, v)
        for part in (made.parts if every else made.parts[:1])
    ]
    if not every:
        rest = blocks.rows if bias[0] is None else blocks.rows - len(bias[0])
        return jnp.concatenate([*(x for x in bias if x is not None), jnp.zeros(rest, v.dtype)])
    if made.chosen is not None:
        bias[2] = made.chosen @ bias[2]
    if isinstance(found, Pooled):
        bias[6] = pooled_bias(sys, q, v, found)
    return jnp.concatenate([x for x in bias if x is not None])


def mechanism_delassus(damped: System, made: Rows, q: Array) -> Array:
    """D = J M^-1 Jᵀ, symmetric; `damped` has what is implicit in its armature."""
    if made.rows is not None:
        D = delassus_matrix(damped, made.rows, q, "pvr" if made.blocks.rows <= FEW_ROWS else "efpa")
    else:
        assert made.J is not None
        D = made.J @ (mass_matrix_inverse(damped, q) @ made.J.T)
    return 0.5 * (D + D.T)
