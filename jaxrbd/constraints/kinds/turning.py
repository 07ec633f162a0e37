"""phi of turning directions: how far a rotation is from meeting them."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from jaxrbd.joints.rotations import rotation_log
from jaxrbd.tree.spatial import ZERO3, Mat3, Vec3, vec3


def turning_error(R: Mat3, masks: Sequence[tuple[int, ...]]) -> Vec3:
    """phi of the turning directions: zero where they are met, with the relative velocity as its rate there.

    All three held: the rotation vector. Two held: the tilt of the third axis, however far it has turned. One
    held: zero, for no function of the rotation has a component of the angular velocity as its rate.
    """
    held = [[j for j in mask if j < 3] for mask in masks]
    phi = ZERO3
    if any(len(h) == 3 for h in held):
        phi = choose(np.array([len(h) == 3 for h in held]), vec3(rotation_log(R, axis=0), 0), phi)
    columns = Vec3(R.a.x, R.b.x, R.c.x), Vec3(R.a.y, R.b.y, R.c.y), Vec3(R.a.z, R.b.z, R.c.z)
    for axis, column in enumerate(columns):
        tilted = np.array([len(h) == 2 and axis not in h for h in held])
        if tilted.any():
            phi = choose(tilted, _tilt(axis, column), phi)
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


def choose(mask: np.ndarray, new: Vec3, old: Vec3) -> Vec3:
    """`new` for the constraints of the mask, `old` for the others."""
    if mask.all():
        return new
    return Vec3(*(jnp.where(mask[:, None], x, y) for x, y in zip(new, old)))
