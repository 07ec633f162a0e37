"""A solver written outside of the package, in one file, works like the library's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con

# --- the solver ----------------------------------------------------------------------------------------


@rbd.pytree
class DenseKKT(con.Solver):
    """[[M, -Jᵀ], [J, eps]] (a, lam) = (f, c) by one LU, refined once."""

    eps: float = 1e-9

    def solve(self, task, settings):
        M, J = (jnp.moveaxis(x, -1, 0) for x in con.matrices(task))  # batch last -> batch first
        f, c = con.joint_forces(task).T, task.c.T
        n = M.shape[-1]
        damping = jnp.zeros((len(c), c.shape[1], c.shape[1]), c.dtype) + jnp.eye(c.shape[1], dtype=c.dtype)
        damping = damping * jnp.reshape(self.eps, (-1, 1, 1))
        Jt = jnp.swapaxes(J, 1, 2)
        exact = jnp.block([[M, -Jt], [J, jnp.zeros_like(damping)]])
        lu = jax.scipy.linalg.lu_factor(jnp.block([[M, -Jt], [J, damping]]))
        rhs = jnp.concatenate([f, c], 1)[..., None]
        x = jax.scipy.linalg.lu_solve(lu, rhs)
        x = (x + jax.scipy.linalg.lu_solve(lu, rhs - exact @ x))[..., 0].T
        return con.judged(task, x[:n], x[n:], settings, iterations=2)


# --- it works like ours --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def robot():
    sys = rbd.zoo.arm7()
    rows = con.connect(sys, "tool")
    q = jax.vmap(lambda k: rbd.random_configuration(sys, k))(jax.random.split(jax.random.key(0), 3))
    v, tau = np.random.default_rng(0).normal(size=(2, 3, sys.nv))
    return sys, rows, (q, 0.3 * jnp.asarray(v), jnp.asarray(tau))


def test_its_answers_gradients_and_verdicts(robot):
    """Batched and jitted; the VJP is that of ConstrainedABA, by the implicit rule through its own `solve`."""
    sys, rows, state = robot
    weight = jnp.asarray(np.random.default_rng(1).normal(size=(3, sys.nv)))

    def run(solver):
        solve = jax.vmap(lambda q, v, tau: rbd.constrained_dynamics(sys, q, v, tau, rows, solver))
        found, pull = jax.vjp(lambda *x: solve(*x).value.a, *state)
        return solve(*state), found, pull(weight)

    own, a, grads = jax.jit(lambda: run(DenseKKT()))()
    ours, a_ours, grads_ours = jax.jit(lambda: run(rbd.ConstrainedABA()))()
    assert own.converged.all() and (own.stats.iterations == 2).all()
    np.testing.assert_allclose(own.value.lam, ours.value.lam, rtol=1e-8, atol=1e-8)
    for x, y in zip([a, *grads], [a_ours, *grads_ours]):
        np.testing.assert_allclose(x, y, atol=1e-8 * np.abs(y).max())


def test_unrolled_through_its_code_and_by_its_own_number(robot):
    """gradients="unrolled" differentiates `solve`: its leaf `eps` then has a derivative."""
    sys, rows, (q, v, tau) = robot

    def first(eps):
        solver = DenseKKT(eps, gradients="unrolled")
        return rbd.constrained_dynamics(sys, q[0], v[0], tau[0], rows, solver).value.a[0]

    first = jax.jit(first)
    slope = jax.jit(jax.grad(first))(0.3)
    np.testing.assert_allclose(slope, (first(0.3 + 1e-5) - first(0.3 - 1e-5)) / 2e-5, rtol=1e-6)


def test_a_wrong_answer_is_not_called_right(robot):
    """The verdict is not the solver's to give: with heavy damping the rows are missed."""
    sys, rows, (q, v, tau) = robot
    found = rbd.constrained_dynamics(sys, q[0], v[0], tau[0], rows, DenseKKT(eps=10.0))
    assert found.result == rbd.Result.not_converged


def test_what_is_no_solver_is_said(robot):
    sys, rows, (q, v, tau) = robot
    run = lambda solver: rbd.constrained_dynamics(sys, q[0], v[0], tau[0], rows, solver)  # noqa: E731
    with pytest.raises(rbd.ArgumentError, match=r"the class DenseKKT.*Write DenseKKT\(\)"):
        run(DenseKKT)
    with pytest.raises(rbd.ArgumentError, match="expected ConstrainedABA"):
        run("ConstrainedABA")
    with pytest.raises(rbd.ArgumentError, match="does not say how it solves"):
        run(con.Solver())
