"""Rows of the constraints at a state: phi, J v, J̇v and the wrenches K that J is made of, batch last.

Row r acts on body A with the wrench K_A and on body B with K_B, or on freedoms directly:

    (J a)_r = K_A · A_A + K_B · A_B + sum of kappa_r,d a_d

where A are spatial accelerations. What the numbers are is asked of the kinds (`kinds/`), family by family.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, Entry, Part, row_weights
from jaxrbd.engine.gather import gather, gather_sum
from jaxrbd.engine.scan import outward
from jaxrbd.model.system import System, Topology
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.joints import Links, link_transforms
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.spatial import Force, Mat3, Motion, Vec3


@dataclass(frozen=True, eq=False)
class Table:
    """Which row belongs to what; slots are those of `Nodes`, free roots and the world after them."""

    m: int
    entry: np.ndarray  # (m,) the constraint of each row
    families: tuple[tuple[type[Entry], np.ndarray], ...]  # and the constraints of each, those on bodies first
    slot_a: np.ndarray  # (m,) slot of body A; the world's where a row acts on joints only
    slot_b: np.ndarray  # (m,)
    pick: np.ndarray  # (m,) place of the row in what the families give, one after another
    joint_rows: np.ndarray  # (ne,) rows with entries on freedoms ...
    joint_dofs: np.ndarray  # (ne,) ... and these freedoms


@lru_cache(maxsize=512)
def table_of(t: Topology, entries: tuple[Entry, ...]) -> Table:
    nodes = nodes_of(t)
    slot = lambda body: int(nodes.body_slot[body]) if body >= 0 else nodes.size  # noqa: E731
    ends = [e.bodies(t) for e in entries]
    on_bodies = {e.family for e, both in zip(entries, ends) if max(both) >= 0}
    families, start = [], 0
    place: dict[int, list[int]] = {}
    for family in sorted(dict.fromkeys(e.family for e in entries), key=lambda f: f not in on_bodies):
        which = [k for k, e in enumerate(entries) if e.family is family]
        places, count = family.places([entries[k] for k in which])
        place |= {k: [start + p for p in own] for k, own in zip(which, places)}
        families.append((family, np.array(which, int)))
        start += count
    counts = [e.rows for e in entries]
    first = np.cumsum([0, *counts])
    joint = [(first[k] + i, d) for k, e in enumerate(entries) for i, d in e.joint_entries]
    a, b = np.repeat(np.array([[slot(x) for x in both] for both in ends], int), counts, 0).T
    joint_rows, joint_dofs = np.array(joint, int).reshape(-1, 2).T
    return Table(
        m=int(first[-1]),
        entry=np.repeat(np.arange(len(entries)), counts),
        families=tuple(families),
        slot_a=a,
        slot_b=b,
        pick=np.array([p for k in range(len(entries)) for p in place[k]], int),
        joint_rows=joint_rows,
        joint_dofs=joint_dofs,
    )


class Moving(NamedTuple):
    """Motion of all slots, then roots: world rotation and position from the root, twists in own axes."""

    links: Links
    roots: kin.Roots
    R: Mat3
    p: Vec3
    V: Motion
    A: Motion  # gravity included as an acceleration of the world: spatial acceleration minus g


class Scene(NamedTuple):
    """What a kind looks at, batch last."""

    sys: System
    con: Constraints
    q: Any  # (nq, B)
    v: Any  # (nv, B)
    moving: Moving


class Rows(NamedTuple):
    """One number per row, (m, B), and the wrenches in the axes of the bodies' nodes."""

    KA: Force
    KB: Force
    kappa: Any  # (ne, B)
    phi: Any
    u: Any  # J v
    gamma: Any  # J̇v, or J a + J̇v if the motion has an acceleration
    target: Any  # a*
    weight: Any


def motion(sys: System, q, v, a=None) -> Moving:
    """Velocities and accelerations (bias accelerations if a is None) of all links: one outward pass."""
    nodes = nodes_of(sys.topology)
    links, roots = link_transforms(sys, q, v), kin.root_states(sys, q)
    a = jnp.zeros_like(v) if a is None else a
    V0, A0 = kin.root_rows(sys, v), kin.root_rows(sys, a)
    g = roots.R.T @ Vec3(*(sys.gravity[k][None] for k in range(3)))
    A0 = Motion(A0.ang, A0.lin - g)

    def move(parent, x):
        R, p, V, A = parent
        node, bias, qd, qdd = x
        # [CABA] Alg. 1, lines 1-3; Alg. 4, lines 1-3
        return R @ node.R, p + R @ node.r, *node.move(V, A, qd, qdd, bias)

    start = kin.broadcast((roots.R, jax.tree.map(jnp.zeros_like, roots.p), V0, A0), q)
    xs = (links.node, links.bias, gather(v, nodes.v), gather(a, nodes.v))
    R, p, V, A = kin.join(outward(nodes, move, xs, start), start)
    return Moving(links, roots, R, p, V, A)


def constraint_rows(sys: System, con: Constraints, q, v, moving: Moving, a=None) -> Rows:
    """Everything that solvers need to know of the constraints at a state; `a` is that of the motion."""
    table, scene = table_of(sys.topology, con.entries), Scene(sys, con, q, v, moving)
    parts = [family.evaluate(scene, which) for family, which in table.families]
    full = lambda x: jnp.broadcast_to(x, x.shape[:-1] + q.shape[-1:])  # noqa: E731
    number = lambda *xs: gather(jnp.concatenate([full(x) for x in xs]), table.pick)  # noqa: E731
    phi, u, gamma = (number(*xs) for xs in zip(*(p[:3] for p in parts)))
    KA, KB = (_wrenches(parts, table, side, q) for side in ("KA", "KB"))
    kappa = _kappa(parts, table, q)
    if a is not None and kappa is not None:
        gamma = gamma + sum_by_row(kappa * gather(a, table.joint_dofs), table.joint_rows, table.m)
    per_row = lambda x: gather(x, table.entry)  # noqa: E731
    target = con.target - per_row(con.damping) * u - per_row(con.stiffness) * phi
    return Rows(KA, KB, kappa, phi, u, gamma, target, row_weights(con.entries, con.weight))


def _wrenches(parts: list[Part], table: Table, side: str, q) -> Force:
    """K of all rows on one side; zero for those that do not act there."""

    def nothing(n: int) -> Force:
        zero = jnp.zeros((n,) + q.shape[-1:], q.dtype)
        return Force(Vec3(zero, zero, zero), Vec3(zero, zero, zero))

    found = [getattr(p, side) for p in parts]
    if all(K is None for K in found):
        return nothing(table.m)
    full = lambda x: jnp.broadcast_to(x, x.shape[:-1] + q.shape[-1:])  # noqa: E731
    every = [nothing(p.phi.shape[0]) if K is None else jax.tree.map(full, K) for K, p in zip(found, parts)]
    join = lambda *xs: gather(jnp.concatenate(xs) if len(xs) > 1 else xs[0], table.pick)  # noqa: E731
    return jax.tree.map(join, *every)


def _kappa(parts: list[Part], table: Table, q):
    """Entries on freedoms in the order of `joint_rows`."""
    if not len(table.joint_rows):
        return None
    found: dict[int, Any] = {}
    for part, (_, which) in zip(parts, table.families):
        found |= dict(zip(which.tolist(), part.kappa or ()))
    full = lambda x: jnp.broadcast_to(x, x.shape[:1] + q.shape[-1:])  # noqa: E731
    return jnp.concatenate([full(found[k]) for k in sorted(found)])


def sum_by_row(x, owners: np.ndarray, count: int):
    """Row k of the result is the sum of the rows of x that belong to k: two gathers, no scatter."""
    used = sorted(set(owners.tolist()))
    if not used:
        return jnp.zeros((count,) + x.shape[1:], x.dtype)
    lists = [np.flatnonzero(owners == k).tolist() for k in used]
    most = max(len(found) for found in lists)
    table = np.array([found + [len(owners)] * (most - len(found)) for found in lists])
    zero = jnp.zeros_like(x[:1])
    sums = gather_sum(jnp.concatenate([x, zero]), table)
    place = np.full(count, len(used))
    place[used] = np.arange(len(used))
    return gather(jnp.concatenate([sums, zero]), place)


def summed_wrenches(x, lam, at_a: np.ndarray, at_b: np.ndarray, world: int, count: int) -> Force:
    """Jᵀ lam as wrenches on `count` places, of which rows have their bodies A and B at those given.

    `x`: has the wrenches KA and KB of every row; B is the world for most rows, and nothing is summed there.
    """
    f = jax.tree.map(lambda k: sum_by_row(k * lam, at_a, count), x.KA)
    if (at_b != world).any():
        f = f + jax.tree.map(lambda k: sum_by_row(k * lam, at_b, count), x.KB)
    return f
