"""Branch-sparse factorisation M = LᵀL: L is lower triangular and zero wherever M is.

[RBDA] Table 8.2, with the square roots taken last: `sparse` finds M = LᵀDL with a unit L. O(nv depth²).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.model.system import System, Topology
from jaxrbd.tree import sparse
from jaxrbd.tree.arguments import arguments, array, require_mass
from jaxrbd.tree.crba import _mass_matrix, relations
from jaxrbd.tree.kernels import kernel
from jaxrbd.typing import Array, ArrayLike


def mass_matrix_factor(sys: System, q: ArrayLike) -> Array:
    """L(q), (nv, nv), lower triangular with M = LᵀL and the sparsity of the tree."""
    (q,) = arguments(sys, q=q)
    require_mass(sys, "mass_matrix_factor")
    if sys.topology.clusters:  # dense, from the last row on
        return jnp.linalg.cholesky(_mass_matrix(sys, q)[::-1, ::-1])[::-1, ::-1].T
    return _factor(sys, q)


def solve_factor(sys: System, L: ArrayLike, b: ArrayLike) -> Array:
    """x with LᵀL x = b, O(nv depth): inward for Lᵀ y = b, outward for L x = y."""
    L = array("L", L, (sys.nv, sys.nv), f"(nv, nv) = ({sys.nv}, {sys.nv})", sys.dtype)
    (b,) = arguments(sys, b=b)
    if sys.topology.clusters:
        y = jax.scipy.linalg.solve_triangular(L, b, trans=1, lower=True)
        return jax.scipy.linalg.solve_triangular(L, y, lower=True)
    return _solve(sys, L, b)


@kernel(lambda sys, *_: (sys.nv, sys.nv))
def _factor(sys: System, q):
    pattern = sparse.pattern_of(mass_pattern(sys.topology))
    H = sparse.factor(pattern, sparse.store(pattern, _mass_matrix.batch_last(sys, q)))
    root = jnp.sqrt(sparse.diagonal(pattern, H))
    return sparse.unstore(pattern, jnp.where(_on_diagonal(pattern), root[:, None], H * root[:, None]))


@kernel(lambda sys, *_: (sys.nv,))
def _solve(sys: System, L, b):
    pattern = sparse.pattern_of(mass_pattern(sys.topology))
    H = sparse.store(pattern, L)
    root = sparse.diagonal(pattern, H)
    H = jnp.where(_on_diagonal(pattern), root[:, None] ** 2, H / root[:, None])
    return sparse.solve(pattern, H, b)


def mass_pattern(t: Topology) -> np.ndarray:
    """Which entries of the mass matrix are not zero, (nv, nv)."""
    above, below = relations(t)
    return above | below


def _on_diagonal(pattern: sparse.Pattern):
    return (np.arange(pattern.ancestors.shape[1]) == pattern.depth[:, None])[:, :, None]
