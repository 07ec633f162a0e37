"""A point on a plane: one of the directions that `hold` knows, along the normal."""

from __future__ import annotations

import numpy as np

from jaxrbd.constraints.data import Constraints
from jaxrbd.constraints.kinds.frames import Frames, between_frames
from jaxrbd.constraints.kinds.placing import Baumgarte, Options, Place, Placement
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System
from jaxrbd.typing import Numbers


def point_on_plane(
    sys: System,
    frame: str,
    to: str | None = None,
    *,
    normal: Numbers = (0, 0, 1),
    point: Numbers = (0, 0, 0),
    offset: Placement | None = None,
    weight: Numbers = 1.0,
    baumgarte: Baumgarte | None = None,
    target: Numbers | None = None,
    name: str | None = None,
) -> Constraints:
    """Hold a point on the plane through `point` with `normal`, both given in `to` (or the world): one row."""
    anchor = (frame_with_z(f"point_on_plane({frame!r})", normal), point)
    options = Options(weight, baumgarte, target, name)
    return between_frames(sys, Frames, frame, to, (5,), Place(offset, anchor), options)


def frame_with_z(where: str, normal) -> np.ndarray:
    """A rotation whose third column is the given direction."""
    n = np.asarray(normal, float)
    if n.shape != (3,) or not 0 < np.linalg.norm(n) < np.inf:
        raise ArgumentError(f"{where}: normal is {normal!r}, expected three numbers, not zero.")
    z = n / np.linalg.norm(n)
    x = np.cross([0.0, 1.0, 0.0] if abs(z[1]) < 0.9 else [0.0, 0.0, 1.0], z)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], 1)
