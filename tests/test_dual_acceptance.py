"""Dual solvers on many problems: a thousand quadrupeds, redundant rows, all gradients and verdicts."""

import dual_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import dual
from jaxrbd.dual.residuals import Mode

ALL = {
    "PGS-CCP": dual.PGS(law="ccp"),
    "PGS-NCP": dual.PGS(),
    "NBGS": dual.NBGS(local_law="dissipation"),
    "NBGS exact": dual.NBGS(),
    "RAISIM": dual.RAISIM(),
    "RAISIM-DS": dual.RAISIM(de_saxce=True),
    "RAISIM-DS-ES": dual.RAISIM(de_saxce=True, early_stopping=1e-9, tolerance=1e-6),
    "ADMM-CCP": dual.ADMM(law="ccp"),
    "ADMM-NCP fixed": dual.ADMM(penalty=dual.Fixed()),
    "ADMM-NCP linear": dual.ADMM(penalty=dual.Linear()),
    "ADMM-NCP spectral": dual.ADMM(),
    "ADMM-NCP balanced": dual.ADMM(penalty=dual.Balanced(every=20)),
}


def solved(problems, solver):
    return jax.jit(jax.vmap(lambda p: dual.solve(p, solver)))(problems)


def single(problems):
    return jax.tree.map(lambda x: x.astype(jnp.float32), problems)


def residuals(found):
    return np.nan_to_num(np.asarray(found.stats.residuals.ncp), nan=np.inf)


@pytest.mark.parametrize("count", [128, pytest.param(1024, marks=pytest.mark.all_robots)])
def test_quadrupeds_of_12_rows(count):
    """States and seed of `cases.quadruped`: 8 sweeps of NBGS, 100 iterations of ADMM."""
    problems = cases.quadruped(count)
    assert residuals(solved(problems, dual.NBGS(iterations=8))).max() <= 1e-6
    found = solved(single(problems), dual.NBGS(iterations=8))
    assert found.value.lam.dtype == jnp.float32 and residuals(found).max() <= 2e-6
    assert residuals(solved(problems, dual.ADMM(iterations=100))).max() <= 1e-5


@pytest.mark.parametrize("count", [128, pytest.param(1024, marks=pytest.mark.all_robots)])
def test_quadrupeds_of_24_rows(count):
    """Two points 2 cm apart per foot: D is singular."""
    problems = cases.quadruped(count, points=2)
    found = residuals(solved(problems, dual.ADMM(iterations=300)))
    assert (found <= 1e-4).mean() >= 0.95, np.sort(found)[-10:]


def test_pgs_of_pinocchio():
    problems = cases.quadruped(8, seed=2)
    found = solved(problems, dual.NBGS(iterations=60))
    for i in range(8):
        D, v_f, friction = (np.asarray(x[i]) for x in (problems.D, problems.v_f, problems.friction))
        v = cases.pinocchio(D, v_f, friction[:, 0], solver="PGS")[0]
        np.testing.assert_allclose(found.value.v[i], v, atol=1e-6)


@pytest.mark.parametrize("name", ["NBGS exact", "ADMM-NCP spectral", *(
    pytest.param(n, marks=pytest.mark.all_robots) for n in ALL if n not in ("NBGS exact", "ADMM-NCP spectral")
)])  # fmt: skip
def test_who_fails_says_so(name):
    """Ten boxes of mass ratio 1e6, quadrupeds of 24 rows, a row that cannot move: never wrongly converged."""
    D, v_f, weight = cases.stack()
    tolerance = ALL[name].tolerance or 1e-6
    solver = ALL[name]
    found = dual.solve(dual.problem(D, v_f, 0.5, contacts=(3,) * 10), solver)
    r = found.stats.residuals
    mine = r.ncp if solver.model == "ncp" else r.ccp
    assert bool(found.converged) == bool(mine <= tolerance)
    if abs(found.value.lam[2] / weight - 1) > 1e-3:
        assert not found.converged
    many = solved(cases.quadruped(32, points=2, seed=9), solver)
    r = many.stats.residuals
    mine = np.asarray(r.ncp if solver.model == "ncp" else r.ccp)
    np.testing.assert_array_equal(many.converged, mine <= tolerance)
    stuck = jax.jit(lambda D, v: dual.solve(dual.problem(D, v, 0.5, contacts=(3,)), solver))
    for bad in (jnp.zeros((3, 3)), jnp.full((3, 3), jnp.nan), jnp.eye(3) * jnp.inf):
        assert stuck(bad, -jnp.ones(3)).result == rbd.Result.not_converged


# --- modes --------------------------------------------------------------------------------------------------


def test_modes():
    """[LOOPS] Eq. 46: open, stick, slip of contacts; limits open or closed; boxes stick or slip."""
    v_f = [0.4, -0.4, 0.01, 0.9, *(0, 0, 1), *(0.01, 0, -1), *(2, 0, -1), 0.3, -0.3]
    problem = dual.problem(
        np.eye(15), v_f, 0.5, bound=[0.1, 0.1], limits=2, boxes=2, contacts=(3, 3, 3, 1, 1)
    )
    wanted = [Mode.open, Mode.closed, Mode.stick, Mode.slip]
    wanted += [Mode.open, Mode.stick, Mode.slip, Mode.open, Mode.closed]
    for solver in (dual.NBGS(), dual.ADMM(), dual.PGS(), dual.PGS(law="ccp"), dual.RAISIM()):
        assert dual.solve(problem, solver).stats.modes.tolist() == wanted


def test_modes_of_quadrupeds_are_those_of_the_definition():
    problems = cases.quadruped(64)
    found = jax.jit(jax.vmap(lambda p: dual.solve(p, dual.NBGS(iterations=60))))(problems)
    lam, v = (np.asarray(x).reshape(64, 4, 3) for x in (found.value.lam, found.value.v))
    mu = np.asarray(problems.friction)[..., 0]
    forceless = np.linalg.norm(lam, axis=-1) < 1e-9
    still = np.linalg.norm(v[..., :2], axis=-1) < 1e-9
    edge = np.abs(np.linalg.norm(lam[..., :2], axis=-1) - mu * lam[..., 2]) < 1e-9
    wanted = np.where(forceless & (v[..., 2] > 1e-9), Mode.open, np.where(still, Mode.stick, Mode.slip))
    np.testing.assert_array_equal(found.stats.modes, wanted)
    assert edge[wanted == Mode.slip].all() and len(np.unique(wanted)) == 3


# --- settings ---------------------------------------------------------------------------------------------


def test_warm_starts_are_believed_by_a_share():
    problem = dual.problem(np.eye(1), [-1.0], limits=1)
    for share in (1.0, 0.9, 0.0):
        solver = dual.PGS(iterations=1, omega=0.5, omega_min=0.5, warm_scale=share)
        found = dual.solve(problem, solver, jnp.array([2.0]))
        np.testing.assert_allclose(found.value.lam[0], 0.5 * (2 * share) + 0.5, atol=1e-15)
    with pytest.raises(rbd.ArgumentError, match="warm_scale"):
        dual.PGS(warm_scale=1.5)


def test_acceleration_is_restarted():
    """Nesterov's extrapolation with restart needs fewer iterations than plain ADMM, and none diverges."""
    problems = cases.quadruped(64, seed=3)
    options = {"iterations": 1000, "tolerance": 1e-6, "penalty": dual.Fixed(every=1, rho=4.0), "omega": 1.0}
    plain, fast = (
        solved(problems, dual.ADMM(**options, accelerate=on, polish=0)).stats.iterations
        for on in (False, True)
    )
    assert fast.max() < 1000 and np.median(fast) < 0.8 * np.median(plain)


def test_polish_ends_what_admm_began():
    """After 20 iterations half are not there yet; Newton's method brings them to rounding, and harms none."""
    problems = cases.quadruped(64, seed=3)
    rough, fine = (
        residuals(solved(problems, dual.ADMM(iterations=20, penalty=dual.Fixed(), polish=n))) for n in (0, 4)
    )
    assert (fine <= rough * (1 + 1e-12)).all()
    assert (rough < 1e-9).mean() < 0.6 and (fine < 1e-9).mean() > 0.9


# --- gradients --------------------------------------------------------------------------------------------

HELD = [  # v_f of a joint, limits closed and open, boxes that stick and slip, contacts in all three modes
    0.3, -0.4, 0.8, 0.05, 0.9, *(0.2, 0.1, 1.0), *(0.05, -0.1, -1.0), *(1.5, -0.7, -0.8)
]  # fmt: skip
LONG = {
    "PGS-CCP": {"iterations": 600}, "PGS-NCP": {"iterations": 600}, "NBGS": {"iterations": 100},
    "NBGS exact": {"iterations": 60}, "RAISIM": {"iterations": 100}, "RAISIM-DS": {"iterations": 200},
    "RAISIM-DS-ES": {"iterations": 400, "early_stopping": 1e-16, "tolerance": 1e-10},
}  # fmt: skip


def with_settings(name, gradients):
    more = LONG.get(name, {"iterations": 600})
    if gradients == "unrolled":
        more = {k: v for k, v in more.items() if k == "iterations"}
        more |= {"tolerance": None}
        if name == "RAISIM-DS-ES":
            return None  # stops by itself: unrolled gradients refuse it
    if gradients != "unrolled" and "tolerance" not in more:
        more = more | {"tolerance": 1e-11}
    return type(ALL[name])(**{**vars(ALL[name]), **more, "gradients": gradients})


@pytest.mark.parametrize("gradients", ["implicit", "unrolled"])
@pytest.mark.parametrize("name", [
    n if n == "NBGS exact" else pytest.param(n, marks=pytest.mark.all_robots) for n in ALL
])  # fmt: skip
def test_gradients_of_every_solver(name, gradients):
    """v⁺ by D, v_f, friction, bound with modes held, all kinds of blocks and modes: forward and reverse."""
    solver = with_settings(name, gradients)
    if solver is None:
        with pytest.raises(rbd.ArgumentError, match="fixed number"):
            type(ALL[name])(**{**vars(ALL[name]), "gradients": gradients})
        return
    n = len(HELD)
    rng = np.random.default_rng(7)
    # coupling that keeps normals and tangents of one contact apart: there Preclik's answer is Coulomb's
    D = np.eye(n) + 0.05 * cases.random_D(rng, n)
    for k in (5, 8, 11):
        D[k : k + 2, k + 2] = D[k + 2, k : k + 2] = 0
    dD = rng.normal(size=(n, n)) * 0.1
    dD = dD + dD.T
    for k in (5, 8, 11):
        dD[k : k + 2, k + 2] = dD[k + 2, k : k + 2] = 0
    dv, weigh = rng.normal(size=(2, n))

    def at(s):
        problem = dual.problem(
            D + s * dD, jnp.asarray(HELD) + s * dv, 0.5 + s * jnp.array([0.3, -0.2, 0.4]),
            jnp.array([0.3, 0.2]) + s * jnp.array([0.1, 0.1]), joints=(1,), limits=2, boxes=2,
            contacts=(3, 3, 3),
        )  # fmt: skip
        return dual.solve(problem, solver)

    h = 1e-5
    loss = lambda s: weigh @ at(s).value.v  # noqa: E731

    @jax.jit
    def everything():
        moved = jax.vmap(at)(jnp.array([-h, 0.0, h]))
        return moved, jax.jvp(lambda s: at(s).value.v, (0.0,), (1.0,))[1], jax.grad(loss)(0.0)

    found, forward, reverse = everything()
    r = found.stats.residuals
    assert (r.ncp if solver.model == "ncp" else r.ccp).max() < 1e-9
    wanted = [Mode.closed, Mode.open, Mode.stick, Mode.slip, Mode.open, Mode.stick, Mode.slip]
    assert (np.asarray(found.stats.modes) == wanted).all()
    differences = np.asarray(found.value.v[2] - found.value.v[0]) / (2 * h)
    np.testing.assert_allclose(forward, differences, atol=1e-6 * (1 + np.abs(differences).max()))
    np.testing.assert_allclose(reverse, forward @ weigh, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("solver", [dual.NBGS, pytest.param(dual.ADMM, marks=pytest.mark.all_robots)])
def test_memory_of_implicit_gradients_does_not_grow(solver):
    """Temporary memory of the compiled gradient, at 50 and 500 iterations; that of unrolled ones grows."""
    problem = dual.problem(cases.random_D(np.random.default_rng(0), 6), -np.ones(6), 0.5, contacts=(3, 3))
    used = {}
    for gradients in ("implicit", "unrolled"):
        for count in (50, 500):
            chosen = solver(iterations=count, gradients=gradients)
            loss = lambda v, s=chosen: jnp.sum(dual.solve(problem.replace(v_f=v), s).value.v ** 2)  # noqa: E731
            compiled = jax.jit(jax.vmap(jax.grad(loss))).lower(jnp.ones((16, 6))).compile()
            used[gradients, count] = compiled.memory_analysis().temp_size_in_bytes
    assert used["implicit", 500] <= 1.01 * used["implicit", 50]
    assert used["unrolled", 500] > 3 * used["unrolled", 50]


# --- bad input --------------------------------------------------------------------------------------------


def test_bad_numbers_and_shapes():
    eye, still = np.eye(3), np.zeros(3)
    wrong = [
        (lambda: dual.problem(eye, still, [0.5, 0.5], contacts=(3,)), "friction has shape"),
        (lambda: dual.problem(eye, still, np.nan, contacts=(3,)), "friction.*finite"),
        (lambda: dual.problem(eye[:2], still, 0.5, contacts=(3,)), "D has shape"),
        (lambda: dual.problem(eye, still, limits=-1), "limits is -1"),
        (lambda: dual.problem(eye, still, joints=(0, 3)), "0 rows"),
        (lambda: dual.problem(eye, still, joints=(1.5,)), "tuple of integers"),
        (lambda: dual.problem(eye, still, boxes=3, bound=np.ones(2)), "bound has shape"),
        (lambda: dual.solve(dual.problem(eye, still, limits=3), None, np.zeros(2)), "warm_start has shape"),
        (lambda: dual.ADMM(polish=-1), "polish"),
        (lambda: dual.Linear(every=0), "every"),
    ]
    for call, words in wrong:
        with pytest.raises(rbd.ArgumentError, match=words):
            call()
