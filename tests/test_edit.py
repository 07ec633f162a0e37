"""describe, lock_joints, attach, combine and to_urdf: the edited model has the dynamics of the original."""

from __future__ import annotations

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mjcf_models import MODELS

import jaxrbd as rbd
from jaxrbd.joints.matrices import matrix_from_rpy, quaternion_from_matrix
from jaxrbd.model.description import Mimic, Pose

TREES = {
    "arm7": lambda: rbd.zoo.arm7("position"),
    "quadruped": rbd.zoo.quadruped,
    "mixed": lambda: rbd.zoo.random_tree(12, seed=3, trees=2, damping=True),
    "floating": lambda: rbd.zoo.random_tree(9, seed=4, base="free"),
}
DOF_LEAVES = ("lower", "upper", "damping", "friction", "armature", "stiffness", "effort_limit")


_inverse_dynamics, _frame_poses = jax.jit(rbd.inverse_dynamics), jax.jit(rbd.frame_poses)


def dynamics(sys, q, v, a):
    """M, tau and the pose of every frame; M from tau by its columns, so that there is less to compile."""
    q, v, a = (jnp.asarray(x) for x in (q, v, a))
    tau = lambda a: np.asarray(_inverse_dynamics(sys, q, v, jnp.asarray(a)))  # noqa: E731
    rest = tau(np.zeros(sys.nv))
    M = np.array([tau(e) - rest for e in np.eye(sys.nv)])
    return M, tau(a), _frame_poses(sys, q)


def state(sys, seed=0):
    q = rbd.random_configuration(sys, jax.random.key(seed))
    rng = np.random.default_rng(seed)
    return q, jnp.asarray(rng.normal(size=sys.nv)), jnp.asarray(rng.normal(size=sys.nv))


def assert_close(a, b, tolerance=1e-12):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        scale = max(1.0, float(np.max(np.abs(x), initial=0.0)))
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * scale)


def assert_same_leaves(a, b, but=()):
    for key in (f.name for f in dataclasses.fields(a)):
        if key != "topology" and key not in but:
            np.testing.assert_allclose(getattr(a, key), getattr(b, key), rtol=1e-12, atol=1e-13, err_msg=key)


# --- describe ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TREES)
def test_build_describe_is_the_identity(name):
    sys = TREES[name]()
    again = rbd.build(rbd.describe(sys))
    assert again.topology == sys.topology
    assert_same_leaves(sys, again)
    if name == "floating":  # one compile: the topology is the same
        assert_close(dynamics(sys, *state(sys)), dynamics(again, *state(sys)))


@pytest.mark.filterwarnings("ignore::jaxrbd.ModelWarning")
@pytest.mark.parametrize("name", MODELS)
def test_describe_mjcf(name):
    """Offsets between joint and body frame, sites, loops, keyframes, links in the world between trees."""
    sys = rbd.load(MODELS[name])
    again = rbd.build(rbd.describe(sys))
    assert again.topology == sys.topology
    assert_same_leaves(sys, again)


def test_describe_has_the_current_values():
    sys = rbd.zoo.arm7()
    sys = sys.with_link("link3", mass=9.0).with_joint("joint2", damping=7.0)
    sys = sys.replace(gravity=[0, 0, -1.6], q0=sys.q0 + 0.1)
    assert_same_leaves(
        sys, rbd.build(rbd.describe(sys)), but=("limit_stiffness", "limit_damping", "keyframe_q")
    )
    assert_same_leaves(
        sys.astype("float32"),
        rbd.build(rbd.describe(sys.astype("float32")), dtype="float32"),
        but=("limit_stiffness", "limit_damping", "keyframe_q", "frame_quaternion", "axis"),
    )


def test_describe_keeps_a_default_pose_as_home():
    sys = rbd.zoo.chain(3)
    assert rbd.describe(sys).keyframes == ()
    np.testing.assert_array_equal(
        rbd.build(rbd.describe(sys.replace(q0=[0.1, 0.2, 0.3]))).q0, [0.1, 0.2, 0.3]
    )


def test_a_described_base_can_be_freed():
    floating = rbd.build(rbd.describe(rbd.zoo.arm7()), base="free")
    assert floating.joint_names[0] == "root" and floating.nv == 13


def test_traced_and_batched_systems_are_refused():
    sys = rbd.zoo.chain(2)
    with pytest.raises(rbd.ArgumentError, match="traced"):
        jax.jit(lambda s: len(rbd.describe(s).bodies))(sys)
    with pytest.raises(rbd.ArgumentError, match="batch"):
        rbd.describe(jax.tree.map(lambda x: x[None], sys))


# --- to_urdf -----------------------------------------------------------------------------------------


def test_to_urdf_round_trip():
    sys = TREES["arm7"]()
    with pytest.warns(rbd.ModelWarning, match="cannot hold"):
        text = rbd.to_urdf(sys)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rbd.ModelWarning)
        again = rbd.load(text)
    assert again.joint_names == sys.joint_names
    for key in DOF_LEAVES:
        np.testing.assert_array_equal(getattr(again, key), getattr(sys, key), err_msg=key)
    q, v, a = state(sys)
    M, tau, (R, p) = dynamics(sys, q, v, a)
    M_, tau_, (R_, p_) = dynamics(again, q, v, a)
    order = np.array([again.frame_names.index(f) for f in sys.frame_names])
    assert_close((M, tau, R, p), (M_, tau_, R_[order], p_[order]))


def test_to_urdf_refuses_a_forest():
    with pytest.raises(rbd.ModelError, match="2 roots"):
        rbd.to_urdf(rbd.zoo.random_tree(4, joint_types=["revolute"], trees=2))


# --- lock_joints -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::jaxrbd.ModelWarning")
@pytest.mark.parametrize(
    "name, chosen",
    [("mixed", slice(0, None, 2)), ("mixed", slice(1, None, 2)), ("floating", slice(0, None, 3))],
)
def test_locked_is_full_at_rest_there(name, chosen):
    sys = TREES[name]()
    locked = sys.joint_names[chosen]
    q, v, a = (np.array(x) for x in state(sys, 1))
    reduced = rbd.lock_joints(sys, locked, q)
    kept = [j for j in sys.joint_names if j not in locked]
    assert list(reduced.joint_names) == kept and reduced.dtype == sys.dtype
    kept_q = np.concatenate([np.arange(sys.nq)[sys.q_index(j)] for j in kept])
    kept_v = np.concatenate([np.arange(sys.nv)[sys.v_index(j)] for j in kept])
    still = np.setdiff1d(np.arange(sys.nv), kept_v)
    v[still] = a[still] = 0.0
    M, tau, (R, p) = dynamics(sys, q, v, a)
    M_, tau_, (R_, p_) = dynamics(
        reduced, jnp.asarray(q[kept_q]), jnp.asarray(v[kept_v]), jnp.asarray(a[kept_v])
    )
    assert_close((M[np.ix_(kept_v, kept_v)], tau[kept_v]), (M_, tau_))
    order = [reduced.frame_names.index(f) for f in sys.frame_names]
    assert_close((R, p), (R_[np.array(order)], p_[np.array(order)]))
    for key in (*DOF_LEAVES, "limit_stiffness", "limit_damping"):
        np.testing.assert_array_equal(getattr(sys, key)[kept_v], getattr(reduced, key), err_msg=key)


def coupled():
    """Four joints in a row with an actuator each; c follows b, d is coupled to b, d pinned to c."""
    b = rbd.Builder("coupled")
    for i, name in enumerate("abcd"):
        b.body(f"body_{name}", 1.0, inertia=0.1)
        mimic = Mimic("b", 2.0, 0.5) if name == "c" else None
        b.joint(
            name, "revolute", f"body_{'abcd'[i - 1]}" if i else None, f"body_{name}", (0.1, 0, 0), mimic=mimic
        )
        b.actuator(name)
    b.loop("couple", "coupling", "d", "b", coefficients=(1.0, 2.0, 3.0))
    b.loop("pin", "connect", "body_d", "body_c", Pose(), Pose(p=np.array([0.1, 0, 0])))
    b.keyframe("home", [0.1, 0.2, 0.3, 0.4], v=[1, 2, 3, 4], u=[5, 6, 7, 8])
    return b.build()


def test_locking_names_what_it_drops():
    with pytest.warns(rbd.ModelWarning, match='mimic of joint "c", actuator "b"') as record:
        sys = rbd.lock_joints(coupled(), {"b": 0.5})
    assert len(record) == 1
    assert sys.actuator_names == ("a", "c", "d") and sys.topology.mimics == ()
    assert sys.topology.loop_names == ("couple", "pin")
    np.testing.assert_allclose(sys.loop_coefficients[0], [1 + 2 * 0.5 + 3 * 0.25, 0, 0, 0, 0])
    q, v, u = sys.keyframe("home")
    np.testing.assert_array_equal(np.stack([q, v, u]), [[0.1, 0.3, 0.4], [1, 3, 4], [5, 7, 8]])
    np.testing.assert_array_equal(sys.q0, q)


def test_locking_drops_loops_that_cannot_move():
    with pytest.warns(rbd.ModelWarning, match='loop "couple", loop "pin"'):
        sys = rbd.lock_joints(coupled(), "d")
    assert sys.topology.loop_names == () and sys.joint_names == ("a", "b", "c")


def test_locking_uses_the_default_pose():
    sys = rbd.zoo.arm7("none")
    last = rbd.lock_joints(sys, sys.joint_names[:-1])
    assert last.joint_names == ("joint7",) and last.frame_names == sys.frame_names
    _, p = rbd.frame_pose(sys, sys.q0, "link7")
    np.testing.assert_allclose(last.joint_position[0], p, atol=1e-14)
    assert rbd.lock_joints(sys, []).topology == sys.topology


def test_lock_errors():
    sys = rbd.zoo.random_tree(9, seed=4, base="free")
    bad = [
        ({"joint99": 0.0}, None, "no joint named 'joint99'"),
        ({"root": 0.0}, None, "takes 7 coordinates, not 1"),
        ({"root": [0, 0, 0, 2, 0, 0, 0]}, None, "unit length"),
        ({"root": [np.nan, 0, 0, 1, 0, 0, 0]}, None, "NaN"),
        ({"root": "up"}, None, "not numbers"),
        (["root"], np.zeros(3), "expected"),
        ({"root": np.eye(7)[3]}, sys.q0, "twice"),
        (sys.joint_names, None, "Leave at least one"),
    ]
    for joints, q, message in bad:
        with pytest.raises(rbd.ArgumentError, match=message):
            rbd.lock_joints(sys, joints, q)


# --- attach ------------------------------------------------------------------------------------------


def gripper(base="free"):
    b = rbd.Builder("gripper")
    b.body("palm", 0.5, com=(0, 0, 0.03), inertia=1e-3)
    if base == "free":
        b.joint("root", "free", None, "palm")
    for side in (1, -1):
        b.body(f"finger{side}", 0.1, com=(0, 0, 0.02), inertia=1e-4)
        b.joint(
            f"slide{side}", "prismatic", "palm", f"finger{side}", (0, 0.01 * side, 0.05), axis=(0, side, 0)
        )
        b.actuator(f"slide{side}")
    b.frame("grasp", "palm", (0, 0, 0.1))
    b.keyframe("open", {"slide1": 0.04, "slide-1": 0.04})
    return b.build()


@pytest.mark.parametrize("base", ["free", "fixed"])
def test_attached_model_moves_with_the_frame(base):
    arm, hand = rbd.zoo.arm7(), gripper(base)
    xyz, rpy = (0.01, 0.02, 0.03), (0.1, 0.2, 0.3)
    both = rbd.attach(arm, hand, "tool", xyz, rpy, prefix="hand_")
    assert both.joint_names == (*arm.joint_names, "hand_slide1", "hand_slide-1")
    assert both.nu == 9 and both.keyframe_names == ("home", "up", "open")
    np.testing.assert_allclose(both.q0[:7], arm.q0)
    np.testing.assert_allclose(both.keyframe("open")[0], [*arm.q0, 0.04, 0.04])
    assert float(rbd.total_mass(both)) == pytest.approx(float(rbd.total_mass(arm)) + 0.7)

    q, v, a = state(both)
    M, _, _ = dynamics(both, q, v, a)
    R, p = rbd.frame_pose(both, q, "hand_palm")
    R_tool, p_tool = rbd.frame_pose(arm, q[:7], "tool")
    X = Pose(np.asarray(R_tool), np.asarray(p_tool)) @ Pose(matrix_from_rpy(rpy), np.array(xyz))
    assert_close((R, p), (X.R, X.p))
    if base == "fixed":
        return  # the same model as the other one
    # the hand on its free base, in the same place and with the same velocity, has the rest of the energy
    floating = gripper("free")
    J = rbd.frame_jacobian(both, q, "hand_palm", frame="body")
    quaternion = quaternion_from_matrix(R)
    q_hand = jnp.concatenate([p, quaternion, q[7:]])
    v_hand = jnp.concatenate([J @ v, v[7:]])
    energy = rbd.kinetic_energy(arm, q[:7], v[:7]) + rbd.kinetic_energy(floating, q_hand, v_hand)
    assert_close(0.5 * v @ M @ v, energy)
    height = rbd.potential_energy(arm, q[:7]) + rbd.potential_energy(floating, q_hand)
    assert_close(rbd.potential_energy(both, q), height)


def test_attach_a_moving_root_to_the_ground_and_twice():
    pendulum = rbd.zoo.double_pendulum()
    two = rbd.attach(pendulum, pendulum, None, (1, 0, 0), prefix="other_")
    link = pendulum.link_names[-1]
    q = jnp.concatenate([pendulum.q0 + 0.3, pendulum.q0 + 0.3])
    (R, p), (R_, p_) = rbd.frame_pose(two, q, link), rbd.frame_pose(two, q, f"other_{link}")
    assert_close((R, p + jnp.array([1.0, 0, 0])), (R_, p_))
    rbd.attach(two, pendulum, f"other_{link}", prefix="third_")


def test_attach_errors():
    arm, hand = rbd.zoo.arm7(), gripper()
    with pytest.raises(rbd.ArgumentError, match="no frame named 'tol'.*'tool'"):
        rbd.attach(arm, hand, "tol")
    with pytest.raises(rbd.ArgumentError, match="prefix="):
        rbd.attach(hand, hand, "grasp")
    with pytest.raises(rbd.ArgumentError, match="three finite"):
        rbd.attach(arm, hand, "tool", xyz=(0, 0))
    with pytest.raises(rbd.ArgumentError, match="astype"):
        rbd.attach(arm, hand.astype("float32"), "tool")
    with pytest.raises(rbd.ArgumentError, match="2 trees"):
        rbd.attach(arm, rbd.zoo.random_tree(4, base="free", trees=2), "tool")
    with pytest.warns(rbd.ModelWarning, match="ground's shapes"):
        rbd.attach(hand, arm, "palm")


# --- combine -----------------------------------------------------------------------------------------


def test_combined_models_do_not_feel_each_other():
    arm, hand = rbd.zoo.arm7(), gripper()
    both = rbd.combine(arm, hand, arm, names=["left", "hand", ""])
    assert both.joint_names[0] == "left/joint1" and both.joint_names[-1] == "joint7"
    assert both.topology.shape_frames.count(-1) == 1  # one ground
    np.testing.assert_array_equal(both.q0, np.concatenate([arm.q0, hand.q0, arm.q0]))
    q, v, a = state(both)
    M, tau, _ = dynamics(both, q, v, a)
    at_q = at_v = 0
    expected = np.zeros_like(M)
    for sys in (arm, hand, arm):
        Q, V = slice(at_q, at_q + sys.nq), slice(at_v, at_v + sys.nv)
        expected[V, V], tau_part, _ = dynamics(sys, q[Q], v[V], a[V])
        assert_close(tau_part, tau[V])
        at_q, at_v = Q.stop, V.stop
    assert_close(expected, M)
    assert rbd.combine(arm, hand, arm).body_names[0] == "arm70/link1"
    assert rbd.combine(arm.astype("float32")).dtype == jnp.float32


def test_combine_errors():
    arm = rbd.zoo.arm7()
    for systems, names, message in (
        ((), None, "no System"),
        ((arm, arm), ["a"], "one name for each"),
        ((arm, arm), ["a", "a"], "names="),
        ((arm, arm.replace(gravity=[0, 0, 0])), None, "gravity"),
        ((arm, "arm"), None, "expected a System"),
    ):
        with pytest.raises(rbd.ArgumentError, match=message):
            rbd.combine(*systems, names=names)
