"""Clusters in the articulated passes: nodes with lanes, which the loop bodies take like any other node.

A node of a cluster moves by the cluster's k independent rates, G_1 ẏ_1 + … + G_k ẏ_k, so it cannot be
eliminated alone. It hands on, beside its articulated inertia and bias force, one lane per rate: with A the
acceleration of its parent, the cluster's bodies from here on act on the parent by

    f = IA A + p + Σ F_l ÿ_l,        and lack joint forces        τ_l - w_l - F_l·A - Σ D_lm ÿ_m.

The cluster's last node closes: ÿ = D⁻¹ (τ - w - Fᵀ A) is put in, as [GRBDA] Algorithm 1 lines 26-33 do with
the whole cluster as one 6m × 6m block, and 6 × 6 is handed on. Where several bodies of a cluster hang on its
root, a node without a motion of its own stands above them and closes. A childless body on the root is folded:
it is no node, what it adds is put where it belongs before the loop. A joint outside of clusters has one lane
and closes at once, which is ABA.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather, gather_sum
from jaxrbd.model.system import Topology
from jaxrbd.tree.ldl import factor_ldl
from jaxrbd.tree.mechanism import clusters_of, mechanism_of
from jaxrbd.tree.node import Node
from jaxrbd.tree.nodes import Nodes, lay_out
from jaxrbd.tree.spatial import ArticulatedInertia, Force, Inertia, Motion

MAX_LANES = 8  # lanes are written out: beyond this, programs grow and a loop is better kept as a constraint


class Rates(NamedTuple):
    """One number per lane; `incoming`, the loads w that came from below, where they are loads."""

    c: tuple
    incoming: Any = None

    def __sub__(self, o):
        return Rates(tuple(a - b for a, b in zip(self.c, o.c)), o.incoming)


class LaneForce(NamedTuple):
    """A force, and the loads w of the lanes."""

    p: Force
    w: tuple

    def __add__(self, o):
        if isinstance(o, Force):
            return LaneForce(self.p + o, self.w)
        return LaneForce(self.p + o.p, tuple(a + b for a, b in zip(self.w, o.w)))

    def rotate(self, R):
        return LaneForce(self.p.rotate(R), self.w)

    def from_(self, r):
        return LaneForce(self.p.from_(r), self.w)


class LaneInertia(NamedTuple):
    """An articulated inertia, with F of every lane and the upper triangle of D, row by row.

    `beside`: F and D of folded bodies, which hang beside the node that closes and not on it.
    """

    IA: ArticulatedInertia
    F: tuple
    D: tuple
    beside: tuple | None = None

    def __add__(self, o):
        """With the node's own inertia."""
        if isinstance(o, LaneRigid):
            return LaneInertia(self.IA + o.I.articulated(), self.F, self.D, (o.F, o.D))
        return LaneInertia(self.IA + o, self.F, self.D)

    def __matmul__(self, m: Motion) -> LaneForce:
        return LaneForce(self.IA @ m, tuple(m.dot(f) for f in self.F))

    def rotate(self, R):
        return LaneInertia(self.IA.rotate(R), tuple(f.rotate(R) for f in self.F), self.D)

    def from_(self, r):
        return LaneInertia(self.IA.from_(r), tuple(f.from_(r) for f in self.F), self.D)


class LaneRigid(NamedTuple):
    """A rigid inertia with lanes of the bodies that were folded beside it."""

    I: Inertia
    F: tuple
    D: tuple

    def articulated(self) -> LaneRigid:
        return self


class LanePivot(NamedTuple):
    """What is left of a cluster where it closed, zero at its other nodes: D⁻¹ Fᵀ, and D⁻¹ row by row."""

    FD: tuple
    Dinv: Any

    def reaction(self, p: LaneForce, u: Rates) -> LaneForce:
        """As `Pivot.reaction`; where nothing closes, what the lanes lack is handed on."""
        f = p.p
        for force, x in zip(self.FD, u.c):
            f = f + force * x
        return LaneForce(f, tuple(w - own - x for w, own, x in zip(p.w, u.incoming, u.c)))

    def alone(self, u: Rates) -> Rates:
        k = len(self.FD)
        return Rates(tuple(sum(self.Dinv[at(k, i, j)] * u.c[j] for j in range(k)) for i in range(k)))


class LaneNode(NamedTuple):
    """A node with its row of G. `keep`: 1 where lanes are handed on, 0 where they close."""

    node: Node
    G: tuple
    keep: Any
    pad: tuple  # 1 on the diagonal of D where a closing has fewer lanes, or nothing closes
    plain: Any  # 1 for a joint outside of clusters

    def arrive(self, m: Motion) -> Motion:
        return self.node.arrive(m)

    def hand_on(self, x):
        if isinstance(x, LaneForce):
            x = LaneForce(x.p, _masked(x.w, self.keep))
        elif isinstance(x, LaneInertia):
            x = LaneInertia(x.IA, _masked(x.F, self.keep), _masked(x.D, self.keep))
        return self.node.hand_on(x)

    def expand(self, y: Rates) -> Motion:
        return self.node.expand(sum(g * x for g, x in zip(self.G, y.c)))

    def project(self, f: LaneForce) -> Rates:
        s = self.node.project(f.p)
        return Rates(tuple(w + g * s for w, g in zip(f.w, self.G)), f.w)

    def rate(self, pivot: LanePivot, alone: Rates, A: Motion, above: Rates) -> Rates:
        own = tuple(x - A.dot(f) for x, f in zip(alone.c, pivot.FD))
        if isinstance(self.keep, int):
            return Rates(own)
        return Rates(tuple(x + y * self.keep for x, y in zip(own, above.c)))

    def eliminate(self, I: LaneInertia) -> tuple[LaneInertia, LanePivot]:
        """Add the node to the lanes; where the cluster closes, take them out of the inertia."""
        node, k = self.node, len(self.G)
        U = I.IA @ node.S
        d = node.project(U) + node.armature
        h = [node.project(f) for f in I.F]
        D = list(I.D)
        for i in range(k):
            for j in range(i, k):
                more = self.G[i] * h[j] + self.G[j] * h[i] + self.G[i] * self.G[j] * d
                D[at(k, i, j)] = D[at(k, i, j)] + more
        F = tuple(f + U * g for f, g in zip(I.F, self.G))
        if I.beside is not None:
            F = tuple(f + x for f, x in zip(F, I.beside[0]))
            D = [d + x for d, x in zip(D, I.beside[1])]
        Ia, pivot = self._close(I.IA, F, D)
        return LaneInertia(Ia, F, tuple(D)), pivot

    def _close(self, IA: ArticulatedInertia, F: tuple, D: list):
        node, k = self.node, len(F)
        closes = 1 if isinstance(self.keep, int) else 1 - self.keep
        M = [[D[at(k, i, j)] * closes for j in range(k)] for i in range(k)]
        for i in range(k):
            M[i][i] = M[i][i] + self.pad[i]
        L, pivots = factor_ldl(M)
        inverse = [1 / x * closes for x in pivots]
        Z = list(F)  # L⁻¹ F
        for i in range(k):
            for j in range(i):
                Z[i] = Z[i] + Z[j] * -L[i][j]
        scaled = [z * x for z, x in zip(Z, inverse)]
        # as in `Node.eliminate`: what is handed on by a plain joint is made free of its motion in floating
        # point
        rest = ((1 - node.armature * inverse[0]) - node.project(scaled[0])) * self.plain
        scaled[0] = scaled[0] + Force(node.S.ang, node.S.lin) * rest
        for z, s in zip(Z, scaled):
            IA = IA.minus_outer(z, s)
        FD = list(scaled)  # L⁻ᵀ
        for i in reversed(range(k)):
            for j in range(i + 1, k):
                FD[i] = FD[i] + FD[j] * -L[j][i]
        return IA, LanePivot(tuple(FD), tuple(_inverse(L, inverse)))


def _masked(values: tuple, keep):
    if isinstance(keep, int):  # every node closes
        return tuple(jax.tree.map(lambda _: 0, x) for x in values)
    return tuple(x * keep for x in values)


def at(k: int, i: int, j: int) -> int:
    """Place of entry (i, j) of a symmetric k × k matrix in its upper triangle, row by row."""
    i, j = min(i, j), max(i, j)
    return i * k - i * (i - 1) // 2 + j - i


def _inverse(L, inverse):
    """Upper triangle of (L D Lᵀ)⁻¹ from the unit triangle L and 1/D."""
    k = len(inverse)
    unit = [[0 if i != j else 1 for j in range(k)] for i in range(k)]
    for c in range(k):  # columns of L⁻¹
        for i in range(c + 1, k):
            unit[i][c] = -sum(L[i][j] * unit[j][c] for j in range(c, i))
    found = []
    for i in range(k):
        for j in range(i, k):
            found.append(sum(unit[m][i] * unit[m][j] * inverse[m] for m in range(j, k)))
    return found


# --- where lanes stand --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LaneLayout:
    """The nodes of a System with clusters and their lanes; slots are those in rows, then the folded ones."""

    nodes: Nodes
    lanes: int
    dof: np.ndarray  # (N,) the tree's; its nv where a node has none
    keep: np.ndarray  # (rows,) bool
    pad: np.ndarray  # (rows, lanes)
    plain: np.ndarray  # (rows,) bool
    tau: np.ndarray  # (rows, lanes) where in v the lanes that close at a slot stand, nv as filler
    out: np.ndarray  # (nv,) entries of (rows * lanes) values at closings, then six per free root
    closing: np.ndarray  # (folded,) slot where the lanes of a folded body close
    folded_by_closing: np.ndarray  # (rows, most) folded bodies by where they close, their number as filler


@lru_cache(maxsize=512)
def lanes_of(t: Topology) -> LaneLayout:
    m, tree = mechanism_of(t), t.opened
    folded = set(t.folded)
    tops = [tuple(b for b in c.bodies if t.parents[b] == c.root and b not in folded) for c in clusters_of(t)]
    nodes = lay_out(tree, virtual=tuple(x for x in tops if len(x) > 1))
    n, rows, nv = t.v_starts[-1], nodes.rows * nodes.width, t.nv
    dof = np.where(nodes.live, nodes.v, n)
    dof[nodes.virtual] = n
    clustered = {d for c in m.clusters for d in c.dofs}
    plain = np.array(
        [bool(nodes.live[s]) and dof[s] < n and int(dof[s]) not in clustered for s in range(rows)]
    )
    closes = plain.copy()
    tau = np.full((rows, m.lanes), nv)
    for s in np.flatnonzero(plain):
        tau[s] = m.lane_v[dof[s]]
    place = {d: k for k, d in enumerate(t.independent)}
    where = {}
    virtual = iter(nodes.virtual)
    for c, x in zip(m.clusters, tops):
        end = int(next(virtual)) if len(x) > 1 else int(nodes.slot_of_dof[t.v_starts[x[0]]])
        closes[end] = True
        where[c.bodies] = end
        for k, d in enumerate(c.independent):
            tau[end, k] = place[d]
    pad = (tau == nv).astype(float)
    pad[~closes] = 1
    out = np.zeros(nv, int)
    for s in np.flatnonzero(closes):
        for k in range(m.lanes):
            if tau[s, k] < nv:
                out[tau[s, k]] = s * m.lanes + k
    for k, b in enumerate(nodes.root_bodies):
        for i in range(6):
            out[place[t.v_starts[b] + i]] = rows * m.lanes + 6 * k + i
    owner = {b: where[c.bodies] for c in m.clusters for b in c.bodies}
    closing = np.array([owner[int(b)] for b in nodes.body[rows:]], int)
    lists = [np.flatnonzero(closing == s).tolist() for s in range(rows)]
    most = max([1] + [len(x) for x in lists])
    table = np.array([x + [len(closing)] * (most - len(x)) for x in lists], int).reshape(rows, most)
    return LaneLayout(nodes, m.lanes, dof, ~closes, pad, plain, tau, out, closing, table)


def lane_nodes(layout: LaneLayout, node: Node, G, dtype) -> LaneNode:
    """All slots in rows, with G (nv of the tree, lanes, B); `node` has its armature."""
    rows = len(layout.keep)
    column = lambda x: jnp.asarray(np.asarray(x, float), dtype)[:, None]  # noqa: E731
    lanes = gather(jnp.concatenate([G, jnp.zeros_like(G[:1])]), layout.dof[:rows])
    keep: Any = column(layout.keep) if (layout.keep & layout.nodes.live[:rows]).any() else 0
    pad = tuple(column(x) if x.any() else 0 for x in layout.pad.T)
    inner = gather(node, slice(0, rows))
    return LaneNode(inner, tuple(lanes[:, k] for k in range(layout.lanes)), keep, pad, column(layout.plain))


def fold(layout: LaneLayout, node: Node, G, I: Inertia, p: Force, c: Motion):
    """What folded bodies add: to the inertias and forces of slots and roots they hang on, and to lanes.

    Rows of `node`, I, p and c are all slots. Returns (I, p) of the slots in rows as the loop takes them, and
    what arrives at the roots.
    """
    nodes, k = layout.nodes, layout.lanes
    rows = len(layout.keep)
    inner = lambda x: gather(x, slice(0, rows))  # noqa: E731
    if not nodes.folded:
        return inner(I), inner(p), None, None
    tip = lambda x: gather(x, slice(rows, None))  # noqa: E731
    n, It, ct = tip(node), tip(I), tip(c)
    pt = tip(p) + It @ ct
    row = gather(G, layout.dof[rows:])
    g = [row[:, i] for i in range(k)]
    U = It @ n.S
    d, s = n.project(U) + n.armature, n.project(pt)
    closing = gather(node, layout.closing)
    F = tuple(closing.take_back(n.hand_on(U * x)) for x in g)
    D = tuple(g[i] * g[j] * d for i in range(k) for j in range(i, k))
    w = tuple(x * s for x in g)

    def summed(tree, table, like):
        wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + like)  # noqa: E731
        total = lambda x: gather_sum(jnp.concatenate([wide(x), jnp.zeros_like(wide(x)[:1])]), table)  # noqa: E731
        return jax.tree.map(lambda x: x if isinstance(x, int) else total(x), tree)

    batch = jnp.broadcast_shapes(
        *(x.shape[-1:] for x in jax.tree.leaves((F, D, w, pt, It)) if hasattr(x, "shape"))
    )
    F, D, w = summed((F, D, w), layout.folded_by_closing, batch)
    w = tuple(x - inner(c).dot(f) for x, f in zip(w, F))  # they feel the root's acceleration, without c
    I_up = summed(
        n.hand_on(It), nodes.folded_children, jnp.broadcast_shapes(It.mass.shape[-1:], n.R.a.x.shape[-1:])
    )
    p_up = summed(n.hand_on(pt), nodes.folded_children, batch)
    at_slots, at_roots = (lambda x: gather(x, slice(0, rows))), (lambda x: gather(x, slice(rows, None)))
    I_all, p_all = inner(I) + at_slots(I_up), inner(p) + at_slots(p_up)
    return LaneRigid(I_all, F, D), LaneForce(p_all, w), at_roots(I_up), at_roots(p_up)
