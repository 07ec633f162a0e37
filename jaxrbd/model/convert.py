"""Coordinates of MuJoCo and Pinocchio: q, v, a and tau to and from theirs.

MuJoCo: the same q; the velocity of a free joint is (linear in world axes, angular in body axes).
Pinocchio: linear before angular, quaternions (x, y, z, w), a continuous joint as (cos, sin), a planar
one as (x, y, cos, sin) with its velocity in the moving frame. Forces map such that power is the same;
both velocity maps are orthogonal, so tau maps like v. Accelerations are the time derivatives of the
velocities, so they need q and v too. Each map is one gather with indices fixed on the host, after the
few numbers that turn have been appended; unbatched, `jax.vmap` outside.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.joints import TYPES
from jaxrbd.model.names import hint
from jaxrbd.model.system import System, Topology
from jaxrbd.typing import Array, ArrayLike

if TYPE_CHECKING:
    import pinocchio

Coordinates = tuple[Array, Array | None]  # (q, v)


def to_mujoco(sys: System, q: ArrayLike, v: ArrayLike | None = None) -> Coordinates:
    """(qpos, qvel) of MuJoCo for our (q, v); qvel is None without v."""
    _refuse_loops(sys.topology)
    q = _vector("q", q, sys.nq)
    return q, None if v is None else _free_to_mujoco(sys, q, _vector("v", v, sys.nv))


def from_mujoco(sys: System, qpos: ArrayLike, qvel: ArrayLike | None = None) -> Coordinates:
    """Our (q, v) for MuJoCo's (qpos, qvel); v is None without qvel."""
    _refuse_loops(sys.topology)
    q = _vector("qpos", qpos, sys.nq)
    return q, None if qvel is None else _free_from_mujoco(sys, q, _vector("qvel", qvel, sys.nv))


def acceleration_to_mujoco(sys: System, q, v, a):
    """MuJoCo's qacc = d(qvel)/dt: for a free joint the linear part is R (a_lin + omega x v_lin)."""
    q, v, a = _vector("q", q, sys.nq), _vector("v", v, sys.nv), _vector("a", a, sys.nv)
    return _free_to_mujoco(sys, q, a + _centripetal(sys, v))


def acceleration_from_mujoco(sys: System, qpos, qvel, qacc):
    """Our a = dv/dt for MuJoCo's qacc: for a free joint the linear part is R' qacc_lin - omega x v_lin."""
    q, v = from_mujoco(sys, qpos, qvel)
    a = _free_from_mujoco(sys, q, _vector("qacc", qacc, sys.nv))
    return a - _centripetal(sys, v)


def force_to_mujoco(sys: System, q, tau):
    """Generalised forces of MuJoCo (qfrc_*) for our tau, at our q: tau'v = qfrc' qvel."""
    return _free_to_mujoco(sys, _vector("q", q, sys.nq), _vector("tau", tau, sys.nv))


def force_from_mujoco(sys: System, qpos, qfrc):
    """Our tau for MuJoCo's generalised forces."""
    return _free_from_mujoco(sys, _vector("qpos", qpos, sys.nq), _vector("qfrc", qfrc, sys.nv))


def to_pinocchio(
    sys: System, q: ArrayLike, v: ArrayLike | None = None, model: pinocchio.Model | None = None
) -> Coordinates:
    """(q, v) of Pinocchio for ours; v is None without v.

    `model`: the `pinocchio.Model` whose joint order (by name) and joint sizes are wanted; without it
    joints stand in our order. Pinocchio sorts the joints of a URDF by name, so pass it for those.
    """
    maps = _pinocchio_maps(sys, model)
    q = _vector("q", q, sys.nq)
    angles = q[maps.angles]
    q_pin = jnp.concatenate([q, jnp.cos(angles), jnp.sin(angles)])[maps.q_to]
    return q_pin, None if v is None else _planar_to(maps, q, _vector("v", v, sys.nv))[maps.v_to]


def from_pinocchio(
    sys: System, q: ArrayLike, v: ArrayLike | None = None, model: pinocchio.Model | None = None
) -> Coordinates:
    """Our (q, v) for Pinocchio's; v is None without v. See `to_pinocchio` for `model`."""
    maps = _pinocchio_maps(sys, model)
    q_pin = _vector("q", q, len(maps.q_to))
    angles = jnp.arctan2(q_pin[maps.sines], q_pin[maps.cosines])
    ours = jnp.concatenate([q_pin, angles])[maps.q_from]
    return ours, None if v is None else _planar_from(maps, ours, _vector("v", v, sys.nv)[maps.v_from])


def acceleration_to_pinocchio(sys: System, q, v, a, model=None):
    """Pinocchio's acceleration dv/dt; differs from a permutation for planar joints only."""
    maps = _pinocchio_maps(sys, model)
    q, v, a = _vector("q", q, sys.nq), _vector("v", v, sys.nv), _vector("a", a, sys.nv)
    a_local = _planar_to(maps, q, a)
    if maps.planar_angle.size:  # d/dt (R' v) = R' a - omega x (R' v)
        local = _planar_to(maps, q, v)
        x, y, turn = maps.planar_v.T
        a_local = _put_planar(maps, a_local, a_local[x] + v[turn] * local[y], a_local[y] - v[turn] * local[x])
    return a_local[maps.v_to]


def force_to_pinocchio(sys: System, q, tau, model=None):
    """Pinocchio's tau for ours."""
    maps = _pinocchio_maps(sys, model)
    return _planar_to(maps, _vector("q", q, sys.nq), _vector("tau", tau, sys.nv))[maps.v_to]


def force_from_pinocchio(sys: System, q, tau, model=None):
    """Our tau for Pinocchio's, at Pinocchio's q."""
    maps = _pinocchio_maps(sys, model)
    ours = from_pinocchio(sys, q, model=model)[0]
    return _planar_from(maps, ours, _vector("tau", tau, sys.nv)[maps.v_from])


# ------------------------------------------------------------------ free joints, MuJoCo


class _FreeMaps(NamedTuple):
    """Rows of free joints (n of them) in q and v, and gathers from [v, 3 n new numbers]."""

    quaternion: np.ndarray  # (n, 4)
    first: np.ndarray  # (n, 3); ours: angular; MuJoCo's: linear
    last: np.ndarray  # (n, 3); ours: linear; MuJoCo's: angular
    to: np.ndarray
    back: np.ndarray
    linear: np.ndarray  # gathers from [0, 3 n numbers]: those on our linear rows, zero elsewhere


def _refuse_loops(t: Topology) -> None:
    if t.clusters:
        raise ArgumentError(
            f"{t.name!r} has loops in its state (clusters), which other libraries have no coordinates for. "
            "Convert the state of its open tree: sys.tree and rbd.to_tree(sys, q, v)."
        )


@lru_cache(maxsize=256)
def _free_maps(topology: Topology) -> _FreeMaps:
    _refuse_loops(topology)
    free = [i for i, t in enumerate(topology.joint_types) if TYPES[t].free]
    q = np.array([topology.q_starts[i] for i in free], int).reshape(-1, 1)
    v = np.array([topology.v_starts[i] for i in free], int).reshape(-1, 1)
    first, last, nv = v + np.arange(3), v + np.arange(3, 6), topology.nv
    new = np.arange(3 * len(free)).reshape(-1, 3)
    to, back, linear = np.arange(nv), np.arange(nv), np.zeros(nv, int)
    to[first], to[last] = nv + new, first
    back[first], back[last] = last, nv + new
    linear[last] = 1 + new
    return _FreeMaps(q + np.arange(3, 7), first, last, to, back, linear)


def _free_to_mujoco(sys: System, q, v):
    maps = _free_maps(sys.topology)
    if not maps.first.size:
        return v
    linear = jnp.einsum("fij,fj->fi", _rotations(q[maps.quaternion]), v[maps.last])
    return jnp.concatenate([v, linear.ravel()])[maps.to]


def _free_from_mujoco(sys: System, q, v):
    maps = _free_maps(sys.topology)
    if not maps.first.size:
        return v
    linear = jnp.einsum("fji,fj->fi", _rotations(q[maps.quaternion]), v[maps.first])
    return jnp.concatenate([v, linear.ravel()])[maps.back]


def _centripetal(sys: System, v):
    """omega x v_lin on the linear rows of free joints, zero elsewhere."""
    maps = _free_maps(sys.topology)
    cross = jnp.cross(v[maps.first], v[maps.last])
    return jnp.concatenate([jnp.zeros(1, v.dtype), cross.ravel()])[maps.linear]


def _rotations(quaternions):
    """Rotation matrices (n, 3, 3) of quaternions (n, 4), normalised here."""
    w, x, y, z = quaternions.T
    s = 2 / (w * w + x * x + y * y + z * z)
    rows = [
        [1 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)],
        [s * (x * y + w * z), 1 - s * (x * x + z * z), s * (y * z - w * x)],
        [s * (x * z - w * y), s * (y * z + w * x), 1 - s * (x * x + y * y)],
    ]
    return jnp.moveaxis(jnp.array(rows), -1, 0)


# ------------------------------------------------------------------ Pinocchio


class _PinocchioMaps(NamedTuple):
    """Gather indices; `q_to` reads [q, cos(angles), sin(angles)], `q_from` reads [q_pin, angles]."""

    angles: np.ndarray
    cosines: np.ndarray
    sines: np.ndarray
    q_to: np.ndarray
    q_from: np.ndarray
    v_to: np.ndarray
    v_from: np.ndarray
    planar_angle: np.ndarray
    planar_v: np.ndarray  # (number of planar joints, 3): x, y and turning rate, in our v
    planar_put: np.ndarray  # gathers from [v, new x rows, new y rows]


def _pinocchio_maps(sys: System, model) -> _PinocchioMaps:
    _refuse_loops(sys.topology)
    if model is None:
        sizes = [(_PIN_SIZES.get(t, TYPES[t].nq), TYPES[t].nv) for t in sys.joint_types]
        starts = np.cumsum([(0, 0), *sizes], axis=0)
        slots = [(int(q), int(v), nq) for (q, v), (nq, _) in zip(starts, sizes)]
    else:
        slots = _slots(sys, model)
    return _build_maps(sys.topology, tuple(slots))


_PIN_SIZES = {"continuous": 2, "planar": 4}


def _slots(sys: System, model) -> list[tuple[int, int, int]]:
    """(q start, v start, nq) in the Pinocchio model of each of our joints, matched by name."""
    names, slots = list(model.names), []
    for name, kind in zip(sys.joint_names, sys.joint_types):
        if name not in names and TYPES[kind].free and "root_joint" in names:
            name = "root_joint"  # the name Pinocchio's URDF parser gives the base
        if name not in names:
            raise ArgumentError(
                f"to_pinocchio: the Pinocchio model has no joint {name!r}. {hint(name, names[1:])}"
            )
        i = names.index(name)
        nq, nv = int(model.nqs[i]), int(model.nvs[i])
        ours = TYPES[kind].sizes
        if nv != ours[1] or (
            nq != ours[0] and not (kind in ("revolute", "continuous", "planar") and nq == nv + 1)
        ):
            raise ArgumentError(
                f"to_pinocchio: joint {name!r} is {kind} with (nq, nv) = {ours}, but ({nq}, {nv}) in the "
                "Pinocchio model. Build both from the same file and with the same base."
            )
        slots.append((int(model.idx_qs[i]), int(model.idx_vs[i]), nq))
    if (total := sum(nq for *_, nq in slots)) != model.nq:
        raise ArgumentError(
            f"to_pinocchio: the joints of this System take {total} of the {model.nq} coordinates of the "
            "Pinocchio model. Build both from the same file and with the same base."
        )
    return slots


@lru_cache(maxsize=256)
def _build_maps(topology: Topology, slots: tuple[tuple[int, int, int], ...]) -> _PinocchioMaps:
    nq, nv, nq_pin = topology.nq, topology.nv, sum(n for *_, n in slots)
    q_to, v_to = np.zeros(nq_pin, int), np.zeros(nv, int)
    q_from = np.zeros(nq, int)
    planar_angle, planar_v = [], []
    circles = []  # (where cos stands in q_pin, our angle)
    for kind, qi, vi, (qp, vp, n) in zip(topology.joint_types, topology.q_starts, topology.v_starts, slots):
        ours = list(range(qi, qi + TYPES[kind].nq))
        dofs = list(range(vi, vi + TYPES[kind].nv))
        if TYPES[kind].on_manifold:
            w = len(ours) - 4
            ours = ours[:w] + ours[w + 1 :] + ours[w : w + 1]  # (x, y, z, w)
            dofs = dofs[3:] + dofs[:3]  # linear first
        elif n > len(ours):  # the last coordinate is an angle, written (cos, sin)
            circles.append((qp + n - 2, ours.pop()))
            if kind == "planar":
                planar_angle.append(qi + 2)
                planar_v.append((vi, vi + 1, vi + 2))
        q_to[qp : qp + len(ours)] = ours
        q_from[ours] = qp + np.arange(len(ours))
        v_to[vp : vp + len(dofs)] = dofs
    for k, (at, angle) in enumerate(circles):
        q_to[at], q_to[at + 1] = nq + k, nq + len(circles) + k
        q_from[angle] = nq_pin + k
    index = lambda x: np.array(x, int)  # noqa: E731
    cosines, angles = index(circles).reshape(-1, 2).T
    planar, planar_put = index(planar_v).reshape(-1, 3), np.arange(nv)
    planar_put[planar[:, :2]] = nv + np.arange(2 * len(planar)).reshape(2, -1).T
    return _PinocchioMaps(
        angles,
        cosines,
        cosines + 1,
        q_to,
        q_from,
        v_to,
        np.argsort(v_to),
        index(planar_angle),
        planar,
        planar_put,
    )


def _planar_to(maps: _PinocchioMaps, q, v):
    """Velocities of planar joints turned into their moving frame."""
    return _turn_planar(maps, -q[maps.planar_angle], v)


def _planar_from(maps: _PinocchioMaps, q, v):
    return _turn_planar(maps, q[maps.planar_angle], v)


def _turn_planar(maps: _PinocchioMaps, angle, v):
    if not maps.planar_angle.size:
        return v
    x, y, _ = maps.planar_v.T
    c, s = jnp.cos(angle), jnp.sin(angle)
    return _put_planar(maps, v, c * v[x] - s * v[y], s * v[x] + c * v[y])


def _put_planar(maps: _PinocchioMaps, v, x, y):
    """v with other numbers in the x and y rows of planar joints."""
    return jnp.concatenate([v, x, y])[maps.planar_put]


def _vector(name: str, value, size: int):
    value = jnp.asarray(value)
    if value.shape != (size,):
        raise ArgumentError(
            f"{name} has shape {value.shape}, expected ({size},). Use jax.vmap for batches of states."
        )
    return value
