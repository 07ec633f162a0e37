"""Regressors: inverse dynamics and energies are linear in the inertial parameters of the bodies.

Ten numbers per moving body (links merged): mass m, first moment h = m c, and the rotational inertia
xx, xy, xz, yy, yz, zz about the origin of the joint frame that moves with the body, in its axes.
tau - armature a = Y(q, v, a) π.
"""

from __future__ import annotations

from functools import lru_cache

import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.model.system import System, Topology, check_system
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.crba import columns_by_dof
from jaxrbd.tree.frames import path_to_root
from jaxrbd.tree.joints import column
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.opening import opened, with_rows
from jaxrbd.tree.spatial import Inertia, Mat3, Motion, Sym3, Vec3
from jaxrbd.typing import Array, ArrayLike


def inertial_parameters(sys: System) -> Array:
    """π, (10 nb,): (m, hx, hy, hz, Ixx, Ixy, Ixz, Iyy, Iyz, Izz) of every moving body."""
    return _parameters(check_system(sys, "inertial_parameters"))


def joint_torque_regressor(sys: System, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> Array:
    """Y(q, v, a), (nv, 10 nb): inverse_dynamics(q, v, a) = Y π + armature a. Y is linear in a and gravity.

    With clusters it is Gᵀ Y of the open tree, and armature acts there, too: Gᵀ (armature (G a + g)).
    """
    q, v, a = arguments(sys, q=q, v=v, a=a)
    return with_rows(sys, q, _torque_regressor(*opened(sys, q, v, a)))


def kinetic_energy_regressor(sys: System, q: ArrayLike, v: ArrayLike) -> Array:
    """(10 nb,): kinetic energy without armature is its product with π."""
    q, v = arguments(sys, q=q, v=v)
    return _energy_regressors(*opened(sys, q, v))[0]


def potential_energy_regressor(sys: System, q: ArrayLike) -> Array:
    """(10 nb,): potential energy is its product with π."""
    (q,) = arguments(sys, q=q)
    return _energy_regressors(*opened(sys, q, jnp.zeros(sys.nv, q.dtype)))[1]


@kernel(lambda sys: (10 * sys.nb,))
def _parameters(sys: System):
    I = gather(kin.body_inertias(sys), slice(0, sys.topology.nb))
    rows = jnp.stack(jnp.broadcast_arrays(I.mass, *I.h, *I.I), 1)
    return rows.reshape((-1,) + rows.shape[2:])


def _basis(dtype) -> Inertia:
    """Unit inertial parameters along axis 1: Inertia whose leaves are (1, 10, 1)."""
    e = [jnp.asarray(row, dtype)[None, :, None] for row in np.eye(10)]
    return Inertia(e[0], Vec3(*e[1:4]), Sym3(*e[4:]))


def _bodies(sys: System, tree):
    """Rows of nodes-then-roots for every moving body, with an axis for the ten parameters put in."""
    rows = gather(tree, nodes_of(sys.topology).body_slot)
    return _wide(rows)


def _wide(tree):
    if isinstance(tree, (Vec3, Mat3, Motion)):
        return type(tree)(*(_wide(x) for x in tree))
    return tree[:, None]


@lru_cache(maxsize=512)
def _dof_body_pairs(t: Topology):
    masks = np.array([path_to_root(t, b) for b in range(t.nb)]).reshape(t.nb, t.nv)
    return np.nonzero(masks.T)  # (dof, body)


@kernel(lambda sys, *_: (sys.nv, 10 * sys.nb))
def _torque_regressor(sys: System, q, v, a):
    t, nodes = sys.topology, nodes_of(sys.topology)
    joints, roots, A0, R, V, A, _ = kin.motion_pass(sys, q, v, a, sys.gravity)
    R_all, p_all = kin.poses(sys, joints, roots, q)
    V_all, A_all = kin.join((V, A), kin.broadcast((roots.V, A0), q))
    Rb, Vb, Ab = (_bodies(sys, x) for x in (R_all, V_all, A_all))
    local = lambda m: Motion(Rb.T @ m.ang, Rb.T @ m.lin)  # noqa: E731
    Vl, Al, unit = local(Vb), local(Ab), _basis(q.dtype)
    f = unit @ Al + Vl.cross_force(unit @ Vl)
    f = type(f)(Rb @ f.ang, Rb @ f.lin)  # world axes, about the body's origin

    dof, body = _dof_body_pairs(t)
    S, origin = columns_by_dof(sys, column(joints, R), gather(p_all, slice(0, nodes.size)), roots)
    p_body = gather(p_all, nodes.body_slot)
    arm = _wide(gather(p_body, body) - gather(origin, dof))
    entries = _wide(gather(S, dof)).dot(gather(f, body).from_(arm))
    table = np.full((t.nv, t.nb), len(dof))
    table[dof, body] = np.arange(len(dof))
    Y = gather(jnp.concatenate([entries, jnp.zeros_like(entries[:1])]), table)
    return Y.reshape((t.nv, t.nb * 10) + Y.shape[3:])


@kernel(lambda sys, *_: [(10 * sys.nb,), (10 * sys.nb,)])
def _energy_regressors(sys: System, q, v):
    joints, roots, _, _, V, _, _ = kin.motion_pass(sys, q, v, jnp.zeros_like(v), jnp.zeros((3, 1), q.dtype))
    nodes = nodes_of(sys.topology)
    R_all, p_all = kin.poses(sys, joints, roots, q)
    p_all = p_all + gather(roots.p, np.concatenate([nodes.root, np.arange(nodes.nroots)]).astype(int))
    Rb, Vb, pb = (_bodies(sys, x) for x in (R_all, kin.join(V, kin.broadcast(roots.V, q)), p_all))
    Vl, unit = Motion(Rb.T @ Vb.ang, Rb.T @ Vb.lin), _basis(q.dtype)
    kinetic = 0.5 * Vl.dot(unit @ Vl)
    height = pb * unit.mass + Rb @ unit.h
    g = Vec3(*(sys.gravity[k][None, None] for k in range(3)))
    potential = -g.dot(height)
    flat = lambda y: jnp.broadcast_to(y, y.shape[:2] + q.shape[-1:]).reshape((-1,) + q.shape[-1:])  # noqa: E731
    return flat(kinetic), flat(potential)
