"""Inverse dynamics by Newton-Euler: tau = M(q) a + b(q, v) - J^T f_ext in O(nb).

[RBDA] Table 5.1 in world-aligned axes about each link's own origin: velocities and accelerations in
one outward pass, every body's force at once, one inward pass of sums.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.model.system import System
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.arguments import arguments, external
from jaxrbd.tree.batching import kernel
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.scan import inward, outward
from jaxrbd.tree.spatial import ZERO3, Force, Motion, Vec3


def inverse_dynamics(sys: System, q, v, a, f_ext=None):
    """Joint forces that produce accelerations `a`:  tau = M(q) a + b(q, v) - J^T f_ext.

    Recursive Newton-Euler, [RBDA] Table 5.1, O(nb). f_ext: (nb, 6) wrenches on the bodies in
    world-aligned axes at the body origins, moment first [N m, N].
    """
    q, v, a = arguments(sys, q=q, v=v, a=a)
    return _inverse_dynamics(sys, q, v, a, external(sys, f_ext, q.dtype))


def bias_force(sys: System, q, v):
    """b(q, v): Coriolis, centrifugal and gravity forces, i.e. inverse dynamics at a = 0."""
    q, v = arguments(sys, q=q, v=v)
    return _inverse_dynamics(sys, q, v, jnp.zeros_like(v), None)


def gravity_force(sys: System, q):
    """g(q): the joint forces that hold the system still, i.e. inverse dynamics at v = a = 0."""
    (q,) = arguments(sys, q=q)
    zero = jnp.zeros(sys.nv, q.dtype)
    return _inverse_dynamics(sys, q, zero, zero, None)


def root_accelerations(sys: System, roots: kin.Roots, a, gravity) -> Motion:
    """Accelerations of the roots in world axes, with gravity as an acceleration of the world."""
    twist = kin.root_twists(sys, roots.R, a)
    return Motion(twist.ang, Vec3(*(x - gravity[k][None] for k, x in enumerate(twist.lin))))


def motion_pass(sys: System, q, v, a, gravity):
    """Rotations, offsets, velocities and accelerations of all nodes, and the same of the roots."""
    nodes = nodes_of(sys.topology)
    joints = kin.joint_transforms(sys, q, v)
    roots = kin.root_states(sys, q, v)
    A0 = root_accelerations(sys, roots, a, gravity)

    def move(parent, x):
        R, V, A, _ = parent
        j, qd, qdd = x
        r = R @ j.p
        R = R @ j.R
        S = kin.column(j, R)
        V = V.at(r) + S * qd
        A = A.at(r) + S * qdd + V.cross(S * qd)
        if j.bias is not None:
            A = A + Motion(R @ j.bias.ang, R @ j.bias.lin)
        return R, V, A, r

    start = (roots.R, roots.V, A0, jax.tree.map(jnp.zeros_like, roots.p))
    R, V, A, r = outward(nodes, move, (joints, v[nodes.v], a[nodes.v]), kin.broadcast(start, q))
    return joints, roots, A0, R, V, A, r


@kernel()
def _inverse_dynamics(sys: System, q, v, a, f_ext):
    nodes = nodes_of(sys.topology)
    joints, roots, A0, R, V, A, r = motion_pass(sys, q, v, a, sys.gravity)
    at_nodes, at_roots = kin.node_inertias(sys, kin.body_inertias(sys))
    I, I0 = at_nodes.rotate(R), at_roots.rotate(roots.R)

    # Newton-Euler, every body at once
    f = I @ A + V.cross_force(I @ V)
    f0 = I0 @ A0 + roots.V.cross_force(I0 @ roots.V)
    if f_ext is not None:
        fx, fx0 = kin.external_forces(sys, f_ext, kin.join(R, roots.R))
        f, f0 = f - fx, f0 - fx0

    # children push on parents
    def push(acc, x):
        f, r = x
        f = acc + f
        return f.from_(r), f

    from_children, F = inward(nodes, push, (f, r), kin.zeros(Force(ZERO3, ZERO3), q))
    f0 = f0 + from_children
    tau = kin.column(joints, R).dot(F) if nodes.size else None
    tau = kin.gather_dofs(sys, tau, kin.root_axes(roots.R, f0))
    return tau + sys.armature * a
