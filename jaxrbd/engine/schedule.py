"""Which nodes of a forest are handled side by side: made once, on the host, in NumPy.

Nodes are packed into rows of `width` slots such that parents (and, for the inward pass, the next sibling)
stand in earlier rows; a row is one step of a scan. Slots left over are dead: they compute harmless numbers
that nobody reads. Nodes without children may be folded: they stand behind the rows, no step of the scan knows
them, and a pass handles all of them at once, after it (outward) or before it (inward).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False)
class Schedule:
    """What a pass needs to know of a forest: `rows` rows of `width` slots, then `folded` more; N in all.

    All NumPy, all static. What only a sweep reads (children, siblings) is of the slots in rows.
    """

    rows: int
    width: int
    nroots: int
    parent: np.ndarray  # (N,) slot, or N + root
    last_child: np.ndarray  # (n,) slot of the last child, n if none; n slots stand in rows
    previous_sibling: np.ndarray  # (n,) slot, n if none
    root_children: np.ndarray  # (nroots, k) slots, n as filler
    live: np.ndarray  # (N,) bool
    folded: int

    @property
    def size(self) -> int:
        return self.rows * self.width + self.folded

    @cached_property
    def in_rows(self) -> Schedule:
        """The same forest without its folded slots."""
        if not self.folded:
            return self
        n = self.rows * self.width
        parent = self.parent[:n]
        return Schedule(
            rows=self.rows,
            width=self.width,
            nroots=self.nroots,
            parent=np.where(parent >= self.size, parent - self.folded, parent),
            last_child=self.last_child,
            previous_sibling=self.previous_sibling,
            root_children=self.root_children,
            live=self.live[:n],
            folded=0,
        )

    @cached_property
    def folded_children(self) -> np.ndarray:
        """(n + nroots, k): which folded slots, counted from 0, hang on every slot and root; `folded` fills
        up.
        """
        n = self.rows * self.width
        lists: list[list[int]] = [[] for _ in range(n + self.nroots)]
        for k, p in enumerate(self.parent[n:]):
            lists[p if p < n else n + p - self.size].append(k)
        most = max([1] + [len(x) for x in lists])
        return np.array([x + [self.folded] * (most - len(x)) for x in lists], int)


def schedule(parents, nroots: int, width: int | None = None) -> tuple[dict, np.ndarray]:
    """The fields of a `Schedule` for nodes given by their parents (-1 - root for a root's child).

    Also the node that stands in every slot, -1 if none does.
    """
    parents = np.asarray(parents, int)
    width = width or _choose_width(parents)
    rows, siblings = _pack(parents, width)
    N, n = len(rows) * width, len(parents)
    slot = np.full(n, -1)
    for k, row in enumerate(rows):
        for j, i in enumerate(row):
            slot[i] = k * width + j
    node = np.full(N, -1)
    node[slot] = np.arange(n)
    parent_slot, last_child, previous = np.full(N, N), np.full(N, N), np.full(N, N)
    for i, p in enumerate(parents):
        parent_slot[slot[i]] = slot[p] if p >= 0 else N + (-1 - p)
        if p >= 0:
            last_child[slot[p]] = slot[i]  # children come in increasing order: the last one stays
        if siblings[i] >= 0:
            previous[slot[i]] = slot[siblings[i]]
    lists = [[slot[i] for i in range(n) if parents[i] == -1 - r] for r in range(nroots)]
    most = max([1] + [len(x) for x in lists])
    root_children = np.array([x + [N] * (most - len(x)) for x in lists]).reshape(-1, most)
    fields = {
        "rows": len(rows),
        "width": width,
        "nroots": nroots,
        "parent": parent_slot,
        "last_child": last_child,
        "previous_sibling": previous,
        "root_children": root_children,
        "live": node >= 0,
        "folded": 0,
    }
    return fields, node


def _pack(parents: np.ndarray, width: int):
    """Greedy list scheduling: deepest subtree first. Also the previous sibling of each node, -1 if none.

    Children of one node pass their sum along (`previous sibling`), so in the inward pass every node
    reads two rows whatever the tree; the outward order therefore puts later siblings first.
    """
    n = len(parents)
    children: list[list[int]] = [[] for _ in range(n)]
    roots, previous = [], np.full(n, -1)
    for i, p in enumerate(parents):
        if p < 0:
            roots.append(i)
            continue
        if children[p]:
            previous[i] = children[p][-1]
        children[p].append(i)

    def followers(i):  # what may start once i is done
        return children[i][-1:] + [int(k) for k in previous[i : i + 1] if k >= 0]

    order = list(roots)
    for i in order:
        order += followers(i)
    length = np.ones(n, int)  # the longest chain of steps that hangs on each node
    for i in reversed(order):
        length[i] = 1 + max([length[k] for k in followers(i)], default=0)
    ready, rows = list(roots), []
    while ready:
        ready.sort(key=lambda i: (-length[i], i))
        row, ready = ready[:width], ready[width:]
        rows.append(row)
        for i in row:
            ready += followers(i)
    return rows, previous


def _choose_width(parents: np.ndarray) -> int:
    """Width with the least estimated time: a step costs about as much as the arithmetic of three links."""
    if len(parents) == 0:
        return 1
    cost = {w: len(_pack(parents, w)[0]) * (3 + w) for w in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)}
    return min(cost, key=lambda w: cost[w])
