"""Clusters ([GRBDA]) against projection, Lagrange multipliers, Pinocchio, finite differences and
conservation.
"""

import clusters_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con

NAMES = list(cases.CASES)
QUICK = ("belts", "mixed")
STATES = 8


def marked(names=NAMES):
    return [n if n in QUICK else pytest.param(n, marks=pytest.mark.all_robots) for n in names]


def close(a, b, tol):
    np.testing.assert_allclose(a, b, atol=tol * (1 + np.max(np.abs(b), initial=0.0)))


@pytest.fixture(params=marked(), scope="module")
def mechanism(request):
    """Cluster System, its open tree, states, and what the multipliers of the open tree give."""
    sys, tree = cases.clustered(request.param), cases.tree(request.param)
    q, v, tau, f = cases.states(sys, STATES)
    rows = con.of_model(tree)

    @jax.jit
    @jax.vmap
    def everything(q, v, tau, f):
        q_t, v_t = rbd.to_tree(sys, q, v)
        G, g = rbd.loop_jacobian(sys, q), rbd.loop_bias(sys, q, v)
        M, b = rbd.mass_matrix(tree, q_t), rbd.inverse_dynamics(tree, q_t, v_t, jnp.zeros(tree.nv), f)
        a = rbd.forward_dynamics(sys, q, v, tau, f)
        return {
            "q_t": q_t,
            "v_t": v_t,
            "G": G,
            "g": g,
            "M": M,
            "b": b,
            "a": a,
            "K": con.constraint_jacobian(tree, rows, q_t),
            "k": con.constraint_acceleration(tree, rows, q_t, v_t),
            "error": con.constraint_error(tree, rows, q_t),
            "M_y": rbd.mass_matrix(sys, q),
            "tau": rbd.inverse_dynamics(sys, q, v, a, f),
            "projected": rbd.projected_dynamics(sys, q, v, tau, f),
            "inverse": rbd.mass_matrix_inverse(sys, q),
            "solved": rbd.mass_matrix_solve(sys, q, tau),
        }

    x = {key: np.asarray(y) for key, y in everything(q, v, tau, f).items()}
    return request.param, sys, tree, (q, v, np.asarray(tau), f), x


def test_loops_hold(mechanism):
    """φ = 0, K G = 0 and K g = k, with rows of `constraints` that know nothing of clusters."""
    _, _, _, _, x = mechanism
    close(x["error"], 0 * x["error"], 1e-9)
    close(x["K"] @ x["G"], 0 * (x["K"] @ x["G"]), 1e-10)
    close(np.einsum("bij,bj->bi", x["K"], x["g"]), -x["k"], 1e-10)
    close(np.einsum("bij,bj->bi", x["G"], np.asarray(mechanism[3][1])), x["v_t"], 1e-12)


def test_dynamics_equal_projection_and_multipliers(mechanism):
    _, sys, tree, (_, _, tau, _), x = mechanism
    close(x["tau"], tau, 1e-9)  # C-RNEA after C-ABA
    close(x["projected"], x["a"], 1e-9)
    GMG = np.einsum("bji,bjk,bkl->bil", x["G"], x["M"], x["G"])
    close(x["M_y"], GMG, 1e-10)
    close(x["inverse"] @ x["M_y"], np.broadcast_to(np.eye(sys.nv), GMG.shape), 1e-8)
    close(np.einsum("bij,bj->bi", x["M_y"], x["solved"]), tau, 1e-9)
    independent = np.array(sys.topology.independent)
    for i in range(STATES):  # [M Kᵀ; K 0] of the open tree, forces on the independent joints
        K, n = x["K"][i], tree.nv
        load = np.zeros(n)
        load[independent] = tau[i]
        kkt = np.block([[x["M"][i], K.T], [K, np.zeros((len(K), len(K)))]])
        a = np.linalg.lstsq(kkt, np.r_[load - x["b"][i], -x["k"][i]], rcond=1e-11)[0][:n]
        close(x["G"][i] @ x["a"][i] + x["g"][i], a, 1e-8)


def test_maps_are_those_of_the_manifold(mechanism):
    """G and g by finite differences of integrate; difference undoes integrate; loops stay closed."""
    _, sys, tree, (q, v, _, _), x = mechanism
    h = 1e-5

    @jax.jit
    @jax.vmap
    def moved(q, v):
        ends = [rbd.integrate(sys, q, s * v) for s in (h, -h, 0.2)]
        pair = [rbd.to_tree(sys, end, v) for end in ends[:2]]
        rate = rbd.difference(tree, pair[1][0], pair[0][0]) / (2 * h)
        turn = (pair[0][1] - pair[1][1]) / (2 * h)
        return rate, turn, rbd.difference(sys, q, ends[2]), rbd.loop_error(sys, ends[2]).error

    rate, turn, back, error = moved(q, v)
    close(rate, x["v_t"], 1e-7)
    close(turn, x["g"], 1e-6)
    if mechanism[0] != "spatial":  # its rod's spin is one component of a ball joint
        close(back, 0.2 * np.asarray(v), 1e-12)
    assert not error.size or np.abs(error).max() < 1e-9


@pytest.mark.parametrize("name", marked(["belts", "four-bars on couplers", "spatial", "slider"]))
def test_derivatives(name):
    """Forward and inverse dynamics by state, forces and model, against central differences; both modes."""
    sys = cases.clustered(name)
    q, v, tau, f = (x[0] for x in cases.states(sys, 1, seed=3))
    rng = np.random.default_rng(5)
    key = "linear_coefficients" if sys.topology.linear_names else "loop_position"
    leaves = {"inertia": sys.inertia, "mass": sys.mass, key: getattr(sys, key)}

    def outputs(dq, v, tau, leaves):
        model = sys.replace(**leaves)
        near = rbd.close_loops(model, rbd.integrate(model, q, dq)).value
        return rbd.forward_dynamics(model, near, v, tau, f), rbd.inverse_dynamics(model, near, v, tau, f)

    args = (jnp.zeros(sys.nv), v, tau, leaves)
    spread = lambda x: jnp.asarray(rng.normal(size=x.shape))  # noqa: E731
    d = (*map(spread, args[:3]), {key: 0.1 * x * spread(x) for key, x in leaves.items()})
    weights = jnp.asarray(rng.normal(size=(2, sys.nv)))
    along = lambda s: outputs(*jax.tree.map(lambda x, y: x + s * y, args, d))  # noqa: E731
    scalar = lambda s: sum(w @ y for w, y in zip(weights, along(s)))  # noqa: E731

    @jax.jit
    def found(s):
        forward = jax.jvp(along, (s,), (jnp.ones(()),))[1]
        reverse = jax.grad(scalar)(s)
        return forward, reverse, jax.grad(jax.grad(scalar))(s), jax.grad(scalar)(s)

    h = 1e-5
    run = jax.jit(along)
    forward, reverse, second, _ = found(jnp.zeros(()))
    for mine, up, down in zip(forward, run(h), run(-h)):
        close(mine, (up - down) / (2 * h), 1e-6)
    close(reverse, sum(w @ y for w, y in zip(weights, forward)), 1e-9)
    close(second, (found(jnp.asarray(h))[3] - found(jnp.asarray(-h))[3]) / (2 * h), 1e-5)


def test_everything_else_on_a_cluster_system():
    """Kinematics, momenta, energies, regressors, Coriolis, factors, forces: the open tree's, through G."""
    sys, tree = cases.clustered("mixed"), cases.tree("mixed")
    q, v, a, _ = (x[0] for x in cases.states(sys, 1, seed=7))

    @jax.jit
    def both(q, v, a):
        q_t, v_t = rbd.to_tree(sys, q, v)
        G = rbd.loop_jacobian(sys, q)
        a_t = G @ a + rbd.loop_bias(sys, q, v)
        damped = (
            sys.replace(damping=jnp.arange(1.0, tree.nv + 1)),
            tree.replace(damping=jnp.arange(1.0, tree.nv + 1)),
        )
        frame = ("tip", "body")
        L = rbd.mass_matrix_factor(sys, q)
        Y, pi = rbd.joint_torque_regressor(sys, q, v, a), rbd.inertial_parameters(tree)
        C = rbd.coriolis_matrix(sys, q, v)
        step = lambda s: rbd.mass_matrix(sys, rbd.integrate(sys, q, s * v))  # noqa: E731
        rate = jax.jvp(step, (0.0,), (1.0,))[1]
        skew = rate - 2 * C
        return {
            "poses": (rbd.frame_poses(sys, q)[1], rbd.frame_poses(tree, q_t)[1]),
            "J": (rbd.frame_jacobian(sys, q, *frame), rbd.frame_jacobian(tree, q_t, *frame) @ G),
            "velocity": (rbd.frame_velocity(sys, q, v, *frame), rbd.frame_velocity(tree, q_t, v_t, *frame)),
            "acceleration": (
                rbd.frame_jacobian(sys, q, *frame) @ a + rbd.frame_jacobian_dot_v(sys, q, v, *frame),
                rbd.frame_acceleration(tree, q_t, v_t, a_t, *frame),
            ),
            "energy": (rbd.energy(sys, q, v), rbd.energy(tree, q_t, v_t)),
            "kinetic": (rbd.kinetic_energy(sys, q, v), 0.5 * v @ rbd.mass_matrix(sys, q) @ v),
            "momentum": (rbd.centroidal_momentum(sys, q, v), rbd.centroidal_momentum_matrix(sys, q) @ v),
            "regressor": (Y @ pi + G.T @ (tree.armature * a_t), rbd.inverse_dynamics(sys, q, v, a)),
            "factor": (L.T @ L, rbd.mass_matrix(sys, q)),
            "solve": (rbd.solve_factor(sys, L, a), rbd.mass_matrix_solve(sys, q, a)),
            "coriolis": (C @ v + rbd.gravity_force(sys, q), rbd.bias_force(sys, q, v)),
            "skew": (skew, -skew.T),
            "passive": (rbd.passive_force(damped[0], q, v), G.T @ rbd.passive_force(damped[1], q_t, v_t)),
        }

    for key, (mine, other) in both(q, v, a).items():
        np.testing.assert_allclose(mine, other, atol=1e-9 * (1 + np.abs(other).max()), err_msg=key)


@pytest.mark.parametrize("steps", [500, pytest.param(10_000, marks=pytest.mark.all_robots)])
def test_energy_is_kept(steps):
    """RK4, 1 ms, up to ten seconds of a free linkage with a rotor and a ball joint: energy, loops,
    branches.
    """
    sys = cases.clustered("mixed")
    q, v, _, _ = (x[0] for x in cases.states(sys, 1, seed=2))
    angle = lambda q, joint: q[sys.q_index(joint)][0]  # noqa: E731
    # coupler against rocker: they never line up within one assembly
    branch = lambda q: jnp.sign(jnp.cos(angle(q, "a0") + angle(q, "b0") - angle(q, "c0")))  # noqa: E731

    @jax.jit
    @jax.vmap
    def run(state):
        path = rbd.rollout(sys, state, steps=steps, integrator=rbd.RK4(dt=1e-3)).value
        q, v = path.q[::50], path.v[::50]
        loops = jax.vmap(lambda q: jnp.max(jnp.abs(rbd.loop_error(sys, q).error)))(q)
        return jax.vmap(lambda q, v: rbd.energy(sys, q, v))(q, v), loops, jax.vmap(branch)(q)

    other = other_assembly(sys, q)
    E, loops, branches = run(rbd.State(jnp.stack([q, other]), jnp.stack([0.5 * v, 0.2 * v])))
    assert np.abs(E - E[:, :1]).max() < 1e-3 * np.abs(E[:, 0]).min()
    assert loops.max() < 1e-9
    assert (branches == branches[:, :1]).all() and branches[0, 0] != branches[1, 0]


def other_assembly(sys, q):
    """q with the first four-bar folded over: coupler and rocker mirrored at the line between their far
    ends.
    """
    from jaxrbd.clusters.closing import HostCluster
    from jaxrbd.tree.mechanism import clusters_of

    full = np.array(rbd.to_tree(sys, q))
    c = clusters_of(sys.topology)[0]
    host = HostCluster(sys.tree, c.bodies, [*c.implicit, *(r for r, _ in c.explicit)])
    at = [sys.tree.q_index(name).start for name in ("a0", "b0", "c0")]
    sign = lambda x: np.sign(np.cos(x[at[0]] + x[at[1]] - x[at[2]]))  # noqa: E731
    rng = np.random.default_rng(0)
    held = (sys.tree.v_index("a0").start,)
    while True:
        guess = full.copy()
        guess[at[1:]] = rng.uniform(-np.pi, np.pi, 2)
        found, error = host.close(guess, held)
        if error < 1e-12 and sign(found) != sign(full):
            return rbd.from_tree(sys, jnp.asarray(found))


def test_geared_pair_is_analytic():
    """A link and its rotor about one axis: a = tau / (I + N² I_r), and nothing else."""
    b = rbd.Builder("pair", gravity=(0, 0, 0))
    b.body("link", 1.0, inertia=(0.1, 0.2, 0.3))
    b.body("rotor", 0.5, inertia=(0.01, 0.02, 0.004))
    b.joint("j", "revolute", None, "link", axis=(0, 0, 1))
    b.joint("m", "revolute", None, "rotor", axis=(0, 0, 1))
    b.gear("g", {"m": 1, "j": -9})
    sys = rbd.cluster(b.build(dtype="float64"))
    a = rbd.forward_dynamics(sys, jnp.array([0.3]), jnp.array([2.0]), jnp.array([1.7]))
    np.testing.assert_allclose(a, [1.7 / (0.3 + 81 * 0.004)], rtol=1e-12)


@pytest.mark.all_robots
def test_inertias_of_a_geared_arm_are_identified():
    """Log-Cholesky coordinates of links and rotors from torques: Gauss-Newton through C-RNEA."""
    sys = cases.clustered("geared")
    q, v, a, _ = cases.states(sys, 60, seed=8)
    truth = rbd.log_cholesky(sys)
    rng = np.random.default_rng(9)
    theta = truth + 0.2 * jnp.asarray(rng.normal(size=truth.shape)) * jnp.array([1.0] * 4 + [0.05] * 6)
    torques = jax.vmap(rbd.inverse_dynamics, (None, 0, 0, 0))
    measured = torques(sys, q, v, a)
    lack = jax.jit(lambda theta: (torques(rbd.with_log_cholesky(sys, theta), q, v, a) - measured).ravel())
    slope = jax.jit(jax.jacrev(lack))
    first, last = np.abs(lack(theta)).max(), np.abs(lack(theta)).max()
    for _ in range(30):
        J = np.asarray(slope(theta)).reshape(len(lack(theta)), -1)
        # damped: not all parameters show in torques
        step = np.linalg.solve(
            J.T @ J + 1e-6 * np.trace(J.T @ J) / J.shape[1] * np.eye(J.shape[1]), J.T @ lack(theta)
        )
        theta = theta - jnp.asarray(step).reshape(theta.shape)
        last = np.abs(lack(theta)).max()
    assert first > 0.1 and last < 1e-6 * first
    found = rbd.with_log_cholesky(sys, theta)
    assert (np.linalg.eigvalsh(np.asarray(rbd.mass_matrix(found, q[0]))) > 0).all()


def test_couplings_with_one_leader_match_pinocchio():
    """rnea and crba of Pinocchio's mimic joints, on a geared chain written to URDF."""
    pin = pytest.importorskip("pinocchio")
    text = rbd.to_urdf(cases.geared(grounded=True).build(dtype="float64"))
    model = pin.buildModelFromXML(text, mimic=True)
    sys = rbd.load(text, dtype="float64", loops="cluster")
    sys = sys.replace(armature=0 * sys.armature)  # Pinocchio reads none
    assert model.nv == sys.nv
    data = model.createData()
    q, v, a, _ = cases.states(sys, 6)
    names = [j for j in sys.joint_names if j.startswith("j")]
    order = [model.joints[model.getJointId(name)].idx_v for name in names]
    mine = [sys.v_index(name).start for name in names]
    for i in range(6):
        x = np.zeros((3, model.nv))
        x[:, order] = np.stack([q[i], v[i], a[i]])[:, mine]
        tau = pin.rnea(model, data, *x)
        M = pin.crba(model, data, x[0])
        M = np.triu(M) + np.triu(M, 1).T
        close(rbd.inverse_dynamics(sys, q[i], v[i], a[i])[np.array(mine)], tau[order], 1e-10)
        close(np.asarray(rbd.mass_matrix(sys, q[i]))[np.ix_(mine, mine)], M[np.ix_(order, order)], 1e-10)


def test_redundant_rows_change_nothing():
    """The planar four-bar closed by a spatial hinge (5 rows of rank 2) and by a point."""
    hinge, point = (
        rbd.cluster(cases.four_bars(False, 1, kind).build(dtype="float64")) for kind in ("hinge", "connect")
    )
    q, v, tau, _ = cases.states(point, 4)
    run = lambda sys: jax.jit(jax.vmap(lambda q, v, t: rbd.forward_dynamics(sys, q, v, t)))(q, v, tau)  # noqa: E731
    close(run(hinge), run(point), 1e-9)


def test_own_relations():
    """An explicit γ and an implicit φ written by a user equal the built-in polynomial and gear."""
    tree = cases.tree("slider")
    t = tree.topology
    bare = rbd.build(
        rbd.describe(tree).replace(loops=tuple(x for x in rbd.describe(tree).loops if x.name != "curve")),
        dtype="float64",
    )
    curve = lambda x: 0.1 + 0.5 * x + 0.2 * x**2 - 0.1 * x**3  # noqa: E731
    gamma = rbd.cluster(rbd.loop_function(bare, "curve", curve, ["a"], follows=["c"]))
    phi = rbd.cluster(rbd.loop_function(bare, "curve", lambda x: x[1:] - curve(x[:1]), ["a", "c"]))
    sys = cases.clustered("slider")
    assert gamma.nq == sys.nq and phi.nq == sys.nq + 1 and t.loop_names
    q, v, tau, _ = cases.states(sys, 3)
    full = jax.vmap(lambda q: rbd.from_tree(phi, rbd.to_tree(sys, q)))(q)
    for other, x in ((gamma, q), (phi, full)):
        a = jax.jit(jax.vmap(lambda q, v, t, other=other: rbd.forward_dynamics(other, q, v, t)))(x, v, tau)
        b = jax.jit(jax.vmap(lambda q, v, t: rbd.forward_dynamics(sys, q, v, t)))(q, v, tau)
        close(a, b, 1e-9)


def test_a_system_without_loops_stays_itself():
    sys = rbd.zoo.quadruped()
    assert rbd.cluster(sys) is sys and sys.tree is sys


def test_indices_and_leaders():
    sys = cases.clustered("mixed")
    assert sys.v_index("a0") == slice(6, 7) and sys.nq == sys.tree.nq - 1
    with pytest.raises(rbd.ArgumentError, match="follows 'a0'"):
        sys.v_index("jr")
    with pytest.raises(rbd.ArgumentError, match="follows"):
        sys.q_index("jr")
    assert sys.q_index("ball").stop - sys.q_index("ball").start == 4


def test_bad_input_is_refused():
    b = cases.four_bars(False, 1)
    b.loop("far", "connect", "coupler0", None, pose_b=cases.place(9, 0, 0))
    with pytest.raises(rbd.ModelError, match="cannot be closed"):
        rbd.cluster(b.build())
    b = cases.four_bars(False, 1)
    b.gear("stuck", {"a0": 1, "b0": 1})
    with pytest.raises(rbd.ModelError, match=r"nothing can move|cannot be closed"):
        rbd.cluster(b.build())
    b = cases.four_bars(True, 1)
    b.loop("ground", "connect", "coupler0")
    with pytest.raises(rbd.ModelError, match="free joint 'root'"):
        rbd.cluster(b.build())
    tree = cases.tree("geared")
    with pytest.raises(rbd.ModelError, match="ratio is zero"):
        rbd.cluster(tree.replace(mimic_ratio=0 * tree.mimic_ratio))
    with pytest.raises(rbd.ModelError, match="mobility is 1"):
        rbd.cluster(cases.tree("four-bar by a hinge, free"), independent=["a0", "b0"])
    with pytest.raises(rbd.ArgumentError, match="no loop"):
        rbd.cluster(cases.tree("mixed"), independent=["ball"])
    for bad, follows in (
        (lambda x: x[0], []),
        (lambda x: x[:, None], []),
        (lambda x: x, ["j2"]),
        (jnp.dot, []),
    ):
        with pytest.raises(rbd.ModelError, match="the function"):
            rbd.loop_function(tree, "f", bad, ["j0", "j1"], follows=follows)


def test_a_loop_that_fails_to_close_is_flagged():
    """Two linkages side by side, one with a coupler that is too short: flagged there, finite everywhere."""
    sys = cases.clustered("four-bar by a hinge, free")
    many = sys.replace(loop_position=jnp.stack([sys.loop_position, 0.1 * sys.loop_position]))
    found = jax.jit(jax.vmap(lambda s: rbd.close_loops(s, sys.q0), in_axes=(many.in_axes,)))(many)
    assert found.result[0] == rbd.Result.converged and found.stats.error[0] < 1e-12
    assert found.result[1] == rbd.Result.not_converged and np.isfinite(found.value).all()
    a = jax.vmap(lambda s, q: rbd.forward_dynamics(s, q, jnp.ones(s.nv), jnp.ones(s.nv)), (many.in_axes, 0))
    assert np.isfinite(jax.jit(a)(many, found.value)).all()


# --- constraints on clusters --------------------------------------------------------------------------------

SOLVERS = (rbd.ConstrainedABA, rbd.ProxPV, rbd.ProxLTL, rbd.ProxLTLs, rbd.Dense, rbd.Classic)


@pytest.fixture(scope="module")
def held():
    """A body inside a cluster tied to the world at a point, and an outer one by a rod."""
    sys = cases.clustered("mixed")
    q, v, tau, f = (x[0] for x in cases.states(sys, 1, seed=4))
    rows = con.combine(
        con.connect(sys, "coupler0", offset=(0.1, 0.02, 0.1), q=q),
        con.distance(sys, "tip", length=0.7, anchor=(0.1, 0.2, 0.3)),
    )
    return sys, rows, (q, v, tau, f)


def dense_answer(sys, rows, q, v, tau, f):
    M, b = rbd.mass_matrix(sys, q), rbd.inverse_dynamics(sys, q, v, jnp.zeros(sys.nv), f)
    J = con.constraint_jacobian(sys, rows, q)
    c = con.constraint_target(sys, rows, q, v) - con.constraint_acceleration(sys, rows, q, v)
    kkt = jnp.block([[M, -J.T], [J, jnp.zeros((len(J), len(J)))]])
    return jnp.linalg.solve(kkt, jnp.concatenate([tau - b, c]))


@pytest.mark.parametrize(
    "solver",
    [rbd.ConstrainedABA, *(pytest.param(s, marks=pytest.mark.all_robots) for s in SOLVERS[1:])],
    ids=lambda s: s.__name__,
)
def test_solvers_on_clusters_equal_a_dense_solve(solver, held):
    sys, rows, state = held

    def mine(q, v, tau):
        s = rbd.constrained_dynamics(sys, q, v, tau, rows, solver(), state[3])
        return jnp.concatenate([s.value.a, s.value.lam]), s.result

    @jax.jit
    def both(q, v, tau):
        d = (q * 0.1, v, tau)
        other = lambda q, v, tau: dense_answer(sys, rows, q, v, tau, state[3])  # noqa: E731
        found, dfound, result = jax.jvp(mine, (q, v, tau), d, has_aux=True)
        weigh = jnp.arange(1.0, len(found) + 1)
        back = jax.grad(lambda tau: weigh @ mine(q, v, tau)[0])(tau)
        return (
            (found, dfound, back),
            (
                *jax.jvp(other, (q, v, tau), d),
                jax.grad(lambda tau: weigh @ other(q, v, tau))(tau),
            ),
            result,
        )

    mine_all, others, result = both(*state[:3])
    assert result == rbd.Result.converged
    for x, y in zip(mine_all, others):
        close(x, y, 1e-9)


def test_inverse_osim_by_force_propagators(held):
    """C-EFPA: J M^-1 Jᵀ; a test force along one row accelerates the others by its column."""
    sys, rows, (q, _, _, _) = held

    @jax.jit
    def found(q):
        J, M = con.constraint_jacobian(sys, rows, q), rbd.mass_matrix(sys, q)
        floating = sys.replace(gravity=jnp.zeros(3))
        still = jnp.zeros(sys.nv)
        push = J @ rbd.forward_dynamics(floating, q, still, J[1])
        return (
            con.delassus_matrix(sys, rows, q),
            J @ jnp.linalg.solve(M, J.T),
            push,
            con.delassus_inverse(sys, rows, q, 1e3),
        )

    omega, other, push, inverse = found(q)
    close(omega, other, 1e-10)
    close(omega[:, 1], push, 1e-10)
    close(inverse @ (omega + np.eye(len(omega)) / 1e3), np.eye(len(omega)), 1e-8)


def test_projection_and_impact_on_clusters(held):
    sys, rows, (q, v, _, _) = held
    rows = con.connect(sys, "coupler0", offset=(0.1, 0.02, 0.1), q=q)
    found = jax.jit(lambda q, v: rbd.project(sys, rows, rbd.integrate(sys, q, 0.05 * v), v))(q, v)
    assert found.result == rbd.Result.converged
    assert np.abs(rbd.loop_error(sys, found.value.q).error).max() < 1e-9
    hit = jax.jit(lambda q, v: rbd.impulse_dynamics(sys, q, v, rows))(q, v)
    assert np.abs(con.constraint_velocity(sys, rows, q, hit.value.v)).max() < 1e-9
    with pytest.raises(rbd.ArgumentError, match="hold already"):
        con.of_model(sys)
