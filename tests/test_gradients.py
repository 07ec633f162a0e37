"""Derivatives of the dynamics: against Pinocchio, finite differences and each other, in every mode."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
import robots

import jaxrbd as rbd

SHORT = 1  # robots in `make test`; all ten in `make test-all`
PINOCCHIO = [
    (robots.TALOS, "free"),
    ("kinova_description/robots/kinova.urdf", "free"),
    (robots.PANDA, "fixed"),
    (robots.SOLO12, "free"),
    (robots.GO2, "free"),
    (robots.G1, "free"),
    ("ur_description/urdf/ur5_robot.urdf", "fixed"),
    ("pr2_description/urdf/pr2.urdf", "fixed"),
    ("double_pendulum_description/urdf/double_pendulum_continuous.urdf", "fixed"),
    ("allegro_hand_description/urdf/allegro_right_hand.urdf", "fixed"),
]
ALL_TYPES = ("revolute", "prismatic", "screw", "cylindrical", "universal", "planar", "spherical", "free")
EPS = np.finfo(np.float64).eps


def states(sys, count=1, seed=0):
    return [jnp.asarray(x) for x in robots.random_states(sys, count, seed)]


def difference_quotient(f, x, direction, h=1e-3):
    """Derivative of f along a direction by five points: error of order h^4."""
    at = lambda k: np.asarray(f(x + k * h * direction))  # noqa: E731
    return (at(-2) - 8 * at(-1) + 8 * at(1) - at(2)) / (12 * h)


def assert_close(ours, expected, rtol, name=""):
    ours, expected = np.asarray(ours), np.asarray(expected)
    assert ours.shape == expected.shape, name
    assert np.isfinite(ours).all(), name
    scale = max(np.abs(expected).max(initial=0.0), 1e-12)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=rtol * scale, err_msg=name)


# --- Jacobians of whole robots -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("robot", "root"),
    [x if k < SHORT else pytest.param(*x, marks=pytest.mark.all_robots) for k, x in enumerate(PINOCCHIO)],
    ids=lambda x: robots.short_name(x),
)
def test_jacobians_match_pinocchio(robot, root):
    """Analytic Jacobians against Pinocchio's; JVP and VJP are their products with a vector, either side."""
    sys = robots.load(robot, root)
    model = robots.pinocchio_model(robot, root)
    twin, data = robots.Twin(sys, model), model.createData()
    q, v, a, tau, _ = (x[0] for x in states(sys, seed=sys.nv))
    rng = np.random.default_rng(1)
    dq, dv, dtau, lam = (jnp.asarray(rng.standard_normal(sys.nv)) for _ in range(4))

    @jax.jit
    def ours(q, v, a, tau):
        fd = lambda x, v, tau: rbd.forward_dynamics(sys, rbd.integrate(sys, q, x), v, tau)  # noqa: E731
        at = (jnp.zeros(sys.nv), v, tau)
        return (
            rbd.inverse_dynamics_derivatives(sys, q, v, a),
            rbd.forward_dynamics_derivatives(sys, q, v, tau),
            jax.jvp(fd, at, (dq, dv, dtau))[1],
            jax.vjp(fd, *at)[1](lam),
        )

    inverse, forward, pushed, pulled = ours(q, v, a, tau)
    T, drift = twin.transform(q, v)
    assert not drift.any()  # no planar joints here, so velocities are only reordered
    there = lambda x: T @ np.asarray(x)  # noqa: E731
    pin.computeRNEADerivatives(model, data, twin.q(q), there(v), there(a))
    expected = [data.dtau_dq, data.dtau_dv, robots.symmetric(data.M)]
    for name, mine, theirs in zip("qva", inverse, expected, strict=True):
        assert_close(mine, T.T @ theirs @ T, 1e-8, f"d tau / d{name}")
    pin.computeABADerivatives(model, data, twin.q(q), there(v), there(tau))
    tolerance = max(1e-8, 10 * EPS * np.linalg.cond(robots.symmetric(data.M)))
    expected = [data.ddq_dq, data.ddq_dv, robots.symmetric(data.Minv)]
    jacobians = [T.T @ x @ T for x in expected]
    for name, mine, theirs in zip(("q", "v", "tau"), forward, jacobians, strict=True):
        assert_close(mine, theirs, tolerance, f"d a / d{name}")
    product = sum(J @ np.asarray(d) for J, d in zip(jacobians, (dq, dv, dtau), strict=True))
    assert_close(pushed, product, tolerance, "JVP")
    for name, mine, J in zip(("q", "v", "tau"), pulled, jacobians, strict=True):
        assert_close(mine, np.asarray(lam) @ J, tolerance, f"VJP {name}")


@pytest.fixture(scope="module")
def mixed():
    """Every joint type, quaternion joints inside the tree too, armature on some freedoms."""
    sys = rbd.zoo.random_tree(10, seed=96, joint_types=ALL_TYPES)
    assert set(sys.joint_types) == set(ALL_TYPES)
    inner = {kind for kind, parent in zip(sys.joint_types, sys.parents, strict=True) if parent >= 0}
    assert {"spherical", "free"} <= inner
    return sys.replace(armature=0.01 * (jnp.arange(sys.nv) % 3))


def test_jacobians_of_every_joint_type_with_external_forces(mixed):
    """Analytic Jacobians against jacfwd in the tangent space."""
    sys = mixed
    q, v, a, tau, f = (x[0] for x in states(sys, seed=3))
    zero = jnp.zeros(sys.nv)

    @jax.jit
    def both():
        inverse = lambda x, v, a: rbd.inverse_dynamics(sys, rbd.integrate(sys, q, x), v, a, f)  # noqa: E731
        forward = lambda x, v, tau: rbd.forward_dynamics(sys, rbd.integrate(sys, q, x), v, tau, f)  # noqa: E731
        return (
            rbd.inverse_dynamics_derivatives(sys, q, v, a, f),
            jax.jacfwd(inverse, (0, 1, 2))(zero, v, a),
            rbd.forward_dynamics_derivatives(sys, q, v, tau, f),
            jax.jacfwd(forward, (0, 1, 2))(zero, v, tau),
        )

    inverse, inverse_by_jvp, forward, forward_by_jvp = both()
    for mine, theirs in zip(inverse, inverse_by_jvp, strict=True):
        assert_close(mine, theirs, 1e-11)
    for mine, theirs in zip(forward, forward_by_jvp, strict=True):
        assert_close(mine, theirs, 1e-9)


# --- against finite differences ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["inverse", "forward"])
def test_dynamics_match_differences(mixed, kind):
    """Along random directions in q, v, a or tau, and f_ext, one argument at a time, both modes."""
    sys = mixed
    q, v, a, _, f = (x[0] for x in states(sys, seed=5))
    function = {"inverse": rbd.inverse_dynamics, "forward": rbd.forward_dynamics}[kind]
    rng = np.random.default_rng(6)
    full = [jnp.asarray(rng.standard_normal(n)) for n in [sys.nv] * 3 + [(sys.nb, 6)]]
    weight = jnp.asarray(rng.standard_normal(sys.nv))

    def along(t):  # t: how far each argument moves
        return function(
            sys,
            rbd.integrate(sys, q, t[0] * full[0]),
            v + t[1] * full[1],
            a + t[2] * full[2],
            f + t[3] * full[3],
        )

    zero = jnp.zeros(4)
    value_and_jacobian = jax.jit(jax.jacfwd(lambda t: (along(t),) * 2, has_aux=True))
    forward = value_and_jacobian(zero)[0]
    reverse = jax.jit(jax.grad(lambda t: weight @ along(t)))(zero)
    assert_close(reverse, weight @ forward, 1e-10)
    for k, name in enumerate(["q", "v", "a or tau", "f_ext"]):
        expected = difference_quotient(lambda t: value_and_jacobian(t)[1], np.zeros(4), np.eye(4)[k])
        assert_close(forward[:, k], expected, 1e-6, name)


def test_kinematics_mass_energy_and_momentum_match_differences(mixed, request):
    """A scalar of each: poses, Jacobian, J̇v, M, C, energies, momentum; `make test-all` one by one."""
    sys = mixed
    q, v = (x[0] for x in states(sys, seed=7)[:2])
    rng = np.random.default_rng(8)
    dq, dv = (jnp.asarray(rng.standard_normal(sys.nv)) for _ in range(2))
    frame = sys.body_names[-1]

    def quantities(t):
        x, w = rbd.integrate(sys, q, t * dq), v + t * dv
        R, p = rbd.frame_pose(sys, x, frame)
        return {
            "pose": jnp.column_stack([R, p]),
            "jacobian": rbd.frame_jacobian(sys, x, frame, frame="body"),
            "drift": rbd.frame_jacobian_dot_v(sys, x, w, frame),
            "mass matrix": rbd.mass_matrix(sys, x),
            "energy": rbd.energy(sys, x, w),
            "momentum": rbd.centroidal_momentum(sys, x, w),
            "center of mass": rbd.center_of_mass(sys, x),
            "coriolis": rbd.coriolis_matrix(sys, x, w),
        }

    sizes = jax.eval_shape(quantities, 0.0)
    weights = {k: jnp.asarray(rng.standard_normal(s.shape)) for k, s in sizes.items()}
    score = lambda t: {k: jnp.sum(weights[k] * y) for k, y in quantities(t).items()}  # noqa: E731

    @jax.jit
    def slope_and_scores(t, scale):
        def total(t):
            scores = score(t)
            return sum(y / scale[k] for k, y in scores.items()), scores

        return jax.grad(total, has_aux=True)(t)

    ones = dict.fromkeys(sizes, np.array(1.0))  # an array as those below: one program
    value = lambda t: slope_and_scores(t, ones)[1]  # noqa: E731
    points = {k: value(1e-3 * k) for k in (-2, -1, 1, 2)}
    expected = {k: difference_quotient(lambda t, k=k: points[round(1e3 * t)][k], 0.0, 1.0) for k in sizes}
    assert_close(slope_and_scores(0.0, expected)[0], len(sizes), 1e-6)
    if request.config.getoption("--all-robots"):
        for mode, jacobian in {"reverse": jax.jacrev, "forward": jax.jacfwd}.items():
            ours = jax.jit(jacobian(score))(0.0)
            for key in sizes:
                assert_close(ours[key], expected[key], 1e-6, f"{key}, {mode}")


MODEL = [
    *("mass", "com", "inertia", "joint_position", "joint_quaternion", "axis", "axis2", "pitch"),
    *("armature", "gravity", "frame_position", "frame_quaternion"),
]


def test_every_model_parameter_matches_differences(mixed):
    """Gradients of a cost of forward and inverse dynamics with respect to every kind of parameter."""
    sys = mixed
    batch = states(sys, 3, seed=9)

    def cost(sys):
        def one(q, v, a, tau, f):
            return jnp.sum(rbd.forward_dynamics(sys, q, v, tau, f) ** 2) + jnp.sum(
                jnp.sin(rbd.inverse_dynamics(sys, q, v, a, f))
            )

        return jnp.sum(jax.vmap(one)(*batch))

    gradient = jax.jit(jax.grad(cost))(sys)
    value_and_tangent = jax.jit(lambda sys, d: jax.jvp(cost, (sys,), (d,)))
    rng = np.random.default_rng(10)
    for leaf in MODEL:
        value = getattr(sys, leaf)
        direction = jnp.asarray(rng.standard_normal(value.shape))
        only = dataclasses.replace(jax.tree.map(jnp.zeros_like, sys), **{leaf: direction})
        moved = lambda t, leaf=leaf, x=value, d=direction: sys.replace(**{leaf: x + t * d})  # noqa: E731
        at = lambda t, moved=moved, d=only: value_and_tangent(moved(t), d)[0]  # noqa: E731
        expected = difference_quotient(at, 0.0, 1.0, h=1e-4)
        slope = float(jnp.sum(getattr(gradient, leaf) * direction))
        assert slope == pytest.approx(float(expected), rel=1e-5), leaf
        assert float(value_and_tangent(sys, only)[1]) == pytest.approx(slope, rel=1e-9), leaf


def test_passive_parameters_match_differences_through_a_step():
    """Damping, springs, friction, limits and gains act through `step` and have gradients there."""
    sys = rbd.zoo.arm7()
    nv = sys.nv
    rng = np.random.default_rng(11)
    sys = sys.replace(
        damping=jnp.asarray(rng.uniform(0.1, 1, nv)),
        stiffness=jnp.asarray(rng.uniform(1, 5, nv)),
        spring_reference=jnp.asarray(rng.uniform(-1, 1, nv)),
        friction=jnp.asarray(rng.uniform(0.1, 1, nv)),
        lower=jnp.full(nv, -0.3),
        upper=jnp.full(nv, 0.3),
    )
    state = rbd.State(jnp.asarray(rng.uniform(-1, 1, nv)), jnp.asarray(rng.uniform(-0.02, 0.02, nv)))
    weight = jnp.asarray(rng.standard_normal(nv))

    @jax.jit
    def cost(sys):
        after = rbd.step(sys, state, integrator=rbd.SemiImplicitEuler(dt=1e-2)).value
        return weight @ after.v

    gradient = jax.jit(jax.grad(cost))(sys)
    for leaf in ("damping", "stiffness", "spring_reference", "friction", "lower", "upper"):
        value = getattr(sys, leaf)
        direction = jnp.asarray(rng.standard_normal(value.shape))
        expected = difference_quotient(
            lambda t, leaf=leaf, value=value, d=direction: cost(sys.replace(**{leaf: value + t * d})),
            0.0,
            1.0,
            h=1e-4,
        )
        assert float(jnp.sum(getattr(gradient, leaf) * direction)) == pytest.approx(
            float(expected), rel=1e-6, abs=1e-12
        ), leaf


# --- higher orders and compositions --------------------------------------------------------------------


SECOND_ORDER = {
    "forward": (("revolute", "prismatic"), rbd.forward_dynamics),  # rules written by hand
    "inverse": (("revolute", "spherical"), rbd.inverse_dynamics),  # sweeps that know their adjoints
}


@pytest.mark.parametrize("kind", ["forward", pytest.param("inverse", marks=pytest.mark.all_robots)])
def test_second_derivatives_in_every_order_of_modes(kind, request):
    """Curvature of a cost along a direction: forward, reverse and mixed, and differences of the gradient.

    Compiling takes long, so `make test` is content with forward over reverse.
    """
    types, function = SECOND_ORDER[kind]
    sys = rbd.zoo.random_tree(3, seed=2, joint_types=types)
    q, v, _, tau, _ = (x[0] for x in states(sys, seed=12))
    d = jnp.asarray(np.random.default_rng(13).standard_normal(2 * sys.nv))

    def cost(x):
        dq, dv = jnp.split(x, 2)
        return jnp.sum(jnp.sin(0.1 * function(sys, rbd.integrate(sys, q, dq), v + dv, tau)))

    slope = lambda x: jax.jvp(cost, (x,), (d,))[1]  # noqa: E731
    gradient = jax.jit(jax.grad(cost))
    zero = jnp.zeros_like(d)
    expected = difference_quotient(gradient, np.zeros(len(d)), np.asarray(d), h=1e-4)
    ways = {
        "forward over reverse": lambda x: jax.jvp(jax.grad(cost), (x,), (d,))[1],
        "reverse over forward": jax.grad(slope),
        "reverse over reverse": jax.grad(lambda x: jax.grad(cost)(x) @ d),
    }
    if not request.config.getoption("--all-robots"):
        assert_close(jax.jit(ways["forward over reverse"])(zero), expected, 1e-6)
        return
    for name, way in ways.items():
        assert_close(jax.jit(way)(zero), expected, 1e-6, name)
    twice = jax.jit(lambda x: jax.jvp(slope, (x,), (d,))[1])(zero)
    assert float(twice) == pytest.approx(float(expected @ d), rel=1e-6)


@pytest.mark.all_robots  # `make test` has test_sums_over_a_batch_count_every_state_once
def test_vmap_of_grad_and_grad_of_vmap(mixed):
    """The gradient with respect to a shared model is the sum of the gradients of each state's own."""
    sys = mixed
    q, v, a, _, _ = states(sys, 5, seed=14)

    def cost(sys, q, v, a):
        return jnp.sum(jnp.sin(rbd.inverse_dynamics(sys, q, v, a)))

    shared = jax.jit(jax.grad(lambda s: jnp.sum(jax.vmap(cost, (None, 0, 0, 0))(s, q, v, a))))(sys)
    single = jax.jit(jax.vmap(jax.grad(cost), (None, 0, 0, 0)))(sys, q, v, a)
    for mine, theirs in zip(jax.tree.leaves(shared), jax.tree.leaves(single), strict=True):
        assert_close(mine, jnp.sum(theirs, 0), 1e-10)
    batch = lambda s, v: jnp.sum(jax.vmap(cost, (None, 0, None, None))(s, q, v, a[0]))  # noqa: E731
    nested = jax.jit(jax.vmap(jax.grad(batch), (None, 0)))(sys, v)
    alone = jax.jit(jax.grad(batch))(sys, v[3])
    for mine, theirs in zip(jax.tree.leaves(nested), jax.tree.leaves(alone), strict=True):
        assert_close(mine[3], theirs, 1e-10)


def test_a_tangent_transposes_in_some_of_its_directions():
    """With dv held, da is affine in (dq, dtau): its transpose there is that of all directions at dv = 0."""
    sys = rbd.zoo.double_pendulum()
    q, v, _, (tau, *_), _ = states(sys, 3, seed=22)
    rng = np.random.default_rng(23)
    weight, dv = (jnp.asarray(rng.standard_normal(q.shape)) for _ in range(2))
    # tau is shared by the batch, so its cotangent is a sum
    forward = jax.vmap(lambda q, v, tau: rbd.forward_dynamics(sys, q, v, tau), (0, 0, None))

    def push(dq, dtau):
        return jax.jvp(forward, (q, v, tau), (dq, dv, dtau))[1]

    ours = jax.jit(lambda w: jax.linear_transpose(push, q, tau)(w))(weight)
    by_q, _, by_tau = jax.jit(lambda w: jax.vjp(forward, q, v, tau)[1](w))(weight)
    for mine, theirs in zip(ours, (by_q, by_tau), strict=True):
        assert_close(mine, theirs, 1e-12)


# --- where peers return NaN ----------------------------------------------------------------------------


def test_gradients_at_special_states():
    """Identity rotation, limbs straight, on a limit, without friction, at rest and moving: equal to
    differences."""
    sys = rbd.zoo.quadruped()
    sys = sys.replace(upper=jnp.where(jnp.arange(sys.nv) == 8, 0.0, sys.upper))
    q0 = rbd.neutral(sys)  # straight legs, identity rotation, joint 8 on its limit
    zero = jnp.zeros(sys.nv)
    rng = np.random.default_rng(15)
    weight = jnp.asarray(rng.standard_normal(sys.nv))

    def scores(x):
        dq, dv, u = x
        q = rbd.integrate(sys, q0, dq)
        after = rbd.step(sys, rbd.State(q, dv), tau=u, integrator=rbd.SemiImplicitEuler(dt=1e-2)).value
        return {
            "forward dynamics": weight @ rbd.forward_dynamics(sys, q, dv, u),
            "inverse dynamics": weight @ rbd.inverse_dynamics(sys, q, dv, u),
            "step": weight @ after.v + weight @ rbd.difference(sys, q0, after.q),
            "energy": rbd.energy(sys, q, dv),
            "difference": weight @ rbd.difference(sys, q0, q),
            "passive": weight @ rbd.passive_force(sys, q, dv),
        }

    rest = (zero, zero, zero)
    dq, dv, u = (jnp.asarray(x) for x in rng.standard_normal((3, sys.nv)))
    moving = (0.1 * dq.at[8].set(-3.0), dv, u)  # off the limit, whose damper has a kink there
    by_reverse = jax.jit(jax.jacrev(scores))
    value_and_tangent = jax.jit(lambda x, d: jax.jvp(scores, (x,), (d,)))
    for at in (rest, moving):
        reverse = by_reverse(at)
        for k, name in enumerate(("q", "v", "u")):
            direction = [zero, zero, zero]
            direction[k] = jnp.asarray(rng.standard_normal(sys.nv))
            moved = lambda h, at=at, d=tuple(direction): value_and_tangent(  # noqa: E731
                tuple(x + h * y for x, y in zip(at, d)), d
            )
            points, forward = {j: moved(1e-5 * j)[0] for j in (-2, -1, 1, 2)}, moved(0.0)[1]
            for key, gradient in reverse.items():
                assert np.isfinite(gradient[k]).all() and np.isfinite(forward[key]), (key, name)
                # across the limit spring's kink both give the mean of the two sides
                slope = float(
                    difference_quotient(lambda t, p=points, key=key: p[round(1e5 * t)][key], 0.0, 1.0, h=1e-5)
                )
                along = float(gradient[k] @ direction[k])
                assert along == pytest.approx(slope, rel=1e-5, abs=1e-5), (key, name)
                scale = float(jnp.abs(gradient[k]).max())
                assert float(forward[key]) == pytest.approx(along, rel=1e-9, abs=1e-9 * scale), (key, name)


# --- discrete time -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "integrator",
    [rbd.SemiImplicitEuler(dt=5e-3), pytest.param(rbd.RK4(dt=5e-3), marks=pytest.mark.all_robots)],
    ids=["euler", "rk4"],
)
def test_linearize_matches_differences(integrator):
    """(A, B) of a floating robot with damping, batched, column by column."""
    sys = rbd.zoo.random_tree(4, seed=3, joint_types=("revolute", "spherical", "free"))
    sys = sys.replace(damping=jnp.full(sys.nv, 0.3))
    q, v, u, _, _ = states(sys, 2, seed=16)
    A, B = jax.jit(jax.vmap(lambda q, v, u: rbd.linearize(sys, rbd.State(q, v), u, integrator)))(q, v, u)
    nv = sys.nv
    assert A.shape == (2, 2 * nv, 2 * nv) and B.shape == (2, 2 * nv, nv)
    advance = jax.jit(lambda q, v, u: rbd.step(sys, rbd.State(q, v), u, integrator).value)
    nominal = advance(q[1], v[1], u[1])

    @jax.jit
    def moved(x):
        dq, dv, du = jnp.split(x, 3)
        start = rbd.State(rbd.integrate(sys, q[1], dq), v[1] + dv)
        new = rbd.step(sys, start, u[1] + du, integrator).value
        return jnp.concatenate([rbd.difference(sys, nominal.q, new.q), new.v - nominal.v])

    numeric = np.stack([difference_quotient(moved, np.zeros(3 * nv), e) for e in np.eye(3 * nv)], 1)
    assert_close(np.concatenate([A[1], B[1]], 1), numeric, 1e-6)


def test_gradient_of_a_thousand_steps_matches_differences():
    """A damped arm under control: initial state, controls, gains and masses, with and without checkpoints."""
    sys = rbd.zoo.arm7()
    sys = sys.replace(damping=jnp.full(sys.nv, 2.0))
    rng = np.random.default_rng(17)
    q0, v0, target = (jnp.asarray(rng.uniform(-0.5, 0.5, sys.nv)) for _ in range(3))
    steps = 1000
    feedforward = jnp.asarray(rng.uniform(-1, 1, (10, sys.nv)))

    def cost(x, checkpoint):
        s = sys.replace(mass=sys.mass * jnp.exp(x["mass"]))
        policy = lambda q, v, t: (  # noqa: E731
            x["gain"] * (target - q) - 1.0 * v + x["u"][jnp.minimum((t * 10).astype(int), 9)]
        )
        path = rbd.rollout(
            s,
            rbd.State(q0 + x["q"], v0 + x["v"]),
            policy,
            rbd.SemiImplicitEuler(dt=1e-3),
            steps=steps,
            checkpoint=checkpoint,
        ).value
        return jnp.sum((path.q[-1] - target) ** 2) + 1e-2 * jnp.mean(path.v**2)

    x = {
        "q": jnp.zeros(sys.nv),
        "v": jnp.zeros(sys.nv),
        "gain": jnp.full(sys.nv, 3.0),
        "u": feedforward,
        "mass": jnp.zeros(len(sys.mass)),
    }
    gradient = jax.jit(jax.grad(lambda x: cost(x, "sqrt")))(x)
    value = jax.jit(lambda x: cost(x, None))
    for key in x:
        direction = jnp.asarray(rng.standard_normal(x[key].shape))
        # a small step: dry friction bends within 0.01 rad/s
        expected = difference_quotient(
            lambda t, key=key, d=direction: value(x | {key: x[key] + t * d}), 0.0, 1.0, h=1e-5
        )
        assert float(jnp.sum(gradient[key] * direction)) == pytest.approx(float(expected), rel=1e-5), key


def test_checkpoints_and_what_is_kept_do_not_change_numbers(request):
    """Segments with a remainder, of which all states or the last are kept: same states, same gradient."""
    sys = rbd.zoo.double_pendulum()
    state = rbd.State(jnp.array([0.4, -0.3]), jnp.zeros(2))
    controls = jnp.asarray(np.random.default_rng(18).standard_normal((23, 2)))

    def run(u, **options):
        path = rbd.rollout(sys, state, u, rbd.SemiImplicitEuler(dt=1e-2), **options).value
        return jnp.sum(jnp.sin(path.q[-1])), path

    (_, path), gradient = jax.jit(jax.value_and_grad(run, has_aux=True))(controls)
    every = request.config.getoption("--all-robots")
    for options in ({"keep": "last", "checkpoint": 7}, {"checkpoint": 7})[: 2 if every else 1]:
        (_, mine), slope = jax.jit(jax.value_and_grad(partial(run, **options), has_aux=True))(controls)
        kept = slice(-1, None) if "keep" in options else slice(None)
        assert_close(mine.q, path.q[kept], 1e-13, str(options))
        assert_close(mine.v, path.v[kept], 1e-13, str(options))
        assert_close(slope, gradient, 1e-13, str(options))


@pytest.mark.all_robots
@pytest.mark.parametrize(("implicit", "vectors"), [(False, 4), (True, 6)], ids=["explicit", "implicit"])
def test_memory_of_a_rollout_gradient(implicit, vectors):
    """Every step keeps q, v, tau and a, nothing of the forces; with checkpoints it grows at most like √T.

    Implicit dampers are part of M, and with dry friction they depend on v: a damper and an armature more.
    """
    sys, integrator = rbd.zoo.arm7(), rbd.SemiImplicitEuler(dt=1e-3, implicit_damping=implicit)

    def temporaries(steps, checkpoint):
        def cost(q, v, gains):
            damp = lambda q, v, t: -gains * v  # noqa: E731
            how = {"steps": steps, "checkpoint": checkpoint, "keep": "last"}
            path = rbd.rollout(sys, rbd.State(q, v), damp, integrator, **how)
            return jnp.sum(path.value.q**2) + jnp.sum(path.value.v**2)

        x = jax.ShapeDtypeStruct((sys.nv,), sys.dtype)
        compiled = jax.jit(jax.grad(cost, (0, 1, 2))).lower(x, x, x).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    a_step = (temporaries(512, None) - temporaries(256, None)) / 256
    assert a_step <= vectors * sys.nv * sys.dtype.itemsize
    assert temporaries(4096, "sqrt") <= 64**0.6 * temporaries(64, "sqrt")


@pytest.mark.parametrize("checkpoint", [0, -3, True, 2.5, "log"])
def test_bad_checkpoints_are_refused(checkpoint):
    sys = rbd.zoo.double_pendulum()
    with pytest.raises(rbd.ArgumentError, match="checkpoint.*positive"):
        rbd.rollout(sys, rbd.State.at_rest(sys), steps=5, checkpoint=checkpoint)


def test_an_unknown_choice_of_states_is_refused():
    sys = rbd.zoo.double_pendulum()
    with pytest.raises(rbd.ArgumentError, match="keep is 'first'.*last"):
        rbd.rollout(sys, rbd.State.at_rest(sys), steps=5, keep="first")


# --- physical inertias ---------------------------------------------------------------------------------


def test_log_cholesky_round_trip_and_validity():
    """Coordinates and back; any ten numbers give a positive mass and a pseudo-inertia that is definite."""
    sys = robots.load(robots.G1, "free")
    theta = rbd.log_cholesky(sys)
    back = rbd.with_log_cholesky(sys, theta)
    for leaf in ("mass", "com", "inertia"):
        assert_close(getattr(back, leaf), getattr(sys, leaf), 1e-12, leaf)
    near = theta + 0.1
    assert_close(rbd.log_cholesky(rbd.with_log_cholesky(sys, near)), near, 1e-9)
    moved = theta + jnp.asarray(np.random.default_rng(19).normal(0, 1.0, theta.shape))
    wild = rbd.with_log_cholesky(sys, moved)
    index = np.flatnonzero(np.asarray(sys.mass) > 0)
    assert (np.asarray(wild.mass)[index] > 0).all()
    for xx, xy, xz, yy, yz, zz in np.asarray(wild.inertia)[index]:
        moments = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        assert moments[0] > 0
        assert moments[2] <= moments[0] + moments[1] + 1e-12 * moments[2]


def test_log_cholesky_gradient_matches_differences():
    sys = rbd.zoo.arm7()
    links = list(sys.link_names[2:5])
    theta = rbd.log_cholesky(sys, links)
    q, v, a, _, _ = (x[0] for x in states(sys, seed=20))
    cost = jax.jit(
        lambda theta: jnp.sum(rbd.inverse_dynamics(rbd.with_log_cholesky(sys, theta, links), q, v, a) ** 2)
    )
    direction = np.random.default_rng(21).standard_normal(theta.shape)
    slope = float(jnp.sum(jax.jit(jax.grad(cost))(theta) * direction))
    assert slope == pytest.approx(float(difference_quotient(cost, theta, direction)), rel=1e-7)


def test_log_cholesky_refuses_what_it_cannot_take():
    sys = rbd.zoo.arm7()
    with pytest.raises(rbd.ArgumentError, match=r"\(10,\).*expected \(2, 10\)"):
        rbd.with_log_cholesky(sys, jnp.zeros(10), sys.link_names[:2])
    with pytest.raises(rbd.RbdError, match="no link named 'hand'"):
        rbd.log_cholesky(sys, ["hand"])
    flat = sys.replace(inertia=sys.inertia.at[3].set(jnp.array([1.0, 0, 0, 1.0, 0, 5.0])))
    with pytest.raises(rbd.ArgumentError, match=f"{sys.link_names[3]}.*triangle"):
        rbd.log_cholesky(flat)
