"""Where rows of constraints meet the tree: made once per topology and set of constraints, on the host.

A row that acts on one body is eliminated at that body. A row between two bodies, or on joints, stays open
from where it acts to the nearest link that carries all of it, its closing; on the way it occupies a lane, a
place for six numbers in what a link hands to its parent. Rows whose ways do not meet share a lane.

Links on the way from a constrained body to the root support constraints; only they take part in the
iterations. All others hang on them, or on a root, and are eliminated once ("rest").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from jaxrbd.constraints.data import Entry
from jaxrbd.constraints.rows import table_of
from jaxrbd.engine.schedule import Schedule, schedule
from jaxrbd.model.system import Topology
from jaxrbd.tree.nodes import nodes_of


@dataclass(frozen=True, eq=False)
class Plan:
    """Index tables. Positions are supporting slots, then roots (world first)."""

    support: Schedule
    slots: np.ndarray  # (NS,) slot of the whole tree for every supporting slot
    rest: Schedule  # its roots are the positions on which unsupported links hang
    rest_slots: np.ndarray  # (NU,)
    attachments: np.ndarray  # positions of the rest's roots
    closed: np.ndarray  # (m,) bool: eliminated at the body itself
    position_a: np.ndarray  # (m,) position of body A
    position_b: np.ndarray  # (m,)
    dof_position: np.ndarray  # (ne,) position of the freedoms in joint entries
    dof_column: np.ndarray  # (ne,) which of a free root's six columns, -1 for a joint
    root_pair: np.ndarray  # (ne,) entries of one row on one root form a wrench: its number, -1 for a joint
    lanes: int
    wrench: np.ndarray  # (P, lanes) which of [K_A rows, K_B rows, root entries, zero] is put there
    entry: np.ndarray  # (NS, lanes) which of [kappa, zero] acts on the joint
    begin: np.ndarray  # (P, lanes) the row that starts here, m if none
    close: np.ndarray  # (P, lanes) bool; the world's line says what is left for the world
    lane: np.ndarray  # (m,) lane of every open row, 0 for closed ones
    closing: np.ndarray  # (m,) position where it closes

    @property
    def inner(self) -> list[int]:
        """Lanes in which some row closes at a link or a free root, before the world."""
        inside = self.close.copy()
        inside[self.support.size] = False
        return np.flatnonzero(inside.any(0)).tolist()


@lru_cache(maxsize=512)
def plan_of(t: Topology, entries: tuple[Entry, ...], late: bool = False) -> Plan:
    """`late`: every row stays open up to the world, as in the algorithm of Popov and Vereshchagin."""
    nodes, table = nodes_of(t), table_of(t, entries)
    N, m, world = nodes.size, table.m, nodes.size
    parent = lambda s: int(nodes.parent[s]) if s < N else world if s > world else -1  # noqa: E731

    def way(s, end=-1):
        found = []
        while s != -1:
            found.append(s)
            if s == end:
                break
            s = parent(s)
        return found

    dof_slot = np.array([_slot_of_dof(nodes, d) for d in table.joint_dofs], int)
    acts = [{int(s) for s in (table.slot_a[r], table.slot_b[r]) if s != world} for r in range(m)]
    joints = [[int(s) for s in dof_slot[table.joint_rows == r]] for r in range(m)]
    closed = np.array([len(acts[r]) == 1 and not joints[r] and not late for r in range(m)], bool)
    closing = np.full(m, world)
    for r in range(m):
        if closed[r]:
            closing[r] = next(iter(acts[r]))
        elif not late:
            starts = [*acts[r], *(s if s > world else parent(s) for s in joints[r])]
            common = set.intersection(*(set(way(s)) for s in starts))
            closing[r] = next(s for s in way(starts[0]) if s in common)
    needed = sorted({s for r in range(m) for a in (*acts[r], *joints[r]) for s in way(a) if s < N})
    position = {s: k for k, s in enumerate(needed)}
    tables, node = schedule(
        [position[parent(s)] if parent(s) < N else -1 - (parent(s) - N) for s in needed], nodes.nroots
    )
    support = Schedule(**tables)
    NS = support.size
    at = {needed[k]: j for j, k in enumerate(node) if k >= 0}
    at |= {N + k: NS + k for k in range(nodes.nroots)}
    slots = np.array([needed[k] if k >= 0 else needed[0] for k in node], int)

    others = [int(s) for s in np.flatnonzero(nodes.live) if s not in position]
    order = {s: k for k, s in enumerate(others)}
    hooks = sorted({at[parent(s)] for s in others if parent(s) not in order})
    hang = [order[parent(s)] if parent(s) in order else -1 - hooks.index(at[parent(s)]) for s in others]
    rest_tables, rest_node = schedule(hang, max(1, len(hooks)))
    rest_slots = np.array([others[k] if k >= 0 else others[0] for k in rest_node], int)

    # lanes: greedy, rows whose ways meet get different ones
    ways = [
        set().union(*(way(s, closing[r]) for s in (*acts[r], *joints[r]))) if not closed[r] else set()
        for r in range(m)
    ]
    lane = np.zeros(m, int)
    for r in range(m):
        if not closed[r]:
            taken = {int(lane[k]) for k in range(r) if not closed[k] and ways[k] & ways[r]}
            lane[r] = next(k for k in range(m + 1) if k not in taken)
    lanes = int(max([0] + [lane[r] + 1 for r in range(m) if not closed[r]]))
    P = NS + nodes.nroots
    column = np.array(
        [int(nodes.slot_of_dof[d] - N) % 6 if s >= N else -1 for d, s in zip(table.joint_dofs, dof_slot)], int
    )
    pairs = sorted({(int(r), int(s)) for r, s, c in zip(table.joint_rows, dof_slot, column) if c >= 0})
    root_pair = np.array(
        [
            pairs.index((int(r), int(s))) if c >= 0 else -1
            for r, s, c in zip(table.joint_rows, dof_slot, column)
        ],
        int,
    )
    empty = 2 * m + len(pairs)
    wrench, entry = np.full((P, lanes), empty), np.full((NS, lanes), len(dof_slot))
    begin, close = np.full((P, lanes), m), np.zeros((P, lanes), bool)
    for r in np.flatnonzero(~closed):
        for side, s in enumerate((int(table.slot_a[r]), int(table.slot_b[r]))):
            if s != world:
                wrench[at[s], lane[r]] = r + side * m
        for k in np.flatnonzero(table.joint_rows == r):
            if column[k] >= 0:
                wrench[at[int(dof_slot[k])], lane[r]] = 2 * m + root_pair[k]
            else:
                entry[at[int(dof_slot[k])], lane[r]] = k
        begin[at[sorted((*acts[r], *joints[r]), key=lambda s: s >= N)[0]], lane[r]] = r
        close[at[int(closing[r])], lane[r]] = True
    return Plan(
        support=support,
        slots=slots,
        rest=Schedule(**rest_tables),
        rest_slots=rest_slots,
        attachments=np.array(hooks or [NS], int),
        closed=closed,
        position_a=np.array([at[int(s)] for s in table.slot_a], int),
        position_b=np.array([at[int(s)] for s in table.slot_b], int),
        dof_position=np.array([at[int(s)] for s in dof_slot], int),
        dof_column=column,
        root_pair=root_pair,
        lanes=lanes,
        wrench=wrench,
        entry=entry,
        begin=begin,
        close=close,
        lane=lane,
        closing=np.array([at[int(s)] for s in closing], int),
    )


def _slot_of_dof(nodes, d: int) -> int:
    s = int(nodes.slot_of_dof[d])
    return s if s < nodes.size else nodes.size + 1 + (s - nodes.size) // 6
