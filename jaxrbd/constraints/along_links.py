"""A task in the form of articulated bodies, and the way back to joint accelerations."""

from __future__ import annotations

from typing import NamedTuple

from jaxrbd.constraints.acting import Acting
from jaxrbd.constraints.plan import Plan, plan_of
from jaxrbd.constraints.rows import Table, table_of
from jaxrbd.constraints.supporting import (
    Problem,
    Unsupported,
    joint_accelerations_of,
    links_problem,
    unsupported_accelerations,
)
from jaxrbd.constraints.task import Task, link_inertias, no_forces
from jaxrbd.engine.gather import gather
from jaxrbd.tree.spatial import Motion


class OnLinks(NamedTuple):
    """What methods along the links work on."""

    plan: Plan
    table: Table
    prob: Problem
    unsupported: Unsupported | None  # the links that support no row
    rows: Acting

    def links(self, tree):
        """The part of things at positions that belongs to supporting links."""
        return gather(tree, slice(0, self.plan.support.size))

    def roots(self, tree):
        """The part of things at positions that belongs to the roots."""
        return gather(tree, slice(self.plan.support.size, None))


def along_links(task: Task, open_to_world: bool = False) -> OnLinks:
    """`open_to_world`: with the plan in which every row is open up to there."""
    sys, t = task.sys, task.sys.topology
    plan, table = plan_of(t, task.con.entries, open_to_world=open_to_world), table_of(t, task.con.entries)
    p, p0 = no_forces(task) if task.p is None or task.p0 is None else (task.p, task.p0)
    I, I0 = link_inertias(sys, task.moving.links)
    prob, unsupported = links_problem(sys, plan, task.moving, I, I0, p, p0, task.tau)
    return OnLinks(plan, table, prob, unsupported, Acting(task.x.KA, task.x.KB, task.x.kappa))


def in_joints(task: Task, on: OnLinks, dA: Motion, a):
    """Joint accelerations (nv, B) of all links, from those of positions and of supporting joints."""
    plan, left = on.plan, on.unsupported
    a_left = None if left is None else unsupported_accelerations(plan, left, dA)
    return joint_accelerations_of(task.sys, plan, a, a_left, dA)
