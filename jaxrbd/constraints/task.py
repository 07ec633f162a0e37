"""One linear problem for all solvers, batch last:  M a = f + Jᵀ lam,  J a = c.

Forces come as wrenches p on the links (so that articulated methods need not sum them) and joint forces tau:
f = tau - (sum of p along the tree). `forward_task` makes the problem of constrained dynamics, `linear_task`
that of derivatives and impulses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrbd.constraints.data import Constraints
from jaxrbd.constraints.rows import (
    Moving,
    Rows,
    constraint_rows,
    motion,
    sum_by_row,
    summed_wrenches,
    table_of,
)
from jaxrbd.engine.gather import gather
from jaxrbd.model.system import System
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.joints import Links
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.rnea import joint_loads
from jaxrbd.tree.spatial import ZERO3, Force
from jaxrbd.typing import Array


class Task(NamedTuple):
    """One problem at one configuration."""

    sys: System
    con: Constraints
    q: Any
    moving: Moving
    x: Rows
    p: Force | None  # (N, B) wrenches on the links, None for none
    p0: Force | None  # (nroots, B)
    tau: Any  # (nv, B)
    c: Any  # (m, B)
    lam: Any  # (m, B) to start from
    R: Any  # (m, B) penalty of every row, None for the method's own
    weight: Any  # (m, B)


def forward_task(sys: System, con: Constraints, q, v, tau, f_ext, lam, mu) -> Task:
    """Forces on the links at a = 0 (gravity, velocity products, external) and the rows there."""
    moving = motion(sys, q, v)
    x = constraint_rows(sys, con, q, v, moving)
    p, p0 = link_forces(sys, q, moving, f_ext)
    return Task(sys, con, q, moving, x, p, p0, tau, x.target - x.gamma, lam, *_penalty(x, mu, tau))


def linear_task(sys: System, con: Constraints, q, f, c, mu) -> Task:
    """M a = f + Jᵀ lam, J a = c at the configuration q: the problem of derivatives and impulses."""
    still = jnp.zeros_like(f)
    moving = motion(sys, q, still)
    x = constraint_rows(sys, con, q, still, moving)
    return Task(sys, con, q, moving, x, None, None, f, c, jnp.zeros_like(c), *_penalty(x, mu, f))


def _penalty(x: Rows, mu, like):
    """Penalties (None: the method's own) and weights of the rows, (m, B)."""
    weight = jnp.broadcast_to(x.weight, x.weight.shape[:-1] + like.shape[-1:])
    return None if mu is None else weight * mu, weight


def link_forces(sys: System, q, moving: Moving, f_ext):
    """I A + V x* I V - f_ext of every link and root, in their own axes."""
    N = nodes_of(sys.topology).size
    I, I0 = link_inertias(sys, moving.links)
    V, A = gather((moving.V, moving.A), slice(0, N))
    V0, A0 = gather((moving.V, moving.A), slice(N, None))
    # [CABA] Alg. 1, line 4, turned; joint forces join in the sweeps
    p, p0 = I @ A + V.cross_force(I @ V), I0 @ A0 + V0.cross_force(I0 @ V0)
    if f_ext is not None:
        f, f0 = kin.forces_in_links(sys, q, f_ext, moving.links)
        p, p0 = p - f, p0 - f0
    wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + q.shape[-1:])  # noqa: E731
    return jax.tree.map(wide, (p, p0))


def link_inertias(sys: System, links: Links):
    I, I0 = kin.node_inertias(sys, kin.body_inertias(sys))
    return I.rotate(links.A.T), I0


def no_forces(task: Task):
    nodes = nodes_of(task.sys.topology)
    zero = lambda n: jnp.zeros((n,) + task.tau.shape[-1:], task.tau.dtype)  # noqa: E731
    make = lambda n: jax.tree.map(lambda _: zero(n), Force(ZERO3, ZERO3))  # noqa: E731
    return make(nodes.size), make(nodes.nroots)


def joint_forces(task: Task) -> Array:
    """f = tau - Jᵀ p, (nv, B)."""
    if task.p is None or task.p0 is None:
        return task.tau
    return task.tau - joint_loads(task.sys, task.moving.links, task.p, task.p0, task.tau)


def forces_of_rows(sys: System, con: Constraints, x: Rows, lam):
    """Jᵀ lam as wrenches on links and roots, and as forces on joints (None if no row acts there)."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    table = table_of(t, con.entries)
    N = nodes.size
    f = summed_wrenches(x, lam, table.slot_a, table.slot_b, N, N + nodes.nroots)
    joints = None
    if len(table.joint_rows):
        joints = sum_by_row(x.kappa * gather(lam, table.joint_rows), table.joint_dofs, t.nv)
    return gather(f, slice(0, N)), gather(f, slice(N, None)), joints


def residuals(sys: System, con: Constraints, q, v, tau, f_ext, a, lam):
    """ID(q, v, a) - tau - Jᵀ lam and J a + J̇v - a*: both vanish at a solution that meets the rows."""
    moving = motion(sys, q, v, a)
    x = constraint_rows(sys, con, q, v, moving, a)
    p, p0 = link_forces(sys, q, moving, f_ext)
    f, f0, joints = forces_of_rows(sys, con, x, lam)
    tau = tau if joints is None else tau + joints
    task = Task(sys, con, q, moving, x, p - f, p0 - f0, tau - sys.armature * a, None, None, None, None)
    return [-joint_forces(task), x.gamma - x.target]
