"""[CABA] Algorithm 4: all rows reach the world, where the dual problem is solved.

The sweeps of `articulated.py` without R in the inertias. Rows travel side by side in lanes and are zero where
they have not begun, where the paper stacks them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.along_links import OnLinks, along_links, in_joints
from jaxrbd.constraints.articulated import added, nothing
from jaxrbd.constraints.balance import Accelerations, Unbalanced, links_method, unbalanced
from jaxrbd.constraints.clustered import ClusterTask
from jaxrbd.constraints.iterations import iterate
from jaxrbd.constraints.joint_space import diagonal, on_mass_factor
from jaxrbd.constraints.method import Found, Settings
from jaxrbd.constraints.open_rows import (
    Passed,
    World,
    open_entries,
    open_wrenches,
    through_joint,
    where_rows_begin,
)
from jaxrbd.constraints.penalties import local_mobility, of_moving_rows
from jaxrbd.constraints.prox_ltl import damped_inverse, dual_penalties
from jaxrbd.constraints.solver import Proximal
from jaxrbd.constraints.task import Task
from jaxrbd.engine.gather import gather
from jaxrbd.engine.scan import inward, outward
from jaxrbd.model.system import pytree
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.aba import solve_roots
from jaxrbd.tree.node import Pivot
from jaxrbd.tree.spatial import ArticulatedInertia, Motion


@pytree
class ProxPV(Proximal):
    """Popov and Vereshchagin with a proximal dual, [CABA] Algorithm 4: O(n m² + m³)."""

    def solve(self, task: Task, settings: Settings) -> Found:
        if isinstance(task, ClusterTask):
            return on_mass_factor(task, settings, damped_inverse, dual_penalties)
        on = along_links(task, open_to_world=True)
        fac = factor(on)
        delassus = in_rows(on, fac)
        mobility = of_moving_rows(diagonal(delassus), local_mobility(on))

        def build(R):
            apply = damped_inverse(delassus, R)
            return links_method(task, on, lambda *state: correct(on, fac, apply, *state))

        penalty = dual_penalties(mobility, task)
        found = iterate(build, penalty, mobility, task.c, task.lam, task.weight, settings)
        return found._replace(a=in_joints(task, on, *found.a))


class Factor(NamedTuple):
    """Articulated inertias of M, and the rows at every joint and at the world."""

    pivot: Pivot | None  # (NS, B)
    passed: Passed | None  # (NS, width, B)
    root: ArticulatedInertia  # (nroots, B)
    world: World  # its L is J M^-1 Jᵀ, in the order of the lanes


def factor(on: OnLinks) -> Factor:
    """One inward pass over the supporting links."""
    plan, prob = on.plan, on.prob

    def articulate(children, xs):
        node, own, kappa = xs
        IA, K = added(children, own)
        Ia, pivot = node.eliminate(IA)  # [CABA] Alg. 4, lines 6, 8
        K, s = through_joint(K, node, pivot, kappa)  # [CABA] Alg. 4, line 9
        return (node.hand_on(Ia), K), (pivot, Passed(s))

    # [CABA] Alg. 4, line 4; its l begins in `correct`, its forces as in Alg. 1
    own = (prob.H, open_wrenches(plan, on.rows))
    xs = (prob.node, on.links(own), open_entries(plan, on.table, on.rows))
    children, out = inward(plan.support, articulate, xs, nothing(own))  # [CABA] Alg. 4, line 5
    IA0, K0 = added(children, on.roots(own))
    like = prob.p.ang.x
    L = jnp.zeros((plan.width, plan.width) + like.shape[1:], like.dtype)
    pivot: Pivot | None = None
    passed: Passed | None = None
    if plan.support.size:
        pivot, passed = out
        add = lambda L, x: (L + x[0][:, None] * (x[0] * x[1])[None], None)  # noqa: E731
        L, _ = jax.lax.scan(add, L, (out[1].s, out[0].Dinv))  # [CABA] Alg. 4, line 10
    return Factor(pivot, passed, IA0, World.of(K0, L, prob.armature0, IA0, range(plan.width)))


def in_rows(on: OnLinks, fac: Factor):
    """J M^-1 Jᵀ, (m, m, B), in the order of the rows."""
    lane = on.plan.lane
    return gather(gather(fac.world.L, lane), lane, 1)


def correct(on: OnLinks, fac: Factor, apply, now: Accelerations, lam, r, load=None):
    """One correction of accelerations and multipliers; `apply` is (J M^-1 Jᵀ + 1/R)^-1."""
    lane = on.plan.lane
    lacking = unbalanced(on, now, lam, load)
    u, p0, l0 = push(on, fac, lacking, where_rows_begin(on.plan, -r))
    A0 = solve_roots(on.prob.armature0, fac.root, lacking.tau0 - p0)
    z = apply(fac.world.right_side(l0, A0)[lane])  # [CABA] Alg. 4, line 13, as an increment
    in_lanes = z[np.argsort(lane)]
    return pull(on, fac, u, fac.world.pulled(A0, in_lanes), in_lanes), -z


def push(on: OnLinks, fac: Factor, lacking: Unbalanced, l):
    """Inward: forces u that joints lack, and what arrives at the roots."""

    def step(children, xs):
        node, own, tau, pivot, passed = xs
        p, l = added(children, own)
        u = tau - node.project(p)
        l = passed.carry(l, pivot.alone(u))  # [CABA] Alg. 4, line 11
        return (node.hand_on(pivot.reaction(p, u)), l), u  # [CABA] Alg. 4, line 7

    own = (lacking.p, l)
    xs = (on.prob.node, on.links(own), lacking.tau, fac.pivot, fac.passed)
    children, u = inward(on.plan.support, step, xs, nothing(own))
    return u, *added(children, on.roots(own))


def pull(on: OnLinks, fac: Factor, u, A0: Motion, z) -> Accelerations:
    """Outward from the accelerations A0 of the roots; z (width, B) pulls on all links."""
    if fac.pivot is None or fac.passed is None:
        return Accelerations(A0, None)

    def step(parent, xs):
        node, pivot, alone = xs
        A = node.arrive(parent[0])
        a = pivot.rate(alone, A)  # [CABA] Alg. 4, line 18
        return A + node.expand(a), a  # [CABA] Alg. 4, line 19

    alone = fac.pivot.alone(fac.passed.relieve(u, z[None]))
    # [CABA] Alg. 4, line 17
    A, a = outward(on.plan.support, step, (on.prob.node, fac.pivot, alone), (A0, jnp.zeros_like(A0.ang.x)))
    return Accelerations(kin.join(A, A0), a)
