"""Stepping under constraints: loops stay closed, feet stay put, energy stays; springs against the ground."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import loops
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as C
from jaxrbd.errors import ArgumentError
from jaxrbd.integrators.drift import FROM_DRIFT
from jaxrbd.solution import worst

LEGS = ("FL", "FR", "RL", "RR")
LONG = [400, pytest.param(10_000, marks=pytest.mark.all_robots)]  # steps of 1 ms


@pytest.mark.parametrize(
    ("steps", "projection"), [(400, None), pytest.param(10_000, FROM_DRIFT, marks=pytest.mark.all_robots)]
)
def test_four_bar_keeps_its_loop_and_its_energy(steps, projection):
    """Of order 4, a short motion stays where it is without being put back."""
    sys, con, q = loops.four_bar()
    J = np.asarray(C.constraint_jacobian(sys, con, q))
    v = jnp.asarray((np.eye(3) - np.linalg.pinv(J, rcond=1e-10) @ J) @ [6.0, 0, 0])
    options = {"constraints": con, "solver": rbd.ProxLTL(), "projection": projection}
    path = jax.jit(lambda: rbd.rollout(sys, rbd.State(q, v), None, rbd.RK4(1e-3), steps=steps, **options))()
    assert path.converged.all()
    assert path.stats.error.max() < 1e-8 and path.stats.moved.max() < 1e-5
    energies = jax.jit(jax.vmap(lambda s: rbd.energy(sys, s.q, s.v)))(path.value)
    assert jnp.abs(energies - rbd.energy(sys, q, v)).max() < 1e-3 * rbd.kinetic_energy(sys, q, v)


@pytest.mark.parametrize("steps", LONG)
@pytest.mark.parametrize("remedy, drift", [("projection", 1e-8), ("baumgarte", 1e-5)])
@pytest.mark.parametrize("feet", ["points", pytest.param("welds", marks=pytest.mark.all_robots)])
def test_quadruped_stands_on_its_feet(steps, remedy, drift, feet):
    """On points its springs sag. Four welds, 24 rows on 18 freedoms, hold it still and are redundant."""
    sys = rbd.zoo.quadruped(actuation="position")
    gains = {} if remedy == "projection" else {"baumgarte": 0.02}
    make = C.connect if feet == "points" else C.weld
    con = C.combine(*(make(sys, f"{leg}_foot", q=sys.q0, **gains) for leg in LEGS))
    start, u = rbd.State.at_rest(sys, sys.q0), sys.q0[7:]
    options = {} if remedy == "projection" else {"projection": None}
    path = jax.jit(
        lambda: rbd.rollout(
            sys, start, lambda q, v, t: u, constraints=con, solver=rbd.ProxLTL(), steps=steps, **options
        )
    )()
    assert path.converged.all()
    places = jax.vmap(lambda q: C.constraint_error(sys, con, q))(path.value.q)
    assert jnp.abs(places).max() < drift
    assert jnp.abs(places - C.constraint_error(sys, con, sys.q0)).max() < drift
    if feet == "points":
        assert jnp.abs(path.value.v).max() > 1e-3  # it sags in its springs before it stands
    if steps > 5000:
        weight = float(rbd.total_mass(sys)) * 9.81
        forces = path.stats.lam[-1].reshape(4, -1)[:, -3:].sum(0)
        if feet == "welds":  # in the axes of the feet, which are parallel here
            forces = np.array([0, 0, np.linalg.norm(forces)])
        np.testing.assert_allclose(forces, [0, 0, weight], atol=1e-3)


@pytest.mark.parametrize("solver", [None, pytest.param(rbd.Soft(mu=1e9), marks=pytest.mark.all_robots)])
def test_other_solvers_step_too(solver):
    """The default, and springs, whose steps are projected by the default: a tool that is held stays there."""
    sys = rbd.zoo.arm7()
    q = jnp.linspace(0.2, 1.0, 7)
    con = C.connect(sys, "tool", q=q)
    start = rbd.State(q, jnp.zeros(7))
    path = jax.jit(lambda: rbd.rollout(sys, start, constraints=con, solver=solver, steps=50))()
    assert path.stats.error.max() < 1e-8
    assert jnp.abs(path.value.v[-1]).max() > 1e-2
    if solver is None:
        assert path.converged.all()


def test_a_start_off_its_constraints_is_said():
    """Projection closes the loop in the first steps, by a jump: their results say so, and a warning."""
    sys, con, q = loops.four_bar()
    off = rbd.State.at_rest(sys, q.at[2].add(0.3))
    distance = np.abs(np.asarray(C.constraint_error(sys, con, off.q))).max()
    with pytest.warns(rbd.StateWarning, match=f"'C' by {distance:.3g}.*rbd.project") as caught:
        path = rbd.rollout(sys, off, constraints=con, solver=rbd.ProxLTL(), steps=5)
    assert caught[0].filename == __file__
    assert path.result[0] == rbd.Result.not_converged and path.stats.moved[0] > 0.05
    assert path.converged[2:].all() and path.stats.moved[2:].max() < 1e-5


def test_the_worst_result_counts():
    good, rest, bad = rbd.Result.converged, rbd.Result.stationary, rbd.Result.not_converged
    pairs = jnp.array([[good, good], [good, rest], [rest, bad], [bad, good], [bad, rest]])
    np.testing.assert_array_equal(worst(pairs[:, 0], pairs[:, 1]), [good, rest, bad, bad, bad])


def driven_four_bar(u, **more):
    """A number that depends on the last configuration and forces of a four-bar driven by u, and its path."""
    sys, con, q = loops.four_bar(baumgarte=0.05)
    controls = u[:, None] * jnp.array([1.0, 0, 0])
    more = {"constraints": con, "solver": rbd.ProxLTL()} | more
    path = rbd.rollout(sys, rbd.State.at_rest(sys, q), controls, rbd.SemiImplicitEuler(5e-3), **more)
    return path.value.q[-1, 2] + path.stats.lam[-1, 2], path


@pytest.mark.parametrize("way", ["baumgarte", pytest.param("projection", marks=pytest.mark.all_robots)])
def test_gradient_of_a_constrained_rollout_against_differences(way):
    loops.four_bar(baumgarte=0.05)  # made in NumPy, not while tracing
    more = {"projection": None} if way == "baumgarte" else {}
    f = jax.jit(jax.value_and_grad(partial(driven_four_bar, **more), has_aux=True))
    u, d = jnp.linspace(0.5, 1, 10), jnp.linspace(1, -1, 10)
    (_, path), slope = f(u)
    central = (f(u + 1e-5 * d)[0][0] - f(u - 1e-5 * d)[0][0]) / 2e-5
    np.testing.assert_allclose(slope @ d, central, rtol=1e-6)
    assert path.converged.all() and (path.stats.moved.max() > 0) == (way == "projection")


@pytest.mark.all_robots
def test_checkpoints_do_not_change_a_constrained_rollout():
    """The last step alone and with checkpoints: numbers and gradient are those of all steps."""
    loops.four_bar(baumgarte=0.05)
    u = jnp.linspace(0.5, 1, 10)
    plain, checked = (
        jax.jit(jax.value_and_grad(partial(driven_four_bar, **more), has_aux=True))(u)
        for more in ({}, {"checkpoint": 5, "keep": "last"})
    )
    np.testing.assert_allclose(plain[1], checked[1], rtol=1e-9)
    chex.assert_trees_all_close(
        checked[0][1], jax.tree.map(lambda x: x[-1:], plain[0][1]), rtol=1e-9, atol=1e-12
    )


def brick():
    b = rbd.Builder("brick")
    b.body("brick", 2.0, shapes=[b.box(0.2, 0.1, 0.06)])
    b.joint("root", "free", None, "brick")
    sys = b.build()
    corners = [(x, y, -0.03) for x in (-0.1, 0.1) for y in (-0.05, 0.05)]
    return sys, rbd.ground_springs(sys, {"brick": corners}, stiffness=2e3, damping=40.0, friction=0.5)


def states(sys, count=200):
    """Around the height at which it touches, in any motion, at rest too."""
    rng = np.random.default_rng(0)
    q = rbd.neutral(sys) + np.zeros((count, 1))
    q = q.at[:, 2].set(rng.uniform(-0.02, 0.08, count))
    v = rng.standard_normal((count, sys.nv)) * rng.choice([0.0, 1e-3, 1.0], (count, 1))
    return jax.vmap(lambda q, v: rbd.integrate(sys, q, v))(q, 0.1 * rng.standard_normal(v.shape)), v


def test_ground_only_pushes_and_friction_stays_in_its_cone():
    sys, springs = brick()
    q, v = states(sys)
    where, force = jax.jit(jax.vmap(lambda q, v: springs.contact_forces(sys, q, v)))(q, v)
    normal, sideways = force[..., 2], jnp.linalg.norm(force[..., :2], axis=-1)
    assert (normal >= 0).all() and (normal > 0).any() and (normal == 0).any()
    assert (normal[where[..., 2] > 0] == 0).all()
    assert (sideways <= 0.5 * normal + 1e-12).all()
    u = jax.vmap(lambda q, v: C.constraint_velocity(sys, springs.points, q, v))(q, v).reshape(-1, 4, 6)[
        ..., 3:
    ]
    assert (jnp.sum(force[..., :2] * u[..., :2], -1) <= 0).all()  # friction takes energy
    # f_ext does the work of the forces at their points
    f_ext = jax.vmap(lambda q, v: springs(sys, q, v))(q, v)
    twist = jax.vmap(lambda q, v: rbd.frame_velocity(sys, q, v, "brick"))(q, v)
    np.testing.assert_allclose(jnp.sum(f_ext[:, 0] * twist, -1), jnp.sum(force * u, (-2, -1)), atol=1e-9)


def test_springs_have_gradients_everywhere():
    sys, springs = brick()
    q, v = states(sys, 20)
    weights = jnp.linspace(-1, 1, 6)
    f = jax.jit(lambda x, q, v: weights @ springs(sys, rbd.integrate(sys, q, x[:6]), v + x[6:])[0])
    slope = jax.jit(jax.grad(f))
    d, zero = jnp.linspace(1, -0.5, 12), jnp.zeros(12)
    for qk, vk in zip(q, v):
        central = (f(1e-8 * d, qk, vk) - f(-1e-8 * d, qk, vk)) / 2e-8
        np.testing.assert_allclose(slope(zero, qk, vk) @ d, central, rtol=1e-4, atol=1e-3)
    just_touching = rbd.neutral(sys).at[2].set(0.03)
    assert np.isfinite(slope(zero, just_touching, jnp.zeros(6))).all()


def test_a_brick_slides_and_rests():
    """Thrown at 1 m/s from where it rests on its springs, it stops after v² / (2 friction g)."""
    sys, springs = brick()
    height = 0.03 - 2.0 * 9.81 / (4 * 2e3)
    start = rbd.State(rbd.neutral(sys).at[2].set(height), jnp.array([0, 0, 0, 1.0, 0, 0]))
    path = jax.jit(lambda: rbd.rollout(sys, start, None, steps=1500, f_ext=springs).value)()
    force = springs.contact_forces(sys, path.q[-1], path.v[-1])[1]
    np.testing.assert_allclose(force[:, 2].sum(), 2.0 * 9.81, rtol=1e-3)
    assert jnp.abs(path.v[-1]).max() < 1e-3
    np.testing.assert_allclose(path.q[-1, 0], 1 / (2 * 0.5 * 9.81), rtol=0.05)


def test_bad_arguments_are_refused_with_a_remedy():
    sys, con, q = loops.four_bar()
    state = rbd.State.at_rest(sys, q)
    with pytest.raises(ArgumentError, match="integrator"):
        rbd.step(sys, state, None, "euler", constraints=con)
    with pytest.raises(ArgumentError, match="steps"):
        rbd.rollout(sys, state, constraints=con)
    with pytest.raises(ArgumentError, match="no points"):
        rbd.ground_springs(sys, [])
    with pytest.raises(ArgumentError, match="no frame named"):
        rbd.ground_springs(sys, ["hand"])
    with pytest.raises(ArgumentError, match="friction"):
        rbd.ground_springs(sys, "crank", friction=-1.0)
    with pytest.raises(ArgumentError, match="slip_speed"):
        rbd.ground_springs(sys, "crank", slip_speed=0.0)
    with pytest.raises(ArgumentError, match="normal"):
        rbd.ground_springs(sys, "crank", normal=(0, 0, 0))
    with pytest.raises(ArgumentError, match="stiffness has shape"):
        rbd.ground_springs(sys, "crank", stiffness=jnp.ones(3))
