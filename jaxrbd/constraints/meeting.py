"""Where half rows act, on which stations they go inward, and where any two of them meet: index tables.

Made once per topology and set of constraints, on the host; `propagators.py` says what they are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from jaxrbd.constraints.data import Entry
from jaxrbd.constraints.plan import plan_of
from jaxrbd.constraints.rows import table_of
from jaxrbd.engine.schedule import Schedule, schedule
from jaxrbd.model.system import Topology

UPPER = np.triu_indices(6)  # the 21 numbers of a symmetric 6x6 matrix
FULL = np.zeros((6, 6), int)
FULL[UPPER] = FULL[UPPER[::-1]] = np.arange(21)


@dataclass(frozen=True, eq=False)
class Meeting:
    """A row between two bodies is two half rows; a station is a link where rows act or branches meet."""

    source: np.ndarray  # which wrenches of [K_A, K_B, joints, their parents] count: all but the world's
    owner: np.ndarray  # the half row each of them belongs to
    row: np.ndarray  # (h,) row of every half row
    root: np.ndarray  # (h,) its root
    at_root: np.ndarray  # (h,) where its wrench on the root is found among (T + 1) h wrenches
    stations: Schedule  # of stations that wrenches from further out pass
    last: np.ndarray  # (stations,) the supporting slot just below the next station
    is_station: np.ndarray  # (NS,) bool
    lanes: int  # wrenches side by side on their way from station to station
    start: np.ndarray  # (NS, lanes) what sets out from a station: [six unit wrenches, half rows, zero]
    carried: np.ndarray  # (h,) position among (NS, lanes) where a half row arrives at the next station
    first: np.ndarray  # (h,) bool: its first step is made in a lane
    steps: np.ndarray  # (T, h) the station a half row leaves in every step
    going: np.ndarray  # (T, h) bool
    moved: np.ndarray  # (k, 2) accelerations Omega K that are needed: which Omega, which wrench
    pairs: np.ndarray  # (p, 2) wrench of one half row, acceleration caused by another
    grams: np.ndarray  # (g,) entries of Omega between lanes that are needed as they are
    table: np.ndarray  # (m (m + 1) / 2, most) the terms (pairs, then grams) that two rows consist of


@lru_cache(maxsize=512)
def meeting_of(t: Topology, entries: tuple[Entry, ...], every: bool = False, base: bool = False) -> Meeting:
    """`every`: each link is a station. `base`: rows go on to their roots, and do not meet there."""
    plan, table = plan_of(t, entries), table_of(t, entries)
    NS, m, nroots = plan.support.size, table.m, plan.support.nroots
    parent = lambda p: int(plan.support.parent[p])  # noqa: E731
    acts = [*enumerate(plan.position_a), *enumerate(plan.position_b)]
    acts += [(int(r), p) for r, p in zip(table.joint_rows, plan.dof_position)]
    acts += [(int(r), parent(p) if p < NS else NS) for r, p in zip(table.joint_rows, plan.dof_position)]
    source = [k for k, (_, p) in enumerate(acts) if p != NS]
    halves = sorted({(int(acts[k][0]), int(acts[k][1])) for k in source})
    number, h = {half: k for k, half in enumerate(halves)}, len(halves)
    own: dict[int, list[int]] = {}
    for a, (_, p) in enumerate(halves):
        own.setdefault(p, []).append(a)

    # stations, and the slot from which each of them is left for the next
    live = np.flatnonzero(plan.support.live)
    children = np.bincount(plan.support.parent[live], minlength=NS + nroots)
    at = [int(p) for p in live if every or p in own or children[p] > 1]
    is_station = np.isin(np.arange(NS), at)
    last = {}
    for p in at:
        k = p
        while parent(k) < NS and not is_station[parent(k)]:
            k = parent(k)
        last[p] = k
    above = {p: parent(last[p]) for p in at}
    passed = set(above.values())
    # rows travel in lanes of their own if they are few: their mutual Omega is then exact even where the
    # link is free to move in other directions, which in Eq. 40 makes the difference
    small = {p for p in at if p in own and len(own[p]) <= 6 and not every}
    inner = [p for p in at if p in passed or p not in small]
    lanes = 12 if any(p in passed for p in small) else 6
    order = {p: k for k, p in enumerate(inner)}
    if every:
        stations, node = plan.support, np.where(plan.support.live, np.cumsum(plan.support.live) - 1, -1)
    else:
        ups = [above[p] for p in inner]
        tables, node = schedule([order[p] if p < NS else -1 - (p - NS) for p in ups], nroots)
        stations = Schedule(**tables)
    slot = {inner[k]: s for s, k in enumerate(node) if k >= 0}
    slot |= {NS + r: stations.size + r for r in range(nroots)}
    start = np.full((NS, lanes), 6 + h)
    lane = {}
    for p in at:
        if p in order:
            start[p, :6] = np.arange(6)
        for k, a in enumerate(own.get(p, []) if p in small else []):
            lane[a] = k + (6 if p in passed else 0)
            start[p, lane[a]] = 6 + a

    ways = []
    for _, p in halves:
        way = [p]
        while way[-1] < NS:
            way.append(above[way[-1]])
        ways.append(way)
    needed = np.zeros(h, int)
    terms: list[tuple] = []  # rows, then (half, step, half, step, Omega) or a gram
    offset = stations.size + nroots  # after all Omega stand those up to the next station alone
    for a, way in enumerate(ways):
        for b in range(a, h):
            c = next((p for p in way if p in ways[b]), NS)
            if c == NS or (base and c > NS):
                continue
            i, j = way.index(c), ways[b].index(c)
            both = (halves[a][0], halves[b][0])
            if i == j == 0 and c < NS and not every:
                if c in small:
                    k, n = sorted((lane[a] % 6, lane[b] % 6))
                    gram = FULL[k, n] + (21 if c in passed else 0)
                    terms.append((both, a != b, last[c] * 21 * (lanes // 6) + gram))
                else:
                    terms.append((both, a != b, (a, 0, b, 0, offset + slot[c])))
                c, i, j = above[c], 1, 1
                if c == NS or (base and c > NS):
                    continue
            ends = [(i, j, c)]
            if c < NS and not every and not base and way[-1] > NS:  # what the free root adds, apart
                ends.append((len(way) - 1, len(ways[b]) - 1, way[-1]))
            for i, j, c in ends:
                needed[a], needed[b] = max(needed[a], i), max(needed[b], j)
                terms.append((both, a != b, (a, i, b, j, slot[c])))
    if base:
        needed = np.array([len(w) - 1 if w[-1] > NS else n for w, n in zip(ways, needed)], int)
    T = int(needed.max(initial=0))
    going = np.arange(T)[:, None] < needed
    by_lane = np.array([p in small for _, p in halves], bool)
    if T and not every:
        going[0] &= ~by_lane
    steps = [[slot[w[k]] if going[k, a] else 0 for a, w in enumerate(ways)] for k in range(T)]

    moved: dict[tuple[int, int], int] = {}
    pairs, grams = [], []
    sums: list[list[int]] = [[] for _ in range(m * (m + 1) // 2)]
    entry = triangle(m)
    count = sum(isinstance(term[2], tuple) for term in terms)
    for both, other, term in terms:
        if isinstance(term, tuple):
            a, i, b, j, omega = term
            k, place = moved.setdefault((omega, j * h + b), len(moved)), len(pairs)
            pairs.append((i * h + a, k))
        else:
            place = count + len(grams)
            grams.append(term)
        sums[entry[both]] += [place] * (2 if other and both[0] == both[1] else 1)
    most = max([1] + [len(x) for x in sums])
    return Meeting(
        source=np.array(source, int),
        owner=np.array([number[int(acts[k][0]), int(acts[k][1])] for k in source], int),
        row=np.array([r for r, _ in halves], int),
        root=np.array([w[-1] - NS for w in ways], int),
        at_root=needed * h + np.arange(h),
        stations=stations,
        last=np.array([last[inner[k]] if k >= 0 else 0 for k in node], int),
        is_station=is_station,
        lanes=lanes,
        start=start,
        carried=np.array([last[p] * lanes + lane[a] if p in small else 0 for a, (_, p) in enumerate(halves)]),
        first=by_lane,
        steps=np.array(steps, int).reshape(T, h),
        going=going,
        moved=np.array(list(moved), int).reshape(-1, 2),
        pairs=np.array(pairs, int).reshape(-1, 2),
        grams=np.array(grams, int),
        table=np.array([x + [count + len(grams)] * (most - len(x)) for x in sums], int),
    )


def triangle(m: int) -> np.ndarray:
    """Where the entries of a symmetric matrix stand in its upper triangle, row after row: (m, m)."""
    i, j = np.minimum(*np.indices((m, m))), np.maximum(*np.indices((m, m)))
    return i * m - i * (i + 1) // 2 + j
