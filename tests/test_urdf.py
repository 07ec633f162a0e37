"""URDF reader and writer: Pinocchio's reading of every robot, each element, hostile files, round trips."""

from __future__ import annotations

import os
import sysconfig
import warnings
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

from jaxrbd.errors import ModelError, ModelWarning
from jaxrbd.joints.matrices import matrix_from_rpy
from jaxrbd.model import xml_safe
from jaxrbd.model.description import (
    WORLD,
    Actuator,
    Body,
    Description,
    Frame,
    Joint,
    Keyframe,
    Loop,
    Pose,
    Shape,
)
from jaxrbd.model.mesh_paths import find_mesh
from jaxrbd.model.urdf import read_urdf
from jaxrbd.model.urdf_write import write_urdf
from jaxrbd.model.xml_safe import parse_xml

SHARE = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix" / "share"
ROBOTS = SHARE / "example-robot-data" / "robots"
FILES = sorted(str(p.relative_to(ROBOTS)) for p in ROBOTS.rglob("*.urdf") if p.name != "ur3.urdf")

ARM = """<?xml version="1.0" encoding="utf-8"?>
<robot name="arm">
  <material name="red"><color rgba="1 0 0 1"/></material>
  <link name="base"/>
  <link name="upper">
    <inertial>
      <origin xyz="0.1 0 0.2" rpy="0 0 1.5707963267948966"/>
      <mass value="2"/>
      <inertia ixx="1" iyy="2" izz="2.5" ixy="0" ixz="0" iyz="0.1"/>
    </inertial>
    <visual name="look"><geometry><box size="1 2 3"/></geometry><material name="red"/></visual>
    <collision><origin xyz="0 0 1"/><geometry><capsule radius="0.1" length="0.5"/></geometry></collision>
    <collision><geometry><sphere radius="0.3"/></geometry></collision>
    <contact><lateral_friction value="0.8"/></contact>
  </link>
  <link name="lower"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial></link>
  <joint name="shoulder" type="revolute">
    <origin xyz="0 0 0.5" rpy="0.1 0.2 0.3"/>
    <parent link="base"/><child link="upper"/>
    <axis xyz="0 3 4"/>
    <limit lower="-1" upper="2" effort="10" velocity="3"/>
    <dynamics damping="0.5" friction="0.2" armature="0.01"/>
  </joint>
  <joint name="elbow" type="prismatic">
    <parent link="upper"/><child link="lower"/>
    <limit effort="5" velocity="1" upper="0.4"/>
    <mimic joint="shoulder" multiplier="-2" offset="0.1"/>
  </joint>
</robot>
"""


def load(name: str) -> Description:
    path = ROBOTS / name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        return read_urdf(path.read_bytes(), path.name, path.parent, [SHARE])


def joint_named(description: Description, name: str) -> Joint:
    return next(joint for joint in description.joints if joint.name == name)


def assert_same(a, b, path="description"):
    """Equal structure, names and types; numbers to 1e-12."""
    if is_dataclass(a):
        assert type(a) is type(b), path
        for field in fields(a):
            if field.name != "source":
                assert_same(getattr(a, field.name), getattr(b, field.name), f"{path}.{field.name}")
    elif isinstance(a, tuple) and not all(isinstance(x, float) for x in a):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{path}[{i}]")
    elif isinstance(a, str) or a is None:
        assert a == b, path
    else:
        x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
        with np.errstate(invalid="ignore"):
            same = x.shape == y.shape and np.all((x == y) | (np.abs(x - y) <= 1e-12 * (1 + np.abs(x))))
        assert same, f"{path}: {a} became {b}"


# --- against Pinocchio ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_agrees_with_pinocchio(name):
    """Links, moving joints, zero poses, axes, merged inertias and limits."""
    d, model = load(name), pin.buildModelFromUrdf(str(ROBOTS / name))
    data = model.createData()
    pin.framesForwardKinematics(model, data, pin.neutral(model))
    pin.computeJointJacobians(model, data, pin.neutral(model))
    frame_id = {f.name: i for i, f in enumerate(model.frames) if f.type == pin.FrameType.BODY}
    assert {body.name for body in d.bodies} == set(frame_id)
    assert {j.name for j in d.joints if j.type != "fixed"} == set(model.names) - {"universe"}

    joint_of = {joint.child: joint for joint in d.joints}
    inertias = np.zeros((model.njoints, 6, 6))
    for body in d.bodies:
        X, link = Pose(), body.name  # up to the joint that moves this link
        while link != WORLD and joint_of[link].type == "fixed":
            X, link = joint_of[link].placement @ X, joint_of[link].parent
        mover = 0 if link == WORLD else model.getJointId(joint_of[link].name)
        inertias[mover] += spatial_inertia(body, X)
        X, link = Pose(), body.name  # up to the ground
        while link != WORLD:
            X, link = joint_of[link].placement @ X, joint_of[link].parent
        placed = data.oMf[frame_id[body.name]]
        np.testing.assert_allclose(X.R, placed.rotation, atol=1e-12)
        np.testing.assert_allclose(X.p, placed.translation, atol=1e-12)
    for mine, theirs in zip(inertias, model.inertias, strict=True):
        np.testing.assert_allclose(mine, theirs.matrix(), atol=1e-12 * max(1.0, np.abs(mine).max()))

    for joint in d.joints:
        if joint.type == "fixed":
            continue
        i = model.getJointId(joint.name)
        v, q = model.joints[i].idx_v, model.joints[i].idx_q
        column = pin.getFrameJacobian(model, data, frame_id[joint.child], pin.LOCAL)[:, v]
        np.testing.assert_allclose(
            column[:3] if joint.type == "prismatic" else column[3:], joint.axis, atol=1e-12
        )
        limits = model.lowerPositionLimit[q], model.upperPositionLimit[q]
        if joint.type != "continuous" and limits != (0.0, 0.0):  # Pinocchio's reading of limits left out
            assert limits == (joint.lower, joint.upper)


def spatial_inertia(body: Body, X: Pose) -> np.ndarray:
    """Linear first, as in Pinocchio, about the origin that X refers to."""
    c = pin.skew(X.R @ body.com + X.p)
    turning = X.R @ body.inertia @ X.R.T - body.mass * c @ c
    return np.block([[body.mass * np.eye(3), -body.mass * c], [body.mass * c, turning]])


def test_all_robots_of_the_package_are_here():
    assert len(FILES) == 68


# --- elements ------------------------------------------------------------------------------------------


def test_elements_of_a_small_robot():
    d = read_urdf(ARM, "arm.urdf")
    assert (d.name, d.source) == ("arm", "arm.urdf")
    assert [b.name for b in d.bodies] == ["base", "upper", "lower"]
    assert d.joints[0] == replace(d.joints[0], name="root", type="fixed", parent=WORLD, child="base")

    upper = d.bodies[1]
    assert upper.mass == 2.0
    np.testing.assert_allclose(upper.com, [0.1, 0, 0.2])
    np.testing.assert_allclose(upper.inertia, [[2, 0, -0.1], [0, 1, 0], [-0.1, 0, 2.5]], atol=1e-15)
    box, capsule, sphere = upper.shapes
    assert (box.kind, box.size, box.role, box.name, box.rgba) == (
        "box",
        (1, 2, 3),
        "visual",
        "look",
        (1, 0, 0, 1),
    )
    assert (capsule.kind, capsule.size, capsule.role, capsule.friction) == (
        "capsule",
        (0.1, 0.5),
        "collision",
        0.8,
    )
    np.testing.assert_array_equal(capsule.pose.p, [0, 0, 1])
    assert (sphere.kind, sphere.size) == ("sphere", (0.3,))

    shoulder, elbow = d.joints[1:]
    np.testing.assert_allclose(shoulder.axis, [0, 0.6, 0.8])
    np.testing.assert_allclose(shoulder.placement.R, matrix_from_rpy(np.array([0.1, 0.2, 0.3])))
    assert (shoulder.lower, shoulder.upper, shoulder.effort_limit, shoulder.velocity_limit) == (-1, 2, 10, 3)
    assert (shoulder.damping, shoulder.friction, shoulder.armature) == (0.5, 0.2, 0.01)
    np.testing.assert_array_equal(elbow.axis, [1, 0, 0])
    assert (elbow.lower, elbow.upper) == (0.0, 0.4)  # one limit left out is 0, as URDF specifies
    assert (elbow.mimic.joint, elbow.mimic.ratio, elbow.mimic.offset) == ("shoulder", -2.0, 0.1)


@pytest.mark.parametrize(
    "written, read",
    [
        ("floating", "free"),
        ("planar", "planar"),
        ("continuous", "continuous"),
        ("fixed", "fixed"),
        ("spherical", "spherical"),
        ("ball", "spherical"),
        ("cylindrical", "cylindrical"),
    ],
)
def test_joint_types(written, read):
    d = read_urdf(ARM.replace('type="revolute"', f'type="{written}"').replace("<mimic", "<ignored"))
    assert joint_named(d, "shoulder").type == read


def test_screw_and_universal_extensions():
    text = ARM.replace("<mimic", "<ignored")
    d = read_urdf(text.replace('"revolute"', '"screw"').replace('"0 3 4"', '"0 0 1" pitch="0.01"'))
    assert (joint_named(d, "shoulder").type, joint_named(d, "shoulder").pitch) == ("screw", 0.01)
    d = read_urdf(text.replace('"revolute"', '"universal"').replace('"0 3 4"', '"0 0 1" xyz2="0 2 0"'))
    np.testing.assert_array_equal(joint_named(d, "shoulder").axis2, [0, 1, 0])
    with pytest.raises(ModelError, match="pitch"):
        read_urdf(text.replace('"revolute"', '"screw"'))


def test_limits_left_out_or_huge_are_none():
    without = ARM.replace('lower="-1" upper="2" ', "")
    assert (joint_named(read_urdf(without), "shoulder").upper) == np.inf
    huge = ARM.replace('lower="-1"', 'lower="-1e30"').replace('effort="10"', 'effort="1e31"')
    shoulder = joint_named(read_urdf(huge), "shoulder")
    assert (shoulder.lower, shoulder.upper, shoulder.effort_limit) == (-np.inf, 2.0, np.inf)


def test_harmless_sloppiness():
    text = ARM.replace('name="arm"', "").replace('type="revolute"', 'type="fixed"').replace("0 3 4", "0 0 0")
    d = read_urdf("\n  " + text.replace("<mimic", "<ignored"), "folder/robot.urdf")
    assert d.name == "robot"  # a robot without a name takes that of its file
    fixed_mimic = ARM.replace('type="prismatic"', 'type="fixed"').replace('joint="shoulder"', 'joint="gone"')
    assert joint_named(read_urdf(fixed_mimic), "elbow").mimic is None
    with pytest.warns(ModelWarning, match='first <axis> of joint "shoulder"'):
        d = read_urdf(ARM.replace('<axis xyz="0 3 4"/>', '<axis xyz="0 0 1"/><axis xyz="0 1 0"/>'))
    np.testing.assert_array_equal(joint_named(d, "shoulder").axis, [0, 0, 1])
    latin = ARM.replace("utf-8", "iso-8859-1").replace('"arm"', '"bras_à_deux"')
    assert read_urdf(latin.encode("iso-8859-1")).name == read_urdf(latin).name == "bras_à_deux"
    taken = read_urdf(ARM.replace('"shoulder"', '"root"'))
    assert [joint.name for joint in taken.joints] == ["world_root", "root", "elbow"]


def test_mimic_that_forgot_its_prefix():
    text = ARM.replace('name="shoulder"', 'name="L_shoulder"').replace('name="elbow"', 'name="L_elbow"')
    with pytest.warns(ModelWarning, match='mimic "shoulder" of joint "L_elbow" is "L_shoulder"'):
        assert joint_named(read_urdf(text), "L_elbow").mimic.joint == "L_shoulder"


# --- meshes --------------------------------------------------------------------------------------------


def mesh_robot(*names: str) -> str:
    visuals = "".join(f'<visual><geometry><mesh filename="{n}"/></geometry></visual>' for n in names)
    return f'<robot name="m"><link name="a">{visuals}</link></robot>'


@pytest.fixture
def mesh_folders(tmp_path):
    """model/ (the file's folder), packages/parts (a package folder), secret.stl (outside both)."""
    for path in ("model/near.stl", "model/sub/deep.stl", "packages/parts/meshes/far.stl", "secret.stl"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("solid")
    (tmp_path / "model/link.stl").symlink_to(tmp_path / "secret.stl")
    return tmp_path


def test_meshes_are_found_inside_the_folders(mesh_folders, recwarn):
    names = [
        "near.stl",
        "sub/../sub/deep.stl",
        "package://parts/meshes/far.stl",
        "package:///parts/meshes/far.stl",
    ]
    names.append(f"file://{mesh_folders}/model/near.stl")
    d = read_urdf(mesh_robot(*names), "m.urdf", mesh_folders / "model", [mesh_folders / "packages"])
    assert [Path(shape.path).name for shape in d.bodies[0].shapes] == [n.rpartition("/")[2] for n in names]
    assert not recwarn.list
    package = str(mesh_folders / "packages" / "parts")  # the package itself will do
    assert find_mesh("package://parts/meshes/far.stl", None, (package,)).endswith("far.stl")


def test_meshes_elsewhere_are_missing_and_never_touched(mesh_folders, monkeypatch):
    names = ["../secret.stl", "package://../secret.stl", f"file://{mesh_folders}/secret.stl", "link.stl"]
    names += [
        str(mesh_folders / "secret.stl"),
        "package://parts/../../secret.stl",
        "http://x/y.stl",
        "none.stl",
    ]
    tested = []
    for function in (os.path.isfile, os.path.realpath):
        spy = lambda path, f=function, **kw: tested.append(str(path)) or f(path, **kw)  # noqa: E731
        monkeypatch.setattr(os.path, function.__name__, spy)
    with pytest.warns(ModelWarning) as caught:
        d = read_urdf(mesh_robot(*names), "m.urdf", mesh_folders / "model", [mesh_folders / "packages"])
    assert len(caught) == 1 and "8 mesh files not found" in str(caught[0].message)
    assert [(shape.mesh, shape.path) for shape in d.bodies[0].shapes] == [(name, "") for name in names]
    assert tested and not any("secret" in path for path in tested)


# --- hostile and wrong files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, message",
    [
        ("<robot><link name='a'></robot>", r"line 1, column \d+: malformed XML"),
        ("", "empty file"),
        ("just words", "malformed"),
        ('<!DOCTYPE r [<!ENTITY a "b">]><robot name="&a;"/>', "line 1: document type"),
        ('<!DOCTYPE r SYSTEM "file:///etc/passwd"><robot/>', "DOCTYPE"),
        ("<robot>" * 300, "nested deeper"),
        ('<?xml version="1.0" encoding="klingon"?><robot/>', "encoding"),
        ("<robot name='\ud800'/>", "UTF-8"),
    ],
)
def test_bad_xml_is_refused(text, message):
    with pytest.raises(ModelError, match=message) as error:
        parse_xml(text.encode() if "klingon" in text else text, "bad.urdf")
    assert str(error.value).startswith("bad.urdf")


def test_absurd_sizes_are_refused(monkeypatch):
    monkeypatch.setattr(xml_safe, "MAX_BYTES", 1000)
    with pytest.raises(ModelError, match="too large"):
        parse_xml("<robot>" + " " * 1000 + "</robot>", "big.urdf")
    monkeypatch.setattr(xml_safe, "MAX_ELEMENTS", 10)
    with pytest.raises(ModelError, match="more than 10 elements"):
        parse_xml("<robot>" + "<a/>" * 10 + "</robot>", "big.urdf")


def test_xml_keeps_lines_and_text():
    root = parse_xml("\n\n<a>\n x<b/>y<!-- c -->z\n</a>", "t.xml")
    assert (root.line, root[0].line, root.text, root[0].tail) == (3, 4, "\n x", "yz\n")


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("<robot ", "<mujoco ", "root is not <robot>"),
        ("</robot>", "<xacro:leg side='left'/></robot>", "xacro file.xacro > file.urdf"),
        ('"0 0 0.5"', '"0 0 ${h}"', r'joint "shoulder" \(line 18\): unresolved xacro'),
        ('"revolute"', '"hinge"', r'arm.urdf, joint "shoulder" \(line 17\): unknown joint type "hinge"'),
        ('<parent link="base"/>', '<parent link="b"/>', r'"shoulder" \(line 17\): the parent link "b" does'),
        ('<child link="lower"/>', '<child link="l"/>', r'joint "elbow" \(line 24\): the child link "l" does'),
        ('<child link="lower"/>', '<child link="upper"/>', "already the child"),
        ('<link name="base"/>', '<link name="base"/><link name="other"/>', '2 root links: base, other'),
        ('<parent link="base"/>', '<parent link="lower"/>', "cycle"),
        ('name="lower"', 'name="upper"', r'link "upper" \(line 16\): another link has the same name'),
        ('name="elbow"', 'name="shoulder"', r"\(line 24\): another joint has the same name"),
        ('<mass value="2"/>', '<mass value="-2"/>', r'link "upper" \(line 5\): negative mass'),
        ('<mass value="2"/>', '<mass value="nan"/>', r'link "upper" \(line 8\).*not a finite number'),
        ('<mass value="2"/>', '<mass value="1e999"/>', "not a finite number"),
        ('<mass value="2"/>', '<mass value="1_0"/>', "not a finite number"),
        ('<mass value="2"/>', "<mass/>", '<mass> has no "value"'),
        ('<mass value="2"/>', "", "<inertial> without <mass>"),
        ('"0 3 4"', '"0 0 0"', r'joint "shoulder" \(line 17\): axis is zero'),
        ('"0 3 4"', '"0 1"', "has 2 numbers"),
        ('lower="-1"', 'lower="3"', "limits reversed"),
        ('upper="2"', 'upper="inf"', "not a finite number"),
        ('joint="shoulder"', 'joint="ghost"', r'joint "elbow" \(line 24\): mimics joint "ghost"'),
        ('joint="shoulder"', 'joint="elbow"', "mimics itself"),
        ('<box size="1 2 3"/>', "<pyramid/>", "without a known geometry"),
        ('<child link="upper"/>', "", "no <child>"),
        ('name="elbow"', "", 'no "name"'),
    ],
)  # fmt: skip
def test_wrong_files_are_refused(old, new, message):
    assert old in ARM
    text = ARM.replace(old, new, 1) if old != "<robot " else ARM.replace("robot", "mujoco")
    with pytest.raises(ModelError, match=message) as error:
        read_urdf(text, "arm.urdf")
    assert str(error.value).startswith("arm.urdf, ") and error.value.remedy


def test_a_robot_without_links_is_refused():
    with pytest.raises(ModelError, match="no <link>"):
        read_urdf("<robot name='r'/>")
    with pytest.raises(ModelError, match="no <link>"):
        load("ur_description/urdf/ur3.urdf")


# --- writing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_round_trip_of_robots(name):
    d = load(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing of a URDF is lost
        text = write_urdf(d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        assert_same(d, read_urdf(text, d.source, (ROBOTS / name).parent, [SHARE]))


def test_written_files_suit_other_readers():
    model = pin.buildModelFromXML(write_urdf(read_urdf(ARM.replace('lower="-1" upper="2" ', ""))))
    assert list(model.names) == ["universe", "shoulder", "elbow"]
    assert model.upperPositionLimit[0] == 1e30


def two_links(joint: Joint, **more) -> Description:
    bodies = tuple(Body(name, 1.0, np.zeros(3), np.eye(3)) for name in ("a", "b"))
    return Description(bodies=bodies, joints=(Joint("root", "fixed", WORLD, "a"), joint), **more)


def random_pose(seed: int, pitch: float | None = None) -> Pose:
    rng = np.random.default_rng(seed)
    rpy = rng.uniform(-3, 3, 3)
    return Pose(
        matrix_from_rpy(rpy if pitch is None else np.array([rpy[0], pitch, rpy[2]])), rng.normal(size=3)
    )


def test_round_trip_of_extensions_and_one_sided_limits():
    joint = Joint(
        "j", "revolute", "a", "b", random_pose(1), upper=1.5, armature=0.1, stiffness=2.0, damping=0.3
    )
    d = two_links(replace(joint, spring_reference=0.7, effort_limit=5.0))
    assert_same(d, read_urdf(write_urdf(d)))
    d = two_links(Joint("j", "planar", "a", "b", axis2=np.array([0.0, 1.0, 0.0]), damping=0.1))
    assert_same(d, read_urdf(write_urdf(d)))
    d = two_links(Joint("j", "free", "a", "b", random_pose(2)))
    assert_same(d, read_urdf(write_urdf(d)))


@pytest.mark.parametrize("gap", [0.0, 1e-15, 1e-12, 1e-9, 1e-7, 3.7e-6, 1e-3])
def test_rotations_survive_near_the_pole(gap):
    for seed in range(20):
        noisy = random_pose(seed + 100)  # so that the small entries carry rounding errors, as products do
        pose = noisy @ (noisy.inverse() @ random_pose(seed, (-1) ** seed * (np.pi / 2 - gap)))
        d = two_links(Joint("j", "fixed", "a", "b", pose))
        assert_same(d, read_urdf(write_urdf(d)))


def test_universal_and_cylindrical_joints_are_split():
    X, axes = random_pose(3), np.array([[0.0, 0.6, 0.8], [1.0, 0.0, 0.0]])
    universal = Joint(
        "u", "universal", "a", "b", X, axis=axes[0], axis2=axes[1], damping=(0.1, 0.2), upper=(1, 2)
    )
    d = read_urdf(write_urdf(two_links(universal)))
    assert [body.name for body in d.bodies] == ["a", "b", "u_between"]
    first, second = joint_named(d, "u_1"), joint_named(d, "u_2")
    assert (first.parent, first.child, second.parent, second.child) == ("a", "u_between", "u_between", "b")
    assert (first.type, first.damping, first.upper) == ("revolute", 0.1, 1.0)
    assert (second.type, second.damping, second.upper) == ("revolute", 0.2, 2.0)
    np.testing.assert_allclose([first.axis, second.axis], axes)
    assert_same(first.placement, X)
    assert_same(second.placement, Pose())

    d = read_urdf(write_urdf(two_links(Joint("c", "cylindrical", "a", "b", X, axis=axes[0]))))
    assert [joint_named(d, name).type for name in ("c_1", "c_2")] == ["revolute", "prismatic"]


def test_offsets_roots_and_frames_become_fixed_joints():
    X, Y, Z = random_pose(4), random_pose(5), random_pose(6)
    d = two_links(Joint("j", "revolute", "a", "b", X, offset=Y), frames=(Frame("tool", "b", Z),))
    back = read_urdf(write_urdf(d))
    assert (joint_named(back, "j").child, joint_named(back, "j_offset").child) == ("j_frame", "b")
    assert_same(joint_named(back, "j_offset").placement, Y)
    assert (joint_named(back, "tool_fixed").parent, joint_named(back, "tool_fixed").child) == ("b", "tool")
    assert_same(joint_named(back, "tool_fixed").placement, Z)

    free = d.replace(joints=(replace(d.joints[0], type="free", placement=X), d.joints[1]), frames=())
    back = read_urdf(write_urdf(free))
    assert (joint_named(back, "root").type, joint_named(back, "root").parent) == ("free", "world")
    assert joint_named(back, "world_root").child == "world"


@pytest.mark.parametrize("kind", ["screw", "spherical"])
def test_joints_that_urdf_lacks_are_refused(kind):
    with pytest.raises(ModelError, match=f'joint "j": URDF has no {kind} joint'):
        write_urdf(two_links(Joint("j", kind, "a", "b")))


def test_several_roots_are_refused():
    with pytest.raises(ModelError, match="2 roots"):
        write_urdf(two_links(Joint("j", "fixed", WORLD, "b")))


def test_what_a_urdf_cannot_hold_is_named():
    d = two_links(
        Joint("j", "planar", "a", "b", damping=(1, 2, 3)),
        loops=(Loop("ring", "weld", "a", "b"),),
        actuators=(Actuator("motor", "j"),),
        keyframes=(Keyframe("home", np.zeros(3)),),
        gravity=np.zeros(3),
        world_shapes=(Shape("plane"),),
    )
    with pytest.warns(ModelWarning) as caught:
        write_urdf(d)
    assert len(caught) == 1
    for part in (
        'actuator "motor"',
        'keyframe "home"',
        "gravity",
        "ground",
        "damping per degree",
    ):
        assert part in str(caught[0].message)
