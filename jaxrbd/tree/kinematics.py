"""Roots, poses, inertias and forces of all nodes at once, batch last; joints are in `joints`.

What is not recursive is computed here for all links as arrays, between the scans. Positions are
relative to the root body's origin (never the world's: robots walk kilometres away); axes are the
world's everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather, gather_sum, put
from jaxrbd.engine.scan import outward
from jaxrbd.model.system import System
from jaxrbd.tree.joints import Joints, Links, column, joint_transforms
from jaxrbd.tree.node import Node
from jaxrbd.tree.nodes import Nodes, nodes_of
from jaxrbd.tree.spatial import (
    ZERO3,
    Force,
    Inertia,
    Mat3,
    Motion,
    Sym3,
    Vec3,
    rotation_from_quaternion,
    vec3,
)


class Roots(NamedTuple):
    """Pose and velocity of the roots, world first, (nroots, B)."""

    R: Mat3
    p: Vec3
    V: Motion | None  # None where no velocity was given


def root_states(sys: System, q, v=None) -> Roots:
    """Rotation, world position and velocity (world axes, own origin) of world and free roots."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    qi = np.array([t.q_starts[b] for b in nodes.root_bodies], int)
    zero = jnp.zeros((1,) + q.shape[1:], q.dtype)
    with_world = lambda first, rest: jnp.concatenate([first, rest]) if len(qi) else first  # noqa: E731
    R0 = rotation_from_quaternion(*(gather(q, qi + k) for k in range(3, 7)))
    R = Mat3(*(Vec3(*(with_world(zero + float(i == j), R0[i][j]) for j in range(3))) for i in range(3)))
    p = Vec3(*(with_world(zero, gather(q, qi + k)) for k in range(3)))
    return Roots(R, p, None if v is None else root_twists(sys, R, v))


def root_rows(sys: System, x, kind=Motion):
    """Six numbers per free root (velocity, acceleration, force) in its own axes; zero for the world."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    vi = np.array([t.v_starts[b] for b in nodes.root_bodies], int)
    zero = jnp.zeros((1,) + x.shape[1:], x.dtype)
    six = [jnp.concatenate([zero, gather(x, vi + k)]) if len(vi) else zero for k in range(6)]
    return kind(Vec3(*six[:3]), Vec3(*six[3:]))


def root_twists(sys: System, R: Mat3, x):
    """The same in world axes."""
    return root_rows(sys, x).rotate(R)


class Poses(NamedTuple):
    """Rotation and position (from the root's origin) of all slots, then of the roots: (N + nroots, B)."""

    R: Mat3
    p: Vec3


def poses(sys: System, joints: Joints, roots: Roots, q) -> Poses:
    """Forward kinematics at the batch of q: one outward pass."""
    nodes = nodes_of(sys.topology)
    R0, p0 = broadcast((roots.R, roots.p), q)

    def body(parent, joint):
        R, p = parent
        R_loc, p_loc = joint
        return R @ R_loc, p + R @ p_loc

    zero = jax.tree.map(jnp.zeros_like, p0)
    R, p = outward(nodes, body, (joints.R, joints.p), (R0, zero))
    return Poses(join(R, R0), join(p, zero))


def zeros(tree, like):
    """Arrays of zeros over the batch of `like` in place of a tree's leaves."""
    return jax.tree.map(lambda _: jnp.zeros(like.shape[-1:], like.dtype), tree)


def broadcast(tree, like):
    """Broadcast leaves (n, 1) or (n, B) to the batch of `like`."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, x.shape[:-1] + like.shape[-1:]), tree)


def join(at_nodes, at_roots):
    """Rows of nodes, then of roots."""
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), at_nodes, at_roots)


def body_inertias(sys: System) -> Inertia:
    """Inertia of each moving body in its own frame about its own origin, links merged; row nb is zero."""
    t = sys.topology
    n = t.link_count
    R = rotation_from_quaternion(*(sys.frame_quaternion[:n, k] for k in range(4)))
    r = vec3(sys.frame_position[:n])
    m, c = sys.mass, vec3(sys.com)
    I = Sym3(*(sys.inertia[:, k] for k in range(6)))
    # about the link's centre of mass, in body axes; then moved to the body's origin
    about_com = Inertia(m, ZERO3, R.congruence(I))
    linkwise = about_com.from_(r + R @ c)
    if n == 0:
        return jax.tree.map(lambda _: jnp.zeros((t.nb + 1, 1), sys.dtype), linkwise)
    lists = [[i for i in range(n) if t.frame_bodies[i] == b] for b in range(t.nb)] + [[]]
    first = np.array([x[0] if x else n for x in lists])
    several = np.array([b for b, x in enumerate(lists) if len(x) > 1], int)
    most = max(len(x) for x in lists)
    table = np.array([lists[b] + [n] * (most - len(lists[b])) for b in several])

    def merged(x):
        x = jnp.concatenate([x, jnp.zeros_like(x[:1])])
        alone = gather(x, first)  # right for most bodies: one gather instead of as many as links meet
        return put(alone, several, gather_sum(x, table)) if several.size else alone

    return jax.tree.map(merged, linkwise)


def node_inertias(sys: System, bodies: Inertia, nodes: Nodes | None = None) -> tuple[Inertia, Inertia]:
    """The same for nodes (zero unless last of the run) and for roots (world zero), in body axes."""
    t, nodes = sys.topology, nodes_of(sys.topology) if nodes is None else nodes
    index = np.where(nodes.last & nodes.live, nodes.body, t.nb)
    return gather(bodies, index), gather(bodies, np.concatenate([[t.nb], nodes.root_bodies]).astype(int))


def external_forces(sys: System, f_ext, R_all: Mat3, nodes: Nodes | None = None):
    """f_ext (nb, 6, B), at body frame origins, as Force per node and per root about node origins."""
    t, nodes = sys.topology, nodes_of(sys.topology) if nodes is None else nodes
    f = Force(vec3(f_ext[:, :3]), vec3(f_ext[:, 3:]))
    if t.has_offsets:  # the body frame's origin is not the node's
        R = gather(R_all, nodes.body_slot)
        f = f.from_(R @ vec3(gather(sys.frame_position, np.array(t.body_frames, int))))
    pad = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])]), f)
    index = np.where(nodes.last & nodes.live, nodes.body, t.nb)
    return gather(pad, index), gather(pad, np.concatenate([[t.nb], nodes.root_bodies]).astype(int))


def forces_in_links(sys: System, q, f_ext, links: Links, nodes: Nodes | None = None):
    """World-aligned wrenches f_ext in node and root axes: the only use of world orientations in dynamics."""
    nodes, roots = nodes_of(sys.topology) if nodes is None else nodes, root_states(sys, q)
    R = outward(nodes, lambda R, R_loc: R @ R_loc, links.node.R, broadcast(roots.R, q))
    bodies = join(R @ links.A.T, broadcast(roots.R, q))  # rows of last nodes are body axes
    f, f0 = external_forces(sys, f_ext, bodies, nodes)
    return f.rotate(R.T), f0.rotate(roots.R.T)


def motion_pass(sys: System, q, v, a, gravity):
    """World rotations, offsets, velocities and accelerations (world axes, own origins) of nodes and roots."""
    nodes = nodes_of(sys.topology)
    joints, roots = joint_transforms(sys, q, v), root_states(sys, q, v)
    A0 = root_twists(sys, roots.R, a)
    A0 = Motion(A0.ang, Vec3(*(x - gravity[k][None] for k, x in enumerate(A0.lin))))

    def move(parent, x):
        R, V, A, _ = parent
        j, qd, qdd = x
        r = R @ j.p
        R = R @ j.R
        bias = None if j.bias is None else j.bias.rotate(R)
        V, A = Node(None, r, column(j, R)).move(V, A, qd, qdd, bias)
        return R, V, A, r

    start = (roots.R, roots.V, A0, jax.tree.map(jnp.zeros_like, roots.p))
    R, V, A, r = outward(nodes, move, (joints, gather(v, nodes.v), gather(a, nodes.v)), broadcast(start, q))
    return joints, roots, A0, R, V, A, r


def gather_dofs(sys: System, at_nodes, at_roots):
    """One number per degree of freedom, (nv, B), from node values and six values per root."""
    nodes = nodes_of(sys.topology)
    parts = []
    if nodes.size:
        parts.append(at_nodes)
    if len(nodes.root_bodies):
        six = jnp.stack([x[1:] for x in at_roots], 1)
        parts.append(six.reshape((-1,) + six.shape[2:]))
    if not parts:
        return jnp.zeros((0, 1), sys.dtype)
    if len(parts) == 2:
        size = jnp.broadcast_shapes(parts[0].shape[-1:], parts[1].shape[-1:])
        parts = [jnp.broadcast_to(x, x.shape[:-1] + size) for x in parts]
    offset = 0 if nodes.size else nodes.size
    return gather(jnp.concatenate(parts), nodes.slot_of_dof - offset)
