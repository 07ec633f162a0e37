"""One step, one rollout, one linearisation: for free and constrained motion, and for every integrator.

    state, controls, forces, constraints  ──▶  integrator  ──▶  Solution(State, result, stats)

`integrators/contract.py` says what stands between these functions and an integrator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrbd.constraints import Projection
from jaxrbd.constraints.data import ConstraintsLike
from jaxrbd.constraints.solver import Solver
from jaxrbd.contact.pooled import ContactsLike
from jaxrbd.controllers import read_controller
from jaxrbd.errors import ArgumentError
from jaxrbd.forces import ForceLike, force_at
from jaxrbd.integrators.arguments import check_integrator, pose, read_state
from jaxrbd.integrators.contract import Integrator, State, StepProblem
from jaxrbd.integrators.drift import FROM_DRIFT, warn_if_off
from jaxrbd.model.system import System, pytree
from jaxrbd.solution import Result, Solution, brief, worst
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.manifold import difference, integrate
from jaxrbd.typing import Array, ArrayLike


def step(
    sys: System,
    state: State,
    u: ArrayLike | None = None,
    integrator: Integrator | None = None,
    *,
    tau: ForceLike | None = None,
    f_ext: ForceLike | None = None,
    constraints: ConstraintsLike | None = None,
    contacts: ContactsLike | None = None,
    solver: Solver | None = None,
    projection: Projection | None = FROM_DRIFT,
    t: ArrayLike = 0.0,
) -> Solution:
    """One time step: Solution(State, result, stats).

    `u`: controls of the actuators (nu,), clipped to their ranges. `tau`: joint forces (nv,), added as they
    are. A model without actuators takes u (nv,) as joint forces, too. Springs, damping, dry friction and
    limits of the model act as well (`passive_force`). `f_ext`: forces on bodies (nb, 6).
    `tau` and `f_ext` may be functions (sys, q, v), or (sys, q, v, t) with a parameter of that name: the time
    [s], which is `t` at the start of the step. Integrators evaluate them where they need them, at every
    stage. Their parameters are the leaves of a callable pytree, as of `ground_springs`, or the arguments of
    `jax.tree_util.Partial(f, parameters)` with f(parameters, sys, q, v).

    `integrator` has the length of the step; by default it is SemiImplicitEuler(dt=1e-3), a millisecond.

    `constraints`: what `rbd.constraints` makes, or a list of it. `solver` is that of `constrained_dynamics`.
    `projection` puts q and v back onto the constraints after the step. It uses the same `solver` unless it
    has its own (the default instead of `Soft`), and it stops the rows, so constraints that follow a `target`
    need None, which leaves the drift to Baumgarte gains.

    `contacts`: a function (sys, q) -> Contacts such as `contact.on_plane(...)`, or `Contacts` that stay where
    they are; for `HardContact`, whose impulses keep the constraints, too, without `solver` and `projection`.

    `result` (int32) is `converged` for a free step of an explicit integrator. Constrained, it is the worst of
    every stage's and the projection's, and `not_converged` where projection moved a coordinate by more than
    1e-3 rad or m and by more than the step did: the state was off its constraints; `project` it first, or
    make them with q=. Implicit integrators give their own verdict. Whatever they say, a new state that is not
    finite is `not_converged`. `stats` are the integrator's: ours give `StepStats` under constraints, or None.
    """
    integrator = check_integrator(integrator)
    problem = pose(sys, integrator, u, tau, f_ext, constraints, contacts, solver, projection, t)
    state = read_state(sys, state)
    warn_if_off(problem, state.q)
    return advance(problem, integrator, begin(problem, integrator, state))


@pytree
class Path(Solution):
    """The Solutions of a rollout's steps, stacked; `carry`, the controller's memory after the last one."""

    carry: Any = None

    __repr__ = Solution.__repr__


def rollout(
    sys: System,
    state: State,
    controls: ArrayLike | Callable[..., Any] | None = None,
    integrator: Integrator | None = None,
    *,
    tau: ForceLike | None = None,
    f_ext: ForceLike | None = None,
    constraints: ConstraintsLike | None = None,
    contacts: ContactsLike | None = None,
    solver: Solver | None = None,
    projection: Projection | None = FROM_DRIFT,
    t: ArrayLike = 0.0,
    carry: Any = None,
    steps: int | None = None,
    checkpoint: int | str | None = None,
    keep: str = "all",
) -> Path:
    """The Solution of every step, stacked: leaves (T, ...). The initial State is not repeated in `value`.

    `controls`: (T, nu); or None, or a function (q, v, t) -> u, together with `steps`. A controller with
    memory is a function (carry, q, v, t) -> (carry, u), and `carry`, any pytree, its memory at the start;
    what it ends with is `carry` of the returned Path, for a rollout that goes on. Controls are held during a
    step. `tau`: (T, nv), or a function as in `step`. Step k = 0, 1, … starts at time t + k dt. All other
    arguments as of `step`.
    `integrator`: SemiImplicitEuler(dt=1e-3) unless given, so that T steps are T milliseconds.
    `checkpoint` matters for reverse mode only: a number of steps per segment, or "sqrt" for √T. Within a
    segment everything is computed again from the state at its start, so what is kept for the backward
    pass grows with T / segment + segment instead of T. The numbers stay the same.
    With keep="last" the path is the last step alone, leaves (1, ...): a cost of the final state then needs
    no memory for T states, which "sqrt" would otherwise be dominated by. Its `result` is the worst of all
    steps.
    Call it under `jax.jit`: outside, every call compiles its loop anew.
    """
    integrator = check_integrator(integrator)
    if keep not in ("all", "last"):
        raise ArgumentError(f'keep is {keep!r}, expected "all" or "last".')
    controller, rows, steps = read_controller(sys, controls, tau, carry, steps)
    law = tau if rows.tau is None else None
    problem = pose(sys, integrator, None, law, f_ext, constraints, contacts, solver, projection, t)
    state = read_state(sys, state)
    warn_if_off(problem, state.q)
    dt = jnp.asarray(integrator.dt, sys.dtype)

    def posed(s: State, carry, x):
        k, row = x
        now = problem.t + dt * k
        carry, u = controller(carry, s, row.u, now)
        return carry, problem.replace(u=u, tau=problem.tau if row.tau is None else row.tau, t=now)

    def once(held, x):
        s, carry = held
        carry, during = posed(s, carry, x)
        after = advance(during, integrator, s)
        return (after.value, carry), after

    xs = (jnp.arange(steps), rows)
    first = problem
    if steps and hasattr(integrator, "begin"):
        first = posed(state, controller.carry, jax.tree.map(lambda x: x[0], xs))[1]
    start = (begin(first, integrator, state), controller.carry)
    scan = _scan if keep == "all" else _scan_for_the_last
    (_, carry), path = scan(once, start, xs, _segment(checkpoint, steps))
    return Path(path.value, path.result, path.stats, carry)


def linearize(
    sys: System,
    state: State,
    u: ArrayLike | None = None,
    integrator: Integrator | None = None,
    *,
    tau: ForceLike | None = None,
    f_ext: ForceLike | None = None,
    constraints: ConstraintsLike | None = None,
    contacts: ContactsLike | None = None,
    solver: Solver | None = None,
    projection: Projection | None = FROM_DRIFT,
    t: ArrayLike = 0.0,
) -> tuple[Array, Array]:
    """(A, B) with  dx' = A dx + B du  for one step of any integrator; x = (q, v) in the tangent space.

    A is (2 nv, 2 nv). B is (2 nv, nu) by the controls where `u` is given, else (2 nv, nv) by joint forces. A
    change dq means integrate(q, dq), and the new state's change is measured by `difference`. vmap it for
    batches. Arguments as of `step`, whose `result` at the same state says whether to trust it. Under
    constraints the change of a state is whatever dx is, on them or not, and A maps it to where the step goes.
    """
    integrator = check_integrator(integrator)
    problem = pose(sys, integrator, u, tau, f_ext, constraints, contacts, solver, projection, t)
    state = read_state(sys, state)
    warn_if_off(problem, state.q)

    def end(s: State, du) -> State:
        return advance(_driven(problem, du), integrator, begin(problem, integrator, s, anew=True)).value

    du = jnp.zeros(sys.nv, sys.dtype) if problem.u is None else jnp.zeros_like(problem.u)
    after = end(state, du)

    def flow(dx, du):
        moved = State(integrate(sys, state.q, dx[: sys.nv]), state.v + dx[sys.nv :], state.memory)
        new = end(moved, du)
        return jnp.concatenate([difference(sys, after.q, new.q), new.v - after.v])

    return jax.jacfwd(flow, (0, 1))(jnp.zeros(2 * sys.nv, sys.dtype), du)


def _driven(problem: StepProblem, du) -> StepProblem:
    """The problem with du more of the controls, or of joint forces where there are no controls."""
    if problem.u is not None:
        return problem.replace(u=problem.u + du)
    if not callable(problem.tau):
        return problem.replace(tau=du if problem.tau is None else problem.tau + du)
    return problem.replace(tau=jax.tree_util.Partial(_sum, problem.tau, du))


def _sum(force, more, sys: System, q, v, t):
    return force_at("tau", force, sys, q, v, t) + more


def begin(problem: StepProblem, integrator, state: State, anew: bool = False) -> State:
    """The State with the memory of this integrator: made from (q, v) where there is none, or `anew`."""
    if not hasattr(integrator, "begin"):
        return State(state.q, state.v)
    return integrator.begin(problem, state) if anew or state.memory is None else state


def advance(problem: StepProblem, integrator, state: State) -> Solution:
    """The integrator's step, what it gave checked, and never called converged where it is not finite."""
    after = integrator.step(problem, state)
    name = type(integrator).__name__
    if not (isinstance(after, Solution) and isinstance(after.value, State)):
        raise ArgumentError(
            f"{name}.step(problem, state) gave {brief(after)}, expected Solution(State(q, v), result, stats)."
        )
    if jax.tree.structure(after.value.memory) != jax.tree.structure(state.memory):
        raise ArgumentError(
            f"{name}.step got memory {brief(state.memory)} and gave {brief(after.value.memory)}: expected "
            "the same kind. An integrator with memory has begin(problem, state) -> State with its first one."
        )
    q, v = arguments(problem.sys, q=after.value.q, v=after.value.v)
    finite = jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(v))
    result = jnp.where(finite, after.result, Result.not_converged).astype(jnp.int32)
    return Solution(State(q, v, after.value.memory), result, after.stats)


def _segment(checkpoint, steps: int) -> int | None:
    if checkpoint is None:
        return None
    if checkpoint == "sqrt":
        return max(1, round(steps**0.5))
    if isinstance(checkpoint, int) and not isinstance(checkpoint, bool) and checkpoint > 0:
        return checkpoint
    raise ArgumentError(
        f'checkpoint is {checkpoint!r}, expected None, "sqrt", or a positive number of steps per segment.'
    )


def _scan_for_the_last(once, start, xs, segment: int | None):
    """`_scan` of Solutions that keeps the last one alone, leaves (1, ...), and the worst result of all."""
    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), xs)
    shape = jax.eval_shape(once, start, first)[1].stats
    stats = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shape)

    def unkept(held, x):
        state, after = once(held[0], x)
        return (state, worst(held[1], after.result), after.stats), None

    (held, result, stats), _ = _scan(unkept, (start, jnp.int32(Result.converged), stats), xs, segment)
    return held, jax.tree.map(lambda x: x[None], Solution(held[0], result, stats))


def _scan(once, start, xs, segment: int | None):
    """lax.scan whose reverse mode keeps one carry per segment; the last segment may be shorter."""
    if segment is None:
        return jax.lax.scan(once, start, xs)
    steps = len(xs[0])
    whole = steps // segment * segment
    run = jax.checkpoint(lambda carry, x: jax.lax.scan(once, carry, x), prevent_cse=False)
    carry, parts = start, []
    if whole:
        folded = jax.tree.map(lambda x: x[:whole].reshape((-1, segment) + x.shape[1:]), xs)
        carry, ys = jax.lax.scan(run, carry, folded)
        parts.append(jax.tree.map(lambda y: y.reshape((whole,) + y.shape[2:]), ys))
    if whole < steps or not parts:
        carry, ys = run(carry, jax.tree.map(lambda x: x[whole:], xs))
        parts.append(ys)
    return carry, jax.tree.map(lambda *y: jnp.concatenate(y), *parts)
