"""Systems with a batch axis: made, shown, mapped over; refused with a remedy where one System is expected."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.errors import ArgumentError
from jaxrbd.model.leaves import leaf_shapes

BATCH = 3


@pytest.fixture(scope="module")
def sys():
    return rbd.zoo.double_pendulum()


@pytest.fixture(scope="module")
def masses(sys):
    return 1.0 + np.arange(BATCH * len(sys.mass)).reshape(BATCH, -1)


@pytest.fixture(scope="module")
def state(sys):
    return np.random.default_rng(0).normal(size=(3, BATCH, sys.nv))


def test_repr_of_any_leaves(sys, masses):
    for tree in (sys, sys.replace(mass=masses), jax.tree.map(lambda x: x[None], sys)):
        for leaf in (
            lambda x: x,
            lambda _: None,
            lambda _: object(),
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype),
        ):
            assert repr(jax.tree.map(leaf, tree)).startswith("System('double_pendulum', nb=2,")
    seen = []
    jax.jit(jax.vmap(lambda s: seen.append(repr(s)) or s.mass))(jax.tree.map(lambda x: x[None], sys))
    assert seen == [repr(sys)]
    assert "batch=3 in mass)" in repr(sys.replace(mass=masses))


def test_a_batch_in_replace(sys, masses, state):
    many = sys.replace(mass=masses, gravity=[0, 0, -1.6])
    assert many.batch == {"mass": BATCH}
    got = jax.jit(jax.vmap(rbd.forward_dynamics, (many.in_axes, 0, 0, 0)))(many, *state)
    one = jax.jit(rbd.forward_dynamics)
    for i in range(BATCH):
        assert not many.take(i).batch
        np.testing.assert_allclose(got[i], one(many.take(i), *state[:, i]), rtol=1e-12)
    assert many.replace(mass=masses[0]).batch == {}
    for wrong in (np.ones(7), np.ones((BATCH, 7)), np.ones((2, BATCH, len(sys.mass))), None, "heavy"):
        with pytest.raises(ArgumentError, match="mass"):
            sys.replace(mass=wrong)


def test_a_batch_in_with_link_and_with_joint(sys):
    link, joint = sys.link_names[1], sys.joint_names[0]
    i, dof = 1, sys.v_index(joint).start
    com = np.arange(3.0 * BATCH).reshape(BATCH, 3)
    inertia = np.stack([np.diag([k, 2.0, 3.0]) for k in range(1, BATCH + 1)])
    many = sys.with_link(link, mass=[1.0, 2.0, 3.0], com=com, inertia=inertia)
    many = many.with_joint(joint, damping=[4.0, 5.0, 6.0], friction=np.full((BATCH, 1), 0.5), axis=(0, 0, 1))
    np.testing.assert_array_equal(many.mass[:, i], [1, 2, 3])
    np.testing.assert_array_equal(many.mass[:, 0], sys.mass[0])
    np.testing.assert_array_equal(many.com[:, i], com)
    np.testing.assert_array_equal(many.inertia[:, i], [[k, 0, 0, 2, 0, 3] for k in range(1, BATCH + 1)])
    np.testing.assert_array_equal(many.damping[:, dof], [4, 5, 6])
    assert set(many.batch) == {"mass", "com", "inertia", "damping", "friction"}
    again = many.with_link(link, mass=7.0).with_joint(joint, damping=8.0)  # the same for all
    np.testing.assert_array_equal(again.mass[:, i], [7, 7, 7])
    np.testing.assert_array_equal(again.damping[:, dof], [8, 8, 8])
    with pytest.raises(ArgumentError, match="4 values of mass for a batch of 3"):
        many.with_link(link, mass=np.ones(4))
    with pytest.raises(ArgumentError, match=re.escape("com has shape (3, 2), expected (3,), or (batch, 3)")):
        sys.with_link(link, com=np.ones((3, 2)))
    with pytest.raises(ArgumentError, match=re.escape("damping has shape (3, 2), expected (1,)")):
        sys.with_joint(joint, damping=np.ones((3, 2)))


def test_negative_masses_are_refused(sys, masses):
    link = sys.link_names[1]
    bad = masses.copy()
    bad[2, 1] = -4.0
    for make in (
        lambda: sys.replace(mass=bad),
        lambda: sys.replace(mass=jnp.asarray(bad[2])),
        lambda: sys.with_link(link, mass=-4),
        lambda: sys.with_link(link, mass=[1.0, -4.0]),
    ):
        with pytest.raises(ArgumentError, match=f"mass of link '{link}' is -4, expected zero or more"):
            make()
    with pytest.raises(ArgumentError, match="is nan"):
        sys.with_link(link, mass=np.nan)
    slope = jax.grad(lambda m: rbd.total_mass(sys.replace(mass=m)))(-sys.mass)  # unknown values pass
    assert slope.shape == sys.mass.shape


@pytest.mark.parametrize(
    "call",
    [
        lambda s, q: rbd.mass_matrix(s, q),
        lambda s, q: rbd.forward_kinematics(s, q),
        lambda s, q: rbd.step(s, rbd.State(q, q)),
        lambda s, q: rbd.rollout(s, rbd.State(q, q), steps=2),
        lambda s, q: rbd.total_mass(s),
        lambda s, q: rbd.neutral(s),
        lambda s, q: rbd.check(s, q),
        lambda s, q: rbd.describe(s),
        lambda s, q: rbd.log_cholesky(s),
        lambda s, q: rbd.combine(s, s),
        lambda s, q: jax.vmap(rbd.gravity_force, (None, 0))(s, q[None]),
    ],
)
def test_without_vmap_the_error_says_vmap(sys, masses, call):
    for many in (sys.replace(mass=masses), jax.tree.map(lambda x: x[None], sys)):
        with pytest.raises(ArgumentError, match="this System is batched: vmap over it"):
            call(many, jnp.zeros(sys.nq))


def test_spread_over_a_tree_of_axes(sys, masses, state):
    q, v, tau = state
    many = sys.replace(mass=masses, friction=np.ones((BATCH, sys.nv)) * masses[:, :1])
    by_hand = jax.tree.map(lambda _: None, sys).replace(mass=0, friction=0)

    def force(sys, q, v, tau):  # cheap to compile, and each leaf counts
        return tau + rbd.total_mass(sys) * sys.com[1].sum() * q - sys.friction * v

    expected = jax.vmap(force, (many.in_axes, 0, 0, None))(many, q, v, tau[0])
    for axes in (many.in_axes, by_hand):
        spread = rbd.spread(force, jax.devices()[:1], in_axes=(axes, 0, 0, None))
        np.testing.assert_allclose(spread(many, q, v, tau[0]), expected, rtol=1e-12)
    slopes = jax.grad(lambda s: spread(s, q, v, tau[0]).sum())(many)
    np.testing.assert_allclose(slopes.friction, -v)
    assert slopes.mass.shape == masses.shape and slopes.com.shape == sys.com.shape
    nested = rbd.spread(lambda d: d["a"] * d["b"], jax.devices()[:1], in_axes=({"a": 0, "b": None},))
    argument = {"a": np.arange(3.0), "b": 2.0}
    np.testing.assert_array_equal(nested(argument), [0, 2, 4])
    np.testing.assert_array_equal(nested.lower(argument).compile()(argument), [0, 2, 4])
    with pytest.raises(ArgumentError, match="in_axes of argument 0 does not fit"):
        nested({"a": np.arange(3.0)})
    with pytest.raises(ArgumentError, match="moveaxis"):
        rbd.spread(rbd.total_mass, in_axes=(sys.in_axes,))  # nothing is batched


def test_every_leaf_is_documented(sys):
    """`help(System)` has a line per leaf with its shape."""
    t, text = sys.topology, inspect.getdoc(rbd.System)
    sizes = {"nb": t.nb, "nf": len(t.frame_names), "nl": t.link_count, "nv": t.nv, "nq": t.nq, "nu": sys.nu}
    sizes |= {
        "nm": len(t.mimics),
        "nt": sum(map(len, t.linear_joints)),
        "ng": len(t.linear_names),
        "ns": len(t.shape_kinds),
        "n": len(t.loop_names),
        "nk": len(t.keyframe_names),
    }
    lines = dict(re.findall(r"^ +(\w+) +\(([^)]*)\)", text, re.MULTILINE))
    documented = {
        key: tuple(sizes[x] if x in sizes else int(x) for x in shape.replace(" ", "").split(",") if x)
        for key, shape in lines.items()
    }
    assert documented == leaf_shapes(t)
    assert documented == {key: getattr(sys, key).shape for key in documented}
    for word in ("kg m²", "N m s/rad", "per link", "per joint", "per degree of freedom"):
        assert word in text


def test_double_precision_must_be_switched_on(sys):
    single = sys.astype(jnp.float32)
    held = rbd.constraints.hold(single, sys.link_names[1], "x")
    with jax.enable_x64(False):
        for tree in (single, held):
            with pytest.raises(ArgumentError, match="float64, but JAX has it switched off"):
                tree.astype(jnp.float64)
    with pytest.raises(ArgumentError, match="float16"):
        sys.astype(jnp.float16)


@pytest.mark.parametrize("own", ["axis", "axis2"])
def test_one_axis_of_a_universal_joint_may_be_each_states_own(own):
    b = rbd.Builder("cross")
    b.body("arm", 1.0, com=(0.1, 0.2, 0.3), inertia=(0.1, 0.2, 0.25))
    b.joint("cross", "universal", None, "arm", axis=(1, 0, 0), axis2=(0, 1, 0))
    sys = b.build()
    axes = jnp.asarray([[[1.0, 0, 0.1]], [[0.2, 1.0, 0]], [[0.1, 0.3, 1.0]]], sys.dtype)
    many = sys.replace(**{own: axes})
    q, v = jnp.array([0.3, -0.4]), jnp.array([1.0, 2.0])
    found = jax.vmap(lambda s: rbd.forward_dynamics(s, q, v, v), in_axes=(many.in_axes,))(many)
    each = [rbd.forward_dynamics(sys.replace(**{own: x}), q, v, v) for x in axes]
    np.testing.assert_allclose(found, jnp.stack(each), rtol=1e-10)
