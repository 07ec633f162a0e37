"""Rows φ(q) = 0 that close kinematic loops, and what follows from them: K, k, and the solved rows of G and g.

Poses are taken from the body that a cluster hangs on, so a loop knows nothing of the rest of the robot.
Clusters of one group have the same rows; they stand side by side, (clusters, B). Velocity rows K q̇ = 0 are

- connect: the velocities of two points agree (3);  distance: their distance stays (1);
- weld: and the angular velocities (3 + 3);  hinge: and those across the z axis of the first frame (3 + 2);
- couplings and a user's φ: the derivative of their own equation.

k = -K̇ q̇. The rows are solved for the closing degrees of freedom by least squares, since redundant ones (a
spatial hinge in a planar linkage) agree with each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.model.system import System
from jaxrbd.tree.joints import Joints, column, joint_transforms
from jaxrbd.tree.mechanism import Group, Mechanism, coordinates
from jaxrbd.tree.node import Node
from jaxrbd.tree.nodes import nodes_of, some_nodes
from jaxrbd.tree.spatial import ZERO3, Mat3, Motion, Vec3, rotation_from_quaternion, vec3


class Rows(NamedTuple):
    """Of a group, every number (clusters, B). Lists by row, or by closing dof."""

    error: list
    K: list[list]  # by row, then by local dof; the integer 0 where a row has no entry
    G: list[list]  # by closing dof, then by lane
    g: list | None
    newton: list  # change of the closing dofs that mends the error to first order
    pivot: Any  # smallest pivot of the closing columns, relative to the largest


class Row(NamedTuple):
    error: Any
    K: dict[int, Any]
    k: Any  # None where no velocity was given


class End(NamedTuple):
    """One side of a loop: pose, the columns that move it, and its motion without accelerations of joints."""

    R: Mat3
    x: Vec3
    columns: dict[int, Motion]  # about x
    w: Vec3
    v: Vec3
    dw: Vec3
    dv: Vec3


def loop_rows(sys: System, m: Mechanism, group: Group, q, explicit, v=None, bent=None) -> Rows:
    """The rows of a group at the tree's q; with the tree's v also g, where explicit relations add `bent` to
    it.

    `explicit`: G from kept degrees of freedom to all, as in `loop_maps`.
    """
    rows = _apart(_rows(sys, m, group, q, v), q)
    n = len(group.dofs[0])
    K = [[row.K.get(d, 0) for d in range(n)] for row in rows]
    kept = _kept_columns(group, K, explicit, m)
    solve = _least_squares(kept, group.closing)
    lanes = [[-line[d] for line in kept] for d in group.independent]
    solutions = solve([*lanes, [-row.error for row in rows]])
    G = [list(line) for line in zip(*solutions[:-1])] if lanes else [[] for _ in group.closing]
    g = None
    if v is not None:
        given = [d for d in range(n) if d not in group.kept]
        short = []
        for row, line in zip(rows, K):
            k = row.k
            for d in given:
                if not isinstance(line[d], int):
                    k = k - line[d] * gather(bent, group.dofs[:, d])
            short.append(k)
        (g,) = solve([short])
    return Rows([row.error for row in rows], K, G, g, solutions[-1], solve.pivot)


def _apart(rows: list[Row], q) -> list[Row]:
    """The rows, computed once: what follows would otherwise compute them anew for each of its numbers."""
    leaves, treedef = jax.tree.flatten([(row.error, row.K, row.k) for row in rows])
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in leaves))
    (held,) = settled(q, jnp.stack([jnp.broadcast_to(x, shape) for x in leaves]))
    return [Row(*x) for x in jax.tree.unflatten(treedef, list(held))]


def settled(q, *arrays):
    """The arrays (n, ..., B) themselves, out of a branch that is always taken, which XLA does not know.

    Code without a loop fuses with what follows it, which then computes it anew for every number that it reads
    (under `configure_cpu`, a batch of 64 four-bars: `integrate` took 3.6 ms instead of 0.12).
    """
    x = q.reshape(-1)[0] if q.size else jnp.zeros((), q.dtype)
    never = (x > 1) & (x < 0)
    return jax.lax.cond(~never, lambda x: x, lambda x: tuple(jnp.sort(y, 0) for y in x), arrays)


def _kept_columns(group: Group, K, explicit, m: Mechanism):
    """K by the dofs that are kept: those that explicit relations give pass their columns on."""
    given = [d for d in range(len(group.dofs[0])) if d not in group.kept]
    if not given:
        return K
    lane = {d: k for k, d in enumerate(group.kept)}
    found = []
    for line in K:
        new = list(line)
        for d in given:
            if isinstance(line[d], int):
                continue
            for to, k in lane.items():
                share = line[d] * gather(explicit, group.dofs[:, d])[:, k]
                new[to] = share if isinstance(new[to], int) else new[to] + share
        found.append(new)
    return found


class _least_squares:
    """Least squares in the closing columns of K, by modified Gram-Schmidt: right-hand sides by rows ->
    solutions.
    """

    def __init__(self, K, closing):
        zero = jnp.zeros_like(next(x for line in K for x in line if not isinstance(x, int)))
        columns = [[line[d] + zero for line in K] for d in closing]
        self.Q: list[list] = []
        self.R: list[list] = []
        norms = []
        tiny = jnp.finfo(zero.dtype).tiny
        for a in columns:
            r = []
            for u in self.Q:
                r.append(_dot(u, a))
                a = [x - r[-1] * y for x, y in zip(a, u)]
            square = _dot(a, a)
            norm = jnp.sqrt(jnp.where(square > tiny, square, 1))  # a vanishing column stays a zero
            self.Q.append([jnp.where(square > tiny, x / norm, 0) for x in a])
            self.R.append([*r, norm])
            norms.append(jnp.where(square > tiny, norm, 0))
        if norms:
            most = jnp.max(jnp.stack(norms), 0)
            self.pivot = jnp.min(jnp.stack(norms), 0) / jnp.where(most > 0, most, 1)
        else:
            self.pivot = jnp.ones_like(zero)

    def __call__(self, sides):
        found = []
        for b in sides:
            c = []
            for u in self.Q:
                c.append(_dot(u, b))
                b = [x - c[-1] * y for x, y in zip(b, u)]
            for j in reversed(range(len(c))):
                c[j] = c[j] / self.R[j][j]
                for i in range(j):
                    c[i] = c[i] - self.R[j][i] * c[j]
            found.append(c)
        return found


def _dot(a, b):
    return sum(x * y for x, y in zip(a, b))


# --- rows ---------------------------------------------------------------------------------------------------


def _rows(sys: System, m: Mechanism, group: Group, q, v) -> list[Row]:
    t = sys.topology
    tree = nodes_of(t.tree)
    nodes = some_nodes(tree, m.nodes)
    chain = _Chain(sys, group, joint_transforms(sys, q, v, nodes), v)
    found: list[Row] = []
    functions = iter(group.functions)
    for k, (kind, bodies, dofs) in enumerate(group.rows):
        index = group.relation[:, k]
        if kind in ("connect", "weld", "hinge", "distance"):
            a, b = (chain.end(body, index, side) for side, body in enumerate(bodies))
            found += _GEOMETRIC[kind](sys, index, a, b)
        else:
            x = [gather(q, _coordinate(sys, group, d)) for d in dofs]
            rate = None if v is None else [gather(v, group.dofs[:, d]) for d in dofs]
            f = _scalar_equation(sys, kind, index, next(functions) if kind == "function" else None)
            found += _scalar_rows(f, dofs, x, rate)
    return found


def _coordinate(sys: System, group: Group, d: int) -> np.ndarray:
    return coordinates(sys.topology)[group.dofs[:, d]]


def _connect(sys, index, a: End, b: End) -> list[Row]:
    gap, speed, rush = b.x - a.x, b.v - a.v, b.dv - a.dv
    return [
        Row(gap[i], _relative(a, b, lambda S, i=i: S.lin[i]), None if speed is None else -rush[i])
        for i in range(3)
    ]


def _distance(sys, index, a: End, b: End) -> list[Row]:
    """Half the squares' difference: K = d·(J_b - J_a), with d from point to point."""
    d, speed = b.x - a.x, b.v - a.v
    length = gather(sys.loop_coefficients, index)[:, 0]
    k = -(d.dot(b.dv - a.dv) + speed.dot(speed))
    return [Row((d.dot(d) - length * length) / 2, _relative(a, b, lambda S: d.dot(S.lin)), k)]


def _weld(sys, index, a: End, b: End) -> list[Row]:
    turned = Vec3(*(0 for _ in range(3)))
    for i in range(3):
        turned = turned + _axis(a.R, i).cross(_axis(b.R, i))
    rush = b.dw - a.dw
    rows = [Row(turned[i] * 0.5, _relative(a, b, lambda S, i=i: S.ang[i]), -rush[i]) for i in range(3)]
    return _connect(sys, index, a, b) + rows


def _hinge(sys, index, a: End, b: End) -> list[Row]:
    tilt = _axis(a.R, 2).cross(_axis(b.R, 2))
    rows = []
    for i in range(2):
        e = _axis(a.R, i)
        k = -(e.dot(b.dw - a.dw) + a.w.cross(e).dot(b.w - a.w))
        rows.append(Row(e.dot(tilt), _relative(a, b, lambda S, e=e: e.dot(S.ang)), k))
    return _connect(sys, index, a, b) + rows


_GEOMETRIC = {"connect": _connect, "weld": _weld, "hinge": _hinge, "distance": _distance}


def _axis(R: Mat3, i: int) -> Vec3:
    return Vec3(R.a[i], R.b[i], R.c[i])


def _relative(a: End, b: End, pick) -> dict[int, Any]:
    """Entries of a row that takes `pick` of the second end's motion against the first one's."""
    row: dict[int, Any] = {}
    for sign, end in ((1, b), (-1, a)):
        for dof, S in end.columns.items():
            entry = pick(S)
            if isinstance(entry, int):
                continue
            row[dof] = row[dof] + sign * entry if dof in row else sign * entry
    return row


def _scalar_equation(sys: System, kind: str, index, function):
    """f(x) -> list of numbers (clusters, B) that vanish, of a list x of such coordinates."""
    if kind == "mimic":
        ratio, offset = gather((sys.mimic_ratio, sys.mimic_offset), index)
        return lambda x: [x[0] - offset - ratio * x[1]]
    if kind == "coupling":
        c = gather(sys.loop_coefficients, index)
        P = lambda y: c[:, 0] + y * (c[:, 1] + y * (c[:, 2] + y * (c[:, 3] + y * c[:, 4])))  # noqa: E731
        return lambda x: [x[0] - (P(x[1]) if len(x) > 1 else c[:, 0])]
    if kind == "linear":
        starts = np.cumsum([0] + [len(j) for j in sys.topology.linear_joints])[index]
        offset = gather(sys.linear_offset, index)
        return lambda x: [
            sum(gather(sys.linear_coefficients, starts + j) * y for j, y in enumerate(x)) - offset
        ]
    over = jax.vmap(jax.vmap(function, -1, -1), 1, 1)  # (n, clusters, B)
    return lambda x: list(over(jnp.stack(jnp.broadcast_arrays(*x))))


def _scalar_rows(f, dofs, x, rate) -> list[Row]:
    """Rows of an equation between coordinates, by autodiff."""
    x = [jnp.asarray(y) for y in x]
    error = f(x)
    columns = []
    for j in range(len(x)):
        unit = [jnp.ones_like(y) if i == j else jnp.zeros_like(y) for i, y in enumerate(x)]
        columns.append(jax.jvp(lambda *y: f(list(y)), tuple(x), tuple(unit))[1])
    k = [None] * len(error)
    if rate is not None:
        along = lambda *y: jax.jvp(lambda *z: f(list(z)), y, tuple(rate))[1]  # noqa: E731
        k = [-y for y in jax.jvp(along, tuple(x), tuple(rate))[1]]
    return [Row(e, {d: c[i] for d, c in zip(dofs, columns)}, k[i]) for i, e in enumerate(error)]


# --- kinematics of a cluster --------------------------------------------------------------------------------


class _Chain:
    """Poses, columns and motions of a cluster's nodes against the body it hangs on."""

    def __init__(self, sys: System, group: Group, joints: Joints, v):
        self.sys, self.group = sys, group
        self.R: list[Mat3] = []
        self.p: list[Vec3] = []
        self.S: list[Motion] = []
        self.motion: list[tuple[Motion, Motion]] = []
        rest = Motion(ZERO3, ZERO3)
        for k, parent in enumerate(group.parents):
            j = gather(joints, group.slots[:, k])
            R, p = j.R, j.p
            V, A = rest, rest
            if parent >= 0:
                above = self.R[parent]
                r = above @ p
                R, p = above @ R, self.p[parent] + r
                V, A = self.motion[parent]
            else:
                r = p
            S = column(j, R)
            if v is not None:
                bias = None if j.bias is None else j.bias.rotate(R)
                V, A = Node(None, r, S).move(V, A, gather(v, group.dofs[:, k]), 0, bias)
            self.R.append(R)
            self.p.append(p)
            self.S.append(S)
            self.motion.append((V, A))

    def end(self, body: int, index: np.ndarray, side: int) -> End:
        """Side 0 or 1 of loops `index` (clusters,), which stands in the local body (-1: the cluster's
        root).
        """
        sys, t = self.sys, self.sys.topology
        frames = np.array([t.loop_frames[i][side] for i in index])
        R, p = _frame(sys, frames)
        Rs = rotation_from_quaternion(*(gather(sys.loop_quaternion, index)[:, side, k] for k in range(4)))
        x = p + R @ vec3(gather(sys.loop_position, index)[:, side])
        R = R @ Rs
        if body < 0:
            return End(R, x, {}, ZERO3, ZERO3, ZERO3, ZERO3)
        node = self.group.last[body]
        x = self.p[node] + self.R[node] @ x
        V, A = self.motion[node]
        arm = x - self.p[node]
        V, A = V.at(arm), A.at(arm)
        columns, k = {}, node
        while k >= 0:
            columns[k] = self.S[k].at(x - self.p[k])
            k = self.group.parents[k]
        return End(self.R[node] @ R, x, columns, V.ang, V.lin, A.ang, A.lin + V.ang.cross(V.lin))


def _frame(sys: System, frames: np.ndarray):
    """Placement of frames in their bodies; of -1, the world, none."""
    R = rotation_from_quaternion(
        *(gather(sys.frame_quaternion, np.maximum(frames, 0))[:, k] for k in range(4))
    )
    p = vec3(gather(sys.frame_position, np.maximum(frames, 0)))
    if (frames >= 0).all():
        return R, p
    mask = jnp.asarray(frames >= 0)[:, None]
    eye = np.eye(3)
    R = Mat3(*(Vec3(*(jnp.where(mask, R[i][j], eye[i, j]) for j in range(3))) for i in range(3)))
    return R, Vec3(*(jnp.where(mask, x, 0) for x in p))
