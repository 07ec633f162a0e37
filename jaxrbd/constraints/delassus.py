"""The Delassus matrix J M^-1 Jᵀ and its damped inverse, by the algorithms that [CABA] compares.

Also known as the inverse operational-space inertia: the accelerations of the rows per force along the rows.
`mu` is a penalty as in [CABA] (Pinocchio's mu is its inverse); row r is damped by 1 / (mu weight_r).
Rows between two bodies and rows on joints are taken by every algorithm: as two half rows, see `propagators`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints import propagators as prop
from jaxrbd.constraints import prox_pv
from jaxrbd.constraints.acting import augmented
from jaxrbd.constraints.along_links import OnLinks, along_links
from jaxrbd.constraints.base_apart import base_blocks, from_base, root_inertias, times_roots
from jaxrbd.constraints.clustered import cluster_delassus, linear_cluster_task
from jaxrbd.constraints.data import Constraints, ConstraintsLike, as_constraints, check_constraints
from jaxrbd.constraints.joint_space import gram, matrices
from jaxrbd.constraints.meeting import meeting_of
from jaxrbd.constraints.plan import plan_of
from jaxrbd.constraints.supporting import Problem
from jaxrbd.constraints.task import Task, linear_task
from jaxrbd.engine.gather import gather
from jaxrbd.errors import ArgumentError
from jaxrbd.model.names import hint
from jaxrbd.model.system import System
from jaxrbd.tree import sparse
from jaxrbd.tree.arguments import arguments, require_mass
from jaxrbd.tree.cholesky import mass_pattern
from jaxrbd.tree.kernels import kernel
from jaxrbd.typing import Array, ArrayLike


def delassus_matrix(sys: System, constraints: ConstraintsLike, q: ArrayLike, algorithm: str = "pv") -> Array:
    """J M^-1 Jᵀ, (m, m), for rows J and mass matrix M at the configuration q.

    "ltl"   LTL-OSIM: branch-sparse factor of M ([PROX], [CABA] Eq. 13): O(n d² + m d² + m² n).
    "pv"    PV-OSIM: what the world is left with in [CABA] Algorithm 4: O(n m²).
    "efpa"  forces joint by joint, inverse inertias of all links ([CABA] I, extended force propagators):
            O(n + m d + m²).
    "pvr"   PV-OSIMr: propagators between branching links only, [CABA] Algorithm 5 without augmentation:
            O(n + m²).
    Systems with clusters have one algorithm, whatever is named: C-EFPA ([GRBDA] VIII), an inward pass per
    row.
    """
    (q,) = arguments(sys, q=q)
    con = checked(sys, constraints, algorithm, MATRICES, "delassus_matrix")
    return matrix_kernel(algorithm)(sys, con, q)


def delassus_inverse(
    sys: System,
    constraints: ConstraintsLike,
    q: ArrayLike,
    mu: ArrayLike,
    algorithm: str = "caba",
    refinements: int = 0,
) -> Array:
    """Lambda_mu = (J M^-1 Jᵀ + 1/mu)^-1, (m, m): the damped operational-space inertia.

    "caba"   cABA-OSIM, [CABA] Algorithm 5: mu - mu J M_mu^-1 Jᵀ mu (Eq. 40) with inertias augmented by
             their rows; O(n + m²). Rows between two bodies (or on joints) cannot be added to one body: they
             stay out of M_mu and follow by a Schur complement, O(k³ + k m²) for k of them.
    "cabaf"  cABA-OSIMf, [CABA] VI-B: the same with the base apart (Eq. 41), L_1 + K_1 H_1^-1 K_1ᵀ, where L_1
             has one block per branch of the base.
    "pvf"    PV-OSIMf: blocks of L_1 without augmentation factored one by one, the base by the matrix
             inversion lemma: O(n + m² + sum of the blocks' sizes cubed).
    "ltl", "pv", "efpa", "pvr"  Cholesky factor of `delassus_matrix`, damped: O(m³) more.

    mu: a penalty; Eq. 40 is a difference of numbers of the size of mu, so "caba" and "cabaf" lose digits
    as mu grows beyond the masses (float64, mu = 1e6: 1e-10 relative on a humanoid; on a tree of links of
    0.6 kg 5e-6 where an axis nearly passes through a held point). So does "pvf" where rows move with a free
    base and hardly with the joints: L_1 is then singular but for 1/mu. Cholesky factors keep them, and
    refinements bring them back.
    `refinements`: how often to replace the result X by X (2 - (J M^-1 Jᵀ + 1/mu) X), Newton's iteration for
    inverses, which squares the relative error: O(n + m²) once and O(m³) each time.
    """
    (q,) = arguments(sys, q=q)
    con = checked(sys, constraints, algorithm, INVERSES, "delassus_inverse")
    if not isinstance(refinements, int) or refinements < 0:
        raise ArgumentError(f"delassus_inverse: refinements is {refinements!r}, expected 0, 1, 2, ...")
    return inverse_kernel(algorithm, refinements)(sys, con, q, penalty(mu, "delassus_inverse", q.dtype))


def penalty(mu, caller: str, dtype):
    """mu as an array, positive as far as that can be known while tracing."""
    if not isinstance(mu, jax.core.Tracer) and not (np.ndim(mu) == 0 and 0 < float(mu) < np.inf):
        raise ArgumentError(
            f"{caller}: mu is {mu!r}, expected a positive penalty such as 1e6 (the damping is 1/mu)."
        )
    return jnp.asarray(mu, dtype)


def checked(sys: System, constraints, algorithm, known, caller: str) -> Constraints:
    if algorithm not in known:
        names = ", ".join(repr(name) for name in known)
        near = hint(algorithm, known)
        raise ArgumentError(f"{caller}: algorithm is {algorithm!r}, expected one of {names}. {near}")
    con = as_constraints(constraints)
    require_mass(sys, caller)
    check_constraints(sys, con)
    return con


@lru_cache(maxsize=64)
def matrix_kernel(algorithm: str):
    def run(sys: System, con: Constraints, q):
        if sys.topology.clusters:
            return cluster_delassus(sys, con, q)
        return MATRICES[algorithm](still_task(sys, con, q, jnp.ones((), q.dtype)))

    return kernel(lambda sys, con, *_: (con.rows, con.rows))(run)


@lru_cache(maxsize=64)
def inverse_kernel(algorithm: str, refinements: int = 0):
    def run(sys: System, con: Constraints, q, mu):
        if sys.topology.clusters:
            task = still_task(sys, con, q, mu)
            return spd_inverse(cluster_delassus(sys, con, q) + _damping(task))
        task = still_task(sys, con, q, mu)
        return refined(task, INVERSES[algorithm](task), refinements)

    return kernel(lambda sys, con, *_: (con.rows, con.rows))(run)


def still_task(sys: System, con: Constraints, q, mu) -> Any:
    """The rows at rest and without forces: a `Task`, or a `ClusterTask`."""
    zero = lambda n: jnp.zeros((n,) + q.shape[-1:], q.dtype)  # noqa: E731
    make = linear_cluster_task if sys.topology.clusters else linear_task
    return make(sys, con, q, zero(sys.topology.nv), zero(con.rows), mu)


# --- the Delassus matrix, (m, m, B) --------------------------------------------------------------------


def ltl(task: Task):
    M, J = matrices(task)
    pattern = sparse.pattern_of(mass_pattern(task.sys.topology))
    H = sparse.factor(pattern, sparse.store(pattern, M))
    Y = sparse.solve_transposed(pattern, H, jnp.swapaxes(J, 0, 1))
    return gram(Y, 1 / sparse.diagonal(pattern, H))


def pv(task: Task):
    on = along_links(task, open_to_world=True)
    return prox_pv.in_rows(on, prox_pv.factor(on))


def efpa(task: Task):
    t, on = task.sys.topology, along_links(task)
    meeting, prob = meeting_of(t, task.con.entries, every=True), on.prob
    K = prop.half_rows(t, on, meeting)
    pivot, root = prop.link_pivots(on.plan, prob)
    omega = prop.link_inverses(on.plan, prob, pivot, prop.root_inverses(prob, root))
    return prop.assemble(task.con.rows, meeting, omega, prop.link_wrenches(meeting, prob, pivot, K))


def pvr(task: Task):
    on = along_links(task)
    return between_stations(task, on, on.prob)


def augmented_delassus(task: Task):
    """J M_mu^-1 Jᵀ, where M_mu = M + Jᵀ mu J has the rows on one body: [CABA] Algorithm 5 but for its end."""
    on = along_links(task)  # [CABA] Alg. 5, lines 1-2
    return between_stations(task, on, with_rows(task, on))


def between_stations(task: Task, on: OnLinks, prob: Problem):
    """J M^-1 Jᵀ by propagators and inverse inertias of stations, M that of `prob`."""
    t = task.sys.topology
    meeting = meeting_of(t, task.con.entries)
    K = prop.half_rows(t, on, meeting)
    carried = prop.branch_propagators(on.plan, meeting, prob, K)
    P, own = prop.station_propagators(meeting, carried)
    omega = prop.branch_inverses(meeting, P, own, prop.root_inverses(prob, carried.root))
    K = prop.branch_wrenches(meeting, carried, P, K)
    return prop.assemble(task.con.rows, meeting, jnp.concatenate([omega, own]), K, carried)


def with_rows(task: Task, on: OnLinks) -> Problem:
    """The links with the rows of one body in their inertias."""
    # [CABA] Alg. 5, lines 3-4
    return on.prob._replace(H=augmented(on.plan, on.prob.H, on.rows, penalty_of_rows(task)))


def penalty_of_rows(task: Task):
    return jnp.broadcast_to(task.R, task.c.shape)


# --- damped inverses -----------------------------------------------------------------------------------


def caba(task: Task):
    return by_inversion_lemma(task, augmented_delassus(task))


def cabaf(task: Task):
    on = along_links(task)
    L1, K1, inverse = from_base(task, on, with_rows(task, on))
    i, j = np.triu_indices(task.con.rows)
    coupled = jnp.sum(gather(times_roots(K1, inverse), i) * gather(K1, j), 1)
    return by_inversion_lemma(task, L1 + gather(coupled, prop.triangle(task.con.rows)))


def by_inversion_lemma(task: Task, E):
    """Lambda_mu from E = J M_mu^-1 Jᵀ, where M_mu holds the rows of one body, c, but not the others, o.

    Lambda_cc = mu - mu E_cc mu ([CABA] Eq. 40), S = E_oo + 1/mu, and with B = mu E_co:
    Lambda = [[Lambda_cc + B S^-1 Bᵀ, -B S^-1], [-S^-1 Bᵀ, S^-1]].
    """
    on_one_body = plan_of(task.sys.topology, task.con.entries).on_one_body
    R, m = penalty_of_rows(task), len(on_one_body)
    if on_one_body.all():
        return _diagonal(R) - R[:, None] * E * R[None]  # [CABA] Alg. 5, line 21
    c, o = np.flatnonzero(on_one_body), np.flatnonzero(~on_one_body)
    block = lambda i, j: gather(gather(E, i), j, 1)  # noqa: E731
    R_c = gather(R, c)
    Sinv = spd_inverse(block(o, o) + _diagonal(1 / gather(R, o)))
    B = R_c[:, None] * block(c, o)
    BS = _product(B, Sinv)
    top = _diagonal(R_c) - R_c[:, None] * block(c, c) * R_c[None] + _product(BS, B)
    whole = jnp.concatenate(
        [jnp.concatenate([top, -BS], 1), jnp.concatenate([-jnp.swapaxes(BS, 0, 1), Sinv], 1)]
    )
    back = np.argsort(np.concatenate([c, o]))
    return gather(gather(whole, back), back, 1).reshape((m, m) + E.shape[2:])


def refined(task: Task, X, refinements: int):
    """X nearer to the inverse of J M^-1 Jᵀ + 1/mu: X += X (1 - (J M^-1 Jᵀ + 1/mu) X), so many times."""
    if not refinements:
        return X
    A, one = pvr(task) + _damping(task), _diagonal(jnp.ones_like(task.c))
    for _ in range(refinements):
        X = X + _product(one - _product(X, A), X)  # all symmetric, up to rounding
    return 0.5 * (X + jnp.swapaxes(X, 0, 1))


def pvf(task: Task):
    on = along_links(task)
    L1, K1, inverse = from_base(task, on, on.prob)
    m, L1 = task.con.rows, L1 + _damping(task)
    blocks = base_blocks(task.sys, task.con)
    order = np.argsort(np.concatenate(blocks))
    sizes = [len(b) for b in blocks]
    parts = [spd_inverse(gather(gather(L1, b), b, 1)) for b in blocks]
    place = np.cumsum([0, *sizes])
    widen = lambda x, k: jnp.pad(x, ((0, 0), (int(place[k]), int(m - place[k + 1])), (0, 0)))  # noqa: E731
    L1inv = jnp.concatenate([widen(x, k) for k, x in enumerate(parts)])
    L1inv = gather(gather(L1inv, order), order, 1)
    if not K1.shape[1]:
        return L1inv
    # (L1 + K1 H1^-1 K1ᵀ)^-1 = L1^-1 - Y (H1 + K1ᵀ Y)^-1 Yᵀ, with Y = L1^-1 K1 block by block
    halves = [_product(x, jnp.swapaxes(gather(K1, b), 0, 1)) for x, b in zip(parts, blocks)]
    Y = gather(jnp.concatenate(halves), order)
    inner = root_inertias(inverse) + _product(jnp.swapaxes(K1, 0, 1), jnp.swapaxes(Y, 0, 1))
    return L1inv - _product(_product(Y, spd_inverse(inner)), Y)


def by_cholesky(matrix):
    def run(task: Task):
        return spd_inverse(matrix(task) + _damping(task))

    return run


def spd_inverse(A):
    """Inverse of symmetric positive definite matrices (n, n, B)."""
    chol = jax.scipy.linalg.cho_factor(jnp.moveaxis(A, -1, 0), lower=True)
    eye = jnp.broadcast_to(jnp.eye(A.shape[0], dtype=A.dtype), A.shape[-1:] + A.shape[:2])
    return jnp.moveaxis(jax.scipy.linalg.cho_solve(chol, eye), 0, -1)


def _damping(task: Task):
    """1 / mu of every row, as a diagonal matrix."""
    return _diagonal(1 / penalty_of_rows(task))


def _diagonal(x):
    return jnp.asarray(np.eye(x.shape[0])[:, :, None], x.dtype) * x[:, None]


def _product(X, Y):
    """X Yᵀ for (k, n, B) and (m, n, B): column after column, each an outer product."""
    zero = jnp.zeros((X.shape[0], Y.shape[0]) + X.shape[2:], X.dtype)
    step = lambda G, x: (G + x[0][:, None] * x[1][None], None)  # noqa: E731
    return jax.lax.scan(step, zero, (jnp.swapaxes(X, 0, 1), jnp.swapaxes(Y, 0, 1)))[0]


MATRICES = {"ltl": ltl, "pv": pv, "efpa": efpa, "pvr": pvr}
INVERSES = {"caba": caba, "cabaf": cabaf, "pvf": pvf} | {k: by_cholesky(f) for k, f in MATRICES.items()}
