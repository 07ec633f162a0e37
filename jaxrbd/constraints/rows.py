"""Rows of the constraints at a state: phi, J v, J̇v and the wrenches K that J is made of, batch last.

Row r acts on body A with the wrench K_A and on body B with K_B; joint couplings act on freedoms directly:

    (J a)_r = K_A · A_A + K_B · A_B + sum of kappa_r,d a_d

where A are spatial accelerations. Relative motion of A in B, at the point c that A carries, in B's axes:

    u = R_Bᵀ (V_A - V_B)(c),     u̇ = R_Bᵀ ((A_A - A_B)(c) - omega_B x (V_A - V_B)(c) + (0, omega_rel x ċ)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, Entry, row_weights
from jaxrbd.engine.gather import gather, gather_sum
from jaxrbd.engine.scan import outward
from jaxrbd.forces import joint_coordinates
from jaxrbd.joints.rotations import rotation_log
from jaxrbd.model.system import System, Topology
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.joints import Links, link_transforms
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.spatial import EYE3, ZERO3, Force, Mat3, Motion, Vec3, rotation_from_quaternion, vec3


@dataclass(frozen=True, eq=False)
class Table:
    """Which row belongs to what; slots are those of `Nodes`, free roots and the world after them."""

    m: int
    entry: np.ndarray  # (m,) the constraint of each row
    geometric: np.ndarray  # constraints that act on bodies
    slot_a: np.ndarray  # (m,) slot of body A; the world's where a row acts on joints only
    slot_b: np.ndarray  # (m,)
    used: tuple[int, ...]  # directions that some geometric constraint holds
    pick: (
        np.ndarray
    )  # (m,) place of the row in: `used` ones per geometric constraint, couplings, velocity rows
    joint_rows: np.ndarray  # (ne,) rows with entries on freedoms ...
    joint_dofs: np.ndarray  # (ne,) ... and these freedoms


@lru_cache(maxsize=512)
def table_of(t: Topology, entries: tuple[Entry, ...]) -> Table:
    nodes = nodes_of(t)
    world = nodes.size

    def slot(frame: int) -> int:
        body = t.frame_bodies[frame] if frame >= 0 else -1
        return int(nodes.body_slot[body]) if body >= 0 else world

    geometric = [k for k, e in enumerate(entries) if e.kind not in ("coupling", "velocity")]
    couplings = [k for k, e in enumerate(entries) if e.kind == "coupling"]
    entry, slots, pick, joint = [], [], [], []
    used = tuple(sorted({j for k in geometric for j in entries[k].mask}))
    velocity = len(used) * len(geometric) + len(couplings)
    for k, e in enumerate(entries):
        first = len(entry)
        entry += [k] * e.rows
        if e.kind in ("coupling", "velocity"):
            slots += [(world, world)] * e.rows
            if e.kind == "coupling":
                pick.append(len(used) * len(geometric) + couplings.index(k))
                joint += [(first, d) for d in (e.a, e.b) if d >= 0]
            else:
                pick += range(velocity, velocity + e.rows)
                velocity += e.rows
                joint += [(first + i, d) for i, d in e.pattern]
        else:
            slots += [(slot(e.a), slot(e.b))] * e.rows
            pick += [len(used) * geometric.index(k) + used.index(j) for j in e.mask]
    a, b = np.array(slots, int).reshape(-1, 2).T
    joint_rows, joint_dofs = np.array(joint, int).reshape(-1, 2).T
    as_array = lambda x: np.array(x, int)  # noqa: E731
    return Table(
        len(entry), as_array(entry), as_array(geometric), a, b, used, as_array(pick), joint_rows, joint_dofs
    )


class Moving(NamedTuple):
    """Motion of all slots, then roots: world rotation and position from the root, twists in own axes."""

    links: Links
    roots: kin.Roots
    R: Mat3
    p: Vec3
    V: Motion
    A: Motion  # gravity included as an acceleration of the world: spatial acceleration minus g


class Rows(NamedTuple):
    """One number per row, (m, B), and the wrenches in the axes of the bodies' nodes."""

    KA: Force
    KB: Force
    kappa: Any  # (ne, B)
    phi: Any
    u: Any  # J v
    gamma: Any  # J̇v, or J a + J̇v if the motion has an acceleration
    target: Any  # a*
    weight: Any


def motion(sys: System, q, v, a=None) -> Moving:
    """Velocities and accelerations (bias accelerations if a is None) of all links: one outward pass."""
    nodes = nodes_of(sys.topology)
    links, roots = link_transforms(sys, q, v), kin.root_states(sys, q)
    a = jnp.zeros_like(v) if a is None else a
    V0, A0 = kin.root_rows(sys, v), kin.root_rows(sys, a)
    g = roots.R.T @ Vec3(*(sys.gravity[k][None] for k in range(3)))
    A0 = Motion(A0.ang, A0.lin - g)

    def move(parent, x):
        R, p, V, A = parent
        node, bias, qd, qdd = x
        return R @ node.R, p + R @ node.r, *node.move(V, A, qd, qdd, bias)

    start = kin.broadcast((roots.R, jax.tree.map(jnp.zeros_like, roots.p), V0, A0), q)
    xs = (links.node, links.bias, gather(v, nodes.v), gather(a, nodes.v))
    R, p, V, A = kin.join(outward(nodes, move, xs, start), start)
    return Moving(links, roots, R, p, V, A)


def constraint_rows(sys: System, con: Constraints, q, v, moving: Moving, a=None) -> Rows:
    """Everything that solvers need to know of the constraints at a state; `a` is that of the motion."""
    t = sys.topology
    table, entries = table_of(t, con.entries), con.entries
    parts: list[dict] = []
    if len(table.geometric):
        parts.append(_geometric_rows(sys, con, moving, table))
    couplings = [k for k, e in enumerate(entries) if e.kind == "coupling"]
    if couplings:
        parts.append(_coupling_rows(sys, con, q, v, couplings))
    if any(e.kind == "velocity" for e in entries):
        parts.append(_velocity_rows(con, v))
    full = lambda x: jnp.broadcast_to(x, x.shape[:-1] + q.shape[-1:])  # noqa: E731
    number = lambda key: gather(jnp.concatenate([full(p[key]) for p in parts]), table.pick)  # noqa: E731
    phi, u, gamma = number("phi"), number("u"), number("gamma")
    KA, KB = (_wrenches(parts, table, side, q) for side in ("KA", "KB"))
    kappa = _kappa(con, table, parts)
    if a is not None and kappa is not None:
        gamma = gamma + sum_by_row(kappa * gather(a, table.joint_dofs), table.joint_rows, table.m)
    per_row = lambda x: gather(x, table.entry)  # noqa: E731
    target = con.target - per_row(con.damping) * u - per_row(con.stiffness) * phi
    return Rows(KA, KB, kappa, phi, u, gamma, target, row_weights(entries, con.weight))


def sum_by_row(x, owners: np.ndarray, count: int):
    """Row k of the result is the sum of the rows of x that belong to k: two gathers, no scatter."""
    used = sorted(set(owners.tolist()))
    if not used:
        return jnp.zeros((count,) + x.shape[1:], x.dtype)
    lists = [np.flatnonzero(owners == k).tolist() for k in used]
    most = max(len(found) for found in lists)
    table = np.array([found + [len(owners)] * (most - len(found)) for found in lists])
    zero = jnp.zeros_like(x[:1])
    sums = gather_sum(jnp.concatenate([x, zero]), table)
    place = np.full(count, len(used))
    place[used] = np.arange(len(used))
    return gather(jnp.concatenate([sums, zero]), place)


def summed_wrenches(x, lam, at_a: np.ndarray, at_b: np.ndarray, world: int, count: int) -> Force:
    """Jᵀ lam as wrenches on `count` places, of which rows have their bodies A and B at those given.

    `x`: has the wrenches KA and KB of every row; B is the world for most rows, and nothing is summed there.
    """
    f = jax.tree.map(lambda k: sum_by_row(k * lam, at_a, count), x.KA)
    if (at_b != world).any():
        f = f + jax.tree.map(lambda k: sum_by_row(k * lam, at_b, count), x.KB)
    return f


def _wrenches(parts, table, side, q) -> Force:
    if not len(table.geometric) or side not in parts[0]:
        zero = jnp.zeros((table.m,) + q.shape[-1:], q.dtype)
        return Force(Vec3(zero, zero, zero), Vec3(zero, zero, zero))
    rest = sum(p["phi"].shape[0] for p in parts[1:])
    fill = lambda x: jnp.concatenate([x, jnp.zeros((rest,) + x.shape[1:], x.dtype)]) if rest else x  # noqa: E731
    full = lambda x: jnp.broadcast_to(x, x.shape[:-1] + q.shape[-1:])  # noqa: E731
    return jax.tree.map(lambda x: gather(fill(full(x)), table.pick), parts[0][side])


def _kappa(con: Constraints, table: Table, parts):
    """Entries on freedoms in the order of `joint_rows`."""
    if not len(table.joint_rows):
        return None
    batch = parts[-1]["u"].shape[-1:]
    found = []
    slopes = [p["slope"] for p in parts if "slope" in p]
    start = seen = 0
    for e in con.entries:
        if e.kind == "coupling":
            found.append(jnp.ones((1,) + batch, con.weight.dtype))
            if e.b >= 0:
                found.append(-slopes[0][seen : seen + 1])
            seen += 1
        elif e.kind == "velocity":
            found.append(con.coefficients[start : start + len(e.pattern)])
            start += len(e.pattern)
    return jnp.concatenate([jnp.broadcast_to(x, x.shape[:1] + batch) for x in found])


def _coupling_rows(sys: System, con: Constraints, q, v, which):
    """x_a = P(x_b): u = v_a - P' v_b, J̇v = -P'' v_b²."""
    t = sys.topology
    a = np.array([con.entries[k].a for k in which])
    b = np.array([con.entries[k].b for k in which])
    coordinate = joint_coordinates(t)
    pad = lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])])  # noqa: E731
    x = gather(pad(q), np.where(b >= 0, coordinate[b], t.nq))
    vb = gather(pad(v), np.where(b >= 0, b, t.nv))
    c = gather(con.parameter, np.array(which))
    power = [c[:, 0], c[:, 1], c[:, 2], c[:, 3], c[:, 4]]
    value = power[0] + x * (power[1] + x * (power[2] + x * (power[3] + x * power[4])))
    slope = power[1] + x * (2 * power[2] + x * (3 * power[3] + x * 4 * power[4]))
    bend = 2 * power[2] + x * (6 * power[3] + x * 12 * power[4])
    return {
        "phi": gather(q, coordinate[a]) - value,
        "u": gather(v, a) - slope * vb,
        "gamma": -bend * vb * vb,
        "slope": slope,
    }


def _velocity_rows(con: Constraints, v):
    sums, start = [], 0
    for e in con.entries:
        if e.kind == "velocity":
            x = con.coefficients[start : start + len(e.pattern)] * gather(
                v, np.array([d for _, d in e.pattern])
            )
            start += len(e.pattern)
            for i in range(e.rows):
                sums.append(sum(x[k] for k, (row, _) in enumerate(e.pattern) if row == i))
    u = jnp.stack(sums)
    return {"phi": jnp.zeros_like(u), "u": u, "gamma": jnp.zeros_like(u)}


class _Side(NamedTuple):
    """One side of every geometric constraint, in world axes about the node's origin."""

    R_node: Mat3
    root: Vec3  # world position of the tree's root
    p: Vec3  # node's origin from the root
    V: Motion
    A: Motion
    R: Mat3  # axes of the constraint
    r: Vec3  # its place, from the node's origin


def _side(sys: System, moving: Moving, entries, frames, position, quaternion) -> _Side:
    t, nodes = sys.topology, nodes_of(sys.topology)
    turn = rotation_from_quaternion(*(quaternion[:, k] for k in range(4)))
    if all(f < 0 for f in frames):  # the world stands still: symbolic zeros
        still = Motion(ZERO3, ZERO3)
        return _Side(EYE3, ZERO3, ZERO3, still, still, turn, vec3(position))
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
    return _Side(R, root, p, V, A, R_frame @ turn, r)


def _geometric_rows(sys: System, con: Constraints, moving: Moving, table: Table):
    """Rows of every constraint between frames in all directions that some of them holds."""
    which = table.geometric
    entries = [con.entries[k] for k in which]
    kinds = np.array([e.kind for e in entries])
    sides = [
        _side(
            sys,
            moving,
            entries,
            [getattr(e, s) for e in entries],
            gather(position, which),
            gather(quaternion, which),
        )
        for s, position, quaternion in (
            ("a", con.position_a, con.quaternion_a),
            ("b", con.position_b, con.quaternion_b),
        )
    ]
    a, b = sides
    axes = b.R
    d = (a.root - b.root) + (a.p - b.p) + (a.r - b.r)
    arm_a, arm_b = a.r, d + b.r  # from the nodes' origins to the point c
    normal = Vec3(axes.a.z, axes.b.z, axes.c.z)
    parameter = gather(con.parameter, which)[:, 0]
    shift = ZERO3
    if (kinds == "rolling").any():
        radius = parameter * _mask(kinds == "rolling", parameter)
        shift = normal * -radius
        arm_a, arm_b = arm_a + shift, arm_b + shift
    Va, Vb = a.V.at(arm_a), b.V.at(arm_b)
    rel, acc = Va - Vb, a.A.at(arm_a) - b.A.at(arm_b)
    wb = b.V.ang
    cdot = a.V.at(a.r).lin + wb.cross(shift)
    gamma = Motion(acc.ang - wb.cross(rel.ang), acc.lin + rel.ang.cross(cdot) - wb.cross(rel.lin))
    u, gamma = rel.rotate(axes.T), gamma.rotate(axes.T)
    turned, place = axes.T @ a.R, axes.T @ d
    phi = Motion(_turning_error(turned, entries), place)
    if (kinds == "rolling").any():
        height = Vec3(0 * place.x, 0 * place.x, place.z - parameter)
        phi = Motion(phi.ang, _choose(kinds == "rolling", height, phi.lin))
    directions = [Vec3(axes.a[j], axes.b[j], axes.c[j]) for j in range(3)]
    if (kinds == "distance").any():
        n, length, speed, bend = _distance(d, a, b)
        far = kinds == "distance"
        directions[2] = _choose(far, n, directions[2])
        put = lambda new, old: jnp.where(far[:, None], new, old)  # noqa: E731
        phi = Motion(phi.ang, phi.lin._replace(z=put(length - parameter, phi.lin.z)))
        u = Motion(u.ang, u.lin._replace(z=put(speed, u.lin.z)))
        gamma = Motion(gamma.ang, gamma.lin._replace(z=put(bend, gamma.lin.z)))
    KA = [Force(e, ZERO3) for e in directions] + [Force(arm_a.cross(e), e) for e in directions]
    pick = lambda x: _join([x[j] for j in table.used], u)  # noqa: E731
    rows_of = {
        "phi": pick([*phi.ang, *phi.lin]),
        "u": pick([*u.ang, *u.lin]),
        "gamma": pick([*gamma.ang, *gamma.lin]),
        "KA": _join_wrenches([KA[j].rotate(a.R_node.T) for j in table.used], u),
    }
    if any(e.b >= 0 for e in entries):
        KB = [Force(-e, ZERO3) for e in directions] + [Force(-arm_b.cross(e), -e) for e in directions]
        rows_of["KB"] = _join_wrenches([KB[j].rotate(b.R_node.T) for j in table.used], u)
    return rows_of


def _distance(d: Vec3, a: _Side, b: _Side):
    """Direction, length, its rate and its second derivative for the vector d between two points."""
    Va, Vb = a.V.at(a.r), b.V.at(b.r)
    Aa, Ab = a.A.at(a.r), b.A.at(b.r)
    speed = Va.lin - Vb.lin
    acc = Aa.lin + Va.ang.cross(Va.lin) - Ab.lin - Vb.ang.cross(Vb.lin)
    square = d.dot(d)
    safe = jnp.where(square > 0, square, 1)
    length = jnp.where(square > 0, jnp.sqrt(safe), 0)
    n = d * (1 / jnp.sqrt(safe))
    along = n.dot(speed)
    return n, length, along, n.dot(acc) + (speed.dot(speed) - along * along) / jnp.sqrt(safe)


def _turning_error(R: Mat3, entries) -> Vec3:
    """phi of the turning directions: zero where they are met, with the relative velocity as its rate there.

    All three held: the rotation vector. Two held: the tilt of the third axis, however far it has turned. One
    held: zero, for no function of the rotation has a component of the angular velocity as its rate.
    """
    held = [[j for j in e.mask if j < 3] for e in entries]
    phi = ZERO3
    if any(len(h) == 3 for h in held):
        phi = _choose(np.array([len(h) == 3 for h in held]), _rotation_vector(R), phi)
    columns = Vec3(R.a.x, R.b.x, R.c.x), Vec3(R.a.y, R.b.y, R.c.y), Vec3(R.a.z, R.b.z, R.c.z)
    for axis, column in enumerate(columns):
        tilted = np.array([len(h) == 2 and axis not in h for h in held])
        if tilted.any():
            phi = _choose(tilted, _tilt(axis, column), phi)
    return phi


def _tilt(axis: int, column: Vec3) -> Vec3:
    """Axis times angle that takes the axis to `column`; half a turn goes about the axis after it."""
    unit, after = (Vec3(*(float(i == (axis + k) % 3) for i in range(3))) for k in (0, 1))
    sine, cosine = unit.cross(column), unit.dot(column)
    square = sine.dot(sine)
    small = square < 1e-6
    s = jnp.sqrt(jnp.where(small, 1.0, square))
    series = 1 + square / 6 + 3 * square * square / 40
    opposite = small & (cosine < 0)
    tilt = sine * jnp.where(small, series, jnp.arctan2(s, cosine) / s)
    return Vec3(*(jnp.where(opposite, np.pi * x, y) for x, y in zip(after, tilt)))


def _rotation_vector(R: Mat3) -> Vec3:
    """Axis times angle, smooth at the identity, exact up to half a turn."""
    return vec3(rotation_log(R, axis=0), 0)


def _choose(mask: np.ndarray, new: Vec3, old: Vec3) -> Vec3:
    if mask.all():
        return new
    return Vec3(*(jnp.where(mask[:, None], x, y) for x, y in zip(new, old)))


def _mask(mask: np.ndarray, like):
    return jnp.asarray(mask[:, None], like.dtype)


def _join(components, like: Motion):
    """(directions nc, B): one number per direction and constraint."""
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in jax.tree.leaves(like)))
    full = [jnp.broadcast_to(jnp.asarray(x, _dtype(like)), shape) for x in components]
    return jnp.stack(full, 1).reshape((-1,) + shape[1:])


def _join_wrenches(wrenches, like: Motion) -> Force:
    pick = lambda get: _join([get(K) for K in wrenches], like)  # noqa: E731
    return Force(
        Vec3(*(pick(lambda K, i=i: K.ang[i]) for i in range(3))),
        Vec3(*(pick(lambda K, i=i: K.lin[i]) for i in range(3))),
    )


def _dtype(tree):
    return next(x.dtype for x in jax.tree.leaves(tree) if not isinstance(x, int))
