"""Maximal coordinates: the same motion as the tree's, for every joint type, loops, couplings and contacts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd import contact, dual
from jaxrbd.maximal.geometry import HELD

TYPES = ("free", *(kind for kind in HELD if kind != "free"))


def chain(types=TYPES, seed=0):
    """One body per joint type, with crooked axes and placements; links off their bodies' origins."""
    rng, b, parent = np.random.default_rng(seed), rbd.Builder("chain"), None
    for k, kind in enumerate(types):
        b.body(f"b{k}", mass=1 + 0.2 * k, com=(0.05, 0.02 * k, -0.03), inertia=np.diag([0.02, 0.03, 0.04]))
        axis, other = rng.normal(size=(2, 3))
        axis /= np.linalg.norm(axis)
        across = np.cross(axis, other) / np.linalg.norm(np.cross(axis, other))
        more = {} if kind in ("free", "spherical") else {"axis": axis}
        if kind == "planar":
            more["axis2"] = across
        if kind == "universal":  # not at right angles
            more["axis2"] = (across + 0.3 * axis) / np.sqrt(1.09)
        if kind == "screw":
            more["pitch"] = 0.07
        place = {"xyz": 0.2 * rng.normal(size=3), "rpy": rng.normal(size=3)} if k else {}
        b.joint(f"j{k}", kind, parent, f"b{k}", **place, **more)
        parent = f"b{k}"
    return b.build(dtype="float64")


def bodies_accelerate(sys, q, v, a):
    """A of every body in its own axes, as maximal coordinates have it."""
    return jnp.concatenate([rbd.frame_acceleration(sys, q, v, a, n, "body") for n in sys.body_names])


@pytest.fixture(scope="module")
def cut():
    sys = chain()
    rng = np.random.default_rng(1)
    q = jax.vmap(lambda k: rbd.random_configuration(sys, k))(jax.random.split(jax.random.key(2), 4))
    v, tau = jnp.asarray(rng.normal(size=(2, 4, sys.nv)))
    return sys, rbd.maximal(sys), q, v, tau


def test_states_go_there_and_back(cut):
    sys, m, q, v, _ = cut

    @jax.jit
    @jax.vmap
    def both(q, v):
        Q, V = m.to_maximal(q, v)
        q1, v1 = m.from_maximal(Q, V)
        off = (
            con.constraint_error(m.system, m.constraints, Q),
            con.constraint_velocity(m.system, m.constraints, Q, V),
        )
        return (
            rbd.difference(sys, q, q1),
            v1 - v,
            off,
            rbd.kinetic_energy(m.system, Q, V) - rbd.kinetic_energy(sys, q, v),
        )

    for x in jax.tree.leaves(both(q, v)):
        assert np.abs(x).max() < 1e-12
    assert m.constraints.rows == 6 * sys.nb - sys.nv


def test_every_joint_type_moves_as_in_the_tree(cut):
    sys, m, q, v, tau = cut

    @jax.jit
    @jax.vmap
    def off(q, v, tau):
        Q, V = m.to_maximal(q, v)
        found = rbd.constrained_dynamics(m.system, Q, V, m.forces(Q, tau), m.constraints, rbd.Dense())
        a = rbd.forward_dynamics(sys, q, v, tau)
        return found.value.a - bodies_accelerate(sys, q, v, a), found.result

    error, result = off(q, v, tau)
    assert np.abs(error).max() < 1e-9 and (result == 0).all()


def test_forces_do_the_same_work(cut):
    _, m, q, v, tau = cut

    def work(q, v, tau):
        Q, V = m.to_maximal(q, v)
        return m.forces(Q, tau) @ V

    np.testing.assert_allclose(jax.jit(jax.vmap(work))(q, v, tau), jnp.sum(tau * v, 1), rtol=1e-12)


def test_angles_follow_the_ones_before(cut):
    sys, m, *_ = cut
    i = sys.q_index("j1").start
    far = np.array(sys.q0)
    far[i] = 7.0

    @jax.jit
    def angles(q):
        Q, _ = m.to_maximal(q)
        return m.from_maximal(Q)[0][i], m.from_maximal(Q, near=q - 1.0)[0][i]

    np.testing.assert_allclose(angles(far), [7.0 - 2 * np.pi, 7.0], atol=1e-12)


def test_derivatives(cut):
    """Positions and rates by the state and by a placement of the original, against differences."""
    sys, m, q, v, _ = cut

    def end(x):
        p, dq, v = jnp.split(x, [3, 3 + sys.nv])
        moved = sys.replace(joint_position=sys.joint_position.at[3].set(p))
        here = rbd.Maximal(m.system, m.constraints, moved)
        Q, V = here.to_maximal(rbd.integrate(moved, q[0], dq), v)
        back = here.from_maximal(Q, V)[1]
        return Q[-7:-4] @ jnp.array([1.0, 2.0, 3.0]) + jnp.sum(V) + 0.1 * jnp.sum(jnp.sin(back))

    x, h = jnp.concatenate([sys.joint_position[3], jnp.zeros(sys.nv), v[0]]), 1e-6
    value = jax.jit(jax.vmap(end))
    numeric = (value(x + h * jnp.eye(len(x))) - value(x - h * jnp.eye(len(x)))) / (2 * h)
    np.testing.assert_allclose(jax.jit(jax.grad(end))(x), numeric, atol=1e-7)


def quiet(sys):
    """Without what maximal coordinates do not carry over."""
    return sys.replace(
        armature=0 * sys.armature,
        friction=0 * sys.friction,
        damping=0 * sys.damping,
        lower=jnp.full(sys.nv, -jnp.inf),
        upper=jnp.full(sys.nv, jnp.inf),
    )


def geared():
    """Gear, mimic and polynomial couplings of three revolute joints and a slider."""
    b = rbd.Builder("geared")
    for k in range(4):
        b.body(f"b{k}", mass=1.0 + k, com=(0.1, 0, 0.05), inertia=np.diag([0.02, 0.03, 0.04]))
        kind = "prismatic" if k == 3 else "revolute"
        b.joint(f"j{k}", kind, f"b{k - 1}" if k else None, f"b{k}", xyz=(0.2, 0.1 * k, 0), axis=(0, k % 2, 1))
    b.gear("gear", {"j0": 1.0, "j1": -2.5})
    b.loop("cam", "coupling", "j3", "j2", coefficients=(0.1, 0.2, 0.3))
    return b.build(dtype="float64")


@pytest.mark.parametrize(
    "name",
    [
        "four_bar",
        pytest.param("cassie_leg", marks=pytest.mark.all_robots),
        pytest.param("geared", marks=pytest.mark.all_robots),
    ],
)
def test_loops_and_couplings(name):
    sys = quiet(geared() if name == "geared" else getattr(rbd.zoo, name)(dtype="float64"))
    loops, m = con.of_model(sys), rbd.maximal(sys)

    @jax.jit
    def off(q, v, tau):
        q = rbd.project(sys, loops, q).value.q
        J = con.constraint_jacobian(sys, loops, q)
        v = v - jnp.linalg.pinv(J) @ (J @ v)
        a = rbd.constrained_dynamics(sys, q, v, tau, loops, rbd.Dense()).value.a
        Q, V = m.to_maximal(q, v)
        found = rbd.constrained_dynamics(m.system, Q, V, m.forces(Q, tau), m.constraints, rbd.Dense())
        expected = bodies_accelerate(sys, q, v, a)
        size = jnp.maximum(1, jnp.max(jnp.abs(expected)))
        return (found.value.a - expected) / size, con.constraint_velocity(m.system, m.constraints, Q, V)

    v, tau = np.random.default_rng(3).normal(size=(2, sys.nv))
    for x in off(sys.q0 + (0.3 if name == "geared" else 0.0), v, tau):
        assert np.abs(x).max() < 1e-9


@pytest.mark.all_robots
def test_contacts_of_a_quadruped_in_both_coordinates():
    """One dual problem from the tree and one from free bodies: the same velocities of the contacts."""
    sys = quiet(rbd.zoo.quadruped(dtype="float64"))
    m = rbd.maximal(sys)
    feet = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]
    rule = contact.Stabilisation(joints=0.0, acceleration=True)
    rng = np.random.default_rng(4)
    q = sys.q0.at[2].add(-0.01)
    v, tau = jnp.asarray(0.3 * rng.normal(size=sys.nv)), jnp.asarray(rng.normal(size=sys.nv))
    v, tau = v.at[5].set(-0.4), tau.at[:6].set(0)
    Q, V = m.to_maximal(q, v)

    def go(sys, q, v, tau, solver, constraints=None):
        ground = contact.on_plane(sys, feet, radius=0.02, friction=0.6)
        integrator = rbd.HardContact(dt=2e-3, stabilisation=rule, solver=solver)
        return jax.jit(
            lambda s: rbd.step(
                sys, s, tau=tau, integrator=integrator, contacts=ground, constraints=constraints
            )
        )(rbd.State(q, v))

    small = go(sys, q, v, tau, dual.NBGS(iterations=60))
    large = go(m.system, Q, V, m.forces(Q, tau), dual.ADMM(iterations=20000, tolerance=1e-13), m.constraints)
    assert np.abs(small.stats.lam[2::3]).max() > 0.01
    np.testing.assert_allclose(large.stats.v[-12:], small.stats.v, atol=1e-10)


@pytest.mark.all_robots
def test_trajectories_meet_as_steps_shrink():
    """A swinging arm in both coordinates: the difference after 0.4 s is of first order in the step."""
    sys = quiet(chain(("revolute", "universal", "spherical")))
    m = rbd.maximal(sys)
    state = rbd.State(sys.q0, jnp.full(sys.nv, 0.5))

    def off(n):
        small = rbd.HardContact(dt=0.4 / n)
        large = rbd.HardContact(dt=0.4 / n, solver=dual.ADMM(iterations=400))
        end = rbd.rollout(sys, state, steps=n, integrator=small, keep="last").value
        cut = rbd.State(*m.to_maximal(state.q, state.v))
        cut = rbd.rollout(m.system, cut, steps=n, integrator=large, constraints=m.constraints, keep="last")
        q, _ = m.from_maximal(cut.value.q.reshape(-1))
        return jnp.max(jnp.abs(rbd.difference(sys, end.q.reshape(-1), q)))

    first, second = (float(jax.jit(off, static_argnums=0)(n)) for n in (40, 80))
    assert second < 0.06 and abs(np.log2(first / second) - 1) < 0.1


def test_what_is_lost_or_unknown_is_named():
    with pytest.warns(rbd.ModelWarning, match="joint limits.*armature"):
        rbd.maximal(rbd.zoo.quadruped())
    with pytest.raises(rbd.ArgumentError, match=r"sys\.tree"):
        rbd.maximal(rbd.cluster(rbd.zoo.four_bar()))
