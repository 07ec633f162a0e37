"""Constrained inverse dynamics: round trips, least cost, impossible motions, derivatives, errors."""

import jax
import jax.numpy as jnp
import loops
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as C
from jaxrbd.constraints.inverse import actuated_mask
from jaxrbd.errors import ArgumentError


def standing():
    sys = rbd.zoo.quadruped()
    con = C.combine(*(C.connect(sys, f"{leg}_foot", q=sys.q0) for leg in ("FL", "FR", "RL", "RR")))
    return sys, con, sys.q0


CASES = {
    "quadruped": (standing, None),
    "four_bar": (loops.four_bar, ("A",)),
    "cassie_leg": (loops.cassie_leg, None),
}


@pytest.fixture(
    scope="module",
    params=[
        "quadruped",
        *(pytest.param(n, marks=pytest.mark.all_robots) for n in CASES if n != "quadruped"),
    ],
)
def motion(request):
    """A motion that forces at the driven joints made."""
    make, actuated = CASES[request.param]
    sys, con, q = make()
    rng = np.random.default_rng(1)
    v = jnp.asarray(numpy_null(sys, con, q) @ rng.standard_normal(sys.nv))
    mask = actuated_mask(sys, actuated)
    forward = jax.jit(lambda tau: rbd.constrained_dynamics(sys, q, v, tau, con, rbd.ProxLTL()))
    tau = jnp.asarray(rng.standard_normal(sys.nv) * mask)
    return sys, con, q, v, mask, tau, forward


def numpy_null(sys, con, q):
    J = np.array(C.constraint_jacobian(sys, con, q))
    return np.eye(sys.nv) - np.linalg.pinv(J, rcond=1e-10) @ J


def test_round_trip_and_least_cost(motion):
    sys, con, q, v, mask, tau, forward = motion
    a = forward(tau).value.a
    f_cost, t_cost = np.linspace(1, 3, con.rows), np.linspace(2, 1, sys.nv)
    inverse = jax.jit(
        lambda a: rbd.constrained_inverse_dynamics(
            sys, q, v, a, con, mask, torque_cost=t_cost, force_cost=f_cost
        )
    )
    found = inverse(a)
    assert found.converged, found.stats
    np.testing.assert_allclose(forward(found.value.tau).value.a, a, rtol=1e-8, atol=1e-8)
    assert not np.asarray(found.value.tau)[~mask].any()
    # dense: least norm of weighted unknowns
    J = np.array(C.constraint_jacobian(sys, con, q))
    A = np.concatenate([np.eye(sys.nv)[:, mask], J.T], 1)
    w = 1 / np.sqrt(np.concatenate([t_cost[mask], f_cost]))
    x = w * (np.linalg.pinv(A * w, rcond=1e-10) @ np.array(rbd.inverse_dynamics(sys, q, v, a)))
    np.testing.assert_allclose(found.value.tau[mask], x[: mask.sum()], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.value.lam, x[mask.sum() :], rtol=1e-8, atol=1e-8)


def test_one_motor_of_a_four_bar_is_determined():
    sys, con, q = loops.four_bar()
    v = jnp.asarray(numpy_null(sys, con, q) @ [3.0, 0, 0])
    tau = jnp.array([1.7, 0.0, 0.0])
    forward = rbd.constrained_dynamics(sys, q, v, tau, con, rbd.ProxLTL()).value
    found = rbd.constrained_inverse_dynamics(sys, q, v, forward.a, con, "A")
    np.testing.assert_allclose(found.value.tau, tau, atol=1e-8)
    np.testing.assert_allclose(found.value.lam, forward.lam, atol=1e-7)
    # with all joints driven there is a choice, and the least is less
    shared = rbd.constrained_inverse_dynamics(sys, q, v, forward.a, con)
    assert shared.converged
    size = lambda x: float(x.tau @ x.tau + x.lam @ x.lam)  # noqa: E731
    assert size(shared.value) < size(found.value)


def test_impossible_motions_are_reported():
    sys, con, q = loops.four_bar()
    v = jnp.zeros(3)
    wrong = rbd.constrained_inverse_dynamics(sys, q, v, jnp.array([1.0, 1.0, 1.0]), con)
    assert not wrong.converged
    assert wrong.stats.constraint_residual > 0.1
    robot, feet, q0 = standing()
    still = jnp.zeros(robot.nv)
    hold = rbd.constrained_inverse_dynamics(robot, q0, still, still, feet)
    assert hold.converged  # standing still is possible: the feet carry the weight
    weight = float(rbd.total_mass(robot)) * 9.81
    np.testing.assert_allclose(hold.value.lam.reshape(4, 3).sum(0), [0, 0, weight], atol=1e-7)
    one = C.connect(robot, "FL_foot", q=q0)
    fall = rbd.constrained_inverse_dynamics(robot, q0, still, still, one)
    assert fall.result == rbd.Result.stationary  # on one foot it falls
    assert fall.stats.force_residual > 1
    assert np.isfinite(fall.value.tau).all()


def test_batches_and_derivatives():
    sys, con, q = loops.four_bar()

    @jax.jit
    def f(x):
        q1 = q + x[:3]
        found = rbd.constrained_inverse_dynamics(sys, q1, x[3:6], x[6:], con, ("A", "D"))
        return jnp.concatenate([found.value.tau, found.value.lam])

    x = jnp.array([0.1, -0.1, 0.05, 1.0, -2.0, 0.5, 0.3, 0.2, 0.1])
    d = jnp.linspace(1, -0.7, 9)
    np.testing.assert_allclose(jax.vmap(f)(jnp.stack([x, 2 * x]))[1], f(2 * x), atol=1e-10)
    value_and_tangent = jax.jit(lambda x: jax.jvp(f, (x,), (d,)))
    central = (value_and_tangent(x + 1e-6 * d)[0] - value_and_tangent(x - 1e-6 * d)[0]) / 2e-6
    scale = float(jnp.abs(central).max())
    np.testing.assert_allclose(value_and_tangent(x)[1], central, atol=1e-6 * scale)
    w = jnp.linspace(-1, 1, 8)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: w @ f(x)))(x) @ d, w @ central, atol=1e-6 * scale)


def test_bad_arguments_are_refused_with_a_remedy():
    sys, con, q = loops.four_bar()
    zero = jnp.zeros(3)
    for actuated, message in (
        (("elbow",), "no joint named"),
        (np.ones(2, bool), "expected joint names or a mask"),
        (np.ones(3), "of bools"),
    ):
        with pytest.raises(ArgumentError, match=message):
            rbd.constrained_inverse_dynamics(sys, q, zero, zero, con, actuated)
    with pytest.raises(ArgumentError, match="positive"):
        rbd.constrained_inverse_dynamics(sys, q, zero, zero, con, torque_cost=0.0)
    with pytest.raises(ArgumentError, match="force_cost has shape"):
        rbd.constrained_inverse_dynamics(sys, q, zero, zero, con, force_cost=jnp.ones(4))
