"""Inverse kinematics: reachable targets are reached, limits hold exactly, failures are reported."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxrbd as rbd
from jaxrbd import ArgumentError, Result
from jaxrbd.ik_targets import rotation_log

TARGETS, STARTS = 100, 4


@pytest.fixture(scope="module")
def arm():
    return rbd.zoo.arm7()


@pytest.fixture(scope="module")
def solve_arm(arm):
    """Batched over starts and poses of the tool: one compilation for several tests."""
    return jax.jit(jax.vmap(lambda q0, R, p: rbd.inverse_kinematics(arm, q0, {"tool": (R, p)})))


@pytest.fixture(scope="module")
def problems(arm):
    """Poses of random configurations within limits, each with four random starts; flat batches."""
    keys = jax.random.split(jax.random.PRNGKey(0), TARGETS * (STARTS + 1))
    q = jax.jit(jax.vmap(lambda key: rbd.random_configuration(arm, key)))(keys)
    R, p = jax.jit(jax.vmap(lambda q: rbd.frame_pose(arm, q, "tool")))(q[:TARGETS])
    return q[TARGETS:], jnp.repeat(R, STARTS, 0), jnp.repeat(p, STARTS, 0)


@pytest.fixture(scope="module")
def solved(solve_arm, problems):
    return solve_arm(*problems)


def within_limits(sys, q):
    """Exactly, no tolerance, for joints with one coordinate per degree of freedom."""
    for name, kind in zip(sys.joint_names, sys.joint_types):
        if kind not in ("free", "spherical"):
            x, v = np.asarray(q)[..., sys.q_index(name)], sys.v_index(name)
            if not (np.all(x >= sys.lower[v]) and np.all(x <= sys.upper[v])):
                return False
    return True


def test_arm_reaches_random_poses(arm, problems, solved):
    """73 % of single starts and all of the 100 targets within four starts, when this was written."""
    converged = np.asarray(solved.converged).reshape(TARGETS, STARTS)
    assert converged.any(1).mean() >= 0.95
    assert converged.mean() >= 0.6
    _, R, p = problems
    R1, p1 = jax.jit(jax.vmap(lambda q: rbd.frame_pose(arm, q, "tool")))(solved.value)
    done = np.asarray(solved.converged)
    np.testing.assert_allclose(R1[done], R[done], atol=2e-8)
    np.testing.assert_allclose(p1[done], p[done], atol=1e-8)
    assert np.asarray(solved.stats.position_error)[done].max() <= 1e-8
    assert np.median(np.asarray(solved.stats.iterations)[done]) <= 20


def test_limits_hold_exactly_also_where_it_failed(arm, solved):
    assert np.isfinite(solved.value).all()
    assert within_limits(arm, solved.value)
    failed = np.asarray(solved.result)[~np.asarray(solved.converged)]
    assert set(failed) <= {Result.not_converged, Result.stationary}
    on_bound = (solved.value == arm.lower) | (solved.value == arm.upper)
    assert on_bound[np.asarray(solved.converged)].any()


def test_batch_equals_loop(arm, problems, solved):
    one = jax.jit(lambda q0, R, p: rbd.inverse_kinematics(arm, q0, {"tool": (R, p)}))
    for i in np.flatnonzero(np.asarray(solved.stats.iterations) < 12)[:5]:
        single = one(*(x[i] for x in problems))
        np.testing.assert_allclose(single.value, solved.value[i], atol=1e-6)
        assert single.result == solved.result[i] == Result.converged
        assert single.stats.iterations == solved.stats.iterations[i]


def test_out_of_reach_is_reported(arm, solve_arm, problems):
    q0, R, p = problems
    far = solve_arm(q0, R, p + jnp.array([3.0, 0.0, 0.0]))
    assert not far.converged.any()
    assert np.isfinite(far.value).all() and within_limits(arm, far.value)
    assert (far.stats.position_error > 1.0).all()
    assert (far.result == Result.stationary).mean() > 0.5
    endless = solve_arm(q0[:4], R[:4], jnp.full((4, 3), jnp.inf))
    assert (endless.result == Result.not_converged).all() and np.isfinite(endless.value).all()


def test_point_out_of_reach_gets_the_nearest_point(arm):
    """The arm stretches towards the target: 0.926 m of it, from the shoulder at a height of 0.34 m."""
    shoulder = jnp.array([0.0, 0.0, 0.34])
    target = shoulder + 2.0 * jnp.array([0.6, 0.0, 0.8])
    q0 = arm.keyframe("home")[0]
    sol = jax.jit(lambda q0: rbd.inverse_kinematics(arm, q0, {"tool": target}))(q0)
    assert sol.result == Result.stationary
    np.testing.assert_allclose(sol.stats.position_error, 2.0 - 0.926, atol=1e-6)


def test_quadruped_places_its_feet():
    sys = rbd.zoo.quadruped()
    home = sys.keyframe("home")[0]
    feet = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]
    shift = jax.random.uniform(jax.random.PRNGKey(1), (16, 4, 3), minval=-0.05, maxval=0.05)
    targets = {name: rbd.frame_pose(sys, home, name)[1] + shift[:, i] for i, name in enumerate(feet)}
    solve = jax.jit(jax.vmap(lambda t: rbd.inverse_kinematics(sys, home, t, fixed_joints=("root",))))
    sol = solve(targets)
    assert sol.converged.all() and within_limits(sys, sol.value)
    assert (sol.value[:, :7] == home[:7]).all()
    for name in feet:
        p = jax.vmap(lambda q, name=name: rbd.frame_pose(sys, q, name)[1])(sol.value)
        np.testing.assert_allclose(p, targets[name], atol=1e-8)


@pytest.fixture(scope="module")
def humanoid():
    return rbd.zoo.humanoid()


def test_humanoid_two_hands_and_feet_with_a_rest_pose(humanoid):
    """The free base moves as well; the answer nearer to the rest pose reaches the same targets."""
    sys, home = humanoid, humanoid.keyframe("home")[0]
    targets = {name: rbd.frame_pose(sys, home, name) for name in ("left_sole", "right_sole")}
    for side, y in (("left", 0.05), ("right", -0.05)):
        R, p = rbd.frame_pose(sys, home, f"{side}_palm")
        targets[f"{side}_palm"] = (R, p + jnp.array([0.25, y, 0.1]))
    solve = jax.jit(lambda q0, rest: rbd.inverse_kinematics(sys, q0, targets, rest=rest))
    q0 = rbd.integrate(sys, home, 0.1 * jnp.sin(jnp.arange(sys.nv)))
    sol = solve(q0, home)
    assert sol.converged and within_limits(sys, sol.value)
    for name, (R, p) in targets.items():
        R1, p1 = rbd.frame_pose(sys, sol.value, name)
        np.testing.assert_allclose(R1, R, atol=2e-8)
        np.testing.assert_allclose(p1, p, atol=1e-8)
    np.testing.assert_allclose(jnp.linalg.norm(sol.value[3:7]), 1.0, atol=1e-12)
    away = solve(q0, q0)
    distance = [float(jnp.linalg.norm(rbd.difference(sys, home, s.value))) for s in (sol, away)]
    assert away.converged and distance[0] < distance[1]


def test_rest_pose_is_the_nearest_solution(arm):
    """At the answer the way to the rest pose has no part along motions that leave the tool where it is."""
    rest = arm.keyframe("home")[0]
    target = rbd.frame_pose(arm, rest + 0.2, "tool")
    sol = jax.jit(lambda q0: rbd.inverse_kinematics(arm, q0, {"tool": target}, rest=rest))(rest + 0.5)
    assert sol.converged
    J = np.asarray(rbd.frame_jacobian(arm, sol.value, "tool"))
    null = np.linalg.svd(J)[2][6]
    assert abs(null @ (sol.value - rest)) < 1e-3 * np.linalg.norm(sol.value - rest)


def test_gradient_of_the_solution(arm):
    """Derivative of the algorithm against central differences of it, and J dq/dp = dpose/dp."""
    home = arm.keyframe("home")[0]
    R, p = rbd.frame_pose(arm, home + 0.1 * jnp.sin(jnp.arange(7.0)), "tool")

    @jax.jit
    def q_of(p, q0):
        return rbd.inverse_kinematics(arm, q0, {"tool": (R, p)}, solver=rbd.GaussNewton(iterations=12)).value

    by_p, by_q0 = jax.jit(jax.jacrev(q_of, argnums=(0, 1)))(p, home)
    forward = jax.jit(lambda dp: jax.jvp(lambda p: q_of(p, home), (p,), (dp,))[1])
    np.testing.assert_allclose(forward(jnp.arange(3.0)), by_p @ jnp.arange(3.0), atol=1e-9)
    h = 1e-6
    fd_p = np.stack([(q_of(p + h * d, home) - q_of(p - h * d, home)) / (2 * h) for d in np.eye(3)], 1)
    fd_q0 = np.stack([(q_of(p, home + h * d) - q_of(p, home - h * d)) / (2 * h) for d in np.eye(7)], 1)
    np.testing.assert_allclose(by_p, fd_p, atol=1e-6)
    np.testing.assert_allclose(by_q0, fd_q0, atol=1e-6)
    J = rbd.frame_jacobian(arm, q_of(p, home), "tool")
    np.testing.assert_allclose(J @ by_p, np.eye(6)[:, 3:], atol=1e-8)
    np.testing.assert_allclose(J @ by_q0, 0.0, atol=1e-8)


def test_gradient_is_finite_where_the_start_is_the_answer(arm):
    home = arm.keyframe("home")[0]
    R, p = rbd.frame_pose(arm, home, "tool")
    solver = rbd.GaussNewton(iterations=5)

    def f(p):
        sol = rbd.inverse_kinematics(arm, home, {"tool": (R, p)}, solver=solver)
        return sol.value, sol.stats.position_error

    by_p, of_error = jax.jit(jax.jacrev(f))(p)
    np.testing.assert_allclose(rbd.frame_jacobian(arm, home, "tool") @ by_p, np.eye(6)[:, 3:], atol=1e-8)
    assert np.isfinite(of_error).all()


def test_orientation_weights_and_float32(arm):
    """Three kinds of targets, weights that leave rows out; float32 meets its own tolerance."""
    sys = rbd.zoo.arm7(dtype="float32")
    home = sys.keyframe("home")[0]
    R, p = rbd.frame_pose(sys, home + 0.2, "tool")
    sol = rbd.inverse_kinematics(sys, home, {"tool": R, "elbow": rbd.frame_pose(sys, home, "elbow")[1]})
    assert sol.converged and sol.value.dtype == jnp.float32
    np.testing.assert_allclose(rbd.frame_pose(sys, sol.value, "tool")[0], R, atol=2e-5)
    # a pose whose rotation about the tool's own axis does not matter
    weights = {"tool": jnp.array([1.0, 1.0, 0.0, 5.0, 5.0, 5.0])}
    sol = rbd.inverse_kinematics(sys, home, {"tool": (R, p)}, weights=weights, fixed_joints="joint7")
    assert sol.converged and sol.value[6] == home[6]
    np.testing.assert_allclose(rbd.frame_pose(sys, sol.value, "tool")[0][:, 2], R[:, 2], atol=2e-5)


def test_rotation_log_matches_scipy():
    rng = np.random.default_rng(0)
    axes = rng.standard_normal((60, 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    angles = np.concatenate([[0.0, 1e-9, 1e-5, 1e-3, np.pi - 1e-3, np.pi - 1e-6], rng.uniform(0, np.pi, 54)])
    w = axes * angles[:, None]
    R = Rotation.from_rotvec(w).as_matrix()
    np.testing.assert_allclose(jax.vmap(rotation_log)(R), w, atol=1e-9)


def test_bad_arguments_are_refused(arm):
    q, eye, p = rbd.neutral(arm), np.eye(3), np.zeros(3)
    ik = rbd.inverse_kinematics
    cases = [
        (lambda: ik(arm, q, {}), "empty"),
        (lambda: ik(arm, q, p), "not a dict"),
        (lambda: ik(arm, q, {"tol": p}), "no frame named 'tol'.*'tool'"),
        (lambda: ik(arm, q[:5], {"tool": p}), "q0 has shape"),
        (lambda: ik(arm, q, {"tool": np.zeros(4)}), "target p of frame 'tool' has shape"),
        (lambda: ik(arm, q, {"tool": (eye[:2], p)}), "target R of frame 'tool' has shape"),
        (lambda: ik(arm, q, {"tool": (2 * eye, p)}), "not a rotation"),
        (lambda: ik(arm, q, {"tool": p}, weights={"elbow": 1.0}), "elbow"),
        (lambda: ik(arm, q, {"tool": p}, weights={"tool": np.ones(6)}), "weight of frame 'tool'"),
        (lambda: ik(arm, q, {"tool": p}, rest=q[:3]), "rest has shape"),
        (lambda: ik(arm, q, {"tool": p}, fixed_joints=("root",)), "no joint named 'root'"),
        (lambda: ik(arm, q, {"tool": p}, solver="newton"), "solver is 'newton'"),
        (lambda: rbd.GaussNewton(iterations=0), "iterations"),
        (lambda: rbd.GaussNewton(step_limit=-1.0), "step_limit"),
    ]
    for call, message in cases:
        with pytest.raises(ArgumentError, match=message):
            call()
