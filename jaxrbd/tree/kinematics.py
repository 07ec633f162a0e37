"""Joint transforms, columns and poses of all nodes at once, batch last.

What is not recursive is computed here for all links as arrays, between the scans. Positions are
relative to the root body's origin (never the world's: robots walk kilometres away); axes are the
world's everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.model.system import System
from jaxrbd.tree.nodes import Nodes, nodes_of
from jaxrbd.tree.scan import outward
from jaxrbd.tree.spatial import (
    ZERO3,
    Force,
    Inertia,
    Mat3,
    Motion,
    Sym3,
    Vec3,
    rotation_from_quaternion,
    skew,
    vec3,
)
from jaxrbd.tree.sweep import put_rows, rows


class Joints(NamedTuple):
    """Local transform of every node: pose X in its parent node, and its axis in its own frame."""

    R: Mat3
    p: Vec3
    axis: Vec3
    slide: object  # how far the column translates per unit: 0 (symbolic), or an array
    turn: object  # 1 (symbolic) if every node turns, else an array of 0 and 1
    bias: object  # Motion in node axes that spherical and inner free runs add to S-dot v; or None


class Roots(NamedTuple):
    """Pose and velocity of the roots, world first, (nroots, B)."""

    R: Mat3
    p: Vec3
    V: Motion


def column(joints: Joints, R: Mat3) -> Motion:
    """The column S of nodes in world axes about their own origin."""
    s = R @ joints.axis
    ang = s if isinstance(joints.turn, int) else s * joints.turn
    return Motion(ang, ZERO3 if isinstance(joints.slide, int) else s * joints.slide)


def joint_transforms(sys: System, q, v=None) -> Joints:
    """Local transforms for the configuration q: (nq, B). With v, the bias of non-serial runs too."""
    nodes = nodes_of(sys.topology)
    axis = _axes(sys, nodes)
    Rp, pp = _placements(sys, nodes)
    theta = rows(q, nodes.q)
    turn_moves = nodes.moves & (nodes.turns == 1)
    R = Rp
    if turn_moves.any():
        # R = Rp (1 + sin [a] + (1 - cos) [a]^2): three constant matrices, two trigonometric arrays
        K1 = Rp @ skew(axis)
        K2 = K1 @ skew(axis)
        s, c1 = jnp.sin(theta), 1 - jnp.cos(theta)
        if not turn_moves.all():
            mask = _column(turn_moves, q.dtype)
            s, c1 = s * mask, c1 * mask
        R = Rp + K1 * s + K2 * c1
    slide = _slides(sys, nodes, q.dtype)
    if nodes.slides.any():
        pp = pp + (Rp @ axis) * (theta * slide * _column(nodes.moves, q.dtype))
    turn = 1 if (nodes.turns[nodes.live] == 1).all() else _column(nodes.turns, q.dtype)
    if len(nodes.quaternion_first):
        R, pp = _quaternion_joints(nodes, q, Rp, R, pp)
    bias = _run_bias(nodes, v) if v is not None and len(nodes.quaternion_first) else None
    return Joints(R, pp, axis, slide, turn, bias)


class Links(NamedTuple):
    """Every node in its own frame, whose z axis is the joint's: pose in the parent node, column, bias."""

    R: Mat3
    p: Vec3
    S: Motion
    bias: object  # Motion or None, as in Joints
    A: Mat3  # node frame in the frame of the joint (of the body, for the last node of a run)


def link_transforms(sys: System, q, v=None) -> Links:
    """Local transforms with the joint axis along z, so that S = (0, 0, 1; 0) picks columns without rounding.

    Eliminating a joint then reads its inertia off one matrix entry; in any other axes that small number
    is the difference of large ones, which costs float32 three digits on slender arms.
    """
    nodes = nodes_of(sys.topology)
    A = _frame_about(_axes(sys, nodes))
    Rp, pp = _placements(sys, nodes)
    eye = lambda i, j: jnp.full((nodes.nroots,) + A.a.x.shape[1:], float(i == j), q.dtype)  # noqa: E731
    above = Mat3(
        *(
            Vec3(*(rows(jnp.concatenate([A[i][j], eye(i, j)]), nodes.parent) for j in range(3)))
            for i in range(3)
        )
    )
    to_parent = above.T @ Rp
    C, p = to_parent @ A, above.T @ pp
    theta = rows(q, nodes.q)
    turns, slides = nodes.moves & (nodes.turns == 1), nodes.slides.any()
    R = C
    if turns.any():
        s, c = jnp.sin(theta), jnp.cos(theta)
        if not turns.all():
            mask = _column(turns, q.dtype)
            s, c = s * mask, 1 - (1 - c) * mask
        R = Mat3(*(Vec3(row.x * c + row.y * s, row.y * c - row.x * s, row.z) for row in C))
    slide = _slides(sys, nodes, q.dtype)
    if slides:
        p = p + Vec3(C.a.z, C.b.z, C.c.z) * (theta * slide * _column(nodes.moves, q.dtype))
    if len(nodes.quaternion_first):
        R, p = _quaternion_joints(nodes, q, to_parent, R, p, A)
    turn = 1 if (nodes.turns[nodes.live] == 1).all() else _column(nodes.turns, q.dtype)
    bias = None
    if v is not None and len(nodes.quaternion_first):
        bias = _run_bias(nodes, v).rotate(A.T)
    return Links(R, p, Motion(Vec3(0, 0, turn), Vec3(0, 0, slide)), bias, A)


def _frame_about(z: Vec3) -> Mat3:
    """A rotation whose third column is the unit vector z, without a pole (Duff et al., 2017)."""
    sign = jnp.where(z.z >= 0, 1.0, -1.0).astype(z.z.dtype)
    a = -1 / (sign + z.z)
    b = z.x * z.y * a
    x = Vec3(1 + sign * z.x * z.x * a, sign * b, -sign * z.x)
    y = Vec3(b, sign + z.y * z.y * a, -z.y)
    return Mat3(*(Vec3(x[k], y[k], z[k]) for k in range(3)))


def _slides(sys: System, nodes: Nodes, dtype):
    """How far each column translates per unit: the symbolic 0 if none does."""
    if not nodes.slides.any():
        return 0
    slide = _column(nodes.slides == 1, dtype)
    if (nodes.slides == 2).any():
        slide = slide + _column(nodes.slides == 2, dtype) * rows(sys.pitch, nodes.body)
    return slide


def root_states(sys: System, q, v=None) -> Roots:
    """Rotation, world position and velocity (world axes, own origin) of world and free roots."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    qi = np.array([t.q_starts[b] for b in nodes.root_bodies], int)
    zero = jnp.zeros((1,) + q.shape[1:], q.dtype)
    with_world = lambda first, rest: jnp.concatenate([first, rest]) if len(qi) else first  # noqa: E731
    R0 = rotation_from_quaternion(*(rows(q, qi + k) for k in range(3, 7)))
    R = Mat3(*(Vec3(*(with_world(zero + float(i == j), R0[i][j]) for j in range(3))) for i in range(3)))
    p = Vec3(*(with_world(zero, rows(q, qi + k)) for k in range(3)))
    return Roots(R, p, None if v is None else root_twists(sys, R, v))


def root_rows(sys: System, x, kind=Motion):
    """Six numbers per free root (velocity, acceleration, force) in its own axes; zero for the world."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    vi = np.array([t.v_starts[b] for b in nodes.root_bodies], int)
    zero = jnp.zeros((1,) + x.shape[1:], x.dtype)
    six = [jnp.concatenate([zero, rows(x, vi + k)]) if len(vi) else zero for k in range(6)]
    return kind(Vec3(*six[:3]), Vec3(*six[3:]))


def root_twists(sys: System, R: Mat3, x):
    """The same in world axes."""
    return root_rows(sys, x).rotate(R)


class Poses(NamedTuple):
    """Rotation and position (from the root's origin) of all slots, then of the roots: (N + nroots, B)."""

    R: Mat3
    p: Vec3


def poses(sys: System, joints: Joints, roots: Roots) -> Poses:
    """Forward kinematics: one outward pass."""
    nodes = nodes_of(sys.topology)

    def body(parent, joint):
        R, p = parent
        R_loc, p_loc = joint
        return R @ R_loc, p + R @ p_loc

    zero = jax.tree.map(jnp.zeros_like, roots.p)
    R, p = outward(nodes, body, (joints.R, joints.p), (roots.R, zero))
    return Poses(join(R, roots.R), join(p, zero))


def zeros(tree, like):
    """Arrays of zeros over the batch of `like` in place of a tree's leaves."""
    return jax.tree.map(lambda _: jnp.zeros(like.shape[-1:], like.dtype), tree)


def broadcast(tree, like):
    """Broadcast leaves (n, 1) or (n, B) to the batch of `like`."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, x.shape[:-1] + like.shape[-1:]), tree)


def join(at_nodes, at_roots):
    """Rows of nodes, then of roots."""
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), at_nodes, at_roots)


def take(tree, index):
    """Rows of every array leaf; symbolic zeros stay."""
    pick = rows if isinstance(index, np.ndarray) else lambda x, i: x[i]
    return jax.tree.map(lambda x: x if isinstance(x, int) else pick(x, index), tree)


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
    lists = [[i for i in range(n) if t.frame_bodies[i] == b] for b in range(t.nb)] + [[]]
    most = max([1] + [len(x) for x in lists])
    table = np.array([x + [n] * (most - len(x)) for x in lists])
    if n == 0:
        return jax.tree.map(lambda _: jnp.zeros((t.nb + 1, 1), sys.dtype), linkwise)
    parts, treedef = jax.tree.flatten(linkwise)
    every = jnp.stack(jnp.broadcast_arrays(*parts), 1)  # one gather for all ten numbers
    every = jnp.concatenate([every, jnp.zeros_like(every[:1])])
    total = jnp.sum(rows(every, table), 1)
    return jax.tree.unflatten(treedef, [total[:, k] for k in range(len(parts))])


def node_inertias(sys: System, bodies: Inertia) -> tuple[Inertia, Inertia]:
    """The same for nodes (zero unless last of the run) and for roots (world zero), in body axes."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    index = np.where(nodes.last & nodes.live, nodes.body, t.nb)
    return take(bodies, index), take(bodies, np.concatenate([[t.nb], nodes.root_bodies]).astype(int))


def external_forces(sys: System, f_ext, R_all: Mat3):
    """f_ext (nb, 6, B), at body frame origins, as Force per node and per root about node origins."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    f = Force(vec3(f_ext[:, :3]), vec3(f_ext[:, 3:]))
    if t.has_offsets:  # the body frame's origin is not the node's
        R = take(R_all, nodes.body_slot)
        f = f.from_(R @ vec3(rows(sys.frame_position, np.array(t.body_frames, int))))
    pad = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])]), f)
    index = np.where(nodes.last & nodes.live, nodes.body, t.nb)
    return take(pad, index), take(pad, np.concatenate([[t.nb], nodes.root_bodies]).astype(int))


def forces_in_links(sys: System, q, f_ext, links: Links):
    """World-aligned wrenches f_ext in node and root axes: the only use of world orientations in dynamics."""
    nodes, roots = nodes_of(sys.topology), root_states(sys, q)
    R = outward(nodes, lambda R, R_loc: R @ R_loc, links.R, broadcast(roots.R, q))
    bodies = join(R @ links.A.T, broadcast(roots.R, q))  # rows of last nodes are body axes
    f, f0 = external_forces(sys, f_ext, bodies)
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
        S = column(j, R)
        V = V.at(r) + S * qd
        A = A.at(r) + S * qdd + V.cross(S * qd)
        return R, V, A if j.bias is None else A + j.bias.rotate(R), r

    start = (roots.R, roots.V, A0, jax.tree.map(jnp.zeros_like, roots.p))
    R, V, A, r = outward(nodes, move, (joints, rows(v, nodes.v), rows(a, nodes.v)), broadcast(start, q))
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
    return rows(jnp.concatenate(parts), nodes.slot_of_dof - offset)


def _axes(sys: System, nodes: Nodes) -> Vec3:
    unit = lambda a: a * (1 / jnp.sqrt(a.dot(a)))  # noqa: E731
    a = unit(vec3(sys.axis))
    kinds = set(nodes.axis[nodes.live].tolist())
    if kinds <= {0}:
        return take(a, nodes.body)
    b = vec3(sys.axis2)
    normal = a.cross(b)
    nb = sys.topology.nb
    eye = np.eye(3)
    # planar joints slide along axis2 made orthogonal to the axis; universal ones turn about axis2 itself
    components = [
        jnp.concatenate(
            [
                a[k],
                unit(b)[k],
                unit(normal)[k],
                jnp.broadcast_to(_column(eye[k], a[k].dtype), (3,) + a[k].shape[1:]),
            ]
        )
        for k in range(3)
    ]
    index = np.where(nodes.axis < 3, nodes.axis * nb + nodes.body, 3 * nb + nodes.axis - 3)
    return take(Vec3(*components), index)


def _placements(sys: System, nodes: Nodes):
    R = rotation_from_quaternion(*(sys.joint_quaternion[:, k] for k in range(4)))
    p = vec3(sys.joint_position)
    starts = nodes.first & nodes.live
    if starts.all():
        return take(R, nodes.body), take(p, nodes.body)
    nb = sys.topology.nb
    index = np.where(starts, nodes.body, nb)
    row = lambda x, value: rows(jnp.concatenate([x, jnp.full_like(x[:1], value)]), index)  # noqa: E731
    return (
        Mat3(*(Vec3(*(row(R[i][j], float(i == j)) for j in range(3))) for i in range(3))),
        Vec3(*(row(x, 0.0) for x in p)),
    )


def _quaternion_joints(nodes: Nodes, q, Rp: Mat3, R: Mat3, pp: Vec3, A: Mat3 | None = None):
    """Put the rotation (and for inner free joints the position) of q into the first node of the run.

    `Rp` leads from the joint's frame to the parent's; `A`, if given, from the node's to the joint's.
    """
    s, f = nodes.quaternion_first, nodes.free_first
    start = nodes.q[s] + np.where(np.isin(s, f), 3, 0)
    turned = take(Rp, s) @ rotation_from_quaternion(*(rows(q, start + k) for k in range(4)))
    turned = turned if A is None else turned @ take(A, s)
    full = lambda x: jnp.broadcast_to(x, (nodes.size,) + q.shape[1:])  # noqa: E731
    R = jax.tree.map(lambda x, y: put_rows(full(x), s, y), R, turned)
    if len(f):
        moved = take(Rp, f) @ Vec3(*(rows(q, nodes.q[f] + k) for k in range(3)))
        pp = jax.tree.map(lambda x, y: put_rows(full(x), f, rows(x, f) + y), pp, moved)
    return R, pp


def _run_bias(nodes: Nodes, v) -> Motion:
    """Correction of the serial rule S-dot = V_node x S for runs whose columns move with the body.

    Column i of a spherical or free run has S-dot_i = V_body x S_i; V_node x S_i v_i lacks the columns
    k > i of the same run: sum of (S_k v_k) x (S_i v_i), constant in node axes.
    """
    e = np.eye(3)
    parts = [[[] for _ in range(3)] for _ in range(2)]  # terms (slot, i, k, sign) by component
    slot_of_v = {int(nodes.v[x]): int(x) for x in np.flatnonzero(nodes.live)}
    for s in nodes.quaternion_first:
        v0, columns = int(nodes.v[s]), 6 if s in nodes.free_first else 3
        for i in range(3):  # only angular columns are moved by later ones
            for k in range(i + 1, columns):
                cross = np.cross(e[k % 3], e[i])
                c = int(np.flatnonzero(cross)[0]) if cross.any() else -1
                if c >= 0:
                    parts[k // 3][c].append((slot_of_v[v0 + i], v0 + i, v0 + k, cross[c]))

    def component(terms):
        if not terms:
            return 0
        slots, vi, vk, sign = (np.array(x) for x in zip(*terms))
        # each slot has at most one term per component: place products by a gather
        products = v[vi] * v[vk] * _column(sign, v.dtype)
        order = np.full(nodes.size, len(terms))
        order[slots] = np.arange(len(terms))
        return rows(jnp.concatenate([products, jnp.zeros_like(products[:1])]), order)

    return Motion(*(Vec3(*(component(terms) for terms in part)) for part in parts))


def _column(x, dtype):
    return jnp.asarray(np.asarray(x, float), dtype)[:, None]
