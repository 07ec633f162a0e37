"""The dual problem of a mechanism in one time step: loops, limits, dry friction and contacts as rows.

    v⁺ = D λ + v_f,   D = J M^-1 Jᵀ,   v_f = J u_free + what rows want        ([LOOPS] V)

All rows are rows of `constraints`, so D comes from its Delassus algorithms. u_free is the velocity after the
step without impulses, in axes that do not turn (for `Stabilisation.acceleration` u + dt a, so that J u_free +
dt J̇u counts the turning once); M has implicit dampers in its armature.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, combine
from jaxrbd.constraints.delassus import delassus_matrix
from jaxrbd.constraints.jacobian import constraint_acceleration, constraint_error, constraint_velocity
from jaxrbd.constraints.kinds.linear import LinearCoupling
from jaxrbd.contact.contacts import Contacts, contact_rows
from jaxrbd.contact.joint_rows import JointRows
from jaxrbd.dual.blocks import Blocks
from jaxrbd.dual.problem import Problem
from jaxrbd.engine.gather import gather
from jaxrbd.forces import joint_coordinates
from jaxrbd.model.system import System, Topology, pytree, static
from jaxrbd.typing import Array

FEW_ROWS = 15  # up to so many PV-OSIMr is the fastest Delassus algorithm, above it EFPA


@pytree
class Stabilisation:
    """How rows come back to where they should be: a share of what is missing per step.

    `joints`, `limits`, `contacts`: these shares (α, β, γ of [LOOPS]); gaps that are still open may close in a
    step whatever the share. `slop` [m, rad]: overlap that is left alone. `speed` [m/s, rad/s]: bodies that
    overlap part no faster. `acceleration`: rows see J u⁺ + dt J̇u instead of J u⁺, so that (u⁺ - u) / dt is
    the constrained acceleration, in minimal and in maximal coordinates alike.
    """

    joints: float = 0.2
    limits: float = 0.2
    contacts: float = 0.2
    slop: float = 1e-5
    speed: float = 1.0
    acceleration: bool = static(default=False)


class Rows(NamedTuple):
    """Rows of a mechanism at one configuration, in the order of `blocks`, and what their gaps are."""

    rows: Constraints
    blocks: Blocks
    gap: Array  # of limits, then of contacts
    bound: Array  # of boxes, as forces
    contacts: Contacts | None
    joints: JointRows | None = None  # from outside: they stand behind loops, limits and dry friction


@lru_cache(maxsize=512)
def limited(
    t: Topology, lower: tuple[bool, ...], friction: tuple[bool, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Degrees of freedom with a limit, and with dry friction."""
    scalar = joint_coordinates(t) < t.nq
    return np.flatnonzero(np.array(lower) & scalar), np.flatnonzero(friction)


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


def mechanism_rows(
    sys: System,
    q: Array,
    loops: Constraints | None,
    found: Contacts | None,
    limits: np.ndarray,
    dry: np.ndarray,
    more: JointRows | None = None,
) -> Rows:
    """`limits` and `dry`: degrees of freedom with a limit and with dry friction. The nearer limit counts."""
    soft, one_sided, boxes = (0, 0, 0) if more is None else more.counts
    parts = [] if loops is None else [loops]
    gaps = []
    if more is not None and more.soft is not None:
        parts.append(more.soft)
    if len(limits):
        x = gather(q, joint_coordinates(sys.topology)[limits])
        big = jnp.asarray(1e6, sys.dtype)  # so that limits at infinity leave no NaN
        below = x - jnp.maximum(gather(sys.lower, limits), -big)
        above = jnp.minimum(gather(sys.upper, limits), big) - x
        near = below <= above
        parts.append(scalar_rows(sys, "limit", limits, jnp.where(near, 1.0, -1.0).astype(sys.dtype)))
        gaps.append(jnp.where(near, below, above))
    if more is not None and more.limits is not None:
        parts.append(more.limits)
        gaps.append(more.gap)
    if len(dry):
        parts.append(scalar_rows(sys, "friction", dry, jnp.ones(len(dry), sys.dtype)))
    if more is not None and more.boxes is not None:
        parts.append(more.boxes)
    if found is not None and len(found):
        parts.append(contact_rows(sys, q, found))
        gaps.append(found.gap)
    blocks = Blocks(
        (() if loops is None else tuple(e.rows for e in loops.entries)) + (1,) * soft,
        len(limits) + one_sided,
        len(dry) + boxes,
        () if found is None else found.dims,
    )
    gap = jnp.concatenate(gaps) if gaps else jnp.zeros(0, sys.dtype)
    bound = gather(sys.friction, dry) if len(dry) else jnp.zeros(0, sys.dtype)
    if more is not None:
        bound = jnp.concatenate([bound, more.bound])
    return Rows(combine(*parts), blocks, gap, bound, found, more)


def wanted(gap: Array, share, rule: Stabilisation, dt: Array) -> Array:
    """What a one-sided row's velocity may be: it may close an open gap, and parts from an overlap."""
    depth = jnp.minimum(gap + rule.slop, 0)
    return jnp.where(gap > 0, gap, 0) / dt + jnp.maximum(share * depth / dt, -rule.speed)


def mechanism_problem(
    sys: System, damped: System, made: Rows, q: Array, v: Array, free: Array, dt: Array, rule: Stabilisation
) -> Problem:
    """The dual problem; `damped` has the dampers of the step in its armature, `free` is u_free."""
    rows, blocks = made.rows, made.blocks
    D = delassus_matrix(damped, rows, q, "pvr" if blocks.rows <= FEW_ROWS else "efpa")
    v_f = constraint_velocity(sys, rows, q, free)
    if rule.acceleration:
        v_f = v_f + dt * constraint_acceleration(sys, rows, q, v)
    a, b, c = blocks.first_limit, blocks.first_box, blocks.first_contact
    more = [jnp.zeros(0, v_f.dtype)]
    soft, boxes, target, own = 0, 0, jnp.zeros(0, v_f.dtype), made.joints
    if own is not None:
        soft, _, boxes = own.counts
        target = own.target
        soften = np.concatenate([np.arange(a - soft, a), np.arange(c - boxes, c)])
        D = D.at[soften, soften].add(own.compliance)
    if a > soft:
        more.append(rule.joints / dt * constraint_error(sys, rows, q)[: a - soft])
    more.append(-target[:soft])
    more.append(wanted(made.gap[: blocks.limits], rule.limits, rule, dt))
    more.append(jnp.zeros(c - b - boxes, v_f.dtype))
    more.append(-target[soft:])
    friction = jnp.zeros((0, 3), v_f.dtype)
    if made.contacts is not None and len(made.contacts):
        found, normals = made.contacts, blocks.normals
        friction, e, gap = found.friction, found.restitution, found.gap
        before, after = constraint_velocity(sys, rows, q, v)[normals], v_f[normals]
        # a bounce only where bodies touch within this step: otherwise they would before they meet
        bounce = (e > 0) & (before < 0) & (gap + dt * jnp.minimum(after, 0) <= 0)
        push = jnp.where(bounce, e * before, wanted(gap, rule.contacts, rule, dt))
        more.append(jnp.zeros(blocks.rows - c, v_f.dtype).at[normals - c].set(push))
    v_f = v_f + jnp.concatenate(more)
    return Problem(0.5 * (D + D.T), v_f, friction, dt * made.bound, blocks)


@pytree
class ContactStats:
    """Impulses and velocities of all rows of a step (joints, limits, friction, contacts), gaps at its start.

    `lam` [N s, N m s]: divide by dt for forces; `residual` [m/s]: scaled natural map of the solver's model.
    """

    lam: jax.Array
    v: jax.Array
    gap: jax.Array
    residual: jax.Array
    iterations: jax.Array
