"""The rows of every kind of constraint: phi, J, J̇v against differences along a path and against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import robots
from scipy.spatial.transform import Rotation

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd.errors import ArgumentError


@pytest.fixture(scope="module")
def forest():
    """An arm beside a quadruped, moving: q, v, a."""
    sys = rbd.combine(rbd.zoo.arm7(), rbd.zoo.quadruped(), names=["arm", "dog"])
    return sys, *(x[0] for x in robots.random_states(sys, 1)[:3])


def met(sys, q, make, frame, to, turn=None, **options):
    """A constraint that is met at q, after a turn of its axes by a rotation vector."""
    R_a, p_a = rbd.frame_pose(sys, q, frame)
    R_b, p_b = (np.eye(3), np.zeros(3)) if to is None else rbd.frame_pose(sys, q, to)
    R = R_b.T @ R_a @ (np.eye(3) if turn is None else Rotation.from_rotvec(turn).as_matrix().T)
    return make(sys, frame, to=to, anchor=(R, R_b.T @ (p_a - p_b)), **options)


def every_kind(sys, q):
    """Between the arm and the dog, within the dog, and with the world."""
    matrix = np.zeros((2, sys.nv))
    matrix[0, 2], matrix[0, 9], matrix[1, 12] = 1.0, -0.5, 2.0
    hold = lambda *directions: lambda sys, frame, **options: con.hold(sys, frame, directions, **options)  # noqa: E731
    parts = [
        met(sys, q, con.weld, "arm/tool", "dog/FL_calf"),
        met(sys, q, con.weld, "dog/trunk", None),
        met(sys, q, con.hinge, "dog/RR_calf", "arm/link3", turn=(0, 0, 2.5)),
        met(sys, q, hold("turn_y", "turn_z", "x"), "arm/elbow", "dog/trunk", turn=(2.0, 0, 0)),
        met(sys, q, hold("turn_x", "turn_z"), "dog/FR_calf", None, turn=(0, -2.0, 0)),
        met(sys, q, hold("turn_x", "turn_y", "z"), "dog/FL_thigh", "dog/RL_calf", turn=(0, 0, 3.0)),
        con.connect(sys, "arm/tool", "dog/trunk", offset=(0.1, 0.2, -0.1), anchor=(0.3, 0, 0.1)),
        con.connect(sys, "dog/FL_foot", anchor=(1.0, 2.0, 3.0)),
        con.distance(sys, "dog/RL_foot", "arm/tool", length=0.4, offset=(0.1, 0, 0)),
        con.distance(sys, "dog/RL_foot", length=0.4),
        con.point_on_plane(sys, "dog/RR_foot", "arm/link5", normal=(1, 2, -1), point=(0.1, 0, 0)),
        con.coupling(sys, "arm/joint2", "dog/FL_calf", polynomial=(0.1, 0.5, -0.2, 0.3, 0.1)),
        con.rolling(sys, "dog/FR_foot", "arm/link2", radius=0.05, normal=(0, 1, 1)),
        con.rolling(sys, "dog/FL_foot", radius=0.05),
        con.velocity_rows(sys, matrix),
        con.hold(sys, "arm/tool", "turn_x", to="dog/trunk"),
    ]
    return con.combine(*parts)


def test_rows_are_rates_along_a_path(forest):
    """J v is the rate of phi, J a + J̇v that of J v; rolling and single turns have rates at velocity level."""
    sys, q, v, a = forest
    rows = every_kind(sys, q)

    @jax.jit
    @jax.vmap
    def along(t):
        q_t, v_t = rbd.integrate(sys, q, t * v), v + t * a
        return con.constraint_error(sys, rows, q_t), con.constraint_velocity(sys, rows, q_t, v_t)

    h = 1e-3
    (phi, u) = (np.asarray(x) for x in along(h * np.array([-2.0, -1, 0, 1, 2])))
    rate = lambda y: (y[0] - 8 * y[1] + 8 * y[3] - y[4]) / (12 * h)  # noqa: E731
    J = np.asarray(con.constraint_jacobian(sys, rows, q))
    bias, total = (con.constraint_acceleration(sys, rows, q, v, x) for x in (None, a))
    scale = np.abs(total).max()
    np.testing.assert_allclose(u[2], J @ v, atol=1e-12 * scale)
    np.testing.assert_allclose(total, J @ a + bias, atol=1e-12 * scale)
    np.testing.assert_allclose(total, rate(u), atol=1e-9 * scale)
    integrable = np.concatenate([_integrable(e) for e in rows.entries])
    np.testing.assert_allclose(u[2][integrable], rate(phi)[integrable], atol=1e-8 * scale)
    assert not phi[:, rows.row_index("velocity_rows")].any()
    assert not phi[:, -1].any()  # the single turn
    assert integrable.sum() == rows.rows - 2 * 2 - 2 - 1


def _integrable(entry):
    """Which rows of a constraint are rates of phi."""
    if entry.word == "rolling":
        return [False, False, True]
    return [entry.word != "velocity" and getattr(entry, "mask", None) != (0,)] * entry.rows


def test_turning_errors_are_rotation_vectors_up_to_half_a_turn():
    sys = rbd.zoo.arm7()
    axes = np.random.default_rng(0).standard_normal((6, 3))
    units = [*np.eye(3), *(axes / np.linalg.norm(axes, axis=1)[:, None])]
    angles = [0, 1e-9, 1e-4, 2e-3, 1.0, 2.0, 3.0, 3.14159, np.pi - 1e-9, np.pi]
    vectors = np.array([angle * unit for angle in angles for unit in units])
    base = con.weld(sys, "link1", anchor=(0.0, 0.0, 0.0))
    R = np.asarray(rbd.frame_pose(sys, rbd.neutral(sys), "link1")[0])
    xyzw = (Rotation.from_matrix(R) * Rotation.from_rotvec(vectors).inv()).as_quat()
    turn = lambda x: con.constraint_error(sys, base.replace(quaternion_b=x[None]), rbd.neutral(sys))[:3]  # noqa: E731
    wxyz = np.roll(xyzw, 1, axis=1)
    found = np.asarray(jax.vmap(turn)(wxyz))
    for mine, expected in zip(found, vectors):
        at_pi = np.linalg.norm(expected) > np.pi - 1e-8  # either direction of the axis will do
        best = min(np.abs(mine - s * expected).max() for s in ((1, -1) if at_pi else (1,)))
        # R is orthogonal to 1e-16, so the axis at half a turn is known to the root of that in its sign only
        assert best < 1e-7, (mine, expected)
    slope = jax.jacfwd(turn)(wxyz[0])
    assert np.isfinite(slope).all()


def test_an_inverted_hinge_is_not_met():
    sys = rbd.zoo.arm7()
    q = rbd.neutral(sys)
    upside_down = met(sys, q, con.hinge, "tool", None, turn=(np.pi, 0, 0))
    error = con.constraint_error(sys, upside_down, q)
    np.testing.assert_allclose(np.linalg.norm(error[:2]), np.pi, rtol=1e-6)


def test_sides_that_do_not_move():
    """A loop that a model declares from the ground to a body, either way round; a user is told to swap."""
    built = []
    for flip, solvers in ((False, (rbd.ConstrainedABA, rbd.Dense)), (True, (rbd.ProxLTLs,))):
        b = rbd.Builder("pendulum on a rod")
        b.body("ground", 1.0)
        b.body("rod", 1.0, shapes=[b.capsule_between(0.02, (0, 0, 0), (0, 0, -1))])
        b.body("bob", 2.0, shapes=[b.sphere(0.1)])
        b.joint("fix", "fixed", None, "ground", (0.5, 0, 0))
        b.joint("hinge", "revolute", None, "rod", axis=(0, 1, 0))
        b.joint("ball", "spherical", "rod", "bob", (0, 0, -1))
        b.loop("tie", "connect", *(("bob", "ground") if flip else ("ground", "bob")))
        sys = b.build()
        q = jnp.asarray(robots.random_states(sys, 1)[0][0])
        tie = con.of_model(sys)
        zero = jnp.zeros(sys.nv)
        built += [rbd.constrained_dynamics(sys, q, zero, zero, tie, s()).value.a for s in solvers]
    for a in built:
        np.testing.assert_allclose(a, built[1], atol=1e-8)
    arm = rbd.zoo.arm7()
    with pytest.raises(ArgumentError, match="'base' does not move: swap it with `to`, 'tool'"):
        con.connect(arm, "base", "tool")


def test_what_cannot_be_meant_is_refused():
    sys = rbd.zoo.arm7()
    q = rbd.neutral(sys)
    foot = con.connect(sys, "tool")
    for match, bad in [
        ("normal is .0, 0, 0.", lambda: con.rolling(sys, "tool", radius=0.1, normal=(0, 0, 0))),
        ("m > 0", lambda: con.velocity_rows(sys, np.zeros((0, 7)))),
        ("Leave offset= out", lambda: con.coupling(sys, "joint1", "joint2", polynomial=(0, 1), offset=1.0)),
        ("a ratio needs a joint", lambda: con.coupling(sys, "joint1", None, ratio=2.0)),
        ("2 constraints are named 'tool'", lambda: con.combine(foot, foot).row_index("tool")),
        ("directions are", lambda: con.hold(sys, "tool", ["x", "x"])),
        ("directions are", lambda: con.hold(sys, "tool", [])),
        ("no joint named 'wrist'", lambda: con.coupling(sys, "wrist", "joint1", ratio=1.0)),
        ("scalar coordinate", lambda: con.coupling(rbd.zoo.quadruped(), "root", "FL_calf", ratio=1.0)),
        ("length is 0.0", lambda: con.distance(sys, "tool", anchor=rbd.frame_pose(sys, q, "tool")[1], q=q)),
        ("Use constraints.astype", lambda: con.constraint_error(sys.astype("float32"), foot, np.float32(q))),
        (
            "another System",
            lambda: con.constraint_jacobian(sys, con.connect(rbd.zoo.humanoid(), "right_palm"), q),
        ),
    ]:
        with pytest.raises(rbd.RbdError, match=match):
            bad()
    for mu in (jnp.array(-1.0), np.float32(0), np.inf, jnp.nan):
        with pytest.raises(ArgumentError, match="expected a positive penalty"):
            rbd.ProxLTL(mu=mu)
    assert foot.astype("float32").weight.dtype == np.float32
