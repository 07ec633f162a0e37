"""Who moves whom in a System with clusters: static analysis of its loops and couplings, in NumPy.

A cluster ([GRBDA] IV) is a set of bodies whose joints depend on each other. Its relations come in two forms:

- explicit: one joint's coordinate is a function of others' (gears, mimics, path sums, a user's γ). Such a
joint
  is left out of q. A coupling is explicit if all of its joints but one are known; else it is a row like
  others;
- implicit: rows φ(q) = 0 (a point, hinge or weld that closes a loop, a rod, a user's φ). Its joints stay in
q, and
  those that are not independent follow at the level of velocities.

`mechanism_of` orders the explicit ones into levels, and collects clusters with the same rows into groups that
are evaluated side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from jaxrbd.joints import TYPES
from jaxrbd.model.topology import Topology
from jaxrbd.tree.nodes import Nodes, nodes_of

ROWS = {"connect": 3, "weld": 6, "hinge": 5, "distance": 1, "coupling": 1, "linear": 1, "mimic": 1}


@dataclass(frozen=True)
class Relation:
    """One relation: `kind`, its number among its kind, and the degrees of freedom of the tree in it.

    For geometric ones `bodies` are the two that it ties (-1: the world), and dofs those between them.
    """

    kind: str
    index: int
    dofs: tuple[int, ...]
    bodies: tuple[int, int] = (-1, -1)
    follows: tuple[int, ...] = ()  # of a function: the dofs that it gives
    rows: int = 1

    @property
    def geometric(self) -> bool:
        return self.kind in ("connect", "weld", "hinge", "distance")


@dataclass(frozen=True)
class Cluster:
    """Bodies that move together; degrees of freedom are the tree's, in tree order."""

    bodies: tuple[int, ...]
    root: int  # the body they hang on, -1: the world
    dofs: tuple[int, ...]
    independent: tuple[int, ...]
    explicit: tuple[tuple[Relation, tuple[int, ...]], ...]  # relations in order, and the dofs that each gives
    implicit: tuple[Relation, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        """Degrees of freedom that no explicit relation gives."""
        given = {d for _, ds in self.explicit for d in ds}
        return tuple(d for d in self.dofs if d not in given)

    @property
    def closing(self) -> tuple[int, ...]:
        """Those that follow by implicit rows."""
        return tuple(d for d in self.kept if d not in self.independent)


def joint_dofs(t: Topology, joint: int) -> range:
    return range(t.v_starts[joint], t.v_starts[joint + 1])


@lru_cache(maxsize=512)
def relations(t: Topology) -> tuple[Relation, ...]:
    """All relations that a model declares and has switched on."""
    dof = lambda j: t.v_starts[j]  # noqa: E731
    found = [Relation("mimic", k, (dof(a), dof(b))) for k, (a, b) in enumerate(t.mimics)]
    for k, (kind, (a, b)) in enumerate(zip(t.loop_kinds, t.loop_frames)):
        if not t.loop_active[k]:
            continue
        if kind == "coupling":
            found.append(Relation(kind, k, (dof(a),) if a == b else (dof(a), dof(b))))
            continue
        ends = (t.frame_bodies[a] if a >= 0 else -1, t.frame_bodies[b] if b >= 0 else -1)
        between = tuple(d for body in path_between(t, *ends) for d in joint_dofs(t, body))
        found.append(Relation(kind, k, between, ends, rows=ROWS[kind]))
    for k, joints in enumerate(t.linear_joints):
        found.append(Relation("linear", k, tuple(map(dof, joints))))
    for k, f in enumerate(t.functions):
        follows = tuple(map(dof, f.follows))
        found.append(
            Relation("function", k, tuple(map(dof, f.joints)) + follows, follows=follows, rows=f.rows)
        )
    return tuple(found)


def ancestors(t: Topology, body: int) -> list[int]:
    """The body and those that carry it, up to the world (-1)."""
    chain = [body]
    while body >= 0:
        body = t.parents[body]
        chain.append(body)
    return chain


def path_between(t: Topology, a: int, b: int) -> list[int]:
    """Bodies whose joints move a and b against each other, in tree order."""
    return sorted(set(ancestors(t, a)) ^ set(ancestors(t, b)))


@lru_cache(maxsize=512)
def coordinates(t: Topology) -> np.ndarray:
    """Where in the tree's q the scalar coordinate of every dof stands; its nq where it has none, and at the
    end.
    """
    index = np.full(t.v_starts[-1] + 1, t.q_starts[-1])
    for kind, q, v in zip(t.joint_types, t.q_starts, t.v_starts):
        if not TYPES[kind].on_manifold:
            index[v : v + TYPES[kind].nv] = q + np.arange(TYPES[kind].nv)
    return index


@lru_cache(maxsize=512)
def clusters_of(t: Topology) -> tuple[Cluster, ...]:
    """The clusters of a topology that names their bodies and its independent degrees of freedom."""
    found = []
    for bodies in t.clusters:
        dofs = tuple(d for b in bodies for d in joint_dofs(t, b))
        inside = set(dofs)
        own = [r for r in relations(t) if r.dofs and set(r.dofs) <= inside]
        independent = tuple(d for d in t.independent if d in inside)
        explicit, implicit = resolve(t, dofs, independent, own)
        found.append(Cluster(bodies, cluster_root(t, bodies), dofs, independent, explicit, implicit))
    return tuple(found)


def cluster_root(t: Topology, bodies: tuple[int, ...]) -> int:
    """The one body that the bodies of a cluster hang on."""
    outside = {t.parents[b] for b in bodies} - set(bodies)
    (root,) = outside
    return root


def resolve(t: Topology, dofs, independent, own: list[Relation]):
    """Explicit relations in an order in which each has all but the dofs it gives known, and the implicit
    rest.
    """
    couplings = [r for r in own if not r.geometric and not (r.kind == "function" and not r.follows)]
    touched = {d for r in couplings for d in r.dofs}
    looped = {d for r in own if r not in couplings for d in r.dofs}
    known = set(independent) | {d for d in dofs if d not in touched}
    explicit: list[tuple[Relation, tuple[int, ...]]] = []
    left = list(couplings)
    while left:
        for r in left:
            gives = tuple(d for d in r.dofs if d not in known)
            if gives and set(gives) <= set(_may_give(r)) and len(gives) == r.rows:
                explicit.append((r, gives))
                known |= set(gives)
                left.remove(r)
                break
        else:  # a joint that a loop moves may lead
            free = [d for r in left for d in r.dofs if d not in known and d in looped]
            if not free:
                break
            known.add(min(free))
    return tuple(explicit), tuple(r for r in own if r in left or r not in couplings)


def _may_give(r: Relation) -> tuple[int, ...]:
    """Which of its dofs a coupling can be solved for: a polynomial gives the joint on its left alone."""
    return {"mimic": r.dofs, "linear": r.dofs, "coupling": r.dofs[:1], "function": r.follows}[r.kind]


@dataclass(frozen=True, eq=False)
class Level:
    """Explicit relations of one kind whose leaders are known: dof[i] is given by relation[i] from
    leaders[i].
    """

    kind: str
    relation: np.ndarray  # (n,)
    dof: np.ndarray  # (n,)
    leaders: np.ndarray  # (n, most): dofs; the tree's nv as filler
    term: np.ndarray  # (n,) linear: which coefficient is the given dof's; mimic: 1 if solved for its leader
    terms: np.ndarray  # (n, most) linear: coefficients of the leaders, their number as filler


@dataclass(frozen=True, eq=False)
class Group:
    """Clusters with rows that look alike, so that one program serves them all side by side.

    Numbers are local: nodes and dofs are counted within the cluster, in tree order; body -1 is its root.
    """

    clusters: tuple[int, ...]
    slots: np.ndarray  # (clusters, nodes): place among the nodes that `rows` lists
    parents: tuple[int, ...]  # of the nodes
    last: tuple[int, ...]  # last node of every body
    dofs: np.ndarray  # (clusters, n): the tree's
    kept: tuple[int, ...]
    independent: tuple[int, ...]
    closing: tuple[int, ...]
    rows: tuple[tuple[str, tuple[int, int], tuple[int, ...]], ...]  # kind, local bodies, local dofs
    relation: np.ndarray  # (clusters, relations): number among its kind
    functions: tuple[object, ...]


@dataclass(frozen=True, eq=False)
class Mechanism:
    """All that the maps between q, v and the open tree's need to know."""

    clusters: tuple[Cluster, ...]
    levels: tuple[Level, ...]
    groups: tuple[Group, ...]
    nodes: np.ndarray  # slots of the open tree's nodes that take part in implicit loops
    lanes: int  # most independent dofs of a cluster
    kept_lanes: int  # most kept ones
    lane: np.ndarray  # (nv of the tree,) lane of an independent dof in its cluster, -1 if it is none
    kept_lane: np.ndarray  # (nv of the tree,)
    lane_v: np.ndarray  # (nv of the tree, lanes) place in v of the lanes that move a dof, nv as filler
    kept_of: np.ndarray  # (nv of the tree, kept lanes) dofs of the kept lanes, the tree's nv as filler
    curved: bool  # whether some relation is not linear, so that g may differ from 0


@lru_cache(maxsize=512)
def mechanism_of(t: Topology) -> Mechanism:
    n = t.v_starts[-1]
    clusters = clusters_of(t)
    nodes = nodes_of(t.tree)
    lanes = max([1] + [len(c.independent) for c in clusters])
    kept_lanes = max([1] + [len(c.kept) for c in clusters])
    place = {d: k for k, d in enumerate(t.independent)}
    lane, kept_lane = np.full(n, -1), np.full(n, -1)
    lane_v, kept_of = np.full((n, lanes), t.nv), np.full((n, kept_lanes), n)
    clustered = {d for c in clusters for d in c.dofs}
    for d in range(n):
        if d not in clustered:
            lane[d] = kept_lane[d] = 0
            lane_v[d, 0], kept_of[d, 0] = place[d], d
    for c in clusters:
        for k, d in enumerate(c.independent):
            lane[d] = k
            lane_v[list(c.dofs), k] = place[d]
        for k, d in enumerate(c.kept):
            kept_lane[d] = k
            kept_of[list(c.dofs), k] = d
    with_loops = [c for c in clusters if c.implicit]
    slots = sorted({int(nodes.slot_of_dof[d]) for c in with_loops for d in c.dofs})
    groups = _groups(t, clusters, nodes, {s: k for k, s in enumerate(slots)})
    curved = bool(with_loops) or any(
        r.kind in ("coupling", "function") for c in clusters for r, _ in c.explicit
    )
    return Mechanism(
        clusters,
        _levels(t, clusters),
        groups,
        np.array(slots, int),
        lanes,
        kept_lanes,
        lane,
        kept_lane,
        lane_v,
        kept_of,
        curved,
    )


def _levels(t: Topology, clusters) -> tuple[Level, ...]:
    n, total = t.v_starts[-1], sum(map(len, t.linear_joints))
    first_term = np.cumsum([0] + [len(x) for x in t.linear_joints])
    depth: dict[int, int] = {}
    by_level: dict[tuple[int, str, int], list] = {}
    for c in clusters:
        for r, gives in c.explicit:
            leaders = [d for d in r.dofs if d not in gives]
            level = 1 + max([depth.get(d, 0) for d in leaders], default=0)
            depth |= dict.fromkeys(gives, level)
            number = r.index if r.kind == "function" else -1  # every function is a program of its own
            by_level.setdefault((level, r.kind, number), []).append((r, gives, leaders))
    found = []
    for (_, kind, _), items in sorted(by_level.items(), key=lambda x: x[0]):
        most = max([1] + [len(leaders) for *_, leaders in items])
        rows = [(r, d, leaders) for r, gives, leaders in items for d in gives]
        fill = lambda x, filler: list(x) + [filler] * (most - len(x))  # noqa: E731,B023
        term, terms = np.zeros(len(rows), int), np.full((len(rows), most), total)
        for k, (r, d, leaders) in enumerate(rows):
            if kind == "mimic":
                term[k] = int(d == r.dofs[1])
            elif kind == "linear":
                start = int(first_term[r.index])
                term[k] = start + r.dofs.index(d)
                terms[k, : len(leaders)] = [start + r.dofs.index(x) for x in leaders]
        found.append(
            Level(
                kind,
                np.array([r.index for r, *_ in rows]),
                np.array([d for _, d, _ in rows]),
                np.array([fill(leaders, n) for *_, leaders in rows]),
                term,
                terms,
            )
        )
    return tuple(found)


def _groups(t: Topology, clusters, nodes: Nodes, place: dict[int, int]) -> tuple[Group, ...]:
    by_signature: dict[tuple, list[tuple[int, Cluster]]] = {}
    for k, c in enumerate(clusters):
        if c.implicit:
            by_signature.setdefault(_signature(t, c), []).append((k, c))
    found = []
    for signature, members in by_signature.items():
        body_parents, types, kept, independent, closing, rows, functions = signature
        runs = [TYPES[kind].nv for kind in types]
        starts = np.cumsum([0] + runs)
        last = tuple(int(x) - 1 for x in starts[1:])
        parents = []
        for b, p in enumerate(body_parents):
            parents.append(last[p] if p >= 0 else -1)
            parents += range(int(starts[b]), int(starts[b + 1]) - 1)
        dofs = np.array([c.dofs for _, c in members])
        found.append(
            Group(
                clusters=tuple(k for k, _ in members),
                slots=np.array([[place[int(nodes.slot_of_dof[d])] for d in c.dofs] for _, c in members]),
                parents=tuple(parents),
                last=last,
                dofs=dofs,
                kept=kept,
                independent=independent,
                closing=closing,
                rows=rows,
                relation=np.array([[r.index for r in c.implicit] for _, c in members]),
                functions=tuple(t.functions[i].function for i in functions),
            )
        )
    return tuple(found)


def _signature(t: Topology, c: Cluster) -> tuple:
    local = {b: k for k, b in enumerate(c.bodies)}
    at = {d: k for k, d in enumerate(c.dofs)}
    rows = []
    for r in c.implicit:
        bodies = tuple(local.get(b, -1) for b in r.bodies)
        rows.append((r.kind, bodies, tuple(at[d] for d in r.dofs)))
    pick = lambda dofs: tuple(at[d] for d in dofs)  # noqa: E731
    return (
        tuple(local.get(t.parents[b], -1) for b in c.bodies),
        tuple(t.joint_types[b] for b in c.bodies),
        pick(c.kept),
        pick(c.independent),
        pick(c.closing),
        tuple(rows),
        tuple(r.index for r in c.implicit if r.kind == "function"),
    )
