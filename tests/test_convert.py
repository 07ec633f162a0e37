"""Converters to and from MuJoCo's and Pinocchio's coordinates: there and back, power, derivatives, order."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mjcf_models import MODELS

import jaxrbd as rbd
from jaxrbd.errors import ArgumentError
from jaxrbd.model import convert
from jaxrbd.model.mjcf import read_mjcf

# children out of alphabetical order, so that Pinocchio's order is not the file's
URDF = """<robot name="mixed">
  <link name="base"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="l1"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="l2"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="l3"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="l4"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="wheel" type="continuous"><parent link="base"/><child link="l1"/><axis xyz="0 1 0"/></joint>
  <joint name="arm" type="revolute"><parent link="base"/><child link="l2"/><axis xyz="1 0 0"/>
    <origin xyz="0.1 0.2 0.3"/><limit lower="-9" upper="9" effort="1" velocity="1"/></joint>
  <joint name="lift" type="prismatic"><parent link="l2"/><child link="l3"/><axis xyz="0 0 1"/>
    <limit lower="-9" upper="9" effort="1" velocity="1"/></joint>
  <joint name="drive" type="planar"><parent link="base"/><child link="l4"/><axis xyz="0 0 1"/></joint>
</robot>"""  # noqa: E501


def state(sys, seed=0):
    """Random q, v and a."""
    keys = jax.random.split(jax.random.key(seed), 3)
    q = rbd.random_configuration(sys, keys[0])
    return q, jax.random.normal(keys[1], (sys.nv,)), jax.random.normal(keys[2], (sys.nv,))


def rate(function, sys, q, v):
    """d/dt function(q, v) along dq/dt = v, dv/dt = 0."""
    return jax.jvp(lambda t: function(rbd.integrate(sys, q, t * v)), (0.0,), (1.0,))[1]


@pytest.mark.parametrize("name", ["quadruped", "forest", "several_joints"])
def test_mujoco_there_and_back(name):
    sys = rbd.build(read_mjcf(MODELS[name]))
    q, v, a = state(sys)
    qpos, qvel = convert.to_mujoco(sys, q, v)
    q_again, v_again = convert.from_mujoco(sys, qpos, qvel)
    np.testing.assert_allclose(q_again, q)
    np.testing.assert_allclose(v_again, v, atol=1e-14)
    qfrc = convert.force_to_mujoco(sys, q, a)
    np.testing.assert_allclose(qfrc @ qvel, a @ v, rtol=1e-12)
    np.testing.assert_allclose(convert.force_from_mujoco(sys, qpos, qfrc), a, atol=1e-14)
    qacc = convert.acceleration_to_mujoco(sys, q, v, a)
    np.testing.assert_allclose(convert.acceleration_from_mujoco(sys, qpos, qvel, qacc), a, atol=1e-13)
    fixed = convert.force_to_mujoco(sys, q, a)  # the velocity map at fixed q
    moving = rate(lambda x: convert.to_mujoco(sys, x, v)[1], sys, q, v)
    np.testing.assert_allclose(qacc, fixed + moving, atol=1e-12)


def test_mujoco_integrates_positions_alike():
    mujoco = pytest.importorskip("mujoco")
    sys, model = rbd.build(read_mjcf(MODELS["forest"])), mujoco.MjModel.from_xml_string(MODELS["forest"])
    q, v, _ = state(sys)
    h = 1e-6
    qpos, qvel = (np.array(x) for x in convert.to_mujoco(sys, q, v))
    moved = qpos.copy()
    mujoco.mj_integratePos(model, moved, qvel, h)
    np.testing.assert_allclose(rbd.integrate(sys, q, h * v), moved, atol=1e-11)


def test_converters_are_differentiable_and_batched():
    sys = rbd.build(read_mjcf(MODELS["forest"]))
    q, v, _ = state(sys)
    batch = jax.jit(jax.vmap(lambda x, y: convert.to_mujoco(sys, x, y)[1]))
    np.testing.assert_allclose(
        batch(jnp.stack([q, q]), jnp.stack([v, 2 * v]))[1], 2 * batch(q[None], v[None])[0]
    )
    gradient = jax.grad(lambda x: jnp.sum(convert.to_mujoco(sys, x, v)[1] ** 2))(q)
    np.testing.assert_allclose(gradient, 0, atol=1e-12)  # a rotation keeps lengths
    with pytest.raises(ArgumentError, match="vmap"):
        convert.to_mujoco(sys, jnp.stack([q, q]))


@pytest.fixture(scope="module", params=[None, "free"])
def pinocchio_case(request):
    pin = pytest.importorskip("pinocchio")
    sys = rbd.load(URDF, base=request.param)
    root = [pin.JointModelFreeFlyer()] if request.param else []
    return sys, pin, pin.buildModelFromXML(URDF, *root)


def test_pinocchio_there_and_back(pinocchio_case):
    sys, _, model = pinocchio_case
    q, v, a = state(sys)
    for order in (None, model):
        q_pin, v_pin = convert.to_pinocchio(sys, q, v, model=order)
        q_again, v_again = convert.from_pinocchio(sys, q_pin, v_pin, model=order)
        np.testing.assert_allclose(v_again, v, atol=1e-14)
        np.testing.assert_allclose(convert.to_pinocchio(sys, q_again, model=order)[0], q_pin, atol=1e-14)
        tau = convert.force_to_pinocchio(sys, q, a, model=order)
        np.testing.assert_allclose(tau @ v_pin, a @ v, rtol=1e-12)
        np.testing.assert_allclose(convert.force_from_pinocchio(sys, q_pin, tau, model=order), a, atol=1e-14)
        moving = rate(lambda x, order=order: convert.to_pinocchio(sys, x, v, model=order)[1], sys, q, v)
        a_pin = convert.acceleration_to_pinocchio(sys, q, v, a, model=order)
        np.testing.assert_allclose(a_pin, tau + moving, atol=1e-12)


def test_pinocchio_puts_links_where_we_do(pinocchio_case):
    sys, pin, model = pinocchio_case
    q, v, a = state(sys)
    q_pin, v_pin = (np.array(x) for x in convert.to_pinocchio(sys, q, v, model=model))
    data = model.createData()
    pin.framesForwardKinematics(model, data, q_pin)
    for link in ("l1", "l3", "l4"):
        R, p = rbd.frame_pose(sys, q, link)
        placement = data.oMf[model.getFrameId(link)]
        np.testing.assert_allclose(R, placement.rotation, atol=1e-12)
        np.testing.assert_allclose(p, placement.translation, atol=1e-12)
    h = 1e-6
    moved = convert.to_pinocchio(sys, rbd.integrate(sys, q, h * v), model=model)[0]
    np.testing.assert_allclose(moved, pin.integrate(model, q_pin, h * v_pin), atol=1e-11)
    a_pin = np.array(convert.acceleration_to_pinocchio(sys, q, v, a, model=model))
    tau = convert.force_to_pinocchio(sys, q, rbd.inverse_dynamics(sys, q, v, a), model=model)
    np.testing.assert_allclose(tau, pin.rnea(model, data, q_pin, v_pin, a_pin), rtol=1e-9, atol=1e-10)


def test_a_different_pinocchio_model_is_refused(pinocchio_case):
    sys, _, model = pinocchio_case
    other = rbd.load(URDF, base="fixed" if "root" in sys.joint_names else "free")
    with pytest.raises(ArgumentError, match="to_pinocchio"):
        convert.to_pinocchio(other, rbd.neutral(other), model=model)
