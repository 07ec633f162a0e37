"""Momentum of what floats freely through time steps: single bodies, trees, loops; MuJoCo as the measure."""

from functools import partial

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrbd as rbd

DT = 1e-3
STEPS = 200


def body(com=(0.3, -0.2, 0.1)):
    b = rbd.Builder("body", gravity=(0, 0, 0))
    b.body("body", 2.0, com=com, inertia=(0.1, 0.2, 0.25))
    b.joint("root", "free", None, "body")
    return b.build()


def momentum(sys, q, v):
    """Linear, angular about the centre of mass, angular about the world's origin."""
    h, c = rbd.centroidal_momentum(sys, q, v), rbd.center_of_mass(sys, q)
    return h[3:], h[:3], h[:3] + jnp.cross(c, h[3:])


def lost(sys, start, end):
    """Change of the three momenta over their own size."""
    before, after = momentum(sys, *start), momentum(sys, *end)
    return [float(jnp.linalg.norm(b - a) / jnp.linalg.norm(a)) for a, b in zip(before, after)]


@partial(jax.jit, static_argnames="conserve")
def run(sys, q, v, conserve=False):
    integrator = rbd.SemiImplicitEuler(DT, conserve_momentum=conserve)
    path = rbd.rollout(sys, rbd.State(q, v), None, integrator, steps=STEPS, keep="last").value
    return path.q[0], path.v[0]


@pytest.mark.parametrize("com", [(0.0, 0.0, 0.0), (0.3, -0.2, 0.1)])
def test_a_free_body_keeps_its_linear_momentum(com):
    """Spin 10 rad/s and speed 10 m/s: added up in the axes of the body the speed grew by 5 % a second."""
    sys = body(com)
    q, v = rbd.neutral(sys), jnp.array([6.0, 0.0, 8.0, 10.0, 0.0, 0.0])
    end = run(sys, q, v)
    assert lost(sys, (q, v), end)[0] < 1e-13
    # and its centre of mass goes straight
    travel = rbd.center_of_mass(sys, end[0]) - rbd.center_of_mass(sys, q)
    np.testing.assert_allclose(travel, DT * STEPS * rbd.center_of_mass_velocity(sys, q, v), atol=1e-12)


def test_a_thrown_body_falls_as_a_point_does():
    sys = body().replace(gravity=jnp.array([0.0, 0.0, -9.81]))
    q, v = rbd.neutral(sys), jnp.array([3.0, -4.0, 5.0, 1.0, 2.0, 3.0])
    end = run(sys, q, v)
    fall = jnp.array([0.0, 0.0, -9.81]) * DT**2 * STEPS * (STEPS + 1) / 2
    expected = rbd.center_of_mass(sys, q) + DT * STEPS * rbd.center_of_mass_velocity(sys, q, v) + fall
    np.testing.assert_allclose(rbd.center_of_mass(sys, end[0]), expected, atol=1e-12)


CRANE = """<mujoco><option gravity="0 0 0" timestep="0.001" integrator="Euler"/>
<worldbody><body name="hull"><freejoint name="root"/>
  <inertial pos="{com}" mass="3" diaginertia="0.2 0.3 0.4"/>
  <body name="boom" pos="0.2 0 0.1"><joint name="boom" axis="0 1 0"/>
    <inertial pos="0 0 0.3" mass="1" diaginertia="0.05 0.06 0.02"/>
    <body name="load" pos="0 0 0.6"><joint name="load" type="ball"/>
      <inertial pos="0.1 0 -0.2" mass="0.7" diaginertia="0.02 0.03 0.01"/>
    </body></body></body></worldbody></mujoco>"""


@pytest.fixture(scope="module")
def moving_crane():
    """The crane, a state, and the same in MuJoCo after the same time: (sys, q, v, ours, theirs)."""

    def both(com):
        text = CRANE.format(com=com)
        sys, m = rbd.load(text), mujoco.MjModel.from_xml_string(text)
        q = jnp.asarray([0.1, -0.2, 0.3, 0.5, 0.5, -0.5, 0.5, 0.4, 1.0, 0, 0, 0])
        v = jnp.asarray([2.0, -3.0, 4.0, 1.0, 2.0, -1.0, 3.0, -2.0, 1.0, 2.0])
        d = mujoco.MjData(m)
        d.qpos[:], d.qvel[:] = q, v
        R = np.zeros(9)
        mujoco.mju_quat2Mat(R, np.asarray(q[3:7]))
        d.qvel[:3], d.qvel[3:6] = R.reshape(3, 3) @ np.asarray(v[3:6]), v[:3]
        for _ in range(STEPS):
            mujoco.mj_step(m, d)
        mujoco.mju_quat2Mat(R, d.qpos[3:7])
        twist = np.concatenate([d.qvel[3:6], R.reshape(3, 3).T @ d.qvel[:3]])
        theirs = jnp.asarray(d.qpos), jnp.concatenate([twist, d.qvel[6:]])
        return sys, q, v, theirs

    return both


@pytest.mark.filterwarnings("ignore::jaxrbd.ModelWarning")
def test_trees_lose_what_mujoco_loses_or_nothing(moving_crane):
    """With the hull's centre of mass at its origin the step is MuJoCo's Euler."""
    sys, q, v, theirs = moving_crane("0 0 0")
    ours = run(sys, q, v)
    np.testing.assert_allclose(ours[0], theirs[0], atol=1e-9)
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-9)
    assert min(lost(sys, (q, v), theirs)) > 1e-5
    assert max(lost(sys, (q, v), run(sys, q, v, conserve=True))) < 1e-13


@pytest.mark.filterwarnings("ignore::jaxrbd.ModelWarning")
def test_trees_with_an_offset_lose_no_more_than_in_mujoco(moving_crane):
    sys, q, v, theirs = moving_crane("0.3 -0.2 0.1")
    ours = np.array(lost(sys, (q, v), run(sys, q, v)))
    assert (ours[:2] <= 1.001 * np.array(lost(sys, (q, v), theirs))[:2]).all()
    assert max(lost(sys, (q, v), run(sys, q, v, conserve=True))) < 1e-13


def test_forces_change_momentum_by_their_impulse():
    """With gravity and a wrench on a body: P' - P = dt (m g + f), to rounding, also for several trees."""
    b = rbd.Builder("two")
    for k in range(2):
        b.body(f"hull{k}", 1.0 + k, com=(0.1, 0.0, 0.2), inertia=(0.1, 0.2, 0.25))
        b.body(f"arm{k}", 0.5, com=(0.0, 0.3, 0.0), inertia=(0.02, 0.01, 0.02))
        b.joint(f"root{k}", "free", None, f"hull{k}")
        b.joint(f"hinge{k}", "revolute", f"hull{k}", f"arm{k}", (0, 0.1, 0))
    sys = b.build()
    q = rbd.random_configuration(sys, jax.random.key(0))
    v = jnp.linspace(-2, 3, sys.nv)
    force = jnp.zeros((sys.nb, 6)).at[1, 3:].set(jnp.array([3.0, -4.0, 5.0]))
    integrator = rbd.SemiImplicitEuler(DT, conserve_momentum=True)
    end = jax.jit(lambda: rbd.step(sys, rbd.State(q, v), None, integrator, f_ext=force).value)()
    change = momentum(sys, end.q, end.v)[0] - momentum(sys, q, v)[0]
    weight = rbd.total_mass(sys) * sys.gravity
    np.testing.assert_allclose(change, DT * (weight + force[1, 3:]), atol=1e-13)


def tree():
    return rbd.zoo.random_tree(2, seed=3, joint_types=("spherical",), base="free")


@pytest.mark.parametrize(
    "make, options",
    [(body, {}), pytest.param(tree, {"conserve_momentum": True}, marks=pytest.mark.all_robots)],
)
def test_derivatives_of_a_step_against_differences(make, options):
    sys = make()
    q = rbd.random_configuration(sys, jax.random.key(1))
    v, integrator = jnp.linspace(-2, 3, sys.nv), rbd.SemiImplicitEuler(5e-3, **options)
    weights = jnp.linspace(1, -0.5, 2 * sys.nv)

    @jax.jit
    def f(x):
        start = rbd.State(rbd.integrate(sys, q, x[: sys.nv]), v + x[sys.nv :])
        after = rbd.step(sys, start, None, integrator).value
        return weights @ jnp.concatenate([rbd.difference(sys, q, after.q), after.v])

    d, zero = jnp.cos(jnp.arange(2.0 * sys.nv)), jnp.zeros(2 * sys.nv)
    central = (f(1e-6 * d) - f(-1e-6 * d)) / 2e-6
    np.testing.assert_allclose(jax.jit(lambda: jax.jvp(f, (zero,), (d,))[1])(), central, rtol=1e-7)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(zero) @ d, central, rtol=1e-7)


def ring(bodies=9):
    """Rods in a ring that floats: a free one, hinges with skew axes, and a point that closes the ring."""
    b, side = rbd.Builder("ring", gravity=(0, 0, 0)), 0.3
    for k in range(bodies):
        b.body(f"rod{k}", 0.5, shapes=[b.capsule_between(0.02, (0, 0, 0), (side, 0, 0))])
    b.joint("root", "free", None, "rod0")
    for k in range(1, bodies):
        axis = (0, 0, 1) if k % 2 else (0, 1, 0)
        b.joint(f"hinge{k}", "revolute", f"rod{k - 1}", f"rod{k}", (side, 0, 0), axis=axis)
    sys = b.build()
    close = rbd.constraints.connect(sys, f"rod{bodies - 1}", "rod0", offset=(side, 0, 0))
    guess = np.array(rbd.neutral(sys))
    guess[7::2] = 4 * np.pi / bodies
    v = np.concatenate([[0.0, 3.0, 10.0, 10.0, 0.0, 0.0], np.linspace(-1, 1, bodies - 1)])
    found = rbd.project(sys, close, guess, v, rbd.Projection(40, rbd.ProxLTL()))
    assert found.converged, found.stats
    return sys, close, found.value.q, found.value.v


@pytest.mark.all_robots
@pytest.mark.parametrize("conserve", [False, True])
def test_a_ring_of_nine_bodies_gains_no_energy(conserve):
    sys, close, q, v = ring()
    integrator = rbd.SemiImplicitEuler(2e-3, conserve_momentum=conserve)
    start = rbd.State(q, v)
    path = jax.jit(
        lambda: rbd.rollout(sys, start, None, integrator, constraints=close, solver=rbd.ProxLTL(), steps=500)
    )()
    assert path.converged.all()
    energies = jax.jit(jax.vmap(lambda s: rbd.kinetic_energy(sys, s.q, s.v)))(path.value)
    first = float(rbd.kinetic_energy(sys, q, v))
    # added up in the axes of the free rod it gained 15 % of energy and 9 % of momentum here
    assert energies.max() < (1.0001 if conserve else 1.02) * first
    left = lost(sys, (q, v), (path.value.q[-1], path.value.v[-1]))
    assert max(left[:2]) < (1e-12 if conserve else 2e-2)
