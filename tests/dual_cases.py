"""Dual problems for the tests, in plain NumPy: quadrupeds on their feet, stacks, random ones, and oracles."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd import dual

DT = 2e-3


def quadruped(count: int, points: int = 1, seed: int = 0):
    """Problems of a 12-joint quadruped at random states, `points` per foot 2 cm apart; friction 0.3 to 1.

    Joints within 0.3 rad (1 sigma) of standing, velocities of 1 rad/s and 1 m/s, torques of 5 N m.
    """
    sys = rbd.zoo.quadruped(dtype="float64")
    rng = np.random.default_rng(seed)
    places = [(0.02 * k, 0.0, 0.0) for k in range(points)]
    rows = con.combine(
        *(con.connect(sys, f"{leg}_foot", offset=p) for leg in ("FL", "FR", "RL", "RR") for p in places)
    )
    moved = 0.3 * rng.normal(size=(count, sys.nv))
    v, tau = rng.normal(size=(2, count, sys.nv)) * np.array([1.0, 5.0])[:, None, None]
    tau[:, :6] = 0
    friction = rng.uniform(0.3, 1, size=(count, 4 * points))

    def make(d, v, tau, mu):
        q = rbd.integrate(sys, sys.q0, d)
        J = con.constraint_jacobian(sys, rows, q)
        D = J @ jnp.linalg.solve(rbd.mass_matrix(sys, q), J.T)
        free = J @ (v + DT * rbd.forward_dynamics(sys, q, v, tau))
        return dual.problem(0.5 * (D + D.T), free, mu, contacts=(3,) * (4 * points))

    return jax.jit(jax.vmap(make))(moved, v, tau, friction)


def stack(boxes: int = 10, ratio: float = 1e6, dt: float = 1e-2):
    """Boxes on each other, each `ratio`^(1/(n-1)) times heavier than the one below: D, v_f, weight · dt.

    One contact per interface at the centre, between boxes that only translate.
    """
    mass = ratio ** (np.arange(boxes) / (boxes - 1))
    J = np.zeros((3 * boxes, 3 * boxes))
    for k in range(boxes):
        J[3 * k : 3 * k + 3, 3 * k : 3 * k + 3] = np.eye(3)
        if k:
            J[3 * k : 3 * k + 3, 3 * k - 3 : 3 * k] = -np.eye(3)
    D = J @ np.diag(1 / np.repeat(mass, 3)) @ J.T
    v = np.tile([0, 0, -9.81 * dt], boxes)
    return D, J @ v, 9.81 * dt * mass.sum()


def random_D(rng, n: int, rank: int | None = None):
    A = rng.normal(size=(n, rank or n + 2))
    return A @ A.T / n


# --- oracles --------------------------------------------------------------------------------------------


def violations(D, v_f, friction, lam, contacts, law="ncp") -> float:
    """The largest breach of Coulomb's law (or of the CCP) by λ: elliptic cones of any dimension, from their
    definition. `friction` (nc, 3)."""
    v = D @ lam + v_f
    worst, row = 0.0, 0
    for dim, (slide, spin, roll) in zip(contacts, friction):
        k = slice(row, row + dim)
        mu = np.array(
            {1: [], 3: [slide] * 2, 4: [slide] * 2 + [spin], 6: [slide] * 2 + [spin] + [roll] * 2}[dim]
        )
        x, u = lam[k], v[k].copy()
        inside = np.sqrt(np.sum((x[:-1] / np.where(mu > 0, mu, 1)) ** 2)) if dim > 1 else 0.0
        flat = np.abs(x[:-1][mu == 0]).max(initial=0.0)
        sliding = np.linalg.norm(mu * u[:-1])
        if law == "ncp":
            u[-1] += sliding
        worst = max(worst, -x[-1], inside - max(x[-1], 0), flat, sliding - u[-1], abs(x @ u))
        row += dim
    return worst


def single_contact(D, b, mu):
    """All solutions of one contact's NCP by a fine search over α, and the open one if it is one: λ's."""
    found = [np.zeros(3)] if b[2] >= 0 else []
    stick = np.linalg.solve(D, -b)
    if np.linalg.norm(stick[:2]) <= mu * stick[2]:
        found.append(stick)

    def gap(alpha):
        x = np.linalg.solve(D + np.diag([alpha, alpha, 0]), -b)
        return np.linalg.norm(x[:2]) - mu * x[2], x

    grid = np.concatenate([[0], np.logspace(-8, 8, 4001)])
    values = np.array([gap(a)[0] for a in grid])
    for i in np.flatnonzero(np.sign(values[:-1]) != np.sign(values[1:])):
        low, high = grid[i], grid[i + 1]
        for _ in range(80):
            mid = 0.5 * (low + high)
            low, high = (mid, high) if np.sign(gap(mid)[0]) == np.sign(gap(low)[0]) else (low, mid)
        x = gap(0.5 * (low + high))[1]
        if x[2] > 0:
            found.append(x)
    return found


def pinocchio(D, v_f, friction, law="ncp", solver="ADMM"):
    """v⁺ by Pinocchio's own solvers on a dense D."""
    import pinocchio as pin

    model = pin.Model()
    models, datas = pin.StdVec_ConstraintModel(), pin.StdVec_ConstraintData()
    for mu in friction:
        one = pin.PointContactConstraintModel(model, 0, pin.SE3.Identity())
        one.setFriction(float(mu))
        one = pin.ConstraintModel(one)
        models.append(one)
        datas.append(one.createData())
    n = len(v_f)
    work = getattr(pin, f"{solver}ConstraintSolver")(n)
    settings, result = getattr(pin, f"{solver}SolverSettings")(), getattr(pin, f"{solver}SolverResult")()
    settings.absolute_feasibility_tol = settings.absolute_complementarity_tol = 1e-12
    settings.relative_feasibility_tol = settings.relative_complementarity_tol = 0.0
    settings.max_iterations = 20_000
    settings.solve_ncp = law == "ncp"
    work.solve(pin.DelassusOperatorDense(np.asarray(D)), np.asarray(v_f), models, datas, settings, result)
    lam = np.array(result.retrieveConstraintImpulses())
    return D @ lam + v_f, lam
