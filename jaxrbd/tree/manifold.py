"""The configuration manifold: exponentials of the joints' groups, plain addition elsewhere.

integrate(q, dv) moves from q along the joint velocities dv for unit time: the exponential of SE(3) or
SO(3) where the joint has one, so difference(q, integrate(q, dv)) = dv for rotations below pi. The groups
are those of `jaxrbd.joints`; joints of one group are moved together.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.joints import SE3, SO3, TYPES, Group
from jaxrbd.model.system import System, Topology, check_system
from jaxrbd.tree.arguments import arguments, array
from jaxrbd.typing import Array, ArrayLike


class Layout(NamedTuple):
    """Where joints stand in q and v: scalar coordinates, and rows of each group."""

    scalar_q: np.ndarray  # (n,)
    scalar_v: np.ndarray  # (n,)
    groups: tuple[tuple[Group, np.ndarray, np.ndarray], ...]  # rows (joints, nq) of q and (joints, nv) of v

    @property
    def quaternions(self) -> np.ndarray:
        """Rows of all quaternions in q, (n, 4)."""
        rows = [q[:, group.quaternion :] for group, q, _ in self.groups]
        return np.concatenate(rows) if rows else np.zeros((0, 4), int)


@lru_cache(maxsize=512)
def layout(t: Topology) -> Layout:
    scalar_q: list[int] = []
    scalar_v: list[int] = []
    starts: dict[Group, list[tuple[int, int]]] = {SO3: [], SE3: []}
    for kind, q, v, q_end in zip(t.joint_types, t.q_starts, t.v_starts, t.q_starts[1:]):
        if (group := TYPES[kind].group) is not None:
            starts.setdefault(group, []).append((q, v))
        else:
            scalar_q += range(q, q_end)
            scalar_v += range(v, v + q_end - q)
    groups = []
    for group, found in starts.items():
        if found:
            q, v = np.array(found, int).T[:, :, None]
            groups.append((group, q + np.arange(group.nq), v + np.arange(group.nv)))
    return Layout(np.array(scalar_q, int), np.array(scalar_v, int), tuple(groups))


@lru_cache(maxsize=512)
def free_joints(t: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, 7) of q and (n, 6) of v of the free joints."""
    for group, q, v in layout(t).groups:
        if group is SE3:
            return q, v
    return np.zeros((0, 7), int), np.zeros((0, 6), int)


def neutral(sys: System) -> Array:
    """The configuration with every coordinate zero and every rotation the identity."""
    check_system(sys, "neutral")
    q = np.concatenate([np.zeros(0), *(TYPES[kind].neutral() for kind in sys.joint_types)])
    return jnp.asarray(q, sys.dtype)


def random_configuration(sys: System, key: ArrayLike, spread: float = 1.0) -> Array:
    """Uniform within joint limits where they are finite (else in ±pi or ±1 m), uniform rotations.

    `spread` scales the range of unlimited coordinates and the positions of free joints.
    """
    check_system(sys, "random_configuration")
    scalar_q, scalar_v, _ = layout(sys.topology)
    k1, k2, k3 = jax.random.split(key, 3)
    turns = np.ones(sys.nq)
    t = sys.topology
    for kind, q in zip(t.joint_types, t.q_starts):
        if not TYPES[kind].on_manifold:
            turns[q : q + TYPES[kind].nq][TYPES[kind].angles] = np.pi
    reach = jnp.asarray(turns, sys.dtype) * spread
    low, high = sys.lower[scalar_v], sys.upper[scalar_v]
    low = jnp.where(jnp.isfinite(low), low, jnp.where(jnp.isfinite(high), high, 0) - reach[scalar_q])
    high = jnp.where(jnp.isfinite(high), high, jnp.where(jnp.isfinite(low), low, 0) + reach[scalar_q] * 2)
    unlimited = ~jnp.isfinite(sys.lower[scalar_v]) & ~jnp.isfinite(sys.upper[scalar_v])
    high = jnp.where(unlimited, reach[scalar_q], high)
    q = jnp.zeros(sys.nq, sys.dtype)
    u = jax.random.uniform(k1, (len(scalar_q),), sys.dtype)
    q = q.at[scalar_q].set(low + u * (high - low))
    where = layout(t).quaternions
    quats = jax.random.normal(k2, (len(where), 4), sys.dtype)
    quats = quats / jnp.linalg.norm(quats, axis=1, keepdims=True)
    q = q.at[where].set(quats)
    places = free_joints(t)[0][:, :3]
    p = jax.random.uniform(k3, (len(places), 3), sys.dtype, -1.0, 1.0) * spread
    return q.at[places].set(p)


def normalize(sys: System, q: ArrayLike) -> Array:
    """q with every quaternion divided by its norm."""
    (q,) = arguments(sys, q=q)
    where = layout(sys.topology).quaternions
    if not len(where):
        return q
    quat = gather(q, where)
    return q.at[where].set(quat / jnp.linalg.norm(quat, axis=1, keepdims=True))


def integrate(sys: System, q: ArrayLike, dv: ArrayLike) -> Array:
    """q ⊞ dv: the configuration reached from q by moving with joint velocities dv for unit time."""
    q, dv = arguments(sys, q=q, dv=dv)
    return _integrate(sys.topology, q, dv)


@partial(jax.checkpoint, prevent_cse=False, static_argnums=0)  # reverse mode keeps q and dv alone
def _integrate(t: Topology, q, dv):
    scalar_q, scalar_v, groups = layout(t)
    pieces = [(scalar_q, gather(q, scalar_q) + gather(dv, scalar_v))]
    for group, rows, dofs in groups:
        places = _parts(rows, group.parts_q)
        moved = group.exp(_read(q, places), _read(dv, _parts(dofs, group.parts_v)))
        pieces += zip(places, moved)
    return assemble(pieces)


def difference(sys: System, q0: ArrayLike, q1: ArrayLike) -> Array:
    """q1 ⊟ q0: the joint velocities that lead from q0 to q1 in unit time; the inverse of `integrate`."""
    q0, q1 = arguments(sys, q0=q0, q1=q1)
    scalar_q, scalar_v, groups = layout(sys.topology)
    pieces = [(scalar_v, gather(q1, scalar_q) - gather(q0, scalar_q))]
    for group, rows, dofs in groups:
        places = _parts(rows, group.parts_q)
        pieces += zip(_parts(dofs, group.parts_v), group.log(_read(q0, places), _read(q1, places)))
    return assemble(pieces)


def _parts(rows: np.ndarray, parts: tuple[slice, ...]) -> list[np.ndarray]:
    return [rows[:, part] for part in parts]


def _read(x, places: list[np.ndarray]) -> tuple[Array, ...]:
    return tuple(gather(x, where) for where in places)


def assemble(pieces):
    """One vector from (indices, values) pieces that cover it: a concatenation and a gather."""
    index = np.concatenate([np.asarray(i).reshape(-1) for i, _ in pieces])
    values = jnp.concatenate([x.reshape(-1) for _, x in pieces])
    return gather(values, np.argsort(index))


def exchange(x, where, values):
    """x with other numbers at the indices `where`."""
    rest = np.setdiff1d(np.arange(x.shape[0]), where)
    return assemble([(rest, gather(x, rest)), (where, values)])


def tangent_gradient(sys: System, q: ArrayLike, g: ArrayLike) -> Array:
    """Gradient with respect to the nv numbers of dv in integrate(q, dv), from the nq numbers of jax.grad."""
    (q,) = arguments(sys, q=q)
    g = array("g", g, (sys.nq,), f"(nq,) = ({sys.nq},)", sys.dtype)
    zero = jnp.zeros(sys.nv, q.dtype)
    return jax.vjp(lambda dv: integrate(sys, q, dv), zero)[1](g)[0]
