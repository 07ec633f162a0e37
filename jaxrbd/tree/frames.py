"""Poses, velocities, Jacobians and J̇v of named frames.

Three reference frames, as in Pinocchio: "body", or "local" (axes and origin of the frame itself), "world"
(axes and origin of the world, i.e. the spatial twist) and "world_aligned" (origin of the frame, axes of the
world). In every one of them  d/dt (J v) = J a + (J̇ v).
"""

from __future__ import annotations

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.model.system import System, Topology
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.arguments import arguments, array, frame_index, reference_frame
from jaxrbd.tree.crba import ancestor_pairs, columns_by_dof
from jaxrbd.tree.joints import column, joint_transforms
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.opening import opened, with_columns
from jaxrbd.tree.spatial import Mat3, Motion, Vec3, rotation_from_quaternion, stack, vec3
from jaxrbd.typing import Array, ArrayLike


def forward_kinematics(sys: System, q: ArrayLike) -> tuple[Array, Array]:
    """World poses of all body frames: (R (nb, 3, 3), p (nb, 3)), x_world = R x_body + p."""
    (q,) = arguments(sys, q=q)
    R, p = _frame_poses(*opened(sys, q))
    index = np.array(sys.topology.body_frames, int)
    return gather(R, index), gather(p, index)


def frame_poses(sys: System, q: ArrayLike) -> tuple[Array, Array]:
    """World poses of all frames, in the order of `sys.frame_names`."""
    (q,) = arguments(sys, q=q)
    return _frame_poses(*opened(sys, q))


def frame_pose(sys: System, q: ArrayLike, name: str) -> tuple[Array, Array]:
    """World pose (R, p) of one named frame (a link, merged ones too, or a site)."""
    (q,) = arguments(sys, q=q)
    R, p = _frame_poses(*opened(sys, q))
    i = frame_index(sys, name)
    return R[i], p[i]


def frame_jacobian(sys: System, q: ArrayLike, name: str, frame: str = "world_aligned") -> Array:
    """J(q), (6, nv), angular first: the frame's velocity is J v."""
    (q,) = arguments(sys, q=q)
    J = _jacobian_kernel(frame_index(sys, name), reference_frame(frame))(*opened(sys, q))
    return with_columns(sys, q, J)


def freedom_twists(sys: System, q: ArrayLike, point: ArrayLike) -> Array:
    """(6, nv of the open tree): the twist of all that each freedom moves, at a point in the world's axes."""
    (q,) = arguments(sys, q=q)
    return _freedom_twists(*opened(sys, q), jnp.asarray(point, sys.dtype))


def frame_velocity(sys: System, q: ArrayLike, v: ArrayLike, name: str, frame: str = "world_aligned") -> Array:
    """Velocity of a frame, (6,), angular first; equals frame_jacobian @ v."""
    q, v = arguments(sys, q=q, v=v)
    return _motion_kernel(frame_index(sys, name), reference_frame(frame))(
        *opened(sys, q, v, jnp.zeros_like(v))
    )[0]


def frame_acceleration(
    sys: System, q: ArrayLike, v: ArrayLike, a: ArrayLike, name: str, frame: str = "world_aligned"
) -> Array:
    """Time derivative of `frame_velocity` in the same frame: J a + J̇v; no gravity in it.

    In "world_aligned" the linear part is the acceleration of the point; in "body" and "world" it is
    the spatial acceleration.
    """
    q, v, a = arguments(sys, q=q, v=v, a=a)
    return _motion_kernel(frame_index(sys, name), reference_frame(frame))(*opened(sys, q, v, a))[1]


def frame_jacobian_dot_v(
    sys: System, q: ArrayLike, v: ArrayLike, name: str, frame: str = "world_aligned"
) -> Array:
    """J̇(q, v) v, (6,), in the same frame as J."""
    q, v = arguments(sys, q=q, v=v)
    return _motion_kernel(frame_index(sys, name), reference_frame(frame))(
        *opened(sys, q, v, jnp.zeros_like(v))
    )[1]


def wrench_at_frame(
    sys: System, q: ArrayLike, name: str, wrench: ArrayLike, frame: str = "world_aligned"
) -> Array:
    """f_ext (nb, 6) for one wrench (moment, force) applied at a named frame, in the given frame's axes."""
    (q,) = arguments(sys, q=q)
    wrench = array("wrench", wrench, (6,), "(6,)", sys.dtype)
    i, t = frame_index(sys, name), sys.topology
    frame = reference_frame(frame)
    body = t.frame_bodies[i]
    if body < 0:
        return jnp.zeros((sys.nb, 6), sys.dtype)
    R, p = _frame_poses(*opened(sys, q))
    n, f = wrench[:3], wrench[3:]
    if frame == "body":
        n, f = R[i] @ n, R[i] @ f
    arm = p[i] if frame != "world" else jnp.zeros_like(p[i])
    n = n + jnp.cross(arm - p[t.body_frames[body]], f)
    mine = (np.arange(sys.nb) == body)[:, None]
    return jnp.where(mine, jnp.concatenate([n, f]), 0)


@kernel(lambda sys, q: [(len(sys.frame_names), 3, 3), (len(sys.frame_names), 3)])
def _frame_poses(sys: System, q):
    t, nodes = sys.topology, nodes_of(sys.topology)
    joints, roots = joint_transforms(sys, q), kin.root_states(sys, q)
    R, p = kin.poses(sys, joints, roots, q)
    p = p + gather(roots.p, np.concatenate([nodes.root, np.arange(nodes.nroots)]).astype(int))
    where = np.array([nodes.body_slot[b] if b >= 0 else nodes.size for b in t.frame_bodies], int)
    R, p = gather((R, p), where)
    p = p + R @ vec3(sys.frame_position)
    R = R @ rotation_from_quaternion(*(sys.frame_quaternion[:, k] for k in range(4)))
    like = p.x + 0 * R.a.x
    return jnp.stack([stack(row, 1, like) for row in R], 1), stack(p, 1, like)


@lru_cache(maxsize=4096)
def _jacobian_kernel(frame: int, reference: str):
    return kernel(lambda sys, q: (6, sys.nv))(partial(_jacobian, frame, reference))


@lru_cache(maxsize=4096)
def _motion_kernel(frame: int, reference: str):
    return kernel(lambda *_: [(6,), (6,)])(partial(_motion, frame, reference))


@lru_cache(maxsize=4096)
def path_to_root(t: Topology, body: int) -> np.ndarray:
    """Degrees of freedom that move a body, as a mask (nv,)."""
    mask = np.zeros(t.nv, bool)
    if body >= 0:
        parent_dof = ancestor_pairs(t)[2]
        d = t.v_starts[body + 1] - 1
        while d >= 0:
            mask[d] = True
            d = int(parent_dof[d])
    return mask


def _frame_in_tree(sys: System, frame: int, R_all: Mat3, p_all: Vec3):
    """Slot of a frame's body, its rotation, its position from the root's origin and from the node's."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    body = t.frame_bodies[frame]
    slot = int(nodes.body_slot[body]) if body >= 0 else nodes.size
    R, p = gather((R_all, p_all), slot)
    r = R @ vec3(sys.frame_position[frame], 0)
    R = R @ rotation_from_quaternion(*(sys.frame_quaternion[frame, k] for k in range(4)))
    root = int(nodes.root[slot]) if slot < nodes.size else slot - nodes.size
    return slot, root, R, p + r, r


def _jacobian(frame: int, reference: str, sys: System, q):
    joints, roots = joint_transforms(sys, q), kin.root_states(sys, q)
    R_all, p_all = kin.poses(sys, joints, roots, q)
    _, root, R, p, _ = _frame_in_tree(sys, frame, R_all, p_all)
    N = nodes_of(sys.topology).size
    S = column(joints, gather(R_all, slice(0, N)))
    S, origin = columns_by_dof(sys, S, gather(p_all, slice(0, N)), roots)
    mask = jnp.asarray(path_to_root(sys.topology, sys.topology.frame_bodies[frame]), q.dtype)[:, None]
    target = Vec3(*(x[None] for x in p))
    if reference == "world":  # about the world's origin: minus the root's position
        target = Vec3(*(-x[root][None] for x in roots.p))
    J = S.at(target - origin) * mask
    if reference == "body":
        Rt = Mat3(*(Vec3(*(x[None] for x in row)) for row in R.T))
        J = Motion(Rt @ J.ang, Rt @ J.lin)
    return stack([*J.ang, *J.lin], 0, J.ang.x)


@kernel(lambda sys, q, point: (6, sys.topology.v_starts[-1]))
def _freedom_twists(sys: System, q, point):
    nodes = nodes_of(sys.topology)
    joints, roots = joint_transforms(sys, q), kin.root_states(sys, q)
    R, p = gather(kin.poses(sys, joints, roots, q), slice(0, nodes.size))
    S, origin = columns_by_dof(sys, column(joints, R), p, roots)
    slot = np.asarray(nodes.slot_of_dof)
    inner = np.minimum(slot, nodes.size - 1)
    root = np.where(slot < nodes.size, np.append(nodes.root, 0)[inner], 1 + (slot - nodes.size) // 6)
    target = Vec3(*(point[k : k + 1] for k in range(3))) - gather(roots.p, root.astype(int))
    J = S.at(target - origin)
    like = J.lin.x + 0 * J.ang.x
    return stack([*J.ang, *J.lin], 0, like)


def _motion(frame: int, reference: str, sys: System, q, v, a):
    """Velocity and its derivative J a + J̇v of one frame."""
    still = jnp.zeros((3, 1), q.dtype)
    _, roots, A0, R, V, A, r = kin.motion_pass(sys, q, v, a, still)
    zero3 = jax.tree.map(jnp.zeros_like, roots.p)
    R_all, V_all, A_all = kin.join((R, V, A), kin.broadcast((roots.R, roots.V, A0), q))
    if reference == "world":
        joints = joint_transforms(sys, q)
        p_all = kin.poses(sys, joints, roots, q).p
    else:
        p_all = kin.join(jax.tree.map(jnp.zeros_like, r), kin.broadcast(zero3, q))
    slot, root, R_f, p, r_f = _frame_in_tree(sys, frame, R_all, p_all)
    V_f, A_f = gather((V_all, A_all), slot)
    if reference == "world":
        to_origin = r_f - p - gather(roots.p, root)  # from the node's origin to the world's
        V_f, A_f = V_f.at(to_origin), A_f.at(to_origin)
    else:
        V_f, A_f = V_f.at(r_f), A_f.at(r_f)
        if reference == "world_aligned":
            A_f = Motion(A_f.ang, A_f.lin + V_f.ang.cross(V_f.lin))
        else:
            V_f = Motion(R_f.T @ V_f.ang, R_f.T @ V_f.lin)
            A_f = Motion(R_f.T @ A_f.ang, R_f.T @ A_f.lin)
    like = V_f.ang.x + 0 * A_f.ang.x
    return stack([*V_f.ang, *V_f.lin], 0, like), stack([*A_f.ang, *A_f.lin], 0, like)
