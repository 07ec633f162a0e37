"""The proximal methods on one linear problem, batch last:  M a = f + Jᵀ lam,  J a = c.

`Task` holds what they share. Forces come as wrenches p on the links (so that articulated methods need not
sum them) and joint forces tau: f = tau - (sum of p along the tree). Every method returns `Found`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints import articulated as art
from jaxrbd.constraints.data import Constraints
from jaxrbd.constraints.iterations import LIMITS, Found, Method, Settings, by_row, iterate
from jaxrbd.constraints.jacobian import jacobian, support
from jaxrbd.constraints.lanes import Acting, lane_numbers, row_motion
from jaxrbd.constraints.penalties import (
    KAPPA,
    LOCAL_KAPPA,
    bearable,
    local_mobility,
    of_moving_rows,
    penalties,
)
from jaxrbd.constraints.plan import plan_of
from jaxrbd.constraints.rows import Moving, Rows, sum_by_row, summed_wrenches, table_of
from jaxrbd.constraints.supporting import joint_accelerations_of, links_problem, rest_accelerations
from jaxrbd.engine.gather import gather
from jaxrbd.engine.scan import outward
from jaxrbd.model.system import System
from jaxrbd.solution import Result
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree import sparse
from jaxrbd.tree.aba import zero_articulated
from jaxrbd.tree.cholesky import mass_pattern
from jaxrbd.tree.crba import mass_matrix_with
from jaxrbd.tree.joints import Links
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.rnea import joint_loads
from jaxrbd.tree.spatial import ZERO3, Force


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
    mu: Any  # (m, B) penalty of every row, None for the method's own
    weight: Any  # (m, B)


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


def along_links(task: Task, late: bool = False):
    """The problem in the form of articulated bodies: plan, table, problem, what hangs on it, and the rows."""
    sys, t = task.sys, task.sys.topology
    plan, table = plan_of(t, task.con.entries, late=late), table_of(t, task.con.entries)
    p, p0 = no_forces(task) if task.p is None else (task.p, task.p0)
    I, I0 = link_inertias(sys, task.moving.links)
    prob, rest = links_problem(sys, plan, task.moving, I, I0, p, p0, task.tau)
    mu = task.weight if task.mu is None else task.mu
    return plan, table, prob, rest, Acting(task.x.KA, task.x.KB, task.x.kappa, mu)


def in_joints(task: Task, plan, rest, a: art.Accelerations):
    """Joint accelerations (nv, B) of all links."""
    a_rest = None if rest is None else rest_accelerations(plan, rest, a.links)
    return joint_accelerations_of(task.sys, plan, a.joints, a_rest, a.links)


def constrained_aba(task: Task, settings: Settings) -> Found:
    """[CABA] Algorithms 1-3, with loops, in corrections (`articulated.py`). O(n + m)."""
    plan, table, prob, rest, acting = along_links(task)
    mobility = local_mobility(plan, table, prob, acting)

    def build(R):
        x = acting._replace(mu=R)
        fac = art.factor(plan, table, prob, x)
        return links_method(
            task, plan, table, prob, x, lambda *now: art.correct(plan, table, prob, fac, x, *now)
        )

    if task.mu is None:
        penalty = penalties(mobility, task.weight, LOCAL_KAPPA)
    else:
        penalty = bearable(task.mu, mobility)
    found = iterate(build, penalty, mobility, task.c, task.lam, task.weight, settings)
    return found._replace(a=in_joints(task, plan, rest, found.a))


def links_method(task: Task, plan, table, prob, acting: Acting, correct: Callable) -> Method:
    return Method(
        zero=art.no_accelerations(plan, prob),
        correct=correct,
        rows=lambda a: row_motion(plan, table, acting, a.links, a.joints),
        size=lambda a: art.largest_acceleration(plan, a),
        jacobian=lambda: dense_jacobian(task),
    )


def soft(task: Task, settings: Settings) -> Found:
    """The penalty problem itself, (M + JᵀRJ) a = f + JᵀRc, on the same factor; lam = R (c - J a).

    Where penalties that users give are more than the arithmetic bears, the answer is that of penalties which
    it does bear, and not called right.
    """
    plan, table, prob, rest, acting = along_links(task)
    mobility = local_mobility(plan, table, prob, acting)
    if task.mu is None:
        scale = KAPPA[task.c.dtype.name] / by_row(task.weight * mobility)
        acting = acting._replace(mu=jax.lax.stop_gradient(scale * task.weight))

    def with_penalty(mu):
        x = acting._replace(mu=mu)
        fac = art.factor(plan, table, prob, x)
        a, r = art.no_accelerations(plan, prob), task.c
        for _ in range(2):  # the second corrects rounding, and shows how much there was
            da, _ = art.correct(plan, table, prob, fac, x, a, jnp.zeros_like(r), r)
            a = jax.tree.map(jnp.add, a, da)
            r = task.c - row_motion(plan, table, x, a.links, a.joints)
        return a, r, art.largest_acceleration(plan, da), mu * r

    found = with_penalty(acting.mu)
    if task.mu is not None:
        lost = ~jnp.isfinite(found[2])

        def again(found):
            borne = with_penalty(jnp.minimum(acting.mu, KAPPA[task.c.dtype.name] / mobility))
            a, r, step, lam = jax.tree.map(lambda new, x: jnp.where(lost, new, x), borne, found)
            return a, r, jnp.where(lost, jnp.inf, step), lam

        found = jax.lax.cond(jnp.any(lost), again, lambda found: found, found)
    a, r, step, lam = found
    size = jnp.maximum(1, art.largest_acceleration(plan, a))
    limits, residual = LIMITS[r.dtype.name], by_row(r)
    met = residual <= limits.met * jnp.maximum(1, by_row(task.c))
    # beyond 1/eps the rows drown the bodies, and what is left of those is not to be seen in a step
    drowned = by_row(acting.mu * mobility) * jnp.finfo(r.dtype).eps > 30
    right = (step <= 0.1 * limits.wrong * size) & ~drowned
    verdict = jnp.where(right, jnp.where(met, Result.converged, Result.stationary), Result.not_converged)
    verdict = verdict.astype(residual.dtype)
    return Found(in_joints(task, plan, rest, a), lam, residual[None], step, jnp.ones_like(residual), verdict)


def prox_pv(task: Task, settings: Settings) -> Found:
    """[CABA] Algorithm 4: all rows reach the world, where the dual problem is solved. O(n m² + m³)."""
    plan, table, prob, rest, acting = along_links(task, late=True)
    fac = art.factor(plan, table, prob, acting, soft=False)
    order = np.argsort(plan.lane)  # lanes and rows are the same numbers in another order
    delassus = fac.world[plan.lane][:, plan.lane]
    mobility = of_moving_rows(diagonal(delassus), local_mobility(plan, table, prob, acting))

    def build(R):
        apply = damped_inverse(delassus, R)

        def correct(a, lam, r, load):
            left = art.unbalanced(plan, table, prob, acting, a, lam, load)
            pushed = art.push(plan, prob, fac, left.p, left.tau, lane_numbers(plan, -r))
            A0 = art.free_roots(prob, fac, pushed, left.tau0)
            dlam = apply(-art.world_rows(fac, pushed, A0)[plan.lane])
            dA, joints, _ = art.pull(plan, prob, fac, pushed, A0, -dlam[order])
            return art.Accelerations(dA, joints), dlam

        return links_method(task, plan, table, prob, acting, correct)

    penalty = dual_penalties(mobility, task)
    found = iterate(build, penalty, mobility, task.c, task.lam, task.weight, settings)
    return found._replace(a=in_joints(task, plan, rest, found.a))


def dual_penalties(mobility, task: Task):
    """Rows that repeat each other leave the factor nothing but 1/R to stand on: it is kept above rounding."""
    if task.mu is None:
        return penalties(mobility, task.weight)
    rounding = 2 * len(task.c) * jnp.finfo(task.c.dtype).eps * jax.lax.stop_gradient(mobility)
    return jnp.minimum(task.mu, 1 / rounding)


def damped_inverse(delassus, R):
    """x -> (J M^-1 Jᵀ + R^-1)^-1 x by one Cholesky factor ([CABA] Eq. 13)."""
    eye = jnp.asarray(np.eye(len(R))[:, :, None], R.dtype)
    chol = jax.scipy.linalg.cho_factor(jnp.moveaxis(delassus + eye / R, -1, 0), lower=True)
    return lambda r: jax.scipy.linalg.cho_solve(chol, r.T[..., None])[..., 0].T


def prox_ltl(task: Task, settings: Settings) -> Found:
    """[CABA] Eq. 13 on the branch-sparse factor of M: J M^-1 Jᵀ, then the dual. O(n d² + n m² + m³)."""
    return on_mass_factor(task, settings, damped_inverse, dual_penalties)


def on_mass_factor(task: Task, settings: Settings, inverse: Callable, penalty: Callable) -> Found:
    """Methods that solve the dual problem in joint space; `inverse(delassus, R)` is their choice."""
    M, J = matrices(task)
    pattern = sparse.pattern_of(mass_pattern(task.sys.topology))
    H = sparse.factor(pattern, sparse.store(pattern, M))
    Y = sparse.solve_transposed(pattern, H, jnp.swapaxes(J, 0, 1))
    D = sparse.diagonal(pattern, H)
    delassus = gram(Y, 1 / D)
    mobility = of_moving_rows(diagonal(delassus), joint_mobility(J, diagonal(M)))

    def build(R):
        apply = inverse(delassus, R)

        def by(r_d, r):
            y = sparse.solve_transposed(pattern, H, r_d) / D
            dlam = apply(r - jnp.sum(Y * y[:, None], 0))
            return sparse.solve_lower(pattern, H, y + jnp.sum(Y * dlam[None], 1) / D), dlam

        return joint_space(
            J,
            correct=lambda a, lam, r, load: by(unbalanced(task, a, lam, load), r),
            first=lambda lam, r: by(unbalanced(task, None, lam), r),
        )

    return iterate(build, penalty(mobility, task), mobility, task.c, task.lam, task.weight, settings)


def joint_mobility(J, inertias):
    """J M^-1 Jᵀ of every row as if M were diagonal, (m, B); rows that nothing moves as the quickest one."""
    d = jnp.sum(J * J / inertias[None], 1)
    squares = jnp.sum(J * J, 1)
    rounding = (1e3 * jnp.finfo(d.dtype).eps) ** 2 * by_row(squares)
    return jnp.where(squares > rounding, d, jnp.maximum(by_row(d), jnp.finfo(d.dtype).tiny))


def unbalanced(task: Task, a, lam, load=None):
    """r_d = load f - M a + Jᵀ lam, (nv, B), link by link: in float32 M itself is too coarse to correct by.

    a None is zero.
    """
    sys, links = task.sys, task.moving.links
    nodes = nodes_of(sys.topology)

    def move(A, x):
        node, qdd = x
        return node.arrive(A) + node.expand(qdd)

    p, p0, joints = forces_of_rows(sys, task.con, task.x, -lam)
    if load is not None:
        task = task._replace(
            **{k: jax.tree.map(lambda y: y * load, getattr(task, k)) for k in ("p", "p0", "tau")}
        )
    tau = task.tau if joints is None else task.tau - joints
    if a is not None:
        A0 = kin.root_rows(sys, a)
        A = outward(nodes, move, (links.node, gather(a, nodes.v)), A0)
        I, I0 = link_inertias(sys, links)
        p, p0, tau = I @ A + p, I0 @ A0 + p0, tau - sys.armature * a
    if task.p is not None:
        p, p0 = p + task.p, p0 + task.p0
    return joint_forces(task._replace(p=p, p0=p0, tau=tau))


def forces_of_rows(sys: System, con: Constraints, x: Rows, lam):
    """Jᵀ lam as wrenches on links and roots, and as forces on joints (None if no row acts there)."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    table = table_of(t, con.entries)
    N = nodes.size
    f = summed_wrenches(x, lam, table.slot_a, table.slot_b, N, N + nodes.nroots)
    joints = None
    if len(table.joint_rows):
        joints = sum_by_row(x.kappa * gather(lam, table.joint_rows), table.joint_dofs, t.nv)
    return gather(f, slice(0, N)), gather(f, slice(N, None)), joints


def joint_space(J, correct: Callable, first: Callable | None = None) -> Method:
    return Method(
        zero=jnp.zeros((J.shape[1],) + J.shape[2:], J.dtype),
        correct=correct,
        rows=lambda a: jnp.sum(J * a[None], 1),
        size=by_row,
        jacobian=lambda: J,
        first=first,
    )


def prox_ltls(task: Task, settings: Settings) -> Found:
    """[CABA] Eq. 16 on the sparse factor of M + Jᵀ mu J, in corrections. O(n d² + n² + n m)."""
    M, J = matrices(task)
    touches = constraint_pattern(task.sys, task.con)
    pattern = sparse.pattern_of(mass_pattern(task.sys.topology) | (touches.T @ touches))
    # what the factor has to bear is seen at the pivots of M, not on its diagonal (float32, 22 links: 14 % of
    # states failed by the diagonal, 3 % by the pivots and by J M^-1 Jᵀ itself, which costs more)
    plain = sparse.pattern_of(mass_pattern(task.sys.topology))
    pivots = sparse.diagonal(plain, sparse.factor(plain, sparse.store(plain, M)))
    mobility = joint_mobility(J, pivots)

    def build(R):
        H = sparse.factor(pattern, sparse.store(pattern, augmented_mass_matrix(task, J, R)))

        def correct(a, lam, r, load):
            da = sparse.solve(pattern, H, unbalanced(task, a, lam + R * r, load))
            return da, R * (r - jnp.sum(J * da[None], 1))

        return joint_space(J, correct)

    penalty = penalties(mobility, task.weight) if task.mu is None else bearable(task.mu, mobility)
    return iterate(build, penalty, mobility, task.c, task.lam, task.weight, settings)


def dense(task: Task, settings: Settings) -> Found:
    """The dual problem by eigenvalues of J M^-1 Jᵀ, of rows scaled to one, hardly damped."""
    damping = 4 * len(task.c) * jnp.finfo(task.c.dtype).eps

    def by_eigenvalues(delassus, R):
        scale = jnp.sqrt(damping * R).T
        scaled = scale[:, :, None] * jnp.moveaxis(delassus, -1, 0) * scale[:, None]
        w, U = jnp.linalg.eigh(0.5 * (scaled + jnp.swapaxes(scaled, 1, 2)))
        inverse = 1 / (jnp.maximum(w, 0) + damping)

        def apply(r):
            along = jnp.swapaxes(U, 1, 2) @ (scale * r.T)[..., None]
            return (scale * (U @ (inverse[..., None] * along))[..., 0]).T

        return apply

    return on_mass_factor(task, settings, by_eigenvalues, lambda mobility, _: 1 / (damping * mobility))


def classic(task: Task, settings: Settings) -> Found:
    """[PROX]'s classic resolution: lam = (J M^-1 Jᵀ)^-1 (c - J a_free). It fails where rows are dependent.

    A second time with the residuals of the first tells whether it did; what misses the rows is not even the
    least-squares answer.
    """
    undamped = lambda mobility, _: jnp.full_like(mobility, jnp.inf)  # noqa: E731
    twice = Settings("Classic", 2, fixed=True)
    found = on_mass_factor(task, twice, damped_inverse, undamped)
    verdict = jnp.where(found.verdict == Result.converged, found.verdict, Result.not_converged)
    return found._replace(verdict=verdict.astype(found.verdict.dtype))


METHODS = {
    "ConstrainedABA": constrained_aba,
    "Soft": soft,
    "ProxPV": prox_pv,
    "ProxLTL": prox_ltl,
    "ProxLTLs": prox_ltls,
    "Dense": dense,
    "Classic": classic,
}


def matrices(task: Task):
    """M (nv, nv, B) and J (m, nv, B)."""
    M = mass_matrix_with(task.sys, task.q, None)
    wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + task.tau.shape[-1:])  # noqa: E731
    return wide(M), dense_jacobian(task)


def augmented_mass_matrix(task: Task, J, mu):
    """M + Jᵀ mu J, (nv, nv, B), by composite bodies with inertias H + Kᵀ mu K ([CABA] Eq. 24).

    Rows between two bodies, or on joints, have no such inertia: they are added as they are.
    """
    t, nodes = task.sys.topology, nodes_of(task.sys.topology)
    table, closed = table_of(t, task.con.entries), plan_of(t, task.con.entries).closed
    K = task.x.KA.rotate(gather(task.moving.R, table.slot_a))
    scaled = K * jnp.where(closed[:, None], mu, 0)
    outer = zero_articulated().minus_outer(Force(-K.ang, -K.lin), scaled)
    extra = jax.tree.map(lambda k: sum_by_row(k, table.slot_a, nodes.size + nodes.nroots), outer)
    split = gather(extra, slice(0, nodes.size)), gather(extra, slice(nodes.size, None))
    M_mu = mass_matrix_with(task.sys, task.q, split)
    loops = np.flatnonzero(~closed)
    return M_mu + gram(J[loops], mu[loops]) if len(loops) else M_mu


def dense_jacobian(task: Task):
    """J, (m, nv, B)."""
    J = jacobian(task.sys, task.con, task.moving, task.x)
    return jnp.broadcast_to(J, J.shape[:-1] + task.c.shape[-1:])


def diagonal(A):
    """Of matrices (n, n, B): (n, B)."""
    return jnp.diagonal(A).T


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
