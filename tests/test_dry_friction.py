"""Dry friction in time steps: implicit by its secant, so that joints that stick keep their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.errors import ArgumentError
from jaxrbd.forces import friction_secant

DT = 5e-3
SLIP = 0.01


@pytest.fixture(scope="module")
def arm():
    return rbd.zoo.arm7()


def test_secant_times_velocity_is_the_friction(arm):
    arm = arm.replace(friction=jnp.linspace(0.1, 0.7, 7), slip_speed=jnp.linspace(0.01, 0.1, 7))
    secant = jax.jit(lambda v: friction_secant(arm, v))
    slope = jax.jit(jax.jacfwd(lambda v: friction_secant(arm, v) * v))
    for speed in (0.0, 1e-12, 1e-5, 9.99e-6, 1.001e-5, 0.01, 0.5, -0.003, -20.0):
        v = jnp.full(7, speed)
        expected = arm.friction * jnp.tanh(v / arm.slip_speed)
        np.testing.assert_allclose(secant(v) * v, expected, rtol=1e-14)
        derivative = arm.friction / arm.slip_speed / jnp.cosh(v / arm.slip_speed) ** 2
        np.testing.assert_allclose(jnp.diag(slope(v)), derivative, rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def radius():
    """Spectral radius of a step at the state and torques given."""

    @jax.jit
    @jax.vmap
    def matrix(sys, q, v, u):
        return rbd.linearize(sys, rbd.State(q, v), u, rbd.SemiImplicitEuler(DT))[0]

    return lambda *args: np.abs(np.linalg.eigvals(np.asarray(matrix(*args)))).max(1)


@pytest.mark.parametrize("speed", [0.0, SLIP / 2, SLIP, 3 * SLIP, 1.0])
def test_friction_adds_nothing_to_the_spectral_radius(arm, radius, speed):
    """Against the same motion without friction; explicit friction had a radius of 2.1."""
    rng = np.random.default_rng(0)
    count = 20
    q = rng.uniform(-1.5, 1.5, (count, 7))
    v = speed * rng.choice([-1.0, 1.0], (count, 7))
    moving = lambda q, v: rbd.inverse_dynamics(arm, q, v, jnp.zeros(7)) + arm.damping * v  # noqa: E731
    without = jax.jit(jax.vmap(moving))(q, v)  # torques that keep the velocity
    friction = arm.friction * np.tanh(v / SLIP)
    many = lambda sys: jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), sys)  # noqa: E731
    rough = radius(many(arm), q, v, without + friction)
    smooth = radius(many(arm.replace(friction=jnp.zeros(7))), q, v, without)
    assert (rough - smooth).max() < 1e-6


def final(sys, q, controls, integrator):
    path = rbd.rollout(sys, rbd.State(q, jnp.zeros(7)), controls, integrator, keep="last").value
    return jnp.sum(path.v[-1] ** 2) + jnp.sum(jnp.sin(path.q[-1]))


def test_gradients_over_a_hundred_steps_from_rest(arm):
    """They were 1e28: now right against differences, from a velocity of exactly zero."""
    q = arm.q0
    hold = rbd.gravity_force(arm, q)
    controls = 0.95 * hold + jnp.zeros((100, 1))
    integrator = rbd.SemiImplicitEuler(DT)
    cost = jax.jit(lambda u: final(arm, q, u, integrator))
    slope = jax.jit(jax.grad(cost))(controls)
    assert jnp.abs(slope).max() < 10
    d = jnp.cos(jnp.arange(700.0)).reshape(100, 7)
    central = (cost(controls + 1e-5 * d) - cost(controls - 1e-5 * d)) / 2e-5
    np.testing.assert_allclose(jnp.vdot(slope, d), central, rtol=1e-6)


def slider(friction=2.0, **options):
    b = rbd.Builder("slider", gravity=(0, 0, 0))
    b.body("block", 1.5, inertia=(0.1, 0.1, 0.1))
    b.joint("rail", "prismatic", None, "block", axis=(1, 0, 0), friction=friction)
    return b.build()


@pytest.mark.parametrize("iterations", [1, 6])
def test_a_block_sticks_below_the_friction_and_slides_above(iterations):
    sys = slider().with_joint("rail", slip_speed=1e-3)
    integrator = rbd.SemiImplicitEuler(1e-2, friction_iterations=iterations)
    start = rbd.State.at_rest(sys)
    roll = jax.jit(lambda u: rbd.rollout(sys, start, u + jnp.zeros((200, 1)), integrator).value)
    np.testing.assert_allclose(roll(1.0).v[-1], 1e-3 * np.arctanh(0.5), rtol=1e-6)  # creeps
    free = roll(5.0).v[:, 0]
    np.testing.assert_allclose(np.diff(free)[20:], 1e-2 * (5.0 - 2.0) / 1.5, rtol=0.06)


def test_iterations_are_implicit_friction():
    """v' + dt f tanh(v' / s) / m = v + dt u / m, also where the block breaks away."""
    sys = slider()
    integrator = rbd.SemiImplicitEuler(1e-2, friction_iterations=30)
    after = jax.jit(lambda v, u: rbd.step(sys, rbd.State(jnp.zeros(1), v), u, integrator).value.v)
    for v, u in ((0.005, 4.0), (0.02, -3.0), (0.0, 1.0), (-0.3, 0.5)):
        w = float(after(jnp.array([v]), jnp.array([u]))[0])
        np.testing.assert_allclose(w + 1e-2 * 2.0 * np.tanh(w / SLIP) / 1.5, v + 1e-2 * u / 1.5, atol=1e-6)


def test_bad_iterations_are_refused():
    with pytest.raises(ArgumentError, match="friction_iterations"):
        rbd.SemiImplicitEuler(1e-3, friction_iterations=0)
