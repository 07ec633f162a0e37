"""The contract between `step` and integrators: StepProblem and State in, Solution(State, result, stats) out.

An integrator is a frozen value (a pytree, so that jit, vmap and gradients reach its numbers) with

    dt                      the length of the step [s]
    step(problem, state)    Solution(State, result, stats): the state dt later; a verdict, which is
                            `Result.converged` where nothing can fail; numbers of its own to report, or None
    accepts                 optional: names of further parts of a StepProblem that it takes into account, such
                            as ("constraints",). Parts that it does not name are refused, never ignored
    begin(problem, state)   only with a memory: the State whose `memory` is filled in from (q, v)

and nothing else: one from outside of the package works like those here. `problem` gives what acts as
functions of the state. An explicit rule asks it for accelerations (`dynamics`) at its stages; an implicit one
takes the forces (`joint_force`, `body_force`), the System and the constraints apart, and solves for
velocities, impulses or momenta at once. Everything in it that has a value is a leaf, parameters of force
functions included, so that an integrator may hand it to `jax.custom_jvp` and differentiate its equations.

Memory. What has to outlive a step beside (q, v), such as a momentum p that is carried instead of v, or
multipliers to start from, lies in `State.memory`, a pytree of the integrator's choice. It is in the State,
since that is what scans carry, checkpoints store and runs resume from, bit for bit; nobody would hand `stats`
on to the next step. For everyone else (q, v) stay the truth: `begin` is called where a State has no memory
yet, and by `linearize` where it has moved (q, v). There p is made anew, multipliers may stay what they were.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from jaxrbd.constraints import Projection, constrained_dynamics
from jaxrbd.constraints.data import Constraints
from jaxrbd.constraints.dynamics import ConstrainedMotion
from jaxrbd.forces import applied_force, force_at, passive_force
from jaxrbd.model.system import System, pytree
from jaxrbd.solution import Result, Solution
from jaxrbd.tree.aba import forward_dynamics
from jaxrbd.tree.manifold import neutral
from jaxrbd.typing import Array, ArrayLike


@pytree
class State:
    """Configuration q (nq,), velocity v (nv,), and the memory of an integrator that has one, else None."""

    q: jax.Array
    v: jax.Array
    memory: Any = None

    @staticmethod
    def at_rest(sys: System, q: ArrayLike | None = None) -> State:
        """Zero velocity, at q or at the neutral configuration."""
        q = neutral(sys) if q is None else jnp.asarray(q, sys.dtype)
        return State(q, jnp.zeros(sys.nv, sys.dtype))


@pytree
class StepProblem:
    """What acts during one step; made by `step`, `rollout` and `linearize`, read by integrators.

    `tau` and `f_ext` are None, arrays, or functions as in `step`. `constraints` is None for a free mechanism;
    `solver` and `projection` belong to them. `t`: the time at the start of the step. `contacts`: None,
    `Contacts`, or a function (sys, q) of them.
    """

    sys: System
    u: jax.Array | None
    tau: Any
    f_ext: Any
    constraints: Constraints | None
    solver: Any
    projection: Projection | None
    t: jax.Array
    contacts: Any = None

    def replace(self, **parts: Any) -> StepProblem:
        """A copy with some parts exchanged."""
        return replace(self, **parts)

    def joint_force(self, q: ArrayLike, v: ArrayLike, t: ArrayLike | None = None) -> Array:
        """What acts at the joints, (nv,): actuators under u, tau, and the model's passive forces."""
        tau = force_at("tau", self.tau, self.sys, q, v, self.t if t is None else t)
        return applied_force(self.sys, q, v, self.u, tau) + passive_force(self.sys, q, v)

    def body_force(self, q: ArrayLike, v: ArrayLike, t: ArrayLike | None = None) -> Array | None:
        """What acts on the bodies, (nb, 6) or None: f_ext at a state."""
        return force_at("f_ext", self.f_ext, self.sys, q, v, self.t if t is None else t)

    def dynamics(self, q: ArrayLike, v: ArrayLike, t: ArrayLike | None = None) -> Solution:
        """Accelerations at a state: Solution(ConstrainedMotion(a, lam), result, stats).

        Without constraints lam and stats are None.
        """
        tau, f = self.joint_force(q, v, t), self.body_force(q, v, t)
        if self.constraints is None:
            a = forward_dynamics(self.sys, q, v, tau, f)
            return Solution(ConstrainedMotion(a, None), jnp.int32(Result.converged), None)
        return constrained_dynamics(self.sys, q, v, tau, self.constraints, self.solver, f)


class Integrator(Protocol):
    """What `step` asks of an integrator; `accepts` and `begin` are optional. The module says the rest."""

    @property
    def dt(self) -> Any: ...

    def step(self, problem: StepProblem, state: State) -> Solution: ...
