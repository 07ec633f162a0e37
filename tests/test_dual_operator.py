"""ADMM without the matrix, on Delassus operators: the iterates of the dense one, jit, vmap, derivatives."""

from functools import partial

import dual_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd import dual


def feet(sys, names, points):
    """Rows of `points` points on every foot, 5 cm apart."""
    places = [(0.05 * (k % 2), 0.05 * (k // 2), 0.0) for k in range(points)]
    return con.combine(*(con.connect(sys, name, offset=p) for name in names for p in places))


def states(sys, count, seed=0):
    rng = np.random.default_rng(seed)
    d, v = rng.normal(size=(2, count, sys.nv))
    return 0.2 * d, v


def both(sys, rows, solver, contacts, friction=0.6):
    """λ and v⁺ by the operator and by its matrix, at sys.q0 moved by d."""

    def run(d, v):
        q = rbd.integrate(sys, sys.q0, d)
        D = con.delassus_operator(sys, rows, q)
        v_f = con.constraint_velocity(sys, rows, q, v)
        mu = jnp.full(len(contacts), friction)
        made = dual.problem(D, v_f, mu, contacts=contacts)
        matrix = D.dense()
        matrix = dual.problem(0.5 * (matrix + matrix.T), v_f, mu, contacts=contacts)
        return dual.solve(made, solver), dual.solve(matrix, solver)

    return jax.jit(jax.vmap(run))


def same(one, other, tol):
    scale = 1 + np.abs(np.asarray(other.value.lam)).max()
    np.testing.assert_allclose(one.value.v, other.value.v, atol=tol * scale)
    np.testing.assert_allclose(one.stats.residuals.ncp, other.stats.residuals.ncp, atol=tol * scale)
    np.testing.assert_array_equal(one.stats.iterations, other.stats.iterations)
    np.testing.assert_array_equal(one.result, other.result)


def test_the_operator_makes_the_same_iterations():
    """Fixed and changing penalty, 12 rows of a quadruped: every iterate is the dense solver's."""
    sys = rbd.zoo.quadruped(dtype="float64")
    rows = feet(sys, ["FL_foot", "FR_foot", "RL_foot", "RR_foot"], 1)
    for penalty in (dual.Fixed(), dual.Linear(every=10)):
        solver = dual.ADMM(iterations=40, penalty=penalty, polish=0)
        one, other = both(sys, rows, solver, (3,) * 4)(*states(sys, 4))
        same(one, other, 1e-10)
        np.testing.assert_allclose(one.value.lam, other.value.lam, atol=1e-8)
        np.testing.assert_array_equal(one.stats.modes, other.stats.modes)


@pytest.mark.all_robots
@pytest.mark.parametrize("points", [4, 8])
def test_many_rows(points):
    """48 and 96 rows on four feet: the matrix is singular, 18 degrees of freedom against its rows."""
    sys = rbd.zoo.quadruped(dtype="float64")
    rows = feet(sys, ["FL_foot", "FR_foot", "RL_foot", "RR_foot"], points)
    solver = dual.ADMM(iterations=300, tolerance=1e-6, penalty=dual.Linear(every=20), polish=0)
    one, other = both(sys, rows, solver, (3,) * (4 * points))(*states(sys, 4))
    assert one.converged.mean() >= 0.5
    same(one, other, 1e-9)


def test_gradients_on_an_operator():
    """The implicit rule forms the matrix of any operator: as the dense problem's, forward and reverse."""
    rng = np.random.default_rng(4)
    D, dD, v_f = cases.random_D(rng, 6), cases.random_D(rng, 6), rng.normal(size=6)
    weigh = jnp.asarray(rng.normal(size=6))

    def loss(s, solver, free):
        moved = D + s * dD
        held = con.DelassusMatrix(moved, jnp.linalg.cholesky(moved)) if free else moved
        problem = dual.problem(held, v_f + s, 0.5 + 0.1 * s + jnp.zeros(2), contacts=(3, 3))
        return weigh @ dual.solve(problem, solver).value.v

    def derivatives(solver, free):
        f = partial(loss, solver=solver, free=free)
        return jax.jvp(f, (0.0,), (1.0,))[1], jax.grad(f)(0.0)

    for gradients in ("implicit", "unrolled"):
        solver = dual.ADMM(iterations=300, penalty=dual.Fixed(), gradients=gradients, polish=0)
        found = jax.jit(lambda s=solver: [derivatives(s, free) for free in (False, True)])()
        np.testing.assert_allclose(found[1], found[0], rtol=1e-7)
        np.testing.assert_allclose(found[0][0], found[0][1], rtol=1e-7)


@pytest.mark.all_robots
def test_gradients_on_a_mechanism():
    """v⁺ by state, friction and masses: forward and reverse against differences, modes held."""
    sys = rbd.zoo.quadruped(dtype="float64")
    rows = feet(sys, ["FL_foot", "FR_foot", "RL_foot", "RR_foot"], 1)
    d, v = (x[0] for x in states(sys, 1, seed=3))
    rng = np.random.default_rng(0)
    push, dmass = rng.normal(size=(2, sys.nv)), rng.normal(size=sys.mass.shape) * 0.1
    weigh = jnp.asarray(rng.normal(size=12))
    solver = dual.ADMM(iterations=600, tolerance=1e-12, penalty=dual.Linear(every=20))

    def at(s):
        moved = sys.replace(mass=sys.mass * (1 + s * dmass))
        q = rbd.integrate(moved, moved.q0, d + s * push[0])
        D = con.delassus_operator(moved, rows, q)
        v_f = con.constraint_velocity(moved, rows, q, v + s * push[1])
        return dual.solve(dual.problem(D, v_f, 0.5 + 0.1 * s + jnp.zeros(4), contacts=(3,) * 4), solver)

    h = 1e-5
    found = jax.jit(jax.vmap(at))(jnp.array([-h, 0.0, h]))
    assert found.converged.all() and (found.stats.modes[0] == found.stats.modes[2]).all()
    differences = np.asarray(found.value.v[2] - found.value.v[0]) / (2 * h)
    loss = lambda s: weigh @ at(s).value.v  # noqa: E731
    forward, reverse = jax.jit(lambda s: (jax.jvp(loss, (s,), (1.0,))[1], jax.grad(loss)(s)))(0.0)
    size = np.abs(weigh * differences).sum()
    np.testing.assert_allclose(forward, weigh @ differences, atol=1e-6 * size)
    np.testing.assert_allclose(reverse, forward, rtol=1e-8)


def test_other_solvers_ask_for_the_matrix():
    held = con.DelassusMatrix(jnp.eye(3), jnp.eye(3))
    problem = dual.problem(held, np.zeros(3), 0.5, contacts=(3,))
    for solver in (dual.NBGS(), dual.PGS(), dual.ADMM(polish=1)):
        with pytest.raises(rbd.ArgumentError, match="needs the matrix"):
            dual.solve(problem, solver)
    with pytest.raises(rbd.ArgumentError, match="the blocks have 6 rows"):
        dual.problem(held, np.zeros(6), 0.5, contacts=(3, 3))


def test_operators_of_matrices_and_spinning_friction():
    """Any object with the operator's methods will do; rows without friction of their own do not move."""
    rng = np.random.default_rng(1)
    contacts = (3, 4, 6)
    n = sum(contacts)
    D = jnp.asarray(cases.random_D(rng, n))
    friction = rng.uniform(0.1, 0.8, size=(3, 3))
    friction[1, 1] = 0  # no spinning friction after all
    v_f = rng.normal(size=n)
    solver = dual.ADMM(iterations=2000, tolerance=1e-9, penalty=dual.Balanced(every=20))
    held = con.DelassusMatrix(D, jnp.linalg.cholesky(D))
    one = dual.solve(dual.problem(held, v_f, friction, contacts=contacts), solver)
    other = dual.solve(dual.problem(D, v_f, friction, contacts=contacts), solver)
    assert one.converged and one.value.lam[5] == 0
    np.testing.assert_allclose(one.value.v, other.value.v, atol=1e-8)
    np.testing.assert_allclose(D @ one.value.lam + v_f, one.value.v, atol=1e-12)
