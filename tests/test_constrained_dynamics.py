"""Constrained dynamics: every solver against NumPy's least squares and Pinocchio, on robots and loops."""

from __future__ import annotations

from functools import cache

import chex
import constrained_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
import robots

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd.constraints import combine, connect, hinge, weld
from jaxrbd.errors import ArgumentError

SOLVERS = {s.__name__: s() for s in (rbd.ConstrainedABA, rbd.ProxPV, rbd.ProxLTL, rbd.ProxLTLs)}
QUICK = ("solo12 F3⁴",)  # rows that depend on each other and loops: further below
NAMES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.all_robots) for n in cases.CASES]


def some_solvers(request):
    """One along the links and one in joint space; all with --all-robots."""
    every = request.config.getoption("--all-robots")
    return {n: s for n, s in SOLVERS.items() if every or n in ("ConstrainedABA", "ProxLTL")}


def terms(sys, constraints):
    """M, b, J and c = a* - J̇v of a batch of states."""

    def at(q, v):
        c = con.constraint_target(sys, constraints, q, v) - con.constraint_acceleration(
            sys, constraints, q, v
        )
        J = con.constraint_jacobian(sys, constraints, q)
        return rbd.mass_matrix(sys, q), rbd.bias_force(sys, q, v), J, c

    return jax.jit(jax.vmap(at))


def solutions(sys, constraints, solvers):
    """name -> Solution for a batch of states, all solvers in one program."""

    def at(q, v, tau):
        return {
            name: rbd.constrained_dynamics(sys, q, v, tau, constraints, solver)
            for name, solver in solvers.items()
        }

    return jax.jit(jax.vmap(at))


@cache
def standing_solo():
    """solo12 on four feet: System, constraints, states on J v = 0, the reference and what solvers answer."""
    sys, constraints, _ = cases.case("solo12 F3⁴")
    q, v, tau = cases.states(sys, 3)
    v, *expected = reference(sys, constraints, q, v, tau)
    return sys, constraints, (q, v, tau), expected, solutions(sys, constraints, SOLVERS)(q, v, tau)


def reference(sys, constraints, q, v, tau, project=True):
    """Feasible velocities, accelerations and least-norm multipliers, by NumPy."""
    at = terms(sys, constraints)
    M, b, J, c = (np.asarray(x) for x in at(q, v))
    if project:
        v = np.stack([cases.feasible(*x) for x in zip(M, J, v)])
        M, b, J, c = (np.asarray(x) for x in at(q, v))
    found = [cases.dense(*x) for x in zip(M, b, J, c, tau)]
    a, lam = (np.stack(x) for x in zip(*found))
    return v, a, lam, (M, b, J, c)


@pytest.mark.parametrize("name", NAMES)
def test_solvers_agree_with_least_squares(name):
    if name in QUICK:
        *_, (a, lam, (_, _, J, _)), answers = standing_solo()
    else:
        sys, constraints, closed = cases.case(name)
        q, v, tau = cases.states(sys, 3, q=closed)
        v, a, lam, (_, _, J, _) = reference(sys, constraints, q, v, tau)
        answers = solutions(sys, constraints, SOLVERS)(q, v, tau)
    for solver, found in answers.items():
        assert robots.relative_error(found.value.a, a) < 1e-9, solver
        assert robots.relative_error(found.value.lam, lam) < 1e-7, solver
        joint_force = np.einsum("bmn,bm->bn", J, np.asarray(found.value.lam))
        assert robots.relative_error(joint_force, np.einsum("bmn,bm->bn", J, lam)) < 1e-8, solver
        assert found.converged.all(), (solver, found.stats)


class PinocchioContacts:
    """constraintDynamics of Pinocchio for contacts of bodies with the world or with each other."""

    def __init__(self, urdf, contacts):
        self.twin = robots.Twin(robots.load(urdf, "free"), robots.pinocchio_model(urdf, "free"))
        model = self.twin.model
        kinds = {3: pin.ContactType.CONTACT_3D, 6: pin.ContactType.CONTACT_6D}
        self.models = pin.StdVec_RigidConstraintModel()
        for size, *frames in contacts:
            placed = []
            for frame in frames:
                f = model.frames[model.getFrameId(frame, pin.FrameType.BODY)]
                placed += [f.parentJoint, f.placement]
            self.models.append(pin.RigidConstraintModel(kinds[size], model, *placed, pin.LOCAL))

    def accelerations(self, q, v, tau):
        twin, model = self.twin, self.twin.model
        data = model.createData()
        datas = pin.StdVec_RigidConstraintData()
        for constraint in self.models:
            datas.append(constraint.createData())
        qp, (T, Tdot) = twin.q(q), twin.transform(q, v)
        pin.initConstraintDynamics(model, data, self.models, datas)
        settings = pin.ProximalSettings(1e-14, 1e-12, 50)
        tau_pin = np.linalg.solve(T.T, tau)
        a = pin.constraintDynamics(model, data, qp, T @ v, tau_pin, self.models, datas, settings)
        return np.linalg.solve(T, a - Tdot @ v)


def test_accelerations_of_a_standing_robot_agree_with_pinocchio():
    _, _, state, _, answers = standing_solo()
    feet = ("FL_FOOT", "HR_FOOT", "FR_FOOT", "HL_FOOT")
    peer = PinocchioContacts(robots.SOLO12, [(3, f) for f in feet])
    expected = np.stack([peer.accelerations(*x) for x in zip(*state)])
    for solver, found in answers.items():
        assert robots.relative_error(found.value.a, expected) < 1e-9, solver


@pytest.mark.all_robots
@pytest.mark.parametrize(
    ("urdf", "contacts"),
    [
        (robots.SOLO12, [(3, "FL_FOOT"), (3, "FR_FOOT", "HL_FOOT"), (3, "HR_FOOT")]),
        (robots.TALOS, [(6, f) for f in (*cases.FEET, *cases.HANDS)]),
        (robots.TALOS, [(6, cases.FEET[0]), (6, *cases.HANDS)]),
    ],
    ids=["solo12 with a loop", "talos F6²H6²", "talos holds hands"],
)
def test_accelerations_agree_with_pinocchio(urdf, contacts):
    peer = PinocchioContacts(urdf, contacts)
    sys = peer.twin.sys
    q, v, tau = cases.states(sys, 3)
    make = {3: connect, 6: weld}
    constraints = combine(*(make[size](sys, *frames) for size, *frames in contacts))
    if any(len(c) > 2 for c in contacts):  # loops must be closed
        loops_only = combine(*(make[n](sys, *f) for n, *f in contacts if len(f) > 1))
        close = jax.jit(
            jax.vmap(lambda q: rbd.project(sys, loops_only, q, settings=rbd.Projection(50, rbd.ProxLTL())))
        )
        closed = close(q)
        assert closed.converged.all(), closed.stats
        q = np.asarray(closed.value.q)
    v, *_ = reference(sys, constraints, q, v, tau)  # on J v = 0 conventions for J̇v agree
    expected = np.stack([peer.accelerations(*x) for x in zip(q, v, tau)])
    for solver, found in solutions(sys, constraints, SOLVERS)(q, v, tau).items():
        assert robots.relative_error(found.value.a, expected) < 1e-9, solver


def redundant(sys):
    """Two welds on adjacent links, one of them twice: 18 rows."""
    return combine(*(weld(sys, f) for f in ("left_foot", "left_shank", "left_foot")))


def test_redundant_and_singular_rows_converge_to_the_exact_acceleration(request):
    sys = rbd.zoo.humanoid()
    constraints = combine(redundant(sys), connect(sys, "right_foot"))
    q, v, tau = cases.states(sys, 3)
    q = q.copy()
    for joint in ("right_knee", "right_ankle_pitch", "right_hip_pitch"):  # a straight leg
        q[:, sys.q_index(joint)] = 0
    v, a, _, (_, _, J, _) = reference(sys, constraints, q, v, tau)
    assert np.linalg.matrix_rank(J[0], tol=1e-8) < constraints.rows
    for solver, found in solutions(sys, constraints, some_solvers(request))(q, v, tau).items():
        assert robots.relative_error(found.value.a, a) < 1e-9, solver
        assert found.converged.all(), solver


def test_contradicting_rows_end_in_least_squares_and_say_so(request):
    sys = rbd.zoo.humanoid()
    constraints = combine(redundant(sys), weld(sys, "left_foot", target=np.ones(6)))
    q, v, tau = cases.states(sys, 3)
    every = request.config.getoption("--all-robots")
    chosen = SOLVERS if every else ("ConstrainedABA", "ProxLTL")
    solvers = {n: getattr(rbd, n)(iterations=30) for n in chosen}
    _, a, _, (_, _, J, c) = reference(sys, constraints, q, v, tau, project=False)
    least = np.abs(np.einsum("bmn,bn->bm", J, a) - c).max(1)
    for solver, found in solutions(sys, constraints, solvers)(q, v, tau).items():
        assert robots.relative_error(found.value.a, a) < 1e-6, solver
        assert (np.asarray(found.result) == rbd.Result.stationary).all(), solver
        np.testing.assert_allclose(found.stats.residual, least, rtol=1e-5)


def test_weights_decide_between_rows_that_contradict_each_other():
    sys = rbd.zoo.arm7()
    constraints = combine(connect(sys, "tool", target=[1.0, 0, 0]), connect(sys, "tool", weight=3.0))
    q, v, tau = (x[0] for x in cases.states(sys, 1))
    found = {s: rbd.constrained_dynamics(sys, q, v, tau, constraints, s()) for s in (rbd.Dense, rbd.ProxLTL)}
    for answer in found.values():
        J, c = (f(sys, constraints, q) for f in (con.constraint_jacobian, lambda *x: constraints.target))
        bias = con.constraint_acceleration(sys, constraints, q, v)
        rows = (J @ answer.value.a + bias - c).reshape(2, 3)
        np.testing.assert_allclose(rows, [[-0.75, 0, 0], [0.25, 0, 0]], atol=1e-6)
        assert answer.result == rbd.Result.stationary
    np.testing.assert_allclose(*(x.value.a for x in found.values()), atol=1e-6)


def test_a_tolerance_stops_early_and_fixed_iterations_record_every_residual(request):
    sys, constraints, _ = cases.case("arm7 H6")
    q, v, tau = cases.states(sys, 4)
    chosen = SOLVERS if request.config.getoption("--all-robots") else ("ConstrainedABA",)
    solvers = {n: getattr(rbd, n)(iterations=30, tolerance=1e-9) for n in chosen}
    _, a, _, _ = reference(sys, constraints, q, v, tau, project=False)
    for solver, found in solutions(sys, constraints, solvers)(q, v, tau).items():
        assert (found.stats.iterations < 8).all() and (found.stats.iterations > 1).all(), solver
        assert (found.stats.residual < 1e-9 * 10).all(), solver
        assert robots.relative_error(found.value.a, a) < 1e-7, solver
    fixed = solutions(sys, constraints, {"aba": rbd.ConstrainedABA(mu=1e3, iterations=6)})(q, v, tau)["aba"]
    assert fixed.stats.history.shape == (4, 6)
    assert (np.diff(np.log(fixed.stats.history[:, :4])) < 0).all()


def test_a_warm_start_needs_fewer_iterations():
    sys, constraints, _ = cases.case("arm7 H6")
    q, v, tau = (x[0] for x in cases.states(sys, 1))
    slow = rbd.ConstrainedABA(mu=1e4, iterations=60, tolerance=1e-8)
    cold = rbd.constrained_dynamics(sys, q, v, tau, constraints, slow)
    warm = rbd.constrained_dynamics(sys, q, v, tau, constraints, slow, warm_start=cold.value.lam)
    assert cold.stats.iterations > 5 > warm.stats.iterations


def test_soft_rows_are_springs_and_weights_scale_them():
    """[CABA] VII-A: (M + mu w JᵀJ) a = M a_free + mu w Jᵀ c."""
    sys = rbd.zoo.arm7()
    constraints = weld(sys, "tool", weight=0.25)
    q, v, tau = (x[0] for x in cases.states(sys, 1))
    M, b, J, c = (np.asarray(x)[0] for x in terms(sys, constraints)(q[None], v[None]))

    def spring(mu, weight, tau):
        held = constraints.replace(weight=weight[None])
        found = rbd.constrained_dynamics(sys, q, v, tau, held, rbd.Soft(mu=mu)).value
        return jnp.sum(found.a**2), found

    x = (80.0, jnp.asarray(0.25), jnp.asarray(tau))
    d = (7.0, jnp.asarray(-0.1), jnp.linspace(-1, 1, 7))
    along = lambda t: spring(*(a + t * b for a, b in zip(x, d)))  # noqa: E731
    run = jax.jit(lambda t: jax.jvp(along, (t,), (1.0,), has_aux=True))
    _, slope, found = run(0.0)
    expected = np.linalg.solve(M + 20 * J.T @ J, tau - b + 20 * J.T @ c)
    np.testing.assert_allclose(found.a, expected, rtol=1e-10)
    np.testing.assert_allclose(found.lam, 20 * (c - J @ expected), rtol=1e-8)
    np.testing.assert_allclose(slope, (run(1e-4)[0] - run(-1e-4)[0]) / 2e-4, rtol=1e-6)
    for bad in (lambda: rbd.Soft(gradients="implicit"), lambda: rbd.Dense(gradients="unrolled")):
        with pytest.raises(ArgumentError, match="Use '"):
            bad()


def test_the_classic_resolution_agrees_where_it_exists():
    sys, constraints, _ = cases.case("arm7 H6")
    q, v, tau = cases.states(sys, 3)
    _, a, lam, _ = reference(sys, constraints, q, v, tau, project=False)
    some = {"classic": rbd.Classic(), "dense": rbd.Dense()}
    for found in solutions(sys, constraints, some)(q, v, tau).values():
        assert robots.relative_error(found.value.a, a) < 1e-9
        assert robots.relative_error(found.value.lam, lam) < 1e-8


def test_every_kind_of_row_on_a_forest(request):
    """Two trees with rows between them, on joints, on a free base's freedoms and at velocity level."""
    sys = rbd.combine(rbd.zoo.arm7(), rbd.zoo.quadruped())
    name = {f.split("/")[-1]: f for f in sys.frame_names}
    joint = {j.split("/")[-1]: j for j in sys.joint_names}
    matrix = np.zeros((2, sys.nv))
    base = sys.v_index(joint["root"]).start
    matrix[0, base], matrix[0, base + 4], matrix[1, base + 5], matrix[1, 2] = 1.0, 0.5, 1.0, -0.3
    constraints = combine(
        hinge(sys, name["tool"], name["trunk"]),
        con.distance(sys, name["FL_foot"], name["elbow"], length=0.4),
        con.rolling(sys, name["RR_foot"], radius=0.02),
        con.point_on_plane(sys, name["RL_foot"], name["tool"], normal=(1, 0, 1)),
        con.coupling(sys, joint["FR_thigh"], joint["FR_calf"], ratio=-0.5),
        con.velocity_rows(sys, matrix),
        con.hold(sys, name["RL_calf"], ["turn_y"]),
    )
    q, v, tau = cases.states(sys, 3)
    _, a, lam, _ = reference(sys, constraints, q, v, tau, project=False)
    for solver, found in solutions(sys, constraints, some_solvers(request))(q, v, tau).items():
        assert robots.relative_error(found.value.a, a) < 1e-9, solver
        assert robots.relative_error(found.value.lam, lam) < 1e-7, solver


def test_external_forces_act_under_constraints():
    sys, constraints, _ = cases.case("solo12 F3⁴")
    q, v, tau = (x[0] for x in cases.states(sys, 1))
    f_ext = np.random.default_rng(0).standard_normal((sys.nb, 6))
    found = rbd.constrained_dynamics(sys, q, v, tau, constraints, f_ext=f_ext)
    J = con.constraint_jacobian(sys, constraints, q)
    needed = rbd.inverse_dynamics(sys, q, v, found.value.a, f_ext)
    np.testing.assert_allclose(needed, tau + J.T @ found.value.lam, atol=1e-9)


FLOAT32 = ["solo12 F3⁴"]


@pytest.mark.parametrize(
    "name", [n if n in FLOAT32 else pytest.param(n, marks=pytest.mark.all_robots) for n in cases.CASES]
)
def test_float32_meets_rows_and_keeps_accelerations(name, request):
    sys, constraints, closed = cases.case(name)
    q, v, tau = cases.states(sys, 20, q=closed)
    v, *_ = reference(sys, constraints, q, v, tau)
    single = [x.astype(np.float32) for x in (q, v, tau)]
    # the reference starts from the rounded state, where redundant rows may contradict each other slightly
    rounded = [x.astype(np.float64) for x in single]
    _, a, _, (M, b, J, c) = reference(sys, constraints, *rounded, project=False)
    free = np.stack([np.linalg.solve(*x) for x in zip(M, rounded[2] - b)])
    wanted = np.abs(np.einsum("bmn,bn->bm", J, free) - c).max(1)
    low, con_low = sys.astype("float32"), jax.tree.map(lambda x: x.astype("float32"), constraints)
    fd = jax.jit(jax.vmap(lambda *x: rbd.forward_dynamics(low, *x)))(*single)
    own = robots.relative_error(fd, free)
    for solver, found in solutions(low, con_low, some_solvers(request))(*single).items():
        chex.assert_tree_all_finite(found.value, custom_message=solver)
        assert (np.asarray(found.stats.residual) < 1e-4 * wanted).all(), solver
        assert robots.relative_error(found.value.a, a) < max(1e-3, 3 * own), solver


def test_bad_input_is_named():
    sys = rbd.zoo.arm7()
    zeros = np.zeros(7)
    good = connect(sys, "tool")
    for match, bad in [
        ("no frame named 'hand'", lambda: weld(sys, "hand")),
        ("unknown direction 'up'", lambda: con.hold(sys, "tool", ["up"])),
        ("weight is -1", lambda: weld(sys, "tool", weight=-1.0)),
        ("mu is 0", lambda: rbd.ProxPV(mu=0.0)),
        ("cannot be coupled to itself", lambda: con.coupling(sys, "joint1", "joint1", ratio=1.0)),
        ("ratio= or polynomial=", lambda: con.coupling(sys, "joint1", "joint2")),
        ("expected a positive one", lambda: con.distance(sys, "tool", length=0.0)),
        ("same body", lambda: weld(sys, "tool", "link7")),
        ("must move", lambda: weld(sys, "world", "tool")),
        ("none is given", lambda: weld(sys, "tool", baumgarte=0.1)),
        ("positive time constant", lambda: weld(sys, "tool", q=zeros, baumgarte=-0.1)),
        ("one number per row", lambda: weld(sys, "tool", target=[1.0])),
        ("not zero", lambda: con.point_on_plane(sys, "tool", normal=(0, 0, 0))),
        ("radius is -1", lambda: con.rolling(sys, "tool", radius=-1)),
        ("no row zero", lambda: con.velocity_rows(sys, np.zeros((1, 7)))),
        ("declares no active loop", lambda: con.of_model(sys)),
        ("no constraints given", lambda: combine()),
        ("positive integer", lambda: rbd.ConstrainedABA(iterations=0)),
        ("fixed number of iterations", lambda: rbd.ProxLTL(tolerance=1e-8, gradients="unrolled")),
        ("expected 'implicit'", lambda: rbd.ProxLTL(gradients="both")),
        ("one iteration by definition", lambda: rbd.Soft(iterations=2)),
        ("expected Constraints", lambda: rbd.constrained_dynamics(sys, zeros, zeros, zeros, "tool")),
        ("expected ConstrainedABA", lambda: rbd.constrained_dynamics(sys, zeros, zeros, zeros, good, "LTL")),
        (
            "warm_start has shape",
            lambda: rbd.constrained_dynamics(sys, zeros, zeros, zeros, good, warm_start=zeros),
        ),
        (
            "another System",
            lambda: rbd.constrained_dynamics(
                sys, zeros, zeros, zeros, connect(rbd.zoo.humanoid(), "right_palm")
            ),
        ),
    ]:
        with pytest.raises(ArgumentError, match=match):
            bad()


def test_constraints_are_data():
    """vmap over anchors and jit over whole sets; rows can be found by name."""
    sys = rbd.zoo.arm7()
    q = np.linspace(0.1, 0.7, 7)
    both = combine(weld(sys, "elbow", name="middle", q=q), connect(sys, "tool", q=q))
    assert both.row_index("tool") == slice(6, 9) and both.rows == 9
    shifted = jax.vmap(lambda d: both.replace(position_b=both.position_b + d))(jnp.arange(3.0))
    error = jax.jit(jax.vmap(lambda c: con.constraint_error(sys, c, q)))(shifted)
    np.testing.assert_allclose(error[0], 0, atol=1e-14)
    np.testing.assert_allclose(error[2, 6:], -2, atol=1e-12)
