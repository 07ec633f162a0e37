"""Trees of bodies in plain NumPy: M, b and the motion of every body, for a batch of samples in float64.

An oracle for the verdicts that shares nothing with the library but the leaves of a System. Spatial vectors
are in world axes about the world's origin, angular part first; the batch is the first axis everywhere.
With columns s_k of the joints and V_i the velocity of body i,

    V_i = sum of s_k v_k,   A_i = sum of s_k a_k + ṡ_k v_k,   ṡ_k = V x s_k,

where V is the velocity of what carries the column. M = sum of J_iᵀ I_i J_i, and b as M at A = ṡ v - gravity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def skew(x):
    """[x] with [x] y = x × y, over leading axes."""
    S = np.zeros(x.shape + (3,))
    S[..., 0, 1], S[..., 0, 2], S[..., 1, 2] = -x[..., 2], x[..., 1], -x[..., 0]
    return S - np.swapaxes(S, -1, -2)


def rotation(quaternion):
    """R of (w, x, y, z), normalised first."""
    u = quaternion / np.linalg.norm(quaternion, axis=-1, keepdims=True)
    K = skew(u[..., 1:])
    return np.eye(3) + 2 * u[..., :1, None] * K + 2 * K @ K


def turn(axis, angle):
    """Exp of angle about a unit axis: (B, 3, 3)."""
    K = skew(axis)
    return np.eye(3) + np.sin(angle)[:, None, None] * K + (1 - np.cos(angle))[:, None, None] * (K @ K)


def cross_motion(V, s):
    """V x s of spatial motions."""
    w, u = V[..., :3], V[..., 3:]
    return np.concatenate([np.cross(w, s[..., :3]), np.cross(w, s[..., 3:]) + np.cross(u, s[..., :3])], -1)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@dataclass(frozen=True)
class Motion:
    """Of every body, about the world's origin; index -1 is the world, at rest (an extra last entry)."""

    R: np.ndarray  # (nb + 1, B, 3, 3)
    p: np.ndarray  # (nb + 1, B, 3)
    V: np.ndarray  # (nb + 1, B, 6)
    A: np.ndarray  # (nb + 1, B, 6) at a = 0, without gravity
    J: np.ndarray  # (nb + 1, B, 6, nv)


@dataclass(frozen=True)
class Tree:
    """Motion, mass matrix (B, nv, nv) and bias force (B, nv) of a batch of samples."""

    motion: Motion
    M: np.ndarray
    b: np.ndarray


def _pushed(R, p, s):
    """Spatial motions s (..., 6) in a frame at (R, p), seen in the world about its origin."""
    w = np.einsum("...ij,...j->...i", R, s[..., :3])
    u = np.einsum("...ij,...j->...i", R, s[..., 3:])
    return np.concatenate([w, u + np.cross(p, w)], -1)


def _steps(kind, axis, axis2, q):
    """A joint as steps one after another: (rotation, shift, columns after it in its axes)."""
    B = len(q)
    zero, eye = np.zeros((B, 3)), np.broadcast_to(np.eye(3), (B, 3, 3))
    about = lambda a: np.broadcast_to(np.r_[a, 0, 0, 0], (B, 1, 6))  # noqa: E731
    along = lambda a: np.broadcast_to(np.r_[0, 0, 0, a], (B, 1, 6))  # noqa: E731
    if kind in ("revolute", "continuous"):
        return [(turn(axis, q[:, 0]), zero, about(axis))]
    if kind == "prismatic":
        return [(eye, q[:, :1] * axis, along(axis))]
    if kind == "universal":
        return [(turn(axis, q[:, 0]), zero, about(axis)), (turn(axis2, q[:, 1]), zero, about(axis2))]
    if kind == "cylindrical":
        return [(turn(axis, q[:, 0]), zero, about(axis)), (eye, q[:, 1:] * axis, along(axis))]
    six = np.broadcast_to(np.eye(6), (B, 6, 6))
    if kind == "spherical":
        return [(rotation(q), zero, six[:, :3])]
    if kind == "free":
        return [(rotation(q[:, 3:]), q[:, :3], six)]
    raise ValueError(f"joint type {kind!r} is not in this oracle")


def motion(sys, q, v) -> Motion:
    t, B = sys.topology, len(q)
    leaf = lambda x: np.asarray(x, np.float64)  # noqa: E731
    Rj, pj = rotation(leaf(sys.joint_quaternion)), leaf(sys.joint_position)
    axes, axes2 = leaf(sys.axis), leaf(sys.axis2)
    n = t.nb
    R, p = np.tile(np.eye(3), (n + 1, B, 1, 1)), np.zeros((n + 1, B, 3))
    V, A, J = np.zeros((n + 1, B, 6)), np.zeros((n + 1, B, 6)), np.zeros((n + 1, B, 6, t.nv))
    for i, (kind, parent) in enumerate(zip(t.joint_types, t.parents)):
        R[i], p[i] = R[parent] @ Rj[i], p[parent] + R[parent] @ pj[i]
        V[i], A[i], J[i] = V[parent], A[parent], J[parent]
        second = unit(axes2[i]) if kind == "universal" else None
        first = unit(axes[i]) if kind not in ("free", "spherical") else None
        d = t.v_starts[i]
        for Rs, ps, columns in _steps(kind, first, second, q[:, t.q_starts[i] : t.q_starts[i + 1]]):
            p[i] = p[i] + np.einsum("bij,bj->bi", R[i], ps)
            R[i] = R[i] @ Rs
            k = columns.shape[1]
            s = _pushed(R[i][:, None], p[i][:, None], columns)  # (B, k, 6)
            J[i][:, :, d : d + k] = np.swapaxes(s, 1, 2)
            moved = np.einsum("bkj,bk->bj", s, v[:, d : d + k])
            V[i] = V[i] + moved  # the columns of a step are carried by its own body
            A[i] = A[i] + cross_motion(V[i], moved)
            d += k
    return Motion(R, p, V, A, J)


def inertia(mass, com, inertia6, R, p):
    """6x6 in the world about its origin of a link (leaves (B,), (3,), (B, 6)) at the pose (R, p)."""
    xx, xy, xz, yy, yz, zz = np.moveaxis(inertia6, -1, 0)
    I = np.moveaxis(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), -1, 0)
    c = skew(p + R @ com)
    m = mass[:, None, None]
    top = R @ I @ np.swapaxes(R, 1, 2) - m * c @ c
    return np.concatenate(
        [np.concatenate([top, m * c], 2), np.concatenate([-m * c, m * np.eye(3)], 2)], axis=1
    )


def tree(sys, q, v, leaves) -> Tree:
    """At states (B, nq), (B, nv); `leaves`: mass, inertia, armature with a batch axis, for the System's."""
    t, B = sys.topology, len(q)
    leaf = lambda x: np.asarray(x, np.float64)  # noqa: E731
    own = lambda name: leaf(leaves[name] if name in leaves else [getattr(sys, name)] * B)  # noqa: E731
    mass, inertia6, armature = own("mass"), own("inertia"), own("armature")
    body = motion(sys, q, v)
    M, b = np.zeros((B, t.nv, t.nv)), np.zeros((B, t.nv))
    fall = np.r_[0, 0, 0, -leaf(sys.gravity)]
    Rf, pf, com = rotation(leaf(sys.frame_quaternion)), leaf(sys.frame_position), leaf(sys.com)
    for link in range(t.link_count):
        i = t.frame_bodies[link]
        if i < 0:
            continue
        R, p = body.R[i] @ Rf[link], body.p[i] + body.R[i] @ pf[link]
        I = inertia(mass[:, link], com[link], inertia6[:, link], R, p)
        J = body.J[i]
        M += np.swapaxes(J, 1, 2) @ I @ J
        h = np.einsum("bij,bj->bi", I, body.V[i])
        w, u = body.V[i][:, :3], body.V[i][:, 3:]
        gyro = np.concatenate([np.cross(w, h[:, :3]) + np.cross(u, h[:, 3:]), np.cross(w, h[:, 3:])], 1)
        force = np.einsum("bij,bj->bi", I, body.A[i] + fall) + gyro
        b += np.einsum("bji,bj->bi", J, force)
    k = np.arange(t.nv)
    M[:, k, k] += armature
    return Tree(body, M, b)
