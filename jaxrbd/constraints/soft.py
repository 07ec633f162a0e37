"""Constraints as springs: one iteration of [CABA] Algorithms 1-3, the penalty problem itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.constraints import articulated as art
from jaxrbd.constraints.along_links import along_links, in_joints
from jaxrbd.constraints.balance import largest_acceleration, no_accelerations, row_accelerations
from jaxrbd.constraints.clustered import ClusterTask
from jaxrbd.constraints.joint_space import diagonal, gram, joint_mobility
from jaxrbd.constraints.method import Found, Settings
from jaxrbd.constraints.penalties import KAPPA, local_mobility
from jaxrbd.constraints.solver import Proximal
from jaxrbd.constraints.task import Task
from jaxrbd.constraints.verdict import LIMITS, by_row
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import pytree, static
from jaxrbd.solution import Result

# shares of the penalties that arithmetic bears as a rule, tried where those of a user gave no number
WEAKER = (1.0, 0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-4, 1e-6)


@pytree
class Soft(Proximal):
    """One iteration of `ConstrainedABA`: rows as springs of compliance 1/(mu weight), as MuJoCo and PV-soft.

    [CABA] VII-A: minimises ½|a - a_free|²_M + ½ mu |J a - c|². Rows are met as far as mu is large, so the
    result is `stationary` where that problem is solved and rarely `converged`. Derivatives are those of the
    springs, by mu and weights too.
    """

    iterations: int = static(default=1)
    gradients: str = static(default="unrolled", kw_only=True)

    def __post_init__(self):
        super().__post_init__()
        if self.iterations != 1 or self.tolerance is not None:
            raise ArgumentError("Soft: it is one iteration by definition. Use ConstrainedABA for more.")
        if self.gradients != "unrolled":
            raise ArgumentError("Soft: implicit gradients are those of rigid rows. Use 'unrolled'.")

    def solve(self, task: Task, settings: Settings) -> Found:
        """(M + JᵀRJ) a = f + JᵀRc on the factor of ConstrainedABA; lam = R (c - J a).

        Where penalties that users give are more than the arithmetic bears, the answer is that of penalties
        which it does bear, and not called right.
        """
        if isinstance(task, ClusterTask):
            return _in_joint_space(task)
        on = along_links(task)
        mobility, R = local_mobility(on), task.R
        if R is None:
            scale = KAPPA[task.c.dtype.name] / by_row(task.weight * mobility)
            R = jax.lax.stop_gradient(scale * task.weight)

        def with_penalty(R):
            fac = art.factor(on, R)
            a, r = no_accelerations(on), task.c
            for _ in range(2):  # the second corrects rounding, and shows how much there was
                da, _ = art.correct(on, fac, R, a, jnp.zeros_like(r), r)
                a = jax.tree.map(jnp.add, a, da)
                r = task.c - row_accelerations(on, a)
            return a, r, largest_acceleration(on, da), R * r

        found = with_penalty(R)
        if task.R is not None:
            lost, bearable = ~jnp.isfinite(found[2]), KAPPA[task.c.dtype.name] / mobility

            def weaker(found, share):
                still = ~jnp.isfinite(found[2])
                new = with_penalty(jnp.minimum(R, share * bearable))
                return jax.tree.map(lambda new, x: jnp.where(still, new, x), new, found), None

            def again(found):
                (a, r, step, lam), _ = jax.lax.scan(weaker, found, jnp.asarray(WEAKER, task.c.dtype))
                return a, r, jnp.where(lost, jnp.inf, step), lam

            found = jax.lax.cond(jnp.any(lost), again, lambda found: found, found)
        a, r, step, lam = found
        size = jnp.maximum(1, largest_acceleration(on, a))
        return _judged(task, in_joints(task, on, *a), lam, r, step, size, R * mobility)


def _judged(task, a, lam, r, step, size, stiffness) -> Found:
    limits, residual = LIMITS[r.dtype.name], by_row(r)
    met = residual <= limits.met * jnp.maximum(1, by_row(task.c))
    # beyond 1/eps the rows drown the bodies, and what is left of those is not to be seen in a step
    drowned = by_row(stiffness) * jnp.finfo(r.dtype).eps > 30
    right = (step <= 0.1 * limits.wrong * size) & ~drowned
    verdict = jnp.where(right, jnp.where(met, Result.converged, Result.stationary), Result.not_converged)
    one = jnp.ones_like(residual)
    return Found(a, lam, residual[None], step, one, verdict.astype(residual.dtype))


def _in_joint_space(task: ClusterTask) -> Found:
    """The same by a dense factor of M + JᵀRJ, for Systems with clusters."""
    M, J, R = task.M, task.J, task.R
    mobility = joint_mobility(J, diagonal(M))
    if R is None:
        R = jax.lax.stop_gradient(KAPPA[task.c.dtype.name] / by_row(task.weight * mobility) * task.weight)
    H = jnp.moveaxis(M + gram(J, R), -1, 0)
    chol = jax.scipy.linalg.cho_factor(H, lower=True)
    a, r, da = jnp.zeros_like(task.tau), task.c, task.tau
    for _ in range(2):  # as above
        load = task.tau - jnp.sum(M * a[None], 1) + jnp.sum(J * (R * r)[:, None], 0)
        da = jax.scipy.linalg.cho_solve(chol, load.T[..., None])[..., 0].T
        a = a + da
        r = task.c - jnp.sum(J * a[None], 1)
    return _judged(task, a, R * r, r, by_row(da), jnp.maximum(1, by_row(a)), R * mobility)
