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
from jaxrbd.errors import ArgumentError
from jaxrbd.joints import SE3, SO3, TYPES, Group
from jaxrbd.model.system import System, Topology, check_system
from jaxrbd.tree.arguments import arguments, array
from jaxrbd.tree.mechanism import mechanism_of
from jaxrbd.tree.opening import from_tree, newton_step, opened, tree_of
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
    for group, q, v in layout(t.tree).groups:
        if group is SE3:
            if t.clusters:  # no free joint takes part in one
                q, v = np.searchsorted(t.kept_q, q), np.searchsorted(t.independent, v)
            return q, v
    return np.zeros((0, 7), int), np.zeros((0, 6), int)


def neutral(sys: System) -> Array:
    """The configuration with every coordinate zero and every rotation the identity.

    With clusters: with every independent coordinate zero, loops closed by going there from sys.q0; an error
    if they do not close there.
    """
    check_system(sys, "neutral")
    if sys.topology.clusters:
        return closed_neutral(sys)
    q = np.concatenate([np.zeros(0), *(TYPES[kind].neutral() for kind in sys.joint_types)])
    return jnp.asarray(q, sys.dtype)


def random_configuration(sys: System, key: ArrayLike, spread: float = 1.0) -> Array:
    """Uniform within joint limits where they are finite (else in ±pi or ±1 m), uniform rotations.

    `spread` scales the range of unlimited coordinates and the positions of free joints. Loops of clusters are
    closed: from sys.q0 the independent joints go where they are sent, by steps; of four places the first one
    is taken where the loops still close, and sys.q0 if there is none.
    """
    check_system(sys, "random_configuration")
    if sys.topology.clusters:
        return random_closed(sys, key, spread)
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
    if sys.topology.clusters:
        tree, q = opened(sys, q)
        return from_tree(sys, normalize(tree, q))
    where = layout(sys.topology).quaternions
    if not len(where):
        return q
    quat = gather(q, where)
    return q.at[where].set(quat / jnp.linalg.norm(quat, axis=1, keepdims=True))


def integrate(sys: System, q: ArrayLike, dv: ArrayLike) -> Array:
    """q ⊞ dv: the configuration reached from q by moving with joint velocities dv for unit time.

    With clusters the joints of loops follow G dv and are then closed again, by three Newton steps.
    """
    q, dv = arguments(sys, q=q, dv=dv)
    return _along_loops(sys, q, dv) if sys.topology.clusters else _integrate(sys.topology, q, dv)


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
    if sys.topology.clusters:
        tree, q0 = opened(sys, q0)
        return gather(difference(tree, q0, opened(sys, q1)[1]), np.array(sys.topology.independent, int))
    scalar_q, scalar_v, groups = layout(sys.topology)
    pieces = [(scalar_v, gather(q1, scalar_q) - gather(q0, scalar_q))]
    for group, rows, dofs in groups:
        places = _parts(rows, group.parts_q)
        pieces += zip(_parts(dofs, group.parts_v), group.log(_read(q0, places), _read(q1, places)))
    return assemble(pieces)


# --- clusters -----------------------------------------------------------------------------------------------


def _along_loops(sys: System, q, dv):
    t = sys.topology
    if mechanism_of(t).groups:
        _, q, dv = opened(sys, q, dv)
        return close(sys, _kept(t, _integrate(t.tree, q, dv)))
    where = np.full(t.v_starts[-1], t.nv)
    where[list(t.independent)] = np.arange(t.nv)
    spread = gather(jnp.concatenate([dv, jnp.zeros_like(dv[:1])]), where)
    return _kept(t, _integrate(t.tree, opened(sys, q)[1], spread))


def _kept(t: Topology, q):
    return gather(q, np.array(t.kept_q, int))


def close(sys: System, q, steps: int = 3):
    """q with its loops closed by Newton steps; independent joints stay where they are.

    Only the last two are differentiated: a Newton step at a solution has the solution's first derivative, and
    a second one its second and third.
    """
    still, start = jax.lax.stop_gradient((sys, q))
    found = start
    for _ in range(steps - 2):
        found = _newton(still, found)
    q = q + jax.lax.stop_gradient(found - start)
    return _newton(sys, _newton(sys, q))


def _newton(sys: System, q):
    t = sys.topology
    q, step, _ = newton_step(sys, q)
    return _kept(t, _integrate(t.tree, q, step))


def walk(sys: System, q, dv, pieces: int = 16):
    """integrate(sys, q, dv) in pieces, so that loops follow from one assembly to the next; and the largest
    error.
    """
    q = jax.lax.fori_loop(0, pieces, lambda _, q: _along_loops(sys, q, dv / pieces), q)
    return q, newton_step(sys, q)[2] if mechanism_of(sys.topology).groups else jnp.zeros((), q.dtype)


def is_closed(error):
    """Whether the largest error of a configuration's loops is rounding."""
    return error < (1e-9 if error.dtype == jnp.float64 else 1e-5)


def closed_neutral(sys: System) -> Array:
    tree = tree_of(sys)
    q0 = jnp.asarray(sys.q0)
    goal = neutral(tree)
    way = gather(difference(tree, opened(sys, q0)[1], goal), np.array(sys.topology.independent, int))
    q, error = jax.jit(walk, static_argnums=3)(sys, q0, way, 16)
    if not isinstance(error, jax.core.Tracer) and not is_closed(error):
        raise ArgumentError(
            f"neutral: the loops of {sys.name!r} do not close where its independent joints are zero ("
            f"{float(error):.2g} m or rad are left). Start from sys.q0, which is closed."
        )
    return q


def random_closed(sys: System, key, spread) -> Array:
    tree, independent = tree_of(sys), np.array(sys.topology.independent, int)
    q0 = jnp.asarray(sys.q0)
    start = opened(sys, q0)[1]

    def candidate(key):
        goal = random_configuration(tree, key, spread)
        q, error = walk(sys, q0, gather(difference(tree, start, goal), independent))
        return q, is_closed(error) & jnp.isfinite(q).all()

    q, good = jax.vmap(candidate)(jax.random.split(key, 4))
    return jnp.where(good.any(), q[jnp.argmax(good)], q0)


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
