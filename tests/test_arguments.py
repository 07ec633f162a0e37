"""Wrong arguments raise `ArgumentError` that names the argument, what was expected and the remedy."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.errors import ArgumentError

# which array arguments each function takes, after the System
SIGNATURES = {
    "inverse_dynamics": ("q", "v", "a", "f_ext"),
    "forward_dynamics": ("q", "v", "tau", "f_ext"),
    "mass_matrix": ("q",),
    "mass_matrix_inverse": ("q",),
    "mass_matrix_factor": ("q",),
    "bias_force": ("q", "v"),
    "gravity_force": ("q",),
    "passive_force": ("q", "v"),
    "coriolis_matrix": ("q", "v"),
    "forward_kinematics": ("q",),
    "kinetic_energy": ("q", "v"),
    "potential_energy": ("q",),
    "center_of_mass": ("q",),
    "centroidal_momentum": ("q", "v"),
    "centroidal_momentum_matrix": ("q",),
    "joint_torque_regressor": ("q", "v", "a"),
    "kinetic_energy_regressor": ("q", "v"),
    "potential_energy_regressor": ("q",),
}
CASES = [(function, argument) for function, arguments in SIGNATURES.items() for argument in arguments]
FRAMES = {
    "frame_velocity": lambda sys, q, v, name, frame: rbd.frame_velocity(sys, q, v, name, frame=frame),
    "frame_acceleration": lambda sys, q, v, name, frame: rbd.frame_acceleration(
        sys, q, v, v, name, frame=frame
    ),
    "frame_jacobian": lambda sys, q, v, name, frame: rbd.frame_jacobian(sys, q, name, frame=frame),
    "frame_jacobian_dot_v": lambda sys, q, v, name, frame: rbd.frame_jacobian_dot_v(
        sys, q, v, name, frame=frame
    ),
    "wrench_at_frame": lambda sys, q, v, name, frame: rbd.wrench_at_frame(
        sys, q, name, jnp.zeros(6), frame=frame
    ),
}


@pytest.fixture(scope="module")
def sys():
    """A free base with a hinge and a ball: nq = 12, nv = 10, nb = 3."""
    builder = rbd.Builder("small")
    for name in ("base", "arm", "hand"):
        builder.body(name, mass=1.0, com=(0.1, 0.0, 0.0), inertia=(0.1, 0.1, 0.1))
    builder.joint("elbow", "revolute", "base", "arm", xyz=(0.2, 0, 0))
    builder.joint("wrist", "spherical", "arm", "hand", xyz=(0.3, 0, 0))
    return builder.build(base="free")


def good(sys):
    v = jnp.zeros(sys.nv)
    return {"q": rbd.neutral(sys), "v": v, "a": v, "tau": v, "f_ext": jnp.zeros((sys.nb, 6))}


def names(message, argument):
    return re.search(rf"(?<![A-Za-z_]){re.escape(argument)}(?![A-Za-z_])", message) is not None


def call(sys, function, **changed):
    arguments = good(sys) | changed
    return getattr(rbd, function)(sys, *(arguments[name] for name in SIGNATURES[function]))


@pytest.mark.parametrize(("function", "argument"), CASES)
def test_wrong_length(sys, function, argument):
    """One entry too few: the message gives both shapes."""
    right = good(sys)[argument]
    with pytest.raises(ArgumentError) as caught:
        call(sys, function, **{argument: right[:-1]})
    message = str(caught.value)
    assert names(message, argument)
    assert str(right.shape) in message
    assert str(right[:-1].shape) in message


@pytest.mark.parametrize(("function", "argument"), CASES)
def test_wrong_dtype(sys, function, argument):
    """What would lose something is refused, not silently converted: complex numbers and truth values."""
    right = good(sys)[argument]
    for dtype in (jnp.complex64, jnp.bool_):
        with pytest.raises(ArgumentError) as caught:
            call(sys, function, **{argument: right.astype(dtype)})
        assert names(str(caught.value), argument)
        assert jnp.dtype(dtype).name in str(caught.value)
        assert "float" in str(caught.value)


@pytest.mark.parametrize("argument", ["q", "v", "tau", "f_ext"])
def test_double_precision_into_a_single_precision_system(sys, argument):
    """Rounding is the caller's decision: the message says how."""
    single = {name: x.astype(jnp.float32) for name, x in good(sys).items()}
    arguments = single | {argument: good(sys)[argument]}
    with pytest.raises(ArgumentError, match="float64.*float32.*astype") as caught:
        call(sys.astype(jnp.float32), "forward_dynamics", **arguments)
    assert names(str(caught.value), argument)


@pytest.mark.parametrize("function", ["inverse_dynamics", "forward_dynamics", "mass_matrix"])
def test_a_batch_without_vmap_says_vmap(sys, function):
    with pytest.raises(ArgumentError, match="vmap") as caught:
        call(sys, function, q=jnp.stack([rbd.neutral(sys)] * 4))
    assert names(str(caught.value), "q")


@pytest.mark.parametrize("wrong", [(3, 5), (4, 6), (6,), (18,)])
def test_wrong_f_ext(sys, wrong):
    for function in ("inverse_dynamics", "forward_dynamics"):
        with pytest.raises(ArgumentError, match=re.escape("(3, 6)")) as caught:
            call(sys, function, f_ext=jnp.zeros(wrong))
        assert names(str(caught.value), "f_ext")


def test_not_numbers(sys):
    for wrong in ("up", None, [["a"]], object()):
        with pytest.raises(ArgumentError) as caught:
            rbd.mass_matrix(sys, wrong)
        assert names(str(caught.value), "q")


def test_numpy_and_lists_are_welcome(sys):
    """What converts without loss is accepted: NumPy arrays, lists, integers, single into double precision."""
    q = np.asarray(rbd.neutral(sys))
    expected = rbd.mass_matrix(sys, jnp.asarray(q))
    np.testing.assert_array_equal(rbd.mass_matrix(sys, q), expected)
    np.testing.assert_array_equal(rbd.mass_matrix(sys, q.tolist()), expected)
    np.testing.assert_array_equal(rbd.mass_matrix(sys, q.astype(int)), expected)
    np.testing.assert_array_equal(rbd.mass_matrix(sys, q.astype(np.float32)), expected)


def test_the_error_survives_jit_vmap_and_grad(sys):
    """Raised while tracing, it reaches the caller as ours."""
    q, v = rbd.neutral(sys), jnp.zeros(sys.nv)
    with pytest.raises(ArgumentError):
        jax.jit(lambda x: rbd.forward_dynamics(sys, q, v, x))(v[1:])
    with pytest.raises(ArgumentError):
        jax.vmap(lambda x: rbd.inverse_dynamics(sys, x, v, v))(jnp.ones((5, sys.nq + 1)))
    with pytest.raises(ArgumentError):
        jax.grad(lambda x: rbd.kinetic_energy(sys, q, x))(v[1:])


def test_integrate_and_difference(sys):
    q, v = rbd.neutral(sys), jnp.zeros(sys.nv)
    with pytest.raises(ArgumentError, match=re.escape("(10,)")):
        rbd.integrate(sys, q, q)
    with pytest.raises(ArgumentError, match=re.escape("(12,)")):
        rbd.integrate(sys, v, v)
    with pytest.raises(ArgumentError, match=re.escape("(12,)")):
        rbd.difference(sys, q, v)
    with pytest.raises(ArgumentError, match=re.escape("(12,)")):
        rbd.tangent_gradient(sys, q, v)


@pytest.mark.parametrize("name", FRAMES)
def test_unknown_frame(sys, name):
    """The message repeats the wrong name and offers the right one."""
    q, v = rbd.neutral(sys), jnp.zeros(sys.nv)
    with pytest.raises(ArgumentError, match="hnad.*hand"):
        FRAMES[name](sys, q, v, "hnad", "world")
    with pytest.raises(ArgumentError, match="hnad.*hand"):
        rbd.frame_pose(sys, q, "hnad")


@pytest.mark.parametrize("name", FRAMES)
def test_unknown_reference_frame(sys, name):
    """The message lists the three that exist."""
    q, v = rbd.neutral(sys), jnp.zeros(sys.nv)
    with pytest.raises(ArgumentError) as caught:
        FRAMES[name](sys, q, v, "hand", "locl")
    for word in ("locl", "local", "body", "world", "world_aligned"):
        assert word in str(caught.value)


def test_unknown_joint(sys):
    for index in (sys.q_index, sys.v_index):
        with pytest.raises(ArgumentError, match="elbwo.*elbow"):
            index("elbwo")


def test_wrench_shape(sys):
    with pytest.raises(ArgumentError, match="wrench.*6"):
        rbd.wrench_at_frame(sys, rbd.neutral(sys), "hand", jnp.zeros(5))


def test_check_accepts_good_values(sys):
    q = rbd.random_configuration(sys, jax.random.key(0))
    rbd.check(sys, q)
    rbd.check(sys, q, jnp.ones(sys.nv))


def test_check_quaternions(sys):
    """A quaternion that is not of unit length is named by its joint."""
    for joint in ("root", "wrist"):
        q = rbd.neutral(sys)
        q = q.at[sys.q_index(joint).stop - 4].set(0.9)
        with pytest.raises(ArgumentError, match="quaternion") as caught:
            rbd.check(sys, q)
        assert joint in str(caught.value)
        assert names(str(caught.value), "q")
    with pytest.raises(ArgumentError, match="quaternion"):
        rbd.check(sys, jnp.zeros(sys.nq))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_check_finite(sys, bad):
    q, v = rbd.neutral(sys), jnp.zeros(sys.nv)
    elbow = sys.q_index("elbow").start
    with pytest.raises(ArgumentError, match=f"{bad}.*finite") as caught:
        rbd.check(sys, q.at[elbow].set(bad))
    assert names(str(caught.value), "q")
    with pytest.raises(ArgumentError, match=f"{bad}.*finite") as caught:
        rbd.check(sys, q, v.at[sys.v_index("elbow").start].set(bad))
    assert names(str(caught.value), "v")


def test_check_shapes(sys):
    with pytest.raises(ArgumentError, match="q.*13.*expected.*12"):
        rbd.check(sys, jnp.zeros(sys.nq + 1))
    with pytest.raises(ArgumentError, match="v.*11.*expected.*10"):
        rbd.check(sys, rbd.neutral(sys), jnp.zeros(sys.nv + 1))


@pytest.mark.parametrize("name", FRAMES)
def test_local_means_body(sys, name):
    q, v = rbd.random_configuration(sys, jax.random.key(1)), jnp.arange(1.0, sys.nv + 1)
    make = jax.jit(lambda q, v: [FRAMES[name](sys, q, v, "hand", frame) for frame in ("body", "local")])
    np.testing.assert_array_equal(*make(q, v))


def test_check_names_the_joint_of_a_nan(sys):
    q, v = np.tile(rbd.neutral(sys), (4, 1)), np.zeros((4, sys.nv))
    q[2, sys.q_index("wrist").start + 1] = np.nan
    with pytest.raises(ArgumentError, match=re.escape("q[2, 9] of joint 'wrist' is nan, expected finite")):
        rbd.check(sys, q, v)
    v[3, sys.v_index("elbow").start] = np.inf
    with pytest.raises(ArgumentError, match=re.escape("v[3, 6] of joint 'elbow' is inf, expected finite")):
        rbd.check(sys, np.asarray(rbd.neutral(sys)), v)


def test_check_looks_at_limits():
    arm = rbd.zoo.arm7()
    top = float(arm.upper[1])
    q = np.tile(arm.q0, (3, 1))
    rbd.check(arm, q, np.zeros((3, arm.nv)))
    q[:, 1] = top
    rbd.check(arm, q)
    q[2, 1] = top + 0.1
    with pytest.raises(ArgumentError, match=rf"q\[2, 1\] of joint 'joint2' is {top + 0.1:.6g}, expected"):
        rbd.check(arm, q)
    rbd.check(arm, q, limits=False)
    with pytest.raises(ArgumentError, match=r"v\[4\] of joint 'joint5' is -9, expected .*velocity_limit"):
        rbd.check(arm, arm.q0, np.array([0, 0, 0, 0, -9.0, 0, 0]))
    dog = rbd.zoo.quadruped()
    with pytest.raises(ArgumentError, match="of joint 'FL_calf' is 0, expected -2.72 to -0.84"):
        rbd.check(dog, rbd.neutral(dog))
