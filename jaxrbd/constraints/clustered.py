"""Constraints on Systems with clusters: the rows of the open tree, seen by the independent joints.

With the tree's accelerations G a + g, rows J_t and mass matrix M_t become J = J_t G and M = Gᵀ M_t G.
Problems of this size are solved in joint space, whichever solver is asked: the dual one of [CABA] Eq. 13 on a
factor of M.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrbd.constraints.data import Constraints
from jaxrbd.constraints.jacobian import cluster_jacobian, jacobian
from jaxrbd.constraints.rows import constraint_rows, motion
from jaxrbd.constraints.task import forward_task, joint_forces, residuals
from jaxrbd.model.system import System
from jaxrbd.tree.aba import articulated_factor, joint_loads_of
from jaxrbd.tree.crba import mass_matrix_with
from jaxrbd.tree.freedoms import Clustered
from jaxrbd.tree.loop_maps import Opened, lift, lower, open_state, project_columns
from jaxrbd.tree.opening import tree_of


class ClusterTask(NamedTuple):
    """M a = f + Jᵀ lam, J a = c in independent coordinates, batch last."""

    M: Any  # (nv, nv, B)
    J: Any  # (m, nv, B)
    tau: Any  # f, (nv, B)
    c: Any  # (m, B)
    lam: Any  # (m, B) to start from
    R: Any  # (m, B) penalty of every row, None for the method's own
    weight: Any  # (m, B)


def forward_cluster_task(sys: System, con: Constraints, q, v, tau, f_ext, lam, mu) -> ClusterTask:
    """The problem of constrained dynamics."""
    t, tree = sys.topology, tree_of(sys)
    x = open_state(sys, q, v)
    still = jnp.zeros_like(x.v)
    task = forward_task(tree, con, x.q, x.v, still, f_ext, lam, mu)
    M, J = _matrices(tree, con, task.moving, task.x, x)
    f, c = joint_forces(task), task.c
    if x.g is not None:
        f = f - jnp.sum(M * x.g[None], 1)
        c = c - jnp.sum(J * x.g[None], 1)
    M, J = _projected(t, x, M, J)
    return ClusterTask(M, J, tau + lower(t, x.G, f), c, lam, task.R, task.weight)


def linear_cluster_task(sys: System, con: Constraints, q, f, c, mu) -> ClusterTask:
    """M a = f + Jᵀ lam, J a = c at the configuration q: the problem of derivatives and impulses."""
    tree, x = tree_of(sys), open_state(sys, q)
    still = jnp.zeros((tree.topology.nv,) + q.shape[1:], q.dtype)
    moving = motion(tree, x.q, still)
    rows = constraint_rows(tree, con, x.q, still, moving)
    M, J = _matrices(tree, con, moving, rows, x)
    weight = jnp.broadcast_to(rows.weight, rows.weight.shape[:-1] + f.shape[-1:])
    R = None if mu is None else weight * mu
    M, J = _projected(sys.topology, x, M, J)
    return ClusterTask(M, J, f, c, jnp.zeros_like(c), R, weight)


def _matrices(tree: System, con: Constraints, moving, rows, x: Opened):
    M = mass_matrix_with(tree, x.q, None)
    J = jacobian(tree, con, moving, rows)
    wide = lambda y: jnp.broadcast_to(y, y.shape[:-1] + x.q.shape[-1:])  # noqa: E731
    return wide(M), wide(J)


def _projected(t, x: Opened, M, J):
    half = project_columns(t, x.G, M)
    return project_columns(t, x.G, jnp.swapaxes(half, 0, 1)), project_columns(t, x.G, J)


def cluster_residuals(sys: System, con: Constraints, q, v, tau, f_ext, a, lam):
    """As `task.residuals`, in independent coordinates."""
    t, x = sys.topology, open_state(sys, q, v)
    a_t = lift(t, x.G, a)
    a_t = a_t if x.g is None else a_t + x.g
    forces, rows = residuals(tree_of(sys), con, x.q, x.v, jnp.zeros_like(a_t), f_ext, a_t, lam)
    return [lower(t, x.G, forces) - tau, rows]


def cluster_delassus(sys: System, con: Constraints, q):
    """J M^-1 Jᵀ by force propagators, (m, m, B): C-EFPA of [GRBDA] VIII.

    The rows' joint forces go inward through the articulated clusters once; where a cluster closes, the loads
    u that arrive leave uᵀ D⁻¹ u in the matrix, and what reaches a free root is solved there.
    """
    J = cluster_jacobian(sys, con, q)
    factor = articulated_factor(sys, q)
    assert isinstance(factor.space, Clustered)
    wide = jnp.broadcast_to(J, J.shape[:-1] + q.shape[-1:])
    left, right = jax.lax.map(lambda b: joint_loads_of(factor, b), wide)
    return jnp.sum(left[:, None] * right[None], 2)
