"""Branch-sparse factorisation M = LᵀL: L is lower triangular and zero wherever M is.

[RBDA] Table 8.2. A row of L is stored along the path from the degree of freedom to its root: entry t
belongs to the ancestor at depth t, and the rows of two degrees of freedom on one path share their
ancestors, so the update of row i = ancestor_t(k) is H_i -= L_kt L_k, entry by entry. O(nv depth²).
"""

from __future__ import annotations

from functools import lru_cache

import jax.numpy as jnp
import numpy as np

from jaxrbd.model.system import System, Topology
from jaxrbd.tree.arguments import arguments, array, require_mass
from jaxrbd.tree.batching import kernel
from jaxrbd.tree.crba import _mass_matrix, ancestor_pairs
from jaxrbd.tree.scan import visit_dofs


def mass_matrix_factor(sys: System, q):
    """L(q), (nv, nv), lower triangular with M = LᵀL and the sparsity of the tree."""
    (q,) = arguments(sys, q=q)
    require_mass(sys, "mass_matrix_factor")
    return _factor(sys, q)


def solve_factor(sys: System, L, b):
    """x with LᵀL x = b, O(nv depth): inward for Lᵀ y = b, outward for L x = y."""
    L = array("L", L, (sys.nv, sys.nv), f"(nv, nv) = ({sys.nv}, {sys.nv})", sys.dtype)
    (b,) = arguments(sys, b=b)
    return _solve(sys, L, b)


@lru_cache(maxsize=512)
def _paths(t: Topology):
    """Ancestors of each degree of freedom by depth, itself last, filled with nv; and the depths."""
    parent_dof = ancestor_pairs(t)[2]
    paths = []
    for k in range(t.nv):
        path = [k]
        while parent_dof[path[-1]] >= 0:
            path.append(int(parent_dof[path[-1]]))
        paths.append(path[::-1])
    most = max([len(p) for p in paths], default=1)
    anc = np.array([p + [t.nv] * (most - len(p)) for p in paths], int).reshape(-1, most)
    return anc, np.array([len(p) - 1 for p in paths], int)


@kernel(lambda sys, *_: (sys.nv, sys.nv))
def _factor(sys: System, q):
    t = sys.topology
    anc, depth = _paths(t)
    M = _mass_matrix.batch_last(sys, q)
    M = jnp.concatenate([M, jnp.zeros_like(M[:, :1])], 1)
    H = jnp.concatenate(
        [M[np.arange(t.nv)[:, None], anc], jnp.zeros((1, anc.shape[1]) + M.shape[2:], M.dtype)]
    )

    def eliminate(H, k, anc_k, depth_k):
        row = H[k]
        row = row / jnp.sqrt(row[depth_k])
        above = jnp.where((jnp.arange(row.shape[0]) < depth_k)[:, None], row, 0)
        H = H.at[anc_k].add(
            -above[:, None] * above[None]
        )  # rows of ancestors; entries past their depth are unused
        return H.at[k].set(row)

    H = visit_dofs(eliminate, H, anc, depth, inward=True)
    entries = H[: t.nv].reshape((-1,) + H.shape[2:])
    entries = jnp.concatenate([entries, jnp.zeros_like(entries[:1])])
    table = np.full((t.nv, t.nv + 1), entries.shape[0] - 1)
    table[np.arange(t.nv)[:, None], anc] = np.arange(anc.size).reshape(anc.shape)
    return entries[table[:, : t.nv]]


@kernel(lambda sys, *_: (sys.nv,))
def _solve(sys: System, L, b):
    anc, depth = _paths(sys.topology)
    pad = jnp.concatenate([L, jnp.zeros_like(L[:, :1])], 1)
    rows = pad[np.arange(sys.topology.nv)[:, None], anc]
    x = jnp.concatenate([b, jnp.zeros_like(b[:1])])

    def transposed(x, k, anc_k, depth_k):
        row = rows[k]
        y = x[k] / row[depth_k]
        return x.at[anc_k].add(-row * y).at[k].set(y)

    def forward(x, k, anc_k, depth_k):
        row = rows[k]
        known = jnp.where((jnp.arange(row.shape[0]) < depth_k)[:, None], x[anc_k], 0)
        return x.at[k].set((x[k] - jnp.sum(row * known, 0)) / row[depth_k])

    x = visit_dofs(transposed, x, anc, depth, inward=True)
    return visit_dofs(forward, x, anc, depth, inward=False)[:-1]
