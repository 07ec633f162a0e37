"""Targets of inverse kinematics: what the caller passes, and the error of frames with its derivative.

The error of a frame with pose (R, p) and target (Rt, pt) stands in the target's axes, angular first:
e = (log(Rtᵀ R), Rtᵀ (p - pt)). With J the frame's Jacobian in "body",  de = diag(Jr⁻¹(log Rtᵀ R), Rtᵀ R) J dv
exactly, Jr the right Jacobian of SO(3); metres and radians stay apart, unlike in the logarithm of SE(3).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.joints.rotations import rotation_log
from jaxrbd.model.names import hint
from jaxrbd.model.system import System
from jaxrbd.solution import largest
from jaxrbd.tree.arguments import array, frame_index
from jaxrbd.tree.frames import frame_jacobian, frame_poses
from jaxrbd.typing import Numbers

Target = Numbers | tuple[Numbers, Numbers]  # p, R, or (R, p)

ROWS = {"pose": (0, 1, 2, 3, 4, 5), "rotation": (0, 1, 2), "position": (3, 4, 5)}


def read_targets(sys: System, targets: dict[str, Target]):
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
            kind, R, p = "rotation", target, jnp.zeros(3, sys.dtype)
        else:
            kind, R, p = "position", jnp.eye(3, dtype=sys.dtype), target
        array(f"target R of frame {name!r}", R, (3, 3), "(3, 3)", sys.dtype)
        p = array(f"target p of frame {name!r}", p, (3,), "(3,), or a pair (R (3, 3), p (3,))", sys.dtype)
        if not isinstance(R, jax.core.Tracer) and not _is_rotation(np.asarray(R)):
            raise ArgumentError(f"target R of frame {name!r} is not a rotation. Pass an orthonormal matrix.")
        tasks.append((name, kind))
        goals.append((jnp.asarray(R, sys.dtype), p))
    return tuple(tasks), tuple(goals)


def _is_rotation(R: np.ndarray) -> bool:
    return np.allclose(R.T @ R, np.eye(3), atol=1e-3) and np.linalg.det(R) > 0


def read_weights(sys: System, weights, tasks):
    unknown = set(weights) - {name for name, _ in tasks}
    if unknown:
        near = hint(sorted(unknown)[0], [name for name, _ in tasks])
        raise ArgumentError(
            f"inverse_kinematics: weights name {sorted(unknown)}, which have no target. Remove them. {near}"
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


def frame_errors(tasks, sys: System, q, goals, weights):
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


def worst_errors(tasks, e, weights):
    """Largest rotation and position error of the frames, without weights, rows of weight zero left out."""
    w = jnp.concatenate(weights)
    e = e / jnp.where(w == 0, 1.0, w)
    rotations, positions, i = [], [], 0
    for _, kind in tasks:
        if kind != "position":
            rotations.append(norm(e[i : i + 3]))
            i += 3
        if kind != "rotation":
            positions.append(norm(e[i : i + 3]))
            i += 3
    zero = jnp.zeros((), e.dtype)
    return tuple(largest(jnp.stack(x)) if x else zero for x in (rotations, positions))


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


def norm(x):
    """|x| with a zero derivative at zero."""
    s = jnp.sum(x * x)
    zero = s == 0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, s)))
