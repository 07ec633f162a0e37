"""Configuration space: integrate, difference, neutral, random_configuration, tangent_gradient.

The laws are those of a Lie group acting on itself from the right; closed forms come from SciPy's expm.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import robots
from scipy.linalg import expm

import jaxrbd as rbd

TYPES = (
    "revolute",
    "continuous",
    "prismatic",
    "screw",
    "cylindrical",
    "universal",
    "planar",
    "spherical",
    "free",
)


@pytest.fixture(scope="module")
def sys():
    """One joint of each type, in a chain."""
    builder = rbd.Builder("all types")
    for i, kind in enumerate(TYPES):
        builder.body(f"body{i}", mass=1.0, com=(0.1, 0.2, 0.3), inertia=(0.1, 0.2, 0.25))
        parent = f"body{i - 1}" if i else None
        builder.joint(kind, kind, parent, f"body{i}", xyz=(0.1, 0, 0.2), rpy=(0.3, 0.2, 0.1), pitch=0.1)
    return builder.build()


@pytest.fixture(scope="module")
def q(sys):
    return jnp.asarray(robots.random_q(sys, np.random.default_rng(0)))


def velocity(sys, seed, size=1.0):
    return size * jnp.asarray(np.random.default_rng(seed).standard_normal(sys.nv))


def same_configuration(sys, q0, q1, atol=1e-12):
    """Equal as poses: a quaternion and its negative are the same rotation."""
    q0, q1 = np.array(q0), np.array(q1)
    for name, kind in zip(sys.joint_names, sys.joint_types, strict=True):
        if kind in ("spherical", "free"):
            quat = slice(sys.q_index(name).stop - 4, sys.q_index(name).stop)
            q1[quat] *= np.sign(q0[quat] @ q1[quat])
    np.testing.assert_allclose(q0, q1, atol=atol)


def hat(w):
    return np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])


def rotation(quat):
    w, x, y, z = quat
    return expm(
        2 * np.arctan2(np.linalg.norm(quat[1:]), w) * hat(np.array([x, y, z]) / np.linalg.norm([x, y, z]))
    )


def test_neutral_is_the_identity(sys):
    q = np.asarray(rbd.neutral(sys))
    for name, kind in zip(sys.joint_names, sys.joint_types, strict=True):
        expected = np.zeros(len(q[sys.q_index(name)]))
        if kind in ("spherical", "free"):
            expected[-4] = 1.0
        np.testing.assert_array_equal(q[sys.q_index(name)], expected)


def test_laws(sys, q):
    """q + 0 = q; q1 - q1 = 0; q + (q1 - q) = q1; (q + dv) - q = dv; (q + s v) + t v = q + (s + t) v."""
    q1 = jnp.asarray(robots.random_q(sys, np.random.default_rng(1)))
    v = velocity(sys, 2, 0.8)
    same_configuration(sys, rbd.integrate(sys, q, 0 * v), q, atol=1e-15)
    np.testing.assert_allclose(rbd.difference(sys, q, q), 0, atol=1e-14)
    same_configuration(sys, rbd.integrate(sys, q, rbd.difference(sys, q, q1)), q1)
    np.testing.assert_allclose(rbd.difference(sys, q, rbd.integrate(sys, q, v)), v, atol=1e-12)
    np.testing.assert_allclose(rbd.difference(sys, rbd.integrate(sys, q, v), q), -v, atol=1e-12)
    two_steps = rbd.integrate(sys, rbd.integrate(sys, q, 0.3 * v), 0.5 * v)
    same_configuration(sys, two_steps, rbd.integrate(sys, q, 0.8 * v))


def test_quaternions_stay_unit_and_their_sign_does_not_matter(sys, q):
    far = rbd.integrate(sys, q, velocity(sys, 3, 20.0))
    flipped = np.array(q)
    for name in ("spherical", "free"):
        quat = slice(sys.q_index(name).stop - 4, sys.q_index(name).stop)
        assert np.linalg.norm(far[quat]) == pytest.approx(1.0, abs=1e-13)
        flipped[quat] *= -1
    np.testing.assert_allclose(rbd.difference(sys, q, jnp.asarray(flipped)), 0, atol=1e-13)
    v, a = velocity(sys, 4), velocity(sys, 5)
    tau, tau_flipped = (rbd.inverse_dynamics(sys, jnp.asarray(x), v, a) for x in (q, flipped))
    np.testing.assert_allclose(tau, tau_flipped, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-4, 1.0, 3.0])
def test_exponential_in_closed_form(sys, q, size):
    """Free: X exp(hat(dv)) as 4x4 matrices; spherical: R exp(hat(w)); the rest is q + dv."""
    dv = np.asarray(velocity(sys, 6))
    dv = size * dv / np.abs(dv).max()
    out = np.asarray(rbd.integrate(sys, q, jnp.asarray(dv)))
    for name, kind in zip(sys.joint_names, sys.joint_types, strict=True):
        x, w, y = np.asarray(q)[sys.q_index(name)], dv[sys.v_index(name)], out[sys.q_index(name)]
        if kind == "spherical":
            np.testing.assert_allclose(rotation(y), rotation(x) @ expm(hat(w)), atol=1e-13)
        elif kind == "free":
            twist = np.block([[hat(w[:3]), w[3:, None]], [np.zeros((1, 4))]])
            X = np.block([[rotation(x[3:]), x[:3, None]], [np.zeros((1, 3)), np.ones((1, 1))]]) @ expm(twist)
            np.testing.assert_allclose(rotation(y[3:]), X[:3, :3], atol=1e-13)
            np.testing.assert_allclose(y[:3], X[:3, 3], atol=1e-13)
        else:
            np.testing.assert_allclose(y, x + w, atol=1e-13)


def test_random_configuration(sys):
    """Different keys differ, equal keys agree, quaternions are unit, limits are respected where finite."""
    limited = sys.with_joint("revolute", lower=-0.2, upper=0.1)
    keys = jax.random.split(jax.random.key(0), 200)
    qs = np.asarray(jax.vmap(lambda key: rbd.random_configuration(limited, key))(keys))
    assert np.ptp(qs, axis=0).min() > 1e-3
    np.testing.assert_array_equal(qs[0], rbd.random_configuration(limited, keys[0]))
    for name in ("spherical", "free"):
        stop = sys.q_index(name).stop
        np.testing.assert_allclose(np.linalg.norm(qs[:, stop - 4 : stop], axis=1), 1, atol=1e-12)
    angle = qs[:, sys.q_index("revolute")]
    assert angle.min() >= -0.2
    assert angle.max() <= 0.1


def test_derivatives_at_the_identity_rotation(sys, q):
    """d integrate / d dv and d difference at zero are finite and right: the double-where trap."""
    zero = jnp.zeros(sys.nv)
    J = jax.jacfwd(lambda x: rbd.difference(sys, q, rbd.integrate(sys, q, x)))(zero)
    np.testing.assert_allclose(J, np.eye(sys.nv), atol=1e-12)
    J = jax.jacrev(lambda x: rbd.difference(sys, q, rbd.integrate(sys, q, x)))(zero)
    np.testing.assert_allclose(J, np.eye(sys.nv), atol=1e-12)
    neutral = rbd.neutral(sys)
    grad = jax.grad(lambda x: jnp.sum(rbd.difference(sys, neutral, x) ** 2))(neutral)
    np.testing.assert_allclose(grad, 0, atol=1e-12)


def test_tangent_gradient(sys, q):
    """tangent_gradient(grad_q f) = d f(integrate(q, dv)) / d dv at 0, grad_q ignores quaternion length."""
    v, a, weight = velocity(sys, 7), velocity(sys, 8), velocity(sys, 9)

    def cost(x):
        return rbd.potential_energy(sys, x) + weight @ rbd.inverse_dynamics(sys, x, v, a)

    g = jax.grad(cost)(q)
    expected = jax.grad(lambda dv: cost(rbd.integrate(sys, q, dv)))(jnp.zeros(sys.nv))
    np.testing.assert_allclose(rbd.tangent_gradient(sys, q, g), expected, rtol=1e-9, atol=1e-9)
    for name in ("spherical", "free"):
        quat = slice(sys.q_index(name).stop - 4, sys.q_index(name).stop)
        assert abs(float(g[quat] @ q[quat])) < 1e-9 * float(jnp.linalg.norm(g))
        longer = q.at[quat].multiply(1.7)
        np.testing.assert_allclose(cost(longer), cost(q), rtol=1e-12)
