"""Inverse kinematics: min ½ Σ |W e(q)|² within joint limits, by damped Gauss-Newton on the manifold.

Each iteration solves the Levenberg-Marquardt step with damping proportional to the squared error
(Yamashita and Fukushima 2001: quadratic under a local error bound, full rank not needed), its factor
adapted by whether the last step helped. Coordinates at a bound that the gradient pushes outwards are
frozen (Bertsekas 1982), those that the step would carry across are put on the bound and the others solved
again. One evaluation of kinematics and two solves of size min(error rows, nv) per iteration, a fixed
number of them in a scan: batches, jit and both modes of differentiation work, and the derivative is that
of the algorithm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.ik_targets import ROWS, Target, frame_errors, norm, read_targets, read_weights, worst_errors
from jaxrbd.joints import TYPES
from jaxrbd.model.system import System, find, pytree, static
from jaxrbd.solution import Result, Solution, largest
from jaxrbd.tree.arguments import arguments, array
from jaxrbd.tree.manifold import close, difference, integrate, normalize
from jaxrbd.typing import ArrayLike

STILL = 1e-3  # cosine between the error and what joints can change of it, below which nothing is left to gain


@pytree
class GaussNewton:
    """Settings of the damped Gauss-Newton iteration.

    `damping` starts the factor of the squared error; `tolerance` [m and rad] defaults to 1e-8, or 1e-5 in
    float32; `step_limit` [rad or m] bounds every coordinate of a step, which keeps far targets from throwing
    the arm about.
    """

    iterations: int = static(default=50)
    damping: float = 1e-3
    tolerance: float | None = None
    step_limit: float = 0.5

    def __post_init__(self):
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise ArgumentError(
                f"GaussNewton: iterations is {self.iterations!r}, expected a positive integer."
            )
        for name in ("damping", "tolerance", "step_limit"):
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not value > 0:
                raise ArgumentError(f"GaussNewton: {name} is {value!r}, expected a positive number.")


@pytree
class InverseKinematicsStats:
    """Error of the worst frame [m], [rad]; size of the projected gradient; iterations to the tolerance."""

    position_error: jax.Array
    rotation_error: jax.Array
    gradient: jax.Array
    iterations: jax.Array


def inverse_kinematics(
    sys: System,
    q0: ArrayLike,
    targets: dict[str, Target],
    *,
    solver: GaussNewton | None = None,
    weights: Mapping[str, ArrayLike] | None = None,
    rest: ArrayLike | None = None,
    rest_weight: ArrayLike = 1e-2,
    fixed_joints: Sequence[str] = (),
) -> Solution:
    """q within joint limits that brings named frames to their targets: Solution(q, result, stats).

    `targets`: {frame: (R, p)} for poses, {frame: p} for points, {frame: R} for orientations, in world axes.
    `weights`: {frame: number, or one per row of the error}; rows of weight zero do not count as error.
    `rest`: a configuration to stay near. Its weight shrinks to nothing over the iterations, so that targets
    come first and redundancy is spent on the rest pose.
    `fixed_joints`: names of joints that keep their place in q0, such as ("root",) for a robot that stands.

    The search is local: `jax.vmap` over several q0 and keep the best. A target out of reach ends in
    `Result.stationary` or `not_converged`, with q finite and within limits. Limits of spherical and free
    joints are not regarded, nor those of joints that follow others through loops.
    """
    solver = GaussNewton() if solver is None else solver
    if not isinstance(solver, GaussNewton):
        raise ArgumentError(f"inverse_kinematics: solver is {solver!r}, expected GaussNewton(...).")
    (q0,) = arguments(sys, q0=q0)
    if rest is not None:
        rest = array("rest", rest, (sys.nq,), f"(nq,) = ({sys.nq},)", sys.dtype)
    fixed_joints = (fixed_joints,) if isinstance(fixed_joints, str) else tuple(fixed_joints)
    for name in fixed_joints:
        find(sys.joint_names, name, "joint")
    tasks, goals = read_targets(sys, targets)
    weights = read_weights(sys, weights or {}, tasks)
    rest_weight = jnp.asarray(rest_weight, sys.dtype)
    return _solve(tasks, fixed_joints, sys, q0, goals, weights, rest, rest_weight, solver)


class _Point(NamedTuple):
    """An iterate with its error rows e, their derivative J and the way r from the rest pose."""

    q: jax.Array
    e: jax.Array
    J: jax.Array
    r: jax.Array


@partial(jax.jit, static_argnums=(0, 1))
def _solve(tasks, fixed_joints, sys, q0, goals, weights, rest, rest_weight, solver: GaussNewton):
    dtype, eps = sys.dtype, jnp.finfo(sys.dtype).eps
    tolerance = solver.tolerance
    if tolerance is None:
        tolerance = 1e-8 if dtype == jnp.float64 else 1e-5
    tolerance, step_limit = jnp.asarray(tolerance, dtype), jnp.asarray(solver.step_limit, dtype)
    movable, scalar_q, scalar_v, dofs = _coordinates(sys, fixed_joints)
    lower = jnp.full(sys.nv, -jnp.inf, dtype).at[scalar_v].set(sys.lower[dofs])
    upper = jnp.full(sys.nv, jnp.inf, dtype).at[scalar_v].set(sys.upper[dofs])

    def clip(q):
        q = q.at[scalar_q].set(jnp.clip(q[scalar_q], lower[scalar_v], upper[scalar_v]))
        return close(sys, q) if sys.topology.clusters else q

    def evaluate(q) -> _Point:
        e, J = frame_errors(tasks, sys, q, goals, weights)
        r = jnp.zeros(sys.nv, dtype) if rest is None else difference(sys, rest, q) * movable
        return _Point(q, e, J * movable, r)

    def room(q):
        """How far each coordinate may go down and up."""
        at = jnp.zeros(sys.nv, dtype).at[scalar_v].set(q[scalar_q])
        return lower - at, upper - at

    def free_coordinates(x: _Point, g):
        down, up = room(x.q)
        return movable * jnp.where((g > 0) & (down >= 0) | (g < 0) & (up <= 0), 0.0, 1.0)

    def increment(x: _Point, rho, factor):
        lam = factor * (x.e @ x.e) + 100 * eps * (1 + jnp.sum(x.J * x.J))
        free = free_coordinates(x, x.J.T @ x.e + rho * x.r)
        down, up = room(x.q)
        dv = _damped_step(x, rho, lam, free, jnp.zeros_like(free))
        outside = (dv < down) | (dv > up)
        on_bound = jnp.where(outside, jnp.clip(dv, down, up), 0.0) * free
        dv = _damped_step(x, rho, lam, jnp.where(outside, 0.0, free), on_bound)
        longest = largest(dv)
        long = longest > step_limit
        return dv * jnp.where(long, step_limit / jnp.where(long, longest, 1.0), 1.0)

    def misses(x: _Point):
        return ~(jnp.maximum(*worst_errors(tasks, x.e, weights)) <= tolerance)  # so that NaN misses

    def iterate(carry, rhos):
        x, q, factor, count = carry
        trial = evaluate(q)
        accept = (_cost(trial, rhos[0]) <= _cost(x, rhos[0])) | ~misses(trial)
        x = jax.tree.map(lambda new, old: jnp.where(accept, new, old), trial, x)
        factor = jnp.clip(jnp.where(accept, factor / 4, factor * 8), 1e-8, 1e8)
        q = clip(integrate(sys, x.q, increment(x, rhos[1], factor)))
        return (x, q, factor, count + misses(x).astype(count.dtype)), None

    # before the first evaluation the error is infinite: the start is the first trial, and kinematics
    # appears once in the compiled program
    q = clip(normalize(sys, q0))
    m, zero = sum(len(ROWS[kind]) for _, kind in tasks), jnp.zeros(sys.nv, dtype)
    nowhere = _Point(q, jnp.full(m, jnp.inf, dtype), jnp.zeros((m, sys.nv), dtype), zero)
    rhos = rest_weight * jnp.asarray(_fading(solver.iterations, rest is not None), dtype)
    carry = nowhere, q, 4 * jnp.asarray(solver.damping, dtype), jnp.zeros((), jnp.int32)
    (x, _, _, count), _ = jax.lax.scan(iterate, carry, rhos)
    count = jnp.minimum(count, solver.iterations)

    g = x.J.T @ x.e
    gradient = norm(g * free_coordinates(x, g))
    still = gradient <= STILL * norm(x.e) * norm(x.J)
    failure = jnp.where(still, Result.stationary, Result.not_converged)
    result = jnp.where(misses(x), failure, Result.converged).astype(jnp.int32)
    result = jnp.where(jnp.isfinite(x.e).all(), result, Result.not_converged).astype(jnp.int32)
    rotation, position = worst_errors(tasks, x.e, weights)
    return Solution(x.q, result, InverseKinematicsStats(position, rotation, gradient, count))


def _damped_step(x: _Point, rho, lam, free, given):
    """min over dv of ½|J dv + e|² + ½ rho |dv + r|² + ½ lam |dv|², where dv = given outside of `free`.

    With J wide the solve is over the error rows: well conditioned however redundant the robot is.
    """
    J, mu = x.J * free, lam + rho
    towards_rest = -rho / mu * x.r * free
    e = x.e + x.J @ given + J @ towards_rest
    m, n = J.shape
    if m <= n:
        dv = -J.T @ jax.scipy.linalg.solve(J @ J.T + mu * jnp.eye(m, dtype=e.dtype), e, assume_a="pos")
    else:
        dv = -jax.scipy.linalg.solve(J.T @ J + mu * jnp.eye(n, dtype=e.dtype), J.T @ e, assume_a="pos")
    return given + towards_rest + dv


def _cost(x: _Point, rho):
    return 0.5 * (x.e @ x.e) + 0.5 * rho * (x.r @ x.r)


def _fading(iterations: int, with_rest: bool):
    """Weight of the rest pose before and after each evaluation: 1 down to 1e-6, zero in the last third."""
    k = np.arange(-1, iterations + 1)
    weight = np.where(k < 2 * iterations // 3, 10.0 ** (-9.0 * k / iterations), 0.0) * with_rest
    return np.stack([weight[:-1], weight[1:]], 1)


def _coordinates(sys: System, fixed_joints):
    """Mask of the degrees of freedom that move, and where those that limits apply to stand in q, v and
    leaves.
    """
    t = sys.topology
    movable = np.ones(sys.nv)
    places: list[tuple[int, int, int]] = []
    for i, (name, kind) in enumerate(zip(sys.joint_names, sys.joint_types)):
        own = [d for d in range(t.v_starts[i], t.v_starts[i + 1]) if not t.clusters or d in t.independent]
        if not own:  # others move it
            continue
        q, v = sys.q_index(name), sys.v_index(name)
        if name in fixed_joints:
            movable[v] = 0.0
        elif not TYPES[kind].on_manifold:
            first = t.v_starts[i]
            places += [(q.start + d - first, v.start + k, d) for k, d in enumerate(own)]
    scalar_q, scalar_v, dofs = np.array(places, int).reshape(-1, 3).T
    return jnp.asarray(movable, sys.dtype), scalar_q, scalar_v, dofs
