"""The constraint Jacobian as a matrix, and what users ask of constraints at a state."""

from __future__ import annotations

from functools import lru_cache

import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, ConstraintsLike, Entry, fitting
from jaxrbd.constraints.rows import Moving, Rows, constraint_rows, motion, table_of
from jaxrbd.engine.gather import gather, put
from jaxrbd.model.system import System, Topology
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.crba import columns_by_dof
from jaxrbd.tree.frames import path_to_root
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.loop_maps import lift, open_state, project_columns
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.opening import tree_of
from jaxrbd.tree.spatial import Vec3
from jaxrbd.typing import Array, ArrayLike


def constraint_error(sys: System, constraints: ConstraintsLike, q: ArrayLike) -> Array:
    """phi(q), (m,): zero where the constraints are met; zero for rows at the level of velocities."""
    (q,) = arguments(sys, q=q)
    return evaluate(sys, fitting(sys, constraints), q, jnp.zeros(sys.nv, q.dtype), None)[0]


def constraint_velocity(sys: System, constraints: ConstraintsLike, q: ArrayLike, v: ArrayLike) -> Array:
    """J(q) v, (m,)."""
    q, v = arguments(sys, q=q, v=v)
    return evaluate(sys, fitting(sys, constraints), q, v, None)[1]


def constraint_acceleration(
    sys: System, constraints: ConstraintsLike, q: ArrayLike, v: ArrayLike, a: ArrayLike | None = None
) -> Array:
    """J(q) a + J̇(q, v) v, (m,); with a None the bias J̇v alone."""
    q, v = arguments(sys, q=q, v=v)
    a = None if a is None else arguments(sys, a=a)[0]
    return evaluate(sys, fitting(sys, constraints), q, v, a)[2]


def constraint_target(sys: System, constraints: ConstraintsLike, q: ArrayLike, v: ArrayLike) -> Array:
    """a*, (m,): the acceleration that the rows should have, Baumgarte's correction included."""
    q, v = arguments(sys, q=q, v=v)
    return evaluate(sys, fitting(sys, constraints), q, v, None)[3]


def constraint_jacobian(sys: System, constraints: ConstraintsLike, q: ArrayLike) -> Array:
    """J(q), (m, nv): J v is the velocity of the rows, Jᵀ lam the joint forces of multipliers lam."""
    (q,) = arguments(sys, q=q)
    return _jacobian_kernel(sys, fitting(sys, constraints), q)


@kernel(lambda sys, con, *_: [(con.rows,)] * 4)
def evaluate(sys: System, con: Constraints, q, v, a):
    """[phi, J v, J a + J̇v, a*] in one go, of arguments that were checked."""
    if sys.topology.clusters:
        return cluster_rows(sys, con, q, v, a)
    x = constraint_rows(sys, con, q, v, motion(sys, q, v, a), a)
    return [x.phi, x.u, x.gamma, x.target]


@kernel(lambda sys, con, q: (con.rows, sys.nv))
def _jacobian_kernel(sys: System, con: Constraints, q):
    if sys.topology.clusters:
        return cluster_jacobian(sys, con, q)
    v = jnp.zeros((sys.topology.nv,) + q.shape[1:], q.dtype)
    moving = motion(sys, q, v)
    return jacobian(sys, con, moving, constraint_rows(sys, con, q, v, moving))


@lru_cache(maxsize=512)
def support(t: Topology, entries: tuple[Entry, ...]):
    """Which freedoms move body A and body B of every row: two masks (m, nv)."""
    ends = [e.bodies(t) for e in entries for _ in range(e.rows)]
    return [np.array([path_to_root(t, both[k]) for both in ends], bool).reshape(-1, t.nv) for k in (0, 1)]


def jacobian(sys: System, con: Constraints, moving: Moving, x: Rows):
    """J, (m, nv, B), from the wrenches of the rows."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    table = table_of(t, con.entries)
    N = nodes.size
    R, p = gather((moving.R, moving.p), slice(0, N))
    S, origin = columns_by_dof(sys, moving.links.node.S.rotate(R), p, moving.roots)
    J = jnp.zeros((table.m, t.nv) + x.u.shape[-1:], x.u.dtype)
    for mask, K, slots in zip(support(t, con.entries), (x.KA, x.KB), (table.slot_a, table.slot_b)):
        if not mask.any():
            continue
        R_at, p_at = gather((moving.R, moving.p), slots)
        K = K.rotate(R_at)
        column = lambda y: Vec3(*(c[:, None] for c in y))  # noqa: E731
        arm = column(p_at) - origin
        moved = S.at(arm)
        J = J + jnp.where(mask[:, :, None], moved.ang.dot(column(K.ang)) + moved.lin.dot(column(K.lin)), 0)
    if len(table.joint_rows):
        flat = J.reshape((-1,) + J.shape[2:])
        where = table.joint_rows * t.nv + table.joint_dofs
        J = put(flat, where, jnp.broadcast_to(x.kappa, (len(where),) + J.shape[2:])).reshape(J.shape)
    return J


# --- clusters: the rows of the open tree ---------------------------------------------------------------


def cluster_rows(sys: System, con: Constraints, q, v, a):
    """[phi, J v, J a + J̇v, a*] of the open tree."""
    t, tree, x = sys.topology, tree_of(sys), open_state(sys, q, v)
    g = jnp.zeros_like(x.v) if x.g is None else x.g
    a_t = g if a is None else lift(t, x.G, a) + g
    found = constraint_rows(tree, con, x.q, x.v, motion(tree, x.q, x.v, a_t), a_t)
    return [found.phi, found.u, found.gamma, found.target]


def cluster_jacobian(sys: System, con: Constraints, q):
    """J G, (m, nv, B)."""
    tree, x = tree_of(sys), open_state(sys, q)
    still = jnp.zeros((tree.topology.nv,) + q.shape[1:], q.dtype)
    moving = motion(tree, x.q, still)
    return project_columns(
        sys.topology, x.G, jacobian(tree, con, moving, constraint_rows(tree, con, x.q, still, moving))
    )
