"""Two points at a distance: a rod."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints
from jaxrbd.constraints.kinds.frames import Frames, between_frames
from jaxrbd.constraints.kinds.placing import Baumgarte, Options, Place, Placement, in_world, pose_in
from jaxrbd.constraints.kinds.relative import Relative, Side
from jaxrbd.constraints.kinds.turning import choose
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System
from jaxrbd.tree.spatial import Motion, Vec3
from jaxrbd.typing import ArrayLike, Numbers


@dataclass(frozen=True)
class Distance(Frames):
    """|d| = `parameter` for the vector d from B's place to A's: the row stands where z would."""

    @property
    def word(self) -> str:
        return "distance"

    @classmethod
    def measure(cls, mine: np.ndarray, x: Relative) -> Relative:
        n, length, speed, bend = _distance(x.d, x.a, x.b)
        put = lambda new, old: jnp.where(mine[:, None], new, old)  # noqa: E731
        phi, u, gamma = x.phi, x.u, x.gamma
        return x._replace(
            directions=[*x.directions[:2], choose(mine, n, x.directions[2])],
            phi=Motion(phi.ang, phi.lin._replace(z=put(length - x.parameter, phi.lin.z))),
            u=Motion(u.ang, u.lin._replace(z=put(speed, u.lin.z))),
            gamma=Motion(gamma.ang, gamma.lin._replace(z=put(bend, gamma.lin.z))),
        )


def distance(
    sys: System,
    frame: str,
    to: str | None = None,
    *,
    length: ArrayLike | None = None,
    offset: Placement | None = None,
    anchor: Placement | None = None,
    q: ArrayLike | None = None,
    weight: Numbers = 1.0,
    baumgarte: Baumgarte | None = None,
    target: Numbers | None = None,
    name: str | None = None,
) -> Constraints:
    """Hold two points at a distance: one row. `length` [m], or the present one at `q`."""
    if (length is None) == (q is None):
        raise ArgumentError(f"distance({frame!r}): give either length= or q=, where it is measured.")
    if length is None:
        poses = [pose_in(sys, frame, offset), pose_in(sys, to, anchor)]
        p, r = (
            (R_f @ x + p_f)
            for (_, x), (R_f, p_f) in zip(poses, (in_world(sys, q, frame), in_world(sys, q, to)))
        )
        length = jnp.linalg.norm(p - r)
    if not isinstance(length, jax.core.Tracer) and not float(length) > 1e-9:
        raise ArgumentError(
            f"distance({frame!r}): the length is {float(length)}, expected a positive one: at zero the "
            "direction of the force is undefined. Use connect for points that coincide."
        )
    options = Options(weight, baumgarte, target, name)
    return between_frames(
        sys, Distance, frame, to, (5,), Place(offset, anchor), options, [length], anchored=True
    )


def _distance(d: Vec3, a: Side, b: Side):
    """Direction, length, its rate and its second derivative for the vector d between two points."""
    Va, Vb = a.V.at(a.r), b.V.at(b.r)
    Aa, Ab = a.A.at(a.r), b.A.at(b.r)
    speed = Va.lin - Vb.lin
    acc = Aa.lin + Va.ang.cross(Va.lin) - Ab.lin - Vb.ang.cross(Vb.lin)
    square = d.dot(d)
    safe = jnp.where(square > 0, square, 1)
    length = jnp.where(square > 0, jnp.sqrt(safe), 0)
    n = d * (1 / jnp.sqrt(safe))
    along = n.dot(speed)
    return n, length, along, n.dot(acc) + (speed.dot(speed) - along * along) / jnp.sqrt(safe)
