"""Default penalties: as stiff as the arithmetic bears, and if it can be in proportion to the weights.

A row sees a mobility d, the acceleration that a unit force along it causes. Its penalty R matters only as
kappa = R d: an iteration leaves 1/(1 + kappa) of the error along it, and rounds off some kappa eps. So kappa
is the same for kilograms and grams, metres and radians. Equal kappa would share the force of rows that
repeat each other by mobility; R proportional to the weights shares it by weight, which is what users expect.
So R follows the weights within a window of kappa.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.along_links import OnLinks
from jaxrbd.constraints.plan import Plan
from jaxrbd.constraints.rows import sum_by_row
from jaxrbd.constraints.supporting import Problem
from jaxrbd.engine.gather import gather
from jaxrbd.engine.scan import inward
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.aba import symmetric_matrix
from jaxrbd.tree.ldl import factor_ldl
from jaxrbd.tree.spatial import Force, zero_articulated

KAPPA = {"float64": 1e7, "float32": 3e4}
LOCAL_KAPPA = {"float64": 1e9, "float32": 1e6}  # of `local_mobility`, which is larger than what a row sees
WINDOW = {"float64": 1e-4, "float32": 1e-1}  # of kappa


def penalties(mobility, weight, kappa=KAPPA):
    """R, (m, B), from the mobilities and weights of the rows."""
    most = kappa[mobility.dtype.name] / mobility
    scale = jnp.min(most / weight, 0)
    return jax.lax.stop_gradient(jnp.clip(scale * weight, WINDOW[most.dtype.name] * most, most))


def bearable(penalty, mobility):
    """A penalty that users give; where the arithmetic cannot tell it from rigid, one that it can."""
    eps, mobility = jnp.finfo(mobility.dtype).eps, jax.lax.stop_gradient(mobility)
    return jnp.where(penalty * mobility * eps > 1, 0.1 / (eps * mobility), penalty)


def of_moving_rows(mobility, natural):
    """Mobilities; of rows that nothing moves, rounding against their `natural` size, that size.

    A plane mechanism, say, has rows out of its plane.
    """
    rounding = (1e3 * jnp.finfo(mobility.dtype).eps) ** 2
    return jnp.where(mobility > rounding * natural, mobility, jnp.where(natural > 0, natural, 1))


def local_mobility(on: OnLinks):
    """K H^-1 Kᵀ of every row at its links, (m, B): what it would see if they were cut off from their parents.

    More than the true J M^-1 Jᵀ, and what articulated inertias that carry K R Kᵀ have to be compared with.
    """
    plan, table, prob, x = on.plan, on.table, on.prob, on.rows
    d = _at_bodies(prob, plan.position_a, x.KA)
    if (plan.position_b != plan.support.size).any():
        away = jnp.asarray(plan.position_b != plan.support.size, d.dtype)[:, None]
        d = d + away * _at_bodies(prob, plan.position_b, x.KB)
    if len(table.joint_rows):
        d = d + sum_by_row(x.kappa**2 * _joint_mobility(plan, prob), table.joint_rows, table.m)
    return d


def _at_bodies(prob: Problem, position, K: Force):
    """K H^-1 Kᵀ; a body without mass counts as a thousandth of the average one."""
    size = lambda H: H.A.xx + H.A.yy + H.A.zz + H.C.xx + H.C.yy + H.C.zz  # noqa: E731
    average = jnp.mean(size(prob.H), 0)
    used, row = np.unique(position, return_inverse=True)
    H = gather(prob.H, used)
    M = symmetric_matrix(H)
    floor = jnp.where(size(H) > 0, 1e-6 * size(H), 1e-3 * average)
    for k in range(6):
        M[k][k] = M[k][k] + floor
    L, D = factor_ldl(M)
    y = [*K.ang, *K.lin]
    for i in range(6):
        for k in range(i):
            y[i] = y[i] - gather(L[i][k], row) * y[k]
    return sum(y[i] * y[i] * gather(1 / D[i], row) for i in range(6))


def _joint_mobility(plan: Plan, prob: Problem):
    """1/D of articulated bodies without rows, for the freedoms of the joint entries: (ne, B)."""
    NS = plan.support.size

    def articulate(IA, x):
        node, H = x
        Ia, pivot = node.eliminate(IA + H)
        return node.hand_on(Ia), pivot.Dinv

    zero = kin.zeros(zero_articulated(), prob.p.ang.x)
    xs = (prob.node, gather(prob.H, slice(0, NS)))
    IA0, Dinv = inward(plan.support, articulate, xs, zero)
    IA0 = IA0 + gather(prob.H, slice(NS, None))
    six = jnp.stack([IA0.A.xx, IA0.A.yy, IA0.A.zz, IA0.C.xx, IA0.C.yy, IA0.C.zz], 1) + prob.armature0
    at = zip(plan.dof_position, plan.dof_column)
    return jnp.stack([Dinv[p] if column < 0 else 1 / six[p - NS, column] for p, column in at])
