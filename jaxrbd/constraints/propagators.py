"""Force propagators and inverse inertias between the links where constraints meet ([CABA] Algorithm 5).

Rows act on links as wrenches K. A wrench on link i arrives at an ancestor j as P K, with P the extended
force propagator, and moves a link by Omega K, with Omega its spatial inverse inertia. Two rows meet at the
closest common ancestor c of their links:

    (J M^-1 Jᵀ)_rs = (P_r K_r) · Omega_c (P_s K_s).

So propagators are needed only between stations: links on which rows act, links that branch, and roots. A row
between two bodies is two half rows, a row on a joint is a pair of opposite wrenches on its two links.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints import articulated as art
from jaxrbd.constraints.data import Entry
from jaxrbd.constraints.plan import Plan, plan_of
from jaxrbd.constraints.rows import sum_by_row, table_of
from jaxrbd.model.system import Topology
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.aba import eliminate, zero_articulated
from jaxrbd.tree.nodes import Schedule, nodes_of, schedule
from jaxrbd.tree.scan import inward, outward, sum_rows
from jaxrbd.tree.spatial import ZERO3, ArticulatedInertia, Force, Mat3, Motion, Sym3, Vec3
from jaxrbd.tree.sweep import rows

UPPER = np.triu_indices(6)  # the 21 numbers of a symmetric 6x6 matrix
FULL = np.zeros((6, 6), int)
FULL[UPPER] = FULL[UPPER[::-1]] = np.arange(21)


@dataclass(frozen=True, eq=False)
class Meeting:
    """Where half rows act, on which stations they go inward, and where any two of them meet."""

    source: (
        np.ndarray
    )  # which wrenches of [K_A, K_B, joints, their parents] count (those on the world do not)
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


def half_rows(t: Topology, plan: Plan, table, meeting: Meeting, prob: art.Problem, x: art.Acting):
    """Wrenches of the half rows where they act, (h, 6, B)."""
    K = jnp.concatenate([_stack(x.KA), _stack(x.KB)])
    if len(table.joint_rows):
        # a_d = T · (A_link - A_parent), with T · S = 1; a root's six numbers are its acceleration
        on_joint = plan.dof_column < 0
        turns = np.zeros(len(on_joint), bool)
        turns[on_joint] = nodes_of(t).turns[plan.slots[plan.dof_position[on_joint]]] == 1
        column = np.where(on_joint, np.where(turns, 2, 5), plan.dof_column)
        T = x.kappa[:, None] * jnp.asarray(np.eye(6)[column][:, :, None], x.kappa.dtype)
        K = jnp.concatenate([K, T])
        if on_joint.any():
            R, r = kin.take((prob.R, prob.r), np.where(on_joint, plan.dof_position, 0))
            K = jnp.concatenate([K, -_stack(_unstack(T).rotate(R).from_(r))])
        else:
            K = jnp.concatenate([K, jnp.zeros_like(T)])
    return sum_by_row(rows(K, meeting.source), meeting.owner, len(meeting.row))


def augmented(plan: Plan, prob: art.Problem, x: art.Acting) -> art.Problem:
    """H + Kᵀ mu K on the links that rows of one body act on ([CABA] Eq. 24, Algorithm 5 line 4)."""
    if not plan.closed.any():
        return prob
    which = np.flatnonzero(plan.closed)
    K, mu = kin.take(x.KA, which), rows(x.mu, which)
    KmuK = zero_articulated().minus_outer(Force(-K.ang, -K.lin), K * mu)
    P = prob.H.A.xx.shape[0]
    add = jax.tree.map(lambda k: sum_by_row(k, plan.position_a[which], P), KmuK)
    return prob._replace(H=prob.H + add)


class Carried(NamedTuple):
    """What an inward pass over the supporting links brings from station to station."""

    lanes: Any  # (NS, lanes, 6, B) wrenches, about the parent's origin
    omega: Any  # (NS, 21 or 42, B) Omega between the first six lanes, and between the others
    root: ArticulatedInertia  # (nroots, B)


def branch_propagators(plan: Plan, meeting: Meeting, prob: art.Problem, K) -> Carried:
    """Unit wrenches and half rows from station to station, and the accelerations that they cause there.

    [CABA] Algorithm 5, lines 5-11: one inward pass.
    """
    NS, like, lanes = plan.support.size, prob.p.ang.x, meeting.lanes
    index = np.concatenate([np.stack(UPPER) + 6 * k for k in range(lanes // 6)], 1)
    units = jnp.broadcast_to(jnp.asarray(np.eye(6)[:, :, None], K.dtype), (6, 6) + K.shape[2:])
    start = rows(jnp.concatenate([units, K, jnp.zeros_like(units[:1])]), meeting.start)

    def articulate(acc, xs):
        IA, P, omega = acc
        H, station, start, R, r, S, armature = xs
        Ia, G, Dinv = eliminate(IA + H, S, armature)
        here = station[:, None] > 0
        P = jax.tree.map(lambda p, e: jnp.where(here, e, p), P, start)
        s = art._wide(S).dot(P)
        omega = jnp.where(here, 0, omega) + rows(s, index[0], 1) * rows(s * Dinv[:, None], index[1], 1)
        P = (P - art._wide(G) * s).rotate(art._wide(R)).from_(art._wide(r))
        return (Ia.rotate(R).from_(r), P, omega), (P, omega)

    zero_P = jax.tree.map(lambda _: jnp.zeros((lanes,) + like.shape[-1:], like.dtype), Force(ZERO3, ZERO3))
    zero_omega = jnp.zeros((index.shape[1],) + like.shape[-1:], like.dtype)
    zero = (kin.zeros(zero_articulated(), like), zero_P, zero_omega)
    station = jnp.asarray(meeting.is_station | ~plan.support.live, like.dtype)[:, None]
    H = kin.take(prob.H, slice(0, NS))
    xs = (H, station, Force(*(Vec3(*(start[:, :, k + i] for i in range(3))) for k in (0, 3))), *prob[:4])
    (IA0, _, _), out = inward(plan.support, articulate, xs, zero)
    root = IA0 + kin.take(prob.H, slice(NS, None))
    if not NS:
        return Carried(start, zero_omega[None][:0], root)
    P, omega = out
    return Carried(jnp.stack([*P.ang, *P.lin], 2), omega, root)


def station_propagators(meeting: Meeting, carried: Carried):
    """P (stations, 6, 6, B) and Omega (stations, 21, B) up to the next station."""
    P = rows(carried.lanes[:, :6], meeting.last)
    return jnp.swapaxes(P, 1, 2), rows(carried.omega[:, :21], meeting.last)


def branch_inverses(meeting: Meeting, P, own, omega0):
    """Omega of stations and roots, (stations + roots, 21, B): [CABA] Algorithm 5 line 13.

    `own`: up to the next station. What a free root's own motion adds to the others is left to `assemble`,
    since in the sum small numbers would drown (four digits on a humanoid at mu = 1e6).
    """

    def step(above, x):
        P, own = x
        W = jnp.sum(rows(above, FULL, 1)[:, :, :, None] * P[:, None], 2)
        return own + jnp.sum(rows(P, UPPER[0], 2) * rows(W, UPPER[1], 2), 1)

    still = jnp.zeros_like(omega0)
    return jnp.concatenate([outward(meeting.stations, step, (P, own), still), omega0])


def branch_wrenches(meeting: Meeting, carried: Carried, P, K):
    """Half rows on the stations that they pass, ((T + 1) h, 6, B): [CABA] Algorithm 5 line 16."""
    T = len(meeting.steps)
    if not T:
        return K

    def step(K, x):
        station, going = x
        K = jnp.where(going[:, None, None], jnp.sum(P[station] * K[:, None], 2), K)
        return K, K

    new = K
    if meeting.going[0].any():
        new, _ = step(K, (meeting.steps[0], meeting.going[0]))
    if meeting.first.any():
        flat = carried.lanes.reshape((-1,) + carried.lanes.shape[2:])
        new = jnp.where(meeting.first[:, None, None], rows(flat, meeting.carried), new)
    parts = [K, new]
    if T > 1:
        xs = (meeting.steps[1:].astype(np.int32), meeting.going[1:])
        parts.append(jax.lax.scan(step, new, xs)[1].reshape((-1,) + K.shape[1:]))
    return jnp.concatenate(parts)


def link_inertias(plan: Plan, prob: art.Problem):
    """G and 1/D of every supporting link and the inertias of the roots: one inward pass."""
    NS = plan.support.size

    def articulate(acc, xs):
        H, R, r, S, armature = xs
        Ia, G, Dinv = eliminate(acc + H, S, armature)
        return Ia.rotate(R).from_(r), (G, Dinv)

    xs = (kin.take(prob.H, slice(0, NS)), *prob[:4])
    IA0, out = inward(plan.support, articulate, xs, kin.zeros(zero_articulated(), prob.p.ang.x))
    G, Dinv = out if NS else (None, None)
    return G, Dinv, IA0 + kin.take(prob.H, slice(NS, None))


def link_inverses(plan: Plan, prob: art.Problem, G, Dinv, omega0):
    """Omega of every supporting link and root, (P, 21, B): one outward pass.

    Omega = (1 - S Gᵀ) Xᵀ Omega_parent X (1 - G Sᵀ) + S Sᵀ / D. With linear before angular it moves from
    origin to origin like an inertia.
    """
    if not plan.support.size:
        return omega0

    def step(above: ArticulatedInertia, xs):
        R, r, S, G, Dinv = xs
        omega = above.from_(-r).rotate(R.T)
        G, S = Force(G.lin, G.ang), Motion(S.lin, S.ang)
        w = omega @ Motion(G.ang, G.lin)
        half = Motion(w.ang, w.lin) - S * (0.5 * (Dinv + Motion(G.ang, G.lin).dot(w)))
        return _minus_both(omega, S, half)

    xs = (*prob[:3], G, Dinv)
    return jnp.concatenate([_packed(outward(plan.support, step, xs, _swapped(omega0))), omega0])


def link_wrenches(meeting: Meeting, prob: art.Problem, G: Force, K):
    """Half rows on the links that they pass, ((T + 1) h, 6, B), joint after joint."""

    def step(K, x):
        link, going = x
        R, r, S, at = jax.tree.map(lambda y: y if isinstance(y, int) else y[link], (*prob[:3], G))
        old = _unstack(K)
        new = _stack((old - at * S.dot(old)).rotate(R).from_(r))
        K = jnp.where(going[:, None, None], new, K)
        return K, K

    if not len(meeting.steps):
        return K
    _, passed = jax.lax.scan(step, K, (meeting.steps.astype(np.int32), meeting.going))
    return jnp.concatenate([K, passed.reshape((-1,) + K.shape[1:])])


def root_inverses(prob: art.Problem, root: ArticulatedInertia):
    """Omega of the roots, (nroots, 21, B): the inverse of a free root's inertia, zero for the world."""
    like = root.A.xx
    eye = jnp.broadcast_to(jnp.asarray(np.eye(6)[None, :, :, None], like.dtype), (like.shape[0], 6, 6, 1))
    f = jax.tree.map(lambda e: jnp.broadcast_to(e, (like.shape[0], 6, like.shape[-1])), _unstack(eye))
    inverse = art.solve_roots(prob.armature0[:, :, None], art._wide(root), f)
    columns = jnp.stack([*inverse.ang, *inverse.lin], 1)
    flat = columns.reshape((columns.shape[0], 36) + columns.shape[3:])
    return rows(flat, UPPER[0] * 6 + UPPER[1], 1)


def assemble(m: int, meeting: Meeting, omega, K, carried: Carried | None = None):
    """J M^-1 Jᵀ, (m, m, B), pair by pair: [CABA] Algorithm 5 lines 17-20."""
    parts = []
    if len(meeting.pairs):
        at, wrench = meeting.moved.T
        moved = jnp.sum(rows(rows(omega, at), FULL, 1) * rows(K, wrench)[:, None], 2)
        parts.append(jnp.sum(rows(K, meeting.pairs[:, 0]) * rows(moved, meeting.pairs[:, 1]), 1))
    if carried is not None and len(meeting.grams):
        parts.append(rows(carried.omega.reshape((-1,) + K.shape[2:]), meeting.grams))
    parts.append(jnp.zeros((1,) + K.shape[2:], K.dtype))
    upper = sum_rows(jnp.concatenate(parts), meeting.table)
    return rows(upper, triangle(m))


def triangle(m: int) -> np.ndarray:
    """Where the entries of a symmetric matrix stand in its upper triangle, row after row: (m, m)."""
    i, j = np.minimum(*np.indices((m, m))), np.maximum(*np.indices((m, m)))
    return i * m - i * (i + 1) // 2 + j


def _minus_both(omega: ArticulatedInertia, S: Motion, w: Motion) -> ArticulatedInertia:
    """omega - S wᵀ - w Sᵀ."""
    one = omega.minus_outer(Force(S.ang, S.lin), Force(w.ang, w.lin))
    two = zero_articulated().minus_outer(Force(w.ang, w.lin), Force(S.ang, S.lin))
    return one + two


def _swapped(omega) -> ArticulatedInertia:
    """21 numbers, angular first, as a matrix with linear first."""
    e = lambda i, j: omega[:, FULL[i, j]]  # noqa: E731
    sym = lambda o: Sym3(*(e(o + i, o + j) for i, j in zip(*np.triu_indices(3))))  # noqa: E731
    return ArticulatedInertia(
        sym(3), Mat3(*(Vec3(*(e(3 + i, j) for j in range(3))) for i in range(3))), sym(0)
    )


def _packed(omega: ArticulatedInertia):
    A, B, C = omega.C.full(), omega.B, omega.A.full()
    whole = [[*A[i], *(B[k][i] for k in range(3))] for i in range(3)] + [[*B[i], *C[i]] for i in range(3)]
    return jnp.stack([whole[i][j] for i, j in zip(*UPPER)], 1)


def _stack(K: Force):
    return jnp.stack([*K.ang, *K.lin], 1)


def _unstack(K) -> Force:
    return Force(Vec3(*(K[:, k] for k in range(3))), Vec3(*(K[:, k] for k in range(3, 6))))
