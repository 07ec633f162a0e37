"""Time stepping with impulses: contacts with friction, limits, dry friction and loops in one dual problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.jacobian import constraint_error, constraint_jacobian
from jaxrbd.contact.contacts import Contacts
from jaxrbd.contact.joint_rows import JointRows
from jaxrbd.contact.mechanism import ContactStats, Moment, Stabilisation, mechanism_problem
from jaxrbd.contact.pooled import Pooled
from jaxrbd.contact.rows import Rows, floats, limited, mechanism_delassus, mechanism_rows
from jaxrbd.contact.softening import Soft
from jaxrbd.dual.solve import solve
from jaxrbd.dual.solver import Solver
from jaxrbd.dual.splitting import NBGS
from jaxrbd.errors import ArgumentError
from jaxrbd.integrators.contract import State, StepProblem
from jaxrbd.integrators.explicit import read_dt
from jaxrbd.integrators.free_bodies import advance, carry, glide, unturned
from jaxrbd.integrators.servos import IMPLICIT, Gains, gains
from jaxrbd.model.system import System, pytree, static
from jaxrbd.solution import Result, Solution
from jaxrbd.tree.aba import forward_dynamics, mass_matrix_solve
from jaxrbd.tree.opening import joint_forces, opened
from jaxrbd.typing import Array, ArrayLike

SCHEMES = ("semi-implicit", "midpoint")
PASSES = 2  # of the midpoint scheme: velocities at the midpoint, then the step with them


class Kick(NamedTuple):
    """What a solve gave: impulses, the change of velocity M^-1 Jᵀ λ, the verdict, the numbers to report."""

    lam: Array
    change: Array
    result: Array
    stats: ContactStats


@pytree
class HardContact:
    """Time stepping under impulses:  M (u⁺ - u) = dt h + Jᵀ λ  ([LOOPS] V).

    `contacts=` of `step` gives the contacts, `constraints=` loops and other equalities, both rows of one
    problem; joint limits and dry friction of the model are rows of it, too, instead of springs and smoothed
    forces (`limits=False`, `dry_friction=False` leave them what they are elsewhere; `limits=3` gives rows to
    the three nearest alone). Contact is hard, bodies overlap by what one step cannot see, but for rows that
    `soft` lets give way: `soft=contact.Soft(contacts=contact.Softening())`.
    `scheme`: "semi-implicit", q⁺ = q ⊞ dt u⁺, of order 1; "midpoint" (Moreau-Jean), all evaluated at
    q ⊞ dt/2 u, q⁺ = q ⊞ dt/2 u ⊞ dt/2 u⁺, of order 2 where nothing opens, closes or begins to slip, by two
    solves.
    `implicit`: "dampers" of the joints; "all": their springs and the model's position and velocity servos,
    too, so that stiff ones need no small step; "none".
    `solver`: of the dual problem, `dual.NBGS()` for robots on their feet, `dual.ADMM()` for loops and stacks.
    `joints`: rows and forces of joints that are no freedoms of the System, `m.joints(u)` of `rbd.maximal`.
    The State's memory are the last impulses, from which it starts.
    """

    accepts: ClassVar[tuple[str, ...]] = ("constraints", "contacts")

    dt: ArrayLike
    stabilisation: Stabilisation = Stabilisation()
    solver: Solver = static(default=NBGS())
    limits: bool | int = static(default=True)
    dry_friction: bool = static(default=True)
    soft: Soft = Soft()
    scheme: str = static(default="semi-implicit")
    implicit: str = static(default="dampers")
    joints: Callable[..., JointRows] | None = None

    def __post_init__(self):
        object.__setattr__(self, "dt", read_dt(self.dt))
        if not isinstance(self.solver, Solver):
            raise ArgumentError(
                f"HardContact: solver is {self.solver!r}, expected one of rbd.dual such as rbd.dual.NBGS()."
            )
        for name, known in (("scheme", SCHEMES), ("implicit", IMPLICIT)):
            if getattr(self, name) not in known:
                raise ArgumentError(
                    f"HardContact: {name} is {getattr(self, name)!r}, expected one of {known}."
                )
        if isinstance(self.soft, (int, float, str, dict, type)) or self.soft is None:
            raise ArgumentError(
                f"HardContact: soft is {self.soft!r}, expected contact.Soft(contacts=contact.Softening())."
            )
        if self.joints is not None and self.scheme == "midpoint":
            raise ArgumentError('HardContact: joints= needs scheme="semi-implicit"; its laws are of order 1.')
        if not isinstance(self.limits, int) or self.limits < 0:
            raise ArgumentError(
                f"HardContact: limits is {self.limits!r}, expected True, False or how many of the nearest."
            )

    def begin(self, problem: StepProblem, state: State) -> State:
        made = self._rows(problem, state.q, self._joint_rows(problem, state))
        m = 0 if made is None else made.blocks.rows
        held = state.memory if state.memory is not None else jnp.zeros(m, problem.sys.dtype)
        return State(state.q, state.v, held)

    def step(self, problem: StepProblem, state: State) -> Solution:
        return self._midpoint(problem, state) if self.scheme == "midpoint" else self._euler(problem, state)

    def _euler(self, problem: StepProblem, state: State) -> Solution:
        sys, q, v = problem.sys, state.q, state.v
        dt = jnp.asarray(self.dt, sys.dtype)
        slopes = gains(sys, q, v, problem.u, self.implicit)
        force = -dt * slopes.stiffness * opened(sys, q, v)[2] if self.implicit == "all" else None
        damped, a = self._free(problem, slopes, (q, v), force, (dt, dt * dt), problem.t)
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
        error = None if made.loops is None else constraint_error(sys, made.loops, q)
        now = Moment(q, v, free, v, dt, dt, error, False)
        found = self._kick(sys, damped, made, mechanism_delassus(damped, made, q), now, state.memory)
        q1, v1 = advance(sys, q, v, a + found.change / dt, dt)
        return Solution(State(q1, v1, found.lam), found.result, found.stats)

    def _midpoint(self, problem: StepProblem, state: State) -> Solution:
        """Moreau-Jean: half a step as it moves, all impulses there, half a step with the new velocity.

        Dampers and servos act at the mean of both ends, which is implicit and of order 2.
        """
        sys = problem.sys
        dt = jnp.asarray(self.dt, sys.dtype)
        half = dt / 2
        q, v = glide(sys, state.q, state.v, half)
        slopes = gains(sys, q, v, problem.u, self.implicit)
        before = opened(sys, q, v)[2]
        made = self._rows(problem, q)
        error = None if made is None or made.loops is None else constraint_error(sys, made.loops, state.q)

        def free(mean):
            lag = slopes.damping * (opened(sys, q, mean)[2] - before)
            damped, a = self._free(problem, slopes, (q, mean), lag, (half, half * half), problem.t + half)
            return damped, v + dt * unturned(sys, mean, a)

        if made is None:
            last = v
            for _ in range(PASSES):
                last = free(0.5 * (v + last))[1]
            q1, v1 = glide(sys, q, last, half)
            return Solution(State(q1, v1, state.memory), jnp.int32(Result.converged), None)
        if made.J is None:
            assert made.rows is not None
            made = made._replace(J=constraint_jacobian(sys, made.rows, q))
        D = mechanism_delassus(self._heavier(self._smooth(sys), slopes, half, half * half), made, q)

        def once(carry, _):
            mean, lam = carry
            damped, u = free(mean)
            now = Moment(q, v, u, mean, dt, half, error, True)
            found = self._kick(sys, damped, made, D, now, lam)
            after = u + found.change
            return (0.5 * (v + after), found.lam), (after, found)

        _, both = jax.lax.scan(once, (v, state.memory), None, PASSES)
        after, found = jax.tree.map(lambda x: x[-1], both)
        q1, v1 = glide(sys, q, after, half)
        return Solution(State(q1, v1, found.lam), found.result, found.stats)

    def _kick(self, sys: System, damped: System, made: Rows, D: Array, now: Moment, start: Array) -> Kick:
        dual = mechanism_problem(sys, made, D, now, self.stabilisation, self.soft)
        found = solve(dual, self.solver, jax.lax.stop_gradient(start))
        J = made.J
        if J is None:
            assert made.rows is not None
            J = constraint_jacobian(sys, made.rows, now.q)
        change = mass_matrix_solve(damped, now.q, J.T @ found.value.lam)
        numbers = found.stats.residuals
        stats = ContactStats(
            found.value.lam,
            found.value.v,
            jnp.sum(J * (now.free + change), 1),
            made.gap,
            numbers.ncp if self.solver.model == "ncp" else numbers.ccp,
            found.stats.iterations,
            made.unserved,
            jnp.asarray(made.contacts.dropped if isinstance(made.contacts, Pooled) else 0, jnp.int32),
        )
        return Kick(found.value.lam, change, found.result, stats)

    def _free(self, problem: StepProblem, slopes: Gains, at, more, share, t) -> tuple[System, Array]:
        """The System with what is implicit in its armature, and its acceleration at (q, v), no impulses."""
        sys, (q, v) = problem.sys, at
        smooth = self._smooth(sys)
        damped = self._heavier(smooth, slopes, *share)
        posed = problem.replace(sys=smooth)
        tau = posed.joint_force(q, v, t)
        if more is not None:
            tau = tau + joint_forces(sys, q, more)
        return damped, forward_dynamics(damped, q, v, tau, posed.body_force(q, v, t))

    def _heavier(self, sys: System, slopes: Gains, by_damping: Array, by_stiffness: Array) -> System:
        if self.implicit == "none":
            return sys
        more = by_damping * slopes.damping
        if self.implicit == "all":
            more = more + by_stiffness * slopes.stiffness
        return sys.replace(armature=sys.armature + more)

    def _smooth(self, sys: System) -> System:
        """The System without the forces that are rows here."""
        none: dict[str, Any] = {}
        if self.limits:
            none |= {"limit_stiffness": 0 * sys.limit_stiffness, "limit_damping": 0 * sys.limit_damping}
        if self.dry_friction:
            none["friction"] = sys.friction * floats(sys.topology.tree)
        return sys.replace(**none) if none else sys

    def _joint_rows(self, problem: StepProblem, state: State) -> JointRows | None:
        if self.joints is None:
            return None
        return self.joints(problem.sys, state.q, state.v, jnp.asarray(self.dt, problem.sys.dtype))

    def _rows(self, problem: StepProblem, q, more: JointRows | None = None) -> Rows | None:
        sys, found = problem.sys, problem.contacts
        found = found(sys, q) if callable(found) else found
        if not (found is None or isinstance(found, (Contacts, Pooled))):
            raise ArgumentError(
                f"contacts(sys, q) gave {type(found).__name__}, expected rbd.contact.contacts(...) or "
                "rbd.contact.pooled(...)."
            )
        limits, dry = self._slots(sys)
        if (
            problem.constraints is None
            and not (found is not None and len(found))
            and not len(limits) + len(dry)
            and (more is None or not sum(more.counts))
        ):
            return None
        budget = None if isinstance(self.limits, bool) else self.limits
        return mechanism_rows(sys, q, problem.constraints, found, limits, dry, budget, more)

    def _slots(self, sys: System) -> tuple[np.ndarray, np.ndarray]:
        """Limits and dry friction that exist: read off the numbers where they are known, else all of them."""
        tree = sys.topology.tree  # of a System with clusters; itself of others
        bounded = [bool(self.limits)] * tree.nv
        rubs = [self.dry_friction] * tree.nv
        if self.limits and not _traced(sys.lower, sys.upper):
            bounded = [
                bool(x) for x in np.isfinite(np.asarray(sys.lower)) | np.isfinite(np.asarray(sys.upper))
            ]
        if self.dry_friction and not _traced(sys.friction):
            rubs = [bool(x) for x in np.asarray(sys.friction) > 0]
        return limited(tree, tuple(bounded), tuple(rubs))


def _traced(*arrays) -> bool:
    return any(isinstance(x, jax.core.Tracer) for x in arrays)
