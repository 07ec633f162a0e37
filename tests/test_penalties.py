"""Penalties that need no tuning, weights of rows, and penalties that grow."""

from __future__ import annotations

import chex
import constrained_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con

SINGLE = jnp.float32


def answers(sys, constraints, q, v, tau, *solvers):
    run = lambda *x: [rbd.constrained_dynamics(sys, *x, constraints, s) for s in solvers]  # noqa: E731
    return jax.jit(run)(q, v, tau)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.all_robots)])
def test_bodies_of_any_mass_need_no_tuning(dtype):
    """Multiplying all masses and forces by a number changes no acceleration."""
    sys = rbd.zoo.humanoid(hands=True)  # fingers of 6.5 g
    constraints = con.combine(con.weld(sys, "left_sole"), con.connect(sys, "right_index_tip"))
    q, v, tau = (x[0].astype(dtype) for x in cases.states(sys, 1))
    low, rows = sys.astype(dtype), constraints.astype(dtype)

    def at(scale):
        heavy = {k: scale * getattr(low, k) for k in ("mass", "inertia", "armature")}
        return rbd.constrained_dynamics(low.replace(**heavy), q, v, scale * tau, rows)

    found = jax.jit(jax.vmap(at))(jnp.asarray([1, 1e-6, 1e6], dtype))
    assert found.converged.all(), found
    tolerance = {"float32": 1e-4, "float64": 1e-10}[dtype]
    a = np.asarray(found.value.a)
    np.testing.assert_allclose(a[1:], a[[0, 0]], atol=tolerance * np.abs(a[0]).max())


def test_rows_have_weights_of_their_own():
    """Two points that want different accelerations: each row ends at the weighted mean."""
    sys = rbd.zoo.arm7()
    q, v, tau = (x[0] for x in cases.states(sys, 1))
    weight = np.array([1.0, 4.0, 1e9])
    constraints = con.combine(
        con.connect(sys, "tool", target=[1.0, 1.0, 1.0]), con.connect(sys, "tool", weight=weight)
    )
    assert constraints.weight.shape == (6,)
    (found,) = answers(sys, constraints, q, v, tau, None)
    J, bias = (
        con.constraint_jacobian(sys, constraints, q),
        con.constraint_acceleration(sys, constraints, q, v),
    )
    np.testing.assert_allclose((J @ found.value.a + bias)[:3], 1 / (1 + weight), atol=1e-9)
    assert found.result == rbd.Result.stationary
    each = constraints.replace(weight=jnp.array([1.0, 3.0]))  # one per constraint
    (found,) = answers(sys, each, q, v, tau, None)
    np.testing.assert_allclose((J @ found.value.a + bias)[:3], 0.25, atol=1e-9)
    for bad in (
        lambda: con.connect(sys, "tool", weight=[1.0, 2.0]),
        lambda: con.connect(sys, "tool", weight=0.0),
    ):
        with pytest.raises(rbd.ArgumentError, match="weight"):
            bad()
    with pytest.raises(rbd.ArgumentError, match="one per row, .6,., or one per constraint"):
        answers(sys, each.replace(weight=jnp.ones(5)), q, v, tau, None)


def test_repeated_rows_share_their_force_by_weight():
    sys = rbd.zoo.arm7()
    q, v, tau = (x[0] for x in cases.states(sys, 1))
    constraints = con.combine(con.connect(sys, "tool"), con.connect(sys, "tool", weight=3.0))
    for found in answers(sys, constraints, q, v, tau, rbd.ConstrainedABA(), rbd.ProxLTL(), rbd.ProxLTLs()):
        assert found.converged
        np.testing.assert_allclose(found.value.lam[3:], 3 * found.value.lam[:3], rtol=1e-6)


def test_adaptive_penalties_grow_where_a_small_one_is_too_slow():
    sys, constraints, _ = cases.case("arm7 H6")
    q, v, tau = cases.states(sys, 4)
    few = {"mu": 1e2, "iterations": 4}
    run = jax.jit(
        jax.vmap(
            lambda *x: [
                rbd.constrained_dynamics(sys, *x, constraints, rbd.ConstrainedABA(**few, adaptive=adaptive))
                for adaptive in (False, True)
            ]
        )
    )
    plain, adaptive = run(q, v, tau)
    assert (np.asarray(plain.result) == rbd.Result.not_converged).all()
    assert adaptive.converged.all()
    exact = jax.vmap(lambda *x: rbd.constrained_dynamics(sys, *x, constraints, rbd.Dense()))(q, v, tau)
    np.testing.assert_allclose(adaptive.value.a, exact.value.a, rtol=1e-8, atol=1e-8)
    with pytest.raises(rbd.ArgumentError, match="implicit gradients only"):
        rbd.ProxLTL(adaptive=True, gradients="unrolled")


def test_soft_penalties_that_drown_the_bodies_are_not_called_right():
    """Float32 cannot tell such springs from bodies of no mass; the answer stays finite all the same."""
    sys = rbd.zoo.arm7().astype(SINGLE)
    twice = con.combine(con.weld(sys, "tool"), con.weld(sys, "tool")).astype(SINGLE)
    q, v, tau = (x.astype(SINGLE) for x in cases.states(sys, 16))

    def at(mu, *state):
        found = rbd.constrained_dynamics(sys, *state, twice, rbd.Soft(mu=mu))
        return found.value.a, found.result

    each = jax.vmap(jax.vmap(at, (None, 0, 0, 0)), (0, None, None, None))
    a, result = jax.jit(each)(jnp.asarray([1e1, 1e12, 1e16, 1e20], SINGLE), q, v, tau)
    assert jnp.isfinite(a).all()
    assert (result[0] != rbd.Result.not_converged).all()
    assert (result[1:] == rbd.Result.not_converged).all()


def test_answers_that_overflow_are_not_taken():
    """Forces beyond float32: the state is reported, and what is returned is finite."""
    sys = rbd.zoo.arm7().astype(SINGLE)
    held = con.connect(sys, "tool").astype(SINGLE)
    q, v, tau = (x.astype(SINGLE) for x in cases.states(sys, 3))
    tau = tau * jnp.asarray([1, 1e30, 1e38], SINGLE)[:, None]
    solvers = rbd.ConstrainedABA(), rbd.ProxLTL()
    run = jax.jit(jax.vmap(lambda *x: [rbd.constrained_dynamics(sys, *x, held, s) for s in solvers]))
    for found in run(q, v, tau):
        chex.assert_tree_all_finite(found.value)
        assert found.result[0] == rbd.Result.converged
        assert found.result[2] == rbd.Result.not_converged
