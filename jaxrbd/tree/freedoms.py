"""The joint space of the articulated passes: every degree of freedom alone, or lanes of clusters.

Both kinds offer the same: nodes to pass over, and the places of joint forces and accelerations at them. The
passes of `aba` do not know which one they run on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.model.system import System
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.joints import Links, link_transforms
from jaxrbd.tree.lanes import (
    LaneForce,
    LaneInertia,
    LaneLayout,
    LaneNode,
    Rates,
    fold,
    lane_nodes,
    lanes_of,
)
from jaxrbd.tree.loop_maps import lower, open_state
from jaxrbd.tree.node import Node
from jaxrbd.tree.nodes import Nodes, nodes_of
from jaxrbd.tree.spatial import ZERO3, Force, Motion, zero_articulated

STILL = Motion(ZERO3, ZERO3)


def joint_space(sys: System, q, v=None) -> Single | Clustered:
    """The joint space at q and v (batch last)."""
    if not sys.topology.clusters:
        nodes = nodes_of(sys.topology)
        links = link_transforms(sys, q, v)
        return Single(sys, q, v, nodes, links)
    x, layout = open_state(sys, q, v), lanes_of(sys.topology)
    links = link_transforms(x.sys, x.q, x.v, layout.nodes)
    return Clustered(x.sys, x.q, x.v, layout.nodes, links, sys.topology, layout, x.G, x.g)


@dataclass(frozen=True, eq=False)
class Single:
    """Every degree of freedom is eliminated at its own node."""

    sys: System
    q: Any
    v: Any
    nodes: Nodes
    links: Links
    g = None
    still = 0
    zero = (zero_articulated(), Force(ZERO3, ZERO3))

    @property
    def light(self) -> Node:
        """The nodes of the loop, without armature."""
        return self.links.node

    @property
    def node(self) -> Node:
        """The nodes of the loop, as elimination needs them."""
        return heavy_nodes(self.sys, self.links)

    def rates(self, x):
        """Numbers per degree of freedom of the tree at the nodes."""
        return gather(x, self.nodes.v)

    def loads(self, tau):
        """Joint forces at the nodes."""
        return gather(tau, self.nodes.v)

    def driving(self, tau):
        """What of tau is left to accelerate the joints."""
        return tau

    def in_tree(self, tau):
        """Joint forces by degree of freedom of the tree, as far as roots need them."""
        return tau

    def fold(self, I, p, I0, p0, c):
        """Inertias and forces of the loop's nodes and of the roots, and c, without what is folded."""
        return I, p, I0, p0, c

    def fold_inertia(self, I, I0):
        return I, I0

    def collect(self, a, at_roots):
        """Accelerations (nv, B) from those at nodes and the six of each root."""
        return kin.gather_dofs(self.sys, a, at_roots)


@dataclass(frozen=True, eq=False)
class Clustered:
    """Lanes of clusters (`lanes`); `sys` is the open tree, and so are q and v."""

    sys: System
    q: Any
    v: Any
    nodes: Nodes
    links: Links
    topology: Any
    layout: LaneLayout
    G: Any
    g: Any

    @property
    def still(self) -> Rates:
        return Rates((0,) * self.layout.lanes)

    @property
    def zero(self) -> tuple[LaneInertia, LaneForce]:
        k = self.layout.lanes
        force = Force(ZERO3, ZERO3)
        triangle = (0,) * (k * (k + 1) // 2)
        return LaneInertia(zero_articulated(), (force,) * k, triangle), LaneForce(force, (0,) * k)

    @property
    def node(self) -> LaneNode:
        return lane_nodes(self.layout, self._heavy, self.G, self.q.dtype)

    light = node

    @property
    def _heavy(self) -> Node:
        return heavy_nodes(self.sys, self.links, self.nodes)

    def rates(self, x):
        return gather(jnp.concatenate([x, jnp.zeros_like(x[:1])]), self.layout.dof)

    def loads(self, tau) -> Rates:
        """Joint forces where lanes close."""
        padded = jnp.concatenate([tau, jnp.zeros_like(tau[:1])])
        return Rates(tuple(gather(padded, index) for index in self.layout.tau.T))

    def driving(self, tau):
        """Armature also resists the acceleration g that loops impose."""
        return tau if self.g is None else tau - lower(self.topology, self.G, self.sys.armature * self.g)

    def in_tree(self, tau):
        where = np.full(self.topology.v_starts[-1], len(self.topology.independent))
        where[list(self.topology.independent)] = np.arange(len(self.topology.independent))
        return gather(jnp.concatenate([tau, jnp.zeros_like(tau[:1])]), where)

    def fold(self, I, p, I0, p0, c):
        I, p, I_roots, p_roots = fold(self.layout, self._heavy, self.G, I, p, c)
        if I_roots is not None:
            I0, p0 = I0 + I_roots, p0 + p_roots
        return I, p, I0, p0, gather(c, slice(0, len(self.layout.keep)))

    def fold_inertia(self, I, I0):
        zero = jax.tree.map(lambda _: jnp.zeros_like(I.mass), Force(ZERO3, ZERO3))
        I, _, I0, _, _ = self.fold(I, zero, I0, gather(zero, np.zeros(self.nodes.nroots, int)), STILL)
        return I, I0

    def collect(self, a: Rates, at_roots):
        lanes = jnp.stack(a.c, 1)
        parts = [lanes.reshape((-1,) + lanes.shape[2:])]
        if len(self.nodes.root_bodies):
            six = jnp.stack([x[1:] for x in at_roots], 1)
            parts.append(six.reshape((-1,) + six.shape[2:]))
            size = jnp.broadcast_shapes(*(x.shape[-1:] for x in parts))
            parts = [jnp.broadcast_to(x, x.shape[:-1] + size) for x in parts]
        return gather(jnp.concatenate(parts), self.layout.out)


def heavy_nodes(sys: System, links: Links, nodes: Nodes | None = None) -> Node:
    """Nodes with their armature, as elimination needs them; dead slots have one, lest they divide by 0."""
    nodes = nodes_of(sys.topology) if nodes is None else nodes
    armature = gather(sys.armature, nodes.v)
    if not nodes.live.all():
        armature = armature + jnp.asarray(~nodes.live, sys.dtype)[:, None]
    return links.node._replace(armature=armature)


def at_roots(x):
    """What arrives at the roots, where no lanes are left."""
    if isinstance(x, LaneInertia):
        return x.IA
    return x.p if isinstance(x, LaneForce) else x
