"""Relative motion of two frames, for all constraints between frames at once, batch last.

Motion of A in B, at the point c that A carries, in B's axes:

    u = R_Bᵀ (V_A - V_B)(c),     u̇ = R_Bᵀ ((A_A - A_B)(c) - omega_B x (V_A - V_B)(c) + (0, omega_rel x ċ)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.kinds.turning import turning_error
from jaxrbd.constraints.rows import Moving, Scene
from jaxrbd.engine.gather import gather
from jaxrbd.model.system import System
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.spatial import EYE3, ZERO3, Mat3, Motion, Vec3, rotation_from_quaternion, vec3


class Side(NamedTuple):
    """One side of every geometric constraint, in world axes about the node's origin."""

    R_node: Mat3
    root: Vec3  # world position of the tree's root
    p: Vec3  # node's origin from the root
    V: Motion
    A: Motion
    R: Mat3  # axes of the constraint
    r: Vec3  # its place, from the node's origin


def _side(sys: System, moving: Moving, frames, position, quaternion) -> Side:
    t, nodes = sys.topology, nodes_of(sys.topology)
    turn = rotation_from_quaternion(*(quaternion[:, k] for k in range(4)))
    if all(f < 0 for f in frames):  # the world stands still: symbolic zeros
        still = Motion(ZERO3, ZERO3)
        return Side(EYE3, ZERO3, ZERO3, still, still, turn, vec3(position))
    count = len(t.frame_bodies)
    bodies = np.array([t.frame_bodies[f] if f >= 0 else -1 for f in frames])
    slots = np.where(bodies >= 0, np.concatenate([nodes.body_slot, [0]])[bodies], nodes.size)
    R, p, V, A = gather((moving.R, moving.p, moving.V, moving.A), slots)
    g = Vec3(*(sys.gravity[k][None] for k in range(3)))
    V, A = V.rotate(R), A.rotate(R)
    A = Motion(A.ang, A.lin + g)
    root = gather(moving.roots.p, np.concatenate([nodes.root, np.arange(nodes.nroots)]).astype(int)[slots])
    # node axes -> body axes -> frame -> the constraint's own place in it
    to_body = moving.links.A.T
    eye = jax.tree.map(
        lambda x, like: jnp.full((nodes.nroots,) + like.shape[1:], float(x), like.dtype), EYE3, to_body
    )
    R_body = R @ gather(kin.join(to_body, eye), slots)
    index = np.where(np.array(frames) >= 0, frames, count)
    at = jnp.concatenate([sys.frame_position, jnp.zeros_like(sys.frame_position[:1])])
    still = jnp.concatenate(
        [jnp.ones_like(sys.frame_quaternion[:1, :1]), jnp.zeros_like(sys.frame_quaternion[:1, 1:])], 1
    )
    turned = gather(jnp.concatenate([sys.frame_quaternion, still]), index)
    R_frame = R_body @ rotation_from_quaternion(*(turned[:, k] for k in range(4)))
    r = R_body @ vec3(gather(at, index)) + R_frame @ vec3(position)
    return Side(R, root, p, V, A, R_frame @ turn, r)


class Relative(NamedTuple):
    """Motion of A in B of every constraint, (n, B), and the directions that its rows measure."""

    a: Side
    b: Side
    d: Vec3  # from B's place to A's, in world axes
    arm_a: Vec3  # from the nodes' origins to the point c
    arm_b: Vec3
    place: Vec3  # d in the axes of B
    phi: Motion
    u: Motion
    gamma: Motion
    directions: list[Vec3]  # x, y, z of the rows, in world axes
    parameter: Any  # (n, B) the first number of every constraint: a length, a radius


def relative_motion(scene: Scene, which: np.ndarray, frames_a, frames_b, masks: Sequence, touch) -> Relative:
    """`touch(normal, parameter)`: where c is, from A's place; None for there."""
    sys, con, _, _, moving = scene
    a = _side(sys, moving, frames_a, gather(con.position_a, which), gather(con.quaternion_a, which))
    b = _side(sys, moving, frames_b, gather(con.position_b, which), gather(con.quaternion_b, which))
    axes = b.R
    d = (a.root - b.root) + (a.p - b.p) + (a.r - b.r)
    arm_a, arm_b = a.r, d + b.r
    normal = Vec3(axes.a.z, axes.b.z, axes.c.z)
    parameter = gather(con.parameter, which)[:, 0]
    shift = touch(normal, parameter)
    if shift is None:
        shift = ZERO3
    else:
        arm_a, arm_b = arm_a + shift, arm_b + shift
    Va, Vb = a.V.at(arm_a), b.V.at(arm_b)
    rel, acc = Va - Vb, a.A.at(arm_a) - b.A.at(arm_b)
    wb = b.V.ang
    cdot = a.V.at(a.r).lin + wb.cross(shift)
    gamma = Motion(acc.ang - wb.cross(rel.ang), acc.lin + rel.ang.cross(cdot) - wb.cross(rel.lin))
    u, gamma = rel.rotate(axes.T), gamma.rotate(axes.T)
    turned, place = axes.T @ a.R, axes.T @ d
    phi = Motion(turning_error(turned, masks), place)
    directions = [Vec3(axes.a[j], axes.b[j], axes.c[j]) for j in range(3)]
    return Relative(a, b, d, arm_a, arm_b, place, phi, u, gamma, directions, parameter)
