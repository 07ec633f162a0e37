"""Semi-implicit Euler, with dampers and friction at the new velocity, and explicit Runge-Kutta 4.

The dynamics is an argument: `acceleration(sys, q, v)`, (nv,), free or constrained.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxrbd.errors import ArgumentError
from jaxrbd.forces import friction_secant
from jaxrbd.integrators.free_bodies import advance
from jaxrbd.integrators.momentum import keep_momentum
from jaxrbd.joints import TYPES
from jaxrbd.model.system import System, pytree, static
from jaxrbd.tree.manifold import integrate


def check_dt(dt):
    """Refuse a step that is not a positive number (values under jit pass unchecked)."""
    if isinstance(dt, (int, float)) and not 0 < dt < float("inf"):
        raise ArgumentError(f"dt is {dt}, expected a positive number of seconds.")


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

    dt: float
    implicit_damping: bool = static(default=True)
    conserve_momentum: bool = static(default=False)
    friction_iterations: int = static(default=1)

    def __post_init__(self):
        check_dt(self.dt)
        if not isinstance(self.friction_iterations, int) or self.friction_iterations < 1:
            raise ArgumentError(
                f"friction_iterations is {self.friction_iterations!r}, expected a positive integer."
            )

    def step(self, sys: System, q, v, acceleration):
        dt = jnp.asarray(self.dt, sys.dtype)
        a, later = None, v
        for _ in range(self.friction_iterations if self.implicit_damping else 1):
            a = acceleration(self._damped(sys, dt, later), q, v)
            later = v + dt * a
        end = advance(sys, q, v, a, dt)
        return keep_momentum(sys, (q, v), a, end, dt) if self.conserve_momentum else end

    def _damped(self, sys: System, dt, later):
        """The System whose acceleration at v has its dampers and dry friction at v' = v + dt a."""
        if not self.implicit_damping:
            return sys
        damping = sys.damping + friction_secant(sys, later)
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

    dt: float

    def __post_init__(self):
        check_dt(self.dt)

    def step(self, sys: System, q, v, acceleration):
        h = jnp.asarray(self.dt, sys.dtype)

        def rate(u, w):
            """Derivatives of the increment u (q = q0 ⊞ u) and of the velocity."""
            return exp_inverse(sys, u, w), acceleration(sys, integrate(sys, q, u), w)

        zero = jnp.zeros_like(v)
        k1u, k1v = rate(zero, v)
        k2u, k2v = rate(0.5 * h * k1u, v + 0.5 * h * k1v)
        k3u, k3v = rate(0.5 * h * k2u, v + 0.5 * h * k2v)
        k4u, k4v = rate(h * k3u, v + h * k3v)
        u = h / 6 * (k1u + 2 * k2u + 2 * k3u + k4u)
        return integrate(sys, q, u), v + h / 6 * (k1v + 2 * k2v + 2 * k3v + k4v)


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
    """Lie bracket of the joints' groups, joint by joint; zero where coordinates simply add."""
    pieces = []
    for kind, i, j in zip(sys.joint_types, sys.topology.v_starts, sys.topology.v_starts[1:]):
        group = TYPES[kind].group
        pieces.append(jnp.zeros(j - i, x.dtype) if group is None else group.bracket(x[i:j], y[i:j]))
    return jnp.concatenate(pieces)
