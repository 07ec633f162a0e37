"""Projection onto phi(q) = 0 and J v = 0: loops, redundant rows, failures, derivatives, errors."""

import jax
import jax.numpy as jnp
import loops
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as C
from jaxrbd.errors import ArgumentError


def settings(solver=None, iterations=8):
    return rbd.Projection(iterations, rbd.ProxLTL() if solver is None else solver)


def numpy_velocities(sys, con, q, v):
    """v - M^-1 Jᵀ (J M^-1 Jᵀ)⁺ J v of several states."""
    at = jax.jit(jax.vmap(lambda q: (rbd.mass_matrix(sys, q), C.constraint_jacobian(sys, con, q))))

    def one(M, J, v):
        X = np.linalg.solve(M, J.T)
        return v - X @ np.linalg.pinv(J @ X, rcond=1e-10) @ (J @ v)

    return np.stack([one(*x) for x in zip(*map(np.asarray, at(q)), np.asarray(v))])


QUICK = "delta"  # balls and universal joints, redundant rows
OTHERS = [n if n == QUICK else pytest.param(n, marks=pytest.mark.all_robots) for n in loops.MECHANISMS]


@pytest.mark.parametrize("name", OTHERS)
def test_loops_close_from_a_disturbed_state(name):
    sys, con, q = loops.MECHANISMS[name]()
    rng = np.random.default_rng(0)
    dq, v = 0.03 * rng.standard_normal((5, sys.nv)), rng.standard_normal((5, sys.nv))

    @jax.jit
    @jax.vmap
    def close(dq, v):
        return rbd.project(sys, con, rbd.integrate(sys, q, dq), v, settings())

    found = close(dq, v)
    assert found.converged.all()
    assert found.stats.error.max() < 1e-12
    assert found.stats.velocity_error.max() < 1e-11
    np.testing.assert_allclose(found.value.v, numpy_velocities(sys, con, found.value.q, v), atol=1e-9)


@pytest.mark.parametrize(
    "solver",
    [
        rbd.ConstrainedABA(),
        *(pytest.param(s(), marks=pytest.mark.all_robots) for s in (rbd.ProxPV, rbd.ProxLTLs)),
    ],
    ids=lambda s: type(s).__name__,
)
def test_every_solver_closes_a_loop_with_repeated_rows(solver):
    sys, con, q = loops.four_bar()
    twice, v = C.combine(con, con), jnp.array([1.0, 2.0, -1.0])
    start = rbd.integrate(sys, q, jnp.array([0.05, -0.03, 0.04]))
    found = jax.jit(lambda: rbd.project(sys, twice, start, v, settings(solver)))()
    assert found.converged
    assert found.stats.error < 1e-12
    expected = numpy_velocities(sys, con, found.value.q[None], v[None])[0]
    np.testing.assert_allclose(found.value.v, expected, atol=1e-9)


def test_what_cannot_be_reached_is_reported():
    sys, con, q = loops.four_bar()
    far = C.combine(con, C.connect(sys, "crank", offset=(0.2, 0, 0), anchor=(3.0, 0, 0)))
    found = rbd.project(sys, far, q, settings=settings(iterations=30))
    assert not found.converged
    assert np.isfinite(found.value.q).all()
    assert found.value.v is None
    assert found.stats.error > 1


def test_rows_at_the_level_of_velocities_leave_q_alone():
    sys = rbd.zoo.double_pendulum()
    rows = C.velocity_rows(sys, [[1.0, 2.0]])
    q = jnp.array([0.3, -0.4])
    found = rbd.project(sys, rows, q, jnp.ones(2), settings(iterations=1))
    np.testing.assert_allclose(found.value.q, q, atol=1e-15)
    np.testing.assert_allclose(found.value.v @ jnp.array([1.0, 2.0]), 0, atol=1e-12)


@pytest.mark.all_robots
def test_derivatives_against_differences():
    sys, con, q = loops.four_bar()
    weights = jnp.array([0.3, -0.7, 0.5, 0.2, 0.9, -0.4])

    @jax.jit
    def f(x):
        found = rbd.project(sys, con, q + x[:3], x[3:], settings(iterations=4)).value
        return jnp.concatenate([found.q, found.v]) @ weights

    x = jnp.array([0.02, -0.01, 0.03, 1.0, 2.0, -1.0])
    d = jnp.array([1.0, -0.5, 0.7, 0.3, -0.2, 0.6])
    central = (f(x + 1e-6 * d) - f(x - 1e-6 * d)) / 2e-6
    np.testing.assert_allclose(jax.jvp(f, (x,), (d,))[1], central, rtol=1e-7)
    np.testing.assert_allclose(jax.grad(f)(x) @ d, central, rtol=1e-7)


def test_bad_arguments_are_refused_with_a_remedy():
    sys, con, q = loops.four_bar()
    with pytest.raises(ArgumentError, match="nobody said where"):
        rbd.project(sys, C.weld(sys, "crank"), q)
    with pytest.raises(ArgumentError, match="expected Projection"):
        rbd.project(sys, con, q, settings=3)
    with pytest.raises(ArgumentError, match="iterations"):
        rbd.Projection(0)
    with pytest.raises(ArgumentError, match="step_limit"):
        rbd.Projection(step_limit=-1.0)
    with pytest.raises(ArgumentError, match="expected Constraints"):
        rbd.project(sys, None, q)
