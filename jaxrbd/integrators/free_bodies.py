"""Free joints in a time step: the centre of mass keeps its direction while the body turns.

The velocity of a free joint is a twist in the axes of the body. Added up there, v + dt a, it contains the
turning of the axes, -dt ω × v, to first order only, and a body that spins gains speed without a force. So
the linear part is added up in axes that do not turn, at the centre of mass of the body:

    w' = R (u + dt (u̇ + ω × u)),   R' = R exp(dt ω'),   x' = x + dt w',   u' = R'ᵀ w',

where u is the velocity of that point in body axes and x its position. Without forces w' = w to rounding.
The axes are those of the joint's parent; for a joint on the world they are the world's.
"""

from __future__ import annotations

from functools import lru_cache

import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.joints import TYPES
from jaxrbd.joints.rotations import conjugate, quaternion_rotate, unit
from jaxrbd.model.system import System, Topology
from jaxrbd.tree.manifold import exchange, free_joints, integrate


def advance(sys: System, q, v, a, dt):
    """(q', v') of a semi-implicit step with acceleration a; without free joints v + dt a and q ⊞ dt v'."""
    later = v + dt * a
    moved = integrate(sys, q, dt * later)
    rows, dofs = free_joints(sys.topology)
    if not len(rows):
        return moved, later
    turning, sliding, place, turn = dofs[:, :3], dofs[:, 3:], rows[:, :3], rows[:, 3:]
    s = centres(sys)
    before, after = unit(gather(q, turn)), gather(moved, turn)
    omega, new_omega = gather(v, turning), gather(later, turning)
    u = gather(v, sliding) + jnp.cross(omega, s)
    rate = gather(a, sliding) + jnp.cross(gather(a, turning), s) + jnp.cross(omega, u)
    w = quaternion_rotate(before, u + dt * rate)
    x = gather(q, place) + (dt * w + quaternion_rotate(before, s) - quaternion_rotate(after, s))
    new_u = quaternion_rotate(conjugate(after), w) - jnp.cross(new_omega, s)
    return exchange(moved, place, x), exchange(later, sliding, new_u)


def carry(sys: System, q, v, q1):
    """v at q as the velocity at q1: free bodies keep their twist in axes that do not turn, others keep v."""
    rows, dofs = free_joints(sys.topology)
    if not len(rows):
        return v
    turning, sliding, turn = dofs[:, :3], dofs[:, 3:], rows[:, 3:]
    s, before, after = centres(sys), unit(gather(q, turn)), unit(gather(q1, turn))
    across = lambda x: quaternion_rotate(conjugate(after), quaternion_rotate(before, x))  # noqa: E731
    omega = gather(v, turning)
    new = across(omega)
    u = across(gather(v, sliding) + jnp.cross(omega, s)) - jnp.cross(new, s)
    return exchange(exchange(v, turning, new), sliding, u)


def glide(sys: System, q, v, dt):
    """(q', v') when all go on as they move: v' is v in the axes that free bodies have then."""
    return advance(sys, q, v, unturned(sys, v, jnp.zeros_like(v), -1), dt)


def unturned(sys: System, v, a, sign: int = 1):
    """a as rates in axes that do not turn: free bodies' have ω × u more; with sign -1 the other way."""
    _, dofs = free_joints(sys.topology)
    if not len(dofs):
        return a
    turning, sliding = dofs[:, :3], dofs[:, 3:]
    omega = gather(v, turning)
    u = gather(v, sliding) + jnp.cross(omega, centres(sys))
    return exchange(a, sliding, gather(a, sliding) + sign * jnp.cross(omega, u))


@lru_cache(maxsize=512)
def _links_of_free_bodies(t: Topology):
    """Table (free joints, most links) of the links that each carries; link_count as filler."""
    bodies = [b for b, kind in enumerate(t.joint_types) if TYPES[kind].free]
    lists = [[i for i in range(t.link_count) if t.frame_bodies[i] == b] for b in bodies]
    most = max([1] + [len(x) for x in lists])
    return np.array([x + [t.link_count] * (most - len(x)) for x in lists], int)


def centres(sys: System):
    """Centre of mass of each free body in its own frame, (free joints, 3); the origin if it has no mass."""
    table = _links_of_free_bodies(sys.topology)
    n = sys.topology.link_count
    where = sys.frame_position[:n] + quaternion_rotate(unit(sys.frame_quaternion[:n]), sys.com)
    pad = lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])])  # noqa: E731
    mass, where = gather(pad(sys.mass), table), gather(pad(where), table)
    total = jnp.sum(mass, 1)
    return jnp.sum(mass[..., None] * where, 1) / jnp.where(total > 0, total, 1)[:, None]
