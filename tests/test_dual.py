"""Dual problems and their solvers ([LOOPS]): cones by their definition, single contacts by brute force, whole
problems against Pinocchio, bounded least squares and each other; gradients against differences.
"""

import dual_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

import jaxrbd as rbd
from jaxrbd import dual
from jaxrbd.dual import cones, small
from jaxrbd.dual.blocks import Blocks
from jaxrbd.dual.local import ConicSection, Contact, ExactCoulomb

TIGHT = 1e-9
NCP = {
    "PGS": dual.PGS(iterations=2000, tolerance=TIGHT),
    "PGS with Γ": dual.PGS(iterations=2000, tolerance=TIGHT, law="ccp", de_saxce=True),
    "NBGS": dual.NBGS(iterations=200, tolerance=TIGHT),
    "ADMM fixed": dual.ADMM(iterations=2000, tolerance=TIGHT, penalty=dual.Fixed()),
    "ADMM linear": dual.ADMM(iterations=2000, tolerance=TIGHT, penalty=dual.Linear()),
    "ADMM spectral": dual.ADMM(iterations=2000, tolerance=TIGHT),
    "ADMM balanced": dual.ADMM(iterations=2000, tolerance=TIGHT, penalty=dual.Balanced()),
    "ADMM accelerated": dual.ADMM(
        iterations=2000, tolerance=TIGHT, penalty=dual.Fixed(), accelerate=True, omega=1.0
    ),
}
CCP = {
    "PGS": dual.PGS(iterations=2000, tolerance=TIGHT, law="ccp"),
    "ADMM": dual.ADMM(iterations=2000, tolerance=TIGHT, law="ccp"),
}
IN_FEW = ("PGS", "NBGS", "ADMM balanced")  # of make test


def marked(names):
    return [n if n in IN_FEW else pytest.param(n, marks=pytest.mark.all_robots) for n in names]


def solved(problems, solver):
    return jax.jit(jax.vmap(lambda p: dual.solve(p, solver)))(problems)


def one(problems, i):
    return tuple(np.asarray(x[i]) for x in (problems.D, problems.v_f, problems.friction))


@pytest.fixture(scope="module")
def quadrupeds():
    return cases.quadruped(64)


# --- cones ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [3, 4, 6])
def test_projections_split_every_vector(dim):
    """Moreau: x = P_K(x) - P_K*(-x), orthogonal, each in its cone; μ = 0 and points on axes included."""
    rng = np.random.default_rng(dim)
    x = rng.normal(size=(500, dim, 1))
    x[:20, :-1] = 0
    x[20:40, -1] = 0
    mu = rng.uniform(0, 1.5, size=(500, 1))
    mu[::7] = 0
    into, dual_part = (np.asarray(f(x, mu))[..., 0] for f in (cones.project_cone, cones.project_dual_cone))
    minus = np.asarray(cones.project_dual_cone(-x, mu))[..., 0]
    np.testing.assert_allclose(into - minus, x[..., 0], atol=1e-14)
    np.testing.assert_allclose(np.sum(into * minus, 1), 0, atol=1e-14)
    size = lambda y: np.linalg.norm(y[:, :-1], axis=1)  # noqa: E731
    assert (size(into) <= mu[:, 0] * into[:, -1] + 1e-14).all()
    assert (mu[:, 0] * size(dual_part) <= dual_part[:, -1] + 1e-14).all()


def test_small_matrices():
    rng = np.random.default_rng(0)
    for k in (1, 2, 3, 5):
        A = rng.normal(size=(7, k, k))
        A = A @ np.swapaxes(A, 1, 2) + 0.1 * np.eye(k)
        last = jnp.asarray(np.moveaxis(A, 0, -1))
        np.testing.assert_allclose(np.moveaxis(small.inverse(last), -1, 0), np.linalg.inv(A), atol=1e-10)
        s, U = (np.moveaxis(np.asarray(x), -1, 0) for x in small.eigen(last))
        np.testing.assert_allclose(U * s[:, None] @ np.swapaxes(U, 1, 2), A, atol=1e-12)


# --- one contact ------------------------------------------------------------------------------------------


def answer(local, D, b, mu):
    """λ of one contact for each of many: (n, 3, 3), (n, 3), (n,)."""
    D, b = jnp.asarray(np.moveaxis(D, 0, -1)), jnp.asarray(b.T)
    ready = local.prepare(D, jnp.asarray(mu))
    return np.asarray(local.answer(Contact(D, jnp.asarray(mu), ready), 0 * b, b, jnp.zeros(len(mu)))).T


def single_contacts(count):
    """Also Painlevé-like ones, where D_NN < μ |D_NT|."""
    rng = np.random.default_rng(1)
    A = rng.normal(size=(count, 3, 4))
    A[::3, :, 2] += 3 * rng.normal(size=(len(A[::3]), 1))  # strong coupling
    D = A @ np.swapaxes(A, 1, 2)
    b = rng.normal(size=(count, 3))
    return D, b, rng.uniform(0.05, 1.5, size=count)


def test_single_contacts_by_brute_force():
    D, b, mu = single_contacts(150)
    coupled = D[:, 2, 2] < mu * np.linalg.norm(D[:, 2, :2], axis=1)
    assert coupled.sum() > 10
    for lam, *one in zip(answer(ExactCoulomb(20), D, b, mu), D, b, mu):
        known = cases.single_contact(*one)
        assert min(np.abs(lam - x).max() / (1 + np.abs(x).max()) for x in known) < 1e-8


def test_conic_sections_have_the_least_objective():
    """No other point of cone and plane has a smaller objective, by a fine grid: ellipses alone."""
    D, b, mu = single_contacts(120)
    closed = D[:, 2, 2] > 1.1 * mu * np.linalg.norm(D[:, 2, :2], axis=1)
    D, b, mu = D[closed], b[closed], mu[closed]
    b[:, 2] = -np.abs(b[:, 2])
    found = answer(ConicSection("all", samples=32), D, b, mu)
    grid = np.linspace(0, 2 * np.pi, 4001)
    t = np.stack([np.cos(grid), np.sin(grid)])
    for lam, D_k, b_k, mu_k in zip(found, D, b, mu):
        stick = np.linalg.solve(D_k, -b_k)
        if np.linalg.norm(stick[:2]) <= mu_k * stick[2]:
            np.testing.assert_allclose(lam, stick, rtol=1e-6, atol=1e-9)
            continue
        along = D_k[2, 2] + mu_k * D_k[2, :2] @ t
        on = np.concatenate([mu_k * t, np.ones((1, grid.size))]) * (-b_k[2] / along)
        value = lambda x, D_k=D_k, b_k=b_k: 0.5 * np.sum(x * (D_k @ x), 0) + b_k @ x  # noqa: E731
        assert value(lam[:, None])[0] <= value(on).min() + 1e-6 * (1 + abs(value(on).min()))


# --- whole problems ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", marked(NCP))
def test_coulomb_problems_match_pinocchio(name, quadrupeds):
    found = solved(quadrupeds, NCP[name])
    assert found.converged.all() and found.stats.residuals.ncp.max() <= TIGHT
    for i in range(0, 64, 4):
        D, v_f, friction = one(quadrupeds, i)
        lam = np.asarray(found.value.lam[i])
        assert cases.violations(D, v_f, friction, lam, (3,) * 4) < 1e-8
        np.testing.assert_allclose(found.value.v[i], cases.pinocchio(D, v_f, friction[:, 0])[0], atol=1e-8)


@pytest.mark.parametrize("name", marked(CCP))
def test_relaxed_problems_match_pinocchio(name, quadrupeds):
    found = solved(quadrupeds, CCP[name])
    assert found.converged.all()
    assert found.stats.residuals.ncp.max() > 0.1  # sliding contacts lift off, and the other residual says so
    for i in range(0, 64, 4):
        D, v_f, friction = one(quadrupeds, i)
        lam = np.asarray(found.value.lam[i])
        assert cases.violations(D, v_f, friction, lam, (3,) * 4, "ccp") < 1e-8
        np.testing.assert_allclose(
            found.value.v[i], cases.pinocchio(D, v_f, friction[:, 0], "ccp")[0], atol=1e-8
        )


@pytest.mark.parametrize("solver", [dual.RAISIM, dual.NBGS], ids=["RAISIM", "NBGS by dissipation"])
def test_dissipation_is_not_the_ncp(solver, quadrupeds):
    """They settle, but where normal and tangents are coupled not at Coulomb's law, and they say so."""
    options = {"local_law": "dissipation"} if solver is dual.NBGS else {}
    found = solved(quadrupeds, solver(iterations=60, **options))
    good = np.asarray(found.converged)
    assert 0.2 < good.mean() < 0.9
    for i in np.flatnonzero(good)[:8]:
        D, v_f, friction = one(quadrupeds, i)
        assert cases.violations(D, v_f, friction, np.asarray(found.value.lam[i]), (3,) * 4) < 1e-5
    # no answer says converged while its residual is above the tolerance
    assert (np.asarray(found.stats.residuals.ncp)[good] <= 1e-6).all()


@pytest.mark.parametrize("name", ["NBGS", "ADMM balanced"])
def test_joints_limits_boxes_and_contacts(name):
    """Without friction the problem is bounded least squares, for which SciPy has a solver."""
    rng = np.random.default_rng(2)
    blocks = {"joints": (2, 1), "limits": 2, "boxes": 2, "contacts": (1, 1)}
    D, v_f, bound = cases.random_D(rng, 9), rng.normal(size=(20, 9)), rng.uniform(0.1, 1, size=(20, 2))
    problems = jax.vmap(lambda v, b: dual.problem(D, v, bound=b, **blocks))(v_f, bound)
    found = solved(problems, NCP[name])
    assert found.converged.all()
    root = np.linalg.cholesky(D).T
    for i in range(20):
        low = np.r_[[-np.inf] * 3, 0, 0, -bound[i], 0, 0]
        high = np.r_[[np.inf] * 5, bound[i], np.inf, np.inf]
        other = lsq_linear(root, np.linalg.solve(root.T, -v_f[i]), (low, high), tol=1e-14).x
        np.testing.assert_allclose(found.value.lam[i], other, atol=1e-6)


@pytest.mark.parametrize("name", ["NBGS", "ADMM balanced"])
def test_spinning_and_rolling_friction(name):
    rng = np.random.default_rng(3)
    contacts = (3, 4, 6, 1)
    n = sum(contacts)
    D, v_f = cases.random_D(rng, n), rng.normal(size=(40, n))
    friction = rng.uniform(0.05, 0.8, size=(40, 4, 3))
    friction[::5, 1, 1] = 0  # no spinning friction after all
    problems = jax.vmap(lambda v, mu: dual.problem(D, v, mu, contacts=contacts))(v_f, friction)
    found = solved(problems, NCP[name])
    assert found.converged.mean() > 0.95
    for i in np.flatnonzero(found.converged):
        assert cases.violations(D, v_f[i], friction[i], np.asarray(found.value.lam[i]), contacts) < 1e-6


def test_stack_of_boxes_heavy_on_top():
    """Mass ratio 1e6: the lowest contact carries all, and who does not get there says so."""
    D, v_f, weight = cases.stack()
    problem = dual.problem(D, v_f, 0.5, contacts=(3,) * 10)
    for solver, arrives in [
        (dual.ADMM(iterations=300, penalty=dual.Balanced()), True),
        (dual.ADMM(iterations=300, penalty=dual.Linear(every=1)), True),
        (dual.ADMM(iterations=300, penalty=dual.Spectral(every=1)), True),
        (dual.ADMM(iterations=300, penalty=dual.Fixed()), False),
        (dual.NBGS(iterations=300), False),
    ]:
        found = dual.solve(problem, solver)
        assert (abs(found.value.lam[2] / weight - 1) < 1e-3) == arrives, solver
        assert bool(found.converged) == (found.stats.residuals.ncp <= 1e-6)
        assert arrives or not found.converged


def test_counts_of_iterations(quadrupeds):
    """The exact local law needs few sweeps; a warm start from the solution needs one."""
    solver = dual.NBGS(iterations=50, tolerance=1e-6)
    cold = solved(quadrupeds, solver)
    assert np.median(cold.stats.iterations) <= 4 and cold.stats.iterations.max() <= 8
    warm = jax.jit(jax.vmap(lambda p, x: dual.solve(p, solver, x)))(quadrupeds, cold.value.lam)
    assert warm.stats.iterations.max() == 1
    admm = dual.ADMM(iterations=500, tolerance=1e-6)
    cold = solved(quadrupeds, admm)
    warm = jax.jit(jax.vmap(lambda p, x: dual.solve(p, admm, x)))(quadrupeds, cold.value.lam)
    assert warm.stats.iterations.sum() < 0.7 * cold.stats.iterations.sum()


def test_float32(quadrupeds):
    problems = jax.tree.map(lambda x: x.astype(jnp.float32), quadrupeds)
    found = solved(problems, dual.NBGS())
    assert found.value.lam.dtype == jnp.float32 and found.converged.all()
    assert found.stats.residuals.ncp.max() < 2e-6


# --- gradients ----------------------------------------------------------------------------------------------


def smooth_problems():
    """Contacts that stick, slip and are open, a limit, a box and a joint, none near a change of mode."""
    rng = np.random.default_rng(5)
    contacts, n = (3, 3, 3, 4), 2 + 1 + 1 + 9 + 4
    D = cases.random_D(rng, n) + 0.5 * np.eye(n)
    v_f = rng.normal(size=(12, n))
    v_f[:, [6, 9, 16]] -= 1.0
    friction = rng.uniform(0.2, 0.9, size=(12, 4, 3))
    return D, v_f, friction, rng.uniform(0.05, 0.5, size=(12, 1)), contacts


@pytest.mark.parametrize(
    "solver",
    [
        dual.NBGS(iterations=60),
        pytest.param(dual.NBGS(iterations=60, gradients="unrolled"), marks=pytest.mark.all_robots),
        dual.ADMM(iterations=400, penalty=dual.Fixed(), gradients="unrolled"),
        pytest.param(dual.ADMM(iterations=400, law="ccp"), marks=pytest.mark.all_robots),
        pytest.param(dual.PGS(iterations=500, gradients="unrolled"), marks=pytest.mark.all_robots),
    ],
    ids=lambda s: f"{type(s).__name__}-{s.model}-{s.gradients}",
)
def test_gradients_of_velocities(solver):
    """v⁺ by D, v_f, friction and bound: forward and reverse against central differences, modes held."""
    D, v_f, friction, bound, contacts = smooth_problems()
    rng = np.random.default_rng(6)
    dD = rng.normal(size=D.shape)
    dD = dD + dD.T
    dv, dmu, db = (rng.normal(size=x.shape) * s for x, s in ((v_f, 1.0), (friction, 0.3), (bound, 0.1)))
    weigh = jnp.asarray(rng.normal(size=v_f.shape[1]))

    def at(s, v, mu, b, dv, dmu, db):
        problem = dual.problem(
            D + s * dD,
            v + s * dv,
            mu + s * dmu,
            b + s * db,
            joints=(2,),
            limits=1,
            boxes=1,
            contacts=contacts,
        )
        return dual.solve(problem, solver)

    args = (v_f, friction, bound, dv, dmu, db)
    forward = jax.jit(jax.vmap(lambda *a: jax.jvp(lambda s: at(s, *a).value.v, (0.0,), (1.0,))[1]))(*args)
    reverse = jax.jit(jax.vmap(lambda *a: jax.grad(lambda s: weigh @ at(s, *a).value.v)(0.0)))(*args)
    value = jax.jit(lambda s: jax.vmap(lambda *a: at(s, *a))(*args))
    h = 1e-5
    up, down, here = value(h), value(-h), value(0.0)
    good = np.asarray(here.stats.residuals.ncp if solver.model == "ncp" else here.stats.residuals.ccp) < 1e-10
    assert good.sum() >= 8
    differences = np.asarray(up.value.v - down.value.v) / (2 * h)
    np.testing.assert_allclose(forward[good], differences[good], atol=1e-6 * (1 + np.abs(differences).max()))
    np.testing.assert_allclose(reverse[good], (forward @ weigh)[good], rtol=1e-8, atol=1e-8)


def test_gradients_with_redundant_rows():
    """Two points per foot: λ is not unique, v⁺ and its derivative are."""
    problems = cases.quadruped(16, points=2, seed=4)
    solver = dual.ADMM(iterations=4000, tolerance=1e-11)
    rng = np.random.default_rng(0)
    direction = jnp.asarray(rng.normal(size=problems.v_f.shape))
    # directions that the mechanism can make: v_f = J u
    direction = jnp.einsum("bij,bj->bi", problems.D, direction)
    at = lambda s, p, d: dual.solve(p.__class__(p.D, p.v_f + s * d, p.friction, p.bound, p.blocks), solver)  # noqa: E731
    forward = jax.jit(jax.vmap(lambda p, d: jax.jvp(lambda s: at(s, p, d).value.v, (0.0,), (1.0,))[1]))
    value = jax.jit(lambda s: jax.vmap(lambda p, d: at(s, p, d))(problems, direction))
    h = 1e-6
    up, down = value(h), value(-h)
    good = np.asarray(up.converged & down.converged)
    assert good.sum() >= 8
    differences = np.asarray(up.value.v - down.value.v) / (2 * h)
    found = np.asarray(forward(problems, direction))
    error = np.abs(found - differences).max(1) / (1 + np.abs(differences).max())
    assert np.sort(error[good])[: int(0.8 * good.sum())].max() < 1e-4  # the rest change mode within h


BOUNDARIES = {  # v_f and friction of one contact
    "just touching": ((0.0, 0.0, 0.0), 0.5),
    "zero slip": ((0.0, 0.0, -1.0), 0.5),
    "no friction": ((0.3, 0.0, -1.0), 0.0),
    "no friction, no slip": ((0.0, 0.0, -1.0), 0.0),
    "edge of the cone": ((0.5, 0.0, -1.0), 0.5),
    "open, sliding": ((1.0, 0.0, 0.0), 0.5),
}


@pytest.mark.parametrize(
    "solver", [dual.NBGS(), dual.ADMM(iterations=60), dual.PGS()], ids=lambda s: type(s).__name__
)
def test_gradients_at_changes_of_mode_are_finite(solver):
    v_f = jnp.asarray([v for v, _ in BOUNDARIES.values()])
    mu = jnp.asarray([m for _, m in BOUNDARIES.values()])
    for gradients in ("implicit", "unrolled", "smooth"):
        chosen = type(solver)(iterations=solver.iterations, gradients=gradients)

        def loss(D, v, mu, chosen=chosen):
            found = dual.solve(dual.problem(D, v, mu[None], contacts=(3,)), chosen).value
            return jnp.sum(found.v * jnp.arange(1.0, 4.0)) + jnp.sum(found.lam)

        grads = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1, 2)), (None, 0, 0)))(jnp.eye(3), v_f, mu)
        for name, *each in zip(BOUNDARIES, *grads):
            assert all(np.isfinite(x).all() for x in each), (gradients, name)


def test_smoothed_gradients_feel_contacts_to_come():
    """A contact that stays open by 1 mm/s has no exact gradient; the smoothed one pushes."""
    loss = lambda v, solver: dual.solve(dual.problem(jnp.eye(1), v, contacts=(1,)), solver).value.lam[0]  # noqa: E731
    v = jnp.array([1e-3])
    assert jax.grad(loss)(v, dual.NBGS())[0] == 0
    assert jax.grad(loss)(v, dual.NBGS(gradients="smooth", smoothing=1e-2))[0] < -0.1


# --- bad input ----------------------------------------------------------------------------------------------


def test_bad_input_is_refused():
    eye = np.eye(3)
    good = {"contacts": (3,)}
    wrong = [
        (lambda: dual.problem(eye, np.zeros(3), -0.1, **good), "friction.*at least 0"),
        (lambda: dual.problem(eye, np.zeros(3), **good), "need friction="),
        (lambda: dual.problem(eye, np.zeros(3), 0.5, contacts=(2,)), "dimension 2"),
        (lambda: dual.problem(eye, np.zeros(3), 0.5, contacts=(3, 3)), "the blocks have 6 rows"),
        (lambda: dual.problem(eye, np.zeros(2), 0.5, **good), "v_f has shape"),
        (lambda: dual.problem(eye + np.triu(np.ones((3, 3)), 1), np.zeros(3), 0.5, **good), "not symmetric"),
        (lambda: dual.problem(eye * np.nan, np.zeros(3), 0.5, **good), "expected finite"),
        (lambda: dual.problem(np.eye(4), np.zeros(4), 0.5, contacts=(4,)), "spinning"),
        (lambda: dual.problem(np.eye(1), np.zeros(1), boxes=1), "bound="),
        (lambda: dual.problem(np.eye(1), np.zeros(1), boxes=1, bound=-1.0), "bound.*at least 0"),
        (lambda: dual.solve(np.eye(3)), "made by dual.problem"),
        (lambda: dual.solve(dual.problem(eye, np.zeros(3), 0.5, **good), dual.NBGS), "Write NBGS"),
        (lambda: dual.solve(dual.problem(eye, np.zeros(3), 0.5, **good), "NBGS"), "expected dual.NBGS"),
        (lambda: dual.NBGS(iterations=0), "positive integer"),
        (lambda: dual.NBGS(tolerance=1e-3, gradients="unrolled"), "fixed number"),
        (lambda: dual.NBGS(local_law="other"), "local_law"),
        (lambda: dual.PGS(omega=3.0), "omega"),
        (lambda: dual.ADMM(penalty=1.0), "penalty"),
        (lambda: dual.RAISIM(early_stopping=1e-6), "needs a tolerance"),
        (
            lambda: dual.solve(
                dual.problem(np.eye(4), np.zeros(4), np.ones((1, 3)), contacts=(4,)), dual.RAISIM()
            ),
            "circle of directions",
        ),
    ]
    for call, words in wrong:
        with pytest.raises(rbd.ArgumentError, match=words):
            call()


def test_numbers_that_only_show_under_jit_are_flagged():
    """NaN in D, a row that cannot move but should: finished, flagged, no exception."""
    solve = jax.jit(lambda D, v: dual.solve(dual.problem(D, v, 0.5, contacts=(3,)), dual.ADMM()))
    assert solve(jnp.eye(3) * jnp.nan, jnp.zeros(3)).result == rbd.Result.not_converged
    found = jax.jit(lambda D, v: dual.solve(dual.problem(D, v, 0.5, contacts=(3,))))(
        jnp.zeros((3, 3)), -jnp.ones(3)
    )
    assert found.result == rbd.Result.not_converged and np.isfinite(found.value.lam).all()


def test_blocks_of_any_kind_may_be_missing():
    found = dual.solve(dual.problem(jnp.eye(2), -jnp.ones(2), joints=(2,)))
    np.testing.assert_allclose(found.value.v, 0, atol=1e-12)
    assert Blocks(contacts=(3, 3, 1)).runs[0].number == 2
    assert dual.solve(dual.problem(jnp.zeros((0, 0)), jnp.zeros(0))).converged
