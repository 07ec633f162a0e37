"""Files, edits and approximations of Systems with clusters."""

import clusters_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd

PLUS = """<robot name="plus"><link name="base"/>
{links}
<joint name="a" type="revolute" independent="True"><parent link="base"/><child link="crank"/>
  <axis xyz="0 0 1"/><limit effort="1" velocity="1" lower="-9" upper="9"/></joint>
<joint name="b" type="revolute" independent="false"><parent link="crank"/><child link="coupler"/>
  <origin xyz="0 0.2 0"/><axis xyz="0 0 1"/><limit effort="1" velocity="1" lower="-9" upper="9"/></joint>
<joint name="c" type="revolute" independent="False"><parent link="base"/><child link="rocker"/>
  <origin xyz="0.3 0 0"/><axis xyz="0 0 1"/><limit effort="1" velocity="1" lower="-9" upper="9"/></joint>
<joint name="m" type="continuous" independent="false"><parent link="base"/><child link="motor"/>
  <axis xyz="0 0 1"/></joint>
<joint name="n" type="continuous" independent="false"><parent link="base"/><child link="second"/>
  <axis xyz="0 0 1"/></joint>
<loop name="ring" type="revolute"><predecessor link="coupler"><origin xyz="0.3 0 0"/></predecessor>
  <successor link="rocker"><origin xyz="0 0.2 0"/></successor><axis xyz="0 0 1"/></loop>
<coupling name="gear"><predecessor link="crank"/><successor link="motor"/><ratio value="6"/></coupling>
<coupling name="belt"><predecessor link="coupler"/><successor link="second"/><ratio value="12"/></coupling>
</robot>"""
MASS = '<mass value="0.5"/><inertia ixx="0.01" iyy="0.01" izz="0.01"/>'
LINK = f'<link name="{{}}"><inertial><origin xyz="0 0.1 0"/>{MASS}</inertial></link>'
TEXT = PLUS.format(links="".join(LINK.format(n) for n in ("crank", "coupler", "rocker", "motor", "second")))


def test_urdf_plus_is_read_three_ways():
    with pytest.warns(rbd.ModelWarning, match="of_model"):
        tree = rbd.load(TEXT, dtype="float64")
    sys = rbd.load(TEXT, dtype="float64", loops="cluster")
    bare = rbd.load(TEXT, dtype="float64", loops="open")
    assert (tree.nv, sys.nv, bare.nv) == (5, 1, 5) and sys.v_index("a") == slice(0, 1)
    assert not bare.topology.loop_names and not bare.topology.linear_names
    G = np.asarray(rbd.loop_jacobian(sys, sys.q0))[:, 0]
    by = {name: G[sys.tree.v_index(name)][0] for name in sys.joint_names}
    np.testing.assert_allclose(by["m"], 6.0)
    np.testing.assert_allclose(by["n"], 12 * (by["a"] + by["b"]))  # a path sum: crank and coupler
    assert (
        len(rbd.constraints.of_model(tree)) == 7
        if hasattr(rbd.constraints.of_model(tree), "__len__")
        else True
    )
    with pytest.raises(rbd.ArgumentError, match="'constraint', 'cluster', 'open'"):
        rbd.load(TEXT, loops="closed")


def same_dynamics(a: rbd.System, b: rbd.System):
    q, v, tau, _ = (x[0] for x in cases.states(a, 1))
    q_b, v_b = rbd.from_tree(b, *rbd.to_tree(a, q, v)) if a.joint_names == b.joint_names else (q, v)
    np.testing.assert_allclose(
        rbd.forward_dynamics(b, q_b, v_b, tau), rbd.forward_dynamics(a, q, v, tau), rtol=1e-9, atol=1e-9
    )


def test_written_and_read_back():
    sys = rbd.load(TEXT, dtype="float64", loops="cluster")
    again = rbd.load(rbd.to_urdf(sys), dtype="float64", loops="cluster")
    assert again.topology.independent == sys.topology.independent
    same_dynamics(sys, again)


def test_saved_and_loaded(tmp_path):
    sys = cases.clustered("slider")
    rbd.save(sys, tmp_path / "slider.jaxrbd")
    again = rbd.load_system(tmp_path / "slider.jaxrbd")
    assert again.topology == sys.topology
    for x, y in zip(jax.tree.leaves(sys), jax.tree.leaves(again)):
        np.testing.assert_array_equal(x, y)
    own = rbd.loop_function(cases.tree("geared"), "f", lambda x: x[:1] - x[1:], ["j0", "j1"])
    with pytest.raises(rbd.ArgumentError, match="no file can hold"):
        rbd.save(own, tmp_path / "own.jaxrbd")


def test_edits_keep_clusters():
    sys = cases.clustered("slider")
    pair = rbd.combine(sys, rbd.zoo.arm7(dtype="float64"), names=["", "arm"])
    assert pair.nv == sys.nv + 7 and len(pair.topology.clusters) == 1
    mounted = rbd.attach(rbd.zoo.arm7(dtype="float64"), sys, "tool", prefix="s/")
    assert mounted.nv == 7 + sys.nv
    with pytest.warns(rbd.ModelWarning, match="drops"):
        locked = rbd.lock_joints(cases.clustered("mixed"), ["jr"])
    assert locked.nv == cases.clustered("mixed").nv
    described = rbd.cluster(rbd.build(rbd.describe(sys), dtype="float64"))
    assert described.topology.independent == sys.topology.independent
    same_dynamics(sys, described)


def test_converters_refuse_with_the_reason():
    sys = cases.clustered("slider")
    for convert in (rbd.to_mujoco, rbd.to_pinocchio):
        with pytest.raises(rbd.ArgumentError, match=r"loops|clusters"):
            convert(sys, sys.q0)


def test_batched_ratios():
    """vmap over Systems with their own gear ratios."""
    sys = cases.clustered("belts")
    ratios = jnp.asarray(np.linspace(4.0, 8.0, 3))
    many = sys.replace(linear_coefficients=jnp.stack([sys.linear_coefficients.at[1].set(-r) for r in ratios]))
    q, v, tau, _ = (x[0] for x in cases.states(sys, 1))
    run = lambda s: rbd.forward_dynamics(s, q, v, tau)  # noqa: E731
    found = jax.jit(jax.vmap(run, in_axes=(many.in_axes,)))(many)
    for i in range(3):
        np.testing.assert_allclose(found[i], run(many.take(i)), rtol=1e-9)


def test_inverse_kinematics_with_loops():
    """A point on the second coupler of a chain of linkages is brought where a closed pose has it."""
    sys = cases.clustered("four-bars on couplers")
    q, _, _, _ = cases.states(sys, 1, seed=9)
    _, p = rbd.frame_pose(sys, q[0], "coupler1")
    found = rbd.inverse_kinematics(sys, sys.q0, {"coupler1": p}, solver=rbd.GaussNewton(iterations=60))
    assert found.result == rbd.Result.converged
    assert np.abs(rbd.loop_error(sys, found.value).error).max() < 1e-9


def test_reflected_inertia_orders_the_errors():
    """[GRBDA] Fig. 14 on a leg with belts: without rotors > diagonal > block, at the ankle."""
    sys = rbd.cluster(rbd.zoo.mit_humanoid(dtype="float64"))
    links, H = rbd.reflected(sys)
    # joints in phase; the base stands still
    moving = (np.arange(sys.nv) >= 6).astype(float)
    bare = links.replace(armature=links.armature - jnp.diag(H))
    w, A = 2 * np.pi * 1.5, 0.5

    @jax.jit
    @jax.vmap
    def torques(t):
        x, dx, ddx = A * jnp.sin(w * t), A * w * jnp.cos(w * t), -A * w * w * jnp.sin(w * t)
        q = rbd.integrate(sys, sys.q0, x * moving)
        v, a = dx * moving, ddx * moving
        exact = rbd.inverse_dynamics(sys, q, v, a)
        q_l = rbd.integrate(links, links.q0, x * moving)
        plain = rbd.inverse_dynamics(bare, q_l, v, a)
        return exact, plain, rbd.inverse_dynamics(links, q_l, v, a), plain + H @ a

    exact, none, diagonal, block = torques(jnp.linspace(0, 2 / 1.5, 60))
    ankle = next(j for j in sys.joint_names if "ankle" in j and "rotor" not in j)
    k = sys.v_index(ankle).start
    error = lambda x: float(np.sqrt(np.mean((x[:, k] - exact[:, k]) ** 2)) / np.abs(exact[:, k]).max())  # noqa: E731
    assert error(none) > error(diagonal) > error(block)


TENDON = """<mujoco><worldbody>
<body name="b1"><joint name="j1" axis="0 1 0" ref="0.2"/><geom size=".1"/>
  <body name="b2" pos="0 0 .3"><joint name="j2" axis="0 1 0"/><geom size=".1"/></body></body>
<body name="b3" pos="1 0 0"><joint name="j3" axis="0 1 0"/><geom size=".1"/></body></worldbody>
<tendon><fixed name="sum"><joint joint="j1" coef="2"/><joint joint="j2" coef="3"/></fixed>
  <fixed name="one"><joint joint="j3" coef="-4"/></fixed></tendon>
<equality><tendon name="belt" tendon1="one" tendon2="sum" polycoef="0.1 0.5 0 0 0"/></equality>
<actuator><motor name="pull" tendon="one" gear="2"/><motor name="both" tendon="sum"/></actuator></mujoco>"""


def test_fixed_tendons_are_couplings():
    """-4 j3 + 4·0 = 0.1 + 0.5 (2 j1 + 3 j2 - rest): where MuJoCo's own residual vanishes."""
    mujoco = pytest.importorskip("mujoco")
    with pytest.warns(rbd.ModelWarning, match="actuator 'both'"):
        sys = rbd.load(TENDON, dtype="float64", loops="cluster")
    assert sys.nv == 2 and sys.actuator_names == ("pull",) and float(sys.actuator_gear[0]) == -8.0
    q = np.asarray(rbd.to_tree(sys, rbd.integrate(sys, sys.q0, jnp.array([0.3, -0.4]))))
    model = mujoco.MjModel.from_xml_string(TENDON)
    data = mujoco.MjData(model)
    data.qpos[:] = q
    mujoco.mj_forward(model, data)
    assert data.nefc == 1 and abs(data.efc_pos[0]) < 1e-12


def test_info_and_sliders_know_who_follows():
    from jaxrbd.commands.info import collect, render
    from jaxrbd.viewer.posing import _ranges

    sys = cases.clustered("mixed")
    facts = collect(sys)
    spans = {j["name"]: (j["q"], j["v"]) for j in facts["joints"]}
    assert spans["jr"] == (None, None) and spans["b0"][1] is None and spans["a0"][1] == [6, 7]
    assert "jr" in render(facts)
    reference, labels, low, high = _ranges(sys, np.asarray(sys.q0))
    assert len(labels) == len(low) == len(high) == sys.nv and (low < high).all()
    np.testing.assert_array_equal(reference, sys.q0)
