"""The stepping contract: controls beside joint forces, controllers with memory, forces with parameters."""

import jax
import jax.numpy as jnp
import loops
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.errors import ArgumentError


def slider():
    b = rbd.Builder("slider", gravity=(0, 0, 0))
    b.body("block", 2.0, inertia=(0.1, 0.1, 0.1))
    b.joint("rail", "prismatic", None, "block", axis=(1, 0, 0))
    b.body("load", 1.0, inertia=(0.1, 0.1, 0.1))
    b.joint("arm", "prismatic", "block", "load", axis=(0, 1, 0))
    return b.build()


@pytest.fixture(scope="module")
def block():
    sys = slider()
    return sys, rbd.State.at_rest(sys)


def test_joint_forces_beside_controls_are_not_clipped():
    """nu = nv = 7: u goes through actuators and their ranges, tau does not, and both add up."""
    sys = rbd.zoo.arm7()
    assert sys.nu == sys.nv
    start = rbd.State(sys.q0, jnp.linspace(0, 1, 7))
    after = jax.jit(lambda u, tau: rbd.step(sys, start, u, tau=tau).value.v)
    only = jax.jit(lambda tau: rbd.step(sys, start, tau=tau).value.v)
    x, y = jnp.linspace(-5, 5, 7), jnp.linspace(2, 3, 7)
    np.testing.assert_allclose(after(x, y), only(x + y), rtol=1e-12)
    strong = 10 * sys.effort_limit
    np.testing.assert_allclose(after(strong, y), only(sys.effort_limit + y), rtol=1e-12)
    assert jnp.abs(only(strong) - after(strong, 0 * y)).min() > 1e-3
    np.testing.assert_allclose(after(x, strong), only(x + strong), rtol=1e-12)


def test_without_actuators_controls_are_joint_forces(block):
    sys, start = block
    push = jnp.array([3.0, -1.0])
    np.testing.assert_array_equal(rbd.step(sys, start, push).value.v, rbd.step(sys, start, tau=push).value.v)
    np.testing.assert_allclose(
        rbd.step(sys, start, push, tau=push).value.v, 2e-3 * push / jnp.array([3, 1.0])
    )
    np.testing.assert_array_equal(rbd.step(sys, start, jnp.zeros(0)).value.v, start.v)
    by = jax.jit(lambda: [rbd.linearize(sys, start, **{name: push})[1] for name in ("u", "tau")])()
    np.testing.assert_array_equal(*by)


def test_a_rollout_takes_rows_of_joint_forces():
    """A cart-pole: nu = 1 controls and nv = 2 joint forces, both or one; B is by what is given."""
    sys = rbd.zoo.cart_pole()
    start = rbd.State.at_rest(sys, jnp.array([0.1, 0.2]))
    u, tau = jnp.linspace(-3, 3, 8)[:, None], jnp.stack([jnp.ones(8), jnp.linspace(0, 1, 8)], 1)
    both, joined = jax.jit(
        lambda: (
            rbd.rollout(sys, start, u, tau=tau).value,
            rbd.rollout(sys, start, tau=tau + jnp.concatenate([u, 0 * u], 1)).value,
        )
    )()
    np.testing.assert_allclose(both.q, joined.q, rtol=1e-12, atol=1e-15)
    law = lambda sys, q, v: -0.3 * v  # noqa: E731
    for options, width in (({"u": u[0]}, 1), ({"u": u[0], "tau": law}, 1), ({"tau": law}, 2), ({}, 2)):
        B = jax.eval_shape(lambda o=options: rbd.linearize(sys, start, **o)[1])
        assert B.shape == (4, width)


def test_a_controller_with_memory(block):
    """Integral control against a constant push leaves no error; two halves are the whole, bit for bit."""
    sys, start = block
    goal, push = jnp.array([0.5, -0.2]), jnp.array([4.0, 1.0])

    def pid(carry, q, v, t):
        total = carry["sum"] + 2e-2 * (goal - q)
        u = 60 * (goal - q) - 20 * v + 40 * total
        return {"sum": total, "calls": carry["calls"] + 1}, u

    memory = {"sum": jnp.zeros(2), "calls": 0}
    euler = rbd.SemiImplicitEuler(2e-2)

    def run(start, memory, t, steps=300):
        return rbd.rollout(sys, start, pid, euler, tau=lambda sys, q, v: push, carry=memory, t=t, steps=steps)

    path = jax.jit(run)(start, memory, 0.0)
    np.testing.assert_allclose(path.value.q[-1], goal, atol=1e-2)
    assert path.carry["calls"] == 300 and path.converged.all()
    np.testing.assert_allclose(
        path.carry["sum"], (goal - jnp.vstack([start.q, path.value.q[:-1]])).sum(0) * 2e-2
    )
    short = jax.jit(lambda s, m, t: run(s, m, t, 150))
    first = short(start, memory, 0.0)
    second = short(jax.tree.map(lambda x: x[-1], first.value), first.carry, 3.0)
    np.testing.assert_array_equal(second.value.q, path.value.q[150:])
    assert second.carry["calls"] == 300


def test_gradients_by_the_memory_and_by_parameters_of_forces(block):
    """A pytree of parameters reaches stages, checkpoints and a controller: against differences."""
    sys, start = block

    def wind(p, sys, q, v, t):
        along = p["drag"] * (p["speed"] * jnp.cos(9 * t) - v)
        return jnp.zeros((sys.nb, 6)).at[:, 3:5].set(along)

    def law(k, sys, q, v):
        return -k * q

    def policy(carry, q, v, t):
        return 0.9 * carry + q, carry - v

    def cost(x, checkpoint):
        path = rbd.rollout(
            sys,
            start,
            policy,
            rbd.SemiImplicitEuler(5e-2),
            carry=x["carry"],
            steps=7,
            tau=jax.tree_util.Partial(law, x["k"]),
            f_ext=jax.tree_util.Partial(wind, x["wind"]),
            checkpoint=checkpoint,
            keep="last",
        )
        return path.value.q[0] @ jnp.array([1.0, 2.0]) + jnp.sum(path.carry**2)

    wind_numbers = {"drag": jnp.float64(0.7), "speed": jnp.array([2.0, -1.0])}
    x = {"k": jnp.array([3.0, 5.0]), "wind": wind_numbers, "carry": jnp.array([1.0, -0.5])}
    f = jax.jit(jax.value_and_grad(lambda x: cost(x, None)))
    value, slope = f(x)
    same, again = jax.jit(jax.value_and_grad(lambda x: cost(x, 3)))(x)
    np.testing.assert_allclose(same, value, rtol=1e-14)
    d = jax.tree.map(lambda a: jnp.cos(1.0 + jnp.arange(a.size)).reshape(a.shape), x)
    move = lambda h: f(jax.tree.map(lambda a, b: a + h * b, x, d))[0]  # noqa: E731
    central = (move(1e-5) - move(-1e-5)) / 2e-5
    for found in (slope, again):
        total = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(d)))
        np.testing.assert_allclose(total, central, rtol=1e-8)


def test_forces_of_time_are_taken_at_the_stages(block):
    """m ẍ = cos(t + 0.4) in closed form, to the order of RK4; time goes on over steps."""
    sys, start = block
    shake = lambda sys, q, v, t: jnp.array([jnp.cos(t), 0.0])  # noqa: E731
    path = jax.jit(lambda: rbd.rollout(sys, start, integrator=rbd.RK4(0.05), tau=shake, t=0.4, steps=40))()
    t = 0.4 + 0.05 * np.arange(1, 41)
    exact = (np.cos(0.4) - np.cos(t) - np.sin(0.4) * (t - 0.4)) / 3.0
    np.testing.assert_allclose(path.value.q[:, 0], exact, atol=1e-8)
    late = rbd.step(sys, start, tau=shake, t=jnp.pi)
    np.testing.assert_allclose(late.value.v[0], -1e-3 / 3.0)


def test_a_state_that_is_not_finite_is_not_converged(block):
    sys, start = block
    fine = rbd.step(sys, start)
    assert fine.result == rbd.Result.converged and fine.result.dtype == jnp.int32 and fine.stats is None
    assert rbd.step(sys, start, jnp.array([1.0, jnp.nan])).result == rbd.Result.not_converged
    push = jnp.zeros((4, 2)).at[2].set(jnp.inf)
    for keep, codes in (("all", [0, 0, 2, 2]), ("last", [2])):
        path = rbd.rollout(sys, start, push, keep=keep)
        np.testing.assert_array_equal(path.result, codes)
        assert "not_converged" in repr(path) and path.result.dtype == jnp.int32


@pytest.mark.all_robots
def test_linearize_under_constraints_against_differences():
    """A loop, projection included."""
    sys, con, q = loops.four_bar()
    solver = rbd.ProxLTL()
    v = rbd.project(sys, con, q, jnp.array([6.0, 0, 0]), rbd.Projection(1, solver)).value.v
    tau = jnp.array([0.3, 0.0, -0.1])
    options = {"integrator": rbd.SemiImplicitEuler(5e-3), "constraints": con, "solver": solver}

    @jax.jit
    def both(x):
        dq, dv, du = jnp.split(x, 3)
        start = rbd.State(q + dq, v + dv)
        A, B = rbd.linearize(sys, start, tau + du, **options)
        after = rbd.step(sys, start, tau + du, **options)
        return jnp.concatenate([A, B], 1), jnp.concatenate([after.value.q, after.value.v]), after.result

    matrix, _, result = both(jnp.zeros(9))
    assert result == rbd.Result.converged
    central = [(both(1e-6 * e)[1] - both(-1e-6 * e)[1]) / 2e-6 for e in np.eye(9)]
    np.testing.assert_allclose(
        matrix, np.stack(central, 1), rtol=1e-6, atol=1e-6 * float(jnp.abs(matrix).max())
    )


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda s, x: rbd.step(s, x, rbd.RK4(1e-3)), "u is RK4, an integrator. Write integrator=RK4"),
        (
            lambda s, x: rbd.rollout(s, x, rbd.RK4, steps=3),
            "controls is RK4, an integrator. Write integrator=",
        ),
        (lambda s, x: rbd.step(s, rbd.step(s, x)), "state is a Solution.*Write sol.value"),
        (lambda s, x: rbd.step(s, x, lambda q, v, t: v), "u is a function.*controls of `rollout`"),
        (
            lambda s, x: rbd.step(s, x, jnp.zeros(2)),
            r"u has shape \(2,\).*\(nu,\) = \(1,\).*Joint forces.*tau=",
        ),
        (lambda s, x: rbd.step(s, x, tau=jnp.zeros(1)), r"tau has shape \(1,\), expected \(nv,\) = \(2,\)"),
        (lambda s, x: rbd.step(s, x, tau=lambda sys, q, v: v[:1]), r"tau\(sys, q, v\) has shape \(1,\)"),
        (lambda s, x: rbd.step(s, x, f_ext=lambda sys, q, v: v), r"f_ext\(sys, q, v\) has shape \(2,\)"),
        (lambda s, x: rbd.step(s, x, solver=rbd.ProxLTL()), "solver is given, but no constraints"),
        (lambda s, x: rbd.step(s, x, projection=rbd.Projection()), "projection is given, but no constraints"),
        (lambda s, x: rbd.rollout(s, x, jnp.zeros((3, 2))), r"controls has shape.*\(T, nu\).*tau="),
        (lambda s, x: rbd.rollout(s, x, jnp.zeros(1), steps=3), r"jnp.tile\(controls, \(T, 1\)\)"),
        (lambda s, x: rbd.rollout(s, x, jnp.zeros((3, 1)), steps=4), "steps is 4, controls has rows: 3"),
        (lambda s, x: rbd.rollout(s, x, tau=jnp.zeros((3, 2)), steps=4), "steps is 4, tau has rows: 3"),
        (lambda s, x: rbd.rollout(s, x, steps=2.5), "steps is 2.5, expected a number of steps"),
        (
            lambda s, x: rbd.rollout(s, x, carry=0.0, steps=2),
            "carry is given, but the controls are no function",
        ),
        (lambda s, x: rbd.rollout(s, x, lambda c, q, v, t: q[:1], carry=0.0, steps=2), "returns a pair"),
        (
            lambda s, x: rbd.rollout(s, x, lambda c, q, v, t: (q, q[:1]), carry=0.0, steps=2),
            r"got the carry float64\[\] and returned float64\[2\]",
        ),
    ],
)
def test_mistakes_get_a_remedy(call, message):
    sys = rbd.zoo.cart_pole()
    with pytest.raises(ArgumentError, match=message):
        call(sys, rbd.State.at_rest(sys))


def test_constraints_in_the_place_of_the_integrator():
    sys, con, q = loops.four_bar()
    with pytest.raises(ArgumentError, match="integrator is Constraints.*Write constraints="):
        rbd.step(sys, rbd.State.at_rest(sys, q), None, con)
    with pytest.raises(AttributeError, match=r"Solution has no 'q'.*\.value\.q"):
        _ = rbd.step(sys, rbd.State.at_rest(sys, q)).q
