"""[CABA] Eq. 16, 24: the augmented Lagrangian on the sparse factor of M + JᵀRJ."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.clustered import ClusterTask
from jaxrbd.constraints.iterations import iterate
from jaxrbd.constraints.joint_space import (
    constraint_pattern,
    gram,
    joint_mobility,
    joint_space,
    matrices,
    on_mass_factor,
    unbalanced,
)
from jaxrbd.constraints.method import Found, Settings
from jaxrbd.constraints.penalties import bearable, penalties
from jaxrbd.constraints.plan import plan_of
from jaxrbd.constraints.prox_ltl import damped_inverse, dual_penalties
from jaxrbd.constraints.rows import sum_by_row, table_of
from jaxrbd.constraints.solver import Proximal
from jaxrbd.constraints.task import Task
from jaxrbd.engine.gather import gather
from jaxrbd.model.system import pytree
from jaxrbd.tree import sparse
from jaxrbd.tree.cholesky import mass_pattern
from jaxrbd.tree.crba import mass_matrix_with
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.spatial import Force, zero_articulated


@pytree
class ProxLTLs(Proximal):
    """Augmented Lagrangian on the sparse factor of M + JᵀRJ, [CABA] Eq. 16: O(n d² + n² + n m)."""

    def solve(self, task: Task, settings: Settings) -> Found:
        if isinstance(task, ClusterTask):
            return on_mass_factor(task, settings, damped_inverse, dual_penalties)
        M, J = matrices(task)
        touches = constraint_pattern(task.sys, task.con)
        pattern = sparse.pattern_of(mass_pattern(task.sys.topology) | (touches.T @ touches))
        # what the factor has to bear is seen at the pivots of M, not on its diagonal (float32, 22 links:
        # 14 % of states failed by the diagonal, 3 % by the pivots and by J M^-1 Jᵀ, which costs more)
        plain = sparse.pattern_of(mass_pattern(task.sys.topology))
        pivots = sparse.diagonal(plain, sparse.factor(plain, sparse.store(plain, M)))
        mobility = joint_mobility(J, pivots)

        def build(R):
            H = sparse.factor(pattern, sparse.store(pattern, augmented_mass_matrix(task, J, R)))

            def correct(a, lam, r, load):
                da = sparse.solve(pattern, H, unbalanced(task, a, lam + R * r, load))
                return da, R * (r - jnp.sum(J * da[None], 1))

            return joint_space(J, correct)

        penalty = penalties(mobility, task.weight) if task.R is None else bearable(task.R, mobility)
        return iterate(build, penalty, mobility, task.c, task.lam, task.weight, settings)


def augmented_mass_matrix(task: Task, J, R):
    """M + JᵀRJ, (nv, nv, B), by composite bodies with inertias H + Kᵀ R K ([CABA] Eq. 24).

    Rows between two bodies, or on joints, have no such inertia: they are added as they are.
    """
    t, nodes = task.sys.topology, nodes_of(task.sys.topology)
    table, on_one_body = table_of(t, task.con.entries), plan_of(t, task.con.entries).on_one_body
    K = task.x.KA.rotate(gather(task.moving.R, table.slot_a))
    scaled = K * jnp.where(on_one_body[:, None], R, 0)
    outer = zero_articulated().minus_outer(Force(-K.ang, -K.lin), scaled)
    extra = jax.tree.map(lambda k: sum_by_row(k, table.slot_a, nodes.size + nodes.nroots), outer)
    split = gather(extra, slice(0, nodes.size)), gather(extra, slice(nodes.size, None))
    M_R = mass_matrix_with(task.sys, task.q, split)
    loops = np.flatnonzero(~on_one_body)
    return M_R + gram(J[loops], R[loops]) if len(loops) else M_R
