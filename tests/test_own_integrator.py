"""Integrators from outside of the package: implicit midpoint rule with a verdict, Verlet with a memory."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.errors import ArgumentError


@rbd.pytree
class ImplicitMidpoint:
    """v' = v + dt a(q ⊞ dt/2 w, w) with w = (v + v')/2, then q' = q ⊞ dt w: Newton for w, order 2.

    Derivatives by the implicit function theorem, whatever the number of iterations.
    """

    dt: float
    iterations: int = rbd.static(default=6)
    tolerance: float = 1e-12

    def step(self, problem: rbd.StepProblem, state: rbd.State) -> rbd.Solution:
        sys, q, v = problem.sys, state.q, state.v
        half = 0.5 * jnp.asarray(self.dt, sys.dtype)

        def residual(w):
            return (
                w - v - half * problem.dynamics(rbd.integrate(sys, q, half * w), w, problem.t + half).value.a
            )

        def newton(f, w):
            def once(w, _):
                return w - jnp.linalg.solve(jax.jacfwd(f)(w), f(w)), None

            w = jax.lax.scan(once, w, length=self.iterations)[0]
            return w, jnp.abs(f(w)).max()

        solve = lambda f, y: jnp.linalg.solve(jax.jacfwd(f)(jnp.zeros_like(y)), y)  # noqa: E731
        w, error = jax.lax.custom_root(residual, v, newton, solve, has_aux=True)
        result = jnp.where(error <= self.tolerance, rbd.Result.converged, rbd.Result.not_converged)
        return rbd.Solution(rbd.State(rbd.integrate(sys, q, 2 * half * w), 2 * w - v), result, error)


@rbd.pytree
class Verlet:
    """v½ = v + dt/2 a,  q' = q ⊞ dt v½,  v' = v½ + dt/2 a(q', v½): remembers a, one evaluation per step."""

    dt: float

    def begin(self, problem: rbd.StepProblem, state: rbd.State) -> rbd.State:
        return rbd.State(state.q, state.v, problem.dynamics(state.q, state.v).value.a)

    def step(self, problem: rbd.StepProblem, state: rbd.State) -> rbd.Solution:
        v = state.v + 0.5 * self.dt * state.memory
        q = rbd.integrate(problem.sys, state.q, self.dt * v)
        a = problem.dynamics(q, v, problem.t + self.dt).value.a
        return rbd.Solution(rbd.State(q, v + 0.5 * self.dt * a, a), rbd.Result.converged, None)


@pytest.fixture(scope="module")
def pendulum():
    sys = rbd.zoo.double_pendulum()
    return sys, rbd.State(jnp.array([1.0, -0.5]), jnp.array([0.3, 2.0]))


def test_an_implicit_rule_steps_batches_and_differentiates(pendulum):
    """jit, vmap, and the gradient of a rollout by state, controls and masses against differences."""
    sys, start = pendulum

    def cost(x):
        s = sys.replace(mass=sys.mass * jnp.exp(x["mass"]))
        path = rbd.rollout(s, rbd.State(x["q"], x["v"]), x["u"], ImplicitMidpoint(2e-2), checkpoint="sqrt")
        return path.value.q[-1] @ jnp.array([1.0, -2.0]) + path.value.v[-1, 0], path

    x = {"q": start.q, "v": start.v, "u": jnp.ones((9, 2)), "mass": jnp.zeros(2)}
    d = jax.tree.map(lambda a: jnp.cos(jnp.arange(a.size)).reshape(a.shape), x)
    h = jnp.array([0.0, 1e-6, -1e-6])
    batch = jax.tree.map(lambda a, b: a + h.reshape(3, *[1] * a.ndim) * b, x, d)
    (value, path), slope = jax.jit(jax.vmap(jax.value_and_grad(cost, has_aux=True)))(batch)
    assert path.converged.all() and path.result.dtype == jnp.int32 and path.result.shape == (3, 9)
    assert path.stats.shape == (3, 9) and path.stats.max() < 1e-12
    total = sum(jnp.vdot(a[0], b) for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(d)))
    np.testing.assert_allclose(total, (value[1] - value[2]) / 2e-6, rtol=1e-6)


def test_the_rule_has_order_two_and_keeps_volume(pendulum):
    """In phase space (q, p) it is symplectic: det A = det M(q) / det M(q') in (q, v), A from `linearize`."""
    sys, start = pendulum

    @jax.jit
    def end(dt, steps):
        one = lambda _, s: rbd.step(sys, s, integrator=ImplicitMidpoint(dt)).value  # noqa: E731
        return jax.lax.fori_loop(0, steps, one, start)

    exact = end(0.2 / 640, 640).q
    errors = [float(jnp.abs(end(0.2 / n, n).q - exact).max()) for n in (10, 20, 40)]
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 2, atol=0.1)
    A, B = jax.jit(lambda: rbd.linearize(sys, start, integrator=ImplicitMidpoint(1e-2)))()
    volume = jax.jit(lambda q: jnp.linalg.det(rbd.mass_matrix(sys, q)))
    assert B.shape == (4, 2)
    np.testing.assert_allclose(np.linalg.det(A), volume(start.q) / volume(end(1e-2, 1).q), rtol=1e-3)


def test_newton_that_fails_is_said(pendulum):
    """One iteration at a long step is not enough: `result` says so, of every step and of the last alone."""
    sys, start = pendulum
    roll = lambda keep: rbd.rollout(  # noqa: E731
        sys, start, integrator=ImplicitMidpoint(0.1, iterations=1), steps=4, keep=keep
    )
    path, last = jax.jit(lambda: (roll("all"), roll("last")))()
    assert (path.result == rbd.Result.not_converged).all() and jnp.isfinite(path.value.q).all()
    assert last.result.shape == (1,) and last.result[0] == rbd.Result.not_converged
    np.testing.assert_array_equal(last.stats, path.stats[-1:])
    np.testing.assert_array_equal(last.value.q, path.value.q[-1:])


def test_a_memory_is_carried_and_made_anew(pendulum):
    """Two halves are the whole, bit for bit; the first one knows the controls; `linearize` makes it anew."""
    sys, start = pendulum
    push = lambda q, v, t: jnp.array([3.0, -1.0])  # noqa: E731
    run = lambda s, integrator, steps: rbd.rollout(sys, s, push, integrator, steps=steps).value  # noqa: E731
    integrator = Verlet(1e-2)
    half = jax.jit(lambda s: run(s, integrator, 3))
    whole, exact = jax.jit(lambda s: (run(s, integrator, 6), run(s, rbd.RK4(1e-2), 6)))(start)
    middle = jax.tree.map(lambda x: x[-1], half(start))
    chex.assert_trees_all_equal(half(middle), jax.tree.map(lambda x: x[3:], whole))
    np.testing.assert_allclose(whole.q, exact.q, atol=1e-3)  # of order 1, where forces depend on v
    matrices = jax.jit(lambda s: rbd.linearize(sys, s, integrator=integrator))
    chex.assert_trees_all_equal(matrices(middle), matrices(rbd.State(middle.q, middle.v)))


def test_what_breaks_the_contract_is_refused(pendulum):
    sys, start = pendulum
    held = rbd.constraints.connect(sys, sys.body_names[-1], q=start.q)
    with pytest.raises(ArgumentError, match="ImplicitMidpoint does not say that it keeps them.*accepts"):
        rbd.step(sys, start, integrator=ImplicitMidpoint(1e-2), constraints=held)

    class Pair(Verlet):
        def begin(self, problem, state):
            return state

        def step(self, problem, state):
            return state.q, state.v

    class Forgetful(Pair):
        def step(self, problem, state):
            return rbd.Solution(rbd.State(state.q, state.v, state.v), rbd.Result.converged, None)

    with pytest.raises(ArgumentError, match=r"Pair.step\(problem, state\) gave .*expected Solution"):
        rbd.step(sys, start, integrator=Pair(1e-2))
    with pytest.raises(ArgumentError, match="Forgetful.step got memory None .*begin"):
        rbd.rollout(sys, start, integrator=Forgetful(1e-2), steps=2)
