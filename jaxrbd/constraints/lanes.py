"""Rows of constraints on their way through the tree: where they act, and how those that close are eliminated.

A row between two bodies, or on joints, is open from where it acts to its closing (`plan.py`). Open rows
travel in lanes, an axis between links and batch; of each a link knows  K·A + l = L z  with z = -dlam.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.plan import Plan
from jaxrbd.constraints.rows import sum_by_row, summed_wrenches
from jaxrbd.engine.gather import gather
from jaxrbd.tree.spatial import ArticulatedInertia, Force, Motion, Vec3


class Acting(NamedTuple):
    """The rows of the constraints where they act, in numbers: (m, B) wrenches and joint entries."""

    KA: Force
    KB: Force
    kappa: Any
    mu: Any  # (m, B) penalty of every row


def row_motion(plan: Plan, table, x: Acting, dA: Motion, a):
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


def row_forces(plan: Plan, table, x: Acting, lam, nroots: int):
    """Jᵀ lam as wrenches on positions (P, B), forces on joints (NS, B) and on roots (nroots, 6, B)."""
    NS = plan.support.size
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


def lane_wrenches(plan: Plan, table, x: Acting) -> Force:
    """K of open rows where they act: (P, lanes, B)."""
    batch = x.mu.shape[-1:]
    pairs = int(plan.root_pair.max(initial=-1)) + 1
    extra = [jnp.zeros((1,) + batch, x.mu.dtype)] * 6
    if pairs:
        owner = np.where(plan.root_pair < 0, pairs, plan.root_pair)
        column = lambda c: x.kappa * jnp.asarray(plan.dof_column == c, x.mu.dtype)[:, None]  # noqa: E731
        extra = [
            jnp.concatenate([sum_by_row(column(c), owner, pairs + 1)[:pairs], extra[c]]) for c in range(6)
        ]
    put = lambda a, b, e: gather(jnp.concatenate([a, b, e]), plan.wrench)  # noqa: E731
    six = [put(a, b, e) for a, b, e in zip([*x.KA.ang, *x.KA.lin], [*x.KB.ang, *x.KB.lin], extra)]
    return Force(Vec3(*six[:3]), Vec3(*six[3:]))


def lane_numbers(plan: Plan, x):
    """One number per row where it begins: (P, lanes, B)."""
    return gather(jnp.concatenate([x, jnp.zeros_like(x[:1])]), plan.begin)


# --- rows that close at a link --------------------------------------------------------------------------


class Lanes(NamedTuple):
    """Rows that close at a link: their K, L and 1/L_jj at the moment of elimination, lane by lane."""

    K: Force  # (n, inner, B) for the inner lanes only
    L: Any  # (n, inner, lanes, B)
    inverse: Any  # (n, inner, B), zero where a lane does not close


def close_lanes(inner: list[int], close, H: ArticulatedInertia, K: Force, L):
    """Eliminate the rows that close here, one after another; close: (n, lanes, 1) of 0 and 1."""
    kept = []
    for j in inner:
        k, column = jax.tree.map(lambda x, j=j: x[:, j], K), L[:, :, j]
        diagonal = column[:, j]
        inverse = close[:, j] / jnp.where(close[:, j] > 0, diagonal, 1)
        kept.append((k, column, inverse))
        H = H.minus_outer(Force(-k.ang, -k.lin), k * inverse)
        factor = column * inverse[:, None]
        K = K - wide(k) * factor
        L = L - factor[:, :, None] * column[:, None]
    stack = lambda *xs: jnp.stack(xs, 1)  # noqa: E731
    k, column, inverse = (jax.tree.map(stack, *part) for part in zip(*kept))
    return H, K, L, Lanes(k, column, inverse)


def push_lanes(inner: list[int], kept: Lanes, p: Force, l):
    before = []
    for k, j in enumerate(inner):
        lj = l[:, j]
        before.append(lj)
        scaled = kept.inverse[:, k] * lj
        p = p + jax.tree.map(lambda x, k=k: x[:, k], kept.K) * scaled
        l = l - kept.L[:, k] * scaled[:, None]
    return p, l, jnp.stack(before, 1)


def pull_lanes(inner: list[int], kept: Lanes, l, A: Motion, z):
    """z of the rows that close at a link, once its acceleration is known."""
    for k, j in reversed(list(enumerate(inner))):
        inverse = kept.inverse[:, k]
        closes = inverse > 0
        others = jnp.sum(kept.L[:, k] * z, 1) - kept.L[:, k, j] * z[:, j]
        new = inverse * (A.dot(jax.tree.map(lambda x, k=k: x[:, k], kept.K)) + l[:, k] - others)
        z = jnp.concatenate([z[:, :j], jnp.where(closes, new, z[:, j])[:, None], z[:, j + 1 :]], 1)
    return z


# --- the axis of lanes ----------------------------------------------------------------------------------


def wide(tree):
    """Insert the axis of lanes."""
    return jax.tree.map(lambda x: x if isinstance(x, int) else x[:, None], tree)


def pairs(A: Motion, K: Force):
    """A_i · K_j for every two lanes: (n, lanes, lanes, B)."""
    left = jax.tree.map(lambda x: x[:, :, None], A)
    return left.dot(jax.tree.map(lambda x: x[:, None], K))
