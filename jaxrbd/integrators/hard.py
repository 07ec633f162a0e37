"""Time stepping with impulses: contacts with friction, limits, dry friction and loops in one dual problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.jacobian import constraint_jacobian
from jaxrbd.contact.contacts import Contacts
from jaxrbd.contact.joint_rows import JointRows
from jaxrbd.contact.mechanism import (
    ContactStats,
    Rows,
    Stabilisation,
    limited,
    mechanism_problem,
    mechanism_rows,
)
from jaxrbd.dual.solve import solve
from jaxrbd.dual.solver import Solver
from jaxrbd.dual.splitting import NBGS
from jaxrbd.errors import ArgumentError
from jaxrbd.integrators.contract import State, StepProblem
from jaxrbd.integrators.explicit import read_dt
from jaxrbd.integrators.free_bodies import advance, carry
from jaxrbd.model.system import System, pytree, static
from jaxrbd.solution import Result, Solution
from jaxrbd.tree.aba import mass_matrix_solve
from jaxrbd.typing import ArrayLike


@pytree
class HardContact:
    """Semi-implicit Euler under impulses:  M (u⁺ - u) = dt h + Jᵀ λ,  q⁺ = q ⊞ dt u⁺  ([LOOPS] V).

    `contacts=` of `step` gives the contacts, `constraints=` loops and other equalities, both rows of one
    problem; joint limits and dry friction of the model are rows of it, too, instead of springs and smoothed
    forces (`limits=False`, `dry_friction=False` leave them what they are elsewhere). Contact is hard: bodies
    overlap by what one step cannot see. Dampers are implicit.
    `solver`: of the dual problem, `dual.NBGS()` for robots on their feet, `dual.ADMM()` for loops and stacks.
    `joints`: rows and forces of joints that are no freedoms of the System, `m.joints(u)` of `rbd.maximal`.
    The State's memory are the last impulses, from which it starts.
    """

    accepts: ClassVar[tuple[str, ...]] = ("constraints", "contacts")

    dt: ArrayLike
    stabilisation: Stabilisation = Stabilisation()
    solver: Solver = static(default=NBGS())
    limits: bool = static(default=True)
    dry_friction: bool = static(default=True)
    joints: Callable[..., JointRows] | None = None

    def __post_init__(self):
        object.__setattr__(self, "dt", read_dt(self.dt))
        if not isinstance(self.solver, Solver):
            raise ArgumentError(
                f"HardContact: solver is {self.solver!r}, expected one of rbd.dual such as rbd.dual.NBGS()."
            )

    def begin(self, problem: StepProblem, state: State) -> State:
        made = self._rows(problem, state.q, self._joint_rows(problem, state))
        m = 0 if made is None else made.blocks.rows
        held = state.memory if state.memory is not None else jnp.zeros(m, problem.sys.dtype)
        return State(state.q, state.v, held)

    def step(self, problem: StepProblem, state: State) -> Solution:
        sys, q, v = problem.sys, state.q, state.v
        dt = jnp.asarray(self.dt, sys.dtype)
        smooth = self._smooth(sys)
        damped = smooth.replace(armature=smooth.armature + dt * smooth.damping)
        a = problem.replace(sys=damped, constraints=None).dynamics(q, v).value.a
        more = self._joint_rows(problem, state)
        if more is not None:
            a = a + mass_matrix_solve(damped, q, more.force)
        made = self._rows(problem, q, more)
        if made is None:
            q1, v1 = advance(sys, q, v, a, dt)
            return Solution(State(q1, v1, state.memory), jnp.int32(Result.converged), None)
        if self.stabilisation.acceleration:
            free = v + dt * a
        else:
            q1, v1 = advance(sys, q, v, a, dt)
            free = carry(sys, q1, v1, q)
        dual = mechanism_problem(sys, damped, made, q, v, free, dt, self.stabilisation)
        found = solve(dual, self.solver, jax.lax.stop_gradient(state.memory))
        J = constraint_jacobian(sys, made.rows, q)
        change = mass_matrix_solve(damped, q, J.T @ found.value.lam)
        q1, v1 = advance(sys, q, v, a + change / dt, dt)
        numbers = found.stats.residuals
        residual = numbers.ncp if self.solver.model == "ncp" else numbers.ccp
        stats = ContactStats(found.value.lam, found.value.v, made.gap, residual, found.stats.iterations)
        return Solution(State(q1, v1, found.value.lam), found.result, stats)

    def _smooth(self, sys: System) -> System:
        """The System without the forces that are rows here."""
        none: dict[str, Any] = {}
        if self.limits:
            none |= {"limit_stiffness": 0 * sys.limit_stiffness, "limit_damping": 0 * sys.limit_damping}
        if self.dry_friction:
            none["friction"] = 0 * sys.friction
        return sys.replace(**none) if none else sys

    def _joint_rows(self, problem: StepProblem, state: State) -> JointRows | None:
        if self.joints is None:
            return None
        return self.joints(problem.sys, state.q, state.v, jnp.asarray(self.dt, problem.sys.dtype))

    def _rows(self, problem: StepProblem, q, more: JointRows | None = None) -> Rows | None:
        sys, found = problem.sys, problem.contacts
        found = found(sys, q) if callable(found) else found
        if not (found is None or isinstance(found, Contacts)):
            raise ArgumentError(
                f"contacts(sys, q) gave {type(found).__name__}, expected rbd.contact.contacts(...)."
            )
        limits, dry = self._slots(sys)
        if (
            problem.constraints is None
            and not (found is not None and len(found))
            and not len(limits) + len(dry)
            and (more is None or not sum(more.counts))
        ):
            return None
        return mechanism_rows(sys, q, problem.constraints, found, limits, dry, more)

    def _slots(self, sys: System) -> tuple[np.ndarray, np.ndarray]:
        """Limits and dry friction that exist: read off the numbers where they are known, else all of them."""
        bounded = [self.limits] * sys.nv
        rubs = [self.dry_friction] * sys.nv
        if self.limits and not _traced(sys.lower, sys.upper):
            bounded = [
                bool(x) for x in np.isfinite(np.asarray(sys.lower)) | np.isfinite(np.asarray(sys.upper))
            ]
        if self.dry_friction and not _traced(sys.friction):
            rubs = [bool(x) for x in np.asarray(sys.friction) > 0]
        return limited(sys.topology, tuple(bounded), tuple(rubs))


def _traced(*arrays) -> bool:
    return any(isinstance(x, jax.core.Tracer) for x in arrays)
