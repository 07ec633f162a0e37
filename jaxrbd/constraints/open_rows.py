"""Rows on their way through the tree: what a link knows of them, and how those that close are eliminated.

A row between two bodies, or on joints, is open from where it acts to its closing (`plan.py`). Open rows
travel in lanes, an axis between links and batch; of each a link knows

    K·A + l = L z,

with A the link's acceleration and z the paper's Δλ. K and L belong to a factor, l to the inward sweep of a
right-hand side, z to the outward one. A row begins as K, L = 1/R, l = -r. Moving joint i, with
s = K·S + kappa and u the force that the joint lacks, makes it (compare [CABA] Algorithm 4)

    K - (U/D) s,    L + s sᵀ/D,    l + s u/D.

At its closing the row's z is eliminated, which adds k kᵀ/L_jj to the link's inertia, as K R Kᵀ of a row on
one body. Where no row is open, `NoRows` takes their place: it has no numbers and hands on what it is given.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.acting import Acting
from jaxrbd.constraints.plan import Plan
from jaxrbd.constraints.rows import Table, sum_by_row
from jaxrbd.engine.gather import gather
from jaxrbd.model.system import pytree, static
from jaxrbd.tree.aba import solve_roots
from jaxrbd.tree.node import Node, Pivot
from jaxrbd.tree.spatial import ArticulatedInertia, Force, Motion, Vec3

# --- on the way ----------------------------------------------------------------------------------------


class OpenRows(NamedTuple):
    """Open rows at links, as a factor knows them; those of children add up."""

    K: Force  # (n, width, B)
    L: Any  # (n, width, width, B)

    def close(self, closing: Closing, H: ArticulatedInertia):
        """Eliminate the rows that close here, one after another: the inertia with them, those still open."""
        K, L, kept = self.K, self.L, []
        for j in closing.lanes:
            k, column, here = jax.tree.map(lambda x, j=j: x[:, j], K), L[:, :, j], closing.here[:, j]
            inverse = here / jnp.where(here > 0, column[:, j], 1)
            kept.append((k, column, inverse))
            H = H.minus_outer(Force(-k.ang, -k.lin), k * inverse)
            factor = column * inverse[:, None]
            K = K - wide(k) * factor
            L = L - factor[:, :, None] * column[:, None]
        if not kept:
            return H, self, NoRows()
        stack = lambda *xs: jnp.stack(xs, 1)  # noqa: E731
        k, column, inverse = (jax.tree.map(stack, *part) for part in zip(*kept))
        return H, OpenRows(K, L), Closed(k, column, inverse, closing.lanes)

    def through(self, node: Node, pivot: Pivot, kappa):
        """The rows as the parent has them, and what they leave at the joint."""
        K, s = through_joint(self.K, node, pivot, kappa)
        return OpenRows(K, self.L + s[:, :, None] * (s * pivot.Dinv[:, None])[:, None]), Passed(s)

    def at_world(self, plan: Plan, armature0, root: ArticulatedInertia) -> World | NoRows:
        """The rows that are still open at the roots."""
        lanes = np.flatnonzero(plan.close[plan.support.size]).tolist()
        return World.of(self.K, jnp.sum(self.L, 0), armature0, root, lanes) if lanes else NoRows()


class Passed(NamedTuple):
    """What open rows leave at a joint that they have passed."""

    s: Any  # (n, width, B) K·S + kappa

    def carry(self, l, alone):
        """l behind the joint, which its parent at rest would accelerate by `alone`."""
        return l + self.s * alone[:, None]

    def relieve(self, u, z):
        """The force that the joint lacks where rows pull by z."""
        return u - jnp.sum(self.s * z, 1)


@pytree
class Closed:
    """Rows that close at a link: their K, L and 1/L_jj when they were eliminated, lane by lane."""

    K: Force  # (n, lanes, B)
    L: Any  # (n, lanes, width, B)
    inverse: Any  # (n, lanes, B), zero where none closes
    lanes: tuple[int, ...] = static()

    def push(self, p: Force, l):
        """The force with those of the rows that close; l of those still open, and of the closing ones."""
        before = []
        for k, j in enumerate(self.lanes):
            lj = l[:, j]
            before.append(lj)
            scaled = self.inverse[:, k] * lj
            p = p + self._row(k) * scaled
            l = l - self.L[:, k] * scaled[:, None]
        return p, l, jnp.stack(before, 1)

    def pull(self, l, A: Motion, z):
        """z with that of the rows that close here, once the link's acceleration is known."""
        for k, j in reversed(list(enumerate(self.lanes))):
            inverse = self.inverse[:, k]
            others = jnp.sum(self.L[:, k] * z, 1) - self.L[:, k, j] * z[:, j]
            new = inverse * (A.dot(self._row(k)) + l[:, k] - others)
            z = jnp.concatenate([z[:, :j], jnp.where(inverse > 0, new, z[:, j])[:, None], z[:, j + 1 :]], 1)
        return z

    def _row(self, k: int) -> Force:
        return jax.tree.map(lambda x: x[:, k], self.K)


@pytree
class World:
    """Rows that only the world closes: the dual problem K·A + l = L z over all roots."""

    K: Force  # (nroots, width, B)
    free: Motion  # (nroots, width, B) how roots accelerate under the wrenches K
    L: Any  # (width, width, B)
    lanes: tuple[int, ...] = static()

    @classmethod
    def of(cls, K: Force, L, armature0, root: ArticulatedInertia, lanes) -> World:
        """From K at the roots, and L without what the roots' own motion adds."""
        free = solve_roots(armature0[:, :, None], wide(root), K)
        return cls(K, free, L + jnp.sum(pairs(free, K), 0), tuple(lanes))

    def right_side(self, l0, A0: Motion):
        """K_0 a_0 + l_0, (width, B), where A0 are the accelerations of the roots while no row pulls."""
        return jnp.sum(l0 + wide(A0).dot(self.K), 0)

    def settle(self, l0, A0: Motion):
        """Accelerations of the roots and z of the world's rows, zero in other lanes."""
        used = np.isin(np.arange(self.L.shape[0]), self.lanes)
        L = self.L + jnp.asarray(np.diag(~used)[:, :, None], self.L.dtype)
        z = cholesky_solve(L, jnp.where(used[:, None], self.right_side(l0, A0), 0))
        return self.pulled(A0, z), jnp.zeros_like(l0) + z[None]

    def pulled(self, A0: Motion, z) -> Motion:
        """Accelerations of the roots where rows pull by z, (width, B)."""
        return A0 - jax.tree.map(lambda x: jnp.sum(x * z[None], 1), self.free)


class NoRows(NamedTuple):
    """No rows: in place of `OpenRows`, `Passed`, `Closed` and `World`. A tree without leaves."""

    def close(self, closing, H):
        return H, self, self

    def through(self, node, pivot, kappa):
        return self, self

    def at_world(self, plan, armature0, root):
        return self

    def carry(self, l, alone):
        return l

    def relieve(self, u, z):
        return u

    def push(self, p, l):
        return p, l, None

    def pull(self, l, A, z):
        return z

    def settle(self, l0, A0):
        return A0, jax.tree.map(jnp.zeros_like, l0)


def through_joint(K: Force, node: Node, pivot: Pivot, kappa):
    """K - (U/D) s, as the parent has it, and s = K·S + kappa."""
    s = node.wide.project(K) + kappa
    return node.wide.hand_on(K - wide(pivot.UD) * s), s


# --- where they begin and close -------------------------------------------------------------------------


@pytree
class Closing:
    """Which rows close at every link."""

    here: Any  # (n, width, 1) of 0 and 1
    lanes: tuple[int, ...] = static()  # those in which a row closes at some link or free root


class Beginning(NamedTuple):
    """Rows where they begin, and where they close: at positions (P, ...) and joints (NS, ...)."""

    rows: OpenRows | NoRows
    kappa: Any  # (NS, width, B) entries on the joints
    at_links: Closing | None
    at_roots: Closing | None


def begin(plan: Plan, table: Table, x: Acting, R) -> Beginning:
    """Open rows of the plan, damped by 1/R."""
    if not plan.width:
        return Beginning(NoRows(), None, None, None)
    K, eye = open_wrenches(plan, x), jnp.asarray(np.eye(plan.width)[None, :, :, None], R.dtype)
    rows = OpenRows(K, eye * where_rows_begin(plan, 1 / R)[:, :, None])
    at_roots = plan.close[plan.support.size :].copy()
    at_roots[0] = False  # what the world closes is solved at once
    make = lambda here: Closing(jnp.asarray(here[:, :, None], R.dtype), tuple(plan.inner))  # noqa: E731
    return Beginning(
        rows, open_entries(plan, table, x), make(plan.close[: plan.support.size]), make(at_roots)
    )


def open_wrenches(plan: Plan, x: Acting) -> Force:
    """K of open rows where they act: (P, width, B)."""
    like = x.KA.ang.x
    pairs = int(plan.root_pair.max(initial=-1)) + 1
    extra = [jnp.zeros((1,) + like.shape[1:], like.dtype)] * 6
    if pairs:
        owner = np.where(plan.root_pair < 0, pairs, plan.root_pair)
        column = lambda c: x.kappa * jnp.asarray(plan.dof_column == c, like.dtype)[:, None]  # noqa: E731
        extra = [
            jnp.concatenate([sum_by_row(column(c), owner, pairs + 1)[:pairs], extra[c]]) for c in range(6)
        ]
    put = lambda a, b, e: gather(jnp.concatenate([a, b, e]), plan.wrench)  # noqa: E731
    six = [put(a, b, e) for a, b, e in zip([*x.KA.ang, *x.KA.lin], [*x.KB.ang, *x.KB.lin], extra)]
    return Force(Vec3(*six[:3]), Vec3(*six[3:]))


def open_entries(plan: Plan, table: Table, x: Acting):
    """Entries of open rows on the joints: (NS, width, B)."""
    if not len(table.joint_rows):
        like = x.KA.ang.x
        return jnp.zeros(plan.entry.shape + like.shape[1:], like.dtype)
    return gather(jnp.concatenate([x.kappa, jnp.zeros_like(x.kappa[:1])]), plan.entry)


def where_rows_begin(plan: Plan, x):
    """One number per open row, where it begins: (P, width, B); None if there is no open row."""
    return gather(jnp.concatenate([x, jnp.zeros_like(x[:1])]), plan.begin) if plan.width else None


def where_rows_close(plan: Plan, z):
    """z (P, width, B) of every row, read where it closes: (m, B)."""
    return gather(z.reshape((-1,) + z.shape[2:]), plan.closing * plan.width + plan.lane)


# --- the axis of lanes ----------------------------------------------------------------------------------


def wide(tree):
    """Insert the axis of lanes."""
    return jax.tree.map(lambda x: x if isinstance(x, int) else x[:, None], tree)


def pairs(A: Motion, K: Force):
    """A_i · K_j for every two lanes: (n, width, width, B)."""
    left = jax.tree.map(lambda x: x[:, :, None], A)
    return left.dot(jax.tree.map(lambda x: x[:, None], K))


def cholesky_solve(A, b):
    """A x = b for symmetric positive definite A: (n, n, B), b: (n, B)."""
    factor = jax.scipy.linalg.cho_factor(jnp.moveaxis(A, -1, 0), lower=True)
    return jax.scipy.linalg.cho_solve(factor, jnp.moveaxis(b, -1, 0)[..., None])[..., 0].T
