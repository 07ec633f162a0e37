"""Rows of a mechanism at one configuration: loops, limits, dry friction and contacts, with their J and D.

Where every row has its bodies for good, all rows are rows of `constraints`, and D = J M^-1 Jᵀ comes from its
Delassus algorithms; rows whose bodies or joints are data have a dense, gathered J.
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


class Rows(NamedTuple):
    """Rows of a mechanism at one configuration, in the order of `blocks`, and what their gaps are."""

    rows: Constraints | None  # all of them, None where J is gathered
    J: Array | None  # (m, nv) where it is known
    loops: Constraints | None
    blocks: Blocks
    gap: Array  # of limits, then of contacts
    bound: Array  # of boxes, as forces
    contacts: Contacts | Pooled | None
    chosen: Array | None  # (k, limits): which limits have rows, one 1 per row; None: all of them
    unserved: Array  # how many limits are violated and have no row

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
) -> Rows:
    """`limits` and `dry`: degrees of freedom with a limit and with dry friction. The nearer limit counts.

    `budget`: only so many limits, the nearest of all, have rows.
    """
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
    if found is not None and len(found):
        gaps.append(found.gap)
    else:
        found = None
    blocks = Blocks(
        () if loops is None else tuple(e.rows for e in loops.entries),
        len(limits) if chosen is None else chosen.shape[0],
        len(dry),
        () if found is None else found.dims,
    )
    rows, J = None, None
    if chosen is None and not isinstance(found, Pooled):
        parts = [] if loops is None else [loops]
        parts += [scalar_rows(sys, "limit", limits, sign)] if len(limits) else []
        parts += [scalar_rows(sys, "friction", dry, jnp.ones(len(dry), dtype))] if len(dry) else []
        parts += [contact_rows(sys, q, found)] if found is not None else []
        rows = combine(*parts)
    else:
        J = gathered_jacobian(sys, q, loops, found, limits, sign, chosen, dry)
    return Rows(
        rows, J, loops, blocks,
        jnp.concatenate(gaps) if gaps else jnp.zeros(0, dtype),
        gather(sys.friction, dry) if len(dry) else jnp.zeros(0, dtype),
        found, chosen, unserved,
    )  # fmt: skip


def gathered_jacobian(sys, q, loops, found, limits, sign, chosen, dry) -> Array:
    """J (m, nv), every row written down."""
    eye = np.eye(tree_of(sys).nv)
    joints = []
    if len(limits):
        all_of_them = sign[:, None] * jnp.asarray(eye[limits], sys.dtype)
        joints.append(all_of_them if chosen is None else chosen @ all_of_them)
    if len(dry):
        joints.append(jnp.asarray(eye[dry], sys.dtype))
    parts = [] if loops is None else [constraint_jacobian(sys, loops, q)]
    parts += [with_columns(sys, q, jnp.concatenate(joints))] if joints else []
    if isinstance(found, Pooled):
        parts.append(pooled_jacobian(sys, q, found))
    elif found is not None:
        parts.append(constraint_jacobian(sys, contact_rows(sys, q, found), q))
    return jnp.concatenate(parts)


def turning(sys: System, made: Rows, q: Array, v: Array, every: bool) -> Array:
    """J̇v (m,) of loops, or of every row."""
    if every and made.rows is not None:
        return constraint_acceleration(sys, made.rows, q, v)
    blocks, found = made.blocks, made.contacts
    of_loops = [] if made.loops is None else [constraint_acceleration(sys, made.loops, q, v)]
    if not every or found is None:
        return jnp.concatenate([*of_loops, jnp.zeros(blocks.rows - blocks.first_limit, v.dtype)])
    still = jnp.zeros(blocks.first_contact - blocks.first_limit, v.dtype)
    if isinstance(found, Pooled):
        last = pooled_bias(sys, q, v, found)
    else:
        last = constraint_acceleration(sys, contact_rows(sys, q, found), q, v)
    return jnp.concatenate([*of_loops, still, last])


def mechanism_delassus(damped: System, made: Rows, q: Array) -> Array:
    """D = J M^-1 Jᵀ, symmetric; `damped` has what is implicit in its armature."""
    if made.rows is not None:
        D = delassus_matrix(damped, made.rows, q, "pvr" if made.blocks.rows <= FEW_ROWS else "efpa")
    else:
        assert made.J is not None
        D = made.J @ (mass_matrix_inverse(damped, q) @ made.J.T)
    return 0.5 * (D + D.T)
