"""From the state of a System with clusters to that of its open tree: q = γ(y), G and g, batch last.

[GRBDA] Eqs. 2 and 3: with v the independent velocities, the open tree moves with G v and accelerates with
G a + g. Explicit relations give rows of G directly. Where rows φ(q) = 0 close a loop, with K = ∂φ/∂q split
into columns of independent and of closing degrees of freedom, K_c G_c = -K_i and K_c g_c = k - K g_explicit
are solved (`loop_rows`).

Every cluster has lanes, one for each of its independent degrees of freedom; a row of G has as many numbers as
the largest cluster has lanes. Degrees of freedom outside of clusters have one lane and G = 1.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather, gather_sum, put
from jaxrbd.model.system import System, Topology
from jaxrbd.tree.loop_rows import Rows, loop_rows
from jaxrbd.tree.mechanism import Level, Mechanism, coordinates, mechanism_of


class Opened(NamedTuple):
    """A state of the open tree, with the maps that lead there."""

    sys: System  # the open tree, childless bodies of clusters folded
    q: Any  # (nq of the tree, B)
    v: Any  # (nv of the tree, B) = G v, or None
    G: Any  # (nv of the tree, lanes, B)
    g: Any  # (nv of the tree, B), or None where it vanishes


def open_tree(sys: System) -> System:
    """The open tree as the recursions take it; they read no pose from it."""
    return replace(sys, topology=sys.topology.opened, q0=None, keyframe_q=None, keyframe_v=None)


def open_state(sys: System, q, v=None) -> Opened:
    """The open tree's state for q (nq, B) and v (nv, B), with G and, if v is given, g."""
    t, m = sys.topology, mechanism_of(sys.topology)
    x = explicit_positions(sys, q)
    rows = [loop_rows(sys, m, group, x.q, x.G) for group in m.groups]
    G = whole_map(m, x.G, rows)
    if v is None:
        return Opened(open_tree(sys), x.q, None, G, None)
    v = lift(t, G, v)
    return Opened(open_tree(sys), x.q, v, G, whole_bias(sys, x, v) if m.curved else None)


# --- G as an operator ---------------------------------------------------------------------------------------


def lift(t: Topology, G, x):
    """G x, (nv of the tree, B), for x (nv, B)."""
    index = mechanism_of(t).lane_v
    padded = jnp.concatenate([x, jnp.zeros_like(x[:1])])
    return sum(G[:, k] * gather(padded, index[:, k]) for k in range(index.shape[1]))


def lower(t: Topology, G, f):
    """Gᵀ f, (nv, B), for f (nv of the tree, B)."""
    each = G * f[:, None]
    flat = each.reshape((-1,) + each.shape[2:])
    return gather_sum(jnp.concatenate([flat, jnp.zeros_like(flat[:1])]), _lanes_of_v(t))


def project_columns(t: Topology, G, J):
    """J G, (m, nv, B), for J (m, nv of the tree, B)."""
    table = _lanes_of_v(t)
    n, lanes = mechanism_of(t).lane_v.shape
    flat = G.reshape((n * lanes,) + G.shape[2:])
    flat = jnp.concatenate([flat, jnp.zeros_like(flat[:1])])
    total = 0
    for k in range(table.shape[1]):
        dof = np.minimum(table[:, k] // lanes, n - 1)
        total = total + gather(J, dof, axis=1) * gather(flat, table[:, k])[None]
    return total


@lru_cache(maxsize=512)
def _lanes_of_v(t: Topology) -> np.ndarray:
    """(nv, most): entries of a flat G (nv of the tree * lanes) that belong to a number of v; their count
    fills up.
    """
    lane_v = mechanism_of(t).lane_v
    owners = lane_v.reshape(-1)
    lists = [np.flatnonzero(owners == k).tolist() for k in range(t.nv)]
    most = max([1] + [len(x) for x in lists])
    return np.array([x + [owners.size] * (most - len(x)) for x in lists], int).reshape(-1, most)


# --- explicit relations -------------------------------------------------------------------------------------


class Explicit(NamedTuple):
    """Positions of the whole tree, and the explicit part of G: from the dofs that are kept to all."""

    q: Any
    G: Any  # (nv of the tree + 1, kept lanes, B): a last row of zeros
    slopes: list  # of every level: (n, most, B)


def explicit_positions(sys: System, q) -> Explicit:
    t, m = sys.topology, mechanism_of(sys.topology)
    n, nq = t.v_starts[-1], t.q_starts[-1]
    where = np.full(nq, len(t.kept_q))
    where[list(t.kept_q)] = np.arange(len(t.kept_q))
    zero = jnp.zeros_like(q[:1])
    full = gather(jnp.concatenate([q, zero]), where)
    one_hot = np.zeros((n + 1, m.kept_lanes))
    kept = np.flatnonzero(m.kept_lane >= 0)
    one_hot[kept, m.kept_lane[kept]] = 1
    G, slopes = jnp.asarray(one_hot, q.dtype)[..., None], []
    for level in m.levels:
        x = gather(jnp.concatenate([full, zero]), coordinates(t)[level.leaders])
        value, slope = _level(sys, level, x)
        full = put(full, coordinates(t)[level.dof], value)
        row = sum(slope[:, k, None] * gather(G, level.leaders[:, k]) for k in range(level.leaders.shape[1]))
        width = jnp.broadcast_shapes(G.shape[-1:], row.shape[-1:])
        G = put(jnp.broadcast_to(G, G.shape[:-1] + width), level.dof, row)
        slopes.append(slope)
    return Explicit(full, G, slopes)


def _level(sys: System, level: Level, x):
    """Coordinates that a level gives and their derivatives by its leaders' x (n, most, B)."""
    r = level.relation
    if level.kind == "mimic":
        ratio, offset = gather((sys.mimic_ratio, sys.mimic_offset), r)
        if level.term.any():  # some are solved for the joint that leads in the file
            turned = jnp.asarray(level.term == 1)[:, None]
            ratio, offset = jnp.where(turned, 1 / ratio, ratio), jnp.where(turned, -offset / ratio, offset)
        return offset + ratio * x[:, 0], ratio[:, None]
    if level.kind == "linear":
        c = jnp.concatenate([sys.linear_coefficients, jnp.zeros_like(sys.linear_coefficients[:1])])
        own = gather(c, level.term)
        slope = -gather(c, level.terms) / own[:, None]
        return gather(sys.linear_offset, r) / own + jnp.sum(slope * x, 1), slope
    if level.kind == "coupling":
        c, y = gather(sys.loop_coefficients, r), x[:, 0]
        value = c[:, 0] + y * (c[:, 1] + y * (c[:, 2] + y * (c[:, 3] + y * c[:, 4])))
        return value, (c[:, 1] + y * (2 * c[:, 2] + y * (3 * c[:, 3] + y * 4 * c[:, 4])))[:, None]
    f = _by_state(sys.topology.functions[int(r[0])].function)
    return f(x[0]), jax.vmap(jax.jacfwd(sys.topology.functions[int(r[0])].function), -1, -1)(x[0])


def _by_state(f):
    return jax.vmap(f, -1, -1)


def _bend(sys: System, level: Level, x, rate):
    """Second derivative along the leaders' motion: what a level adds to g beside its leaders' g."""
    if level.kind in ("mimic", "linear"):
        return None
    if level.kind == "coupling":
        c, y = gather(sys.loop_coefficients, level.relation), x[:, 0]
        return (2 * c[:, 2] + y * (6 * c[:, 3] + y * 12 * c[:, 4])) * rate[:, 0] ** 2
    f = _by_state(sys.topology.functions[int(level.relation[0])].function)
    slope = lambda x: jax.jvp(f, (x,), (rate[0],))[1]  # noqa: E731
    return jax.jvp(slope, (x[0],), (rate[0],))[1]


# --- whole maps ---------------------------------------------------------------------------------------------


def whole_map(m: Mechanism, explicit, rows: list[Rows]):
    """G from its explicit part and the solved rows of the loops."""
    n = len(m.lane)
    if not m.groups:
        return explicit[:n]
    one_hot = np.zeros((n + 1, m.lanes))
    chosen = np.flatnonzero(m.lane >= 0)
    one_hot[chosen, m.lane[chosen]] = 1
    batch = jnp.broadcast_shapes(
        *(x.shape[-1:] for r in rows for line in r.G for x in line), explicit.shape[-1:]
    )
    G = jnp.broadcast_to(jnp.asarray(one_hot, explicit.dtype)[..., None], one_hot.shape + batch)
    for group, found in zip(m.groups, rows):
        for k, line in zip(group.closing, found.G):
            # (clusters, lanes, B), short ones filled up
            wide = [jnp.broadcast_to(x, (len(group.clusters),) + batch) for x in line]
            wide += [jnp.zeros((len(group.clusters),) + batch, G.dtype)] * (m.lanes - len(line))
            G = put(G, group.dofs[:, k], jnp.stack(wide, 1))
    if not m.levels:
        return G[:n]
    return sum(explicit[:n, k, None] * gather(G, m.kept_of[:, k]) for k in range(m.kept_lanes))


def whole_bias(sys: System, x: Explicit, v):
    """g, (nv of the tree, B), where the tree moves with v."""
    t, m = sys.topology, mechanism_of(sys.topology)
    n = len(m.lane)
    bent = jnp.zeros((n + 1,) + v.shape[1:], v.dtype)  # of explicit relations, while what is kept has none
    padded_q = jnp.concatenate([x.q, jnp.zeros_like(x.q[:1])])
    padded_v = jnp.concatenate([v, jnp.zeros_like(v[:1])])
    for level, slope in zip(m.levels, x.slopes):
        own = sum(slope[:, k] * gather(bent, level.leaders[:, k]) for k in range(level.leaders.shape[1]))
        at, rate = gather(padded_q, coordinates(t)[level.leaders]), gather(padded_v, level.leaders)
        bend = _bend(sys, level, at, rate)
        bent = put(bent, level.dof, own if bend is None else own + bend)
    if not m.groups:
        return bent[:n]
    kept = jnp.zeros_like(bent)
    for group in m.groups:
        rows = loop_rows(sys, m, group, x.q, x.G, v, bent)
        for k, g in zip(group.closing, rows.g or []):
            kept = put(kept, group.dofs[:, k], g)
    if not m.levels:
        return kept[:n]
    return bent[:n] + sum(x.G[:n, k] * gather(kept, m.kept_of[:, k]) for k in range(m.kept_lanes))
