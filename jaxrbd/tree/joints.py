"""The transform of every joint and its column, for all nodes at once, batch last.

Two forms: `joint_transforms` in the frames of the bodies, for what is asked in world axes, and
`link_transforms` in frames whose z axis is the joint's, for the dynamics.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather, put
from jaxrbd.joints import PITCH, Geometry
from jaxrbd.joints.record import path_motion
from jaxrbd.model.system import System
from jaxrbd.tree.node import Node
from jaxrbd.tree.nodes import Nodes, nodes_of
from jaxrbd.tree.spatial import EYE3, ZERO3, Mat3, Motion, Vec3, rotation_from_quaternion, skew, vec3


class Joints(NamedTuple):
    """Local transform of every node: pose X in its parent node, and its axis in its own frame."""

    R: Mat3
    p: Vec3
    axis: Vec3
    slide: object  # how far the column translates per unit: 0 (symbolic), or an array
    turn: object  # 1 (symbolic) if every node turns, else an array of 0 and 1
    bias: object  # Motion in node axes that runs on manifolds and bent columns add to S-dot v; or None
    bent: Bent | None = None  # if some column depends on q: all columns, in node axes


class Bent(NamedTuple):
    """Columns of all nodes where some depend on q: S, and its slope dS/dq (zero for the others)."""

    S: Motion
    slope: Motion


def column(joints: Joints, R: Mat3) -> Motion:
    """The column S of nodes in world axes about their own origin."""
    if joints.bent is not None:
        return joints.bent.S.rotate(R)
    s = R @ joints.axis
    ang = s if isinstance(joints.turn, int) else s * joints.turn
    return Motion(ang, ZERO3 if isinstance(joints.slide, int) else s * joints.slide)


def joint_transforms(sys: System, q, v=None, nodes: Nodes | None = None) -> Joints:
    """Local transforms for the configuration q: (nq, B). With v, the bias of non-serial runs too."""
    nodes = nodes_of(sys.topology) if nodes is None else nodes
    axis = _axes(sys, nodes)
    Rp, pp = _placements(sys, nodes)
    theta = gather(q, nodes.q)
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
    bent = None
    if nodes.paths:
        S = Motion(axis * turn, axis * slide)
        R, pp, bent = _bent_joints(sys, nodes, q, Rp, R, pp, S)
        bias = _with_bends(nodes, v, bias, bent)
    return Joints(R, pp, axis, slide, turn, bias, bent)


class Links(NamedTuple):
    """Every node in its own frame, whose z axis is the joint's."""

    node: Node
    bias: Motion | None  # as in Joints
    A: Mat3  # node frame in the frame of the joint (of the body, for the last node of a run)


def link_transforms(sys: System, q, v=None, nodes: Nodes | None = None) -> Links:
    """Local transforms with the joint axis along z, so that S = (0, 0, 1; 0) picks columns without rounding.

    Eliminating a joint then reads its inertia off one matrix entry; in any other axes that small number
    is the difference of large ones, which costs float32 three digits on slender arms.
    """
    nodes = nodes_of(sys.topology) if nodes is None else nodes
    A = _frame_about(_axes(sys, nodes))
    Rp, pp = _placements(sys, nodes)
    eye = lambda i, j: jnp.full((nodes.nroots,) + A.a.x.shape[1:], float(i == j), q.dtype)  # noqa: E731
    above = Mat3(
        *(
            Vec3(*(gather(jnp.concatenate([A[i][j], eye(i, j)]), nodes.parent) for j in range(3)))
            for i in range(3)
        )
    )
    to_parent = above.T @ Rp
    C, p = to_parent @ A, above.T @ pp
    theta = gather(q, nodes.q)
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
    S = Motion(Vec3(0, 0, turn), Vec3(0, 0, slide))
    if nodes.paths:
        R, p, bent = _bent_joints(sys, nodes, q, to_parent, R, p, S, A)
        S, bias = bent.S, _with_bends(nodes, v, bias, bent)
    return Links(Node(R, p, S), bias, A)


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
    if (nodes.slides == PITCH).any():
        slide = slide + _column(nodes.slides == PITCH, dtype) * gather(sys.pitch, nodes.body)
    return slide


def _unit(a: Vec3) -> Vec3:
    return a * (1 / jnp.sqrt(a.dot(a)))


def _axes(sys: System, nodes: Nodes) -> Vec3:
    a = _unit(vec3(sys.axis))
    kinds = set(nodes.axis[nodes.live].tolist())
    if kinds <= {0}:
        return gather(a, nodes.body)
    b = vec3(sys.axis2)
    normal = a.cross(b)
    nb = sys.topology.nb
    eye = np.eye(3)
    # planar joints slide along axis2 made orthogonal to the axis; universal ones turn about axis2 itself
    width = normal.x.shape[1:]  # of a batch in which one of the axes, or both, are each state's own
    join = lambda *parts: jnp.concatenate([jnp.broadcast_to(p, p.shape[:1] + width) for p in parts])  # noqa: E731
    components = [join(a[k], _unit(b)[k], _unit(normal)[k], _column(eye[k], a[k].dtype)) for k in range(3)]
    index = np.where(nodes.axis < 3, nodes.axis * nb + nodes.body, 3 * nb + nodes.axis - 3)
    return gather(Vec3(*components), index)


def _placements(sys: System, nodes: Nodes):
    R = rotation_from_quaternion(*(sys.joint_quaternion[:, k] for k in range(4)))
    p = vec3(sys.joint_position)
    starts = nodes.first & nodes.live
    if starts.all():
        return gather(R, nodes.body), gather(p, nodes.body)
    nb = sys.topology.nb
    index = np.where(starts, nodes.body, nb)
    row = lambda x, value: gather(jnp.concatenate([x, jnp.full_like(x[:1], value)]), index)  # noqa: E731
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
    turned = gather(Rp, s) @ rotation_from_quaternion(*(gather(q, start + k) for k in range(4)))
    turned = turned if A is None else turned @ gather(A, s)
    full = lambda x: jnp.broadcast_to(x, (nodes.size,) + q.shape[1:])  # noqa: E731
    R = jax.tree.map(lambda x, y: put(full(x), s, y), R, turned)
    if len(f):
        moved = gather(Rp, f) @ Vec3(*(gather(q, nodes.q[f] + k) for k in range(3)))
        pp = jax.tree.map(lambda x, y: put(full(x), f, gather(x, f) + y), pp, moved)
    return R, pp


def _bent_joints(sys: System, nodes: Nodes, q, Rp: Mat3, R: Mat3, pp: Vec3, S: Motion, A: Mat3 | None = None):
    """Put poses and columns of the nodes that follow paths among those of the others; `Rp`, `A` as above.

    A path is written for one number q: two vmaps bring it to the slots that follow it and to the batch.
    """
    wide = lambda x, n: jnp.broadcast_to(jnp.asarray(x, q.dtype), (n,) + q.shape[1:])  # noqa: E731
    R, pp, S = jax.tree.map(lambda x: wide(x, nodes.size), (R, pp, S))
    slope = jax.tree.map(jnp.zeros_like, S)
    axes = _unit(vec3(sys.axis)), _unit(vec3(sys.axis2))
    vector = lambda x, at=0: Vec3(*(x[..., at + k] for k in range(3)))  # noqa: E731
    for path, s in nodes.paths:
        a, b = (jnp.stack([wide(x, len(s)) for x in gather(axis, nodes.body[s])], -1) for axis in axes)
        geometry = Geometry(a, b, wide(gather(sys.pitch, nodes.body[s]), len(s)))
        follow = jax.vmap(jax.vmap(partial(path_motion, path)))
        R_own, p_own, *columns = follow(gather(q, nodes.q[s]), geometry)
        up, down = gather(Rp, s), EYE3 if A is None else gather(A, s)
        R_own = up @ Mat3(*(vector(R_own[..., k, :]) for k in range(3))) @ down
        p_own = gather(pp, s) + up @ vector(p_own)
        S_own, bend = (Motion(vector(x), vector(x, 3)).rotate(down.T) for x in columns)
        place = lambda x, y, s=s: put(x, s, y)  # noqa: E731
        R, pp, S, slope = jax.tree.map(place, (R, pp, S, slope), (R_own, p_own, S_own, bend))
    return R, pp, Bent(S, slope)


def _with_bends(nodes: Nodes, v, bias: Motion | None, bent: Bent) -> Motion | None:
    """The bias with S'(q) q̇², by which bent columns change within their nodes."""
    if v is None:
        return bias
    rate = gather(v, nodes.v)
    bend = bent.slope * (rate * rate)
    return bend if bias is None else bias + bend


def _run_bias(nodes: Nodes, v) -> Motion:
    """Correction of the serial rule S-dot = V_node x S for runs whose columns move with the body.

    Column i of a spherical or free run has S-dot_i = V_body x S_i; V_node x S_i v_i lacks the columns
    k > i of the same run: sum of (S_k v_k) x (S_i v_i), constant in node axes.
    """
    e = np.eye(3)
    # terms (slot, i, k, sign) by component
    parts: list[list[list[tuple[int, int, int, float]]]] = [[[] for _ in range(3)] for _ in range(2)]
    for s in nodes.quaternion_first:
        v0, columns = int(nodes.v[s]), 6 if s in nodes.free_first else 3
        for i in range(3):  # only angular columns are moved by later ones
            for k in range(i + 1, columns):
                cross = np.cross(e[k % 3], e[i])
                c = int(np.flatnonzero(cross)[0]) if cross.any() else -1
                if c >= 0:
                    parts[k // 3][c].append((int(nodes.slot_of_dof[v0 + i]), v0 + i, v0 + k, cross[c]))

    def component(terms):
        if not terms:
            return 0
        slots, vi, vk, sign = (np.array(x) for x in zip(*terms))
        # each slot has at most one term per component: place products by a gather
        products = v[vi] * v[vk] * _column(sign, v.dtype)
        order = np.full(nodes.size, len(terms))
        order[slots] = np.arange(len(terms))
        return gather(jnp.concatenate([products, jnp.zeros_like(products[:1])]), order)

    return Motion(*(Vec3(*(component(terms) for terms in part)) for part in parts))


def _column(x, dtype):
    return jnp.asarray(np.asarray(x, float), dtype)[:, None]
