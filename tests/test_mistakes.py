"""What newcomers get wrong: names, kinds of argument, files. Each error says what was meant or what to do."""

from inspect import signature

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd.errors import ArgumentError, ModelError, RbdError

LINK = '<link name="{}"/>'
URDF = (
    '<robot name="r">' + LINK.format("base") + LINK.format("upper_arm") + '<joint name="elbow" type="{}">'
    '<parent link="{}"/><child link="upper_arm"/><axis xyz="0 0 1"/></joint></robot>'
)


@pytest.fixture(scope="module")
def arm():
    return rbd.zoo.arm7()


def builder():
    b = rbd.Builder("b")
    b.body("trunk", 1.0, inertia=1.0).body("leg", 1.0, inertia=1.0)
    return b.joint("knee", "revolute", None, "trunk")


NAMES = {
    "joint": (lambda s: s.q_index("jiont3"), "joint3"),
    "joint in lock_joints": (lambda s: rbd.lock_joints(s, ["jont3"]), "joint3"),
    "link": (lambda s: s.with_link("lnk3", mass=1), "link3"),
    "body": (lambda s: s.body_index("Link3"), "link3"),
    "frame": (lambda s: rbd.frame_pose(s, s.q0, "tol"), "tool"),
    "frame in attach": (lambda s: rbd.attach(s, s, "tol"), "tool"),
    "reference frame": (
        lambda s: rbd.frame_jacobian(s, s.q0, "tool", frame="world_alligned"),
        "world_aligned",
    ),
    "keyframe": (lambda s: s.keyframe("hme"), "home"),
    "actuator": (lambda s: s.u_index("jiont3"), "joint3"),
    "leaf": (lambda s: s.replace(masses=s.mass), "mass"),
    "parameter of a link": (lambda s: s.with_link("link3", Mass=1), "mass"),
    "parameter of a joint": (lambda s: s.with_joint("joint3", dampng=1), "damping"),
    "zoo": (lambda s: rbd.zoo.describe("humanid"), "humanoid"),
    "constraint": (lambda s: con.weld(s, "tool", name="grip").row_index("grib"), "grip"),
    "frame of a constraint": (lambda s: con.weld(s, "tol"), "tool"),
    "joint of a coupling": (lambda s: con.coupling(s, "joint3", "jiont2", ratio=1), "joint2"),
    "direction": (lambda s: con.hold(s, "tool", ["turn_X"]), "turn_x"),
    "Delassus algorithm": (lambda s: con.delassus_matrix(s, con.weld(s, "tool"), s.q0, "ltll"), "ltl"),
    "weights": (
        lambda s: rbd.inverse_kinematics(s, s.q0, {"tool": jnp.zeros(3)}, weights={"tol": 1.0}),
        "tool",
    ),
    "links of log_cholesky": (lambda s: rbd.log_cholesky(s, ["lnk3"]), "link3"),
    "joint type": (lambda s: builder().joint("hip", "revolut", "trunk", "leg"), "revolute"),
    "parent in a builder": (lambda s: builder().joint("hip", "revolute", "trnk", "leg"), "trunk"),
    "joint of an actuator": (lambda s: builder().actuator("kne"), "knee"),
    "kind of an actuator": (lambda s: builder().actuator("knee", "postion"), "position"),
    "joint type in a file": (lambda s: rbd.load(URDF.format("revolut", "base")), "revolute"),
    "parent in a file": (lambda s: rbd.load(URDF.format("continuous", "bas")), "base"),
}


@pytest.mark.parametrize("case", NAMES)
def test_near_names_are_offered(arm, case):
    call, meant = NAMES[case]
    with pytest.raises(RbdError, match=f"Did you mean .*'{meant}'"):
        call(arm)


def test_a_name_that_is_near_to_none_lists_some(arm):
    with pytest.raises(ArgumentError, match="Known: joint1, joint2"):
        arm.q_index("xyz")
    with pytest.raises(ArgumentError, match="There is none"):
        rbd.zoo.chain(2).keyframe("home")


def test_near_file_names_are_offered(tmp_path):
    (tmp_path / "robot.urdf").write_text(URDF.format("continuous", "base"))
    with pytest.raises(ModelError, match="no such file. Did you mean .*robot.urdf"):
        rbd.load(tmp_path / "robto.urdf")
    with pytest.raises(ModelError, match="no such file. There is no folder"):
        rbd.load(tmp_path / "models" / "robot.urdf")


def test_files_that_are_no_models(arm, tmp_path):
    rbd.save(arm, tmp_path / "saved.npz")
    with pytest.raises(ModelError, match="a System that save wrote. Read it with rbd.load_system"):
        rbd.load(tmp_path / "saved.npz")
    np.savez(tmp_path / "path.npz", q=arm.q0)
    with pytest.raises(ModelError, match="an archive .*numpy.load"):
        rbd.load(tmp_path / "path.npz")
    for wrong in (arm, None, rbd.describe(arm)):
        with pytest.raises(ArgumentError, match="expected the path .* rbd.build"):
            rbd.load(wrong)


@pytest.mark.parametrize(
    "call",
    [
        lambda path: rbd.mass_matrix(path, jnp.zeros(7)),
        lambda path: rbd.neutral(path),
        lambda path: rbd.random_configuration(path, jax.random.key(0)),
        lambda path: rbd.frame_pose(path, jnp.zeros(7), "tool"),
        lambda path: rbd.step(path, rbd.State(jnp.zeros(7), jnp.zeros(7))),
        lambda path: rbd.State.at_rest(path),
        lambda path: rbd.check(path, jnp.zeros(7)),
        lambda path: rbd.total_mass(path),
        lambda path: con.weld(path, "tool"),
        lambda path: rbd.save(path, "x"),
        lambda path: rbd.lock_joints(path, ["joint1"]),
        lambda path: rbd.attach(path, path, "tool"),
        lambda path: rbd.describe(path),
        lambda path: rbd.log_cholesky(path),
    ],
)
def test_a_path_is_no_system(call):
    with pytest.raises(ArgumentError, match="expected a System. Load it first: sys = rbd.load"):
        call("robot.urdf")


@pytest.mark.parametrize(
    "call",
    [
        lambda s, x: rbd.step(s, x),
        lambda s, x: rbd.rollout(s, x, steps=2),
        lambda s, x: rbd.linearize(s, x),
        lambda s, x: rbd.step(s, x, constraints=con.weld(s, "tool", q=s.q0)),
    ],
)
def test_a_pair_is_no_state(arm, call):
    with pytest.raises(ArgumentError, match=r"state is a tuple, expected a State. Write rbd.State\(q, v\)"):
        call(arm, (arm.q0, arm.q0))


def test_an_integrator_class_is_no_integrator(arm):
    start = rbd.State.at_rest(arm)
    for call in (
        lambda: rbd.step(arm, start, None, rbd.RK4),
        lambda: rbd.rollout(arm, start, None, rbd.RK4, steps=2),
        lambda: rbd.linearize(arm, start, None, rbd.RK4, constraints=con.weld(arm, "tool", q=arm.q0)),
    ):
        with pytest.raises(ArgumentError, match=r"the class RK4, expected an object .*Write RK4\(dt=1e-3\)"):
            call()


def test_docstrings_name_the_defaults():
    for function in (rbd.step, rbd.rollout):
        assert "SemiImplicitEuler(dt=1e-3)" in function.__doc__


def test_hosts_and_points_are_connected_by_different_names():
    assert not hasattr(rbd, "connect") and callable(rbd.connect_hosts) and callable(con.connect)


def test_options_of_constraints_are_named():
    for function in (con.weld, con.connect, con.hinge, con.hold, con.distance, con.coupling, con.of_model):
        assert all(p.kind != p.VAR_KEYWORD for p in signature(function).parameters.values())
