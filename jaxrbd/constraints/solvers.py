"""Dynamics under constraints: M(q) a + b(q, v) = tau + J(q)ᵀ lam,  J a + J̇v = a*.

Four solvers with one idea each ([CABA] Fig. 6): multipliers first (`ProxLTL`, `ProxPV`) or accelerations
first (`ProxLTLs`, `ConstrainedABA`), in joint space (`ProxLTL`, `ProxLTLs`) or along the links (`ProxPV`,
`ConstrainedABA`). All are proximal: redundant or singular rows do no harm, and rows that contradict each
other are met in the sense of least squares.
"""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, as_constraints, check_constraints
from jaxrbd.constraints.iterations import MOST, Found, Settings
from jaxrbd.constraints.methods import Task, forces_of_rows, joint_forces, link_inertias, solve
from jaxrbd.constraints.rows import (
    Moving,
    Rows,
    constraint_rows,
    motion,
)
from jaxrbd.engine.gather import gather
from jaxrbd.engine.programs import merge, partial_jvp, partial_vjp
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, pytree, static
from jaxrbd.solution import Result, Solution
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.arguments import arguments, array, external, require_mass
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.nodes import nodes_of


@pytree
class Proximal:
    """Settings that the proximal solvers share.

    `mu`: penalty as in [CABA] (Pinocchio's mu is its inverse), times the weights of the rows. By default each
    row has its own, from the inertia that it moves (`penalties.py`): no tuning for grams or tons.
    `iterations`: how many; by default as many as it takes to know that the answer is right, at most 48.
    With a `tolerance` [m/s², rad/s²] each state stops where the rows are met or the accelerations rest within
    it, and `converged` means the rows alone. `adaptive`: where that does not suffice, near singular postures
    or with a small mu, penalties grow a hundredfold, twice at most, for one more factorisation each.
    `gradients`: "implicit" differentiates the solution by one more solve, with memory that does not grow with
    iterations; it takes the rows to be met, so where they contradict each other "unrolled" is right: the
    iterations themselves are differentiated, 5 of them unless you say how many.
    """

    mu: float | None = None
    iterations: int | None = static(default=None)
    tolerance: float | None = static(default=None)
    gradients: str = static(default="implicit")
    adaptive: bool = static(default=False)

    def __post_init__(self):
        name = type(self).__name__
        numbers = (int, float, np.ndarray, np.generic, jax.Array)
        known = isinstance(self.mu, numbers) and not isinstance(self.mu, jax.core.Tracer)
        if known and np.ndim(self.mu) == 0 and not 0 < float(self.mu) < np.inf:
            raise ArgumentError(f"{name}: mu is {self.mu!r}, expected a positive penalty such as 1e6.")
        if self.iterations is not None and (not isinstance(self.iterations, int) or self.iterations < 1):
            raise ArgumentError(f"{name}: iterations is {self.iterations!r}, expected a positive integer.")
        if self.tolerance is not None and not self.tolerance > 0:
            raise ArgumentError(
                f"{name}: tolerance is {self.tolerance!r}, expected a positive number or None."
            )
        if self.gradients not in ("implicit", "unrolled"):
            raise ArgumentError(
                f"{name}: gradients is {self.gradients!r}, expected 'implicit' or 'unrolled'."
            )
        if self.gradients == "unrolled" and self.adaptive:
            raise ArgumentError(f"{name}: adaptive penalties have implicit gradients only.")
        if self.gradients == "unrolled" and self.tolerance is not None:
            raise ArgumentError(
                f"{name}: unrolled gradients need a fixed number of iterations. Leave tolerance out, or use "
                "gradients='implicit'."
            )


@pytree
class ConstrainedABA(Proximal):
    """Articulated bodies with constrained inertias, [CABA] Algorithms 1-3: O(n + m). The default."""


@pytree
class ProxPV(Proximal):
    """Popov and Vereshchagin with a proximal dual, [CABA] Algorithm 4: O(n m² + m³)."""


@pytree
class ProxLTL(Proximal):
    """Dual proximal point on the branch-sparse factor, [CABA] Eq. 13 and [PROX]: O(n d² + n m² + m³)."""


@pytree
class ProxLTLs(Proximal):
    """Augmented Lagrangian on the sparse factor of M + Jᵀ mu J, [CABA] Eq. 16: O(n d² + n² + n m)."""


@pytree
class Soft(Proximal):
    """One iteration of `ConstrainedABA`: rows as springs of compliance 1/(mu weight), as MuJoCo and PV-soft.

    [CABA] VII-A: minimises ½|a - a_free|²_M + ½ mu |J a - c|². Rows are met as far as mu is large, so the
    result is `stationary` where that problem is solved and rarely `converged`. Derivatives are those of the
    springs, by mu and weights too.
    """

    iterations: int = static(default=1)
    gradients: str = static(default="unrolled")

    def __post_init__(self):
        super().__post_init__()
        if self.iterations != 1 or self.tolerance is not None:
            raise ArgumentError("Soft: it is one iteration by definition. Use ConstrainedABA for more.")
        if self.gradients != "unrolled":
            raise ArgumentError("Soft: implicit gradients are those of rigid rows. Use 'unrolled'.")


@pytree
class Dense(Proximal):
    """The reference: the dual problem by eigenvalues of J M^-1 Jᵀ, O(n³ + m³). It needs no mu."""

    def __post_init__(self):
        super().__post_init__()
        if self.gradients != "implicit":
            raise ArgumentError("Dense: eigenvectors of repeated rows have no derivative. Use 'implicit'.")


@pytree
class Classic(Proximal):
    """[PROX]'s classic resolution without damping: fails, and says so, where rows depend on each other."""

    iterations: int = static(default=1)


@pytree
class ConstrainedMotion:
    """Joint accelerations a (nv,) and multipliers lam (m,): forces [N, N m] along the rows."""

    a: jax.Array
    lam: jax.Array


@pytree
class ProximalStats:
    """How far a solver came; numbers are the largest over the rows or joints.

    `residual`: |J a + J̇v - a*| at the end; `history`: the same after every iteration. `change`: the last step
    of a, which unbalanced forces and rows drive alike. `iterations`: how many were made.
    """

    residual: jax.Array
    history: jax.Array
    change: jax.Array
    iterations: jax.Array


def constrained_dynamics(
    sys: System, q, v, tau, constraints, solver: Proximal | None = None, f_ext=None, warm_start=None
) -> Solution:
    """Accelerations and multipliers under constraints:  M a + b = tau + Jᵀ lam,  J a + J̇v = a*.

    Returns Solution(ConstrainedMotion(a, lam), result, stats). `result` is `converged` where the rows are
    met, `stationary` where they contradict each other and a is the least-squares answer in their weights,
    `not_converged` where a may be off by more than 1e-6 (1e-2 in float32) of the largest acceleration.
    `constraints`: a `Constraints` or a list; `warm_start`: multipliers to start from.
    """
    con = as_constraints(constraints)
    solver = ConstrainedABA() if solver is None else solver
    if not isinstance(solver, Proximal):
        raise ArgumentError(
            f"constrained_dynamics: solver is {solver!r}, expected ConstrainedABA() or another."
        )
    q, v, tau = arguments(sys, q=q, v=v, tau=tau)
    f_ext = external(sys, f_ext, q.dtype)
    require_mass(sys, "constrained_dynamics")
    check_constraints(sys, con)
    lam = jnp.zeros(con.rows, q.dtype) if warm_start is None else warm_start
    lam = array("warm_start", lam, (con.rows,), f"(m,) = ({con.rows},)", sys.dtype)
    mu = None if solver.mu is None else jnp.asarray(solver.mu, q.dtype)
    run = solver_kernel(settings_of(solver), solver.gradients)
    a, lam, history, change, iterations, verdict = run(sys, con, q, v, tau, f_ext, lam, mu)
    stats = ProximalStats(history[-1], history, change, jnp.round(iterations).astype(jnp.int32))
    finite = jnp.all(jnp.isfinite(a)) & jnp.all(jnp.isfinite(lam))
    result = jnp.where(finite, jnp.round(verdict), Result.not_converged).astype(jnp.int32)
    return Solution(ConstrainedMotion(a, lam), result, stats)


def settings_of(solver: Proximal) -> Settings:
    unrolled = solver.gradients == "unrolled"
    count = 5 if unrolled and solver.iterations is None else solver.iterations
    return Settings(type(solver).__name__, count, solver.tolerance, solver.adaptive, fixed=unrolled)


@lru_cache(maxsize=256)
def solver_kernel(settings: Settings, gradients: str):
    """The kernel of one solver; with implicit gradients it has rules of its own."""
    its = {"Classic": 2}.get(settings.method, settings.iterations or MOST)

    def run(sys, con, q, v, tau, f_ext, lam, mu):
        return list(solve(forward_task(sys, con, q, v, tau, f_ext, lam, mu), settings))

    shape = lambda sys, con, *_: [(sys.nv,), (con.rows,), (its,), (), (), ()]  # noqa: E731
    made = kernel(shape)(run)
    if gradients == "implicit":
        made.derivatives(*implicit_rules(settings), uses_output=True)
    return made


def forward_task(sys: System, con: Constraints, q, v, tau, f_ext, lam, mu) -> Task:
    """Forces on the links at a = 0 (gravity, velocity products, external) and the rows there."""
    moving = motion(sys, q, v)
    x = constraint_rows(sys, con, q, v, moving)
    p, p0 = link_forces(sys, q, moving, f_ext)
    return Task(sys, con, q, moving, x, p, p0, tau, x.target - x.gamma, lam, *_penalty(x, mu, tau))


def link_forces(sys: System, q, moving: Moving, f_ext):
    """I A + V x* I V - f_ext of every link and root, in their own axes."""
    N = nodes_of(sys.topology).size
    I, I0 = link_inertias(sys, moving.links)
    V, A = gather((moving.V, moving.A), slice(0, N))
    V0, A0 = gather((moving.V, moving.A), slice(N, None))
    p, p0 = I @ A + V.cross_force(I @ V), I0 @ A0 + V0.cross_force(I0 @ V0)
    if f_ext is not None:
        f, f0 = kin.forces_in_links(sys, q, f_ext, moving.links)
        p, p0 = p - f, p0 - f0
    wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + q.shape[-1:])  # noqa: E731
    return jax.tree.map(wide, (p, p0))


def linear_task(sys: System, con: Constraints, q, f, c, mu) -> Task:
    """M a = f + Jᵀ lam, J a = c at the configuration q: the problem of derivatives and impulses."""
    still = jnp.zeros_like(f)
    moving = motion(sys, q, still)
    x = constraint_rows(sys, con, q, still, moving)
    return Task(sys, con, q, moving, x, None, None, f, c, jnp.zeros_like(c), *_penalty(x, mu, f))


def _penalty(x: Rows, mu, like):
    """Penalties (None: the method's own) and weights of the rows, (m, B)."""
    weight = jnp.broadcast_to(x.weight, x.weight.shape[:-1] + like.shape[-1:])
    return None if mu is None else weight * mu, weight


# --- derivatives of the solution -----------------------------------------------------------------------


def residuals(sys: System, con: Constraints, q, v, tau, f_ext, a, lam):
    """ID(q, v, a) - tau - Jᵀ lam and J a + J̇v - a*: both vanish at a solution that meets the rows."""
    moving = motion(sys, q, v, a)
    x = constraint_rows(sys, con, q, v, moving, a)
    p, p0 = link_forces(sys, q, moving, f_ext)
    f, f0, joints = forces_of_rows(sys, con, x, lam)
    tau = tau if joints is None else tau + joints
    task = Task(sys, con, q, moving, x, p - f, p0 - f0, tau - sys.armature * a, None, None, None, None)
    return [-joint_forces(task), x.gamma - x.target]


def batch_of(tree) -> int:
    return max(x.shape[-1] for x in jax.tree.leaves(tree))


def implicit_rules(settings: Settings):
    """Tangent and adjoint: the same linear problem with another right-hand side, by the same solver."""
    fixed = Settings(settings.method, max(settings.iterations or 5, 3), fixed=True, judged=False)

    def at_solution(treedef, out, size: int):
        wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + (size,))  # noqa: E731

        def run(leaves):
            sys, con, *state = jax.tree.unflatten(treedef, leaves)
            q, v, tau, f_ext, _, _ = jax.tree.map(wide, state)
            return residuals(sys, con, q, v, tau, f_ext, wide(out[0]), wide(out[1]))

        return run

    def linear(args, f, c) -> Found:
        sys, con, q, _, _, _, _, mu = args
        n = batch_of((args, f, c))
        wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + (n,))  # noqa: E731
        q, f, c, mu = jax.tree.map(wide, (q, f, c, mu))
        return solve(linear_task(sys, con, q, f, c, mu), fixed)

    def tangent(args, out, tangents):
        leaves, treedef = jax.tree.flatten(args)
        run = at_solution(treedef, out, batch_of((args, out)))
        moved = partial_jvp(run, leaves, treedef.flatten_up_to(tangents))
        found = linear(args, -moved[0], -moved[1])
        still = lambda x: jnp.zeros(x.shape[:-1] + found.a.shape[-1:], x.dtype)  # noqa: E731
        return [found.a, found.lam, *(still(x) for x in out[2:])]

    def adjoint(args, out, wanted, cotangents):
        # [[M, -Jᵀ], [J, 0]]ᵀ (w, eta) = (cotangents of a and lam)
        found = linear(args, cotangents[0], -cotangents[1])
        leaves, treedef = jax.tree.flatten(args)
        active = treedef.flatten_up_to(wanted)
        run = at_solution(treedef, out, batch_of((args, out)))
        grads = partial_vjp(run, leaves, active, [-found.a, found.lam])
        return jax.tree.unflatten(treedef, merge([None] * len(leaves), active, grads))

    return tangent, adjoint
