"""[CABA] Eq. 13, [PROX]: the dual problem by the branch-sparse factor of M."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.joint_space import on_mass_factor
from jaxrbd.constraints.method import Found, Settings
from jaxrbd.constraints.penalties import penalties
from jaxrbd.constraints.solver import Proximal
from jaxrbd.constraints.task import Task
from jaxrbd.model.system import pytree


@pytree
class ProxLTL(Proximal):
    """Dual proximal point on the branch-sparse factor, [CABA] Eq. 13 and [PROX]: O(n d² + n m² + m³)."""

    def solve(self, task: Task, settings: Settings) -> Found:
        return on_mass_factor(task, settings, damped_inverse, dual_penalties)


def dual_penalties(mobility, task: Task):
    """Rows that repeat each other leave the factor nothing but 1/R to stand on: it is kept above rounding."""
    if task.R is None:
        return penalties(mobility, task.weight)
    rounding = 2 * len(task.c) * jnp.finfo(task.c.dtype).eps * jax.lax.stop_gradient(mobility)
    return jnp.minimum(task.R, 1 / rounding)


def damped_inverse(delassus, R):
    """x -> (J M^-1 Jᵀ + R^-1)^-1 x by one Cholesky factor ([CABA] Eq. 13)."""
    eye = jnp.asarray(np.eye(len(R))[:, :, None], R.dtype)
    chol = jax.scipy.linalg.cho_factor(jnp.moveaxis(delassus + eye / R, -1, 0), lower=True)
    return lambda r: jax.scipy.linalg.cho_solve(chol, r.T[..., None])[..., 0].T
