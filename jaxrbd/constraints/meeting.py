"""Where half rows act, on which stations they go inward, and where any two of them meet: index tables.

Made once per topology and set of constraints, on the host; `propagators.py` says what they are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from jaxrbd.constraints.data import Entry
from jaxrbd.constraints.plan import Plan, plan_of
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
    # of the inner stations: those that wrenches from further out pass, or with more than six half rows
    stations: Schedule
    last: np.ndarray  # (inner stations,) the supporting slot just below the next station
    is_station: np.ndarray  # (NS,) bool
    width: int  # wrenches side by side on their way from station to station
    start: np.ndarray  # (NS, width) what sets out from a station: [six unit wrenches, half rows, zero]
    carried: np.ndarray  # (h,) position among (NS, width) where a half row arrives at the next station
    first: np.ndarray  # (h,) bool: its first step is made in a lane
    steps: np.ndarray  # (T, h) the station a half row leaves in every step
    going: np.ndarray  # (T, h) bool
    moved: np.ndarray  # (k, 2) accelerations Omega K that are needed: which Omega, which wrench
    pairs: np.ndarray  # (p, 2) wrench of one half row, acceleration caused by another
    grams: np.ndarray  # (g,) entries of Omega between lanes that are needed as they are
    table: np.ndarray  # (m (m + 1) / 2, most) the terms (pairs, then grams) that two rows consist of


class Halves(NamedTuple):
    """Rows cut in two where they act on two bodies, and on a joint's link and its parent."""

    source: list[int]  # wrenches that count
    owner: list[int]  # the half row each of them belongs to
    halves: list[tuple[int, int]]  # (row, position where it acts)
    own: dict[int, list[int]]  # half rows by position

    @property
    def number(self) -> int:
        return len(self.halves)


class Stations(NamedTuple):
    """Links where rows act or branches meet, and how wrenches go from one to the next:

    root <--above-- S1 <-- . <-- last(S2) <-- . <-- S2      between stations, joints are folded into
                      ^-- . <-- last(S3) <-- S3             one propagator per station
    """

    at: list[int]  # their positions
    last: dict[int, int]  # the supporting slot just below the next station, or root
    above: dict[int, int]  # the next station or root
    passed: set[int]  # stations that wrenches from further out pass
    small: set[int]  # stations whose own rows, six at most, travel in lanes of their own
    inner: list[int]  # stations that need all six unit wrenches
    schedule: Schedule  # of the inner ones
    node: np.ndarray  # which of them stands in every place of the schedule, -1 for none
    slot: dict[int, int]  # place of inner stations and roots
    width: int
    lane: dict[int, int]  # of half rows on small stations


@lru_cache(maxsize=512)
def meeting_of(t: Topology, entries: tuple[Entry, ...], every: bool = False, base: bool = False) -> Meeting:
    """`every`: each link is a station. `base`: rows go on to their roots, and do not meet there."""
    plan, table = plan_of(t, entries), table_of(t, entries)
    NS, m = plan.support.size, table.m
    rows = halves_of(plan, table)
    st = stations_of(plan, rows.own, every)
    ways = [_way(st, NS, p) for _, p in rows.halves]
    terms, needed = terms_of(plan, rows, st, ways, every, base)
    if base:
        needed = np.array([len(w) - 1 if w[-1] > NS else n for w, n in zip(ways, needed)], int)
    h, T = rows.number, int(needed.max(initial=0))
    by_lane = np.array([p in st.small for _, p in rows.halves], bool)
    going = np.arange(T)[:, None] < needed
    if T and not every:
        going[0] &= ~by_lane
    steps = [[st.slot[w[k]] if going[k, a] else 0 for a, w in enumerate(ways)] for k in range(T)]
    carried = [
        st.last[p] * st.width + st.lane[a] if p in st.small else 0 for a, (_, p) in enumerate(rows.halves)
    ]
    return Meeting(
        source=np.array(rows.source, int),
        owner=np.array(rows.owner, int),
        row=np.array([r for r, _ in rows.halves], int),
        root=np.array([w[-1] - NS for w in ways], int),
        at_root=needed * h + np.arange(h),
        stations=st.schedule,
        last=np.array([st.last[st.inner[k]] if k >= 0 else 0 for k in st.node], int),
        is_station=np.isin(np.arange(NS), st.at),  # [CABA] Alg. 5, line 6
        width=st.width,
        start=_departures(NS, rows, st),
        carried=np.array(carried),
        first=by_lane,
        steps=np.array(steps, int).reshape(T, h),
        going=going,
        **tables_of(terms, m, h),
    )


def halves_of(plan: Plan, table) -> Halves:
    NS = plan.support.size
    acts = [*enumerate(plan.position_a), *enumerate(plan.position_b)]
    on_joints = list(zip(table.joint_rows, plan.dof_position))
    acts += [(r, p) for r, p in on_joints]
    acts += [(r, plan.support.parent[p] if p < NS else NS) for r, p in on_joints]
    acts = [(int(r), int(p)) for r, p in acts]
    source = [k for k, (_, p) in enumerate(acts) if p != NS]  # the world does not move
    halves = sorted({acts[k] for k in source})
    number = {half: k for k, half in enumerate(halves)}
    own: dict[int, list[int]] = {}
    for a, (_, p) in enumerate(halves):
        own.setdefault(p, []).append(a)
    return Halves(source, [number[acts[k]] for k in source], halves, own)


def stations_of(plan: Plan, own: dict[int, list[int]], every: bool) -> Stations:
    NS, nroots = plan.support.size, plan.support.nroots
    parent = lambda p: int(plan.support.parent[p])  # noqa: E731
    live = np.flatnonzero(plan.support.live)
    children = np.bincount(plan.support.parent[live], minlength=NS + nroots)
    at = [int(p) for p in live if every or p in own or children[p] > 1]
    is_station, last = set(at), {}
    for p in at:
        k = p
        while parent(k) < NS and parent(k) not in is_station:
            k = parent(k)
        last[p] = k
    above = {p: parent(last[p]) for p in at}
    passed = set(above.values())
    # rows travel in lanes of their own if they are few: their mutual Omega is then exact even where the
    # link is free to move in other directions, which in Eq. 40 makes the difference
    small = {p for p in at if p in own and len(own[p]) <= 6 and not every}
    inner = [p for p in at if p in passed or p not in small]
    if every:
        found, node = plan.support, np.where(plan.support.live, np.cumsum(plan.support.live) - 1, -1)
    else:
        order = {p: k for k, p in enumerate(inner)}
        ups = [above[p] for p in inner]
        tables, node = schedule([order[p] if p < NS else -1 - (p - NS) for p in ups], nroots)
        found = Schedule(**tables)
    slot = {inner[k]: s for s, k in enumerate(node) if k >= 0}
    slot |= {NS + r: found.size + r for r in range(nroots)}
    width = 12 if any(p in passed for p in small) else 6
    lane = {a: k + (6 if p in passed else 0) for p in small for k, a in enumerate(own[p])}
    return Stations(at, last, above, passed, small, inner, found, node, slot, width, lane)


def _way(st: Stations, NS: int, p: int) -> list[int]:
    """From a position over all stations to its root."""
    way = [p]
    while way[-1] < NS:
        way.append(st.above[way[-1]])
    return way


def _departures(NS: int, rows: Halves, st: Stations) -> np.ndarray:
    """(NS, width) what sets out from every station: unit wrenches, and half rows in their own lanes."""
    start = np.full((NS, st.width), 6 + rows.number)
    for p in st.inner:
        if p < NS:
            start[p, :6] = np.arange(6)
    for p in st.small:
        for a in rows.own[p]:
            start[p, st.lane[a]] = 6 + a
    return start


def terms_of(plan: Plan, rows: Halves, st: Stations, ways, every: bool, base: bool):
    """What any two half rows contribute, [CABA] Algorithm 5 lines 15-18, and how far each has to go.

    A term is (rows, whether the halves differ, what): either a gram, a number that lanes have collected, or
    (half a, step i, half b, step j, Omega): their wrenches after so many steps, at the station where they
    meet.
    """
    NS, halves = plan.support.size, rows.halves
    needed, terms = np.zeros(rows.number, int), []
    offset = (
        st.schedule.size + plan.support.nroots
    )  # after all Omega stand those up to the next station alone
    ends_here = lambda c: c == NS or (base and c > NS)  # noqa: E731
    for a, way in enumerate(ways):
        for b in range(a, rows.number):
            c = next((p for p in way if p in ways[b]), NS)
            if ends_here(c):
                continue
            i, j = way.index(c), ways[b].index(c)
            both = (halves[a][0], halves[b][0])
            if i == j == 0 and c < NS and not every:  # both begin here: the way to the next station, then on
                if c in st.small:
                    k, n = sorted((st.lane[a] % 6, st.lane[b] % 6))
                    gram = FULL[k, n] + (21 if c in st.passed else 0)
                    terms.append((both, a != b, st.last[c] * 21 * (st.width // 6) + gram))
                else:
                    terms.append((both, a != b, (a, 0, b, 0, offset + st.slot[c])))
                c, i, j = st.above[c], 1, 1
                if ends_here(c):
                    continue
            ends = [(i, j, c)]
            if c < NS and not every and not base and way[-1] > NS:  # what the free root adds, apart
                ends.append((len(way) - 1, len(ways[b]) - 1, way[-1]))
            for i, j, c in ends:
                needed[a], needed[b] = max(needed[a], i), max(needed[b], j)
                terms.append((both, a != b, (a, i, b, j, st.slot[c])))
    return terms, needed


def tables_of(terms, m: int, h: int) -> dict[str, np.ndarray]:
    """The terms as tables: accelerations, products with them, grams, and what two rows consist of."""
    moved: dict[tuple[int, int], int] = {}
    pairs: list[tuple[int, int]] = []
    grams: list[int] = []
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
    return {
        "moved": np.array(list(moved), int).reshape(-1, 2),
        "pairs": np.array(pairs, int).reshape(-1, 2),
        "grams": np.array(grams, int),
        "table": np.array([x + [count + len(grams)] * (most - len(x)) for x in sums], int),
    }


def triangle(m: int) -> np.ndarray:
    """Where the entries of a symmetric matrix stand in its upper triangle, row after row: (m, m)."""
    # [CABA] Alg. 5, lines 19-20: as an index; `assemble` gathers by it
    i, j = np.minimum(*np.indices((m, m))), np.maximum(*np.indices((m, m)))
    return i * m - i * (i + 1) // 2 + j
