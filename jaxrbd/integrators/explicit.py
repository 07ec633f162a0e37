"""Semi-implicit Euler and Runge-Kutta 4 on the configuration manifold.

The dynamics is an argument: `acceleration(sys, q, v)`, (nv,), free or constrained.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxrbd.errors import ArgumentError
from jaxrbd.integrators.free_bodies import advance
from jaxrbd.integrators.momentum import keep_momentum
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
    With `implicit_damping` the joint dampers act on v': (M + dt D) a = ..., stable for any damping.
    With `conserve_momentum` free-floating trees, too, keep linear and angular momentum to rounding, by a
    change of the root's velocity after the step (`momentum`). It takes about as many operations as forward
    dynamics does.
    """

    dt: float
    implicit_damping: bool = static(default=True)
    conserve_momentum: bool = static(default=False)

    def __post_init__(self):
        check_dt(self.dt)

    def step(self, sys: System, q, v, acceleration):
        dt = jnp.asarray(self.dt, sys.dtype)
        # a damper d on v' = v + dt a is an armature dt d, since its force at v is counted already
        damped = sys.replace(armature=sys.armature + dt * sys.damping) if self.implicit_damping else sys
        a = acceleration(damped, q, v)
        end = advance(sys, q, v, a, dt)
        return keep_momentum(sys, (q, v), a, end, dt) if self.conserve_momentum else end


@pytree
class RK4:
    """Classical Runge-Kutta of order 4 with stages on the manifold (Crouch-Grossman style increments).

    Stages are increments dv of integrate(q, dv); derivatives of the exponential beyond what order 4
    needs are included by the commutator correction of Munthe-Kaas.
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
    if not any(t in ("spherical", "free") for t in sys.joint_types):
        return w
    b = bracket(u, w)
    return w + 0.5 * b + bracket(u, b) / 12


def joint_bracket(sys: System, x, y):
    """Lie bracket of so(3) or se(3) joint by joint; zero where coordinates simply add."""
    pieces = []
    for kind, i, j in zip(sys.joint_types, sys.topology.v_starts, sys.topology.v_starts[1:]):
        if kind == "spherical":
            pieces.append(jnp.cross(x[i:j], y[i:j]))
        elif kind == "free":
            xw, xv, yw, yv = x[i : i + 3], x[i + 3 : j], y[i : i + 3], y[i + 3 : j]
            pieces += [jnp.cross(xw, yw), jnp.cross(xw, yv) + jnp.cross(xv, yw)]
        else:
            pieces.append(jnp.zeros(j - i, x.dtype))
    return jnp.concatenate(pieces)
