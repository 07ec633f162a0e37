"""Swing a pole up by pushing its cart: Adam on the whole sequence of forces, through the simulation.

`jax.grad` goes backwards through every step of `rbd.rollout`; with checkpoint="sqrt" it keeps √T states
instead of T and computes the others again.
"""

import jaxrbd as rbd

rbd.configure_cpu(devices=1)  # before JAX starts: XLA's multi-output fusion

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

sys = rbd.zoo.cart_pole()
start = rbd.State.at_rest(sys, sys.keyframe("hanging")[0])  # the hinge's angle is pi; upright is 0
STEPS, DT, STRONGEST = 144, 0.02, 10.0  # 2.9 seconds in 12 segments of 12 steps, at most 10 N
cart_only = jnp.array([1.0, 0.0])  # joint forces are (slider, hinge): nobody turns the hinge


def forces(w):
    """Joint forces (T, 2) from free numbers (T,): bounded smoothly, on the cart alone."""
    return STRONGEST * jnp.tanh(w)[:, None] * cart_only


def simulate(w):
    path = rbd.rollout(sys, start, tau=forces(w), integrator=rbd.SemiImplicitEuler(dt=DT), checkpoint="sqrt")
    return path.value


def cost(w):
    """Upright, at rest and in the middle of the rail at the end, without pushing more than it takes."""
    path = simulate(w)
    (x, angle), speed = path.q[-1], path.v[-1]
    end = 10 * (1 - jnp.cos(angle)) + jnp.sum(speed**2) + x**2
    return end + 0.1 * jnp.mean(path.q[:, 0] ** 2) + 0.1 * jnp.mean(jnp.tanh(w) ** 2)


# Adam, 50 steps per line. It starts with pushes to and fro at about the rhythm of the pole.
LINES, ROUND = 12, 50
optimizer = optax.adam(optax.cosine_decay_schedule(0.05, LINES * ROUND))


@jax.jit
def improve(w, memory):
    def step(carry, _):
        w, memory = carry
        value, slope = jax.value_and_grad(cost)(w)
        change, memory = optimizer.update(slope, memory)
        return (w + change, memory), value

    return jax.lax.scan(step, (w, memory), None, length=ROUND)


w = jnp.asarray(0.1 * np.sin(4.0 * DT * np.arange(STEPS)), sys.dtype)
memory = optimizer.init(w)
costs = []
for line in range(LINES):
    (w, memory), values = improve(w, memory)
    costs += values.tolist()
    print(f"step {line * ROUND:5d}   cost {costs[line * ROUND]:8.4f}")

path = jax.jit(simulate)(w)
push = np.asarray(forces(w))
cart, hinge = np.asarray(path.q).T
angle_error = abs((hinge[-1] + np.pi) % (2 * np.pi) - np.pi)
speed_error = np.abs(np.asarray(path.v[-1])).max()
print(f"step {len(costs) - 1:5d}   cost {costs[-1]:8.4f}, lower by {100 * (1 - costs[-1] / costs[0]):.1f} %")
print(f"the pole ends {angle_error:.4f} rad from upright; fastest joint {speed_error:.4f} m/s or rad/s")
print(f"the cart stayed in {cart.min():.2f} … {cart.max():.2f} m, driven by up to {np.abs(push).max():.1f} N")

assert angle_error < 0.1
assert speed_error < 0.2
assert costs[-1] < 0.05 * costs[0]
assert np.abs(push[:, 0]).max() <= STRONGEST and (push[:, 1] == 0).all()
