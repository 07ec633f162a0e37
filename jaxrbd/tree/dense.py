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

from jaxrbd.model.system import System, Topology
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.crba import ancestor_pairs
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.spatial import stack


@lru_cache(maxsize=512)
def _masks(t: Topology):
    """Ancestor tables for doubling, (body, dof) and (dof, dof) masks, and row indices."""
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
        if kind in ("spherical", "free"):  # columns move with the body
            dof_dof[t.v_starts[b] : t.v_starts[b + 1]] = body_dof[b]
    slot = nodes.slot_of_dof
    dof_row = np.where(slot < N, slot, N + 1 + (slot - N) // 6).astype(int)
    return jumps, body_dof, dof_dof, above, dof_row


def forward_dynamics_dense(sys: System, q, v, tau, f_ext):
    """a = M^-1 (tau - b), unbatched; arguments as in `forward_dynamics`."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    jumps, body_dof, dof_dof, above, dof_row = _masks(t)
    dtype = q.dtype
    R, p, s, slide, turn = _columns(sys, q, jumps)

    # columns about the root's origin (angular first), one row per degree of freedom
    where = p[dof_row]
    ang, lin = s * turn, s * slide
    S = jnp.concatenate([ang, lin + jnp.cross(where, ang)], 1)
    Sv = S * v[:, None]
    T, Tdd = jnp.asarray(body_dof, dtype), jnp.asarray(dof_dof, dtype)
    V_d, V = Tdd @ Sv, T @ Sv
    c = _cross(V_d, Sv)
    A = T @ c

    # bodies: inertia about the body's own origin in world axes, everything else about the root's origin
    m, h, I = _world_inertias(sys, R[nodes.body_slot])  # noqa: E741
    x = p[nodes.body_slot]
    Vb, Ab = _shift(V, x), _shift(A, x)
    Ab = Ab.at[:, 3:].add(-sys.gravity) if t.nb else Ab
    momentum = _apply(m, h, I, Vb)
    f = _apply(m, h, I, Ab) + _cross_force(Vb, momentum)
    if f_ext is not None:
        if t.has_offsets:
            arm = jnp.einsum("bij,bj->bi", R[nodes.body_slot], sys.frame_position[np.array(t.body_frames)])
            f_ext = f_ext.at[:, :3].add(jnp.cross(arm, f_ext[:, 3:]))
        f = f - f_ext
    f_root = jnp.concatenate([f[:, :3] + jnp.cross(x, f[:, 3:]), f[:, 3:]], 1)
    b = jnp.sum(S * (T.T @ f_root), 1)

    # composites about each column's own origin: M_ij = S_i · Ic_j S_j for ancestors i of j
    h_root = h + m[:, None] * x
    I_root = I + _parallel(m, h, x)
    packed = T.T @ jnp.concatenate([m[:, None], h_root, I_root.reshape(-1, 9)], 1)
    mc, hc, Ic = packed[:, 0], packed[:, 1:4], packed[:, 4:].reshape(-1, 3, 3)
    F = _apply(mc, hc, Ic, S)
    lower = (F @ S.T) * jnp.asarray(above, dtype)
    M = lower + lower.T - jnp.diag(jnp.diagonal(lower)) + jnp.diag(sys.armature)
    factor = jax.scipy.linalg.cho_factor(M, lower=True)
    return jax.scipy.linalg.cho_solve(factor, tau - b)


def _columns(sys: System, q, jumps):
    """World rotations and positions (from the root's origin) of all rows, and axes per degree of freedom."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    last = jax.tree.map(lambda x: x[..., None], sys)
    q = q[:, None]
    joints, roots = kin.joint_transforms(last, q), kin.root_states(last, q)
    like = q[:1] + jnp.zeros((nodes.size, 1), q.dtype)
    mat = lambda R, like: jnp.stack([stack(row, 1, like)[..., 0] for row in R], 1)  # noqa: E731
    eye, zero = jnp.eye(3, dtype=q.dtype)[None], jnp.zeros((nodes.nroots + 1, 3), q.dtype)
    R = jnp.concatenate([mat(joints.R, like), mat(roots.R, roots.R.a.x), eye])
    p = jnp.concatenate([stack(joints.p, 1, like)[..., 0], zero])
    for jump in jumps:
        Rj = R[jump]
        p = p[jump] + jnp.sum(Rj * p[:, None], 2)
        R = jnp.sum(Rj[:, :, :, None] * R[:, None], 2)
    dof = nodes.slot_of_dof
    live = np.where(dof < nodes.size, dof, 0)
    is_root = dof >= nodes.size
    axis_rows = stack(joints.axis, 1, joints.axis.x)[..., 0]
    axis = axis_rows[live] if nodes.size else jnp.zeros((t.nv, 3), q.dtype)
    column = np.where(is_root, (dof - nodes.size) % 6, 0)
    if is_root.any():
        axis = jnp.where(is_root[:, None], jnp.asarray(np.eye(3)[column % 3], q.dtype), axis)
    rows = np.where(is_root, nodes.size + 1 + (dof - nodes.size) // 6, dof)
    s = jnp.sum(R[rows] * axis[:, None], 2)
    per_node = lambda x: jnp.broadcast_to(jnp.asarray(x, q.dtype), (max(nodes.size, 1), 1))[live]  # noqa: E731
    turn = jnp.where(is_root[:, None], (column < 3)[:, None], per_node(joints.turn))
    slide = jnp.where(is_root[:, None], (column >= 3)[:, None], per_node(joints.slide))
    return R, p, s, slide, turn


def _world_inertias(sys: System, R):
    last = jax.tree.map(lambda x: x[..., None], sys)
    I = kin.take(kin.body_inertias(last), slice(0, sys.topology.nb))  # noqa: E741
    m, h, full = I.mass[:, 0], stack(I.h, 1, I.mass)[..., 0], I.I.full()
    J = jnp.stack([stack(row, 1, I.mass)[..., 0] for row in full], 1)
    h = jnp.sum(R * h[:, None], 2)
    RJ = jnp.sum(R[:, :, :, None] * J[:, None], 2)
    return m, h, jnp.sum(RJ[:, :, None] * R[:, None], 3)


def _parallel(m, h, x):
    """What the rotational inertia gains when moved to an origin displaced by -x."""
    h2 = h + m[:, None] * x
    outer = h[:, :, None] * x[:, None] + x[:, :, None] * h2[:, None]
    trace = jnp.sum(h * x + x * h2, 1)
    return trace[:, None, None] * jnp.eye(3, dtype=m.dtype) - outer


def _apply(m, h, I, V):  # noqa: E741
    """I V for rows of twists."""
    w, u = V[:, :3], V[:, 3:]
    return jnp.concatenate([jnp.sum(I * w[:, None], 2) + jnp.cross(h, u), m[:, None] * u - jnp.cross(h, w)], 1)


def _shift(V, x):
    return jnp.concatenate([V[:, :3], V[:, 3:] + jnp.cross(V[:, :3], x)], 1)


def _cross(a, b):
    return jnp.concatenate(
        [jnp.cross(a[:, :3], b[:, :3]), jnp.cross(a[:, :3], b[:, 3:]) + jnp.cross(a[:, 3:], b[:, :3])], 1
    )


def _cross_force(a, f):
    return jnp.concatenate(
        [jnp.cross(a[:, :3], f[:, :3]) + jnp.cross(a[:, 3:], f[:, 3:]), jnp.cross(a[:, :3], f[:, 3:])], 1
    )
