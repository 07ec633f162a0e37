"""Signed distances between the shapes of a System, for planning and for contact."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.collision.broad import nearest_pairs
from jaxrbd.collision.kinds import touch
from jaxrbd.collision.shapes import Placed, Touch
from jaxrbd.collision.table import Group, NamePair, Pairs, body_of, table_of
from jaxrbd.errors import ArgumentError, warn
from jaxrbd.model.system import System, check_system, pytree, static
from jaxrbd.model.topology import Topology
from jaxrbd.tree.frames import frame_poses
from jaxrbd.typing import Array, ArrayLike


@pytree
class Distances:
    """One row per pair of shapes (A, B).

    distance  (n,)    m   negative where they overlap
    a, b      (n, 3)  m   the nearest points of A and of B, in the world; a - b = distance * normal
    normal    (n, 3)  1   from B to A
    names                 (A, B) of every pair (static)
    """

    distance: jax.Array
    a: jax.Array
    b: jax.Array
    normal: jax.Array
    names: tuple[NamePair, ...] = static()


@pytree
class Touches:
    """Places where shapes may touch, a fixed number: those that do not exist are far apart.

    position    (n, 3)  m   in the middle between the shapes
    normal      (n, 3)  1   from B to A, where A moves
    distance    (n,)    m
    valid       (n,)        whether the place exists
    pair, slot  (n,)        row of the pair in the table, and which of its places
    shape_a, shape_b  (n,)  shapes, indices in the System
    body_a, body_b    (n,)  their moving bodies, -1 for the world
    dropped     ()          pairs that may be near but were beyond the budget
    """

    position: jax.Array
    normal: jax.Array
    distance: jax.Array
    valid: jax.Array
    pair: jax.Array
    slot: jax.Array
    shape_a: jax.Array
    shape_b: jax.Array
    body_a: jax.Array
    body_b: jax.Array
    dropped: jax.Array


def distances(sys: System, q: ArrayLike, table: Pairs | None = None) -> Distances:
    """Signed distance of every pair of collision shapes, with nearest points; `table` by `pairs`."""
    table = default_pairs(sys) if table is None else _checked(table, "distances")
    return _distances(sys, q, table)


@jax.jit
def _distances(sys: System, q: ArrayLike, table: Pairs) -> Distances:
    placed = place(sys, q)
    found = [_first(_meet(g, *_sides(g, placed))) for g in table.groups]
    distance, a, b, normal = _joined_rows(found, sys.dtype)
    return Distances(distance, a, b, normal, table.names)


def touches(
    sys: System,
    q: ArrayLike,
    table: Pairs | None = None,
    *,
    budget: int | None = None,
    margin: ArrayLike = 0.0,
) -> Touches:
    """All places of contact of the pairs of a table, static in number.

    With a `budget` only so many pairs of each two kinds are looked at: those whose bounding spheres are the
    nearest. `dropped` counts pairs beyond it whose bounding spheres are nearer than `margin`.
    """
    table = default_pairs(sys) if table is None else _checked(table, "touches")
    if budget is not None and budget < 1:
        raise ArgumentError(f"touches: budget is {budget}, expected at least one pair, or None for all.")
    return _touches(sys, q, table, budget, margin)


@partial(jax.jit, static_argnums=3)
def _touches(sys: System, q: ArrayLike, table: Pairs, budget: int | None, margin: ArrayLike) -> Touches:
    placed = place(sys, q)
    parts, dropped, first = [], jnp.zeros((), int), 0
    for g in table.groups:
        index, more = jnp.arange(len(g.a)), jnp.zeros((), int)
        A, B = _sides(g, placed)
        if budget is not None and budget < len(g.a):
            index, more = nearest_pairs(g, A, B, budget, margin)
            A, B = jax.tree.map(lambda x, k=index: x[k], (A, B))
        parts.append(_rows(sys, g, _meet(g, A, B), index, first))
        dropped, first = dropped + more, first + len(g.a)
    if not parts:
        none, whole = jnp.zeros((0, 3), sys.dtype), jnp.zeros(0, int)
        parts = [(none, none, none[:, 0], whole == 0, *[whole] * 6)]
    rows: Any = [*(jnp.concatenate(x) for x in zip(*parts)), dropped]
    return Touches(*rows)


def _meet(g: Group, A: Placed, B: Placed) -> Touch:
    """The places of every pair of a group."""
    first, second = g.kinds
    return jax.vmap(lambda a, b: touch(first, second, a, b))(A, B)


def _rows(sys: System, g: Group, found: Touch, index: Array, first: int) -> tuple[Array, ...]:
    """What `Touches` holds, for one group; shapes of the world become B."""
    t, k = sys.topology, g.count
    bodies = [np.array([body_of(t, i) for i in side], int) for side in (g.a, g.b)]
    turn = jnp.asarray(bodies[0] < 0)[index]
    sides = [jnp.asarray(x)[index] for x in (np.array(g.a), np.array(g.b), *bodies)]
    shape_a, shape_b, body_a, body_b = (
        jnp.where(turn, sides[other], sides[own]) for own, other in ((0, 1), (1, 0), (2, 3), (3, 2))
    )
    wide = lambda x: jnp.repeat(x, k)  # noqa: E731
    flat = lambda x: x.reshape(-1, *x.shape[2:])  # noqa: E731
    normal = flat(found.normal) * jnp.where(wide(turn), -1, 1)[:, None]
    return (
        (flat(found.a) + flat(found.b)) / 2,
        normal,
        flat(found.distance),
        flat(found.valid),
        wide(first + index),
        jnp.tile(jnp.arange(k), len(index)),
        *(wide(x) for x in (shape_a, shape_b, body_a, body_b)),
    )


def overlapping(sys: System, table: Pairs, q: ArrayLike | None = None, depth: float = 1e-6) -> list[NamePair]:
    """Pairs of links whose shapes overlap at q (the default pose), for `exclude`; a warning names them.

    Shapes of the world do not count: a robot may stand in the ground by mistake, which is not to be hidden.
    """
    found = jax.jit(lambda s, x: distances(s, x, table).distance)(sys, sys.q0 if q is None else q)
    t, deep = sys.topology, np.asarray(found) < -depth
    links = lambda i: t.frame_names[t.shape_frames[i]]  # noqa: E731
    pairs_found = {
        (links(a), links(b)): None
        for a, b, bad in zip(*table.shapes(), deep)
        if bad and body_of(t, a) >= 0 and body_of(t, b) >= 0
    }
    if pairs_found:
        text = ", ".join(f"{a} and {b}" for a, b in list(pairs_found)[:8])
        more = f" and {len(pairs_found) - 8} more" if len(pairs_found) > 8 else ""
        warn(f"{sys.name}: {len(pairs_found)} pairs of links overlap at the default pose: {text}{more}.")
    return list(pairs_found)


def place(sys: System, q: ArrayLike) -> Placed:
    """All shapes of a System in the world, stacked."""
    R, p = frame_poses(sys, q)
    R = jnp.concatenate([R, jnp.eye(3, dtype=R.dtype)[None]])
    p = jnp.concatenate([p, jnp.zeros((1, 3), p.dtype)])
    frames = np.array(sys.topology.shape_frames, int)  # -1, the world, is the last one
    own = jax.vmap(_rotation)(sys.shape_quaternion)
    R, p = R[frames], p[frames]
    return Placed(R @ own, p + jnp.einsum("nij,nj->ni", R, sys.shape_position), sys.shape_size)


def _rotation(quaternion: Array) -> Array:
    w, x, y, z = quaternion / jnp.sqrt(jnp.sum(quaternion**2))
    return jnp.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _sides(g: Group, placed: Placed) -> tuple[Placed, Placed]:
    made = []
    for side, data in ((g.a, g.data_a), (g.b, g.data_b)):
        index = np.array(side, int)
        if data is not None:
            data = jax.tree.map(
                lambda x: x.astype(placed.p.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, data
            )
        made.append(Placed(placed.R[index], placed.p[index], placed.size[index], data))
    return made[0], made[1]


def _first(found: Touch) -> tuple[Array, Array, Array, Array]:
    return found.distance[:, 0], found.a[:, 0], found.b[:, 0], found.normal[:, 0]


def _joined_rows(found, dtype) -> Any:
    if not found:
        return jnp.zeros(0, dtype), *(jnp.zeros((0, 3), dtype) for _ in range(3))
    return [jnp.concatenate(x) for x in zip(*found)]


def _checked(table: Pairs, where: str) -> Pairs:
    if not isinstance(table, Pairs):
        raise ArgumentError(
            f"{where}: the table is a {type(table).__name__}. Make it with rbd.collision.pairs(sys)."
        )
    return table


def default_pairs(sys: System) -> Pairs:
    """`pairs(sys)`, made once per topology."""
    return _of_topology(check_system(sys, "distances").topology)


@lru_cache(maxsize=64)
def _of_topology(t: Topology) -> Pairs:
    return table_of(t)
