"""The tree as the recursions see it: scalar columns ("nodes") laid out in rows.

A joint with k degrees of freedom is a run of k nodes: node after node, each with one column S, only
the last one carrying the body's inertia. Eliminating columns one by one equals inverting the k x k
block, so no algorithm needs to know joint types; the columns of each stand in `jaxrbd.joints`. Free joints
that hang on the world are not nodes: they are roots, handled by one 6x6 solve per tree; root 0 is the world
itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from jaxrbd.engine.schedule import Schedule, schedule
from jaxrbd.errors import ArgumentError
from jaxrbd.joints import TYPES
from jaxrbd.joints.record import Path
from jaxrbd.model.system import Topology

BENDS = 3  # of `Nodes.slides`: the column depends on q


@dataclass(frozen=True, eq=False)
class Nodes(Schedule):
    """The whole tree as a schedule, with index tables in slot order."""

    root_bodies: np.ndarray  # (nroots - 1,) bodies of the free roots
    root: np.ndarray  # (N,) the root of the node's tree
    body: np.ndarray  # (N,) body whose joint the node belongs to
    first: np.ndarray  # (N,) bool: first of its run, so it applies the joint's placement
    last: np.ndarray  # (N,) bool: last of its run, so it carries the body
    turns: np.ndarray  # (N,) 1 or 0
    slides: np.ndarray  # (N,) 0, 1, PITCH, or BENDS where the node follows a path (it turns 0 then)
    axis: np.ndarray  # (N,) see `jaxrbd.joints.Column`
    moves: np.ndarray  # (N,) bool: a scalar coordinate moves it
    q: np.ndarray  # (N,) index into q (of the joint's first coordinate if it does not move)
    v: np.ndarray  # (N,) index into v
    slot_of_dof: np.ndarray  # (nv,) slot, or N + 6 * (root - 1) + column for free roots
    body_slot: np.ndarray  # (nb,) slot of the body's last node, or N + root
    quaternion_first: np.ndarray  # slots that start a spherical or inner free run
    free_first: np.ndarray  # slots that start an inner free run
    paths: tuple[tuple[Path, np.ndarray], ...]  # where columns depend on q: path, slots
    virtual: np.ndarray  # slots of nodes without a motion


@lru_cache(maxsize=512)
def nodes_of(topology: Topology, width: int | None = None) -> Nodes:
    """Lay out a topology; `width` overrides the topology's own row width.

    Bodies that the topology folds stand behind the rows. A System with clusters has no layout: its open tree
    has one (`loop_maps.opened`), and `lanes` one for the articulated passes.
    """
    t = topology
    if t.clusters:
        raise ArgumentError(
            f"{t.name!r} has kinematic loops in its state, which this function does not know yet. Call it "
            "with sys.tree and rbd.to_tree(sys, q, v), or load the model with loops='constraint'."
        )
    return lay_out(t, width)


def lay_out(t: Topology, width: int | None = None, virtual: tuple[tuple[int, ...], ...] = ()) -> Nodes:
    """`nodes_of`, with a node without a motion of its own above the bodies of each tuple of `virtual`.

    The bodies of a tuple have one parent. The node hangs there instead, and they on it.
    """
    root_bodies = [b for b in range(t.nb) if TYPES[t.joint_types[b]].free and t.parents[b] < 0]
    end = {b: -1 - k for k, b in enumerate(root_bodies, 1)}  # last node of each body, roots negative
    bent: dict[Path, list[int]] = {}
    runs = []  # (body, first, last, turns, slides, axis, moves, q, v, parent node or -1 - root)
    above = {b: k for k, bodies in enumerate(virtual) for b in bodies}
    made: dict[int, int] = {}  # virtual node -> its run
    folded = set(t.folded)
    for b in sorted(range(t.nb), key=lambda b: b in folded):  # folded ones last
        if b in end:
            continue
        parent = end[t.parents[b]] if t.parents[b] >= 0 else -1
        if b in above:
            if above[b] not in made:
                runs.append((b, False, False, 1, 0, 0, False, 0, 0, parent))
                made[above[b]] = len(runs) - 1
            parent = made[above[b]]
        record = TYPES[t.joint_types[b]]
        scalar = not record.on_manifold
        for k, c in enumerate(record.columns):
            q, v = t.q_starts[b] + (k if scalar else 0), t.v_starts[b] + k
            turns, slides = (0, BENDS) if c.path else (c.turns, c.slides)
            runs.append((b, k == 0, k == record.nv - 1, turns, slides, c.axis, scalar, q, v, parent))
            parent = len(runs) - 1
            if c.path:
                bent.setdefault(c.path, []).append(parent)
        end[b] = parent
    parents = np.array([r[-1] for r in runs], int)
    inner = len(runs) - len(folded)
    tables, node = schedule(parents[:inner], len(root_bodies) + 1, width or t.row_width)
    node = np.concatenate([node, np.arange(inner, len(runs))])
    N, live = len(node), node >= 0
    slot = np.full(len(runs), -1)
    slot[node[live]] = np.flatnonzero(live)
    if folded:
        in_rows = N - len(folded)
        hang = [slot[p] if p >= 0 else N - 1 - p for p in parents[inner:]]
        up = np.where(tables["parent"] >= in_rows, tables["parent"] + len(folded), tables["parent"])
        tables |= {"parent": np.concatenate([up, hang]).astype(int), "live": live, "folded": len(folded)}
    take = lambda column, fill, dtype=int: np.array(  # noqa: E731
        [runs[i][column] if i >= 0 else fill for i in node], dtype
    ).reshape(N)
    root, root_of = np.zeros(N, int), np.zeros(len(runs), int)
    for i, p in enumerate(parents):
        root[slot[i]] = root_of[i] = root_of[p] if p >= 0 else -1 - p
    slot_of_dof = np.zeros(t.nv, int)
    real = set(range(len(runs))) - set(made.values())
    for i in real:
        slot_of_dof[runs[i][8]] = slot[i]
    body_slot = np.zeros(t.nb, int)
    for b, e in end.items():
        body_slot[b] = slot[e] if e >= 0 else N + (-1 - e)
    for k, b in enumerate(root_bodies):
        slot_of_dof[t.v_starts[b] : t.v_starts[b] + 6] = N + 6 * k + np.arange(6)
    first, moves, body = take(1, False, bool), take(6, False, bool), take(0, 0)
    quaternion_first = np.flatnonzero(live & first & ~moves)
    free_first = np.array([s for s in quaternion_first if TYPES[t.joint_types[body[s]]].free], int)
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
        paths=tuple((path, slot[np.array(found)]) for path, found in bent.items()),
        virtual=np.array([slot[made[k]] for k in range(len(virtual))], int),
    )


def some_nodes(nodes: Nodes, slots: np.ndarray) -> Nodes:
    """The tables of some slots alone, for what needs no recursion; whole runs of joints on manifolds."""
    index = {int(s): k for k, s in enumerate(slots)}
    n = len(slots)
    none = np.full(n, n)
    pick = lambda x: np.array([index[int(s)] for s in x if int(s) in index], int)  # noqa: E731
    rows = {
        key: getattr(nodes, key)[slots]
        for key in ("live", "root", "body", "first", "last", "turns", "slides", "axis", "moves", "q", "v")
    }
    return Nodes(
        rows=n,
        width=1,
        nroots=nodes.nroots,
        parent=none,
        last_child=none,
        previous_sibling=none,
        root_children=np.full((nodes.nroots, 1), n),
        folded=0,
        root_bodies=nodes.root_bodies,
        slot_of_dof=np.array([index.get(int(s), n) for s in nodes.slot_of_dof], int),
        body_slot=np.array([index.get(int(s), n) for s in nodes.body_slot], int),
        quaternion_first=pick(nodes.quaternion_first),
        free_first=pick(nodes.free_first),
        paths=tuple((path, found) for path, x in nodes.paths if len(found := pick(x))),
        virtual=np.zeros(0, int),
        **rows,
    )
