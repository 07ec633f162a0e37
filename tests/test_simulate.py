"""Stepping: order of the integrators, invariants, actuators, springs, limits, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.errors import ArgumentError


def frictionless(sys):
    zero = jnp.zeros_like(sys.damping)
    return sys.replace(damping=zero, friction=zero, stiffness=zero, limit_stiffness=zero, limit_damping=zero)


@pytest.fixture(scope="module")
def spinning():
    """A tree with spherical and universal joints, no dissipation, in fast motion."""
    sys = frictionless(rbd.zoo.random_tree(4, seed=2, joint_types=("spherical", "revolute", "universal")))
    q = rbd.random_configuration(sys, jax.random.key(0))
    return sys, rbd.State(q, 2 * jnp.ones(sys.nv))


@pytest.mark.parametrize("integrator, order", [(rbd.RK4, 4), (rbd.SemiImplicitEuler, 1)])
def test_order_of_convergence_on_the_manifold(spinning, integrator, order):
    sys, start = spinning

    @jax.jit
    def end(dt, steps):
        return jax.lax.fori_loop(0, steps, lambda _, s: rbd.step(sys, s, None, integrator(dt)).value, start)

    exact = end(0.2 / 1280, 1280) if order == 4 else None
    if exact is None:
        fine = jax.jit(
            lambda: jax.lax.fori_loop(
                0, 200, lambda _, s: rbd.step(sys, s, None, rbd.RK4(0.001)).value, start
            )
        )
        exact = fine()
    error = [float(jnp.linalg.norm(rbd.difference(sys, exact.q, end(0.2 / n, n).q))) for n in (20, 40, 80)]
    slopes = np.log2(np.array(error[:-1]) / error[1:])
    np.testing.assert_allclose(slopes, order, atol=0.15)


def test_semi_implicit_euler_keeps_the_energy_of_a_pendulum_bounded():
    sys = frictionless(rbd.zoo.double_pendulum())
    start = rbd.State(jnp.array([1.0, -0.5]), jnp.zeros(2))
    path = jax.jit(lambda: rbd.rollout(sys, start, None, rbd.SemiImplicitEuler(1e-3), steps=5000).value)()
    energies = jax.jit(jax.vmap(lambda q, v: rbd.energy(sys, q, v)))(path.q, path.v)
    scale = float(jnp.abs(energies).max())
    assert float(jnp.ptp(energies)) < 2e-2 * scale
    assert abs(float(energies[-500:].mean() - energies[:500].mean())) < 5e-3 * scale  # no drift


def test_free_body_keeps_its_momentum():
    sys = rbd.zoo.quadruped()
    sys = frictionless(sys).replace(gravity=jnp.zeros(3))
    q = sys.q0
    v = jax.random.normal(jax.random.key(1), (sys.nv,))
    h0 = rbd.centroidal_momentum(sys, q, v)
    path = jax.jit(lambda: rbd.rollout(sys, rbd.State(q, v), None, rbd.RK4(1e-3), steps=100).value)()
    h1 = rbd.centroidal_momentum(sys, path.q[-1], path.v[-1])
    np.testing.assert_allclose(h1, h0, atol=1e-8 * float(jnp.linalg.norm(h0)))


def test_implicit_damping_is_stable_where_explicit_is_not():
    sys = rbd.zoo.double_pendulum()
    sys = sys.replace(damping=jnp.full(sys.nv, 1e4))
    start = rbd.State(jnp.array([1.0, -0.5]), jnp.ones(2))
    roll = jax.jit(lambda integrator: rbd.rollout(sys, start, None, integrator, steps=50).value)
    calm = roll(rbd.SemiImplicitEuler(1e-2))
    wild = roll(rbd.SemiImplicitEuler(1e-2, implicit_damping=False))
    assert float(jnp.abs(calm.v[-1]).max()) < 1.0
    assert not float(jnp.abs(wild.v[-1]).max()) < 1e3


def test_damped_pendulum_follows_the_closed_form():
    """Small angles of one link: overdamped, underdamped and spring alike are a linear oscillator."""
    b = rbd.Builder("oscillator", gravity=(0, 0, 0))
    b.body("rod", mass=2.0, com=(0.5, 0, 0), inertia=(0.1, 0.2, 0.3))
    b.joint("hinge", "revolute", parent=None, child="rod", axis=(0, 0, 1), damping=0.8, stiffness=7.0)
    sys = b.build()
    inertia, d, k = 0.3 + 2.0 * 0.25, 0.8, 7.0
    start = rbd.State(jnp.array([0.3]), jnp.array([0.0]))
    path = jax.jit(lambda: rbd.rollout(sys, start, None, rbd.RK4(1e-3), steps=2000).value)()
    w, g = np.sqrt(k / inertia - (d / (2 * inertia)) ** 2), d / (2 * inertia)
    t = 1e-3 * np.arange(1, 2001)
    np.testing.assert_allclose(
        path.q[:, 0], 0.3 * np.exp(-g * t) * (np.cos(w * t) + g / w * np.sin(w * t)), atol=1e-10
    )


def actuated():
    b = rbd.Builder("servo", gravity=(0, 0, 0))
    b.body("rod", mass=1.0, com=(0.5, 0, 0), inertia=(0.1, 0.1, 0.1))
    b.joint("hinge", "revolute", parent=None, child="rod", axis=(0, 0, 1), limits=(-1.0, 1.0), effort=5.0)
    b.actuator("hinge", kind="position", kp=20.0, kd=4.0)
    return b.build()


def test_position_actuator_settles_within_its_limits():
    sys = actuated()
    assert sys.nu == 1
    start = rbd.State.at_rest(sys)
    path = jax.jit(lambda u: rbd.rollout(sys, start, u, rbd.SemiImplicitEuler(2e-3)).value)(
        jnp.full((3000, 1), 0.7)
    )
    np.testing.assert_allclose(path.q[-1], 0.7, atol=1e-6)
    tau = rbd.actuator_force(sys, start.q, start.v, jnp.array([100.0]))
    np.testing.assert_allclose(tau, 5.0)  # clipped to the joint's effort limit


def test_joint_limit_springs_hold_and_have_finite_gradients():
    sys = actuated()
    push = jnp.full((3000, 1), 5.0)  # far beyond the limit at 1 rad, 5 N m at most
    path = jax.jit(lambda u: rbd.rollout(sys, rbd.State.at_rest(sys), u, rbd.SemiImplicitEuler(1e-3)).value)(
        push
    )
    q = float(path.q[-1, 0])
    assert 1.0 < q < 1.01
    grad = jax.grad(lambda q: rbd.passive_force(sys, q, jnp.zeros(1))[0])
    for x in (-1.5, -1.0, 0.0, 1.0, 1.5):
        assert np.isfinite(grad(jnp.array([x]))).all()


def test_rollout_gradient_against_differences():
    sys = rbd.zoo.double_pendulum()
    start = rbd.State(jnp.array([0.4, -0.2]), jnp.zeros(2))

    @jax.jit
    def cost(u):
        return jnp.sum(rbd.rollout(sys, start, u, rbd.SemiImplicitEuler(1e-2)).value.q[-1] ** 2)

    u = 0.1 * jax.random.normal(jax.random.key(0), (30, sys.nu or sys.nv))
    d = jax.random.normal(jax.random.key(1), u.shape)
    slope = jnp.vdot(jax.jit(jax.grad(cost))(u), d)
    central = (cost(u + 1e-6 * d) - cost(u - 1e-6 * d)) / 2e-6
    np.testing.assert_allclose(slope, central, rtol=1e-6)


def test_bad_arguments_are_refused_with_a_remedy():
    sys = actuated()
    start = rbd.State.at_rest(sys)
    with pytest.raises(ArgumentError, match="steps"):
        rbd.rollout(sys, start, None, rbd.RK4(1e-3))
    with pytest.raises(ArgumentError, match=r"\(T, nu\)"):
        rbd.rollout(sys, start, jnp.zeros((5, 3)), rbd.RK4(1e-3))
    with pytest.raises(ArgumentError, match="positive"):
        rbd.RK4(-1.0)
    with pytest.raises(ArgumentError, match="integrator"):
        rbd.step(sys, start, None, "euler")
    with pytest.raises(ArgumentError, match="u has shape"):
        rbd.step(sys, start, jnp.zeros(4))
