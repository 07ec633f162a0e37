"""The MJCF reader: contents against MuJoCo's compiled model, dynamics against MuJoCo C, and bad files."""

from __future__ import annotations

import functools
import os
import re
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mjcf_models import MODELS

import jaxrbd as rbd
from jaxrbd.errors import ModelError, ModelWarning
from jaxrbd.model import convert
from jaxrbd.model.description import JOINT_SIZES, WORLD, Pose
from jaxrbd.model.mjcf import read_mjcf
from jaxrbd.model.rotations import matrix_from_quaternion

mujoco = pytest.importorskip("mujoco")


def read(text, **options):
    """Read, with every warning an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_mjcf(text, **options)


def by_name(items):
    return {item.name: item for item in items}


def random_qpos(model, rng):
    qpos = rng.normal(size=model.nq)
    mujoco.mj_normalizeQuat(model, qpos)
    return qpos


def poses(description, q):
    """Pose of every body in the world, by the joint convention of `Description`."""
    X, at = {WORLD: Pose()}, 0
    for joint in description.joints:
        nq = JOINT_SIZES[joint.type][0]
        z, at = q[at : at + nq], at + nq
        motion = Pose()
        if joint.type == "revolute":
            half = np.concatenate([[np.cos(z[0] / 2)], np.sin(z[0] / 2) * joint.axis])
            motion = Pose(matrix_from_quaternion(half))
        elif joint.type == "prismatic":
            motion = Pose(p=joint.axis * z[0])
        elif joint.type == "spherical":
            motion = Pose(matrix_from_quaternion(z))
        elif joint.type == "free":
            motion = Pose(matrix_from_quaternion(z[3:]), z[:3])
        X[joint.child] = X[joint.parent] @ joint.placement @ motion @ joint.offset
    assert at == len(q)
    return X


@pytest.fixture(params=MODELS)
def case(request):
    text = MODELS[request.param]
    return read(text), mujoco.MjModel.from_xml_string(text)


# ---------------------------------------------------------------- description against MjModel


def test_bodies_and_sites_stand_where_mujoco_puts_them(case):
    description, model = case
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    real = [b.name for b in description.bodies if b.name.count("/") == 0]
    assert len(real) == model.nbody - 1
    for _ in range(5):
        data.qpos[:] = random_qpos(model, rng)
        mujoco.mj_kinematics(model, data)
        X = poses(description, data.qpos)
        for i, name in enumerate(real, start=1):
            np.testing.assert_allclose(X[name].p, data.xpos[i], atol=1e-13)
            np.testing.assert_allclose(X[name].R, data.xmat[i].reshape(3, 3), atol=1e-13)
        for i, frame in enumerate(description.frames):
            site = X[frame.body] @ frame.pose
            np.testing.assert_allclose(site.p, data.site_xpos[i], atol=1e-13)
            np.testing.assert_allclose(site.R, data.site_xmat[i].reshape(3, 3), atol=1e-13)
        shapes = [(WORLD, s) for s in description.world_shapes]
        shapes += [(b.name, s) for b in description.bodies for s in b.shapes]
        for i, (body, shape) in enumerate(shapes):
            np.testing.assert_allclose((X[body] @ shape.pose).p, data.geom_xpos[i], atol=1e-13)


def test_masses_and_gravity(case):
    description, model = case
    real = [b for b in description.bodies if b.name.count("/") == 0]
    for i, body in enumerate(real, start=1):
        assert body.mass == model.body_mass[i]
        np.testing.assert_allclose(body.com, model.body_ipos[i])
        np.testing.assert_allclose(
            np.linalg.eigvalsh(body.inertia), np.sort(model.body_inertia[i]), rtol=1e-10, atol=1e-15
        )
    assert all(b.mass == 0 for b in description.bodies if "/" in b.name)
    gravity_off = model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY
    np.testing.assert_allclose(description.gravity, np.zeros(3) if gravity_off else model.opt.gravity)


def test_full_inertia_is_kept():
    lower = by_name(read(MODELS["pendulum"]).bodies)["lower"]
    expected = np.array([[0.02, 0.002, -0.001], [0.002, 0.03, 0.003], [-0.001, 0.003, 0.025]])
    np.testing.assert_allclose(lower.inertia, expected, atol=1e-12)


def test_joint_parameters():
    joints = by_name(read(MODELS["pendulum"]).joints)
    shoulder, elbow = joints["shoulder"], joints["elbow"]
    assert (shoulder.type, shoulder.damping, shoulder.armature, shoulder.friction) == (
        "revolute",
        0.2,
        0.03,
        0,
    )
    np.testing.assert_allclose([shoulder.lower, shoulder.upper], np.deg2rad([-90, 120]))
    np.testing.assert_allclose([elbow.stiffness, elbow.spring_reference], [4, np.deg2rad(-15)])
    assert elbow.friction == 0.7
    quadruped = by_name(read(MODELS["quadruped"]).joints)
    assert quadruped["left_hip"].effort_limit == 30
    assert quadruped["left_knee"].effort_limit == quadruped["left_knee"].upper == np.inf
    rotors = by_name(read(MODELS["rotors"]).joints)["spin"]
    np.testing.assert_allclose([rotors.armature, rotors.damping], [36 * 0.001, 0.4 + 36 * 0.01])


def test_names_and_chains():
    forest = read(MODELS["forest"])
    joints = by_name(forest.joints)
    assert joints["ball_free"].type == joints["brick_motion"].type == "free"
    assert (joints["table"].type, joints["table"].parent) == ("fixed", WORLD)
    assert joints["body7_ball"].child == "body7"
    assert (joints["bracket"].type, joints["bracket"].parent) == ("fixed", "arm")
    several = read(MODELS["several_joints"])
    chain = [(j.name, j.parent, j.child) for j in several.joints[:3]]
    assert chain == [
        ("slide", WORLD, "a/slide"),
        ("yaw", "a/slide", "a/yaw"),
        ("pitch", "a/yaw", "a"),
    ]


def test_shapes():
    pendulum = read(MODELS["pendulum"])
    (floor,) = pendulum.world_shapes
    assert (floor.kind, floor.size, floor.friction, floor.role) == ("plane", (), 0.6, "collision")
    bodies = by_name(pendulum.bodies)
    (arm,) = bodies["upper"].shapes
    assert (arm.kind, arm.name) == ("capsule", "arm")
    np.testing.assert_allclose(arm.size, (0.04, 0.4))
    (box,) = bodies["lower"].shapes
    assert (box.kind, box.role, box.rgba) == ("box", "visual", (1, 0, 0, 1))
    np.testing.assert_allclose(box.size, (0.2, 0.04, 0.06))
    ellipsoid, cylinder = by_name(read(MODELS["several_joints"]).bodies)["b"].shapes
    np.testing.assert_allclose(ellipsoid.size, (0.05, 0.1, 0.15))
    np.testing.assert_allclose(cylinder.size, (0.03, 0.2))


def test_actuators_push_as_in_mujoco():
    text = MODELS["quadruped"]
    description, model = read(text), mujoco.MjModel.from_xml_string(text)
    kinds = {a.name: a.kind for a in description.actuators}
    assert kinds == {
        "left_hip": "position",
        "left_knee": "torque",
        "right_hip": "velocity",
        "bent": "affine",
        "yaw_thruster": "torque",
    }
    assert description.actuators[0].control_range == (-1, 1)
    assert description.actuators[0].force_range == (-20, 20)
    system = rbd.build(description)
    data, rng = mujoco.MjData(model), np.random.default_rng(1)
    data.qpos[:], data.qvel[:] = random_qpos(model, rng), rng.normal(size=model.nv)
    data.ctrl[:] = rng.normal(size=model.nu)
    mujoco.mj_forward(model, data)
    q, v = convert.from_mujoco(system, data.qpos, data.qvel)
    tau = rbd.actuator_force(system, q, v, data.ctrl)
    np.testing.assert_allclose(convert.force_to_mujoco(system, q, tau), data.qfrc_actuator, atol=1e-12)


def test_keyframes_in_our_coordinates():
    description = read(MODELS["quadruped"])
    key = by_name(description.keyframes)["crouch"]
    np.testing.assert_allclose(key.q, [0, 0, 0.3, 0.8, 0, 0.6, 0, 0.5, -0.9, 0.4])
    R = matrix_from_quaternion([0.8, 0, 0.6, 0])
    np.testing.assert_allclose(key.v, [0.1, 0.2, 0.3, *(R.T @ [1, 2, 3]), 4, 5, 6])
    np.testing.assert_allclose(key.u, [0.1, 0.2, 0.3, 0.4, 0.5])
    system = rbd.build(description)
    np.testing.assert_allclose(system.q0[:7], [0, 0, 0.5, 1, 0, 0, 0])


def test_home_is_the_pose_of_the_file():
    model = mujoco.MjModel.from_xml_string(MODELS["several_joints"])
    home = by_name(read(MODELS["several_joints"]).keyframes)["home"]
    np.testing.assert_allclose(home.q, model.qpos0)
    written = MODELS["quadruped"].replace('name="crouch"', 'name="home"')
    assert [k.name for k in read(written).keyframes] == ["home"]


def test_loops_vanish_where_mujoco_says_so():
    text = MODELS["linkage"]
    description, model = read(text), mujoco.MjModel.from_xml_string(text)
    loops = by_name(description.loops)
    assert [loops[n].active for n in ("pin", "sites", "glue", "gear", "lock")] == [
        True,
        False,
        False,
        True,
        True,
    ]
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT
    data, rng = mujoco.MjData(model), np.random.default_rng(2)
    data.eq_active[:] = 1
    data.qpos[:] = rng.normal(size=model.nq)
    mujoco.mj_forward(model, data)
    error = {loop: data.efc_pos[data.efc_id == i] for i, loop in enumerate(loops)}
    X = poses(description, data.qpos)
    for name in ("pin", "sites", "glue"):
        loop = loops[name]
        a, b = X[loop.body_a] @ loop.pose_a, X[loop.body_b] @ loop.pose_b
        np.testing.assert_allclose(a.p - b.p, error[name][:3], atol=1e-12)
    glue = loops["glue"]
    data.qpos[:] = model.qpos0
    home = poses(description, data.qpos)
    a, b = home["cart"] @ glue.pose_a, home["wheel"] @ glue.pose_b
    np.testing.assert_allclose(a.R, b.R, atol=1e-12)
    np.testing.assert_allclose(a.p, b.p, atol=1e-12)


def test_joint_couplings_include_the_reference():
    loops = by_name(read(MODELS["linkage"]).loops)
    gear, lock = loops["gear"], loops["lock"]
    q_rod = 0.9
    expected = 0.1 + 0.2 + 1.5 * (q_rod - 0.3) + 0.3 * (q_rod - 0.3) ** 2
    np.testing.assert_allclose(np.polynomial.Polynomial(gear.coefficients)(q_rod), expected)
    assert (gear.body_a, gear.body_b) == ("crank", "rod")
    assert (lock.body_a, lock.coefficients) == ("wheel", (0.7,))


# ---------------------------------------------------------------- dynamics against MuJoCo C


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0, 0, 0))
def dynamics(sys, qpos, qvel, qfrc):
    """MuJoCo's mass matrix, qfrc_bias and qacc, computed by us."""
    q, v = convert.from_mujoco(sys, qpos, qvel)
    velocity_map = jax.jacobian(lambda x: convert.from_mujoco(sys, qpos, x)[1])(qvel)
    M = velocity_map.T @ rbd.mass_matrix(sys, q) @ velocity_map
    # a body that keeps its world velocity has an acceleration in ours
    rest = convert.acceleration_from_mujoco(sys, qpos, qvel, jnp.zeros_like(qvel))
    bias = convert.force_to_mujoco(sys, q, rbd.inverse_dynamics(sys, q, v, rest))
    a = rbd.forward_dynamics(sys, q, v, convert.force_from_mujoco(sys, qpos, qfrc))
    return M, bias, convert.acceleration_to_mujoco(sys, q, v, a)


@pytest.mark.parametrize("name", MODELS)
def test_dynamics_agree_with_mujoco(name):
    text = MODELS[name]
    system, model = rbd.build(read(text)), mujoco.MjModel.from_xml_string(text)
    bits = mujoco.mjtDisableBit
    model.opt.disableflags |= bits.mjDSBL_CONSTRAINT | bits.mjDSBL_ACTUATION
    model.opt.disableflags |= bits.mjDSBL_SPRING | bits.mjDSBL_DAMPER
    rng, n = np.random.default_rng(3), 8
    qpos = np.stack([random_qpos(model, rng) for _ in range(n)])
    qvel, qfrc = rng.normal(size=(2, n, model.nv)) * [[[3.0]], [[5.0]]]
    ours = dynamics(system, qpos, qvel, qfrc)
    data, M = mujoco.MjData(model), np.zeros((model.nv, model.nv))
    for k in range(n):
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = qpos[k], qvel[k], qfrc[k]
        mujoco.mj_forward(model, data)
        mujoco.mj_fullM(model, data, M)
        for mine, theirs in zip(ours, (M, data.qfrc_bias, data.qacc)):
            np.testing.assert_allclose(mine[k], theirs, rtol=1e-10, atol=1e-10 * np.abs(theirs).max())


@pytest.mark.parametrize("name", ["pendulum", "several_joints", "forest", "rotors"])
def test_springs_and_damping_agree_with_mujoco(name):
    text = MODELS[name]
    system, model = rbd.build(read(text)), mujoco.MjModel.from_xml_string(text)
    # dry friction and limits are constraints in MuJoCo
    inf = jnp.full(system.nv, jnp.inf)
    system = system.replace(friction=jnp.zeros(system.nv), lower=-inf, upper=inf)
    data, rng = mujoco.MjData(model), np.random.default_rng(4)
    data.qpos[:], data.qvel[:] = random_qpos(model, rng), rng.normal(size=model.nv)
    mujoco.mj_forward(model, data)
    q, v = convert.from_mujoco(system, data.qpos, data.qvel)
    passive = convert.force_to_mujoco(system, q, rbd.passive_force(system, q, v))
    np.testing.assert_allclose(passive, data.qfrc_passive, rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------- files: meshes, includes, what is missing

TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
MESHES = """
<mujoco>
  <compiler meshdir="meshes"/>
  <asset>
    <mesh name="tetra" file="tetra.obj" scale="2 2 2" refpos="0.1 0.2 0.3" refquat="0.8 0.6 0 0"/>
    <mesh file="sub/lost.stl"/>
    <texture name="wood" type="2d" file="wood.png"/>
    <material name="wooden" texture="wood" rgba="0.1 0.2 0.3 1"/>
    <hfield name="hills" file="hills.png" size="4 3 2 1"/>
  </asset>
  <worldbody>
    <geom type="hfield" hfield="hills"/>
    <body name="a" pos="0 0 1">
      <joint name="j"/>
      <geom name="seen" type="mesh" mesh="tetra" pos="1 2 3" euler="10 20 30" material="wooden"/>
    </body>
    <body name="b">
      <joint name="k"/>
      <inertial mass="1" pos="0 0 0" diaginertia="1 1 1"/>
      <geom type="mesh" mesh="lost" pos="1 0 0"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model" / "meshes").mkdir(parents=True)
    (tmp_path / "model" / "meshes" / "tetra.obj").write_text(TETRAHEDRON)
    (tmp_path / "outside.obj").write_text(TETRAHEDRON)
    return tmp_path / "model"


def test_missing_meshes_are_named_once_and_kept(folder):
    with pytest.warns(ModelWarning) as caught:
        description = read_mjcf(MESHES, "robot.xml", folder)
    (text,) = (str(w.message) for w in caught)
    assert "sub/lost.stl" in text
    assert "hills.png" in text
    bodies = by_name(description.bodies)
    (lost,), (seen,) = bodies["b"].shapes, bodies["a"].shapes
    assert (lost.kind, lost.mesh, lost.path, lost.size) == ("mesh", "sub/lost.stl", "", (1, 1, 1))
    np.testing.assert_allclose(lost.pose.p, [1, 0, 0], atol=1e-12)
    assert (seen.mesh, seen.path) == ("tetra.obj", str(folder / "meshes" / "tetra.obj"))
    assert seen.rgba == pytest.approx((0.1, 0.2, 0.3, 1))
    (hills,) = description.world_shapes
    assert (hills.kind, hills.size, hills.mesh) == ("heightfield", (4, 3, 2, 1), "hills.png")


def test_mesh_vertices_land_where_mujoco_has_them(folder):
    text = re.sub(r"<(texture|hfield|material|mesh file|geom type).*", "", MESHES).replace(
        'material="wooden"', ""
    )
    model = mujoco.MjModel.from_xml_string(text, {"meshes/tetra.obj": TETRAHEDRON.encode()})
    body = by_name(read(text, folder=folder).bodies)["a"]
    np.testing.assert_allclose([body.mass, *body.com], [model.body_mass[1], *model.body_ipos[1]])
    (shape,) = body.shapes
    raw = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    ours = raw * shape.size @ shape.pose.R.T + shape.pose.p
    theirs = model.mesh_vert @ matrix_from_quaternion(model.geom_quat[0]).T + model.geom_pos[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_missing_mesh_that_gives_the_inertia_is_an_error(folder):
    os.remove(folder / "meshes" / "tetra.obj")
    with pytest.raises(ModelError, match=r"robot.xml, body 'a', geom 'seen'.*tetra.obj.*<inertial>"):
        read_mjcf(MESHES, "robot.xml", folder)


@pytest.mark.parametrize("name", ["../../outside.obj", "/etc/passwd", "link.obj"])
def test_files_outside_the_folder_are_missing(folder, name):
    os.symlink(folder.parent / "outside.obj", folder / "meshes" / "link.obj")
    text = MESHES.replace('file="sub/lost.stl"', f'name="lost" file="{name}"')
    with pytest.warns(ModelWarning, match=re.escape(name)):
        description = read_mjcf(text, "robot.xml", folder)
    assert by_name(description.bodies)["b"].shapes[0].path == ""
    with pytest.warns(ModelWarning):
        named = read_mjcf(text, "robot.xml", folder, package_dirs=[folder.parent])
    found = by_name(named.bodies)["b"].shapes[0].path
    assert bool(found) == (name != "/etc/passwd")


def test_includes_and_submodels(folder):
    (folder / "arm.xml").write_text(
        '<mujocoinclude><body name="arm"><joint name="j"/><geom size="0.1"/></body></mujocoinclude>'
    )
    (folder / "tool.xml").write_text(
        '<mujoco model="tool"><worldbody><body name="t"><joint name="turn"/>'
        '<geom size="0.1"/></body></worldbody></mujoco>'
    )
    text = """<mujoco><asset><model name="tool" file="tool.xml"/></asset>
      <worldbody><include file="arm.xml"/>
      <body name="base"><geom size="1"/><attach model="tool" body="t" prefix="x_"/></body>
      </worldbody></mujoco>"""
    description = read(text, source="top.xml", folder=folder)
    assert [j.name for j in description.joints] == ["j", "base", "x_turn"]
    with pytest.raises(ModelError, match=r"top.xml, line 2, <include>.*was not found"):
        read_mjcf(text.replace("arm.xml", "../outside.xml"), "top.xml", folder)
    (folder / "arm.xml").write_text('<mujocoinclude><include file="arm.xml"/></mujocoinclude>')
    with pytest.raises(ModelError, match="included again"):
        read_mjcf(text, "top.xml", folder)


def test_what_is_not_represented_is_listed_in_one_warning():
    text = """<mujoco><option density="1.2"/><worldbody>
      <body name="a" gravcomp="1"><joint name="j" type="ball" range="0 1" limited="true"/><geom size="1"/>
        <site name="a"/><site name="s" pos="0 0 1"/></body>
      <body name="m" mocap="true"/>
    </worldbody>
    <tendon><spatial name="t"><site site="a"/><site site="s"/></spatial></tendon>
    <actuator><motor name="pull" tendon="t"/><muscle name="flex" tendon="t"/>
      <motor name="push" site="s"/></actuator>
    <sensor><ballquat joint="j"/></sensor></mujoco>"""
    with pytest.warns(ModelWarning) as caught:
        description = read_mjcf(text, "odd.xml")
    (message,) = (str(w.message) for w in caught)
    for part in ("limit of ball joint 'j'", "'pull'", "'flex'", "'push'", "tendon", "gravcomp", "fluid"):
        assert part in message
    for part in ("sensor", "mocap", "'a_site'"):
        assert part in message
    assert [f.name for f in description.frames] == ["a_site", "s"]
    assert description.actuators == ()


BAD = {
    "malformed": ("<mujoco><worldbody></mujoco>", "bad.xml, line 1.*malformed XML"),
    "entity": ('<!DOCTYPE m [<!ENTITY a "b">]><mujoco/>', "declarations are refused"),
    "element": ("<mujoco>\n<worldbody>\n<!-- two\nlines -->\n<bodi/></worldbody></mujoco>", "'bodi', line 5"),
    "joint": ('<mujoco><worldbody><body><joint type="hing"/></body></worldbody></mujoco>', "line 1"),
    "massless": ("<mujoco><worldbody><body><joint/></body></worldbody></mujoco>", "mass and inertia"),
    "number": ('<mujoco><option gravity="0 nan 0"/></mujoco>', "<option>.*not finite"),
    "huge number": ('<mujoco><option gravity="0 1e999 0"/></mujoco>', "<option>.*not finite"),
    "copies": (
        '<mujoco><worldbody><replicate count="9999"><replicate count="9999"><geom size="1"/></replicate>'
        "</replicate></worldbody></mujoco>",
        "<replicate>.*copies",
    ),
    "many copies": (
        '<mujoco><worldbody><replicate count="9999"><geom size="1"/><geom size="1"/><geom size="1"/>'
        "</replicate></worldbody></mujoco>",
        "elements after replication",
    ),
    "composite": (
        '<mujoco><worldbody><composite type="cable" count="99999999 1 1"/></worldbody></mujoco>',
        "copies",
    ),
    "file": (
        '<mujoco><worldbody><body file="/etc/passwd"/></worldbody></mujoco>',
        "<body>.*file.*not expected",
    ),
    "root": ("<robot/>", "root element <robot>"),
    "duplicate": (
        '<mujoco><worldbody><body name="a"/><body name="a"/></worldbody></mujoco>',
        "MuJoCo refused.*repeated name",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_raise_our_error(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, pattern = BAD[kind]
    with pytest.raises(ModelError, match=pattern) as caught:
        read_mjcf(text, "bad.xml")
    assert "bad.xml" in str(caught.value)
    assert os.listdir(tmp_path) == []  # MuJoCo's log file stays away


def test_without_mujoco_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ModelError, match=r'robot.xml.*pip install "jaxrbd\[mujoco\]"'):
        read_mjcf("<mujoco/>", "robot.xml")


def test_flexible_bodies_are_left_out_with_a_warning():
    text = """<mujoco><worldbody><body name="a"><joint name="j"/><geom size="1"/>
      <flexcomp name="cloth" type="grid" count="9 9 1" spacing="0.1 0.1 0.1" mass="1" dim="2"/>
      </body></worldbody></mujoco>"""
    with pytest.warns(ModelWarning, match="<flexcomp>"):
        assert [b.name for b in read_mjcf(text).bodies] == ["a"]


def test_sizes_that_would_allocate_are_ignored():
    text = """<mujoco><size memory="900G" nuserdata="2000000000"/>
      <custom><numeric name="n" size="2000000000" data="1"/></custom>
      <asset><texture name="t" type="2d" builtin="flat" width="90000" height="90000"/>
        <hfield name="h" nrow="90000" ncol="90000" size="1 1 1 1"/></asset>
      <worldbody><geom type="hfield" hfield="h"/></worldbody></mujoco>"""
    assert read(text).world_shapes[0].kind == "heightfield"
