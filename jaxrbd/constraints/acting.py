"""Rows of constraints where they act: J a, Jᵀ lam and JᵀRJ, on links and joints."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.plan import Plan
from jaxrbd.constraints.rows import Table, sum_by_row, summed_wrenches
from jaxrbd.engine.gather import gather
from jaxrbd.tree.spatial import ArticulatedInertia, Force, Motion, zero_articulated


class Acting(NamedTuple):
    """The numbers of J: wrenches of every row on its two bodies, and its entries on joints."""

    KA: Force  # (m, B)
    KB: Force  # (m, B)
    kappa: Any  # (ne, B), None if no row acts on joints


def row_motion(plan: Plan, table: Table, x: Acting, dA: Motion, a):
    """J a for accelerations of positions (P, B) and joints (NS, B)."""
    y = gather(dA, plan.position_a).dot(x.KA)
    if (plan.position_b != plan.support.size).any():
        y = y + gather(dA, plan.position_b).dot(x.KB)
    if len(table.joint_rows):
        at = jnp.stack([*dA.ang, *dA.lin], 1)
        NS = plan.support.size
        every = at[NS:].reshape((-1,) + at.shape[2:])
        every = every if a is None else jnp.concatenate([a, every])
        where = np.where(
            plan.dof_column < 0, plan.dof_position, NS + 6 * (plan.dof_position - NS) + plan.dof_column
        )
        y = y + sum_by_row(x.kappa * gather(every, where), table.joint_rows, table.m)
    return y


def row_forces(plan: Plan, table: Table, x: Acting, lam):
    """Jᵀ lam as wrenches on positions (P, B), forces on joints (NS, B) and on roots (nroots, 6, B)."""
    NS, nroots = plan.support.size, plan.support.nroots
    f = summed_wrenches(x, lam, plan.position_a, plan.position_b, NS, NS + nroots)
    joints = roots = None
    if len(table.joint_rows):
        push = x.kappa * gather(lam, table.joint_rows)
        on_joint = plan.dof_column < 0
        joints = sum_by_row(
            push * jnp.asarray(on_joint, push.dtype)[:, None],
            np.where(on_joint, plan.dof_position, 0),
            max(NS, 1),
        )[:NS]
        where = np.where(on_joint, 0, 6 * (plan.dof_position - NS) + plan.dof_column)
        roots = sum_by_row(push * jnp.asarray(~on_joint, push.dtype)[:, None], where, 6 * nroots)
        roots = roots.reshape((nroots, 6) + push.shape[1:])
    return f, joints, roots


def augmented(plan: Plan, H: ArticulatedInertia, x: Acting, R) -> ArticulatedInertia:
    """H + Kᵀ R K on the links that rows of one body act on ([CABA] Eq. 24)."""
    if not plan.on_one_body.any():
        return H
    which = np.flatnonzero(plan.on_one_body)
    K, R = gather((x.KA, R), which)
    KRK = zero_articulated().minus_outer(Force(-K.ang, -K.lin), K * R)
    return H + jax.tree.map(lambda k: sum_by_row(k, plan.position_a[which], H.A.xx.shape[0]), KRK)
