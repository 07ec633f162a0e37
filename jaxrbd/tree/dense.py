"""Forward dynamics of a single state by dense ancestor masks: few kernels, no loop over links.

At batch 1 the cost is the number of kernels, not arithmetic. Poses come from pointer doubling
(log2(depth) rounds), sums along the tree from 0/1 matrices of who moves whom, and M a = tau - b from a
dense Cholesky factorisation: O(nv^3) arithmetic in a handful of calls. Same result as `aba`.
"""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.joints import TYPES
from jaxrbd.model.system import System, Topology
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.crba import ancestor_pairs
from jaxrbd.tree.joints import joint_transforms
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.spatial import ZERO3, Force, Inertia, Mat3, Motion, Sym3, Vec3, stack, vec3


@lru_cache(maxsize=512)
def _masks(t: Topology):
    """Ancestor tables for doubling; who moves each column and each body; ancestors; rows of the columns."""
    nodes = nodes_of(t)
    N, nr = nodes.size, nodes.nroots
    end = N + nr  # the row of the identity, parent of every root
    jump = np.concatenate([nodes.parent, np.full(nr + 1, end)])
    jumps = []
    while (jump < end).any():
        jumps.append(jump)
        jump = jump[jump]
    i, j, _ = ancestor_pairs(t)
    dof_dof = np.zeros((t.nv, t.nv))  # row: a column's velocity, sum over the columns that move it
    dof_dof[j, i] = 1
    above = dof_dof.copy()
    body_dof = np.array([dof_dof[t.v_starts[b + 1] - 1] for b in range(t.nb)]).reshape(t.nb, t.nv)
    for b, kind in enumerate(t.joint_types):
        if TYPES[kind].on_manifold:  # columns move with the body
            dof_dof[t.v_starts[b] : t.v_starts[b + 1]] = body_dof[b]
    slot = nodes.slot_of_dof
    dof_row = np.where(slot < N, slot, N + 1 + (slot - N) // 6).astype(int)
    who = np.concatenate([dof_dof, body_dof])
    return jumps, who, above, dof_row


def forward_dynamics_dense(sys: System, q, v, tau, f_ext):
    """a = M^-1 (tau - b), unbatched; arguments as in `forward_dynamics`."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    if nodes.paths:
        raise ArgumentError("forward_dynamics_dense: columns that depend on q. Use forward_dynamics.")
    jumps, who, above, dof_row = _masks(t)
    who, nv = jnp.asarray(who, q.dtype), t.nv
    X, axis, turn, slide = _poses(sys, q, jumps)

    # columns about the root's origin, then velocities of columns and bodies, then bias accelerations
    R, p = _split_pose(X[dof_row])
    s = R @ vec3(axis)
    S = _rows(Motion(s * turn, s * slide).at(-p))
    Sv = S * v[:, None]
    V = who @ Sv
    A = who[nv:] @ _rows(_motion(V[:nv]).cross(_motion(Sv)))

    # inertias in world axes about the bodies' own origins; forces and composites about the root's origin
    R, x = _split_pose(X[nodes.body_slot])
    I = _inertia(_rows(_body_inertias(sys).rotate(R)))
    V, A = _motion(V[nv:]).at(x), _motion(A).at(x)
    A = Motion(A.ang, A.lin - Vec3(*sys.gravity))
    f = I @ A + V.cross_force(I @ V)
    if f_ext is not None:
        fx = Force(vec3(f_ext[:, :3]), vec3(f_ext[:, 3:]))
        if t.has_offsets:
            fx = fx.from_(R @ vec3(sys.frame_position[np.array(t.body_frames)]))
        f = f - fx
    b = jnp.sum(S * (who[nv:].T @ _rows(f.from_(x))), 1)
    Ic = _inertia(who[nv:].T @ _rows(I.from_(x)))

    # M_ij = S_i · Ic_j S_j for the ancestors i of j, and its mirror image
    P = _rows(Ic @ _motion(S)) @ S.T
    M = P * jnp.asarray(above, q.dtype) + P.T * jnp.asarray((above - np.eye(nv)).T, q.dtype)
    L = jax.lax.linalg.cholesky(M + jnp.diag(sys.armature), symmetrize_input=False)
    y = jax.lax.linalg.triangular_solve(L, (tau - b)[:, None], left_side=True, lower=True)
    return jax.lax.linalg.triangular_solve(L, y, left_side=True, lower=True, transpose_a=True)[:, 0]


def _poses(sys: System, q, jumps):
    """World poses (rows, 3, 4), positions from the root's origin; axis, turn and slide of every column."""
    nodes = nodes_of(sys.topology)
    last = jax.tree.map(lambda x: x[..., None], sys)
    q = q[:, None]
    joints, roots = joint_transforms(last, q), kin.root_states(last, q)
    like = q[:1] + jnp.zeros((nodes.size, 1), q.dtype)
    pose = lambda R, p, like: jnp.stack(  # noqa: E731
        [stack([*row, x], 1, like)[..., 0] for row, x in zip(R, p)], 1
    )
    identity = jnp.asarray(np.eye(3, 4)[None], q.dtype)
    X = jnp.concatenate([pose(joints.R, joints.p, like), pose(roots.R, ZERO3, roots.R.a.x), identity])
    last_row = jnp.asarray([[[0.0, 0, 0, 1]]], q.dtype)
    for jump in jumps:  # pointer doubling: X of the ancestor reached so far, times X
        up = X[jump]
        X = jnp.sum(up[:, :, :3, None] * X[:, None], 2) + up[:, :, 3:] * last_row

    dof = nodes.slot_of_dof
    is_root, slot = dof >= nodes.size, np.where(dof < nodes.size, dof, 0)
    column = np.where(is_root, (dof - nodes.size) % 6, 0)
    per_node = lambda x: jnp.broadcast_to(jnp.asarray(x, q.dtype), (max(nodes.size, 1), 1))[slot, 0]  # noqa: E731
    turn = jnp.where(is_root, column < 3, per_node(joints.turn))
    slide = jnp.where(is_root, column >= 3, per_node(joints.slide))
    axis = stack(joints.axis, 1, like + 0 * joints.axis.x)[..., 0]
    axis = axis[slot] if nodes.size else jnp.zeros((len(dof), 3), q.dtype)
    own = jnp.asarray(np.eye(3)[column % 3], q.dtype)  # a free root's columns are its own axes
    return X, jnp.where(is_root[:, None], own, axis), turn, slide


def _body_inertias(sys: System) -> Inertia:
    last = jax.tree.map(lambda x: x[..., None], sys)
    return jax.tree.map(lambda x: x[: sys.nb, 0], kin.body_inertias(last))


def _split_pose(X) -> tuple[Mat3, Vec3]:
    return Mat3(*(Vec3(*(X[:, i, j] for j in range(3))) for i in range(3))), Vec3(
        *(X[:, i, 3] for i in range(3))
    )


def _motion(x) -> Motion:
    return Motion(vec3(x[:, :3]), vec3(x[:, 3:]))


def _inertia(x) -> Inertia:
    return Inertia(x[:, 0], vec3(x[:, 1:4]), Sym3(*(x[:, k] for k in range(4, 10))))


def _rows(tree, groups: int = 2):
    """Components side by side: one row per body or column, as a matrix product or a second use wants it.

    Stacked in two levels: XLA's CPU compiler gives a concatenation of many operands a kernel per operand.
    """
    leaves = jnp.broadcast_arrays(*jax.tree.leaves(tree))
    k = len(leaves) // groups
    parts = [jnp.stack(leaves[i * k : (i + 1) * k], 1) for i in range(groups)]
    return jnp.stack(parts, 1).reshape(len(leaves[0]), groups * k)
