"""The base of a robot: which joint it is, what base= makes of it, and where the default pose puts it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from mjcf_models import MODELS

import jaxrbd as rbd

MASS = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'


def urdf(*joints: tuple[str, str, str, str], massless=("world",)) -> str:
    """A robot from (joint, type, parent, child); links have mass unless named."""
    links = dict.fromkeys(name for joint in joints for name in joint[2:])
    text = "".join(f'<link name="{n}">{"" if n in massless else MASS}</link>' for n in links)
    for name, kind, parent, child in joints:
        text += f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        text += '<origin xyz="0 0 2"/><limit effort="1" velocity="1"/></joint>'
    return f'<robot name="r">{text}</robot>'


FLOATING = urdf(("float", "floating", "world", "trunk"), ("hip", "revolute", "trunk", "leg"))


def test_a_floating_joint_on_a_massless_root_is_the_base():
    assert rbd.load(FLOATING).joint_names == ("float", "hip")
    free = rbd.load(FLOATING, base="free")
    assert (free.joint_names, free.nv) == (("root", "hip"), 7)
    fixed = rbd.load(FLOATING, base="fixed")
    assert fixed.joint_names == ("hip",)
    for sys in (free, fixed):  # both stand where the file has the trunk
        np.testing.assert_allclose(rbd.frame_pose(sys, sys.q0, "trunk")[1], [0, 0, 2])


def test_a_floating_joint_on_a_massive_root_is_not_the_base():
    text = urdf(("float", "floating", "table", "ball"))
    assert rbd.load(text, base="free").joint_names == ("root", "float")
    assert rbd.load(text, base="fixed").joint_names == ("float",)


def test_a_massless_root_that_would_float_is_named_and_refused():
    with pytest.warns(rbd.ModelWarning, match="cancel without moving any mass: root, hip"):
        sys = rbd.load(urdf(("hip", "revolute", "world", "leg")), base="free")
    zero = np.zeros(sys.nv)
    with pytest.raises(rbd.ArgumentError, match="singular: .*: root, hip. Give"):
        rbd.forward_dynamics(sys, rbd.neutral(sys), zero, zero)


def test_nothing_to_free_is_said():
    with pytest.warns(rbd.ModelWarning, match="finds nothing to free"):
        rbd.load('<robot name="r"><link name="a"/></robot>', base="free")
    with pytest.warns(
        rbd.ModelWarning, match="move without mass: a"
    ):  # a tree that moves is freed, mass or not
        sys = rbd.load(urdf(("j", "revolute", "a", "b"), massless=("a", "b")), base="free")
    assert sys.joint_names == ("root", "j")
    pillar = '<mujoco><worldbody><body name="pillar"><geom size="1"/></body></worldbody></mujoco>'
    with pytest.warns(rbd.ModelWarning, match="finds nothing to free"):
        assert rbd.load(pillar, base="free").nv == 0


def test_the_only_massive_body_is_freed():
    sys = rbd.load(f'<robot name="r"><link name="brick">{MASS}</link></robot>', base="free")
    assert sys.joint_names == ("root",)


def test_several_robots_are_freed_and_furniture_is_not():
    arm = '<body name="{0}" pos="0 0 {1}"><geom size="1"/><body><joint name="{0}_j"/><geom size="1"/></body>'
    arm += "</body>"
    text = f"""<mujoco><worldbody><body name="table"><geom size="1"/></body>
      {arm.format("left", 1)}{arm.format("right", 2)}
      <body name="cart"><joint name="rail" type="slide"/><geom size="1"/></body></worldbody>
      <keyframe><key name="home" qpos="0.1 0.2 0.3"/></keyframe></mujoco>"""
    sys = rbd.load(text, base="free")
    assert sys.joint_names == ("root", "left_j", "root_right", "right_j", "rail")
    np.testing.assert_allclose(sys.q0[sys.q_index("root_right")], [0, 0, 2, 1, 0, 0, 0])
    np.testing.assert_allclose(
        [sys.q0[sys.q_index(n)][0] for n in ("left_j", "right_j", "rail")], [0.1, 0.2, 0.3]
    )


def test_one_base_is_called_root_and_keeps_its_actuator():
    text = MODELS["quadruped"]
    free = rbd.load(text, base="free")
    assert free.joint_names[0] == "root"
    assert free.topology.actuator_dofs[free.actuator_names.index("yaw_thruster")] == 2
    assert rbd.load(text).joint_names[0] == "base"
    with pytest.warns(rbd.ModelWarning, match='base="fixed" drops actuator "yaw_thruster"'):
        fixed = rbd.load(text, base="fixed")
    assert (fixed.nv, fixed.nu) == (3, 4)
    np.testing.assert_allclose(rbd.frame_pose(fixed, fixed.q0, "trunk")[1], [0, 0, 0.5])
    assert fixed.keyframe_u.shape == (2, 4)


def test_other_bases_keep_their_names():
    forest = rbd.load(MODELS["forest"], base="free")
    assert forest.joint_names[:2] == ("root", "j1")  # the table under the arm
    assert {"ball_free", "brick_motion"} <= set(forest.joint_names)


def test_a_joint_that_is_called_root_keeps_its_name():
    sys = rbd.load(urdf(("root", "revolute", "a", "b")), base="free")
    assert sys.joint_names == ("world_root", "root")


def test_the_placement_of_a_free_root_is_where_it_starts():
    b = rbd.Builder("box").body("a", 1.0, inertia=1.0)
    b.joint("root", "free", None, "a", xyz=(1, 2, 3), rpy=(0.1, 0.2, 0.3)).keyframe("start", {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sys = b.build()
        again = rbd.build(rbd.describe(sys))
        fixed = b.build(base="fixed")
    R, p = rbd.frame_pose(sys, sys.q0, "a")
    np.testing.assert_allclose(p, [1, 2, 3])
    np.testing.assert_allclose(R, b.joint_named("root").placement.R, atol=1e-12)
    for q in (sys.keyframe_q[0], again.q0):
        np.testing.assert_allclose(q, sys.q0, atol=1e-12)
    np.testing.assert_allclose(rbd.frame_pose(fixed, fixed.q0, "a")[1], [1, 2, 3])
