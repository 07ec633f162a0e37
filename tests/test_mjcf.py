"""The MJCF reader: contents against MuJoCo's compiled model, dynamics against MuJoCo C."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mjcf_models import MODELS, by_name, read

import jaxrbd as rbd
from jaxrbd.joints import TYPES
from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.model import convert
from jaxrbd.model.description import WORLD, Pose

mujoco = pytest.importorskip("mujoco")


def random_qpos(model, rng):
    qpos = rng.normal(size=model.nq)
    mujoco.mj_normalizeQuat(model, qpos)
    return qpos


def poses(description, q):
    """Pose of every body in the world, by the joint convention of `Description`."""
    X, at = {WORLD: Pose()}, 0
    for joint in description.joints:
        nq = TYPES[joint.type].nq
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
