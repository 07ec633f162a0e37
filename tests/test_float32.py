"""Forward dynamics in float32: its error against float64 from the same rounded inputs, near and far away."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import robots

import jaxrbd as rbd

STATES = 1000
LIMIT = 1e-5
NAMED = [robots.SOLO12, robots.PANDA, robots.GO2, robots.G1, robots.TALOS]


evaluate = jax.jit(jax.vmap(rbd.forward_dynamics, in_axes=(None, 0, 0, 0)))


def errors(sys, q, v, tau):
    """a32 - a64 and a64, (states, nv), the reference from the rounded parameters and states."""
    rounded = [jnp.asarray(x, jnp.float32) for x in (q, v, tau)]
    a32 = evaluate(sys, *rounded)
    assert a32.dtype == jnp.float32
    a64 = np.asarray(evaluate(sys.astype(jnp.float64), *(x.astype(jnp.float64) for x in rounded)))
    assert a64.dtype == np.float64
    return np.asarray(a32, np.float64) - a64, a64


def worst(difference, reference):
    """max over states of |a32 - a64| / |a64|."""
    error = np.linalg.norm(difference, axis=1) / np.linalg.norm(reference, axis=1)
    return float(np.where(np.isnan(error), np.inf, error).max())


def near_and_far(sys):
    """`errors` of random states, and of the same with every free base one kilometre away."""
    q, v, _, tau, _ = robots.random_states(sys, STATES)
    far = q.copy()
    for name, kind in zip(sys.joint_names, sys.joint_types, strict=True):
        if kind == "free":
            far[:, sys.q_index(name).start : sys.q_index(name).start + 3] += [600.0, -800.0, 10.0]
    return errors(sys, q, v, 10 * tau), errors(sys, far, v, 10 * tau)


def test_forward_dynamics_in_float32():
    """Worst of 1000 states below 1e-5, not worse far away; five robots at once compile as fast as one."""
    models = [robots.load(urdf, "free", dtype=jnp.float32) for urdf in NAMED]
    names = [robots.short_name(urdf) for urdf in NAMED]
    sys = rbd.combine(*models, names=names)
    assert sys.dtype == jnp.float32
    owners = np.repeat(names, [s.nv for s in models])
    near, far = near_and_far(sys)
    for name in names:
        of = owners == name
        close, away = (worst(*(x[:, of] for x in part)) for part in (near, far))
        assert close < LIMIT, name
        assert away < min(LIMIT, 1.25 * close), name


@pytest.mark.all_robots
@pytest.mark.parametrize("base", ["free", "fixed"])
@pytest.mark.parametrize("urdf_named", NAMED, ids=robots.short_name)
def test_robots_alone_in_float32(urdf_named, base):
    near, far = (worst(*x) for x in near_and_far(robots.load(urdf_named, base, dtype=jnp.float32)))
    assert near < LIMIT
    assert far < min(LIMIT, 1.25 * near)


def test_jacobian_by_tau_in_float32():
    """M^-1 from articulated bodies keeps six digits; a Cholesky factor of M (condition 1e7) keeps three."""
    sys = robots.load(robots.TALOS, "free", dtype=jnp.float32)
    q, v, _, tau, _ = (jnp.asarray(x, jnp.float32) for x in robots.random_states(sys, 8))
    ours = jax.jit(jax.vmap(lambda *x: rbd.forward_dynamics_derivatives(sys, *x).tau))(q, v, tau)
    exact = jax.jit(jax.vmap(lambda q: rbd.mass_matrix(sys.astype(jnp.float64), q)))(q.astype(jnp.float64))
    inverse = np.linalg.inv(exact)
    error = np.abs(ours - inverse).max((1, 2)) / np.abs(inverse).max((1, 2))
    assert error.max() < LIMIT


def test_everything_stays_float32():
    """No quantity is silently promoted to float64, although x64 is enabled."""
    sys = robots.load(robots.PANDA, "free", dtype=jnp.float32)
    state = [jnp.asarray(x, jnp.float32) for x in robots.random_states(sys, 1)]
    shapes = jax.eval_shape(robots.quantities(sys, ["panda_hand"]), *state)  # tracing knows the dtypes
    for key, value in shapes.items():
        assert value.dtype == jnp.float32, key
    single = jax.eval_shape(lambda *x: rbd.forward_dynamics(sys, *x), *(x[0] for x in state[:3]))
    assert single.dtype == jnp.float32
    q, dv = state[0][0], state[1][0]
    assert rbd.neutral(sys).dtype == jnp.float32
    assert rbd.integrate(sys, q, dv).dtype == jnp.float32
    assert rbd.difference(sys, q, q).dtype == jnp.float32
    assert rbd.random_configuration(sys, jax.random.key(0)).dtype == jnp.float32
