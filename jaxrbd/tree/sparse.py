"""Factorisation A = Lᵀ D L of symmetric matrices whose rows are stored along paths of a tree.

The pattern of the factor is that of an elimination tree: row k has entries at its ancestors only, and entry
t of a row belongs to the ancestor at depth t, so that two rows on one path update each other entry by entry.
The mass matrix has the tree of the robot ([RBDA] Table 8.2); M + Jᵀ mu J and the KKT matrix of [PROX] have
trees with the fill that constraints bring. D may be indefinite. Costs O(n depth²), solves O(n depth).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.engine.loops import visit_dofs


@dataclass(frozen=True, eq=False)
class Pattern:
    """An elimination tree over n numbers, eliminated from the last to the first."""

    ancestors: np.ndarray  # (n, D) by depth, itself last, filled with n
    depth: np.ndarray  # (n,)

    @property
    def n(self) -> int:
        return len(self.depth)

    def first(self, count: int) -> Pattern:
        """The tree of the first rows alone."""
        width = int(self.depth[:count].max(initial=0)) + 1
        return Pattern(np.minimum(self.ancestors[:count, :width], count), self.depth[:count])


def pattern_of(nonzero: np.ndarray) -> Pattern:
    """The elimination tree of a symmetric pattern (n, n), fill included."""
    return _pattern(nonzero.shape[0], np.packbits(nonzero).tobytes())


@lru_cache(maxsize=512)
def _pattern(n: int, bits: bytes) -> Pattern:
    nonzero = np.unpackbits(np.frombuffer(bits, np.uint8), count=n * n).reshape(n, n)
    structure = [{j for j in range(k) if nonzero[k, j] or nonzero[j, k]} for k in range(n)]
    parent = np.full(n, -1)
    for k in reversed(range(n)):
        if structure[k]:
            p = max(structure[k])
            parent[k] = p
            structure[p] |= structure[k] - {p}
    paths: list[list[int]] = []
    for k in range(n):
        paths.append((paths[parent[k]] if parent[k] >= 0 else []) + [k])
    width = max([1] + [len(p) for p in paths])
    return Pattern(
        np.array([p + [n] * (width - len(p)) for p in paths]).reshape(n, width),
        np.array([len(p) - 1 for p in paths], int),
    )


def store(pattern: Pattern, A):
    """Rows of A (n, n, B) along their paths: (n, D, B)."""
    n = pattern.n
    index = np.where(pattern.ancestors < n, np.arange(n)[:, None] * n + pattern.ancestors, n * n)
    flat = A.reshape((n * n,) + A.shape[2:])
    return gather(jnp.concatenate([flat, jnp.zeros_like(flat[:1])]), index)


def unstore(pattern: Pattern, H):
    """The matrix (n, n, B) that has the rows H along their paths, and zeros elsewhere."""
    n, width = pattern.ancestors.shape
    table = np.full((n, n + 1), n * width)
    table[np.arange(n)[:, None], pattern.ancestors] = np.arange(n * width).reshape(n, width)
    flat = H.reshape((n * width,) + H.shape[2:])
    return gather(jnp.concatenate([flat, jnp.zeros_like(flat[:1])]), table[:, :n])


def factor(pattern: Pattern, H):
    """L below the diagonal and D on it, stored along paths."""
    position = np.arange(pattern.ancestors.shape[1])

    def eliminate(H, k, ancestors, depth):
        row = H[k]
        d = row[depth]
        above = jnp.where((position < depth)[:, None], row, 0)
        unit = above / d
        H = H.at[ancestors].add(-above[:, None] * unit[None], mode="drop")
        return H.at[k].set(jnp.where((position == depth)[:, None], d, unit))

    return visit_dofs(eliminate, H, pattern.ancestors, pattern.depth, inward=True)


def diagonal(pattern: Pattern, H):
    """D, (n, B)."""
    flat = H.reshape((-1,) + H.shape[2:])
    return gather(flat, np.arange(pattern.n) * H.shape[1] + pattern.depth)


def solve_transposed(pattern: Pattern, H, b):
    """y with Lᵀ y = b, for b (n, ..., B): from the last to the first."""
    lead = (1,) * (b.ndim - 2)
    position = np.arange(pattern.ancestors.shape[1])

    def step(x, k, ancestors, depth):
        row = jnp.where((position < depth)[:, None], H[k], 0)
        row = row.reshape(row.shape[:1] + lead + row.shape[1:])
        return x.at[ancestors].add(-row * x[k][None], mode="drop")

    return visit_dofs(step, b, pattern.ancestors, pattern.depth, inward=True)


def solve_lower(pattern: Pattern, H, b):
    """x with L x = b: from the first to the last."""
    lead = (1,) * (b.ndim - 2)
    position = np.arange(pattern.ancestors.shape[1])
    inside = np.minimum(pattern.ancestors, pattern.n - 1)

    def step(x, k, ancestors, depth):
        row = jnp.where((position < depth)[:, None], H[k], 0)
        row = row.reshape(row.shape[:1] + lead + row.shape[1:])
        return x.at[k].add(-jnp.sum(row * x[ancestors], 0))

    return visit_dofs(step, b, inside, pattern.depth, inward=False)


def solve(pattern: Pattern, H, b):
    """A x = b for b (n, ..., B), given the factor."""
    y = solve_transposed(pattern, H, b)
    D = diagonal(pattern, H)
    y = y / D.reshape(D.shape[:1] + (1,) * (b.ndim - 2) + D.shape[1:])
    return solve_lower(pattern, H, y)
