"""What a recursion does with a node: written here once and used by the body of every loop.

A node is one step's worth of motion: it turns and slides against its parent by one column S. Its frame has
the joint's axis along z, so that S picks entries without rounding (unless columns depend on q: then S has six
numbers); R and r are the pose of that frame in the parent's. A loop body says what a motion, a force or an
inertia means to its algorithm; how it gets from node to node, and how the node's own motion is taken out of
it, stands here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrbd.tree.spatial import ArticulatedInertia, Force, Mat3, Motion, Vec3


class Pivot(NamedTuple):
    """What is left of a node whose motion was eliminated: enough to find that motion later."""

    UD: Force  # U / D, with U = IA S and D = S·U + armature
    Dinv: Any  # 1 / D

    def reaction(self, p: Force, u) -> Force:
        """The force that is handed on where p acts and the joint lacks u = tau - S·p: p + U u / D."""
        return p + self.UD * u

    def alone(self, u):
        """Acceleration of the joint where its parent rests: u / D."""
        return u * self.Dinv

    def rate(self, alone, A: Motion):
        """Acceleration of the joint where its frame has A from the parent: (u - U·A) / D."""
        return alone - A.dot(self.UD)


class Node(NamedTuple):
    """Pose in the parent node, column and armature.

    R is None where all nodes have the world's axes, r where they have one origin.
    """

    R: Mat3 | None
    r: Vec3 | None
    S: Motion
    armature: Any = None

    def arrive(self, m: Motion) -> Motion:
        """A motion of the parent, as this node has it."""
        m = m if self.r is None else m.at(self.r)
        return m if self.R is None else m.rotate(self.R.T)

    def hand_on(self, x):
        """A force or an inertia of this node, as the parent has it."""
        x = x if self.R is None else x.rotate(self.R)
        return x if self.r is None else x.from_(self.r)

    def take_back(self, x):
        """The reverse of `hand_on`."""
        x = x if self.r is None else x.from_(-self.r)
        return x if self.R is None else x.rotate(self.R.T)

    def expand(self, rate) -> Motion:
        """The motion of a joint rate: S times it."""
        return self.S * rate

    def move(self, V: Motion, A: Motion, rate, acceleration, bias: Motion | None = None):
        """Velocity and acceleration of this node from those of its parent, velocity products included."""
        own = self.expand(rate)
        V = self.arrive(V) + own
        A = self.arrive(A) + self.expand(acceleration) + V.cross(own)
        return V, A if bias is None else A + bias

    def project(self, f: Force):
        """The joint force that f amounts to: S·f."""
        return self.S.dot(f)

    def rate(self, pivot: Pivot, alone, A: Motion, above=None):
        """Acceleration of the joint, see `Pivot.rate`; nodes of clusters take that of the node above."""
        return pivot.rate(alone, A)

    def eliminate(self, IA: ArticulatedInertia) -> tuple[ArticulatedInertia, Pivot]:
        """Let the joint move freely: IA - U Uᵀ/D ([RBDA] Eq. 7.43-7.47), and the pivot.

        S·U/D = 1 - armature/D holds in exact arithmetic; making it hold in floating point keeps what is
        handed on free of the eliminated motion, which nearly parallel axes would amplify.
        """
        U = IA @ self.S
        Dinv = 1 / (self.S.dot(U) + self.armature)
        UD = U * Dinv
        rest = (1 - self.armature * Dinv) - self.S.dot(UD)
        if not isinstance(self.S.ang.x, int):  # a column of any length
            square = self.S.ang.dot(self.S.ang) + self.S.lin.dot(self.S.lin)
            rest = rest / jnp.maximum(square, jnp.finfo(square.dtype).tiny)
        UD = UD + Force(self.S.ang, self.S.lin) * rest
        return IA.minus_outer(U, UD), Pivot(UD, Dinv)

    @property
    def wide(self) -> Node:
        """The same node for things that have one more axis before the batch."""
        return jax.tree.map(lambda x: x if isinstance(x, int) else x[:, None], self)
