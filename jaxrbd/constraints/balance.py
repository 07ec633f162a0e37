"""Residuals of both equations along the links: forces out of balance, and what rows still lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrbd.constraints.acting import row_forces, row_motion
from jaxrbd.constraints.along_links import OnLinks
from jaxrbd.constraints.joint_space import dense_jacobian
from jaxrbd.constraints.method import Method
from jaxrbd.constraints.task import Task
from jaxrbd.solution import largest
from jaxrbd.tree.spatial import Force, Motion, Vec3


class Accelerations(NamedTuple):
    """Of positions, beyond those at a = 0, and of supporting joints."""

    links: Motion  # (P, B)
    joints: Any  # (NS, B), None without supporting joints


class Unbalanced(NamedTuple):
    """r_d = f - M a + Jᵀ lam: wrenches p that links need, and forces that joints and roots have."""

    p: Force  # (P, B)
    tau: Any  # (NS, B)
    tau0: Force  # (nroots, B)


def no_accelerations(on: OnLinks) -> Accelerations:
    # [CABA] Alg. 3, lines 3-4: no Δf is kept; all forces start as out of balance, at a = 0
    zero = jnp.zeros_like(on.prob.p.ang.x)
    joints = on.links(zero) if on.plan.support.size else None
    return Accelerations(Motion(Vec3(zero, zero, zero), Vec3(zero, zero, zero)), joints)


def unbalanced(on: OnLinks, now: Accelerations, force, load=None) -> Unbalanced:
    """load f - M a + Jᵀ force; `load` None is one."""
    prob = on.prob
    if load is not None:
        prob = prob._replace(
            **{k: jax.tree.map(lambda y: y * load, getattr(prob, k)) for k in ("p", "tau", "tau0")}
        )
    f, joints, roots = row_forces(on.plan, on.table, on.rows, force)
    p = prob.p + prob.H @ now.links - f
    A0 = on.roots(now.links)
    tau0 = jnp.stack([*prob.tau0.ang, *prob.tau0.lin], 1) - prob.armature0 * jnp.stack([*A0.ang, *A0.lin], 1)
    tau0 = tau0 if roots is None else tau0 + roots
    tau0 = Force(Vec3(*(tau0[:, k] for k in range(3))), Vec3(*(tau0[:, k] for k in range(3, 6))))
    tau = None
    if on.plan.support.size:
        tau = prob.tau - prob.node.armature * now.joints
        tau = tau if joints is None else tau + joints
    return Unbalanced(p, tau, tau0)


def row_accelerations(on: OnLinks, a: Accelerations):
    """J a, (m, B)."""
    return row_motion(on.plan, on.table, on.rows, a.links, a.joints)


def largest_acceleration(on: OnLinks, a: Accelerations):
    """Of supporting joints and roots, (B,)."""
    A0 = on.roots(a.links)
    size = largest(jnp.stack([*A0.ang, *A0.lin]), (0, 1))
    return size if a.joints is None else jnp.maximum(size, largest(a.joints, 0))


def links_method(task: Task, on: OnLinks, correct: Callable) -> Method:
    """What the iterations ask of a method along the links."""
    return Method(
        zero=no_accelerations(on),
        correct=correct,
        rows=lambda a: row_accelerations(on, a),
        size=lambda a: largest_acceleration(on, a),
        jacobian=lambda: dense_jacobian(task),
    )
