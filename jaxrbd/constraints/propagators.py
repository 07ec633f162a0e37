"""Force propagators and inverse inertias between the links where constraints meet ([CABA] Algorithm 5).

Rows act on links as wrenches K. A wrench on link i arrives at an ancestor j as P K, with P the extended
force propagator, and moves a link by Omega K, with Omega its spatial inverse inertia. Two rows meet at the
closest common ancestor c of their links:

    (J M^-1 Jᵀ)_rs = (P_r K_r) · Omega_c (P_s K_s).

So propagators are needed only between stations: links on which rows act, links that branch, and roots. A row
between two bodies is two half rows, a row on a joint is a pair of opposite wrenches on its two links.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.along_links import OnLinks
from jaxrbd.constraints.meeting import FULL, UPPER, Meeting, triangle
from jaxrbd.constraints.open_rows import wide
from jaxrbd.constraints.plan import Plan
from jaxrbd.constraints.rows import sum_by_row
from jaxrbd.constraints.supporting import Problem
from jaxrbd.engine.gather import gather, gather_sum
from jaxrbd.engine.scan import inward, outward
from jaxrbd.model.system import Topology
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.aba import solve_roots
from jaxrbd.tree.node import Pivot
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.spatial import ZERO3, ArticulatedInertia, Force, Mat3, Motion, Sym3, Vec3, zero_articulated


def half_rows(t: Topology, on: OnLinks, meeting: Meeting):
    """Wrenches of the half rows where they act, (h, 6, B)."""
    plan, table, x = on.plan, on.table, on.rows
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
            node = gather(on.prob.node, np.where(on_joint, plan.dof_position, 0))
            K = jnp.concatenate([K, -_stack(node.hand_on(_unstack(T)))])
        else:
            K = jnp.concatenate([K, jnp.zeros_like(T)])
    return sum_by_row(gather(K, meeting.source), meeting.owner, len(meeting.row))


class Carried(NamedTuple):
    """What an inward pass over the supporting links brings from station to station."""

    wrenches: Any  # (NS, width, 6, B) in their lanes, about the parent's origin
    omega: Any  # (NS, 21 or 42, B) Omega between the first six lanes, and between the others
    root: ArticulatedInertia  # (nroots, B)


def branch_propagators(plan: Plan, meeting: Meeting, prob: Problem, K) -> Carried:
    """Unit wrenches and half rows from station to station, and the accelerations that they cause there.

    [CABA] Algorithm 5, lines 5-11: one inward pass.
    """
    NS, like, width = plan.support.size, prob.p.ang.x, meeting.width
    index = np.concatenate([np.stack(UPPER) + 6 * k for k in range(width // 6)], 1)
    units = jnp.broadcast_to(jnp.asarray(np.eye(6)[:, :, None], K.dtype), (6, 6) + K.shape[2:])
    start = gather(jnp.concatenate([units, K, jnp.zeros_like(units[:1])]), meeting.start)

    def articulate(acc, xs):
        IA, P, omega = acc
        node, H, station, start = xs
        Ia, pivot = node.eliminate(IA + H)  # [CABA] Alg. 5, line 8
        here = station[:, None] > 0
        # [CABA] Alg. 5, line 7, of P; Omega is cleared below
        P = jax.tree.map(lambda p, e: jnp.where(here, e, p), P, start)
        s = node.wide.project(P)
        scaled = s * pivot.Dinv[:, None]
        # [CABA] Alg. 5, line 10, before P moves on
        omega = jnp.where(here, 0, omega) + gather(s, index[0], 1) * gather(scaled, index[1], 1)
        # [CABA] Alg. 5, line 9, of P; H is `hand_on(Ia)` below
        P = node.wide.hand_on(P - wide(pivot.UD) * s)
        return (node.hand_on(Ia), P, omega), (P, omega)

    zero_P = jax.tree.map(lambda _: jnp.zeros((width,) + like.shape[-1:], like.dtype), Force(ZERO3, ZERO3))
    zero_omega = jnp.zeros((index.shape[1],) + like.shape[-1:], like.dtype)
    zero = (kin.zeros(zero_articulated(), like), zero_P, zero_omega)
    station = jnp.asarray(meeting.is_station | ~plan.support.live, like.dtype)[:, None]
    H = gather(prob.H, slice(0, NS))
    start_K = Force(*(Vec3(*(start[:, :, k + i] for i in range(3))) for k in (0, 3)))
    xs = (prob.node, H, station, start_K)
    (IA0, _, _), out = inward(plan.support, articulate, xs, zero)  # [CABA] Alg. 5, line 5
    root = IA0 + gather(prob.H, slice(NS, None))
    if not NS:
        return Carried(start, zero_omega[None][:0], root)
    P, omega = out
    return Carried(jnp.stack([*P.ang, *P.lin], 2), omega, root)


def station_propagators(meeting: Meeting, carried: Carried):
    """P (stations, 6, 6, B) and Omega (stations, 21, B) up to the next station."""
    P = gather(carried.wrenches[:, :6], meeting.last)  # [CABA] Alg. 5, line 11
    return jnp.swapaxes(P, 1, 2), gather(carried.omega[:, :21], meeting.last)


def branch_inverses(meeting: Meeting, P, own, omega0):
    """Omega of stations and roots, (stations + roots, 21, B): [CABA] Algorithm 5 line 13.

    `own`: up to the next station. What a free root's own motion adds to the others is a term of its own in
    `assemble` (`terms_of`), since in the sum small numbers would drown (four digits on a humanoid at
    mu = 1e6).
    """

    def step(above, x):
        P, own = x
        W = jnp.sum(gather(above, FULL, 1)[:, :, :, None] * P[:, None], 2)
        # [CABA] Alg. 5, line 13
        return own + jnp.sum(gather(P, UPPER[0], 2) * gather(W, UPPER[1], 2), 1)

    still = jnp.zeros_like(omega0)
    # [CABA] Alg. 5, line 12
    return jnp.concatenate([outward(meeting.stations, step, (P, own), still), omega0])


def branch_wrenches(meeting: Meeting, carried: Carried, P, K):
    """Half rows on the stations that they pass, ((T + 1) h, 6, B): [CABA] Algorithm 5 line 16."""
    T = len(meeting.steps)
    if not T:
        return K

    def step(K, x):
        station, going = x
        # [CABA] Alg. 5, lines 14-16, for all rows at once
        K = jnp.where(going[:, None, None], jnp.sum(P[station] * K[:, None], 2), K)
        return K, K

    new = K
    if meeting.going[0].any():
        new, _ = step(K, (meeting.steps[0], meeting.going[0]))
    if meeting.first.any():
        flat = carried.wrenches.reshape((-1,) + carried.wrenches.shape[2:])
        new = jnp.where(meeting.first[:, None, None], gather(flat, meeting.carried), new)
    parts = [K, new]
    if T > 1:
        xs = (meeting.steps[1:].astype(np.int32), meeting.going[1:])
        parts.append(jax.lax.scan(step, new, xs)[1].reshape((-1,) + K.shape[1:]))
    return jnp.concatenate(parts)


def link_pivots(plan: Plan, prob: Problem):
    """Pivots of every supporting link and the inertias of the roots: one inward pass."""
    NS = plan.support.size

    def articulate(acc, xs):
        node, H = xs
        Ia, pivot = node.eliminate(acc + H)
        return node.hand_on(Ia), pivot

    xs = (prob.node, gather(prob.H, slice(0, NS)))
    IA0, pivot = inward(plan.support, articulate, xs, kin.zeros(zero_articulated(), prob.p.ang.x))
    return pivot, IA0 + gather(prob.H, slice(NS, None))


def link_inverses(plan: Plan, prob: Problem, pivot: Pivot, omega0):
    """Omega of every supporting link and root, (P, 21, B): one outward pass.

    Omega = (1 - S Uᵀ/D) Xᵀ Omega_parent X (1 - U/D Sᵀ) + S Sᵀ / D. With linear before angular it moves from
    origin to origin like an inertia.
    """
    if not plan.support.size:
        return omega0

    def step(above: ArticulatedInertia, xs):
        node, (UD, Dinv) = xs
        omega = node.take_back(above)
        UD, S = Motion(UD.lin, UD.ang), Motion(node.S.lin, node.S.ang)
        w = omega @ UD
        half = Motion(w.ang, w.lin) - S * (0.5 * (Dinv + UD.dot(w)))
        return _minus_both(omega, S, half)

    inner = outward(plan.support, step, (prob.node, pivot), _swapped(omega0))
    return jnp.concatenate([_packed(inner), omega0])


def link_wrenches(meeting: Meeting, prob: Problem, pivot: Pivot, K):
    """Half rows on the links that they pass, ((T + 1) h, 6, B), joint after joint."""

    def step(K, x):
        link, going = x
        pick = lambda y: y if isinstance(y, int) else y[link]  # noqa: E731
        node, UD = jax.tree.map(pick, (prob.node, pivot.UD))
        old = _unstack(K)
        new = _stack(node.hand_on(old - UD * node.project(old)))
        K = jnp.where(going[:, None, None], new, K)
        return K, K

    if not len(meeting.steps):
        return K
    _, passed = jax.lax.scan(step, K, (meeting.steps.astype(np.int32), meeting.going))
    return jnp.concatenate([K, passed.reshape((-1,) + K.shape[1:])])


def root_inverses(prob: Problem, root: ArticulatedInertia):
    """Omega of the roots, (nroots, 21, B): the inverse of a free root's inertia, zero for the world."""
    like = root.A.xx
    eye = jnp.broadcast_to(jnp.asarray(np.eye(6)[None, :, :, None], like.dtype), (like.shape[0], 6, 6, 1))
    f = jax.tree.map(lambda e: jnp.broadcast_to(e, (like.shape[0], 6, like.shape[-1])), _unstack(eye))
    inverse = solve_roots(prob.armature0[:, :, None], wide(root), f)
    columns = jnp.stack([*inverse.ang, *inverse.lin], 1)
    flat = columns.reshape((columns.shape[0], 36) + columns.shape[3:])
    return gather(flat, UPPER[0] * 6 + UPPER[1], 1)


def assemble(m: int, meeting: Meeting, omega, K, carried: Carried | None = None):
    """J M^-1 Jᵀ, (m, m, B), pair by pair: [CABA] Algorithm 5 lines 17-20."""
    parts = []
    if len(meeting.pairs):  # [CABA] Alg. 5, lines 17-18
        at, wrench = meeting.moved.T
        moved = jnp.sum(gather(gather(omega, at), FULL, 1) * gather(K, wrench)[:, None], 2)
        parts.append(jnp.sum(gather(K, meeting.pairs[:, 0]) * gather(moved, meeting.pairs[:, 1]), 1))
    if carried is not None and len(meeting.grams):
        parts.append(gather(carried.omega.reshape((-1,) + K.shape[2:]), meeting.grams))
    parts.append(jnp.zeros((1,) + K.shape[2:], K.dtype))
    upper = gather_sum(jnp.concatenate(parts), meeting.table)
    return gather(upper, triangle(m))


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
