"""Constraints from what a user gives: places in frames, weights, Baumgarte gains, all of it checked."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, Entry
from jaxrbd.errors import ArgumentError
from jaxrbd.joints.matrices import quaternion_from_matrix
from jaxrbd.joints.rotations import quaternion_of
from jaxrbd.model.system import System
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.frames import frame_pose
from jaxrbd.tree.spatial import rotation_from_quaternion
from jaxrbd.typing import ArrayLike, Numbers

WORLD = ("world", None)

Placement = Numbers | tuple[Numbers, Numbers]  # a point, or a pose (R, p)
Baumgarte = ArrayLike | tuple[ArrayLike, ArrayLike]  # a time constant, or (stiffness, damping)


class Place(NamedTuple):
    """Where a constraint between frames sits: in the frame, in the other one, or met at a configuration."""

    offset: Any = None
    anchor: Any = None
    q: Any = None


class Options(NamedTuple):
    """What every constraint may have beside its place."""

    weight: Any = 1.0
    baumgarte: Any = None
    target: Any = None
    name: str | None = None


def one_entry(
    sys: System,
    entry: Entry,
    options: Options,
    *,
    parameter=(),
    coefficients=(),
    params=None,
    pose_a=None,
    pose_b=None,
) -> Constraints:
    """The Constraints of one entry, its numbers checked."""
    weight, baumgarte, target, _ = options
    dtype, where = sys.dtype, f"constraint {entry.name!r}"
    if np.shape(weight) not in ((), (entry.rows,)):
        raise ArgumentError(
            f"{where}: weight has shape {np.shape(weight)}, expected a number or one per row, "
            f"({entry.rows},)."
        )
    known = not isinstance(weight, jax.core.Tracer)
    if known and not np.all((np.asarray(weight) > 0) & (np.asarray(weight) < np.inf)):
        raise ArgumentError(f"{where}: weight is {weight!r}, expected positive numbers.")
    gains = (0.0, 0.0) if baumgarte is None else baumgarte
    if np.ndim(gains) == 0 and not isinstance(gains, (tuple, list)):
        if not isinstance(gains, jax.core.Tracer) and not float(gains) > 0:
            raise ArgumentError(
                f"{where}: baumgarte is {gains!r}, expected a positive time constant in seconds."
            )
        gains = (1 / gains**2, 2 / gains)
    if len(gains) != 2 or any(not isinstance(g, jax.core.Tracer) and not float(g) >= 0 for g in gains):
        raise ArgumentError(
            f"{where}: baumgarte is {baumgarte!r}, expected a time constant or two gains, not negative."
        )
    target = jnp.zeros(entry.rows, dtype) if target is None else jnp.asarray(target, dtype)
    if target.shape != (entry.rows,):
        raise ArgumentError(
            f"{where}: target has shape {target.shape}, expected ({entry.rows},), one number per row."
        )
    numbers = [jnp.asarray(x, dtype) for x in parameter]
    identity = (jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype))
    (R_a, p_a), (R_b, p_b) = pose_a or identity, pose_b or identity
    return Constraints(
        entries=(entry,),
        position_a=p_a[None],
        quaternion_a=_quaternion(R_a)[None],
        position_b=p_b[None],
        quaternion_b=_quaternion(R_b)[None],
        parameter=jnp.stack([*numbers, *[jnp.zeros((), dtype)] * (5 - len(numbers))])[None],
        coefficients=jnp.asarray(coefficients, dtype),
        weight=jnp.broadcast_to(jnp.asarray(weight, dtype), (entry.rows,)),
        stiffness=jnp.asarray(gains[0], dtype)[None],
        damping=jnp.asarray(gains[1], dtype)[None],
        target=target,
        params=(params,),
    )


def pose_in(sys: System, frame, pose):
    """(R, p) from None, a point, or a pair."""
    dtype = sys.dtype
    if pose is None:
        return jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype)
    if isinstance(pose, (tuple, list)) and len(pose) == 2:
        R, p = jnp.asarray(pose[0], dtype), jnp.asarray(pose[1], dtype)
    else:
        R, p = jnp.eye(3, dtype=dtype), jnp.asarray(pose, dtype)
    if R.shape != (3, 3) or p.shape != (3,):
        raise ArgumentError(
            f"constraint at {frame or 'world'!r}: a place has shapes {R.shape} and {p.shape}, "
            "expected a point (3,) or a pose ((3, 3), (3,))."
        )
    return R, p


def in_world(sys: System, q, frame):
    if frame in WORLD:
        return jnp.eye(3, dtype=sys.dtype), jnp.zeros(3, sys.dtype)
    return frame_pose(sys, arguments(sys, q=q)[0], frame)


def matrix(quaternion):
    return jnp.array([list(row) for row in rotation_from_quaternion(*quaternion)])


def _quaternion(R):
    """Quaternion (w, x, y, z) of a rotation, whether its numbers are known or traced."""
    if not isinstance(R, jax.core.Tracer):
        return jnp.asarray(quaternion_from_matrix(np.asarray(R, float)), R.dtype)
    return quaternion_of(R)
