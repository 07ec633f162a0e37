"""Solving  M a = f + Jᵀ lam,  J a = c  by articulated bodies, in O(n + m).

The augmented Lagrangian method ([CABA] Eq. 27) in the form of corrections. With the residuals
r_d = f - M a + Jᵀ lam and r = c - J a of the present (a, lam), every iteration solves

    (M + Jᵀ R J) da = r_d + Jᵀ R r,        lam += R (r - J da),

so that rounding of one iteration is corrected by the next (iterative refinement). M + Jᵀ R J is never
formed: its articulated inertias are factored once ([CABA] Algorithm 1) and each iteration is one inward and
one outward sweep over the links that support constraints (Algorithm 2). Rows between two bodies are carried
along (`open_rows.py`); without them the calls on `rows`, `passed` and `closed` hand on what they are given,
and l and z are None. `on.rows` is something else: the K of all rows.

A free base is a root: it has six motions and no joint, so the sweeps end there and start again from it, with
one 6x6 solve in between in place of D^-1.

Signs. Our multipliers are forces along the rows, lam = -λ of the paper; z is the paper's own Δλ and is turned
once, where `correct` returns. Wrenches p are what a motion needs, as pA in [RBDA]: p = -f of the paper.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrbd.constraints.acting import augmented
from jaxrbd.constraints.along_links import OnLinks
from jaxrbd.constraints.balance import Accelerations, Unbalanced, row_accelerations, unbalanced
from jaxrbd.constraints.open_rows import (
    Closed,
    NoRows,
    Passed,
    World,
    begin,
    where_rows_begin,
    where_rows_close,
)
from jaxrbd.engine.scan import inward, outward
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.aba import solve_roots
from jaxrbd.tree.node import Pivot
from jaxrbd.tree.spatial import ArticulatedInertia, Force


class Factor(NamedTuple):
    """Articulated inertias of M + JᵀRJ: of every supporting link, then of the roots."""

    pivot: Pivot | None  # (NS, B)
    passed: Passed | NoRows | None  # (NS, ...) open rows at the joints
    closed: Closed | NoRows | None  # (NS, ...) rows that close at the links
    root: ArticulatedInertia  # (nroots, B)
    closed0: Closed | NoRows  # (nroots, ...)
    world: World | NoRows  # rows that only the world closes


def factor(on: OnLinks, R) -> Factor:
    """One inward pass over the supporting links."""
    plan, prob = on.plan, on.prob
    H = augmented(plan, prob.H, on.rows, R)  # [CABA] Alg. 1, line 5; its forces are in `correct`
    rows, kappa, at_links, at_roots = begin(plan, on.table, on.rows, R)

    def articulate(children, xs):
        node, own, kappa, closing = xs
        IA, rows = added(children, own)
        IA, rows, closed = rows.close(closing, IA)
        Ia, pivot = node.eliminate(IA)  # [CABA] Alg. 1, lines 7, 9
        rows, passed = rows.through(node, pivot, kappa)
        return (node.hand_on(Ia), rows), (pivot, passed, closed)

    own = (H, rows)
    xs = (prob.node, on.links(own), kappa, at_links)
    children, out = inward(plan.support, articulate, xs, nothing(own))  # [CABA] Alg. 1, line 6
    pivot, passed, closed = out if plan.support.size else (None, None, None)
    IA0, rows0 = added(children, on.roots(own))
    IA0, rows0, closed0 = rows0.close(at_roots, IA0)
    return Factor(pivot, passed, closed, IA0, closed0, rows0.at_world(plan, prob.armature0, IA0))


def correct(on: OnLinks, fac: Factor, R, now: Accelerations, lam, r, load=None):
    """One correction of accelerations and multipliers: one inward and one outward sweep."""
    on_one_body = on.plan.on_one_body[:, None]
    force = lam + jnp.where(on_one_body, R * r, 0)  # [CABA] Alg. 2, line 2
    lacking = unbalanced(on, now, force, load)  # [CABA] Alg. 2, line 7: made anew every time
    step, z = solve(on, fac, lacking, where_rows_begin(on.plan, -r))
    # from the increment: R times the rounding of c - J a would be noise in lam
    dlam = R * (r - row_accelerations(on, step))
    return step, dlam if z is None else jnp.where(on_one_body, dlam, -where_rows_close(on.plan, z))


def solve(on: OnLinks, fac: Factor, lacking: Unbalanced, l):
    """(M + JᵀRJ) da = r_d + JᵀR r for unbalanced forces and l = -r of open rows; also z of these."""
    pushed = push(on, fac, lacking, l)
    A0 = solve_roots(on.prob.armature0, fac.root, lacking.tau0 - pushed.p0)
    return pull(on, fac, pushed, *fac.world.settle(pushed.l0, A0))


class Pushed(NamedTuple):
    """What the inward sweep of a right-hand side leaves behind."""

    u: Any  # (NS, B) forces that joints lack
    l: Any  # (NS, lanes, B) of closing rows at their elimination
    p0: Force  # (nroots, B)
    l0: Any  # (nroots, width, B) of rows still open
    closing0: Any  # (nroots, lanes, B) as l


def push(on: OnLinks, fac: Factor, lacking: Unbalanced, l) -> Pushed:
    """Inward: wrenches p on positions, joint forces tau, and l of the rows that begin there."""

    def step(children, xs):
        node, own, tau, pivot, passed, closed = xs
        p, l = added(children, own)
        p, l, closing = closed.push(p, l)
        u = tau - node.project(p)
        l = passed.carry(l, pivot.alone(u))
        # [CABA] Alg. 1, line 8; Alg. 2, line 3
        return (node.hand_on(pivot.reaction(p, u)), l), (u, closing)

    own = (lacking.p, l)
    xs = (on.prob.node, on.links(own), lacking.tau, fac.pivot, fac.passed, fac.closed)
    children, out = inward(on.plan.support, step, xs, nothing(own))  # [CABA] Alg. 2, line 1
    u, closing = out if on.plan.support.size else (None, None)
    p0, l0, closing0 = fac.closed0.push(*added(children, on.roots(own)))
    return Pushed(u, closing, p0, l0, closing0)


def pull(on: OnLinks, fac: Factor, pushed: Pushed, A0, z0):
    """Outward from accelerations A0 and z0 at the roots: those of positions and joints, and z."""
    z0 = fac.closed0.pull(pushed.closing0, A0, z0)
    if not on.plan.support.size:
        return Accelerations(A0, None), z0

    def step(parent, xs):
        A, z, _ = parent
        node, pivot, passed, u, closed, l = xs
        A = node.arrive(A)
        a = pivot.rate(pivot.alone(passed.relieve(u, z)), A)  # [CABA] Alg. 1, line 11; Alg. 2, line 5
        A = A + node.expand(a)  # [CABA] Alg. 1, line 12; Alg. 2, line 6
        return A, closed.pull(l, A, z), a

    xs = (on.prob.node, fac.pivot, fac.passed, pushed.u, fac.closed, pushed.l)
    # [CABA] Alg. 1, line 10; Alg. 2, line 4
    A, z, a = outward(on.plan.support, step, xs, (A0, z0, jnp.zeros_like(A0.ang.x)))
    return Accelerations(kin.join(A, A0), a), kin.join(z, z0)


def added(children, own):
    """What children hand on, and a link's own."""
    return jax.tree.map(jnp.add, children, own)


def nothing(own):
    """What no children hand on."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), own)
