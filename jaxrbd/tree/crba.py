"""Mass matrix by composite rigid bodies: M_ij = S_i · Ic_j S_j for i on the path from j to the root.

[RBDA] Table 6.2. Composite inertias are taken about each link's own origin and the force Ic_j S_j is
carried to its ancestors, so that small distal links keep their digits in float32. O(nb depth).
"""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.model.system import System, Topology
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.batching import kernel
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.scan import inward, outward
from jaxrbd.tree.spatial import ZERO3, Inertia, Motion, Sym3, Vec3


def mass_matrix(sys: System, q):
    """Joint-space inertia M(q), (nv, nv), armature included. [RBDA] Table 6.2."""
    (q,) = arguments(sys, q=q)
    return fill_matrix(sys, _mass_entries(sys, q))


def fill_matrix(sys: System, entries):
    """M (nv, nv) from its entries on ancestor pairs; done after the batch is back in front, row by row."""
    table = ancestor_pairs(sys.topology)[2]
    return jnp.concatenate([entries, jnp.zeros_like(entries[:1])])[table]


@lru_cache(maxsize=512)
def ancestor_pairs(topology: Topology):
    """Pairs of degrees of freedom (i, j) with i on the path from j to its root, i = j included.

    Returns (i, j, table) where table (nv, nv) points from each entry of M to its pair, or past the end.
    """
    nodes = nodes_of(topology)
    N = nodes.size
    dof_of_slot = {int(s): d for d, s in enumerate(nodes.slot_of_dof)}
    parent_dof = np.full(topology.nv, -1)
    for d, s in enumerate(nodes.slot_of_dof):
        if s >= N:  # a free root's columns form a run
            parent_dof[d] = d - 1 if (s - N) % 6 else -1
        else:
            p = int(nodes.parent[s])
            if p < N:
                parent_dof[d] = dof_of_slot[p]
            elif p > N:
                parent_dof[d] = dof_of_slot[N + 6 * (p - N - 1) + 5]
    pairs = []
    for j in range(topology.nv):
        i = j
        while i >= 0:
            pairs.append((i, j))
            i = int(parent_dof[i])
    i, j = np.array(pairs, int).reshape(-1, 2).T
    table = np.full((topology.nv, topology.nv), len(pairs))
    table[i, j] = table[j, i] = np.arange(len(pairs))
    return i, j, table, parent_dof


def columns_by_dof(sys: System, S: Motion, p: Vec3, roots: kin.Roots):
    """Columns S and their origins p (from the root's origin) for every degree of freedom, (nv, B)."""
    nodes = nodes_of(sys.topology)
    zero = jnp.zeros_like(roots.R.a.x[1:])
    R = kin.take(roots.R, slice(1, None)).T  # rows are now the root's axes
    ang = [Vec3(*R[k]) if k < 3 else Vec3(zero, zero, zero) for k in range(6)]
    lin = [Vec3(zero, zero, zero) if k < 3 else Vec3(*R[k - 3]) for k in range(6)]

    def by_dof(at_node, at_root):
        at_root = jnp.stack(at_root, 1).reshape((-1,) + zero.shape[1:])
        full = jnp.broadcast_to(jnp.asarray(at_node, zero.dtype), (nodes.size,) + zero.shape[1:])
        return jnp.concatenate([full, at_root])[nodes.slot_of_dof]

    S = Motion(
        Vec3(*(by_dof(S.ang[k], [x[k] for x in ang]) for k in range(3))),
        Vec3(*(by_dof(S.lin[k], [x[k] for x in lin]) for k in range(3))),
    )
    return S, Vec3(*(by_dof(x, [zero] * 6) for x in p))


def composite_columns(sys: System, q):
    """Columns S, forces F = Ic S about their own origins, and origins p, for every degree of freedom."""
    nodes = nodes_of(sys.topology)
    joints, roots = kin.joint_transforms(sys, q), kin.root_states(sys, q)

    def place(parent, j):
        R, p, _ = parent
        r = R @ j.p
        return R @ j.R, p + r, r

    zero3 = jax.tree.map(jnp.zeros_like, roots.p)
    R, p, r = outward(nodes, place, joints, kin.broadcast((roots.R, zero3, zero3), q))
    S = kin.column(joints, R)
    at_nodes, at_roots = kin.node_inertias(sys, kin.body_inertias(sys))

    def compose(acc, x):
        I, r = x  # noqa: E741
        Ic = acc + I
        return Ic.from_(r), Ic

    zero = kin.zeros(Inertia(0, ZERO3, Sym3(*[0] * 6)), q)
    Ic0, Ic = inward(nodes, compose, (at_nodes.rotate(R), r), zero)
    Ic0 = Ic0 + at_roots.rotate(roots.R)
    S_all, p_all = columns_by_dof(sys, S, p, roots)
    body_of_dof = np.where(nodes.slot_of_dof < nodes.size, nodes.slot_of_dof, 0)
    root_of_dof = np.where(nodes.slot_of_dof < nodes.size, 0, (nodes.slot_of_dof - nodes.size) // 6 + 1)
    index = np.where(nodes.slot_of_dof < nodes.size, body_of_dof, nodes.size + root_of_dof)
    rows = kin.join(Ic, Ic0) if nodes.size else Ic0
    Ic_all = kin.take(kin.broadcast(rows, q), index)
    return S_all, Ic_all @ S_all, p_all


@kernel()
def _mass_entries(sys: System, q):
    i, j, _, _ = ancestor_pairs(sys.topology)
    S, F, p = composite_columns(sys, q)
    Si, Fj = kin.take(S, i), kin.take(F, j)
    r = kin.take(p, j) - kin.take(p, i)  # from the ancestor's origin to the descendant's
    return Si.dot(Fj.from_(r)) + jnp.asarray(i == j, q.dtype)[:, None] * sys.armature[j]
