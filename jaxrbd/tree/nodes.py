"""The tree as the recursions see it: scalar columns ("nodes") laid out in rows.

A joint with k degrees of freedom is a run of k nodes: node after node, each with one column S, only
the last one carrying the body's inertia. Eliminating columns one by one equals inverting the k x k
block, so no algorithm needs to know joint types. Free joints that hang on the world are not nodes:
they are roots, handled by one 6x6 solve per tree; root 0 is the world itself.

Nodes are packed into rows of `width` slots such that parents (and, for the inward pass, the next
sibling) stand in earlier rows; a row is one step of the scan. Slots left over are dead: they compute
harmless numbers that nobody reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from jaxrbd.model.system import Topology

# columns of each joint type: (turns, slides, which axis, moves with a coordinate)
# axes: 0 axis, 1 axis2, 2 axis x axis2, 3-5 the child's x, y, z
_RUNS = {
    "revolute": [(1, 0, 0, True)],
    "continuous": [(1, 0, 0, True)],
    "prismatic": [(0, 1, 0, True)],
    "screw": [(1, 2, 0, True)],  # slides by the pitch
    "cylindrical": [(1, 0, 0, True), (0, 1, 0, True)],
    "universal": [(1, 0, 0, True), (1, 0, 1, True)],
    "planar": [(0, 1, 1, True), (0, 1, 2, True), (1, 0, 0, True)],
    "spherical": [(1, 0, 3 + k, False) for k in range(3)],
    "free": [(1, 0, 3 + k, False) for k in range(3)] + [(0, 1, 3 + k, False) for k in range(3)],
}


@dataclass(frozen=True, eq=False)
class Schedule:
    """What a sweep needs to know of a forest: N slots in `rows` rows of `width`. All NumPy, all static."""

    rows: int
    width: int
    nroots: int
    parent: np.ndarray  # (N,) slot, or N + root
    last_child: np.ndarray  # (N,) slot of the last child, N if none
    previous_sibling: np.ndarray  # (N,) slot, N if none
    root_children: np.ndarray  # (nroots, k) slots, N as filler
    live: np.ndarray  # (N,) bool

    @property
    def size(self) -> int:
        return self.rows * self.width


@dataclass(frozen=True, eq=False)
class Nodes(Schedule):
    """The whole tree as a schedule, with index tables in slot order."""

    root_bodies: np.ndarray  # (nroots - 1,) bodies of the free roots
    root: np.ndarray  # (N,) the root of the node's tree
    body: np.ndarray  # (N,) body whose joint the node belongs to
    first: np.ndarray  # (N,) bool: first of its run, so it applies the joint's placement
    last: np.ndarray  # (N,) bool: last of its run, so it carries the body
    turns: np.ndarray  # (N,) 1 or 0
    slides: np.ndarray  # (N,) 0, 1, or 2 for the screw's pitch
    axis: np.ndarray  # (N,) see _RUNS
    moves: np.ndarray  # (N,) bool: a scalar coordinate moves it
    q: np.ndarray  # (N,) index into q (of the joint's first coordinate if it does not move)
    v: np.ndarray  # (N,) index into v
    slot_of_dof: np.ndarray  # (nv,) slot, or N + 6 * (root - 1) + column for free roots
    body_slot: np.ndarray  # (nb,) slot of the body's last node, or N + root
    quaternion_first: np.ndarray  # slots that start a spherical or inner free run
    free_first: np.ndarray  # slots that start an inner free run


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
    }
    return fields, node


@lru_cache(maxsize=512)
def nodes_of(topology: Topology, width: int | None = None) -> Nodes:
    """Lay out a topology; `width` overrides the topology's own row width."""
    t = topology
    root_bodies = [b for b in range(t.nb) if t.joint_types[b] == "free" and t.parents[b] < 0]
    end = {b: -1 - k for k, b in enumerate(root_bodies, 1)}  # last node of each body, roots negative
    runs = []  # (body, first, last, turns, slides, axis, moves, q, v, parent node or -1 - root)
    for b in range(t.nb):
        if b in end:
            continue
        parent = end[t.parents[b]] if t.parents[b] >= 0 else -1
        run = _RUNS[t.joint_types[b]]
        for k, (turns, slides, axis, moves) in enumerate(run):
            q = t.q_starts[b] + (k if moves else 0)
            runs.append(
                (b, k == 0, k == len(run) - 1, turns, slides, axis, moves, q, t.v_starts[b] + k, parent)
            )
            parent = len(runs) - 1
        end[b] = parent
    parents = np.array([r[-1] for r in runs], int)
    tables, node = schedule(parents, len(root_bodies) + 1, width or t.row_width)
    N, live = len(node), node >= 0
    slot = np.full(len(runs), -1)
    slot[node[live]] = np.flatnonzero(live)
    take = lambda column, fill, dtype=int: np.array(  # noqa: E731
        [runs[i][column] if i >= 0 else fill for i in node], dtype
    ).reshape(N)
    root, root_of = np.zeros(N, int), np.zeros(len(runs), int)
    for i, p in enumerate(parents):
        root[slot[i]] = root_of[i] = root_of[p] if p >= 0 else -1 - p
    slot_of_dof = np.zeros(t.nv, int)
    for i, r in enumerate(runs):
        slot_of_dof[r[8]] = slot[i]
    body_slot = np.zeros(t.nb, int)
    for b, e in end.items():
        body_slot[b] = slot[e] if e >= 0 else N + (-1 - e)
    for k, b in enumerate(root_bodies):
        slot_of_dof[t.v_starts[b] : t.v_starts[b] + 6] = N + 6 * k + np.arange(6)
    first, moves, body = take(1, False, bool), take(6, False, bool), take(0, 0)
    quaternion_first = np.flatnonzero(live & first & ~moves)
    free_first = np.array([s for s in quaternion_first if t.joint_types[body[s]] == "free"], int)
    return Nodes(
        **tables,
        root_bodies=np.array(root_bodies, int),
        root=root,
        body=body,
        first=first,
        last=take(2, False, bool),
        turns=take(3, 1),
        slides=take(4, 0),
        axis=take(5, 5),
        moves=moves,
        q=take(7, 0),
        v=take(8, 0),
        slot_of_dof=slot_of_dof,
        body_slot=body_slot,
        quaternion_first=quaternion_first,
        free_first=free_first,
    )


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
    return min(cost, key=cost.get)
