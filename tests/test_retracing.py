"""Programs are traced once: new values, new Systems of one topology and Python's numbers bring no second."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd.constraints import projection

SYS = rbd.zoo.double_pendulum()
Q = np.array([0.1, 0.2])


def once(f):
    """jax.jit(f) that fails where it is traced again."""
    chex.clear_trace_counter()
    return jax.jit(chex.assert_max_traces(f, n=1))


def test_the_counter_counts():
    f = once(rbd.mass_matrix)
    f(SYS, Q)
    with pytest.raises(AssertionError, match="traced"):
        f(SYS, Q.astype(np.float32))


@pytest.fixture
def systems(tmp_path):
    """The same topology by every road."""
    path = tmp_path / "pendulum.rbd"
    rbd.save(SYS, path)
    link, joint = SYS.link_names[0], SYS.joint_names[0]
    return [
        SYS,
        rbd.zoo.double_pendulum(),
        rbd.build(rbd.describe(SYS)),
        rbd.load_system(path),
        SYS.replace(mass=[1, 2]),
        SYS.replace(mass=np.float32([1, 2]), gravity=(0.0, 0.0, -1.62)),
        SYS.replace(mass=np.ones((3, 2))).take(1),
        SYS.with_link(link, mass=2).with_link(link, com=jnp.full(3, 0.5)),
        SYS.with_joint(joint, damping=0.1).with_joint(joint, axis=(0, 1, 0)),
        SYS.astype("float32").astype("float64"),
        rbd.with_log_cholesky(SYS, rbd.log_cholesky(SYS)),
        jax.jit(lambda s: s.replace(mass=2 * s.mass))(SYS),
    ]


@pytest.fixture
def states():
    """(q, v, tau) as arrays of NumPy and JAX, and as what the library itself returns."""
    found = rbd.forward_dynamics(SYS, Q, Q, Q)
    return [
        (Q, 2 * Q, -Q),
        (jnp.asarray(Q), jnp.zeros(2), jnp.array([1.0, 2.0])),
        (rbd.neutral(SYS), found, rbd.gravity_force(SYS, Q)),
        (rbd.random_configuration(SYS, jax.random.key(0)), rbd.difference(SYS, Q, 2 * Q), found),
        (rbd.State.at_rest(SYS).q, rbd.State.at_rest(SYS, [1, 2]).q, found),
    ]


def test_forward_dynamics(systems, states):
    f = once(rbd.forward_dynamics)
    for sys in systems:
        f(sys, *states[0])
    for state in states:
        f(SYS, *state)


def test_constrained_dynamics(systems, states):
    f = once(rbd.constrained_dynamics)
    held = lambda **more: con.connect(SYS, "tip", **more)  # noqa: E731
    first = held(q=Q)
    for sys in systems:
        f(sys, *states[0], first, rbd.ProxLTL(mu=1e6))
    for state in states:
        f(SYS, *state, first, rbd.ProxLTL(mu=1e6))
    others = [
        held(q=2 * Q, weight=2),
        held(q=Q, weight=[1.0, 2.0, 3.0], target=np.ones(3)),
        held(anchor=(0, 0, 1), baumgarte=0.1),
        held(offset=(0, 0, 1), q=Q, baumgarte=(1, 2)),
        first.replace(stiffness=first.stiffness + 1),
        first.astype("float32").astype("float64"),
    ]
    for rows in others:
        f(SYS, *states[0], rows, rbd.ProxLTL(mu=1e6))
    for mu in (1e5, 100_000, np.float64(1e5), np.float32(1e5)):
        f(SYS, *states[0], first, rbd.ProxLTL(mu=mu))


@pytest.mark.parametrize("integrator", [rbd.SemiImplicitEuler, rbd.RK4])
def test_step(integrator, systems, states):
    f = once(rbd.step)
    state = rbd.State.at_rest(SYS)
    for sys in systems:
        f(sys, state, Q, integrator(1e-3))
    for q, v, u in states:
        f(SYS, rbd.State(q, v), u, integrator(1e-3))
    for _ in range(2):  # what a step returns is as good as what it got
        state = f(SYS, state, Q, integrator(1e-3)).value
    for dt in (2e-3, 1, np.float64(2e-3), np.float32(2e-3)):
        f(SYS, state, Q, integrator(dt))


def test_rollout(systems, states):
    roll = once(lambda sys, state, controls, t, dt: rbd.rollout(sys, state, controls, rbd.RK4(dt), t=t))
    controls = np.zeros((3, SYS.nu))
    for sys in systems:
        path = roll(sys, rbd.State.at_rest(SYS), controls, 0.0, 1e-3)
    chex.assert_tree_all_finite(path.value)
    chex.assert_shape(path.value.q, (3, SYS.nq))
    roll(SYS, jax.tree.map(lambda x: x[-1], path.value), jnp.ones((3, SYS.nu)), 3e-3, 2e-3)
    for q, v, _ in states:
        roll(SYS, rbd.State(q, v), controls, 1.0, 1e-3)


def test_springs_projection_and_inverse_kinematics(systems):
    push = once(lambda springs, sys, q: springs(sys, q, q))
    for stiffness, slip in ((1e4, 1e-2), (20_000, 1), (np.float32([1e4]), jnp.asarray(0.1))):
        push(rbd.ground_springs(SYS, ["tip"], stiffness=stiffness, slip_speed=slip), SYS, Q)
    put = once(rbd.project)
    reach = once(lambda sys, q, p: rbd.inverse_kinematics(sys, q, {"tip": p}))
    for sys in systems:
        q = reach(sys, Q, np.ones(3)).value
        put(sys, con.connect(SYS, "tip", q=q), q)
    reach(SYS, q, jnp.zeros(3))


def test_projection_outside_jit_compiles_once():
    rows = con.connect(SYS, "tip", q=Q)
    counts = set()
    for q in (Q, Q + 0.01, Q - 0.01):
        rbd.project(SYS, rows, q)
        counts.add(projection._newton._cache_size())
    assert len(counts) == 1


def test_numbers_of_models_are_not_weak():
    """A weak leaf would meet a strong one in the next call: JAX takes these for different programs."""
    state, rows = rbd.State.at_rest(SYS), con.connect(SYS, "tip", q=Q, weight=2)
    trees = [
        SYS.with_link(SYS.link_names[0], mass=2.0),
        SYS.with_joint(SYS.joint_names[0], damping=1),
        state,
        rows,
        rbd.ground_springs(SYS, ["tip"], stiffness=1.0, slip_speed=1),
        rbd.step(SYS, state).value,
        rbd.constrained_dynamics(SYS, Q, Q, Q, rows).value,
        rbd.project(SYS, rows, Q, Q).value,
        rbd.energy(SYS, Q, Q),
        rbd.total_mass(SYS),
    ]
    weak = [x for x in jax.tree.leaves(trees) if getattr(x, "weak_type", False)]
    assert not weak, weak
