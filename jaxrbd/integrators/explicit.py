"""Semi-implicit Euler, with dampers and friction at the new velocity, and explicit Runge-Kutta 4.

Both ask the problem for accelerations, free or constrained, and leave the drift off constraints to `settle`.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.forces import friction_secant
from jaxrbd.integrators.contract import State, StepProblem
from jaxrbd.integrators.drift import settle
from jaxrbd.integrators.free_bodies import advance, carry
from jaxrbd.integrators.momentum import carry_momentum, keep_momentum
from jaxrbd.joints import TYPES
from jaxrbd.model.system import System, Topology, pytree, static
from jaxrbd.solution import Solution
from jaxrbd.tree.manifold import integrate
from jaxrbd.tree.opening import opened, tree_of
from jaxrbd.typing import ArrayLike


def read_dt(dt: ArrayLike) -> ArrayLike:
    """A positive number of seconds, else an error (values under jit pass unchecked).

    Python's and NumPy's numbers become a float: to JAX they differ in type, and it would compile anew.
    """
    if isinstance(dt, (int, float, np.number)):
        if not 0 < dt < float("inf"):
            raise ArgumentError(f"dt is {dt}, expected a positive number of seconds.")
        return float(dt)
    return dt


@pytree
class SemiImplicitEuler:
    """v' = v + dt a(q, v), then q' = q ⊞ dt v': symplectic for conservative systems, order 1.

    The linear velocity of a free joint is added up at the body's centre of mass in axes that do not turn, so
    that a free body keeps its linear momentum to rounding (`free_bodies`); trees keep theirs to order 1.
    With `implicit_damping` the joint dampers act on v': (M + dt D) a = ..., stable for any damping. So does
    dry friction f tanh(v / s), as a damper of its secant f tanh(v / s) / v. Where the speed of a joint
    changes by more than its `slip_speed` s within one step, that secant lags behind, and the derivative of
    this step can be larger than without friction (by 0.7 where `zoo.arm7()` falls and begins to slip).
    `friction_iterations` computes the acceleration so many times, each with the secant at the last v', until
    the friction is that of v' itself; five or six suffice.
    With `conserve_momentum` free-floating trees, too, keep linear and angular momentum to rounding, by a
    change of the root's velocity after the step (`momentum`). It takes 1.1 times the operations of forward
    dynamics.
    """

    accepts: ClassVar[tuple[str, ...]] = ("constraints",)

    dt: ArrayLike
    implicit_damping: bool = static(default=True)
    conserve_momentum: bool = static(default=False)
    friction_iterations: int = static(default=1)

    def __post_init__(self):
        object.__setattr__(self, "dt", read_dt(self.dt))
        if not isinstance(self.friction_iterations, int) or self.friction_iterations < 1:
            raise ArgumentError(
                f"friction_iterations is {self.friction_iterations!r}, expected a positive integer."
            )

    def step(self, problem: StepProblem, state: State) -> Solution:
        sys, q, v = problem.sys, state.q, state.v
        dt = jnp.asarray(self.dt, sys.dtype)
        stages: list[Solution] = []
        later = v
        for _ in range(self.friction_iterations if self.implicit_damping else 1):
            stages.append(problem.replace(sys=self._damped(sys, dt, q, later)).dynamics(q, v))
            later = v + dt * stages[-1].value.a
        a = stages[-1].value.a
        end = advance(sys, q, v, a, dt)
        if self.conserve_momentum:
            end = keep_momentum(sys, (q, v), a, end, dt)
        q1, v1 = end
        return settle(problem, stages, q, q1, v1, carry_momentum if self.conserve_momentum else carry)

    def _damped(self, sys: System, dt, q, later) -> System:
        """The System whose acceleration at v has its dampers and dry friction at v' = v + dt a."""
        if not self.implicit_damping:
            return sys
        damping = sys.damping + friction_secant(sys, opened(sys, q, later)[2])
        # a damper d on v' is an armature dt d, since its force at v is counted already
        armature = sys.armature + dt * damping
        return sys.replace(armature=armature, damping=damping, friction=jnp.zeros_like(sys.friction))


@pytree
class RK4:
    """Classical Runge-Kutta of order 4 with stages on the manifold (Crouch-Grossman style increments).

    Stages are increments dv of integrate(q, dv); derivatives of the exponential beyond what order 4
    needs are included by the commutator correction of Munthe-Kaas. All forces are explicit: stiff dampers
    and dry friction (of slope friction / slip_speed at rest) need a small dt.
    """

    accepts: ClassVar[tuple[str, ...]] = ("constraints",)

    dt: ArrayLike

    def __post_init__(self):
        object.__setattr__(self, "dt", read_dt(self.dt))

    def step(self, problem: StepProblem, state: State) -> Solution:
        sys, q, v, t = problem.sys, state.q, state.v, problem.t
        h = jnp.asarray(self.dt, sys.dtype)

        def stage(x, coefficients):
            """Derivatives (ku, kv) of the increment u (q ⊞ u) and of the velocity, and their sums so far."""
            (ku, kv), sums = x
            c, b = coefficients
            u, w = c * h * ku, v + c * h * kv
            found = problem.dynamics(integrate(sys, q, u), w, t + c * h)
            k = exp_inverse(sys, u, w), found.value.a
            return (k, jax.tree.map(lambda s, k: s + b * k, sums, k)), found

        # a loop, so that constrained dynamics are compiled once, not four times
        c, b = jnp.array([[0, 0.5, 0.5, 1], [1, 2, 2, 1]], sys.dtype)
        zero = (jnp.zeros_like(v), jnp.zeros_like(v))
        (_, (u, dv)), found = jax.lax.scan(stage, (zero, zero), (c, b))
        stages = [jax.tree.map(lambda x, k=k: x[k], found) for k in range(4)]
        new_q, new_v = integrate(sys, q, h / 6 * u), v + h / 6 * dv
        return settle(problem, stages, q, new_q, new_v, carry)


def exp_inverse(sys: System, u, w):
    """u̇ such that q0 ⊞ u(t) moves with joint velocity w: w + ½[u, w] + 1/12 [u, [u, w]] per Lie-group joint.

    The truncated series is exact to the order that RK4 needs (Munthe-Kaas, 1999); body-frame velocities
    give the plus sign. For scalar joints the bracket vanishes.
    """
    bracket = lambda x, y: joint_bracket(sys, x, y)  # noqa: E731
    if not any(TYPES[t].on_manifold for t in sys.joint_types):
        return w
    b = bracket(u, w)
    return w + 0.5 * b + bracket(u, b) / 12


def joint_bracket(sys: System, x, y):
    """Lie bracket of the joints' groups, joint by joint; zero where coordinates simply add, and in
    clusters.
    """
    t = sys.topology
    if t.clusters:
        free = [d for d in t.independent if not any(_dofs_of(t, c, d) for c in t.clusters)]
        at, where = np.searchsorted(t.independent, free), np.array(free, int)
        whole = lambda z: jnp.zeros(t.v_starts[-1], z.dtype).at[where].set(z[at])  # noqa: E731
        found = joint_bracket(tree_of(sys), whole(x), whole(y))
        return jnp.zeros_like(x).at[at].set(found[where])
    pieces = []
    for kind, i, j in zip(sys.joint_types, sys.topology.v_starts, sys.topology.v_starts[1:]):
        if (group := TYPES[kind].group) is None:
            pieces.append(jnp.zeros(j - i, x.dtype))
        else:
            u, w = (tuple(z[i:j][part] for part in group.parts_v) for z in (x, y))
            pieces += group.bracket(u, w)
    return jnp.concatenate(pieces)


def _dofs_of(t: Topology, bodies, dof: int) -> bool:
    return any(t.v_starts[b] <= dof < t.v_starts[b + 1] for b in bodies)
