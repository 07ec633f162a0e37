"""[CABA] Algorithms 1-3: articulated bodies whose inertias carry the constraints."""

from __future__ import annotations

from jaxrbd.constraints import articulated as art
from jaxrbd.constraints.along_links import along_links, in_joints
from jaxrbd.constraints.balance import links_method
from jaxrbd.constraints.clustered import ClusterTask
from jaxrbd.constraints.iterations import iterate
from jaxrbd.constraints.joint_space import on_mass_factor
from jaxrbd.constraints.method import Found, Settings
from jaxrbd.constraints.penalties import LOCAL_KAPPA, bearable, local_mobility, penalties
from jaxrbd.constraints.prox_ltl import damped_inverse, dual_penalties
from jaxrbd.constraints.solver import Proximal
from jaxrbd.constraints.task import Task
from jaxrbd.model.system import pytree


@pytree
class ConstrainedABA(Proximal):
    """Articulated bodies with constrained inertias, [CABA] Algorithms 1-3: O(n + m). The default."""

    def solve(self, task: Task, settings: Settings) -> Found:
        if isinstance(task, ClusterTask):
            return on_mass_factor(task, settings, damped_inverse, dual_penalties)
        on = along_links(task)
        mobility = local_mobility(on)

        def build(R):
            fac = art.factor(on, R)  # [CABA] Alg. 3, line 2; its roll-out is the first correction
            return links_method(task, on, lambda *state: art.correct(on, fac, R, *state))

        if task.R is None:
            penalty = penalties(mobility, task.weight, LOCAL_KAPPA)
        else:
            penalty = bearable(task.R, mobility)
        found = iterate(build, penalty, mobility, task.c, task.lam, task.weight, settings)
        return found._replace(a=in_joints(task, on, *found.a))
