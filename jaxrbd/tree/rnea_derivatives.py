"""Tangent and adjoint of inverse dynamics, each one outward and one inward pass.

With W the motion that lam gives to every link (W = X W_parent + S lam), lam·tau is the sum over the links of
W·(I A + V x* I V - f_ext). Its gradient needs the forces that belong to W, A and V,

    F = I A + V x* I V - f_ext,     P = I W,     Q = I (W x V) - W x* I V,

summed over the subtree of every link (Q also collects S v x* P, because A contains V x S v). Turning a
joint by dq changes what its link receives from the parent, X m, by (X m) x S dq; so

    dq:  F·(W x S) + Q·(V x S) + P·((X A_parent) x S)      dv:  Q·S + P·(V x S)      da:  P·S  (= M lam)

The tangent follows the same three quantities forwards. Both hold for derivatives with respect to q, v, a and
external forces; derivatives with respect to the model, and joints inside the tree that are moved by
quaternions or have columns that depend on q, take the general way: the code of inverse dynamics, whose
sweeps know their derivatives.
"""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.engine.scan import inward, outward
from jaxrbd.model.system import System, Topology
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.joints import link_transforms
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.spatial import ZERO3, Force, Motion, Vec3


def base_acceleration(sys: System, q, a) -> Motion:
    """Acceleration of the roots in their own axes, with gravity as an acceleration of the world."""
    R0, A0 = kin.root_states(sys, q).R, kin.root_rows(sys, a)
    g = R0.T @ Vec3(*(sys.gravity[k][None] for k in range(3)))
    return Motion(A0.ang, A0.lin - g)


def tangent(args, tangents):
    """dtau for tangents of q, v, a, f_ext (None: zero) at (sys, q, v, a, f_ext)."""
    sys, *states = args
    n = max(x.shape[-1] for x in jax.tree.leaves((args, tangents)))
    widen = lambda x: jnp.broadcast_to(x, x.shape[:-1] + (n,))  # noqa: E731
    states = [None if x is None else widen(x) for x in states]
    moved = [
        None if x is None else jnp.zeros_like(x) if t is None else widen(t) for x, t in zip(states, tangents)
    ]
    return _tangent(sys, states, moved)


def adjoint(args, lam):
    """Cotangents of q, v, a, f_ext for the cotangent lam of tau."""
    sys, *states = args
    n = max(x.shape[-1] for x in jax.tree.leaves((args, lam)))
    widen = lambda x: jnp.broadcast_to(x, x.shape[:-1] + (n,))  # noqa: E731
    grads = _adjoint(sys, [None if x is None else widen(x) for x in states], widen(lam))
    narrow = lambda g, x: g if x.shape == g.shape else jnp.sum(g, -1, keepdims=True)  # noqa: E731
    return [None if x is None else narrow(g, x) for g, x in zip(grads, states)]


def has_rules(sys: System) -> bool:
    """Whether no inner joint is moved by a quaternion, no column depends on q, and no loop closes."""
    if sys.topology.clusters:
        return False
    nodes = nodes_of(sys.topology)
    return not len(nodes.quaternion_first) and not nodes.paths


def _tangent(sys: System, states, moved):
    nodes = nodes_of(sys.topology)
    q, v, a, f_ext = states
    dq, dv, da, df_ext = moved
    links = link_transforms(sys, q, v)
    V0, dV0 = kin.root_rows(sys, v), kin.root_rows(sys, dv)
    A0, dA0 = jax.jvp(lambda q, a: base_acceleration(sys, q, a), (q, a), (dq, da))
    turn = gather(dq, nodes.q) * jnp.asarray(nodes.live[:, None], q.dtype)

    def move(parent, x):
        V, A, dV, dA = parent
        node, qd, qdd, dq, dqd, dqdd = x
        S, Sq = node.S, node.expand(qd)
        V, A = node.arrive(V) + Sq, node.arrive(A)
        dV = node.arrive(dV) + V.cross(S) * dq + S * dqd
        dA = node.arrive(dA) + A.cross(S) * dq + S * dqdd + dV.cross(Sq) + V.cross(S) * dqd
        return V, A + S * qdd + V.cross(Sq), dV, dA

    per_node = [gather(x, nodes.v) for x in (v, a)]
    per_node += [turn] + [gather(x, nodes.v) for x in (dv, da)]
    start = kin.broadcast((V0, A0, dV0, dA0), q)
    V, A, dV, dA = outward(nodes, move, (links.node, *per_node), start)

    I, I0 = kin.node_inertias(sys, kin.body_inertias(sys))
    I = I.rotate(links.A.T)

    def forces(I, V, A, dV, dA):
        h = I @ V
        return I @ A + V.cross_force(h), I @ dA + dV.cross_force(h) + V.cross_force(I @ dV)

    (F, dF), (_, dF0) = forces(I, V, A, dV, dA), forces(I0, V0, A0, dV0, dA0)
    if f_ext is not None:
        (f, _), (df, df0) = jax.jvp(_external(sys), (q, f_ext), (dq, df_ext))
        F, dF, dF0 = F - f, dF - df, dF0 - df0

    def push(acc, x):
        F, dF, node, dq = x
        F, dF = acc[0] + F, acc[1] + dF
        turned = dF + node.S.cross_force(F) * dq
        return (node.hand_on(F), node.hand_on(turned)), dF

    zero = kin.zeros((Force(ZERO3, ZERO3), Force(ZERO3, ZERO3)), q)
    (_, from_children), dF = inward(nodes, push, (F, dF, links.node, turn), zero)
    dF0 = dF0 + from_children
    dtau = links.node.project(dF) if nodes.size else None
    return kin.gather_dofs(sys, dtau, [*dF0.ang, *dF0.lin]) + sys.armature * da


def _adjoint(sys: System, states, lam):
    nodes = nodes_of(sys.topology)
    q, v, a, f_ext = states
    links = link_transforms(sys, q, v)
    V0, W0 = kin.root_rows(sys, v), kin.root_rows(sys, lam)
    A0, pull_root = jax.vjp(lambda q, a: base_acceleration(sys, q, a), q, a)

    def move(parent, x):
        V, A, W, _ = parent
        node, qd, qdd, lam = x
        Sq = node.expand(qd)
        V, B, W = node.arrive(V) + Sq, node.arrive(A), node.arrive(W) + node.expand(lam)
        return V, B + node.expand(qdd) + V.cross(Sq), W, B

    start = kin.broadcast((V0, A0, W0, A0), q)
    xs = (links.node, *(gather(x, nodes.v) for x in (v, a, lam)))
    V, A, W, B = outward(nodes, move, xs, start)

    I, I0 = kin.node_inertias(sys, kin.body_inertias(sys))
    I = I.rotate(links.A.T)

    def forces(I, V, A, W):
        h = I @ V
        return I @ A + V.cross_force(h), I @ W, I @ W.cross(V) - W.cross_force(h)

    (F, P, Q), (_, P0, Q0) = forces(I, V, A, W), forces(I0, V0, A0, W0)
    if f_ext is not None:
        (f, f0), pull_forces = jax.vjp(_external(sys), q, f_ext)
        F = F - f

    def push(acc, x):
        F, P, Q, node, qd, V, B, W = x
        S = node.S
        F, P = acc[0] + F, acc[1] + P
        Q = acc[2] + Q + node.expand(qd).cross_force(P)
        VS = V.cross(S)
        dq = W.cross(S).dot(F) + VS.dot(Q) + B.cross(S).dot(P)
        return (node.hand_on(F), node.hand_on(P), node.hand_on(Q)), (dq, S.dot(Q) + VS.dot(P), S.dot(P))

    zero = kin.zeros((Force(ZERO3, ZERO3),) * 3, q)
    xs = (F, P, Q, links.node, gather(v, nodes.v), V, B, W)
    (_, P_below, Q_below), out = inward(nodes, push, xs, zero)
    P0, Q0 = P0 + P_below, Q0 + Q_below
    dq, dv, da = out if nodes.size else (None, None, None)
    at_root = Motion(P0.ang, P0.lin)
    dq_root, _ = pull_root(jax.tree.map(lambda x, y: jnp.broadcast_to(y, x.shape), A0, at_root))
    grad_q = dq_root + _scalar_coordinates(sys, dq, q)
    grad_v = kin.gather_dofs(sys, dv, [*Q0.ang, *Q0.lin])
    grad_a = kin.gather_dofs(sys, da, [*P0.ang, *P0.lin]) + sys.armature * lam
    if f_ext is None:
        return grad_q, grad_v, grad_a, None
    back = (Force(*W), Force(*W0))
    dq_forces, grad_f = pull_forces(jax.tree.map(lambda x, y: -jnp.broadcast_to(x, y.shape), back, (f, f0)))
    return grad_q + dq_forces, grad_v, grad_a, grad_f


def _external(sys: System):
    return lambda q, f_ext: kin.forces_in_links(sys, q, f_ext, link_transforms(sys, q))


@lru_cache(maxsize=512)
def _coordinate_slots(t: Topology) -> np.ndarray:
    """Slot that every entry of q moves; N where none does (quaternions and positions of free roots)."""
    nodes = nodes_of(t)
    slots = np.full(t.nq, nodes.size)
    mine = np.flatnonzero(nodes.live & nodes.moves)
    slots[nodes.q[mine]] = mine
    return slots


def _scalar_coordinates(sys: System, per_node, q):
    if per_node is None:
        return jnp.zeros_like(q)
    per_node = jnp.broadcast_to(per_node, per_node.shape[:1] + q.shape[1:])
    return gather(jnp.concatenate([per_node, jnp.zeros_like(per_node[:1])]), _coordinate_slots(sys.topology))
