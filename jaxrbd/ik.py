"""Inverse kinematics: min over q of ½ Σ |W e(q)|² within joint limits, by damped Gauss-Newton on the manifold.

The error of a frame with pose (R, p) and target (Rt, pt) stands in the target's axes, angular first:
e = (log(Rtᵀ R), Rtᵀ (p - pt)). With J the frame's Jacobian in "body",  de = diag(Jr⁻¹(log Rtᵀ R), Rtᵀ R) J dv
exactly, Jr the right Jacobian of SO(3); metres and radians stay apart, unlike in the logarithm of SE(3).

Each iteration solves the Levenberg-Marquardt step with damping proportional to the squared error (Yamashita
and Fukushima 2001: quadratic convergence also at singular postures), the factor adapted by whether the last
step helped. Coordinates at a bound that the gradient pushes outwards are frozen (Bertsekas 1982), those that
the step would carry across are put on the bound and the others solved again. One evaluation of kinematics
and two solves of size min(error rows, nv) per iteration, a fixed number of them in a scan: batches, jit and
both modes of differentiation work, and the derivative is that of the algorithm.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, find, pytree, static
from jaxrbd.solution import Result, Solution
from jaxrbd.tree.arguments import array, arguments, frame_index
from jaxrbd.tree.frames import frame_jacobian, frame_poses
from jaxrbd.tree.manifold import difference, integrate, normalize, quaternion_log

ROWS = {"pose": (0, 1, 2, 3, 4, 5), "rotation": (0, 1, 2), "position": (3, 4, 5)}


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
            raise ArgumentError(f"GaussNewton: iterations is {self.iterations!r}, expected a positive integer.")
        for name in ("damping", "tolerance", "step_limit"):
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not value > 0:
                raise ArgumentError(f"GaussNewton: {name} is {value!r}, expected a positive number.")


@pytree
class InverseKinematicsStats:
    """Errors of the worst frame [m], [rad]; size of the projected gradient; iterations until the tolerance."""

    position_error: jax.Array
    rotation_error: jax.Array
    gradient: jax.Array
    iterations: jax.Array


def inverse_kinematics(
    sys: System, q0, targets, *, solver=None, weights=None, rest=None, rest_weight=1e-2, fixed_joints=()
):
    """q within joint limits that brings named frames to their targets: Solution(q, result, stats).

    `targets`: {frame: (R, p)} for poses, {frame: p} for points, {frame: R} for orientations, in world axes.
    `weights`: {frame: number, or one per row of the error}; rows of weight zero do not count as error.
    `rest`: a configuration to stay near. Its weight shrinks to nothing over the iterations, so that targets
    come first and redundancy is spent on the rest pose.
    `fixed_joints`: names of joints that keep their place in q0, such as ("root",) for a robot that stands.

    The search is local: `jax.vmap` over several q0 and keep the best. A target out of reach ends in
    `Result.stationary` or `not_converged`, with q finite and within limits. Limits of spherical and free
    joints are not regarded.
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
    tasks, goals = _read_targets(sys, targets)
    weights = _read_weights(sys, weights or {}, tasks)
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
    movable, scalar_q, scalar_v = _coordinates(sys, fixed_joints)
    lower = jnp.full(sys.nv, -jnp.inf, dtype).at[scalar_v].set(sys.lower[scalar_v])
    upper = jnp.full(sys.nv, jnp.inf, dtype).at[scalar_v].set(sys.upper[scalar_v])

    def clip(q):
        return q.at[scalar_q].set(jnp.clip(q[scalar_q], lower[scalar_v], upper[scalar_v]))

    def evaluate(q) -> _Point:
        e, J = _errors(tasks, sys, q, goals, weights)
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
        largest = jnp.max(jnp.abs(dv))
        long = largest > step_limit
        return dv * jnp.where(long, step_limit / jnp.where(long, largest, 1.0), 1.0)

    def misses(x: _Point):
        return jnp.maximum(*_worst(tasks, x.e, weights)) > tolerance

    def iterate(carry, rho):
        x, factor, count = carry
        trial = evaluate(clip(integrate(sys, x.q, increment(x, rho, factor))))
        better = _cost(trial, rho) <= _cost(x, rho)
        accept = better | ~misses(trial)
        count = count + misses(x).astype(count.dtype)
        x = jax.tree.map(lambda new, old: jnp.where(accept, new, old), trial, x)
        factor = jnp.clip(jnp.where(accept, factor / 4, factor * 8), 1e-8, 1e8)
        return (x, factor, count), None

    start = evaluate(clip(normalize(sys, q0)))
    rhos = rest_weight * jnp.asarray(_fading(solver.iterations, rest is not None), dtype)
    factor, count = jnp.asarray(solver.damping, dtype), jnp.zeros((), jnp.int32)
    (x, _, count), _ = jax.lax.scan(iterate, (start, factor, count), rhos)

    g = x.J.T @ x.e
    gradient = _norm(g * free_coordinates(x, g))
    still = gradient <= eps**0.4 * _norm(x.e) * _norm(x.J)
    failure = jnp.where(still, Result.stationary, Result.not_converged)
    result = jnp.where(misses(x), failure, Result.converged).astype(jnp.int32)
    result = jnp.where(jnp.isfinite(x.e).all(), result, Result.not_converged).astype(jnp.int32)
    rotation, position = _worst(tasks, x.e, weights)
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


def _errors(tasks, sys: System, q, goals, weights):
    """Weighted error rows of all frames and their derivative in dv."""
    R_all, p_all = frame_poses(sys, q)
    errors, jacobians = [], []
    for (name, kind), (Rt, pt), weight in zip(tasks, goals, weights):
        i = frame_index(sys, name)
        J = frame_jacobian(sys, q, name, frame="body")
        turn = Rt.T @ R_all[i]
        if kind != "position":
            w = rotation_log(turn)
            errors.append(weight[:3] * w)
            jacobians.append(weight[:3, None] * (_right_jacobian_inverse(w) @ J[:3]))
        if kind != "rotation":
            errors.append(weight[-3:] * (Rt.T @ (p_all[i] - pt)))
            jacobians.append(weight[-3:, None] * (turn @ J[3:]))
    return jnp.concatenate(errors), jnp.concatenate(jacobians)


def _worst(tasks, e, weights):
    """Largest rotation and position error of the frames, without weights, rows of weight zero left out."""
    w = jnp.concatenate(weights)
    e = e / jnp.where(w == 0, 1.0, w)
    rotations, positions, i = [], [], 0
    for _, kind in tasks:
        if kind != "position":
            rotations.append(_norm(e[i : i + 3]))
            i += 3
        if kind != "rotation":
            positions.append(_norm(e[i : i + 3]))
            i += 3
    zero = jnp.zeros((), e.dtype)
    return tuple(jnp.max(jnp.stack(x)) if x else zero for x in (rotations, positions))


def _fading(iterations: int, with_rest: bool):
    """Weight of the rest pose, 1 down to 1e-6 over two thirds of the iterations, then zero."""
    k = np.arange(iterations)
    return np.where(k < 2 * iterations // 3, 10.0 ** (-9.0 * k / iterations), 0.0) * with_rest


def _coordinates(sys: System, fixed_joints):
    """Mask of the degrees of freedom that move, and where those that limits apply to stand in q and in v."""
    movable, scalar_q, scalar_v = np.ones(sys.nv), [], []
    for name, kind in zip(sys.joint_names, sys.joint_types):
        q, v = sys.q_index(name), sys.v_index(name)
        if name in fixed_joints:
            movable[v] = 0.0
        elif kind not in ("spherical", "free"):
            scalar_q += range(q.start, q.stop)
            scalar_v += range(v.start, v.stop)
    return jnp.asarray(movable, sys.dtype), np.array(scalar_q, int), np.array(scalar_v, int)


def _read_targets(sys: System, targets):
    """Static ((frame, kind), ...) and their goals ((R, p), ...)."""
    if not isinstance(targets, dict) or not targets:
        raise ArgumentError(
            "inverse_kinematics: targets is empty or not a dict. Pass {frame name: (R, p)} for poses, "
            "{frame name: p} for points."
        )
    tasks, goals = [], []
    for name, target in targets.items():
        frame_index(sys, name)
        if isinstance(target, (tuple, list)) and len(target) == 2:
            kind, (R, p) = "pose", target
        elif np.shape(target) == (3, 3):
            kind, R, p = "rotation", target, np.zeros(3)
        else:
            kind, R, p = "position", np.eye(3), target
        R = array(f"target R of frame {name!r}", R, (3, 3), "(3, 3)", sys.dtype)
        p = array(f"target p of frame {name!r}", p, (3,), "(3,), or a pair (R (3, 3), p (3,))", sys.dtype)
        if not isinstance(R, jax.core.Tracer) and not np.allclose(R.T @ R, np.eye(3), atol=1e-3):
            raise ArgumentError(f"target R of frame {name!r} is not a rotation. Pass an orthonormal matrix.")
        tasks.append((name, kind))
        goals.append((R, p))
    return tuple(tasks), tuple(goals)


def _read_weights(sys: System, weights, tasks):
    unknown = set(weights) - {name for name, _ in tasks}
    if unknown:
        raise ArgumentError(
            f"inverse_kinematics: weights name {sorted(unknown)}, which have no target. Remove them."
        )
    result = []
    for name, kind in tasks:
        rows = len(ROWS[kind])
        weight = jnp.asarray(weights.get(name, 1.0), sys.dtype)
        if weight.shape not in ((), (rows,)):
            raise ArgumentError(
                f"weight of frame {name!r} has shape {weight.shape}, expected () or ({rows},): "
                f"one number, or one per row of its {kind} error."
            )
        result.append(jnp.broadcast_to(weight, (rows,)))
    return tuple(result)


def rotation_log(R):
    """Rotation vector of a rotation matrix, its length at most pi; smooth at the identity and below pi.

    By way of 4 q qᵀ, whose row with the largest diagonal is a well conditioned multiple of the quaternion q.
    """
    (a, b, c), (d, e, f), (g, h, i) = R
    rows = jnp.stack(
        [
            jnp.stack([1 + a + e + i, h - f, c - g, d - b]),
            jnp.stack([h - f, 1 + a - e - i, b + d, c + g]),
            jnp.stack([c - g, b + d, 1 - a + e - i, f + h]),
            jnp.stack([d - b, c + g, f + h, 1 - a - e + i]),
        ]
    )
    row = rows[jnp.argmax(jnp.diagonal(rows))]
    return quaternion_log(row / jnp.sqrt(row @ row))


def _right_jacobian_inverse(w):
    """I + ½[w] + c [w]²: maps the body's angular velocity to the rate of the rotation vector w."""
    t2 = w @ w
    small = t2 < (1e-6 if w.dtype == jnp.float64 else 1e-3)
    safe = jnp.where(small, 1.0, t2)
    t = jnp.sqrt(safe)
    c = jnp.where(small, 1 / 12 + t2 / 720, (1 - 0.5 * t / jnp.tan(t / 2)) / safe)
    zero = jnp.zeros_like(w[0])
    W = jnp.stack([jnp.stack(x) for x in ((zero, -w[2], w[1]), (w[2], zero, -w[0]), (-w[1], w[0], zero))])
    return jnp.eye(3, dtype=w.dtype) + 0.5 * W + c * W @ W


def _norm(x):
    """|x| with a zero derivative at zero."""
    s = jnp.sum(x * x)
    zero = s == 0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, s)))
