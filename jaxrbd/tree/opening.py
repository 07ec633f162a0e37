"""States of a System with clusters and of its open tree, and its loops: for users, and for all that asks the
tree.

Most functions of a System with clusters are those of its open tree: `opened` gives the tree and its state,
and
`with_columns` turns Jacobians by the tree's velocities into those by the independent ones. A System without
clusters passes through both untouched.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather, put
from jaxrbd.model.system import System, check_system, state_opener
from jaxrbd.tree.arguments import arguments, array
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.loop_maps import explicit_positions, lift, lower, open_state, project_columns
from jaxrbd.tree.loop_rows import loop_rows, settled
from jaxrbd.tree.mechanism import mechanism_of
from jaxrbd.typing import Array, ArrayLike


def to_tree(sys: System, q: ArrayLike, v: ArrayLike | None = None) -> tuple[Array, Array] | Array:
    """The state of the open tree `sys.tree`: q with explicit dependents filled in, and G v if v is given."""
    if v is None:
        (q,) = arguments(sys, q=q)
        return _open_q(sys, q) if sys.topology.clusters else q
    q, v = arguments(sys, q=q, v=v)
    return tuple(_open_qv(sys, q, v)) if sys.topology.clusters else (q, v)


def from_tree(sys: System, q: ArrayLike, v: ArrayLike | None = None) -> tuple[Array, Array] | Array:
    """The state of `sys` from one of its open tree: its own numbers are picked, the others are not looked at.

    Whether loops are closed in it says `loop_error`.
    """
    t = check_system(sys, "from_tree").topology
    q = array("q", q, (t.q_starts[-1],), f"({t.q_starts[-1]},), the open tree's nq", sys.dtype)
    own = gather(q, np.array(t.kept_q, int)) if t.clusters else q
    if v is None:
        return own
    v = array("v", v, (t.v_starts[-1],), f"({t.v_starts[-1]},), the open tree's nv", sys.dtype)
    return own, gather(v, np.array(t.independent, int)) if t.clusters else v


def loop_jacobian(sys: System, q: ArrayLike) -> Array:
    """G(q), (nv of the open tree, nv): the tree moves with G v. The identity without clusters."""
    (q,) = arguments(sys, q=q)
    return _loop_jacobian(sys, q) if sys.topology.clusters else jnp.eye(sys.nv, dtype=sys.dtype)


def loop_bias(sys: System, q: ArrayLike, v: ArrayLike) -> Array:
    """g(q, v), (nv of the open tree,): the tree accelerates with G a + g."""
    q, v = arguments(sys, q=q, v=v)
    return _loop_bias(sys, q, v) if sys.topology.clusters else jnp.zeros_like(v)


class LoopError(NamedTuple):
    """How well loops are closed: `error` of every row (m, rad; a distance: m²), and `pivot` of every cluster.

    `pivot` (clusters with implicit loops) compares the closing columns of K: near zero, the independent
    joints do not determine the others there (a singular pose), and dynamics lose digits.
    """

    error: Array
    pivot: Array


def loop_error(sys: System, q: ArrayLike) -> LoopError:
    """φ(q) of all loops that are not explicit, and how far they are from singular."""
    (q,) = arguments(sys, q=q)
    t = sys.topology
    if not t.clusters or not mechanism_of(t).groups:
        return LoopError(jnp.zeros(0, sys.dtype), jnp.ones(0, sys.dtype))
    return LoopError(*_loop_error(sys, q))


# --- for other modules --------------------------------------------------------------------------------------


def tree_of(sys: System) -> System:
    """The open tree without poses of its own."""
    t = sys.topology
    return replace(sys, topology=t.tree, q0=None, keyframe_q=None, keyframe_v=None) if t.clusters else sys


def opened(sys: System, q, v=None, a=None):
    """(tree, q[, v[, a]]) of the open tree; `sys` and its state themselves where there are no clusters."""
    if not sys.topology.clusters:
        return tuple(x for x in (sys, q, v, a) if x is not None)
    tree = tree_of(sys)
    if v is None:
        return tree, _open_q(sys, q)
    if a is None:
        return tree, *_open_qv(sys, q, v)
    return tree, *_open_qva(sys, q, v, a)


def with_columns(sys: System, q, J):
    """J G for J (..., nv of the tree); J itself where there are no clusters."""
    return J @ _loop_jacobian(sys, q) if sys.topology.clusters else J


def with_rows(sys: System, q, Y):
    """Gᵀ Y for Y (nv of the tree, ...); Y itself where there are no clusters."""
    return _loop_jacobian(sys, q).T @ Y if sys.topology.clusters else Y


def joint_forces(sys: System, q, tau):
    """Gᵀ tau for joint forces of the open tree; tau itself where there are no clusters."""
    return _lower(sys, q, tau) if sys.topology.clusters else tau


def _tree_sizes(sys: System) -> tuple[int, int]:
    return sys.topology.q_starts[-1], sys.topology.v_starts[-1]


@kernel(lambda sys, *_: (_tree_sizes(sys)[0],))
def _open_q(sys: System, q):
    return settled(q, explicit_positions(sys, q).q)[0]


@kernel(lambda sys, *_: [(_tree_sizes(sys)[0],), (_tree_sizes(sys)[1],)])
def _open_qv(sys: System, q, v):
    x = open_state(sys, q)
    return settled(q, x.q, lift(sys.topology, x.G, v))


@kernel(lambda sys, *_: [(_tree_sizes(sys)[0],), (_tree_sizes(sys)[1],), (_tree_sizes(sys)[1],)])
def _open_qva(sys: System, q, v, a):
    x = open_state(sys, q, v)
    a = lift(sys.topology, x.G, a)
    return settled(q, x.q, x.v, a if x.g is None else a + x.g)


@kernel(lambda sys, *_: (_tree_sizes(sys)[1], sys.nv))
def _loop_jacobian(sys: System, q):
    G = open_state(sys, q).G
    n = _tree_sizes(sys)[1]
    return project_columns(
        sys.topology, G, jnp.asarray(np.eye(n), q.dtype)[..., None] + jnp.zeros_like(q[:1])
    )


@kernel(lambda sys, *_: (_tree_sizes(sys)[1],))
def _loop_bias(sys: System, q, v):
    g = open_state(sys, q, v).g
    return jnp.zeros((_tree_sizes(sys)[1],) + q.shape[1:], q.dtype) if g is None else g


@kernel(lambda sys, *_: (sys.nv,))
def _lower(sys: System, q, tau):
    return settled(q, lower(sys.topology, open_state(sys, q).G, tau))[0]


def _row_count(sys: System) -> int:
    sizes = {"connect": 3, "weld": 6, "hinge": 5}
    t = sys.topology
    total = 0
    for group in mechanism_of(t).groups:
        for k, (kind, *_) in enumerate(group.rows):
            for i in group.relation[:, k]:
                total += t.functions[i].rows if kind == "function" else sizes.get(kind, 1)
    return total


def _group_rows(sys: System, q):
    m, x = mechanism_of(sys.topology), explicit_positions(sys, q)
    return x, [loop_rows(sys, m, group, x.q, x.G) for group in m.groups]


@kernel(
    lambda sys, *_: [(_row_count(sys),), (sum(len(g.clusters) for g in mechanism_of(sys.topology).groups),)]
)
def _loop_error(sys: System, q):
    _, groups = _group_rows(sys, q)
    wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + q.shape[-1:])  # noqa: E731
    return (
        jnp.concatenate([wide(e) for rows in groups for e in rows.error]),
        jnp.concatenate([wide(rows.pivot) for rows in groups]),
    )


@kernel(lambda sys, *_: [(_tree_sizes(sys)[0],), (_tree_sizes(sys)[1],), ()])
def newton_step(sys: System, q):
    """The tree's q, the change of its closing dofs that mends its loops to first order, and the largest
    error.
    """
    m = mechanism_of(sys.topology)
    x, groups = _group_rows(sys, q)
    step = jnp.zeros((_tree_sizes(sys)[1],) + q.shape[1:], q.dtype)
    worst = jnp.zeros(q.shape[1:], q.dtype)
    for group, rows in zip(m.groups, groups):
        for k, change in zip(group.closing, rows.newton):
            step = put(step, group.dofs[:, k], change)
        for e in rows.error:
            worst = jnp.maximum(worst, jnp.max(jnp.abs(e), 0))
    return *settled(q, x.q, step), worst


def _open_rows(sys: System, q, v):
    if not len(q):
        return tuple(jnp.zeros((0, n), sys.dtype) for n in _tree_sizes(sys))
    if v is None:
        return jax.vmap(lambda q: _open_q(sys, q))(q), None
    return jax.vmap(lambda q, v: tuple(_open_qv(sys, q, v)))(q, v)


state_opener.append(_open_rows)
