"""Inverse dynamics under constraints:  Sᵀ tau + J(q)ᵀ lam = ID(q, v, a), with forces at some joints only.

Of all answers the cheapest, ½ Σ c tau² + ½ Σ d lam²: with W = diag(1/c, 1/d) and A = [Sᵀ Jᵀ] it is
(tau, lam) = W Aᵀ y, where A W Aᵀ y = ID. That matrix (nv, nv) is singular where neither an actuator nor a
constraint can push, so y is found by proximal iterations on its damped Cholesky factor: they converge
whatever its rank, and an ID that cannot be produced is approached in the sense of least squares.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import ConstraintsLike, as_constraints, check_constraints
from jaxrbd.constraints.jacobian import constraint_jacobian, evaluate
from jaxrbd.errors import ArgumentError
from jaxrbd.joints import TYPES
from jaxrbd.model.system import System, pytree
from jaxrbd.solution import Result, Solution, largest
from jaxrbd.tree.arguments import arguments, external
from jaxrbd.tree.rnea import inverse_dynamics
from jaxrbd.typing import ArrayLike

ITERATIONS = 4


@pytree
class ConstrainedForces:
    """Joint forces tau (nv,), zero where nothing drives, and multipliers lam (m,)."""

    tau: jax.Array
    lam: jax.Array


@pytree
class ConsistencyStats:
    """Whether the motion is possible: largest |Sᵀ tau + Jᵀ lam - ID| and |J a + J̇v - a*|."""

    force_residual: jax.Array
    constraint_residual: jax.Array


def constrained_inverse_dynamics(
    sys: System,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    constraints: ConstraintsLike,
    actuated: Sequence[str] | ArrayLike | None = None,
    f_ext: ArrayLike | None = None,
    torque_cost: ArrayLike = 1.0,
    force_cost: ArrayLike = 1.0,
) -> Solution:
    """Joint forces and multipliers of a motion:  Sᵀ tau + Jᵀ lam = M a + b - (f_ext), the least of them.

    Returns Solution(ConstrainedForces(tau, lam), result, stats). `actuated`: names of driven joints or a
    mask (nv,); by default all but free joints. `torque_cost` (per freedom) and `force_cost` (per row) weigh
    tau² against lam² where both can do the work. `result` is `stationary` where the motion is impossible:
    an undriven joint would need a force, or the motion does not follow the constraints.
    """
    con = as_constraints(constraints)
    check_constraints(sys, con)
    q, v, a = arguments(sys, q=q, v=v, a=a)
    driven = jnp.asarray(actuated_mask(sys, actuated), q.dtype) / _cost(
        "torque_cost", torque_cost, sys.nv, q.dtype
    )
    ease = 1 / _cost("force_cost", force_cost, con.rows, q.dtype)
    wanted = inverse_dynamics(sys, q, v, a, external(sys, f_ext, q.dtype))
    J = constraint_jacobian(sys, con, q)
    y = _proximal_solve(jnp.diag(driven) + (J.T * ease) @ J, wanted)
    tau, lam = driven * y, ease * (J @ y)
    missing = tau + J.T @ lam - wanted
    _, _, follows, target = evaluate(sys, con, q, v, a)
    stats = ConsistencyStats(largest(missing), largest(follows - target))
    tolerance = 1e-8 if sys.dtype == jnp.float64 else 1e-3
    possible = (stats.force_residual <= tolerance * jnp.maximum(1, largest(wanted))) & (
        stats.constraint_residual <= tolerance * jnp.maximum(1, largest(a))
    )
    result = jnp.where(possible, Result.converged, Result.stationary).astype(jnp.int32)
    return Solution(ConstrainedForces(tau, lam), result, stats)


def actuated_mask(sys: System, actuated=None) -> np.ndarray:
    """Which freedoms are driven, (nv,): all but those of free joints, or named joints, or the mask given."""
    if actuated is None:
        actuated = [n for n, kind in zip(sys.joint_names, sys.joint_types) if not TYPES[kind].free]
    if isinstance(actuated, str):
        actuated = (actuated,)
    if isinstance(actuated, Sequence) and all(isinstance(x, str) for x in actuated):
        mask = np.zeros(sys.nv, bool)
        for name in actuated:
            mask[sys.v_index(name)] = True
        return mask
    mask = np.asarray(actuated)
    if mask.shape != (sys.nv,) or mask.dtype != bool:
        raise ArgumentError(
            f"actuated has shape {mask.shape} and dtype {mask.dtype}, expected joint names or a mask "
            f"(nv,) = ({sys.nv},) of bools."
        )
    return mask


def _cost(name: str, cost, count: int, dtype):
    c = jnp.asarray(cost, dtype)
    if c.shape not in ((), (count,)):
        raise ArgumentError(f"{name} has shape {c.shape}, expected a number or ({count},).")
    if not isinstance(c, jax.core.Tracer) and not bool(jnp.all(c > 0)):
        raise ArgumentError(f"{name} is {cost!r}, expected positive numbers.")
    return jnp.broadcast_to(c, (count,))


def _proximal_solve(G, b):
    """G⁺ b up to the null space of G: y += (G + eps)^-1 (b - G y), from one factor."""
    eps = (1e-9 if G.dtype == jnp.float64 else 1e-4) * largest(jnp.diagonal(G))
    factor = jax.scipy.linalg.cho_factor(G + eps * jnp.eye(len(b), dtype=G.dtype), lower=True)
    y = jnp.zeros_like(b)
    for _ in range(ITERATIONS):
        y = y + jax.scipy.linalg.cho_solve(factor, b - G @ y)
    return y
