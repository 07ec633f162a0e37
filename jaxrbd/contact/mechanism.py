"""The dual problem of a mechanism in one time step: loops, limits, dry friction and contacts as rows.

    v⁺ = (D + R) λ + v_f,   D = J M^-1 Jᵀ,   v_f = J u_free + what rows want        ([LOOPS] V)

J and D are those of `rows`. u_free is the velocity after the step without impulses, in axes that do not turn
(for `Stabilisation.acceleration` u + dt a, so that J u_free + dt J̇u counts the turning once); M has what is
implicit in its armature. R is of rows that give way (`softening`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.contact.pooled import Pooled
from jaxrbd.contact.rows import Rows, turning
from jaxrbd.contact.softening import CFM, Soft, Softening, give, per_row
from jaxrbd.dual.blocks import Blocks
from jaxrbd.dual.problem import Problem
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, pytree, static
from jaxrbd.typing import Array


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


OWN_LIMITS, OTHER_LIMITS, CONTACTS = 2, 3, 6  # places in `softened`'s list of kinds


class Moment(NamedTuple):
    """One step as rows see it: where they are, and how much of the step is left from there."""

    q: Array
    v: Array  # u⁻ and u_free in the axes of q
    free: Array
    turn: Array  # the velocity of J̇u
    dt: Array
    left: Array  # dt, or dt / 2 from the midpoint
    error: Array | None  # φ of loops at the start of the step
    middle: bool  # whether q is the midpoint


def wanted(gap: Array, share, rule: Stabilisation, now: Moment, before: Array) -> Array:
    """What a one-sided row's velocity may be: it may close an open gap, and parts from an overlap.

    From the midpoint only the overlap that was there at the start counts: the other half is the way there.
    """
    start = jnp.maximum(gap, gap - (now.dt - now.left) * before) if now.middle else gap
    depth = jnp.minimum(start + rule.slop, 0)
    return jnp.where(gap > 0, gap, 0) / now.left + jnp.maximum(share * depth / now.dt, -rule.speed)


def mechanism_problem(
    sys: System, made: Rows, D: Array, now: Moment, rule: Stabilisation, soft: Soft
) -> Problem:
    """The dual problem of a step, D of `mechanism_delassus`."""
    blocks, found, q = made.blocks, made.contacts, now.q
    v_f = made.velocity(sys, q, now.free)
    a, b, c = blocks.first_limit, blocks.first_box, blocks.first_contact
    if rule.acceleration or (now.middle and a):
        v_f = v_f + now.left * turning(sys, made, q, now.turn, rule.acceleration)
    before = made.velocity(sys, q, now.v)
    more = [jnp.zeros(0, v_f.dtype)]
    soft_rows, _, boxes = (0, 0, 0) if made.joints is None else made.joints.counts
    if now.error is not None:
        more.append(rule.joints / now.dt * now.error)
    if made.joints is not None:
        more.append(-made.joints.target[:soft_rows])
    more.append(wanted(made.gap[: blocks.limits], rule.limits, rule, now, before[a:b]))
    more.append(jnp.zeros(c - b - boxes, v_f.dtype))
    if made.joints is not None:
        more.append(-made.joints.target[soft_rows:])
    friction = jnp.zeros((0, 3), v_f.dtype)
    if found is not None:
        normals = blocks.normals
        friction, e, gap = found.friction, found.restitution, found.gap
        falling, after = before[normals], v_f[normals]
        # a bounce only where bodies touch within this step: otherwise they would before they meet
        bounce = (e > 0) & (falling < 0) & (gap + now.left * jnp.minimum(after, 0) <= 0)
        push = jnp.where(bounce, e * falling, wanted(gap, rule.contacts, rule, now, falling))
        more.append(jnp.zeros(blocks.rows - c, v_f.dtype).at[normals - c].set(push))
    D, v_f = softened(made, D, v_f, jnp.concatenate(more), before, now, soft)
    return Problem(D, v_f, friction, now.dt * made.bound, blocks)


def softened(made: Rows, D, v_f, want, before, now: Moment, soft: Soft) -> tuple[Array, Array]:
    """(D + R, v_f) with what rows want, or v_r where they give way; empty rows stay without impulse."""
    blocks, found, outside = made.blocks, made.contacts, made.joints
    a, b, c, m = blocks.first_limit, blocks.first_box, blocks.first_contact, blocks.rows
    soft_rows, limits, boxes = (0, 0, 0) if outside is None else outside.counts
    R, there, changed = [], [], False
    owner = np.repeat(np.arange(len(blocks.contacts)), blocks.contacts)
    normal = np.isin(np.arange(c, m), blocks.normals)
    none = jnp.zeros(0, v_f.dtype)
    gap = made.gap[blocks.limits :][owner] if found is not None else none
    contacts = soft.contacts if found is None or found.softening is None else found.softening
    error = now.error if now.error is not None else none
    still = jnp.zeros(c - boxes - b, v_f.dtype)
    of_limits, of_outside = made.gap[: b - a - limits], made.gap[b - a - limits : b - a]
    compliance = jnp.zeros(0) if outside is None else outside.compliance  # of soft rows, then of boxes
    kinds = [
        (soft.joints, 0, a - soft_rows, error, error, np.arange(a - soft_rows)),
        (compliance[:soft_rows], a - soft_rows, a, none, none, none),
        (soft.limits, a, b - limits, of_limits, of_limits, np.arange(b - limits - a)),
        (soft.limits, b - limits, b, of_outside, of_outside, np.arange(limits)),
        (soft.friction, b, c - boxes, still, still, np.arange(c - boxes - b)),
        (compliance[soft_rows:], c - boxes, c, none, none, none),
        (contacts, c, m, gap, jnp.where(normal, gap, 0), owner),
    ]
    for k, (rule, i, j, shape, pull, slots) in enumerate(kinds):
        exists = jnp.ones(j - i, bool)
        if isinstance(found, Pooled) and k == CONTACTS:
            exists, changed = found.taken[owner], True
        if i == j or rule is None:
            R.append(jnp.zeros(j - i, v_f.dtype))
        elif isinstance(rule, (CFM, jax.Array)):
            R.append(jnp.zeros(j - i, v_f.dtype) + (rule.compliance if isinstance(rule, CFM) else rule))
            changed = True
        else:
            law, margin = spread(rule, made if k == OWN_LIMITS else None, slots), jnp.zeros(())
            if k in (OWN_LIMITS, OTHER_LIMITS, CONTACTS):
                margin = law.margin
                exists = exists & (shape < margin)
            pull = pull - jnp.where(normal, margin, 0) if k == CONTACTS else pull - margin
            r, push = give(law, shape, pull, before[i:j], jnp.diagonal(D)[i:j], now.dt)
            R.append(r)
            want = jnp.concatenate([want[:i], push, want[j:]])
            changed = True
        there.append(exists)
    if not changed:
        return D, v_f + want
    here = jnp.concatenate(there)
    D = jnp.where(here[:, None] & here, D, 0) + jnp.diag(jnp.where(here, jnp.concatenate(R), 1))
    return D, jnp.where(here, v_f + want, jnp.asarray(open_velocity(blocks), v_f.dtype))


def spread(rule: Softening, made: Rows | None, slots: np.ndarray) -> Softening:
    """The numbers of the slots on their rows; of `made`'s limits with a budget, those of the chosen ones."""
    if made is not None and made.chosen is not None:
        _, n = made.chosen.shape
        if rule.R is not None:
            raise ArgumentError("Softening: R of limits cannot be given where only the nearest have rows.")
        whole = per_row(rule.__class__(**{**vars(rule), "R": None}), n, np.arange(n))
        return jax.tree.map(lambda x: made.chosen @ x, whole)
    return per_row(rule, int(slots.max(initial=-1)) + 1, slots)


def open_velocity(blocks: Blocks) -> np.ndarray:
    """What rows without a body do: limits and normals part, so that λ = 0."""
    v = np.zeros(blocks.rows)
    v[blocks.first_limit : blocks.first_box] = 1
    v[blocks.normals] = 1
    return v


@pytree
class ContactStats:
    """Impulses and velocities of all rows of a step (joints, limits, friction, contacts), gaps at its start.

    `lam` [N s, N m s]: divide by dt for forces. `v`: v⁺ of the dual problem, what rows want and R λ of rows
    that give way included, so that λ ⟂ v. `rate`: J u⁺, how fast the rows move afterwards. `residual` [m/s]:
    scaled natural map of the solver's model. `unserved`: limits that are violated and got no row, where
    `HardContact.limits` is a number; `dropped`: contacts that found no slot. With scheme="midpoint" gaps are
    those of the midpoint.
    """

    lam: jax.Array
    v: jax.Array
    rate: jax.Array
    gap: jax.Array
    residual: jax.Array
    iterations: jax.Array
    unserved: jax.Array
    dropped: jax.Array
