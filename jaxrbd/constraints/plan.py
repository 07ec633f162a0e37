r"""Where rows of constraints meet the tree: made once per topology and set of constraints, on the host.

A row that acts on one body is eliminated at that body. A row between two bodies, or on joints, stays open
from where it acts to the nearest link that carries all of it, its closing; on the way it occupies a lane, a
place for six numbers in what a link hands to its parent. Rows whose ways do not meet share a lane:

    world --- 1 --- 2 --- 3 --- 4        row a between 3 and 6: open 3 -> 2 and 6 -> 5 -> 2, closes at 2
                     \           \      row b on 4 alone: eliminated at 4, never open
                      5 --- 6     7     row c between 4 and 7: open 7 -> 4, closes at 4; shares a's lane

Links on the way from a constrained body to the root support constraints; only they take part in the
iterations. All others hang on them, or on a root, and are eliminated once (`unsupported`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from jaxrbd.constraints.data import Entry
from jaxrbd.constraints.rows import table_of
from jaxrbd.engine.schedule import Schedule, schedule
from jaxrbd.model.system import Topology
from jaxrbd.tree.nodes import Nodes, nodes_of


@dataclass(frozen=True, eq=False)
class Plan:
    """Index tables. Positions are supporting slots, then roots (world first)."""

    support: Schedule
    slots: np.ndarray  # (NS,) slot of the whole tree for every supporting slot
    unsupported: Schedule  # its roots are the positions on which unsupported links hang
    unsupported_slots: np.ndarray  # (NU,)
    attachments: np.ndarray  # positions of its roots
    on_one_body: np.ndarray  # (m,) bool: eliminated at the body itself
    position_a: np.ndarray  # (m,) position of body A
    position_b: np.ndarray  # (m,)
    dof_position: np.ndarray  # (ne,) position of the freedoms in joint entries
    dof_column: np.ndarray  # (ne,) which of a free root's six columns, -1 for a joint
    root_pair: np.ndarray  # (ne,) entries of one row on one root form a wrench: its number, -1 for a joint
    width: int  # lanes side by side
    wrench: np.ndarray  # (P, width) which of [K_A rows, K_B rows, root entries, zero] is put there
    entry: np.ndarray  # (NS, width) which of [kappa, zero] acts on the joint
    begin: np.ndarray  # (P, width) the row that starts here, m if none
    close: np.ndarray  # (P, width) bool; the world's line says what is left for the world
    lane: np.ndarray  # (m,) lane of every open row, 0 for those on one body
    closing: np.ndarray  # (m,) position where it closes

    @property
    def inner(self) -> list[int]:
        """Lanes in which some row closes at a link or a free root, before the world."""
        inside = self.close.copy()
        inside[self.support.size] = False
        return np.flatnonzero(inside.any(0)).tolist()


class Reach(NamedTuple):
    """Where rows act, in slots of the whole tree; the world is slot N, free roots are N + 1, N + 2, ..."""

    parents: Callable[[int], int]  # slot of the parent, -1 above the world
    acts: list[set[int]]  # of every row: the slots of its bodies
    joints: list[list[int]]  # and of the joints in its entries
    dof_slot: np.ndarray  # (ne,) of every joint entry
    on_one_body: np.ndarray  # (m,)
    closing: np.ndarray  # (m,) slot

    def way(self, s: int, end: int = -1) -> list[int]:
        """From a slot inward up to `end`, or through the world."""
        found = []
        while s != -1:
            found.append(s)
            if s == end:
                break
            s = self.parents(s)
        return found

    def begins(self, r: int) -> list[int]:
        return [*self.acts[r], *self.joints[r]]


@lru_cache(maxsize=512)
def plan_of(t: Topology, entries: tuple[Entry, ...], open_to_world: bool = False) -> Plan:
    """`open_to_world`: every row stays open up to there, as in the algorithm of Popov and Vereshchagin."""
    nodes, table = nodes_of(t), table_of(t, entries)
    reach = reach_of(nodes, table, open_to_world)
    support, needed, node = supporting_links(nodes, reach)
    at = {needed[k]: j for j, k in enumerate(node) if k >= 0}  # position of every slot that has one
    at |= {nodes.size + k: support.size + k for k in range(nodes.nroots)}
    position = np.vectorize(at.__getitem__, otypes=[int])
    others, other_slots, hooks = unsupported_links(nodes, reach, at)
    lane = lanes_of(reach)
    open_rows = np.flatnonzero(~reach.on_one_body)
    column, root_pair, pairs = root_columns(nodes, table, reach)
    width = int(max([0, *(lane[open_rows] + 1)]))
    return Plan(
        support=support,
        slots=np.array([needed[k] if k >= 0 else needed[0] for k in node], int),
        unsupported=others,
        unsupported_slots=other_slots,
        attachments=np.array(hooks or [support.size], int),
        on_one_body=reach.on_one_body,
        position_a=position(table.slot_a),
        position_b=position(table.slot_b),
        dof_position=position(reach.dof_slot),
        dof_column=column,
        root_pair=root_pair,
        width=width,
        **_tables(nodes, table, reach, support, at, lane, width, column, root_pair, pairs),
        lane=lane,
        closing=position(reach.closing),
    )


def reach_of(nodes: Nodes, table, open_to_world: bool) -> Reach:
    """Where every row acts and closes: at the nearest slot that all of its ways pass."""
    N, m, world = nodes.size, table.m, nodes.size
    parents = lambda s: int(nodes.parent[s]) if s < N else world if s > world else -1  # noqa: E731
    dof_slot = np.array([_slot_of_dof(nodes, d) for d in table.joint_dofs], int)
    acts = [{int(s) for s in (table.slot_a[r], table.slot_b[r]) if s != world} for r in range(m)]
    joints = [[int(s) for s in dof_slot[table.joint_rows == r]] for r in range(m)]
    alone = np.array([len(acts[r]) == 1 and not joints[r] and not open_to_world for r in range(m)], bool)
    reach = Reach(parents, acts, joints, dof_slot, alone, np.full(m, world))
    for r in range(m):
        if alone[r]:
            reach.closing[r] = next(iter(acts[r]))
        elif not open_to_world:
            starts = [*acts[r], *(s if s > world else parents(s) for s in joints[r])]
            common = set.intersection(*(set(reach.way(s)) for s in starts))
            reach.closing[r] = next(s for s in reach.way(starts[0]) if s in common)
    return reach


def supporting_links(nodes: Nodes, reach: Reach):
    """The schedule of the links between rows and roots, their slots, and which of these each place holds."""
    N, rows = nodes.size, range(len(reach.acts))
    needed = sorted({s for r in rows for a in reach.begins(r) for s in reach.way(a) if s < N})
    order = {s: k for k, s in enumerate(needed)}
    above = [reach.parents(s) for s in needed]
    tables, node = schedule([order[p] if p < N else -1 - (p - N) for p in above], nodes.nroots)
    return Schedule(**tables), needed, node


def unsupported_links(nodes: Nodes, reach: Reach, at: dict[int, int]):
    """The schedule of all other links, their slots, and the positions on which they hang."""
    others = [int(s) for s in np.flatnonzero(nodes.live) if s not in at]
    order = {s: k for k, s in enumerate(others)}
    above = [reach.parents(s) for s in others]
    hooks = sorted({at[p] for p in above if p not in order})
    tables, node = schedule(
        [order[p] if p in order else -1 - hooks.index(at[p]) for p in above], max(1, len(hooks))
    )
    return Schedule(**tables), np.array([others[k] if k >= 0 else others[0] for k in node], int), hooks


def lanes_of(reach: Reach) -> np.ndarray:
    """(m,) greedy: rows whose ways meet get different lanes."""
    m = len(reach.acts)
    rows = [r for r in range(m) if not reach.on_one_body[r]]
    ways = {r: set().union(*(reach.way(s, reach.closing[r]) for s in reach.begins(r))) for r in rows}
    lane = np.zeros(m, int)
    for r in rows:
        taken = {int(lane[k]) for k in rows if k < r and ways[k] & ways[r]}
        lane[r] = next(k for k in range(m + 1) if k not in taken)
    return lane


def root_columns(nodes: Nodes, table, reach: Reach):
    """Entries on the six columns of a free root: which column, and which (row, root) they belong to."""
    N = nodes.size
    where = list(zip(table.joint_rows, table.joint_dofs, reach.dof_slot))
    column = np.array([int(nodes.slot_of_dof[d] - N) % 6 if s >= N else -1 for _, d, s in where], int)
    pairs = sorted({(int(r), int(s)) for (r, _, s), c in zip(where, column) if c >= 0})
    number = [pairs.index((int(r), int(s))) if c >= 0 else -1 for (r, _, s), c in zip(where, column)]
    return column, np.array(number, int), pairs


def _tables(nodes, table, reach: Reach, support, at, lane, width: int, column, root_pair, pairs) -> dict:
    """What is put into the lanes, where rows begin and where they close."""
    N, m, P = nodes.size, table.m, support.size + nodes.nroots
    wrench, entry = np.full((P, width), 2 * m + len(pairs)), np.full((support.size, width), len(column))
    begin, close = np.full((P, width), m), np.zeros((P, width), bool)
    for r in np.flatnonzero(~reach.on_one_body).tolist():
        for side, s in enumerate((int(table.slot_a[r]), int(table.slot_b[r]))):
            if s != N:
                wrench[at[s], lane[r]] = r + side * m
        for k in np.flatnonzero(table.joint_rows == r):
            if column[k] >= 0:
                wrench[at[int(reach.dof_slot[k])], lane[r]] = 2 * m + root_pair[k]
            else:
                entry[at[int(reach.dof_slot[k])], lane[r]] = k
        begin[at[sorted(reach.begins(r), key=lambda s: s >= N)[0]], lane[r]] = r
        close[at[int(reach.closing[r])], lane[r]] = True
    return {"wrench": wrench, "entry": entry, "begin": begin, "close": close}


def _slot_of_dof(nodes, d: int) -> int:
    s = int(nodes.slot_of_dof[d])
    return s if s < nodes.size else nodes.size + 1 + (s - nodes.size) // 6
