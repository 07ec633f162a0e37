"""Every cluster model of the zoo, fixed and free, at 200 valid states: against projection, multipliers and
Pinocchio. All of it runs with --all-robots; `make test` takes one model.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_zoo_loops import CASES, name

import jaxrbd as rbd
from jaxrbd import constraints as con

STATES = 200
QUICK = ("linkage_chain", 4, "rocker")
FIXED = [case for case in CASES if case[0] not in ("mini_cheetah", "mit_humanoid", "tello", "jvrc1")]
POINTED = [("four_bar",), ("five_bar",), ("six_bar", "watt"), ("six_bar", "stephenson"), ("six_bar", "loop")]
# joints whose bodies end limbs: what the inverse operational-space inertia is asked about
EVERY = [(case, "fixed") for case in FIXED] + [(case, "free") for case in CASES]


def close(a, b, tol, what=""):
    np.testing.assert_allclose(a, b, atol=tol * (1 + np.max(np.abs(b), initial=0.0)), err_msg=what)


def marked(cases, quick):
    return [
        pytest.param(*case, id="-".join(map(str, jax.tree.leaves(case))))
        if case == quick
        else pytest.param(*case, marks=pytest.mark.all_robots, id="-".join(map(str, jax.tree.leaves(case))))
        for case in cases
    ]


@cache
def open_tree(case, base) -> rbd.System:
    """The model as it is, or carried by a free body of 5 kg where it stands on the ground."""
    sys = getattr(rbd.zoo, case[0])(*case[1:], dtype="float64")
    if base == "fixed" or case not in FIXED:
        return sys
    b = rbd.Builder("carrier")
    b.body("carrier", 5.0, shapes=[b.box(0.3, 0.2, 0.1)])
    b.joint("root", "free", None, "carrier")
    return rbd.attach(b.build(dtype="float64"), sys, "carrier", (0.02, -0.05, 0.1), (0.3, 0.2, 0.1))


def valid_states(sys, count=STATES, seed=0):
    """Closed configurations up to some radians from q0 whose loops are not near a singular posture."""
    rng = np.random.default_rng(seed)
    many = jnp.asarray(rng.normal(size=(2 * count, sys.nv)))

    @jax.jit
    @jax.vmap
    def walk(d):
        q = rbd.integrate(sys, sys.q0, 0.4 * d)
        found = rbd.loop_error(sys, q)
        return q, jnp.max(jnp.abs(found.error), initial=0.0), jnp.min(found.pivot, initial=jnp.inf)

    q, error, pivot = map(np.asarray, walk(many))
    closed = error < 1e-11
    limit = 1e-3 * np.median(pivot[closed]) if np.isfinite(pivot).any() else 0.0
    good = np.flatnonzero(closed & (pivot >= limit))[:count]
    assert len(good) == count, f"only {len(good)} of {2 * count} states are valid"
    v, tau = rng.normal(size=(2, count, sys.nv))
    return tuple(map(jnp.asarray, (q[good], v, tau)))


def tips(sys) -> list[str]:
    t = sys.topology
    return [t.body_names[b] for b in range(t.nb) if b not in t.parents and b not in t.folded][:2]


@pytest.mark.parametrize(("case", "base"), marked(EVERY, (QUICK, "free")))
def test_dynamics(case, base):
    """C-RNEA, C-ABA, C-CRBA and C-EFPA equal projection and multipliers to 1e-9; K G = 0 and K g = k."""
    tree = open_tree(case, base)
    sys = rbd.cluster(tree)
    q, v, tau = valid_states(sys)
    rows = con.of_model(tree)
    ends = con.combine(*(con.connect(sys, tip, offset=(0.02, 0.01, -0.03)) for tip in tips(sys)))
    open_ends = con.combine(*(con.connect(tree, tip, offset=(0.02, 0.01, -0.03)) for tip in tips(sys)))
    still = sys.replace(gravity=jnp.zeros(3))

    @jax.jit
    @jax.vmap
    def everything(q, v, tau):
        q_t, v_t = rbd.to_tree(sys, q, v)
        a = rbd.forward_dynamics(sys, q, v, tau)
        J = con.constraint_jacobian(sys, ends, q)
        return {
            "G": rbd.loop_jacobian(sys, q),
            "g": rbd.loop_bias(sys, q, v),
            "M": rbd.mass_matrix(tree, q_t),
            "b": rbd.inverse_dynamics(tree, q_t, v_t, jnp.zeros(tree.nv)),
            "K": con.constraint_jacobian(tree, rows, q_t),
            "k": con.constraint_acceleration(tree, rows, q_t, v_t),
            "J_t": con.constraint_jacobian(tree, open_ends, q_t),
            "a": a,
            "M_y": rbd.mass_matrix(sys, q),
            "tau": rbd.inverse_dynamics(sys, q, v, a),
            "tau_a": rbd.inverse_dynamics(sys, q, v, tau),
            "Omega": con.delassus_matrix(sys, ends, q),
            # a test force along the first row moves all rows by the first column
            "push": J @ rbd.forward_dynamics(still, q, 0 * v, J[0]),
        }

    x = {key: np.asarray(y) for key, y in everything(q, v, tau).items()}
    tau = np.asarray(tau)
    G, GT = x["G"], np.swapaxes(x["G"], 1, 2)
    dot = lambda A, b: np.einsum("bij,bj->bi", A, b)  # noqa: E731
    row_scale = 1 + np.abs(x["K"]).max(axis=2, keepdims=True) * np.abs(G).max()
    assert np.abs(x["K"] @ G / row_scale).max(initial=0.0) < 1e-10
    close(dot(x["K"], x["g"]), -x["k"], 1e-10, "K g = k")
    M_y = GT @ x["M"] @ G
    close(x["M_y"], M_y, 1e-9, "C-CRBA")
    close(x["tau"], tau, 1e-9, "C-RNEA after C-ABA")
    close(x["tau_a"], dot(GT, x["b"] + dot(x["M"], dot(G, tau) + x["g"])), 1e-9, "C-RNEA")
    bias = dot(GT, x["b"] + dot(x["M"], x["g"]))
    close(x["a"], np.linalg.solve(M_y, (tau - bias)[..., None])[..., 0], 1e-9, "C-ABA, projection")
    JG = x["J_t"] @ G
    close(x["Omega"], JG @ np.linalg.solve(M_y, np.swapaxes(JG, 1, 2)), 1e-9, "C-EFPA")
    close(x["push"], x["Omega"][:, :, 0], 1e-9, "test force")
    independent = np.array(sys.topology.independent)
    for i in range(0, STATES, 10):  # [M Kᵀ; K 0] of the open tree, forces on the independent joints
        # M^-1 K^T in the metric of M, so that redundant rows show as singular values of rounding
        L = np.linalg.cholesky(x["M"][i])
        A = np.linalg.solve(L, x["K"][i].T).T
        load = -x["b"][i]
        load[independent] += tau[i]
        free = np.linalg.solve(L, load)
        inverse = np.linalg.pinv(A, rcond=1e-9)
        z = free + inverse @ (-x["k"][i] - A @ free)
        close(G[i] @ x["a"][i] + x["g"][i], np.linalg.solve(L.T, z), 1e-9, "C-ABA, multipliers")


COUPLED = [c for c in CASES if c not in POINTED and c != ("rod_leg",)]  # its universal joints are two in URDF


@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.all_robots, id=name(c)) for c in COUPLED])
def test_couplings_match_pinocchio_through_G(case):
    """Gᵀ (Pinocchio on the open tree) for gears, belts, differentials and mixed models."""
    pin = pytest.importorskip("pinocchio")
    tree = open_tree(case, "free")
    tree = tree.replace(armature=0 * tree.armature)
    sys = rbd.cluster(tree)
    model = pin.buildModelFromXML(rbd.to_urdf(tree))
    q, v, a = valid_states(sys, 10)

    @jax.jit
    @jax.vmap
    def mine(q, v, a):
        q_t, v_t = rbd.to_tree(sys, q, v)
        G = rbd.loop_jacobian(sys, q)
        a_t = G @ a + rbd.loop_bias(sys, q, v)
        return q_t, v_t, a_t, G, rbd.inverse_dynamics(sys, q, v, a), rbd.mass_matrix(sys, q)

    data = model.createData()
    for q_t, v_t, a_t, G, tau, M in zip(*map(np.asarray, mine(q, v, a))):
        turn = lambda v, q_t=q_t: np.asarray(rbd.to_pinocchio(tree, q_t, v, model)[1])  # noqa: E731
        q_pin = np.asarray(rbd.to_pinocchio(tree, q_t, model=model)[0])
        G_pin = np.stack([turn(column) for column in G.T], axis=1)
        close(tau, G_pin.T @ pin.rnea(model, data, q_pin, turn(v_t), turn(a_t)), 1e-9)
        full = pin.crba(model, data, q_pin)
        full = np.triu(full) + np.triu(full, 1).T
        close(M, G_pin.T @ full @ G_pin, 1e-9)


def loop_points(pin, model, tree):
    """Pinocchio's 3-D point constraints for the loops of `tree`."""
    t, places, made = tree.topology, np.asarray(tree.loop_position), []
    for frames, positions in zip(t.loop_frames, places):
        ends = []
        for frame, position in zip(frames, positions):
            found = model.frames[model.getFrameId(tree.frame_names[frame], pin.FrameType.BODY)]
            ends += [found.parentJoint, found.placement * pin.SE3(np.eye(3), position)]
        made.append(pin.RigidConstraintModel(pin.ContactType.CONTACT_3D, model, *ends, pin.LOCAL))
    return made


@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.all_robots, id=name(c)) for c in POINTED])
def test_loops_match_pinocchio(case):
    """`constraintDynamics` with a 3-D point per loop, on linkages carried by a free body, to 1e-7."""
    pin = pytest.importorskip("pinocchio")
    tree = open_tree(case, "free")
    tree = tree.replace(armature=0 * tree.armature)
    sys = rbd.cluster(tree)
    model = pin.buildModelFromXML(rbd.to_urdf(tree))
    points = loop_points(pin, model, tree)
    q, v, tau = valid_states(sys, 10)

    @jax.jit
    @jax.vmap
    def mine(q, v, tau):
        q_t, v_t = rbd.to_tree(sys, q, v)
        a = rbd.forward_dynamics(sys, q, v, tau)
        return q_t, v_t, rbd.loop_jacobian(sys, q) @ a + rbd.loop_bias(sys, q, v)

    data, datas = model.createData(), [p.createData() for p in points]
    pin.initConstraintDynamics(model, data, points, datas)
    independent = np.array(sys.topology.independent)
    for q_t, v_t, a_t, push in zip(*map(np.asarray, (*mine(q, v, tau), tau))):
        turn = lambda v, q_t=q_t: np.asarray(rbd.to_pinocchio(tree, q_t, v, model)[1])  # noqa: E731
        q_pin = np.asarray(rbd.to_pinocchio(tree, q_t, model=model)[0])
        load = np.zeros(tree.nv)
        load[independent] = push
        settings = pin.ProximalSettings(1e-14, 1e-10, 200)
        a = pin.constraintDynamics(model, data, q_pin, turn(v_t), turn(load), points, datas, settings)
        close(turn(a_t), a, 1e-7)


# --- constraints on a robot with differentials --------------------------------------------------------------

SOLVERS = (rbd.ConstrainedABA, rbd.ProxPV, rbd.ProxLTL, rbd.ProxLTLs, rbd.Dense, rbd.Classic)


@pytest.fixture(scope="module")
def standing_tello():
    sys = rbd.cluster(rbd.zoo.tello(dtype="float64"))
    rng = np.random.default_rng(3)
    q = rbd.integrate(sys, sys.q0, 0.1 * jnp.asarray(rng.normal(size=sys.nv)))
    rows = con.combine(*(con.weld(sys, foot, q=q) for foot in ("left_sole", "right_sole")))
    v, tau = jnp.asarray(rng.normal(size=(2, sys.nv)))
    return sys, rows, (q, 0.3 * v, tau)


@pytest.mark.all_robots
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.__name__)
def test_both_feet_of_tello_welded(solver, standing_tello):
    """Every solver equals a dense KKT solve to 1e-9, gradients too."""
    sys, rows, state = standing_tello

    def mine(q, v, tau):
        found = rbd.constrained_dynamics(sys, q, v, tau, rows, solver())
        return jnp.concatenate([found.value.a, found.value.lam]), found.result

    def dense(q, v, tau):
        J = con.constraint_jacobian(sys, rows, q)
        M, b = rbd.mass_matrix(sys, q), rbd.bias_force(sys, q, v)
        c = con.constraint_target(sys, rows, q, v) - con.constraint_acceleration(sys, rows, q, v)
        kkt = jnp.block([[M, -J.T], [J, jnp.zeros((len(J), len(J)))]])
        return jnp.linalg.solve(kkt, jnp.concatenate([tau - b, c]))

    @jax.jit
    def both(q, v, tau):
        d = (0.1 * q, v, tau)
        found, along, result = jax.jvp(mine, (q, v, tau), d, has_aux=True)
        weigh = jnp.arange(1.0, len(found) + 1) / len(found)
        back = jax.grad(lambda *x: weigh @ mine(*x)[0], argnums=(0, 1, 2))(q, v, tau)
        back = jax.tree.map(jnp.vdot, back, d)
        exact, exact_along = jax.jvp(dense, (q, v, tau), d)
        return result, (found, along, sum(back)), (exact, exact_along, weigh @ exact_along)

    result, found, exact = both(*state)
    assert result == rbd.Result.converged
    for x, y in zip(found, exact):
        close(x, y, 1e-9)
