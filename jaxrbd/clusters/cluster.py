"""`cluster`: a System whose loops are part of its state ([GRBDA])."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from math import comb

import jax.numpy as jnp
import numpy as np

from jaxrbd.clusters.closing import HostCluster
from jaxrbd.clusters.graph import find_clusters, relation_name
from jaxrbd.errors import ArgumentError, ModelError, ModelWarning
from jaxrbd.joints import TYPES
from jaxrbd.model.system import System, check_system, find
from jaxrbd.model.topology import Topology
from jaxrbd.tree.lanes import MAX_LANES
from jaxrbd.tree.mechanism import Relation, cluster_root, joint_dofs, relations, resolve

_SAMPLES, _CLOSED, _RANK = 24, 1e-9, 1e-7
_MAX_SETS = 20_000  # sets of independent joints that are compared one by one
_CONSTRAINT = 'or keep loops as constraints: loops="constraint" and jaxrbd.constraints.of_model(sys)'


def cluster(
    sys: System, groups: Iterable[Iterable[str]] | None = None, independent: Sequence[str] | None = None
) -> System:
    """The System whose loops, couplings and mimic joints hold exactly, as part of its state.

    v has the independent joints alone. q leaves out joints that others determine explicitly (gears, mimics)
    and keeps all joints of loops that are closed by points, hinges, welds or rods; `close_loops` closes such
    a q. [GRBDA]: bodies that a loop ties together form a cluster, and the recursions run over clusters.

    `groups`: names of bodies that shall share a cluster; loops that share a body always do. `independent`:
    names of joints to be independent, for the clusters they belong to; in others they are chosen so that they
    determine the rest best over sampled poses. Leaves stay those of the open tree, `sys.tree`: damping,
    armature or limits of any joint can be set. A System without loops is returned as it is.
    """
    t = check_system(sys, "cluster").topology
    if t.clusters:
        raise ArgumentError(f"cluster: {sys.name!r} is clustered already. Start from sys.tree.")
    index = [[find(t.body_names, name, "body") for name in group] for group in groups or ()]
    wanted = {find(t.joint_names, name, "joint") for name in independent or ()}
    found = find_clusters(t, index)
    if not found:
        return sys
    _check_ratios(sys)
    inside = {b for bodies in found for b in bodies}
    stray = sorted(wanted - inside)
    if stray:
        raise ArgumentError(
            f"cluster: joint {t.joint_names[stray[0]]!r} takes part in no loop, so it is independent anyway. "
            "Leave it out of independent=."
        )
    q0 = np.asarray(sys.q0, float)
    keys = np.asarray(sys.keyframe_q, float).copy()
    chosen: list[int] = [d for b in range(t.nb) if b not in inside for d in joint_dofs(t, b)]
    dependent: list[int] = []
    folded: list[int] = []
    for bodies in found:
        dofs = [d for b in bodies for d in joint_dofs(t, b)]
        own = [r for r in relations(t) if r.dofs and set(r.dofs) <= set(dofs)]
        host = HostCluster(sys, bodies, own)
        q0 = _closed(t, host, own, q0)
        named = [d for b in bodies if b in wanted for d in joint_dofs(t, b)]
        marked = [d for b in bodies if b not in t.followers for d in joint_dofs(t, b)]
        lanes = _independent(t, host, own, q0, named, marked if set(bodies) & set(t.followers) else [])
        if len(lanes) > MAX_LANES:
            raise ModelError(
                f"{t.source}, cluster of {_listed(t, bodies)}",
                f"{len(lanes)} independent degrees of freedom in one cluster, at most {MAX_LANES} can be",
                f"Declare loops that share no body (groups= shows what is tied together), {_CONSTRAINT}.",
            )
        explicit, _ = resolve(t, tuple(dofs), tuple(lanes), own)
        given = {d for _, ds in explicit for d in ds}
        q0 = host.close(q0, tuple(lanes))[0]
        for k, row in enumerate(keys):
            keys[k], error = host.close(row, tuple(lanes))
            if error > _CLOSED:
                keys[k], error = host.close(row)
            if error > _CLOSED:
                keys[k] = q0
                name = t.keyframe_names[k]
                text = f"{t.source}: keyframe {name!r} cannot be closed and becomes the default pose."
                warnings.warn(text, ModelWarning, stacklevel=2)
        chosen += lanes
        dependent += [b for b in bodies if set(joint_dofs(t, b)) & given]
        folded += _folded(t, bodies, lanes)
    topology = replace(
        t,
        clusters=tuple(found),
        independent=tuple(sorted(chosen)),
        dependent=tuple(sorted(dependent)),
        folded=tuple(sorted(folded)),
        massless=tuple(b for b in t.massless if t.body_names.index(b) not in inside),
    )
    kept = list(topology.kept_q)
    return replace(
        sys,
        topology=topology,
        q0=jnp.asarray(q0[kept], sys.dtype),
        keyframe_q=jnp.asarray(keys[:, kept], sys.dtype),
        keyframe_v=sys.keyframe_v[:, np.array(topology.independent, int)],
    )


def _check_ratios(sys: System) -> None:
    t = sys.topology
    for k, (a, _) in enumerate(t.mimics):
        if float(sys.mimic_ratio[k]) == 0.0:
            raise ModelError(
                f"{t.source}, mimic joint {t.joint_names[a]!r}",
                "its ratio is zero, so it follows nobody",
                "Give it a ratio, or lock the joint with lock_joints.",
            )
    start = 0
    for name, joints in zip(t.linear_names, t.linear_joints):
        c = np.asarray(sys.linear_coefficients[start : start + len(joints)])
        start += len(joints)
        if (c == 0).any():
            joint = t.joint_names[joints[int(np.argmin(np.abs(c)))]]
            raise ModelError(
                f"{t.source}, coupling {name!r}",
                f"the coefficient of joint {joint!r} is zero",
                "Leave the joint out of the coupling, or give it a ratio.",
            )


def _closed(t: Topology, host: HostCluster, own: list[Relation], q: np.ndarray) -> np.ndarray:
    """q with the cluster closed: from where it is, then from random poses."""
    best, error = host.close(q)
    rng = np.random.default_rng(1)
    for _ in range(40):
        if error < _CLOSED:
            return best
        best, error = host.close(host.move(q, rng.normal(size=len(host.dofs))))
    if error < _CLOSED:
        return best
    names = ", ".join(relation_name(t, r) for r in own if r.geometric or r.kind == "function")
    raise ModelError(
        f"{t.source}, {names}",
        f"the loop cannot be closed: {error:.2g} m or rad remain at best",
        "Check lengths and placements; set q0 near the wanted assembly.",
    )


def _independent(
    t: Topology, host: HostCluster, own: list[Relation], q: np.ndarray, wanted: list[int], marked: list[int]
) -> list[int]:
    """Degrees of freedom that determine the others, best over sampled closed poses."""
    dofs = host.dofs
    where = f"{t.source}, cluster of {_listed(t, host.bodies)}"
    lines = [host.rows(x)[1] for x in host.samples(q, _SAMPLES)]
    scaled = [_unit_rows(K) for K in lines]
    rank = max(int((np.linalg.svd(K, compute_uv=False) > _RANK).sum()) for K in scaled)
    count = len(dofs) - rank
    if count == 0:
        raise ModelError(
            where,
            f"its {len(dofs)} degrees of freedom have {rank} independent constraints: nothing can move",
            f"Remove a loop, lock the joints with lock_joints, {_CONSTRAINT}.",
        )
    if wanted:
        if len(wanted) != count:
            names = ", ".join(
                repr(t.joint_names[b]) for b in host.bodies if set(joint_dofs(t, b)) & set(wanted)
            )
            raise ModelError(
                where,
                f"{len(wanted)} degrees of freedom were named ({names}), but its mobility is {count}",
                f"Name joints with {count} in all.",
            )
        if _score(scaled, dofs, wanted) < 1e-6:
            raise ModelError(where, "the named joints do not determine the others", "Choose others, or none.")
        return sorted(wanted)
    if len(marked) == count and _score(scaled, dofs, marked) > 1e-6:
        return sorted(marked)
    followers = _natural_followers(t, host, own)
    candidates = [d for d in dofs if d not in followers]
    if len(candidates) < count:
        candidates = list(dofs)
    single = [d for d in candidates if TYPES[t.joint_types[host._body(d)]].group is None]
    candidates = (
        single
        if len(single) >= count and _best(t, host, scaled, dofs, single, count)[1] > 1e-4
        else candidates
    )
    best, score = _best(t, host, scaled, dofs, candidates, count)
    if score < 1e-6 and len(candidates) < len(dofs):
        best, score = _best(t, host, scaled, dofs, list(dofs), count)
    if score < 1e-6:
        raise ModelError(
            where,
            "no set of its joints determines the others in all sampled poses",
            f"Name them with independent=, {_CONSTRAINT}.",
        )
    return sorted(best)


def _unit_rows(K: np.ndarray) -> np.ndarray:
    """Rows of length one, but those that are rounding alone."""
    size = np.linalg.norm(K, axis=1, keepdims=True)
    return K / np.maximum(size, max(1e-6 * size.max(), 1e-12))


def _best(t: Topology, host: HostCluster, lines, dofs, candidates, count) -> tuple[list[int], float]:
    """The set with the largest smallest singular value; within a factor of 2, driven and early joints win."""
    if comb(len(candidates), count) > _MAX_SETS:
        return _greedy(lines, dofs, candidates, count)
    driven = set(t.actuator_dofs)
    scores = {s: _score(lines, dofs, s) for s in combinations(candidates, count)}
    top = max(scores.values(), default=0.0)
    near = [s for s, x in scores.items() if x >= 0.5 * top] or [tuple(candidates[:count])]
    rank = lambda s: (-len(driven & set(s)), sum(len(_depth(t, host, d)) for d in s), s)  # noqa: E731
    best = min(near, key=rank)
    return list(best), scores.get(best, 0.0)


def _depth(t: Topology, host: HostCluster, d: int) -> list[int]:
    b, chain = host._body(d), []
    while b in host.bodies:
        chain.append(b)
        b = t.parents[b]
    return chain


def _greedy(lines, dofs, candidates, count) -> tuple[list[int], float]:
    """Drop, one after another, the candidate whose column the others need least."""
    left = list(candidates)
    chosen: list[int] = []
    while len(chosen) < count:
        best = max(left, key=lambda d: _score(lines, dofs, [*chosen, d]))
        chosen.append(best)
        left.remove(best)
    return chosen, _score(lines, dofs, chosen)


def _score(lines, dofs, independent) -> float:
    """Smallest singular value of the other columns over samples, a low quantile: a few samples may be
    singular.
    """
    rest = [k for k, d in enumerate(dofs) if d not in independent]
    if not rest:
        return 1.0
    values = [
        np.linalg.svd(K[:, rest], compute_uv=False)[-1] if K.shape[0] >= len(rest) else 0.0 for K in lines
    ]
    return float(np.quantile(values, 0.1))


def _natural_followers(t: Topology, host: HostCluster, own: list[Relation]) -> set[int]:
    """Who follows whom by the file: mimics, left sides of couplings; of a sum, a childless body on the
    root.
    """
    root = cluster_root(t, host.bodies)
    parents = set(t.parents)
    found: set[int] = set()
    for r in own:
        if r.kind in ("mimic", "coupling"):
            found.add(r.dofs[0])
        elif r.kind == "function" and r.follows:
            found |= set(r.follows)
        elif r.kind == "linear":
            tips = [d for d in r.dofs if host._body(d) not in parents and t.parents[host._body(d)] == root]
            tips = [d for d in tips if d not in found] or [d for d in reversed(r.dofs) if d not in found]
            found |= set(tips[:1])
    return found


def _folded(t: Topology, bodies: tuple[int, ...], lanes: list[int]) -> list[int]:
    """Childless bodies on the root with one plain degree of freedom; one body stays in the loop."""
    root = cluster_root(t, bodies)
    parents = set(t.parents)
    tips = [
        b
        for b in bodies
        if b not in parents
        and t.parents[b] == root
        and TYPES[t.joint_types[b]].sizes == (1, 1)
        and not TYPES[t.joint_types[b]].curved
    ]
    if len(tips) == len(bodies):  # a gear of rotors alone: an independent one stays
        stays = next((b for b in tips if set(joint_dofs(t, b)) & set(lanes)), tips[0])
        tips.remove(stays)
    return tips


def _listed(t: Topology, bodies) -> str:
    names = [t.body_names[b] for b in bodies]
    return ", ".join(map(repr, names[:6])) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
