"""A point on a plane: one of the directions that `hold` knows, along the normal."""

from __future__ import annotations

import numpy as np

from jaxrbd.constraints.data import Constraints
from jaxrbd.constraints.kinds.frames import Frames, between_frames
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System


def point_on_plane(
    sys: System, frame: str, to: str | None = None, *, normal=(0, 0, 1), point=(0, 0, 0), **options
) -> Constraints:
    """Hold a point on the plane through `point` with `normal`, both given in `to` (or the world): one row."""
    where = f"point_on_plane({frame!r})"
    return between_frames(sys, Frames, frame, to, (5,), **on_plane(where, normal, point, options))


def on_plane(where: str, normal, point, options: dict) -> dict:
    """Options with the plane as anchor: z of its axes is the normal."""
    if {"anchor", "q"} & set(options):
        raise ArgumentError(f"{where}: give the plane by point= and normal=, not anchor or q.")
    return {"anchor": (_frame_with_z(where, normal), point), **options}


def _frame_with_z(where: str, normal) -> np.ndarray:
    """A rotation whose third column is the given direction."""
    n = np.asarray(normal, float)
    if n.shape != (3,) or not 0 < np.linalg.norm(n) < np.inf:
        raise ArgumentError(f"{where}: normal is {normal!r}, expected three numbers, not zero.")
    z = n / np.linalg.norm(n)
    x = np.cross([0.0, 1.0, 0.0] if abs(z[1]) < 0.9 else [0.0, 0.0, 1.0], z)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], 1)
