"""Rows that give way, by MuJoCo's law ([LOOPS] V-D) and as constant compliance; stiff springs and servos."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd import contact, dual
from jaxrbd.contact.softening import impedance

G = 9.81
CCP = dual.ADMM(law="ccp", iterations=4000, tolerance=1e-12)
OPTION = """<option timestep="0.002" cone="elliptic" solver="Newton" iterations="200"
 tolerance="1e-16" ls_iterations="100" ls_tolerance="1e-14" impratio="{ratio}">
 <flag eulerdamp="disable"/></option>"""
BOX = """<mujoco>{option}<worldbody><geom name="floor" type="plane" size="5 5 1" friction="0.6 0 0"/>
<body name="box" pos="0 0 0.0995"><freejoint/><geom name="box" type="box" size="0.1 0.1 0.1" mass="2"
 friction="0.6 0 0" priority="1" solref="{T} {zeta}" solimp="{solimp}"/></body></worldbody></mujoco>"""
ARM = """<mujoco>{option}<compiler angle="radian" autolimits="true"/><worldbody>
<body name="upper"><joint name="a" axis="0 1 0" range="-1 0.3" solreflimit="{T} {zeta}"
 solimplimit="{solimp}"/>
<geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03" mass="1" contype="0" conaffinity="0"/>
<body name="lower" pos="0.4 0 0"><joint name="b" axis="0 1 0" range="-2 1" solreflimit="{T} {zeta}"
 solimplimit="{solimp}"/>
<geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02" mass="0.5" contype="0" conaffinity="0"/></body></body>
</worldbody></mujoco>"""


def mujoco_at(xml, ratio, law, qpos=None, qvel=None):
    """Model and data of MuJoCo after its forward dynamics, with the numbers of a Softening in its text."""
    solimp = f"{law.d_0} {law.d_w} {law.width} {law.midpoint} {law.power}"
    text = xml.format(option=OPTION.format(ratio=ratio), T=law.time, zeta=law.ratio, solimp=solimp)
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    d.qpos[:] = d.qpos if qpos is None else qpos
    d.qvel[:] = 0 if qvel is None else qvel
    mujoco.mj_forward(m, d)
    return text, d


LAWS = [
    contact.Softening(),
    contact.Softening(d_0=0.5, d_w=0.99, width=2e-3, midpoint=0.3, power=3.0, time=0.05, ratio=0.7),
]


@pytest.mark.parametrize("law", LAWS, ids=["default", "other"])
def test_impedance_is_mujocos(law):
    """d(r) over the whole sigmoid, and its slope, against what MuJoCo computed for a limit at r."""
    depths = np.linspace(-3e-3, -1e-6, 40)
    imp = []
    for r in depths:
        _, d = mujoco_at(ARM, 1.0, law, qpos=[0.3 - r, 0.0])
        assert d.nefc == 1
        imp.append(d.efc_KBIP[0, 2])
    value, slope = jax.jit(jax.vmap(jax.value_and_grad(lambda r: impedance(law, r))))(depths)
    np.testing.assert_allclose(value, imp, atol=1e-9)
    h = 1e-8
    other = (np.asarray(impedance(law, depths + h)) - np.asarray(impedance(law, depths - h))) / (2 * h)
    np.testing.assert_allclose(slope, other, atol=1e-3)


@pytest.mark.parametrize("law, ratio", [(LAWS[0], 1.0), (LAWS[1], 4.0)], ids=["default", "impratio 4"])
def test_a_soft_box_accelerates_as_in_mujoco(law, ratio):
    """A box that slides and turns, 0.5 mm in the ground: qacc, with R = efc_R and v_r from solref, solimp."""
    text, d = mujoco_at(BOX, ratio, law, qvel=[0.3, -0.1, -0.2, 0.2, -0.1, 0.4])
    sys = rbd.load(text, dtype="float64")
    assert d.ncon == 4
    R = d.efc_R.reshape(4, 3)[:, [1, 2, 0]].ravel()  # ours have the normal last
    c = d.contact
    ground = contact.contacts(
        sys, [("box", None)] * 4, c.pos, c.frame[:, :3], c.dist, c.friction[:, 0],
        softening=law.__class__(**{**vars(law), "R": R}),
    )  # fmt: skip
    integrator = rbd.HardContact(dt=2e-3, solver=CCP)
    w, x = np.array([0.2, -0.1, 0.4]), np.array([0.3, -0.1, -0.2])  # the box is not turned yet
    state = rbd.State(jnp.array([0, 0, 0.0995, 1, 0, 0, 0]), jnp.array([*w, *x]))
    end = jax.jit(lambda s: rbd.step(sys, s, integrator=integrator, contacts=ground))(state)
    assert end.converged
    turn, _ = rbd.frame_pose(sys, end.value.q, "box")
    found = np.concatenate([(turn @ end.value.v[3:] - x) / 2e-3, (end.value.v[:3] - w) / 2e-3])
    np.testing.assert_allclose(found, d.qacc, atol=1e-6 * np.abs(d.qacc).max())
    force = np.asarray(end.stats.lam).reshape(4, 3)[:, 2].sum() / 2e-3
    np.testing.assert_allclose(force, d.efc_force.reshape(4, 3)[:, 0].sum(), rtol=1e-6)
    # what is reported: J u⁺ for the rows, and v⁺ of the law, which has R λ in it
    wanted = end.stats.rate + R * end.stats.lam
    np.testing.assert_allclose((end.stats.v - wanted).reshape(4, 3)[:, 2], law_velocity(law, d), atol=1e-9)


def law_velocity(law, d):
    """v_r of the normals, from MuJoCo's reference acceleration."""
    v = d.efc_vel.reshape(4, 3)[:, 0]
    return -v - 2e-3 * d.efc_aref.reshape(4, 3)[:, 0]


@pytest.mark.parametrize("law", LAWS, ids=["default", "other"])
def test_a_soft_limit_accelerates_as_in_mujoco(law):
    """Two links of which the upper is 0.4 mrad beyond its limit, by efc_R; by c D where D is the same."""
    text, d = mujoco_at(ARM, 1.0, law, qpos=[0.3004, -0.2], qvel=[0.5, -1.0])
    sys = rbd.load(text, dtype="float64")
    assert d.nefc == 1
    integrator = rbd.HardContact(dt=2e-3, solver=CCP)
    state = rbd.State(jnp.asarray(d.qpos), jnp.asarray(d.qvel))
    R = jnp.array([d.efc_R[0], 1.0])  # the other limit has no row in MuJoCo, and no force here

    def after(law):
        soft = contact.Soft(limits=law)
        return rbd.step(sys, state, integrator=rbd.HardContact(dt=2e-3, solver=CCP, soft=soft))

    given, own = jax.jit(
        lambda law: (after(law.__class__(**{**vars(law), "R": R})), after(law))
    )(law)  # fmt: skip
    assert given.converged and own.converged and integrator.soft.limits is None
    np.testing.assert_allclose((given.value.v - state.v) / 2e-3, d.qacc, atol=1e-6 * np.abs(d.qacc).max())
    # the law's own R: v⁺ = (1 - d) v_free + d (v⁻ - dt (b v⁻ + k r)), [LOOPS] Eq. 113
    M = np.asarray(rbd.mass_matrix(sys, state.q))
    free = 0.5 + 2e-3 * d.qacc_smooth[0]
    imp, aref = d.efc_KBIP[0, 2], -d.efc_aref[0]  # the row is the upper limit's: minus the joint
    row = (1 - imp) * free + imp * (0.5 + 2e-3 * aref)
    np.testing.assert_allclose(own.value.v[0], row, atol=1e-10)
    np.testing.assert_allclose(own.stats.rate[0], -row, atol=1e-10)
    assert M.shape == (2, 2) and own.stats.lam[1] == 0


def weighing(**soft):
    """A ball of 1 kg at rest on the ground for 1 s: where it ends, its force."""
    b = rbd.Builder("ball")
    b.body("ball", 1.0, shapes=[b.sphere(0.1)])
    b.joint("root", "free", None, "ball")
    sys = b.build(dtype="float64")
    ground = contact.on_plane(sys, ["ball"], radius=0.1)
    integrator = rbd.HardContact(dt=2e-3, solver=dual.NBGS(iterations=20), soft=contact.Soft(**soft))
    start = rbd.State(jnp.array([0, 0, 0.1, 1, 0, 0, 0.0]), jnp.zeros(6))
    go = jax.jit(
        lambda s: rbd.rollout(sys, s, steps=500, integrator=integrator, contacts=ground, keep="last")
    )
    return go(start)


def test_soft_ground_sinks_by_its_law_and_carries_the_weight():
    """At rest R f = -k r: the depth solves (1 - d) g = d · k(r) |r|, whatever the mass (R = c / m)."""
    law = contact.Softening(d_0=0.8, d_w=0.9, width=0.01)
    path = weighing(contacts=law)
    r = float(path.value.q[-1, 2]) - 0.1
    d = float(impedance(law, r))
    k = d / (0.9 * 0.02) ** 2
    np.testing.assert_allclose(-k * r, (1 - d) / d * G, rtol=1e-6)
    np.testing.assert_allclose(path.stats.lam[-1, 2] / 2e-3, G, rtol=1e-6)
    assert -5e-3 < r < -1e-6


def test_cfm_is_a_spring_of_the_stabilisation():
    """v⁺ + ε λ = share · depth / dt: at rest the depth is ε g dt² m / share beyond the slop."""
    path = weighing(contacts=contact.CFM(1e-2))
    depth = -(float(path.value.q[-1, 2]) - 0.1)
    np.testing.assert_allclose(depth, 1e-2 * G * 2e-3 * 2e-3 / 0.2 + 1e-5, rtol=1e-6)


@pytest.mark.parametrize("rule", [contact.CFM(1e-3), contact.Softening(time=0.05)], ids=["CFM", "Softening"])
def test_soft_loops_and_friction(rule):
    """A ball on a soft leash swings below its anchor and hangs there at rest."""
    b = rbd.Builder("ball")
    b.body("ball", 1.0, inertia=np.eye(3))
    b.joint("root", "free", None, "ball")
    sys = b.build(dtype="float64")
    held = con.connect(sys, "ball", anchor=(0, 0, 0))
    integrator = rbd.HardContact(dt=2e-3, solver=dual.ADMM(), soft=contact.Soft(joints=rule))
    path = jax.jit(
        lambda s: rbd.rollout(
            sys, s, steps=400, integrator=integrator, constraints=held, keep="last"
        )
    )(rbd.State(sys.q0, jnp.zeros(6)))  # fmt: skip
    assert path.converged.all() and np.abs(path.value.v).max() < 1e-6
    np.testing.assert_allclose(path.stats.lam[-1] / 2e-3, [0, 0, G], atol=1e-6)
    assert -1e-2 < path.value.q[-1, 2] < -1e-7


# --- springs and servos ---------------------------------------------------------------------------------


def servo(kp, kd=0.0, stiffness=0.0):
    b = rbd.Builder("servo")
    b.body("link", 1.0, com=(0.3, 0, 0), inertia=np.eye(3) * 0.01)
    b.joint("j", "revolute", None, "link", axis=(0, 1, 0), stiffness=stiffness, damping=0.05)
    b.actuator("j", "position", kp=kp, kd=kd)
    return b.build(dtype="float64")


@pytest.mark.parametrize("scheme", ["semi-implicit", "midpoint"])
def test_stiff_servos_are_stable(scheme):
    """k dt² / I = 40: explicit it explodes, implicit it holds the link where the servo says."""
    sys = servo(kp=1e6, kd=10.0)
    inertia = float(rbd.mass_matrix(sys, jnp.zeros(1))[0, 0])
    assert 1e6 * 2e-3**2 / inertia > 30
    ends = {}
    for implicit in ("dampers", "all"):
        integrator = rbd.HardContact(dt=2e-3, implicit=implicit, scheme=scheme)
        path = jax.jit(
            lambda s, integrator=integrator: rbd.rollout(sys, s, jnp.full((2000, 1), 0.3), integrator)
        )(rbd.State(jnp.zeros(1), jnp.zeros(1)))  # fmt: skip
        ends[implicit] = np.asarray(path.value.q[:, 0])
    assert not np.abs(ends["dampers"][-1] - 0.3) < 1e3
    late = ends["all"][-200:]
    assert np.abs(late - 0.3).max() < (1e-5 if scheme == "semi-implicit" else 0.31)
    assert np.isfinite(ends["all"]).all()


def test_implicit_and_explicit_servos_agree_as_steps_shrink():
    """A soft servo and spring: implicit and explicit differ by half as much at half the step."""
    sys = servo(kp=20.0, kd=0.5, stiffness=5.0)

    def end(n, implicit):
        integrator = rbd.HardContact(dt=0.4 / n, implicit=implicit)
        start = rbd.State(jnp.zeros(1), jnp.zeros(1))
        path = rbd.rollout(sys, start, jnp.full((n, 1), 0.3), integrator, keep="last")
        return path.value.q[-1, 0], path.value.v[-1, 0]

    steps = (100, 200, 400)
    all_of_them = jax.jit(lambda: [[end(n, i) for i in ("none", "dampers", "all")] for n in steps])()
    x = np.array(all_of_them)  # (steps, implicit, q and v)
    gap = np.abs(x[:, 2] - x[:, 0]).max(-1)
    np.testing.assert_allclose(gap[:-1] / gap[1:], 2, rtol=0.1)
    limit = 2 * x[-1] - x[-2]  # of dt -> 0, the error of first order taken off
    assert np.abs(limit[2] - limit[0]).max() < 0.1 * gap[-1]


def test_servos_at_their_limit_of_force_are_not_implicit():
    """A servo that gives all it can accelerates the link by that, not less."""
    b = rbd.Builder("servo")
    b.body("link", 1.0, inertia=np.eye(3) * 0.01)
    b.joint("j", "revolute", None, "link", axis=(0, 0, 1))
    b.actuator("j", "position", kp=1e5, limits=2.0)
    sys = b.build(dtype="float64")
    integrator = rbd.HardContact(dt=1e-3, implicit="all")
    end = rbd.step(sys, rbd.State(jnp.zeros(1), jnp.zeros(1)), jnp.ones(1), integrator)
    np.testing.assert_allclose(end.value.v, [1e-3 * 2.0 / 0.01], rtol=1e-12)


def test_bad_softening_is_refused():
    sys = servo(1.0)
    state = rbd.State(jnp.zeros(1), jnp.zeros(1))
    limited = sys.replace(lower=jnp.array([-1.0]), upper=jnp.array([1.0]))
    soft = lambda **more: rbd.HardContact(dt=1e-3, soft=contact.Soft(limits=contact.Softening(**more)))  # noqa: E731
    wrong = [
        (lambda: contact.Softening(d_0=1.2), "d_0 is 1.2"),
        (lambda: contact.Softening(time=-0.02), "time"),
        (lambda: contact.Softening(power=0.5), "power"),
        (lambda: contact.CFM(-1.0), "compliance"),
        (lambda: contact.Soft(limits=1e-3), "limits is 0.001"),
        (lambda: rbd.HardContact(dt=1e-3, soft=3), "soft is 3"),
        (lambda: rbd.HardContact(dt=1e-3, scheme="euler"), "semi-implicit"),
        (lambda: rbd.HardContact(dt=1e-3, implicit="springs"), "dampers"),
        (lambda: rbd.HardContact(dt=1e-3, limits=-1), "limits is -1"),
        (lambda: rbd.step(limited, state, integrator=soft(width=np.ones(3))), "width has shape"),
        (lambda: rbd.step(limited, state, integrator=soft(R=np.ones(3))), "R has shape"),
    ]
    for call, words in wrong:
        with pytest.raises(rbd.ArgumentError, match=words):
            call()
