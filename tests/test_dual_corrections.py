"""Where the document's printed form gives another number: each test fails with that form. docs/pages/dual.md
has the list, with the same numbers.
"""

import dual_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact, dual
from jaxrbd.dual import cones
from jaxrbd.dual.local import ConicSection, Contact, ExactCoulomb

COUPLED = np.full((3, 3), 0.98) + 0.02 * np.eye(3)  # normal and tangents move almost as one


def solved(problems, solver):
    return jax.jit(jax.vmap(lambda p: dual.solve(p, solver)))(problems)


@pytest.fixture(scope="module")
def quadrupeds():
    return cases.quadruped(64)


def test_1_step_of_the_cone_solver():
    """Algorithm 2: 3 / tr D is beyond 2 / λ_max where normal and tangents are coupled."""
    problem = dual.problem(COUPLED, [0.3, -0.2, -1.0], 1.0, contacts=(3,))
    for step, good in (("printed", False), ("largest", True)):
        assert bool(dual.solve(problem, dual.PGS(iterations=3000, law="ccp", step=step)).converged) == good


def test_2_step_of_the_tangents(quadrupeds):
    """Algorithm 3: min diag D_TT, and a tangential velocity that has not heard of the new normal impulse."""
    solver = dual.PGS(iterations=400, tolerance=1e-6)
    printed = solved(quadrupeds, dual.PGS(iterations=400, tolerance=1e-6, step="printed"))
    assert solved(quadrupeds, solver).converged.all()
    assert printed.converged.mean() < 0.95


# --- ADMM, as printed ---------------------------------------------------------------------------------------


def lift(v, mu):
    out = np.zeros_like(v)
    out[2::3] = mu * np.linalg.norm(v.reshape(-1, 3)[:, :2], axis=1)
    return out


def onto(x, mu):
    """P_K in NumPy."""
    x, mu = x.reshape(-1, 3), np.asarray(mu)
    r, n = np.linalg.norm(x[:, :2], axis=1), x[:, 2]
    height = (mu * r + n) / (mu**2 + 1)
    edge = np.concatenate([(mu * height / np.where(r > 0, r, 1))[:, None] * x[:, :2], height[:, None]], 1)
    return np.where((mu * r <= -n)[:, None], 0, np.where((r <= mu * n)[:, None], x, edge)).ravel()


def natural(D, v_f, mu, lam):
    v = D @ lam + v_f
    v = v + lift(v, mu)
    return np.abs(lam - onto(lam - v, mu)).max()


class Admm:
    """[LOOPS] Algorithm 6 in NumPy, one problem."""

    def __init__(self, D, v_f, mu, omega=1.0, eta=1e-6):
        self.D, self.v_f, self.mu, self.omega, self.eta = D, v_f, mu, omega, eta
        self.rho = np.linalg.eigvalsh(D)[-1]
        self.x = self.y = np.zeros_like(v_f)
        self.z = v_f + lift(v_f, mu)

    def step(self):
        D, eta, rho, x, y, z = self.D, self.eta, self.rho, self.x, self.y, self.z
        s = lift(z, self.mu)
        new = -np.linalg.solve(D + (eta + rho) * np.eye(len(x)), self.v_f + s - eta * x - rho * y - z)
        relaxed = (1 - self.omega) * y + self.omega * new
        self.y = onto(relaxed - z / rho, self.mu)
        self.z = z - rho * (relaxed - self.y)
        self.x = new
        printed = np.abs(eta * (new - x) + rho * (self.y - y)).max()
        true = np.abs(D @ new + self.v_f + lift(self.z, self.mu) - self.z).max()
        lag = lift(self.z, self.mu) - s
        return np.abs(new - self.y).max(), printed, true, lag


def arrays(problems, i):
    return (*(np.asarray(x[i]) for x in (problems.D, problems.v_f)), np.asarray(problems.friction[i, :, 0]))


def test_4_dual_residual_lacks_the_lag(quadrupeds):
    """Eq. 170b is not D x + v_f + Γ(z) - z: it lacks Γ(z⁺) - Γ(z), and is wrong with over-relaxation."""
    D, v_f, mu = arrays(quadrupeds, 0)
    run, worst = Admm(D, v_f, mu), 0.0
    for _ in range(40):
        x, y = run.x, run.y
        _, printed, true, lag = run.step()
        whole = run.eta * (run.x - x) + run.rho * (run.y - y)
        assert abs(true - np.abs(whole - lag).max()) < 1e-9  # the identity, ω = 1
        worst = max(worst, abs(true - printed) / true)
    assert worst > 0.1
    run = Admm(D, v_f, mu, omega=1.6)
    wrong = [abs(t - p) / t for _, p, t, _ in (run.step() for _ in range(20))]
    assert max(wrong) > 0.3


def test_5_penalties_are_kept_within_bounds():
    """Eq. 171 without bounds: at rest one residual stays above the other and ρ runs away."""
    D, v_f, mu = np.eye(3), np.array([0.0, 0.0, 1.0]), np.array([0.5])  # open: x = y = 0, for ever
    run = Admm(D, v_f, mu)
    for _ in range(400):
        primal, printed, _, _ = run.step()
        if primal >= 10 * printed:
            run.rho *= 1.5
        elif printed >= 10 * primal:
            run.rho /= 1.5
    assert not 1e-6 <= run.rho <= 1e6
    seen = []

    class Grows(dual.Linear):
        def next(self, rho, primal, dual, L, eta):
            jax.debug.callback(lambda x, L: seen.append(float((x / L)[0])), rho, L)
            return 10 * rho

    dual.solve(dual.problem(D, -v_f, mu, contacts=(3,)), dual.ADMM(iterations=40, penalty=Grows(every=1)))
    jax.effects_barrier()
    assert len(seen) > 30 and max(seen) == pytest.approx(1e6)


def test_6_relative_residuals_notice_the_light_box():
    """Eqs. 171 and 172 compare residuals as they are: under a heavy box a light one is not noticed."""
    D, v_f, weight = cases.stack()
    problem = dual.problem(D, v_f, 0.5, contacts=(3,) * 10)
    for relative in (False, True):
        solver = dual.ADMM(iterations=300, penalty=dual.Linear(every=1, relative=relative), polish=0)
        found = dual.solve(problem, solver)
        assert (abs(found.value.lam[2] / weight - 1) < 1e-3) == relative


# --- splitting ----------------------------------------------------------------------------------------------


def test_7_impulses_of_the_others_are_added():
    """Algorithm 5, lines 4, 9, 15: v_f + Σ D λ, printed with a minus."""
    rng = np.random.default_rng(0)
    D, v_f = cases.random_D(rng, 4) + np.eye(4), rng.normal(size=4)
    lam = np.zeros(4)
    for _ in range(200):
        for i in range(4):
            rest = D[i] @ lam - D[i, i] * lam[i]
            lam[i] = -(v_f[i] - rest) / D[i, i]  # as printed
    ours = dual.solve(dual.problem(D, v_f, joints=(1,) * 4), dual.PGS(iterations=200))
    assert ours.converged and not np.abs(D @ lam + v_f).max() < 1e-3


def test_8_relaxation_stays_above_its_least():
    """Algorithm 5, line 25: ω ← max(ω_min, γ ω); min, as printed, goes to ω_min at once."""
    problem = dual.problem(np.eye(1), [-1.0], limits=1)
    found = dual.solve(problem, dual.PGS(iterations=6, omega=0.5, decay=0.9, omega_min=0.4))
    omegas = [max(0.4, 0.5 * 0.9**i) for i in range(6)]
    np.testing.assert_allclose(found.value.lam[0], 1 - np.prod(1 - np.array(omegas)), atol=1e-14)
    printed = [0.5] + [0.4] * 5
    assert abs(found.value.lam[0] - (1 - np.prod(1 - np.array(printed)))) > 1e-3


def answer(local, D, b, mu):
    D, b, mu = jnp.asarray(D)[..., None], jnp.asarray(b)[:, None], jnp.asarray([mu])

    @jax.jit
    def run(D, b, mu):
        own = tuple(x[..., 0, :] for x in local.prepare(D[:, :, None], mu[None]))
        return local.answer(Contact(D, mu, own), 0 * b, b, jnp.zeros(1))

    return np.asarray(run(D, b, mu))[:, 0]


def test_3_unconstrained_solution():
    """Eq. 154 starts from -D (v_f + s), where -D^-1 (v_f + s) is what holds a contact still."""
    D, b = COUPLED + np.diag([1.0, 0.5, 0]), np.array([0.1, -0.05, -1.0])
    for local in (ConicSection("all"), ExactCoulomb()):
        assert np.abs(D @ answer(local, D, b, 5.0) + b).max() < 1e-9
    assert np.abs(D @ (-D @ b) + b).max() > 0.1


def test_9_least_dissipation_is_not_coulomb():
    """Eq. 152 (Preclik) under coupling: the friction it finds is not against the sliding velocity."""
    D = np.array([[1, 0, 0.6], [0, 1, 0.2], [0.6, 0.2, 1]])
    b, mu = np.array([0.4, 1.0, -0.8]), 0.5
    preclik, exact = (answer(local, D, b, mu) for local in (ConicSection("all"), ExactCoulomb(20)))
    assert cases.violations(D, b, [(mu, 0, 0)], exact, (3,)) < 1e-9
    assert cases.violations(D, b, [(mu, 0, 0)], preclik, (3,)) > 1e-3  # six orders above the exact one


def test_10_which_contacts_are_open():
    """Eq. 155 has the inequality reversed: a contact that parts has no force, one that closes has one."""
    for local in (ConicSection("all"), ExactCoulomb()):
        assert (answer(local, np.eye(3), np.array([0.1, 0, 1.0]), 0.5) == 0).all()
        assert answer(local, np.eye(3), np.array([0.1, 0, -1.0]), 0.5)[2] > 0.9


# --- cones and residuals ------------------------------------------------------------------------------------


def test_11_conditions_of_the_projectors():
    """Eqs. 150 and 151: the third conditions leave vectors out, or take those of the first; μ = 0 divides."""
    x = np.random.default_rng(1).normal(size=(400, 3))
    for mu in (0.0, 0.4, 2.5):
        r, n = np.linalg.norm(x[:, :2], axis=1), x[:, 2]
        radius = np.full((len(x), 1), mu)
        for f, slope in ((cones.project_cone, mu), (cones.project_dual_cone, None)):
            found = np.asarray(f(x[..., None], radius))[..., 0]
            # the nearest point, from its definition: in the cone, the rest in the polar one, orthogonal
            t, h = np.linalg.norm(found[:, :2], axis=1), found[:, 2]
            rest = x - found
            rt, rh = np.linalg.norm(rest[:, :2], axis=1), rest[:, 2]
            inside = (t - mu * h, mu * rt + rh) if slope is not None else (mu * t - h, rt + mu * rh)
            assert (np.array(inside) < 1e-12).all() and np.abs(np.sum(found * rest, 1)).max() < 1e-12
        if mu:
            cases_ = (r <= -n / mu, r <= mu * n, r > mu * np.abs(n))  # of Eq. 150
            assert (np.sum(cases_, 0) != 1).any()


def test_12_natural_map(quadrupeds):
    """Eqs. 163 and 164: λ - P(λ - (D λ + v_f + Γ)); without the brackets a solution does not vanish."""
    found = solved(quadrupeds, dual.NBGS(iterations=100, tolerance=1e-9))
    for i in range(8):
        D, v_f, mu = arrays(quadrupeds, i)
        lam = np.asarray(found.value.lam[i])
        assert natural(D, v_f, mu, lam) < 1e-8
        v = D @ lam + v_f
        assert np.abs(lam - onto(lam - D @ lam + v_f + lift(v, mu), mu)).max() > 1e-2


def test_13_converged_is_measured_without_preconditioning():
    """A row of 1 mg beside one of 1 t: in preconditioned numbers 1e-4 m/s of the latter are 3e-6."""
    D, v_f, _ = cases.stack(boxes=4)
    problem = dual.problem(D, v_f, 0.5, contacts=(3,) * 4)
    for count in (1, 5, 20, 80):
        found = dual.solve(problem, dual.ADMM(iterations=count))
        lam, mu = np.asarray(found.value.lam), np.full(4, 0.5)
        v = D @ lam + v_f
        d = np.repeat(np.diag(D).reshape(-1, 3).max(1), 3)
        scaled = np.abs(d * (lam - onto(lam - (v + lift(v, mu)) / d, mu))).max()
        np.testing.assert_allclose(found.stats.residuals.ncp, scaled, rtol=1e-9, atol=1e-15)
        assert bool(found.converged) == (scaled <= 1e-6)


def test_14_what_pgs_ccp_solves(quadrupeds):
    """Table I gives PGS-CCP a De Saxcé term, VI-E does not: two problems, two answers."""
    for de_saxce in (False, True):
        solver = dual.PGS(iterations=2000, tolerance=1e-8, law="ccp", de_saxce=de_saxce)
        found = solved(quadrupeds, solver).stats.residuals
        assert (found.ncp.max() < 1e-6) == de_saxce and (found.ccp.max() < 1e-6) != de_saxce


def test_15_restitution_where_bodies_touch_within_the_step():
    """E v⁻ on every contact bounces before bodies meet; it counts where they touch within the step."""
    b = rbd.Builder("ball")
    b.body("ball", 1.0, shapes=[b.sphere(0.1)])
    b.joint("root", "free", None, "ball")
    sys = b.build(dtype="float64")
    ground = contact.on_plane(sys, ["ball"], radius=0.1, restitution=0.8)
    integrator = rbd.HardContact(dt=2e-3)

    def after(gap):
        q = jnp.array([0, 0, 0.1, 1, 0, 0, 0.0]).at[2].add(gap)
        state = rbd.State(q, jnp.array([0, 0, 0, 0, 0, -1.0]))
        return rbd.rollout(sys, state, steps=1, integrator=integrator, contacts=ground).value.v[-1, 5]

    far, near = jax.jit(jax.vmap(after))(jnp.array([0.01, 0.001]))
    np.testing.assert_allclose([far, near], [-1 - 9.81 * 2e-3, 0.8], atol=1e-9)
