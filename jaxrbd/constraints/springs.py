"""The simplest contact, springs and dampers against a plane ([PROX], soft contact):

    f_n = max(k depth - d n·u, 0),     f_t = -friction f_n u_t / sqrt(|u_t|² + slip_speed²),

where depth > 0 and u is the velocity of the material point that touches. The ground only pushes, friction
stays within its cone, and below the slip speed it acts like a damper, so that a robot at rest creeps. Stiff
ground needs short steps: about dt < 2 / sqrt(k / m).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, combine
from jaxrbd.constraints.jacobian import evaluate
from jaxrbd.constraints.kinds import weld
from jaxrbd.constraints.rows import sum_by_row
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, pytree, static
from jaxrbd.tree.arguments import arguments, array
from jaxrbd.tree.frames import forward_kinematics
from jaxrbd.typing import Array, ArrayLike, Numbers


@pytree
class GroundSprings:
    """Points of a robot over a plane; make it with `ground_springs`. A function of (sys, q, v), as `f_ext`.

    Every number may be replaced and differentiated; those per point are (n,).
    """

    points: Constraints  # each point's motion, as rows of a weld to the world
    bodies: tuple[int, ...] = static()
    normal: jax.Array  # (3,) unit
    height: jax.Array  # of the plane along the normal [m]
    radius: jax.Array  # (n,) of balls around the points [m]
    stiffness: jax.Array  # (n,) [N/m]
    damping: jax.Array  # (n,) [N s/m]
    friction: jax.Array  # (n,)
    slip_speed: jax.Array  # [m/s]

    def __call__(self, sys: System, q: ArrayLike, v: ArrayLike) -> Array:
        """f_ext (nb, 6): moments and forces on bodies, world-aligned at their origins."""
        where, force = self.contact_forces(sys, q, v)
        _, origins = forward_kinematics(sys, q)
        arm = where - origins[np.array(self.bodies)]
        wrench = jnp.concatenate([jnp.cross(arm, force), force], 1)
        return sum_by_row(wrench, np.array(self.bodies), sys.nb)

    def contact_forces(self, sys: System, q: ArrayLike, v: ArrayLike) -> tuple[Array, Array]:
        """World places where points touch, or would, and the ground's force on it: two arrays (n, 3)."""
        n = self.normal
        q, v = arguments(sys, q=q, v=v)
        pose, twist, *_ = (x.reshape(-1, 6) for x in evaluate(sys, self.points, q, v, None))
        centre = pose[:, 3:]
        down = -self.radius[:, None] * n
        u = twist[:, 3:] + jnp.cross(twist[:, :3], down)
        depth = self.height + self.radius - centre @ n
        push = jnp.maximum(self.stiffness * depth - self.damping * (u @ n), 0) * (depth > 0)
        slip = u - (u @ n)[:, None] * n
        slowed = slip / jnp.sqrt(jnp.sum(slip * slip, 1) + self.slip_speed**2)[:, None]
        return centre + down, push[:, None] * (n - self.friction[:, None] * slowed)


def ground_springs(
    sys: System,
    points: str | Sequence[str] | Mapping[str, Numbers],
    *,
    stiffness: Numbers = 1e4,
    damping: Numbers = 1e2,
    friction: Numbers = 0.8,
    slip_speed: ArrayLike = 1e-2,
    radius: Numbers = 0.0,
    normal: Numbers = (0.0, 0.0, 1.0),
    point: Numbers = (0.0, 0.0, 0.0),
) -> GroundSprings:
    """Springs under named frames, or under points in them: {frame: (x, y, z), or a list of such}.

    `stiffness`, `damping`, `friction` and `radius` are numbers or one per point; the plane passes through
    `point`. Use it as f_ext of `step` and `rollout`.
    """
    if not isinstance(points, Mapping):
        points = dict.fromkeys((points,) if isinstance(points, str) else points, (0.0, 0.0, 0.0))
    places = [(name, p) for name, ps in points.items() for p in np.reshape(np.asarray(ps, float), (-1, 3))]
    if not places:
        raise ArgumentError("ground_springs: no points given. Name frames such as ['left_sole'].")
    rows = combine(*(weld(sys, name, offset=p) for name, p in places))
    n = np.asarray(normal, float)
    if n.shape != (3,) or not np.linalg.norm(n) > 0:
        raise ArgumentError(f"ground_springs: normal is {normal!r}, expected three numbers, not zero.")
    n = n / np.linalg.norm(n)
    given = {"stiffness": stiffness, "damping": damping, "friction": friction, "radius": radius}
    numbers = {name: _per_point(name, x, len(places), sys.dtype) for name, x in given.items()}
    if not isinstance(slip_speed, jax.core.Tracer) and not float(slip_speed) > 0:
        raise ArgumentError(f"ground_springs: slip_speed is {slip_speed!r}, expected a positive number.")
    return GroundSprings(
        points=rows,
        bodies=tuple(e.bodies(sys.topology)[0] for e in rows.entries),
        normal=jnp.asarray(n, sys.dtype),
        height=jnp.asarray(n @ np.asarray(point, float), sys.dtype),
        slip_speed=jnp.asarray(slip_speed, sys.dtype),
        **numbers,
    )


def _per_point(name: str, x, count: int, dtype):
    if not isinstance(x, jax.core.Tracer) and not (np.asarray(x) >= 0).all():
        raise ArgumentError(f"ground_springs: {name} is {x!r}, expected numbers >= 0.")
    x = jnp.broadcast_to(jnp.asarray(x, dtype), (count,)) if jnp.ndim(x) == 0 else x
    return array(name, x, (count,), f"a number or one per point, ({count},)", dtype)
