"""Methods along the links: the problem as articulated bodies, and the way back to joint accelerations."""

from __future__ import annotations

from collections.abc import Callable

from jaxrbd.constraints import articulated as art
from jaxrbd.constraints.iterations import Method
from jaxrbd.constraints.joint_space import dense_jacobian
from jaxrbd.constraints.lanes import Acting, row_motion
from jaxrbd.constraints.plan import plan_of
from jaxrbd.constraints.rows import table_of
from jaxrbd.constraints.supporting import joint_accelerations_of, links_problem, unsupported_accelerations
from jaxrbd.constraints.task import Task, link_inertias, no_forces


def along_links(task: Task, open_to_world: bool = False):
    """The problem in the form of articulated bodies: plan, table, problem, what hangs on it, and the rows."""
    sys, t = task.sys, task.sys.topology
    plan, table = plan_of(t, task.con.entries, open_to_world=open_to_world), table_of(t, task.con.entries)
    p, p0 = no_forces(task) if task.p is None else (task.p, task.p0)
    I, I0 = link_inertias(sys, task.moving.links)
    prob, rest = links_problem(sys, plan, task.moving, I, I0, p, p0, task.tau)
    mu = task.weight if task.mu is None else task.mu
    return plan, table, prob, rest, Acting(task.x.KA, task.x.KB, task.x.kappa, mu)


def in_joints(task: Task, plan, rest, a: art.Accelerations):
    """Joint accelerations (nv, B) of all links."""
    a_unsupported = None if rest is None else unsupported_accelerations(plan, rest, a.links)
    return joint_accelerations_of(task.sys, plan, a.joints, a_unsupported, a.links)


def links_method(task: Task, plan, table, prob, acting: Acting, correct: Callable) -> Method:
    return Method(
        zero=art.no_accelerations(plan, prob),
        correct=correct,
        rows=lambda a: row_motion(plan, table, acting, a.links, a.joints),
        size=lambda a: art.largest_acceleration(plan, a),
        jacobian=lambda: dense_jacobian(task),
    )
