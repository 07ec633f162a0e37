"""Inverse dynamics by Newton-Euler: tau = M(q) a + b(q, v) - J^T f_ext in O(nb).

[RBDA] Table 5.1, every link in its own frame with the joint axis along z: velocities and accelerations
in one outward pass, every body's force at once, one inward pass of sums.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.engine.gather import gather
from jaxrbd.engine.scan import inward, outward
from jaxrbd.model.system import System
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree import rnea_derivatives
from jaxrbd.tree.arguments import arguments, external
from jaxrbd.tree.joints import Links, link_transforms
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.loop_maps import lift, lower, open_state
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.spatial import ZERO3, Force
from jaxrbd.typing import Array, ArrayLike


def inverse_dynamics(
    sys: System, q: ArrayLike, v: ArrayLike, a: ArrayLike, f_ext: ArrayLike | None = None
) -> Array:
    """Joint forces that produce accelerations `a`:  tau = M(q) a + b(q, v) - J^T f_ext.

    Recursive Newton-Euler, [RBDA] Table 5.1, O(nb). f_ext: (nb, 6) wrenches on the bodies in
    world-aligned axes at the body origins, moment first [N m, N].
    """
    q, v, a = arguments(sys, q=q, v=v, a=a)
    return _inverse_dynamics(sys, q, v, a, external(sys, f_ext, q.dtype))


def bias_force(sys: System, q: ArrayLike, v: ArrayLike) -> Array:
    """b(q, v): Coriolis, centrifugal and gravity forces, i.e. inverse dynamics at a = 0."""
    q, v = arguments(sys, q=q, v=v)
    return _inverse_dynamics(sys, q, v, jnp.zeros_like(v), None)


def gravity_force(sys: System, q: ArrayLike) -> Array:
    """g(q): the joint forces that hold the system still, i.e. inverse dynamics at v = a = 0."""
    (q,) = arguments(sys, q=q)
    zero = jnp.zeros(sys.nv, q.dtype)
    return _inverse_dynamics(sys, q, zero, zero, None)


@kernel(lambda sys, *_: (sys.nv,))
def _inverse_dynamics(sys: System, q, v, a, f_ext):
    t = sys.topology
    if not t.clusters:
        return newton_euler(sys, q, v, a, f_ext)
    x = open_state(sys, q, v)
    a = lift(t, x.G, a)
    a = a if x.g is None else a + x.g
    return lower(t, x.G, newton_euler(x.sys, x.q, x.v, a, f_ext))


def newton_euler(sys: System, q, v, a, f_ext):
    """Inverse dynamics of a tree; clusters project that of their open tree, with rotors folded."""
    nodes = nodes_of(sys.topology)
    links = link_transforms(sys, q, v)
    V0, A0 = kin.root_rows(sys, v), rnea_derivatives.base_acceleration(sys, q, a)

    def move(parent, x):
        node, bias, qd, qdd = x
        return node.move(*parent, qd, qdd, bias)

    xs = (links.node, links.bias, gather(v, nodes.v), gather(a, nodes.v))
    V, A = outward(nodes, move, xs, kin.broadcast((V0, A0), q))

    # Newton-Euler, every body at once
    I, I0 = kin.node_inertias(sys, kin.body_inertias(sys))
    I = I.rotate(links.A.T)
    f, f0 = I @ A + V.cross_force(I @ V), I0 @ A0 + V0.cross_force(I0 @ V0)
    if f_ext is not None:
        fx, fx0 = kin.forces_in_links(sys, q, f_ext, links)
        f, f0 = f - fx, f0 - fx0

    return joint_loads(sys, links, f, f0, q) + sys.armature * a


def joint_loads(sys: System, links: Links, f: Force, f0: Force, like):
    """Jᵀ f (nv, B) of wrenches on links and roots, in their own axes: one inward pass."""
    nodes = nodes_of(sys.topology)

    def push(acc, x):
        node, f = x
        f = acc + f
        return node.hand_on(f), f

    from_children, F = inward(nodes, push, (links.node, f), kin.zeros(Force(ZERO3, ZERO3), like))
    f0 = f0 + from_children
    return kin.gather_dofs(sys, links.node.project(F) if nodes.size else None, [*f0.ang, *f0.lin])


def _tangent(args, results, tangents):
    if jax.tree.leaves(tangents[0]) or not rnea_derivatives.has_rules(args[0]):
        return NotImplemented  # derivatives by the model: those of the code above
    return [rnea_derivatives.tangent(args, tangents[1:])]


def _adjoint(args, results, wanted, cotangents):
    if any(jax.tree.leaves(wanted[0])) or not rnea_derivatives.has_rules(args[0]):
        return NotImplemented
    return wanted[0], *rnea_derivatives.adjoint(args, cotangents[0])


_inverse_dynamics.derivatives(_tangent, _adjoint, uses_output=False)
