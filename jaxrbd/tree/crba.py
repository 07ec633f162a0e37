"""Mass matrix by composite rigid bodies: M_ij = S_i · Ic_j S_j for i on the path from j to the root.

[RBDA] Table 6.2. Composite inertias are taken about each link's own origin and the force Ic_j S_j is
carried to its ancestors, so that small distal links keep their digits in float32. O(nb depth).
"""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.engine.scan import inward, outward
from jaxrbd.joints import TYPES
from jaxrbd.model.system import System, Topology
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.joints import column, joint_transforms
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.loop_maps import open_state, project_columns
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.spatial import ZERO3, Inertia, Motion, Sym3, Vec3
from jaxrbd.typing import Array, ArrayLike


def mass_matrix(sys: System, q: ArrayLike) -> Array:
    """Joint-space inertia M(q), (nv, nv), armature included. [RBDA] Table 6.2; Gᵀ M G of clusters."""
    (q,) = arguments(sys, q=q)
    return _mass_matrix(sys, q)


@lru_cache(maxsize=512)
def ancestor_pairs(topology: Topology):
    """Pairs of degrees of freedom (i, j) with i on the path from j to its root, i = j included.

    Returns i, j, and the parent of each degree of freedom on its path (-1 at the root).
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
    rows, columns = np.array(pairs, int).reshape(-1, 2).T
    return rows, columns, parent_dof


@lru_cache(maxsize=512)
def relations(topology: Topology):
    """Masks (nv, nv): the column is on the row's path to the root, or of the same joint; the reverse."""
    t = topology
    i, j, _ = ancestor_pairs(t)
    above = np.zeros((t.nv, t.nv), bool)
    above[j, i] = True
    for b in range(t.nb):
        if TYPES[t.joint_types[b]].on_manifold:  # columns that move together
            above[t.v_starts[b] : t.v_starts[b + 1], t.v_starts[b] : t.v_starts[b + 1]] = True
    return above, above.T & ~above


def columns_by_dof(sys: System, S: Motion, p: Vec3, roots: kin.Roots):
    """Columns S and their origins p (from the root's origin) for every degree of freedom, (nv, B)."""
    nodes = nodes_of(sys.topology)
    zero = jnp.zeros_like(roots.R.a.x[1:])
    R = gather(roots.R, slice(1, None)).T  # rows are now the root's axes
    ang = [Vec3(*R[k]) if k < 3 else Vec3(zero, zero, zero) for k in range(6)]
    lin = [Vec3(zero, zero, zero) if k < 3 else Vec3(*R[k - 3]) for k in range(6)]

    def by_dof(at_node, at_root):
        at_root = jnp.stack(at_root, 1).reshape((-1,) + zero.shape[1:])
        full = jnp.broadcast_to(jnp.asarray(at_node, zero.dtype), (nodes.size,) + zero.shape[1:])
        return gather(jnp.concatenate([full, at_root]), nodes.slot_of_dof)

    S = Motion(
        Vec3(*(by_dof(S.ang[k], [x[k] for x in ang]) for k in range(3))),
        Vec3(*(by_dof(S.lin[k], [x[k] for x in lin]) for k in range(3))),
    )
    return S, Vec3(*(by_dof(x, [zero] * 6) for x in p))


def composites(sys: System, q, extra=None):
    """Per node: column S, force F = Ic S about its own origin, position; and the roots' composites.

    All of it comes out of the two scans, so that what follows reads it instead of computing it again.
    `extra`: general inertias that nodes and roots have beside their own, in world axes.
    """
    nodes = nodes_of(sys.topology)
    joints, roots = joint_transforms(sys, q), kin.root_states(sys, q)
    sliding = bool(nodes.slides.any())

    def place(parent, j):
        R, p, *_ = parent
        r = R @ j.p
        R = R @ j.R
        S = column(j, R)
        return R, p + r, r, S.ang, S.lin if sliding else None

    zero3 = jax.tree.map(jnp.zeros_like, roots.p)
    start = kin.broadcast((roots.R, zero3, zero3, zero3, zero3 if sliding else None), q)
    R, p, r, ang, lin = outward(nodes, place, joints, start)
    S = Motion(ang, lin if sliding else ZERO3)
    at_nodes, at_roots = kin.node_inertias(sys, kin.body_inertias(sys))

    at_nodes, at_roots = at_nodes.rotate(R), at_roots.rotate(roots.R)
    zero = Inertia(0, ZERO3, Sym3(*[0] * 6))
    if extra is not None:
        at_nodes, at_roots = at_nodes.articulated() + extra[0], at_roots.articulated() + extra[1]

    def compose(acc, x):
        I, r, S = x
        Ic = acc + I
        return Ic.from_(r), Ic @ S

    none = zero if extra is None else zero.articulated()
    Ic0, F = inward(nodes, compose, (at_nodes, r, S), kin.zeros(none, q))
    return S, F, p, Ic0 + at_roots, roots


def composite_columns(sys: System, q, extra=None):
    """Columns S, forces F = Ic S, both about their own origins, and these origins, per freedom, (nv, B)."""
    nodes = nodes_of(sys.topology)
    S, F, p, Ic0, roots = composites(sys, q, extra)
    S_all, p_all = columns_by_dof(sys, S, p, roots)
    root_dofs = nodes.slot_of_dof >= nodes.size
    root = np.where(root_dofs, (nodes.slot_of_dof - nodes.size) // 6 + 1, 0)
    F_root = gather(Ic0, root) @ S_all
    if not nodes.size:
        return S_all, F_root, p_all
    mine = gather(F, np.where(root_dofs, 0, nodes.slot_of_dof))
    F_all = jax.tree.map(lambda a, b: jnp.where(root_dofs[:, None], a, b), F_root, mine)
    return S_all, F_all, p_all


@kernel(lambda sys, q: (sys.nv, sys.nv))
def _mass_matrix(sys: System, q):
    t = sys.topology
    if not t.clusters:
        return mass_matrix_with(sys, q, None)
    x = open_state(sys, q)
    rows = project_columns(t, x.G, mass_matrix_with(x.sys, x.q, None))
    return project_columns(t, x.G, jnp.swapaxes(rows, 0, 1))


def mass_matrix_with(sys: System, q, extra):
    """M with `extra` inertias, see `composites`; (nv, nv, B).

    Row by row, in a loop, because XLA would otherwise compute columns anew for every entry.
    """
    nv = sys.topology.nv
    if nv == 0:
        return jnp.zeros((0, 0) + q.shape[1:], q.dtype)
    S, F, p = composite_columns(sys, q, extra)
    above, below = (m[:, :, None] for m in relations(sys.topology))

    def row(_, x):
        S_r, F_r, p_r, above, below = x
        r = p_r - p
        return None, jnp.where(above, S.dot(F_r.from_(r)), jnp.where(below, S_r.dot(F.from_(-r)), 0))

    _, M = jax.lax.scan(row, None, (S, F, p, above, below))
    return M + jnp.asarray(np.eye(nv)[:, :, None], q.dtype) * sys.armature[:, None]
