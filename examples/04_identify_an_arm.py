"""Identify the masses, centres of mass and inertias of a seven-joint arm from noisy motions.

The unknowns are log-Cholesky coordinates, ten per link, in which every step of gradient descent is a
physical arm. The gradient goes through the System: with_log_cholesky, inverse_dynamics, torque error.
"""

import jaxrbd as rbd

rbd.configure_cpu(devices=1)  # before JAX starts: XLA's multi-output fusion

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

from jaxrbd.inertia import pseudo_inertia  # noqa: E402

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
sys = rbd.zoo.arm7()
links = sys.link_names[1:]  # the base stands still: no joint torque tells of it
theta0 = np.asarray(jax.jit(lambda sys: rbd.log_cholesky(sys, links))(sys))

# Of the ten coordinates four are logarithms and six are lengths: measure those by the size of the link.
size = np.exp(theta0[:, 1:4]).mean(1, keepdims=True)
unit = np.concatenate([np.ones((7, 4)), np.repeat(size, 6, 1)], 1)


@jax.jit
def arm(x):
    """The arm that differs from the one in the zoo by x (7, 10), in these units."""
    return rbd.with_log_cholesky(sys, theta0 + unit * x, links)


true = arm(0.3 * rng.normal(size=(7, 10)))


def motions(count, period=5.0, harmonics=5, samples=60):
    """Sums of sinusoids, each joint near its speed limit at its fastest: q, v, a, each (count samples, 7)."""
    t = np.arange(samples)[:, None, None] * period / samples
    w = 2 * np.pi / period * np.arange(1, harmonics + 1)
    angle = w * t + rng.uniform(0, 2 * np.pi, (count, 1, 7, harmonics))
    height = rng.normal(size=(count, 1, 7, harmonics))
    fastest = np.abs((height * w * np.cos(angle)).sum(-1)).max(1)
    height *= (0.9 * np.asarray(sys.velocity_limit) / fastest)[:, None, :, None]
    q = rng.uniform(-0.8, 0.8, (count, 1, 7)) + (height * np.sin(angle)).sum(-1)
    v, a = (height * w * np.cos(angle)).sum(-1), (-height * w**2 * np.sin(angle)).sum(-1)
    return [x.reshape(-1, 7) for x in (q, v, a)]


# Measurements: forty motions of five seconds; torques with 1 % noise, encoders and their derivatives with a
# little. The motions held out are compared with the torques of the true arm, free of noise.
torques = jax.jit(jax.vmap(rbd.inverse_dynamics, (None, 0, 0, 0)))
motion, held_out = motions(40), motions(40)
tau = np.asarray(torques(true, *motion))
noise = 0.01 * np.sqrt((tau**2).mean(0))  # one standard deviation per joint
tau = tau + noise * rng.normal(size=tau.shape)
q, v, a = (x + s * rng.normal(size=x.shape) for x, s in zip(motion, (1e-4, 1e-3, 1e-2)))
tau_held_out = np.asarray(torques(true, *held_out))


def loss(x):
    """Squared torque error over that of the noise in torque: about 1 is as good as it gets."""
    return jnp.mean(((torques(arm(x), q, v, a) - tau) / noise) ** 2)


# Gradient descent by Adam, all data in every step. The gradient falls by orders of magnitude, so its memory
# for squares is short (b2); the last third of the steps gets smaller and smaller.
LINES, STEPS, RATE = 10, 120, 0.02
count = LINES * STEPS
fade = optax.cosine_decay_schedule(RATE, count // 3)
rate = optax.join_schedules([optax.constant_schedule(RATE), fade], [count - count // 3])
optimizer = optax.adam(rate, b2=0.99)


@jax.jit
def descend(x, memory):
    def step(carry, _):
        x, memory = carry
        value, slope = jax.value_and_grad(loss)(x)
        change, memory = optimizer.update(slope, memory)
        x, fit = x + change, arm(x + change)
        return (x, memory), (value, fit.mass, pseudo_inertia(fit.mass, fit.com, fit.inertia))

    return jax.lax.scan(step, (x, memory), None, length=STEPS)


x = jnp.zeros((7, 10))
memory = optimizer.init(x)
lightest, smallest = [], []
print(" from step      loss   from there on: lightest link [kg]   smallest eigenvalue of a pseudo-inertia")
for line in range(LINES):
    (x, memory), (values, masses, J) = descend(x, memory)
    lightest.append(float(masses.min()))
    smallest.append(float(np.linalg.eigvalsh(J).min()))  # of every link at every step
    print(f"{line * STEPS:10d} {float(values[0]):9.3f} {lightest[-1]:24.3f} {smallest[-1]:28.1e}")
print(f"{count - 1:10d} {float(values[-1]):9.3f}")
fit = arm(x)

# Joint torques do not depend on all of the inertial parameters. With columns in units of each link's own
# (m, m d, m d²), d = 0.1 m, and rows in units of the noise, the singular values of the stacked regressor
# are one over the standard errors of least squares: keep the directions known to 0.02 or better.
d = np.array([1.0] + 3 * [0.1] + 6 * [0.01])
column = (np.asarray(sys.mass)[1:, None] * d).ravel()
Y = jax.jit(jax.vmap(rbd.joint_torque_regressor, (None, 0, 0, 0)))(sys, q, v, a)
Y = (np.asarray(Y) / noise[:, None]).reshape(-1, column.size) * column
_, singular, directions = np.linalg.svd(Y, full_matrices=False)
seen = directions[singular > 1 / 0.02]
parameters = jax.jit(rbd.inertial_parameters)
pi_zoo, pi_true, pi_fit = (seen @ (np.asarray(parameters(s)) / column) for s in (sys, true, fit))
off_before, off = (np.linalg.norm(p - pi_true) / np.linalg.norm(pi_true) for p in (pi_zoo, pi_fit))
rank = int((singular > 1e-9 * singular[0]).sum())
print(f"{rank} of {column.size} combinations act on the torques, {len(seen)} are seen through the noise:")
print(f"  off by {100 * off_before:.1f} % before, by {100 * off:.2f} % after")


def rms(s):
    """Torque error on the held-out motions over the size of the torque, joint by joint."""
    error = np.asarray(torques(s, *held_out)) - tau_held_out
    return np.sqrt((error**2).mean(0) / (tau_held_out**2).mean(0))


before, after = rms(sys), rms(fit)
print(f"torque on held-out motions, worst joint: off by {100 * before.max():.0f} % before, ", end="")
print(f"by {100 * after.max():.2f} % after")

assert off < 0.02
assert after.max() < 0.01
assert min(lightest) > 0 and min(smallest) > 0
