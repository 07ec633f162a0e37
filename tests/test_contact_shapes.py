"""Steps among shapes: rest, rolling, what has no slot, gradients, mistakes."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd

G = 9.81


def build(shape, mass, gravity=(0, 0, -G), height=0.1):
    b = rbd.Builder("thing", gravity=gravity)
    b.ground()
    b.body("thing", mass, shapes=[shape])
    b.joint("root", "free", None, "thing", xyz=(0, 0, height))
    return b.build(dtype="float64")


def test_a_box_comes_to_rest_on_four_corners():
    """Dropped from 5 mm, tilted: the contacts carry its weight, and it neither sinks nor slides."""
    sys = build(rbd.Builder.box(0.3, 0.2, 0.1), 2.0)
    around = rbd.contact.between_shapes(sys, slots=4, friction=0.6)
    hard = rbd.HardContact(dt=2e-3, solver=rbd.dual.NBGS(iterations=30))
    run = jax.jit(lambda s: rbd.rollout(sys, s, steps=400, integrator=hard, contacts=around))
    q0 = rbd.integrate(sys, sys.q0, jnp.array([0.03, 0.02, 0, 0, 0, -0.04]))
    path = run(rbd.State.at_rest(sys, q0))
    normal = path.stats.lam.reshape(401 - 1, 4, 3)[-1, :, 2]
    assert (normal > 0).all() and abs(normal.sum() / 2e-3 - 2 * G) < 1e-6
    np.testing.assert_allclose(path.value.q[-1, 2], 0.05, atol=1e-4)
    assert np.abs(path.value.v[-1]).max() < 1e-6 and np.abs(path.stats.gap[-1]).max() < 1e-4
    few = jax.jit(
        lambda s: rbd.step(sys, s, integrator=hard, contacts=replace(around, slots=3)).stats.dropped
    )
    end = rbd.State(path.value.q[-1], path.value.v[-1])
    assert (path.stats.dropped == 0).all() and few(end) == 1


def test_a_ball_rolls_without_slip():
    """Down a slope of 0.2 rad: 5/7 g sin(slope), turning at v / r; sliding, the derivative by friction."""
    slope, r, steps, dt = 0.2, 0.1, 100, 1e-3
    gravity = (G * np.sin(slope), 0, -G * np.cos(slope))
    sys = build(rbd.Builder.sphere(r), 1.5, gravity)
    around = rbd.contact.between_shapes(sys, slots=1, friction=0.5)
    hard = rbd.HardContact(dt=dt, solver=rbd.dual.NBGS(iterations=20))

    def end(friction, push):
        near = replace(around, friction=around.friction.at[:, 0].set(friction))
        start = rbd.State(sys.q0, jnp.zeros(6).at[3].set(push))
        path = rbd.rollout(sys, start, steps=steps, integrator=hard, contacts=near, keep="last")
        v = path.value.v[0]
        return jnp.stack([jnp.sqrt(jnp.sum(v[3:] ** 2)), v[1]])

    @jax.jit
    @jax.vmap
    def run(friction, push):
        return jax.jvp(lambda mu: end(mu, push), (friction,), (jnp.ones(()),))

    # the second is too fast and too smooth to be held, and friction is felt
    (speed, turn), (rate, _) = (x.T for x in run(jnp.array([0.5, 0.05]), jnp.array([0.0, 3.0])))
    pull, press, time = np.sin(slope) * G, np.cos(slope) * G, steps * dt
    np.testing.assert_allclose(speed, [5 / 7 * pull * time, 3 + (pull - 0.05 * press) * time], rtol=1e-6)
    np.testing.assert_allclose(turn[0] * r, speed[0], rtol=1e-6)
    np.testing.assert_allclose(rate, [0, -press * time], rtol=1e-6, atol=1e-9)


def test_mistakes():
    sys = build(rbd.Builder.sphere(0.1), 1.0)
    with pytest.raises(rbd.ArgumentError, match="slots is 0"):
        rbd.contact.between_shapes(sys, slots=0)
    with pytest.raises(rbd.ArgumentError, match="dim is 2"):
        rbd.contact.between_shapes(sys, dim=2)
    with pytest.raises(rbd.ArgumentError, match=r"restitution has shape \(3,\)"):
        rbd.contact.between_shapes(sys, restitution=[0.1, 0.2, 0.3])
    with pytest.raises(rbd.ArgumentError, match="expected numbers in"):
        rbd.contact.between_shapes(sys, friction=-1.0)(sys, sys.q0)
    with pytest.raises(rbd.ArgumentError, match="no shapes of 'double_pendulum' may touch"):
        rbd.contact.between_shapes(rbd.zoo.double_pendulum())
    with pytest.raises(rbd.ArgumentError, match="the table is a str"):
        rbd.contact.between_shapes(sys, "all")
