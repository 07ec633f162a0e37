"""A ball or an upright wheel on a plane, without slip."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints
from jaxrbd.constraints.kinds.frames import Frames, between_frames
from jaxrbd.constraints.kinds.placing import Baumgarte, Options, Place, Placement
from jaxrbd.constraints.kinds.plane import frame_with_z
from jaxrbd.constraints.kinds.relative import Relative
from jaxrbd.constraints.kinds.turning import choose
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System
from jaxrbd.tree.spatial import Motion, Vec3
from jaxrbd.typing import ArrayLike, Numbers


@dataclass(frozen=True)
class Rolling(Frames):
    """The point that touches, `parameter` below A, does not move on the plane of B; A keeps its height."""

    @property
    def word(self) -> str:
        return "rolling"

    @classmethod
    def touch(cls, mine: np.ndarray, normal: Vec3, parameter) -> Vec3:
        radius = parameter * jnp.asarray(mine[:, None], parameter.dtype)
        return normal * -radius

    @classmethod
    def measure(cls, mine: np.ndarray, x: Relative) -> Relative:
        height = Vec3(0 * x.place.x, 0 * x.place.x, x.place.z - x.parameter)
        return x._replace(phi=Motion(x.phi.ang, choose(mine, height, x.phi.lin)))


def rolling(
    sys: System,
    frame: str,
    to: str | None = None,
    *,
    radius: ArrayLike,
    normal: Numbers = (0, 0, 1),
    point: Numbers = (0, 0, 0),
    offset: Placement | None = None,
    weight: Numbers = 1.0,
    baumgarte: Baumgarte | None = None,
    target: Numbers | None = None,
    name: str | None = None,
) -> Constraints:
    """A ball or upright wheel of `radius` about the frame's origin rolls on a plane, no slip: three rows.

    Two rows are not integrable: the velocity of the material point that touches the plane is zero. The
    third keeps the centre at its height.
    """
    if not isinstance(radius, jax.core.Tracer) and not float(radius) > 0:
        raise ArgumentError(f"rolling({frame!r}): radius is {radius!r}, expected a positive number.")
    anchor = (frame_with_z(f"rolling({frame!r})", normal), point)
    options = Options(weight, baumgarte, target, name)
    return between_frames(sys, Rolling, frame, to, (3, 4, 5), Place(offset, anchor), options, [radius])
