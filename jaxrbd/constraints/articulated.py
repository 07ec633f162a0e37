"""Solving  M a = f + Jᵀ lam,  J a = c  by articulated bodies, in O(n + m).

The augmented Lagrangian method ([CABA] Eq. 27) in the form of corrections. With the residuals
r_d = f - M a + Jᵀ lam and r_p = c - J a of the present (a, lam), every iteration solves

    (M + Jᵀ mu J) da = r_d + Jᵀ mu r_p,        lam += mu (r_p - J da),

so that rounding of one iteration is corrected by the next (iterative refinement). M + Jᵀ mu J is never
formed: its articulated inertias are factored once ([CABA] Algorithm 1) and each iteration is one inward and
one outward sweep over the links that support constraints (Algorithm 2).

Rows between two bodies stay open on their way to the closing link, as in [CABA] Algorithm 4: with z = -dlam
a link knows of every open row  K·A + l = L z,  starting from L = 1/mu, l = -r_p. Moving joint i, where
s = K·S + kappa, makes it  K - s Gᵀ,  L + s sᵀ/D,  l + s u/D;  at the closing z is eliminated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.lanes import (
    Acting,
    Lanes,
    close_lanes,
    lane_numbers,
    lane_wrenches,
    pairs,
    pull_lanes,
    push_lanes,
    row_forces,
    row_motion,
    wide,
)
from jaxrbd.constraints.plan import Plan
from jaxrbd.constraints.rows import sum_by_row
from jaxrbd.constraints.supporting import Problem
from jaxrbd.engine.gather import gather
from jaxrbd.engine.scan import inward, outward
from jaxrbd.solution import largest
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.aba import solve_roots, zero_articulated
from jaxrbd.tree.node import Pivot
from jaxrbd.tree.spatial import ZERO3, ArticulatedInertia, Force, Motion, Vec3


class Factor(NamedTuple):
    pivot: Pivot | None  # (NS, B)
    s: Any  # (NS, lanes, B) K·S + kappa of the open rows
    lanes: Lanes | None  # (P, lanes, B)
    root: ArticulatedInertia  # (nroots, B)
    K0: Force | None  # (nroots, lanes, B) of rows still open
    world: Any  # (lanes, lanes, B): L of the rows that only the world closes


# --- factor --------------------------------------------------------------------------------------------


def factor(plan: Plan, table, prob: Problem, x: Acting, damped: bool = True) -> Factor:
    """Articulated inertias of M + Jᵀ mu J: one inward pass over supporting links.

    With `damped` False, open rows are not damped and L is not carried: the world's L is the Delassus matrix.
    """
    NS, lanes = plan.support.size, plan.width
    inner = plan.inner if damped else []
    like = prob.p.ang.x
    H = prob.H
    if plan.on_one_body.any():
        scale = jnp.where(plan.on_one_body[:, None], x.mu, 0)
        KmuK = zero_articulated().minus_outer(Force(-x.KA.ang, -x.KA.lin), x.KA * scale)
        H = H + jax.tree.map(lambda k: sum_by_row(k, plan.position_a, H.A.xx.shape[0]), KmuK)
    K = lane_wrenches(plan, table, x) if lanes else None
    eye = jnp.asarray(np.eye(lanes)[None, :, :, None], like.dtype)
    L = None
    if lanes and damped:
        L = eye * lane_numbers(plan, 1 / x.mu)[:, :, None]
    entries = None
    if lanes:
        entries = jnp.zeros((NS, lanes) + like.shape[-1:], like.dtype)
        if len(table.joint_rows):
            entries = gather(jnp.concatenate([x.kappa, jnp.zeros_like(x.kappa[:1])]), plan.entry)
    close = jnp.asarray(plan.close[:, :, None], like.dtype)

    def articulate(acc, xs):
        IA, K, L = acc
        node, H, K_own, L_own, kappa, close = xs
        IA = IA + H
        kept = None
        if lanes:
            K = K + K_own
            if damped:
                L = L + L_own
            if inner:
                IA, K, L, kept = close_lanes(inner, close, IA, K, L)
        Ia, pivot = node.eliminate(IA)
        s = None
        if lanes:
            s = node.wide.project(K) + kappa
            K = node.wide.hand_on(K - wide(pivot.UD) * s)
            if damped:
                L = L + s[:, :, None] * (s * pivot.Dinv[:, None])[:, None]
        return (node.hand_on(Ia), K, L), (pivot, s, kept)

    zero = kin.zeros(zero_articulated(), like)
    zero_lanes = lambda *n: jnp.zeros((*n, like.shape[-1]), like.dtype)  # noqa: E731
    zero_K = jax.tree.map(lambda _: zero_lanes(lanes), Force(Vec3(0, 0, 0), Vec3(0, 0, 0))) if lanes else None
    zero_L = zero_lanes(lanes, lanes) if lanes and damped else None
    at = lambda tree, s: None if tree is None else gather(tree, s)  # noqa: E731
    own, root = slice(0, NS), slice(NS, None)
    xs = (prob.node, at(H, own), at(K, own), at(L, own), entries, close[:NS] if lanes else None)
    (IA0, K0, L0), out = inward(plan.support, articulate, xs, (zero, zero_K, zero_L))
    pivot, s, kept = out if NS else (None,) * 3
    IA0 = IA0 + at(H, root)
    world = None
    if lanes:
        K0 = K0 + at(K, root)
        if damped:
            L0 = L0 + at(L, root)
        if inner:
            IA0, K0, L0, kept0 = close_lanes(inner, close[NS:].at[0].set(0), IA0, K0, L0)
            kept = kept0 if kept is None else kin.join(kept, kept0)
        if plan.close[NS].any():
            world = jnp.sum(L0, 0) if damped else _open_delassus(s, pivot, zero_lanes(lanes, lanes))
            free = solve_roots(prob.armature0[:, :, None], wide(IA0), K0)
            world = world + jnp.sum(pairs(free, K0), 0)
    return Factor(pivot, s, kept, IA0, K0, world)


def _open_delassus(s, pivot, zero):
    """sum over links of s sᵀ / D, link after link."""
    if s is None:
        return zero
    step = lambda L, x: (L + x[0][:, None] * (x[0] * x[1])[None], None)  # noqa: E731
    return jax.lax.scan(step, zero, (s, pivot.Dinv))[0]


# --- solve ---------------------------------------------------------------------------------------------


class Pushed(NamedTuple):
    """What the inward sweep of a right-hand side leaves behind."""

    u: Any  # (NS, B)
    l: Any  # (P, lanes, B) of closing rows at their elimination
    p0: Force  # (nroots, B)
    l0: Any  # (nroots, lanes, B)


def push(plan: Plan, prob: Problem, fac: Factor, p: Force, tau, l) -> Pushed:
    """Inward: forces p on positions, joint forces tau, and the right-hand sides l of rows that begin."""
    NS, lanes = plan.support.size, plan.width
    inner = plan.inner if fac.lanes is not None else []

    def step(acc, xs):
        p, l = acc
        node, pivot, p_own, l_own, tau, s, kept = xs
        p = p + p_own
        before = None
        if lanes:
            l = l + l_own
            if inner:
                p, l, before = push_lanes(inner, kept, p, l)
        u = tau - node.project(p)
        if lanes:
            l = l + s * pivot.alone(u)[:, None]
        return (node.hand_on(pivot.reaction(p, u)), l), (u, before)

    at = lambda tree, s: None if tree is None else gather(tree, s)  # noqa: E731
    own, root = slice(0, NS), slice(NS, None)
    like = p.ang.x
    zero = (
        kin.zeros(Force(ZERO3, ZERO3), like),
        jnp.zeros((lanes, like.shape[-1]), like.dtype) if lanes else None,
    )
    xs = (prob.node, fac.pivot, at(p, own), at(l, own), tau, fac.s, at(fac.lanes, own))
    (p0, l0), out = inward(plan.support, step, xs, zero)
    u, before = out if NS else (None, None)
    p0 = p0 + at(p, root)
    if lanes:
        l0 = l0 + at(l, root)
        if inner:
            p0, l0, before0 = push_lanes(inner, at(fac.lanes, root), p0, l0)
            before = before0 if before is None else jnp.concatenate([before, before0])
    return Pushed(u, before, p0, l0)


def free_roots(prob: Problem, fac: Factor, pushed: Pushed, tau0: Force) -> Motion:
    """Accelerations of the roots while no row pulls on them from the world."""
    return solve_roots(prob.armature0, fac.root, tau0 - pushed.p0)


def world_rows(fac: Factor, pushed: Pushed, A0: Motion):
    """l of the rows that the world closes: (lanes, B)."""
    return jnp.sum(pushed.l0 + wide(A0).dot(fac.K0), 0)


def pull(plan: Plan, prob: Problem, fac: Factor, pushed: Pushed, A0: Motion, z):
    """Outward: accelerations of positions and joints, and z of every row; z: (lanes, B) at the world."""
    NS, lanes = plan.support.size, plan.width
    inner = plan.inner if fac.lanes is not None else []
    if z is not None:
        free = solve_roots(prob.armature0[:, :, None], wide(fac.root), fac.K0)
        A0 = A0 - jax.tree.map(lambda x: jnp.sum(x * z[None], 1), free)
    at = lambda tree, s: None if tree is None else gather(tree, s)  # noqa: E731
    own, root = slice(0, NS), slice(NS, None)
    z0 = None
    if lanes:
        z0 = jnp.zeros((A0.ang.x.shape[0], lanes) + A0.ang.x.shape[1:], A0.ang.x.dtype)
        z0 = z0 if z is None else z0 + z[None]
        if inner:
            z0 = pull_lanes(inner, at(fac.lanes, root), pushed.l[NS:], A0, z0)

    def step(parent, xs):
        A, z, _ = parent
        node, pivot, s, u, kept, l = xs
        A = node.arrive(A)
        if lanes:
            u = u - jnp.sum(s * z, 1)
        a = pivot.rate(pivot.alone(u), A)
        A = A + node.expand(a)
        if inner:
            z = pull_lanes(inner, kept, l, A, z)
        return A, z, a

    start = (A0, z0, jnp.zeros_like(A0.ang.x))
    if not NS:
        return A0, None, z0
    l = pushed.l[:NS] if inner else None
    xs = (prob.node, fac.pivot, fac.s, pushed.u, at(fac.lanes, own), l)
    A, zs, a = outward(plan.support, step, xs, start)
    return kin.join(A, A0), a, jnp.concatenate([zs, z0]) if lanes else None


# --- the iterations ------------------------------------------------------------------------------------


class Accelerations(NamedTuple):
    """Of positions, beyond those at a = 0, and of supporting joints."""

    links: Motion  # (P, B)
    joints: Any  # (NS, B), None without supporting joints


def no_accelerations(plan: Plan, prob: Problem) -> Accelerations:
    zero = jnp.zeros_like(prob.p.ang.x)
    joints = zero[: plan.support.size] if plan.support.size else None
    return Accelerations(Motion(Vec3(zero, zero, zero), Vec3(zero, zero, zero)), joints)


def unbalanced(
    plan: Plan, table, prob: Problem, x: Acting, now: Accelerations, force, load=None
) -> Unbalanced:
    """load f - M a + Jᵀ force, as wrenches on positions and forces on joints and roots."""
    NS = plan.support.size
    if load is not None:
        prob = prob._replace(
            **{k: jax.tree.map(lambda y: y * load, getattr(prob, k)) for k in ("p", "tau", "tau0")}
        )
    f, joints, roots = row_forces(plan, table, x, force, prob.armature0.shape[0])
    p = prob.p + prob.H @ now.links - f
    A0 = gather(now.links, slice(NS, None))
    tau0 = jnp.stack([*prob.tau0.ang, *prob.tau0.lin], 1) - prob.armature0 * jnp.stack([*A0.ang, *A0.lin], 1)
    tau0 = tau0 if roots is None else tau0 + roots
    tau0 = Force(Vec3(*(tau0[:, k] for k in range(3))), Vec3(*(tau0[:, k] for k in range(3, 6))))
    tau = None
    if NS:
        tau = prob.tau - prob.node.armature * now.joints
        tau = tau if joints is None else tau + joints
    return Unbalanced(p, tau, tau0)


class Unbalanced(NamedTuple):
    p: Force  # (P, B)
    tau: Any  # (NS, B)
    tau0: Force  # (nroots, B)


def correct(plan: Plan, table, prob: Problem, fac: Factor, x: Acting, now: Accelerations, lam, r, load=None):
    """One correction of accelerations and multipliers: one inward and one outward sweep."""
    force = lam + jnp.where(plan.on_one_body[:, None], x.mu * r, 0)
    rest = unbalanced(plan, table, prob, x, now, force, load)
    l = lane_numbers(plan, -r) if plan.width else None
    pushed = push(plan, prob, fac, rest.p, rest.tau, l)
    A0 = free_roots(prob, fac, pushed, rest.tau0)
    z = None if fac.world is None else solve_world(plan, fac.world, world_rows(fac, pushed, A0))
    dA, a, zs = pull(plan, prob, fac, pushed, A0, z)
    step = Accelerations(dA, a)
    # from the increment: mu times the rounding of c - J a would be noise in lam
    dlam = x.mu * (r - row_motion(plan, table, x, dA, a))
    if plan.width:
        where = plan.closing * plan.width + plan.lane
        flat = zs.reshape((-1,) + zs.shape[2:])
        dlam = jnp.where(plan.on_one_body[:, None], dlam, -gather(flat, where))
    return step, dlam


def largest_acceleration(plan: Plan, a: Accelerations):
    """Of supporting joints and roots, (B,)."""
    A0 = gather(a.links, slice(plan.support.size, None))
    size = largest(jnp.stack([*A0.ang, *A0.lin]), (0, 1))
    return size if a.joints is None else jnp.maximum(size, largest(a.joints, 0))


def solve_world(plan: Plan, L, l):
    """z with L z = l for the rows that the world closes; unused lanes stay zero."""
    used = plan.close[plan.support.size]
    L = L + jnp.asarray(np.diag(~used)[:, :, None], L.dtype)
    return cholesky_solve(L, jnp.where(used[:, None], l, 0))


def cholesky_solve(A, b):
    """A x = b for symmetric positive definite A: (n, n, B), b: (n, B)."""
    factor = jax.scipy.linalg.cho_factor(jnp.moveaxis(A, -1, 0), lower=True)
    return jax.scipy.linalg.cho_solve(factor, jnp.moveaxis(b, -1, 0)[..., None])[..., 0].T
