"""The links that support constraints, with all others folded into them, and the way back.

Only supporting links take part in the iterations ([CABA] Algorithm 2). All others are eliminated once,
inward, and get their accelerations once, outward, when those of the supporting links are known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.plan import Plan
from jaxrbd.constraints.rows import Moving
from jaxrbd.engine.gather import gather
from jaxrbd.engine.scan import inward
from jaxrbd.model.system import System
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.aba import joint_accelerations, root_armature
from jaxrbd.tree.freedoms import heavy_nodes
from jaxrbd.tree.node import Node, Pivot
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.spatial import ZERO3, ArticulatedInertia, Force, Inertia, Motion, zero_articulated


class Problem(NamedTuple):
    """The links that support constraints, with all others folded into their inertias and forces."""

    node: Any  # (NS, B) `Node` of the supporting slots; None if there are none
    tau: Any
    armature0: Any  # (nroots, 6, B)
    H: ArticulatedInertia  # (P, B) positions: supporting slots, then roots
    p: Any  # (P, B) `Force` on the links at a = 0
    tau0: Any  # (nroots, B) `Force`; an operator without loads keeps neither


class Unsupported(NamedTuple):
    """What is left of the unsupported links: enough to find their accelerations afterwards."""

    node: Node
    pivot: Pivot
    alone: Any  # joint accelerations where the parents do not accelerate


def links_problem(sys: System, plan: Plan, moving: Moving, I: Inertia, I0: Inertia, p: Force, p0: Force, tau):
    """Fold the unsupported links into the supporting ones: one inward pass over them."""
    nodes = nodes_of(sys.topology)
    every, joint = heavy_nodes(sys, moving.links), gather(tau, nodes.v)
    like = p.ang.x
    wide = lambda x: x if isinstance(x, int) else jnp.broadcast_to(x, x.shape[:-1] + like.shape[-1:])  # noqa: E731
    own = lambda tree, index: gather(jax.tree.map(wide, tree), index)  # noqa: E731

    def part(index, live):
        node, tau = own((every, joint), index)
        if not live.all():
            node = node._replace(armature=node.armature + jnp.asarray(~live, tau.dtype)[:, None])
        return node, tau

    unsupported = None
    at_links = _solid(own(I, plan.slots).articulated(), plan.support.size, like)
    H = kin.join(at_links, _solid(I0.articulated(), nodes.nroots, like))
    p_all = kin.join(own(p, plan.slots), kin.broadcast(p0, like))
    if plan.unsupported.size:
        node, t = part(plan.unsupported_slots, plan.unsupported.live)

        def articulate(acc, x):
            IA, p = acc
            node, I, p_own, tau = x
            Ia, pivot = node.eliminate(IA + I.articulated())
            p = p + p_own
            u = tau - node.project(p)
            return (node.hand_on(Ia), node.hand_on(pivot.reaction(p, u))), (pivot, pivot.alone(u))

        xs = (node, own(I, plan.unsupported_slots), own(p, plan.unsupported_slots), t)
        zero = kin.zeros((zero_articulated(), Force(ZERO3, ZERO3)), like)
        (IA, pA), (pivot, alone) = inward(plan.unsupported, articulate, xs, zero)
        place = np.full(plan.support.size + nodes.nroots, len(plan.attachments))
        place[plan.attachments] = np.arange(len(plan.attachments))
        put = lambda x: gather(jnp.concatenate([x, jnp.zeros_like(x[:1])]), place)  # noqa: E731
        H, p_all = H + jax.tree.map(put, IA), p_all + jax.tree.map(put, pA)
        unsupported = Unsupported(node, pivot, alone)
    node, t = part(plan.slots, plan.support.live) if plan.support.size else (None, None)
    return Problem(node, t, root_armature(sys), H, p_all, kin.root_rows(sys, tau, Force)), unsupported


def _solid(tree, count: int, like):
    """Numbers in place of the symbolic zeros of rigid inertias."""
    return jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x, like.dtype), (count, like.shape[-1])), tree)


def unsupported_accelerations(plan: Plan, left: Unsupported, dA: Motion):
    """Outward over the unsupported links, from where they hang: their joint accelerations (NU, B)."""
    start = gather(dA, plan.attachments)
    # [CABA] Alg. 3, lines 9-11
    return joint_accelerations(plan.unsupported, left.node, left.pivot, left.alone, start, start.ang.x)


def joint_accelerations_of(sys: System, plan: Plan, a, a_unsupported, dA: Motion):
    """Joint accelerations (nv, B) from supporting links, unsupported ones and roots."""
    nodes = nodes_of(sys.topology)
    where = np.full(nodes.size, -1)
    parts = [x for x in (a, a_unsupported) if x is not None]
    if plan.support.size:
        where[plan.slots[plan.support.live]] = np.flatnonzero(plan.support.live)
    if plan.unsupported.size:
        live = plan.unsupported.live
        where[plan.unsupported_slots[live]] = plan.support.size + np.flatnonzero(live)
    at_nodes = None
    if parts:
        at_nodes = gather(jnp.concatenate(parts), np.maximum(where, 0))
    A0 = gather(dA, slice(plan.support.size, None))
    return kin.gather_dofs(sys, at_nodes, [*A0.ang, *A0.lin])
