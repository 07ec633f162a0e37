"""The proximal methods on one linear problem, batch last:  M a = f + Jᵀ lam,  J a = c.

`Task` holds what they share. Forces come as wrenches p on the links (so that articulated methods need not
sum them) and joint forces tau: f = tau - (sum of p along the tree). Every method returns `Found`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints import articulated as art
from jaxrbd.constraints.data import Constraints
from jaxrbd.constraints.jacobian import jacobian, support
from jaxrbd.constraints.lanes import Acting, lane_numbers
from jaxrbd.constraints.plan import plan_of
from jaxrbd.constraints.rows import Moving, Rows, sum_by_row, table_of
from jaxrbd.constraints.supporting import gather, links_problem, rest_accelerations
from jaxrbd.model.system import System
from jaxrbd.solution import largest
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree import sparse
from jaxrbd.tree.aba import zero_articulated
from jaxrbd.tree.cholesky import mass_pattern
from jaxrbd.tree.crba import mass_matrix_with
from jaxrbd.tree.joints import Links
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.rnea import joint_loads
from jaxrbd.tree.spatial import ZERO3, Force


@dataclass(frozen=True)
class Settings:
    """Static choices; `tolerance` None means a fixed number of iterations."""

    method: str
    iterations: int
    tolerance: float | None = None


class Task(NamedTuple):
    """One problem at one configuration."""

    sys: System
    con: Constraints
    q: Any
    moving: Moving
    x: Rows
    p: Force | None  # (N, B) wrenches on the links, None for none
    p0: Force | None  # (nroots, B)
    tau: Any  # (nv, B)
    c: Any  # (m, B)
    lam: Any  # (m, B) to start from
    mu: Any  # (m, B) penalty of every row


class Found(NamedTuple):
    a: Any  # (nv, B)
    lam: Any  # (m, B)
    history: Any  # (iterations, B) largest |J a - c| after each iteration
    change: Any  # (B,) how far from rest: the last change of a, or |delassus (J a - c)| for dual methods
    iterations: Any  # (B,)


def solve(task: Task, settings: Settings) -> Found:
    return METHODS[settings.method](task, settings)


def link_inertias(sys: System, links: Links):
    I, I0 = kin.node_inertias(sys, kin.body_inertias(sys))
    return I.rotate(links.A.T), I0


def no_forces(task: Task):
    nodes = nodes_of(task.sys.topology)
    zero = lambda n: jnp.zeros((n,) + task.tau.shape[-1:], task.tau.dtype)  # noqa: E731
    make = lambda n: jax.tree.map(lambda _: zero(n), Force(ZERO3, ZERO3))  # noqa: E731
    return make(nodes.size), make(nodes.nroots)


def joint_forces(task: Task):
    """f = tau - Jᵀ p, (nv, B)."""
    if task.p is None:
        return task.tau
    return task.tau - joint_loads(task.sys, task.moving.links, task.p, task.p0, task.tau)


def run(step: Callable, state, residual: Callable, change: Callable, settings: Settings):
    """Iterate a fixed number of times, or until each state of the batch meets the tolerance.

    The criterion is the smaller of the residual and `change`: of [CABA] Algorithm 3 the last change of a, of
    Eq. 14 the stationarity of the dual. States that are done keep their numbers while others go on.
    """
    if settings.tolerance is None:

        def fixed(state, _):
            state = step(state)
            return state, residual(state)

        state, history = jax.lax.scan(fixed, state, length=settings.iterations)
        count = jnp.full(history.shape[1:], settings.iterations, history.dtype)
        return state, history, count

    like = residual(state)
    history = jnp.broadcast_to(like, (settings.iterations,) + like.shape)

    def unfinished(carry):
        _, _, k, done = carry
        return (k < settings.iterations) & ~jnp.all(done >= 0)

    def once(carry):
        state, history, k, done = carry
        new = step(state)
        keep = lambda x, y: jnp.where(done >= 0, x, y)  # noqa: E731
        state = jax.tree.map(keep, state, new)
        history = jnp.where((jnp.arange(settings.iterations) >= k)[:, None], residual(state), history)
        met = jnp.minimum(change(state), residual(state)) < settings.tolerance
        return state, history, k + 1, jnp.where((done < 0) & met, (k + 1).astype(done.dtype), done)

    start = (state, history, jnp.zeros((), jnp.int32), jnp.full(like.shape, -1.0, like.dtype))
    state, history, _, done = jax.lax.while_loop(unfinished, once, start)
    return state, history, jnp.where(done < 0, settings.iterations, done)


def constrained_aba(task: Task, settings: Settings) -> Found:
    """[CABA] Algorithms 1-3, with loops, in corrections (`articulated.py`). O(n + m)."""
    sys, t = task.sys, task.sys.topology
    plan, table = plan_of(t, task.con.entries), table_of(t, task.con.entries)
    p, p0 = no_forces(task) if task.p is None else (task.p, task.p0)
    I, I0 = link_inertias(sys, task.moving.links)
    prob, rest = links_problem(sys, plan, task.moving, I, I0, p, p0, task.tau)
    acting = Acting(task.x.KA, task.x.KB, task.x.kappa, task.mu)
    fac = art.factor(plan, table, prob, acting)
    now, history, count = run(
        lambda now: art.iterate(plan, table, prob, fac, acting, task.c, now),
        art.start_iterations(plan, prob, task.c, task.lam),
        lambda now: by_row(now.residual),
        lambda now: now.change,
        settings,
    )
    a_rest = None if rest is None else rest_accelerations(plan, rest, now.dA)
    return Found(gather(sys, plan, now.a, a_rest, now.dA), now.lam, history, now.change, count)


def prox_pv(task: Task, settings: Settings) -> Found:
    """[CABA] Algorithm 4: all rows reach the world, where the dual problem is solved. O(n m² + m³)."""
    sys, t = task.sys, task.sys.topology
    plan, table = plan_of(t, task.con.entries, late=True), table_of(t, task.con.entries)
    p, p0 = no_forces(task) if task.p is None else (task.p, task.p0)
    I, I0 = link_inertias(sys, task.moving.links)
    prob, rest = links_problem(sys, plan, task.moving, I, I0, p, p0, task.tau)
    acting = Acting(task.x.KA, task.x.KB, task.x.kappa, task.mu)
    fac = art.factor(plan, table, prob, acting, soft=False)
    pushed = art.push(plan, prob, fac, prob.p, prob.tau, lane_numbers(plan, -task.c))
    A0 = art.free_roots(prob, fac, pushed, prob.tau0)
    order = np.argsort(plan.lane)  # lanes and rows are the same numbers in another order
    l = art.world_rows(fac, pushed, A0)[plan.lane]
    delassus = fac.world[plan.lane][:, plan.lane]
    (lam, change), history, count = dual(delassus, -l, task, settings)
    dA, a, _ = art.pull(plan, prob, fac, pushed, A0, -lam[order])
    a_rest = None if rest is None else rest_accelerations(plan, rest, dA)
    return Found(gather(sys, plan, a, a_rest, dA), lam, history, change, count)


def dual(delassus, missing, task: Task, settings: Settings):
    """Proximal point iterations on  delassus lam = missing  ([CABA] Eq. 13), in corrections.

    lam += (delassus + 1/mu)^-1 r,  r = missing - delassus lam = c - J a,  from one Cholesky factor. At the
    least-squares answer delassus W r = 0 (Eq. 14, weights W), also where r cannot vanish. Rows that repeat
    each other leave the factor nothing but 1/mu to stand on: it is kept above the rounding of delassus.
    """
    m = delassus.shape[0]
    eye = jnp.asarray(np.eye(m)[:, :, None], delassus.dtype)
    rounding = 2 * m * jnp.finfo(delassus.dtype).eps * jnp.sum(eye * delassus, 1)
    mu = jnp.minimum(task.mu, 1 / jax.lax.stop_gradient(rounding))
    damped = delassus + eye / mu
    chol = jax.scipy.linalg.cho_factor(jnp.moveaxis(damped, -1, 0), lower=True)
    apply = lambda r: jax.scipy.linalg.cho_solve(chol, r.T[..., None])[..., 0].T  # noqa: E731
    multiply = lambda x: jnp.sum(delassus * x[None], 1)  # noqa: E731
    weight = mu / by_row(mu)

    def step(state):
        lam, r, _ = state
        lam = lam + apply(r)
        r = missing - multiply(lam)
        return lam, r, by_row(multiply(weight * r))

    start = (task.lam, missing - multiply(task.lam), jnp.full(missing.shape[-1:], jnp.inf, missing.dtype))
    (lam, _, change), history, count = run(step, start, lambda s: by_row(s[1]), lambda s: s[2], settings)
    return (lam, change), history, count


def prox_ltl(task: Task, settings: Settings) -> Found:
    """[CABA] Eq. 13 on the branch-sparse factor of M: J M^-1 Jᵀ, then the dual. O(n d² + n m² + m³)."""
    M, J, f = matrices(task)
    pattern = sparse.pattern_of(mass_pattern(task.sys.topology))
    H = sparse.factor(pattern, sparse.store(pattern, M))
    Y = sparse.solve_transposed(pattern, H, jnp.swapaxes(J, 0, 1))
    D = sparse.diagonal(pattern, H)
    y = sparse.solve_transposed(pattern, H, f) / D
    delassus = gram(Y, 1 / D)
    missing = task.c - jnp.sum(Y * y[:, None], 0)
    (lam, change), history, count = dual(delassus, missing, task, settings)
    a = sparse.solve_lower(pattern, H, y + jnp.sum(Y * lam[None], 1) / D)
    return Found(a, lam, history, change, count)


def prox_ltls(task: Task, settings: Settings) -> Found:
    """[CABA] Eq. 16 on the sparse factor of M + Jᵀ mu J, in corrections. O(n d² + n² + n m)."""
    M, J, f = matrices(task)
    touches = constraint_pattern(task.sys, task.con)
    pattern = sparse.pattern_of(mass_pattern(task.sys.topology) | (touches.T @ touches))
    M_mu = augmented_mass_matrix(task, J)
    H = sparse.factor(pattern, sparse.store(pattern, M_mu))

    def step(state):
        a, lam, residual, _ = state
        r_d = f - jnp.sum(M * a[None], 1) + jnp.sum(J * (lam + task.mu * residual)[:, None], 0)
        da = sparse.solve(pattern, H, r_d)
        lam = lam + task.mu * (residual - jnp.sum(J * da[None], 1))
        a = a + da
        return a, lam, task.c - jnp.sum(J * a[None], 1), by_row(da)

    start = (jnp.zeros_like(f), task.lam, task.c, jnp.full(f.shape[-1:], jnp.inf, f.dtype))
    state, history, count = run(step, start, lambda s: by_row(s[2]), lambda s: s[3], settings)
    return Found(state[0], state[1], history, state[3], count)


def dense(task: Task, settings: Settings) -> Found:
    """Least squares and least norm: lam = (J M^-1 Jᵀ)⁺ (c - J a_free) by eigenvalues; the reference.

    Rows are scaled by the square roots of their weights, as the proximal methods see them.
    """
    M, J, f = matrices(task)
    front = lambda x: jnp.moveaxis(x, -1, 0)  # noqa: E731
    chol = jax.scipy.linalg.cho_factor(front(M), lower=True)
    solve_M = lambda b: jax.scipy.linalg.cho_solve(chol, b)  # noqa: E731
    scale = front(jnp.sqrt(task.mu / by_row(task.mu)))[..., None]
    J_, f_, c_ = scale * front(J), front(f)[..., None], scale * front(task.c)[..., None]
    X, free = solve_M(jnp.swapaxes(J_, 1, 2)), solve_M(f_)
    delassus = J_ @ X
    w, U = jnp.linalg.eigh(0.5 * (delassus + jnp.swapaxes(delassus, 1, 2)))
    cut = 100 * w.shape[-1] * jnp.finfo(w.dtype).eps * jnp.max(jnp.abs(w), -1, keepdims=True)
    inverse = jnp.where(w > cut, 1 / jnp.where(w > cut, w, 1), 0)[..., None]
    lam = U @ (inverse * (jnp.swapaxes(U, 1, 2) @ (c_ - J_ @ free)))
    a = free + X @ lam
    residual = by_row(((c_ - J_ @ a) / scale)[..., 0].T)
    one = jnp.ones_like(residual)
    return Found(a[..., 0].T, (scale * lam)[..., 0].T, residual[None], 0 * one, one)


def classic(task: Task, settings: Settings) -> Found:
    """[PROX]'s classic resolution: lam = (J M^-1 Jᵀ)^-1 (c - J a_free). NaN where rows are dependent."""
    M, J, f = matrices(task)
    pattern = sparse.pattern_of(mass_pattern(task.sys.topology))
    H = sparse.factor(pattern, sparse.store(pattern, M))
    free = sparse.solve(pattern, H, f)
    Y = sparse.solve_transposed(pattern, H, jnp.swapaxes(J, 0, 1))
    D = sparse.diagonal(pattern, H)
    lam = art.cholesky_solve(gram(Y, 1 / D), task.c - jnp.sum(J * free[None], 1))
    a = free + sparse.solve_lower(pattern, H, jnp.sum(Y * lam[None], 1) / D)
    residual = by_row(task.c - jnp.sum(J * a[None], 1))
    one = jnp.ones_like(residual)
    return Found(a, lam, residual[None], 0 * one, one)


METHODS = {
    "ConstrainedABA": constrained_aba,
    "ProxPV": prox_pv,
    "ProxLTL": prox_ltl,
    "ProxLTLs": prox_ltls,
    "Dense": dense,
    "Classic": classic,
}


def matrices(task: Task):
    """M (nv, nv, B), J (m, nv, B) and f (nv, B)."""
    M = mass_matrix_with(task.sys, task.q, None)
    J = jacobian(task.sys, task.con, task.moving, task.x)
    wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + task.tau.shape[-1:])  # noqa: E731
    return wide(M), wide(J), joint_forces(task)


def augmented_mass_matrix(task: Task, J):
    """M + Jᵀ mu J, (nv, nv, B), by composite bodies with inertias H + Kᵀ mu K ([CABA] Eq. 24).

    Rows between two bodies, or on joints, have no such inertia: they are added as they are.
    """
    t, nodes = task.sys.topology, nodes_of(task.sys.topology)
    table, closed = table_of(t, task.con.entries), plan_of(t, task.con.entries).closed
    K = task.x.KA.rotate(kin.take(task.moving.R, table.slot_a))
    scaled = K * jnp.where(closed[:, None], task.mu, 0)
    outer = zero_articulated().minus_outer(Force(-K.ang, -K.lin), scaled)
    extra = jax.tree.map(lambda k: sum_by_row(k, table.slot_a, nodes.size + nodes.nroots), outer)
    split = kin.take(extra, slice(0, nodes.size)), kin.take(extra, slice(nodes.size, None))
    M_mu = mass_matrix_with(task.sys, task.q, split)
    loops = np.flatnonzero(~closed)
    return M_mu + gram(J[loops], task.mu[loops]) if len(loops) else M_mu


def gram(Y, weight):
    """Yᵀ W Y summed over the first axis, (k, k, B) for Y (n, k, B): row after row, each an outer product."""
    k = Y.shape[1]
    zero = jnp.zeros((k, k) + Y.shape[2:], Y.dtype)
    step = lambda G, x: (G + x[0][:, None] * (x[0] * x[1])[None], None)  # noqa: E731
    return jax.lax.scan(step, zero, (Y, jnp.broadcast_to(weight, Y.shape[:1] + Y.shape[2:])))[0]


def constraint_pattern(sys: System, con: Constraints) -> np.ndarray:
    """Which freedoms each row touches, (m, nv)."""
    table = table_of(sys.topology, con.entries)
    a, b = support(sys.topology, con.entries)
    touches = a | b
    touches[table.joint_rows, table.joint_dofs] = True
    return touches


def by_row(x):
    """Largest magnitude over the rows, (B,)."""
    return largest(x, 0)
