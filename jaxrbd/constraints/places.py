"""Where constraints sit in the world, and what their multipliers do to bodies there."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, ConstraintsLike, fitting
from jaxrbd.constraints.kinds.frames import Frames
from jaxrbd.constraints.rows import constraint_rows, motion, sum_by_row, table_of
from jaxrbd.engine.gather import gather
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.frames import frame_poses
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.typing import Array, ArrayLike


def constraint_places(sys: System, constraints: ConstraintsLike, q: ArrayLike) -> Array:
    """Points in the world, (nc, 2, 3): where each constraint sits in its frame A and in its frame B.

    NaN for constraints between joints, and for a user's function.
    """
    con = fitting(sys, constraints)
    R, p = frame_poses(sys, q)
    R = jnp.concatenate([R, jnp.eye(3, dtype=R.dtype)[None]])  # the world is frame -1
    p = jnp.concatenate([p, jnp.zeros_like(p[:1])])
    sides = []
    for side, local in (("a", con.position_a), ("b", con.position_b)):
        frame = np.array([getattr(e, side) if isinstance(e, Frames) else -1 for e in con.entries], int)
        sides.append(jnp.einsum("cij,cj->ci", R[frame], local) + p[frame])
    placed = np.array([isinstance(e, Frames) for e in con.entries], bool)
    return jnp.where(placed[:, None, None], jnp.stack(sides, 1), jnp.nan)


def constraint_wrenches(sys: System, constraints: ConstraintsLike, q: ArrayLike, lam: ArrayLike) -> Array:
    """What multipliers lam (m,) do to body A of each constraint, (nc, 6): torque, then force.

    In world axes, the torque about the constraint's place in A (`constraint_places`). Zero for constraints
    between joints. Body B feels the opposite force.
    """
    con = fitting(sys, constraints)
    (q,) = arguments(sys, q=q)
    lam = jnp.asarray(lam, q.dtype)
    if lam.shape != (con.rows,):
        raise ArgumentError(f"lam has shape {lam.shape}, expected ({con.rows},), one per row.")
    f, origin = _on_bodies(sys, con, q, lam)
    arm = constraint_places(sys, con, q)[:, 0] - origin
    torque = f[:, :3] - jnp.cross(jnp.where(jnp.isnan(arm), 0, arm), f[:, 3:])
    return jnp.concatenate([torque, f[:, 3:]], 1)


@kernel(lambda sys, con, q, lam: [(len(con.entries), 6), (len(con.entries), 3)])
def _on_bodies(sys: System, con: Constraints, q, lam):
    """Sum of K_A lam per constraint in world axes about the origin of A's node, and where that is."""
    table = table_of(sys.topology, con.entries)
    v = jnp.zeros((sys.topology.nv,) + q.shape[1:], q.dtype)
    moving = motion(sys, q, v)
    rows = constraint_rows(sys, con, q, v, moving)
    R, p = gather((moving.R, moving.p), table.slot_a)
    K = rows.KA.rotate(R)
    count = len(con.entries)
    wrench = [sum_by_row(x * lam, table.entry, count) for x in (*K.ang, *K.lin)]
    first = np.searchsorted(table.entry, np.arange(count))
    root = gather(moving.roots.p, _root_of(sys, table.slot_a[first]))
    full = lambda x: jnp.broadcast_to(x, (count,) + q.shape[-1:])  # noqa: E731
    origin = [full(a + b) for a, b in zip(gather(p, first), root)]
    return [jnp.stack(wrench, 1), jnp.stack(origin, 1)]


def _root_of(sys: System, slots: np.ndarray) -> np.ndarray:
    """The root whose origin positions of these slots are measured from."""
    nodes = nodes_of(sys.topology)
    return np.concatenate([nodes.root, np.arange(nodes.nroots)])[slots]
