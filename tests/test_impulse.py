"""Impacts: against the dense solution, momentum, loss of energy, derivatives, errors."""

import jax
import jax.numpy as jnp
import loops
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as C
from jaxrbd.errors import ArgumentError

LEGS = ("FL", "FR", "RL", "RR")


def standing():
    """A quadruped whose feet are connected to the ground, and bound to it twice at one foot."""
    sys = rbd.zoo.quadruped()
    feet = [C.connect(sys, f"{leg}_foot", q=sys.q0) for leg in LEGS]
    return sys, C.combine(*feet, feet[0]), sys.q0


CASES = {"quadruped": standing, "four_bar": loops.four_bar}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    sys, con, q = CASES[request.param]()
    strike = jax.jit(lambda v, e: rbd.impulse_dynamics(sys, q, v, con, e, rbd.ProxLTL()))
    v = jnp.asarray(np.random.default_rng(0).standard_normal(sys.nv))
    M, J = np.array(rbd.mass_matrix(sys, q)), np.array(C.constraint_jacobian(sys, con, q))
    return sys, con, q, v, strike, M, J


@pytest.mark.parametrize("e", [0.0, 0.4, 1.0])
def test_against_dense_and_the_loss_of_energy(case, e):
    _, _, _, v, strike, M, J = case
    hit = strike(v, jnp.full(len(J), e))
    assert hit.converged
    X = np.linalg.solve(M, J.T)
    effective = np.linalg.pinv(J @ X, rcond=1e-10)
    impulse = -(1 + e) * effective @ J @ v
    np.testing.assert_allclose(hit.value.impulse, impulse, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(hit.value.v, v + X @ impulse, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(J @ hit.value.v, -e * J @ v, atol=1e-9)
    kinetic = lambda w: 0.5 * w @ M @ w  # noqa: E731
    lost = 0.5 * (1 - e**2) * (J @ v) @ effective @ (J @ v)
    np.testing.assert_allclose(kinetic(v) - kinetic(hit.value.v), lost, rtol=1e-9, atol=1e-9)


def test_each_row_may_have_its_own_restitution():
    sys = rbd.zoo.quadruped()
    con = C.combine(*(C.connect(sys, f"{leg}_foot", q=sys.q0) for leg in LEGS[:2]))
    e = jnp.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    v = jnp.linspace(-1, 1, sys.nv)
    hit = rbd.impulse_dynamics(sys, sys.q0, v, con, e, rbd.ProxLTL())
    before, after = (C.constraint_velocity(sys, con, sys.q0, w) for w in (v, hit.value.v))
    np.testing.assert_allclose(after, -e * before, atol=1e-10)
    # what the feet receive is what the robot's momentum gains
    momenta = [rbd.centroidal_momentum(sys, sys.q0, w)[3:] for w in (v, hit.value.v)]
    np.testing.assert_allclose(momenta[1] - momenta[0], hit.value.impulse.reshape(2, 3).sum(0), atol=1e-9)


def test_batches_and_derivatives(case, request):
    sys, con, q, v, strike, *_ = case
    e = jnp.full(con.rows, 0.3)
    batch = jnp.stack([v, -2 * v, v[::-1]])
    many = jax.jit(jax.vmap(strike, (0, None)))(batch, e)
    for k in range(3):
        np.testing.assert_allclose(many.value.v[k], strike(batch[k], e).value.v, atol=1e-10)

    weights = jnp.linspace(-1, 1, sys.nv)

    @jax.jit
    def f(x):
        at = rbd.integrate(sys, q, x)
        return weights @ rbd.impulse_dynamics(sys, at, v + x, con, 0.3, rbd.ProxLTL()).value.v

    x = jnp.zeros(sys.nv)
    if con.rows > 10:
        return  # twice the same foot: fine as well, but one gradient to compile is enough
    d = jnp.linspace(1, -0.5, sys.nv)
    central = (f(x + 1e-6 * d) - f(x - 1e-6 * d)) / 2e-6
    np.testing.assert_allclose(jax.jit(jax.grad(f))(x) @ d, central, rtol=1e-6)
    if request.config.getoption("--all-robots"):
        np.testing.assert_allclose(jax.jvp(f, (x,), (d,))[1], central, rtol=1e-6)


def test_bad_arguments_are_refused_with_a_remedy():
    sys, con, q = loops.four_bar()
    with pytest.raises(ArgumentError, match="from 0 to 1"):
        rbd.impulse_dynamics(sys, q, jnp.zeros(3), con, 1.5)
    with pytest.raises(ArgumentError, match="one per row"):
        rbd.impulse_dynamics(sys, q, jnp.zeros(3), con, jnp.zeros(3))
    with pytest.raises(ArgumentError, match="v has shape"):
        rbd.impulse_dynamics(sys, q, jnp.zeros(2), con)
    with pytest.raises(ArgumentError, match="solver"):
        rbd.impulse_dynamics(sys, q, jnp.zeros(3), con, solver="fast")
