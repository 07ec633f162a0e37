"""The Delassus matrix with the motion of free roots apart: J M^-1 Jᵀ = L_1 + K_1 H_1^-1 K_1ᵀ ([CABA] Eq. 41).

L_1 has one block per branch of the roots: rows on different branches meet at a root only.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints import propagators as prop
from jaxrbd.constraints.along_links import OnLinks
from jaxrbd.constraints.data import Constraints
from jaxrbd.constraints.meeting import meeting_of
from jaxrbd.constraints.plan import plan_of
from jaxrbd.constraints.rows import table_of
from jaxrbd.constraints.supporting import Problem
from jaxrbd.constraints.task import Task
from jaxrbd.engine.gather import gather
from jaxrbd.model.system import System


def from_base(task: Task, on: OnLinks, prob: Problem):
    """L_1, K_1 (m, 6 free, B), H_1^-1 (free, 6, 6, B): J M^-1 Jᵀ = L_1 + K_1 H_1^-1 K_1ᵀ ([CABA] Eq. 41).

    M is that of `prob`.
    """
    t, m = task.sys.topology, task.con.rows
    meeting = meeting_of(t, task.con.entries, base=True)
    K = prop.half_rows(t, on, meeting)
    carried = prop.branch_propagators(on.plan, meeting, prob, K)
    inverse = prop.root_inverses(prob, carried.root)
    P, own = prop.station_propagators(meeting, carried)
    K = prop.branch_wrenches(meeting, carried, P, K)
    omega = prop.branch_inverses(meeting, P, own, inverse)
    L1 = prop.assemble(m, meeting, jnp.concatenate([omega, own]), K, carried)
    # columns of K_1: six numbers of every free root; a row touches those of its own roots
    free = inverse.shape[0] - 1
    at = np.flatnonzero(meeting.root > 0)
    owner = meeting.row[at] * free + meeting.root[at] - 1
    K1 = prop.sum_by_row(gather(K, meeting.at_root[at]), owner, m * free)
    K1 = K1.reshape((m, 6 * free) + K1.shape[2:])
    return L1, K1, gather(inverse[1:], prop.FULL, 1)


def times_roots(K1, inverse):
    """K_1 H_1^-1, root by root."""
    m, free = K1.shape[0], inverse.shape[0]
    K = K1.reshape((m, free, 6) + K1.shape[2:])
    return jnp.sum(K[:, :, :, None] * inverse[None], 2).reshape(K1.shape)


def root_inertias(inverse):
    """H_1 again, block-diagonal (6 free, 6 free, B), from the inverses of its blocks."""
    free, batch = inverse.shape[0], inverse.shape[-1]
    H = jnp.linalg.inv(jnp.moveaxis(inverse, -1, 1))
    eye = jnp.asarray(np.eye(free), H.dtype)
    whole = eye[:, None, :, None, None] * jnp.moveaxis(H, 1, -1)[:, :, None]
    return whole.reshape((6 * free, 6 * free, batch))


def base_blocks(sys: System, con: Constraints) -> list[np.ndarray]:
    """Rows grouped by the branches of the roots that they act on; loops join branches."""
    plan = plan_of(sys.topology, con.entries)
    table = table_of(sys.topology, con.entries)
    NS, m = plan.support.size, con.rows
    touched: list[set] = [set() for _ in range(m)]
    acts = [*enumerate(plan.position_a), *enumerate(plan.position_b)]
    acts += list(zip(table.joint_rows, plan.dof_position))
    for r, p in acts:
        while p < NS and plan.support.parent[p] < NS:
            p = plan.support.parent[p]
        if p < NS:
            touched[int(r)].add(int(p))
    groups: list[tuple[set, list]] = []
    for r in range(m):
        same = [g for g in groups if g[0] & touched[r]]
        groups = [g for g in groups if not (g[0] & touched[r])]
        branches = set().union(touched[r], *(g[0] for g in same))
        groups.append((branches, sorted([r, *(k for g in same for k in g[1])])))
    return [np.array(found, int) for _, found in groups]
