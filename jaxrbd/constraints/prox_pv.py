"""[CABA] Algorithm 4: all rows reach the world, where the dual problem is solved."""

from __future__ import annotations

import numpy as np

from jaxrbd.constraints import articulated as art
from jaxrbd.constraints.along_links import along_links, in_joints, links_method
from jaxrbd.constraints.iterations import Found, Settings, iterate
from jaxrbd.constraints.joint_space import diagonal
from jaxrbd.constraints.lanes import lane_numbers
from jaxrbd.constraints.penalties import local_mobility, of_moving_rows
from jaxrbd.constraints.prox_ltl import damped_inverse, dual_penalties
from jaxrbd.constraints.solver import Proximal
from jaxrbd.constraints.task import Task
from jaxrbd.model.system import pytree


@pytree
class ProxPV(Proximal):
    """Popov and Vereshchagin with a proximal dual, [CABA] Algorithm 4: O(n m² + m³)."""

    def solve(self, task: Task, settings: Settings) -> Found:
        plan, table, prob, rest, acting = along_links(task, open_to_world=True)
        fac = art.factor(plan, table, prob, acting, damped=False)
        order = np.argsort(plan.lane)  # lanes and rows are the same numbers in another order
        delassus = fac.world[plan.lane][:, plan.lane]
        mobility = of_moving_rows(diagonal(delassus), local_mobility(plan, table, prob, acting))

        def build(R):
            apply = damped_inverse(delassus, R)

            def correct(a, lam, r, load):
                left = art.unbalanced(plan, table, prob, acting, a, lam, load)
                pushed = art.push(plan, prob, fac, left.p, left.tau, lane_numbers(plan, -r))
                A0 = art.free_roots(prob, fac, pushed, left.tau0)
                dlam = apply(-art.world_rows(fac, pushed, A0)[plan.lane])
                dA, joints, _ = art.pull(plan, prob, fac, pushed, A0, -dlam[order])
                return art.Accelerations(dA, joints), dlam

            return links_method(task, plan, table, prob, acting, correct)

        penalty = dual_penalties(mobility, task)
        found = iterate(build, penalty, mobility, task.c, task.lam, task.weight, settings)
        return found._replace(a=in_joints(task, plan, rest, found.a))
