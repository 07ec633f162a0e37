"""Which bodies form a cluster: the connectivity graph of a model and its loops ([GRBDA] IV), on the host.

Single-output rule: let r be the nearest body that carries all joints of a relation. Its cluster is every body
on the way from r (exclusive) to those joints, and clusters that share a body merge. A cluster then hangs on
one body alone, and clusters form a tree.
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxrbd.errors import ModelError
from jaxrbd.joints import TYPES
from jaxrbd.model.topology import Topology
from jaxrbd.tree.mechanism import Relation, ancestors, relations


def relation_name(t: Topology, r: Relation) -> str:
    if r.kind == "mimic":
        return f"mimic joint {t.joint_names[t.mimics[r.index][0]]!r}"
    if r.kind == "linear":
        return f"coupling {t.linear_names[r.index]!r}"
    if r.kind == "function":
        return f"function {t.functions[r.index].name!r}"
    return f"{'coupling' if r.kind == 'coupling' else 'loop'} {t.loop_names[r.index]!r}"


def find_clusters(t: Topology, groups: Iterable[Iterable[int]] = ()) -> list[tuple[int, ...]]:
    """Bodies of every cluster, in tree order; bodies of one of `groups` belong to one cluster."""
    sets = [_grown(t, set(group)) for group in groups]
    for r in relations(t):
        joints = {_body(t, d) for d in r.dofs}
        if not joints:
            continue
        found = _grown(t, joints)
        _refuse_free(t, r, found)
        sets.append(found)
    merged: list[set[int]] = []
    for new in sets:
        while True:
            hit = next((old for old in merged if old & new), None)
            if hit is None:
                break
            merged.remove(hit)
            new = _grown(t, new | hit)
        merged.append(new)
    return sorted((tuple(sorted(x)) for x in merged), key=lambda x: x[0])


def _body(t: Topology, dof: int) -> int:
    return next(b for b in range(t.nb) if t.v_starts[b] <= dof < t.v_starts[b + 1])


def _grown(t: Topology, bodies: set[int]) -> set[int]:
    """With all bodies between them and the nearest one that carries them all."""
    chains = [ancestors(t, t.parents[b]) for b in bodies]
    common = next(b for b in chains[0] if all(b in chain for chain in chains))
    return {b for start in bodies for b in _up_to(t, start, common)}


def _up_to(t: Topology, body: int, root: int) -> list[int]:
    chain = []
    while body != root:
        chain.append(body)
        body = t.parents[body]
    return chain


def _refuse_free(t: Topology, r: Relation, bodies: set[int]) -> None:
    free = [b for b in bodies if TYPES[t.joint_types[b]].free]
    if free:
        raise ModelError(
            f"{t.source}, {relation_name(t, r)}",
            f"it runs through the free joint {t.joint_names[free[0]]!r}: the robot would be one cluster",
            'Load the model with loops="constraint" and give jaxrbd.constraints.of_model(sys) to rollout.',
        )
