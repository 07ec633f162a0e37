"""Impacts:  M (v+ - v-) = Jᵀ Lambda,  J v+ = -e J v-, at one configuration and in no time.

The same linear problem as constrained accelerations, so the same solvers; redundant rows included.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.constraints.data import ConstraintsLike, as_constraints
from jaxrbd.constraints.projection import velocity_jump
from jaxrbd.constraints.solver import Solver
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, pytree
from jaxrbd.solution import Solution
from jaxrbd.tree.arguments import arguments
from jaxrbd.typing import ArrayLike


@pytree
class Impact:
    """Velocity v (nv,) after the impact and the impulses along the rows (m,), [N s, N m s]."""

    v: jax.Array
    impulse: jax.Array


def impulse_dynamics(
    sys: System,
    q: ArrayLike,
    v: ArrayLike,
    constraints: ConstraintsLike,
    restitution: ArrayLike = 0.0,
    solver: Solver | None = None,
) -> Solution:
    """Velocity after the rows have struck:  M (v+ - v) = Jᵀ Lambda,  J v+ = -e J v.

    Returns Solution(Impact(v, impulse), result, stats). `restitution` e, a number or one per row (m,): 0
    stops the rows, 1 reflects them. Kinetic energy falls by ½ (1 - e²) (J v)ᵀ (J M^-1 Jᵀ)⁺ J v for one e.
    """
    con = as_constraints(constraints)
    q, v = arguments(sys, q=q, v=v)
    e = jnp.asarray(restitution, sys.dtype)
    if e.shape not in ((), (con.rows,)):
        raise ArgumentError(
            f"restitution has shape {e.shape}, expected a number or one per row, ({con.rows},)."
        )
    if not isinstance(e, jax.core.Tracer) and not bool(jnp.all((e >= 0) & (e <= 1))):
        raise ArgumentError(f"restitution is {restitution!r}, expected numbers from 0 to 1.")
    jump = velocity_jump(sys, q, v, con, 1 + e, solver)
    return Solution(Impact(v + jump.value.a, jump.value.lam), jump.result, jump.stats)
