"""Energies, centre of mass and centroidal momentum."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, check_system
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.crba import composite_columns
from jaxrbd.tree.joints import joint_transforms
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.opening import opened, with_columns
from jaxrbd.tree.spatial import Vec3, stack
from jaxrbd.typing import Array, ArrayLike


def total_mass(sys: System) -> Array:
    """Mass of everything that moves."""
    check_system(sys, "total_mass")
    moving = jnp.asarray([b >= 0 for b in sys.topology.frame_bodies[: sys.topology.link_count]], sys.dtype)
    return jnp.sum(sys.mass * moving)


def kinetic_energy(sys: System, q: ArrayLike, v: ArrayLike) -> Array:
    """T = ½ vᵀ M(q) v, armature included."""
    q, v = arguments(sys, q=q, v=v)
    return _kinetic_energy(*opened(sys, q, v))


def potential_energy(sys: System, q: ArrayLike) -> Array:
    """U = -sum of m g·c over the bodies; zero with every centre of mass at the world's origin."""
    (q,) = arguments(sys, q=q)
    _, moment = _mass_moment(*opened(sys, q))
    return -jnp.dot(sys.gravity, moment)


def energy(sys: System, q: ArrayLike, v: ArrayLike) -> Array:
    """Total mechanical energy T + U (springs not included)."""
    return kinetic_energy(sys, q, v) + potential_energy(sys, q)


def center_of_mass(sys: System, q: ArrayLike) -> Array:
    """Centre of mass of everything that moves, in the world, (3,)."""
    (q,) = arguments(sys, q=q)
    if not sys.nb:
        raise ArgumentError(
            f"{sys.name!r} has no moving body, so no centre of mass. Load it with base='free' to let it move."
        )
    mass, moment = _mass_moment(*opened(sys, q))
    return moment / mass


def center_of_mass_velocity(sys: System, q: ArrayLike, v: ArrayLike) -> Array:
    """Velocity of the centre of mass, (3,)."""
    return centroidal_momentum(sys, q, v)[3:] / total_mass(sys)


def center_of_mass_jacobian(sys: System, q: ArrayLike) -> Array:
    """(3, nv): its product with v is the velocity of the centre of mass."""
    return centroidal_momentum_matrix(sys, q)[3:] / total_mass(sys)


def centroidal_momentum(sys: System, q: ArrayLike, v: ArrayLike) -> Array:
    """Angular (about the centre of mass) and linear momentum in world axes, (6,)."""
    q, v = arguments(sys, q=q, v=v)
    return _momentum(*opened(sys, q, v)) if sys.nb else jnp.zeros(6, sys.dtype)


def centroidal_momentum_matrix(sys: System, q: ArrayLike) -> Array:
    """A(q), (6, nv): the centroidal momentum is A(q) v. Rotors (armature) carry none of it."""
    (q,) = arguments(sys, q=q)
    return with_columns(sys, q, _momentum_matrix(*opened(sys, q)))


def _world_inertias(sys: System, R, roots):
    at_nodes, at_roots = kin.node_inertias(sys, kin.body_inertias(sys))
    return kin.join(
        *kin.broadcast((at_nodes.rotate(R), at_roots.rotate(roots.R)), R.a.x if R.a.x.size else roots.p.x)
    )


def _root_offsets(sys: System, roots):
    """Positions of the roots from the first free root (or the world), so that far-away robots keep digits."""
    reference = gather(roots.p, min(1, nodes_of(sys.topology).nroots - 1))
    return Vec3(*(x - y[None] for x, y in zip(roots.p, reference))), reference


def _positions(sys: System, p, roots):
    """Positions of nodes and roots from the reference of `_root_offsets`."""
    nodes = nodes_of(sys.topology)
    offsets, reference = _root_offsets(sys, roots)
    at_nodes = gather(p, slice(0, nodes.size)) + gather(offsets, nodes.root)
    return kin.join(at_nodes, kin.broadcast(offsets, p.x)), reference


@kernel(lambda *_: ())
def _kinetic_energy(sys: System, q, v):
    _, roots, _, R, V, _, _ = kin.motion_pass(sys, q, v, jnp.zeros_like(v), jnp.zeros((3, 1), q.dtype))
    at_nodes, at_roots = kin.node_inertias(sys, kin.body_inertias(sys))
    twice = jnp.sum(V.dot(at_nodes.rotate(R) @ V), 0) + jnp.sum(
        roots.V.dot(at_roots.rotate(roots.R) @ roots.V), 0
    )
    return 0.5 * (twice + jnp.sum(sys.armature * v * v, 0))


@kernel(lambda *_: [(), (3,)])
def _mass_moment(sys: System, q):
    """Total mass, and the sum of mass times position over everything that moves."""
    joints, roots = joint_transforms(sys, q), kin.root_states(sys, q)
    R, p = kin.poses(sys, joints, roots, q)
    nodes = nodes_of(sys.topology)
    I = _world_inertias(sys, gather(R, slice(0, nodes.size)), roots)
    x, reference = _positions(sys, p, roots)
    moment = I.h + x * I.mass
    mass = jnp.sum(I.mass, 0)
    total = Vec3(*(jnp.sum(m, 0) + mass * y for m, y in zip(moment, reference)))
    return mass, stack(total, 0, total.x)


@kernel(lambda *_: (6,))
def _momentum(sys: System, q, v):
    _, roots, _, R, V, _, _ = kin.motion_pass(sys, q, v, jnp.zeros_like(v), jnp.zeros((3, 1), q.dtype))
    joints = joint_transforms(sys, q)
    p = kin.poses(sys, joints, roots, q).p
    I = _world_inertias(sys, R, roots)
    x, _ = _positions(sys, p, roots)
    h = I @ kin.join(V, kin.broadcast(roots.V, q))
    com = _com(I, x)
    total = jax.tree.map(lambda y: jnp.sum(y, 0), h.from_(x - Vec3(*(c[None] for c in com))))
    return stack([*total.ang, *total.lin], 0, total.ang.x)


def _com(I, x: Vec3) -> Vec3:
    mass = jnp.sum(I.mass, 0)
    return Vec3(*(jnp.sum(m, 0) / mass for m in I.h + x * I.mass))


@kernel(lambda sys, q: (6, sys.nv))
def _momentum_matrix(sys: System, q):
    nodes = nodes_of(sys.topology)
    joints, roots = joint_transforms(sys, q), kin.root_states(sys, q)
    R, p = kin.poses(sys, joints, roots, q)
    I = _world_inertias(sys, gather(R, slice(0, nodes.size)), roots)
    x, _ = _positions(sys, p, roots)
    com = _com(I, x)
    # the momentum that each column gives to its subtree, carried to the centre of mass
    _, F, origin = composite_columns(sys, q)
    root_of_dof = [
        int(nodes.root[s]) if s < nodes.size else (int(s) - nodes.size) // 6 + 1 for s in nodes.slot_of_dof
    ]
    offsets, _ = _root_offsets(sys, roots)
    where = origin + gather(offsets, np.array(root_of_dof)) if root_of_dof else origin
    F = F.from_(where - Vec3(*(c[None] for c in com)))
    return stack([*F.ang, *F.lin], 0, F.ang.x + 0 * F.lin.x)
