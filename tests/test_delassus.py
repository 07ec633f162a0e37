"""The Delassus family, the KKT factor and the matrix-free operator, against dense NumPy and Pinocchio."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
import robots

import jaxrbd as rbd
from benchmarks import constrained_counts as counts
from jaxrbd.constraints import (
    combine,
    connect,
    constraint_jacobian,
    coupling,
    delassus_inverse,
    delassus_matrix,
    delassus_operator,
    kkt_factor,
    weld,
)
from jaxrbd.constraints.delassus import INVERSES, MATRICES, refined, still_task
from jaxrbd.tree.kernels import kernel

STATES = 3
# The aim is 1e-7 at mu = 1e6. Articulated inertias that carry mu miss it on the binary tree, whose links
# weigh 0.6 kg: 4e-11 to 5e-6 measured, worst where a joint's axis nearly passes through a held point, so
# that D = S·I·S is a small difference of numbers of size mu. Eq. 40 on a dense Cholesky factor has 1e-9
# there, pvf, which does not augment, 1e-15, and one refinement of caba keeps the 1e-7.
TREE_AT_1e6 = 1e-5
SOLE = [(0.1, 0.05, 0), (0.1, -0.05, 0), (-0.1, 0.05, 0), (-0.1, -0.05, 0)]


def arm():
    sys = rbd.zoo.arm7()
    return sys, weld(sys, "tool")


def quadruped():
    sys = rbd.zoo.quadruped()
    return sys, combine(*(connect(sys, f"{leg}_foot") for leg in ("FL", "FR", "RL", "RR")))


def forest():
    """Four robots side by side, which compile as fast as one: rows of each are a block of the matrices.

    Hands and feet, many rows on one body, nested ones, one on a base; weights differ.
    """
    models = [rbd.zoo.arm7(), rbd.zoo.quadruped(), rbd.zoo.humanoid(), rbd.zoo.binary_tree(3)]
    sys = rbd.combine(*models, names=["arm", "dog", "man", "tree"])
    feet = [connect(sys, f"dog/{leg}_foot") for leg in ("FL", "FR", "RL", "RR")]
    man = [connect(sys, f"man/left_{link}") for link in ("sole", "shank", "thigh")]
    man += [
        weld(sys, "man/left_palm", weight=3.0),
        connect(sys, "man/right_palm"),
        connect(sys, "man/pelvis"),
    ]
    man += [connect(sys, "man/right_sole", offset=p) for p in SOLE]
    tree = [connect(sys, f"tree/tip{k}") for k in range(4)] + [connect(sys, "tree/link1_1")]
    return sys, combine(weld(sys, "arm/tool"), *feet, *man, *tree)


def loops():
    """Loops within a branch, between branches and between trees, a coupling, and rows on one body."""
    sys = rbd.combine(rbd.zoo.arm7(), rbd.zoo.humanoid(), names=["arm", "man"])
    joints = [j for j, kind in zip(sys.joint_names, sys.joint_types) if kind == "revolute" and "man" in j]
    return sys, combine(
        weld(sys, "man/left_sole"),
        connect(sys, "man/right_sole", "man/right_thigh"),
        connect(sys, "man/left_palm", "man/right_palm"),
        connect(sys, "arm/tool", "man/left_palm"),
        coupling(sys, joints[3], joints[5], ratio=0.5),
    )


CASES = {f.__name__: f for f in (arm, quadruped, forest, loops)}


@functools.cache
def case(name):
    """The System, constraints, a few configurations, and J, M, J M^-1 Jᵀ and the weights in NumPy."""
    sys, con = CASES[name]()
    q = robots.random_states(sys, STATES)[0]
    J = np.asarray(jax.vmap(lambda q: constraint_jacobian(sys, con, q))(q))
    M = np.asarray(jax.vmap(lambda q: rbd.mass_matrix(sys, q))(q))
    weight = np.asarray(con.weight)
    return sys, con, q, J, M, J @ np.linalg.solve(M, J.transpose(0, 2, 1)), weight


def shapes(sys, con, *_):
    return dict.fromkeys((*MATRICES, "caba", "cabaf", "pvf", "caba refined"), (con.rows, con.rows))


@kernel(shapes)
def all_algorithms(sys, con, q, mu):
    """One kernel, so that what they share is compiled once."""
    task = still_task(sys, con, q, mu)
    inverses = {a: INVERSES[a](task) for a in ("caba", "cabaf", "pvf")}
    inverses["caba refined"] = refined(task, inverses["caba"], 1)
    return {a: f(task) for a, f in MATRICES.items()} | inverses


def blocks(con):
    """Rows of one robot: names before the slash."""
    owner = np.repeat([n.split("/")[0] if "/" in n else "" for n in con.names], [e.rows for e in con.entries])
    return [np.flatnonzero(owner == name) for name in dict.fromkeys(owner)]


@pytest.mark.parametrize("name", [pytest.param("arm", marks=pytest.mark.all_robots), "forest", "loops"])
def test_every_algorithm_gives_the_delassus_matrix_and_its_damped_inverse(name):
    sys, con, q, _, _, D, weight = case(name)
    run = jax.jit(jax.vmap(lambda q, mu: all_algorithms(sys, con, q, mu)))
    both = run(np.concatenate([q, q]), np.repeat([1e3, 1e6], STATES))
    separate = blocks(con) if name == "forest" else [np.arange(con.rows)]
    con_of_row = np.repeat(np.arange(len(con.names)), [e.rows for e in con.entries])
    for k, (mu, tolerance) in enumerate([(1e3, 1e-10), (1e6, 1e-7)]):
        Lambda = np.linalg.inv(D + np.diag(1 / (mu * weight)))
        for algorithm, x in both.items():
            x = np.asarray(x)[k * STATES : (k + 1) * STATES]
            expected, bound = (D, 1e-10) if algorithm in MATRICES else (Lambda, tolerance)
            for rows in separate:
                light = "tree" in con.names[con_of_row[rows[0]]] and algorithm in ("caba", "cabaf")
                most = TREE_AT_1e6 if light and mu == 1e6 else bound
                others = np.setdiff1d(np.arange(con.rows), rows)
                pick = lambda y, j=rows, i=rows: y[:, i][:, :, j]  # noqa: E731
                assert robots.relative_error(pick(x), pick(expected)) < most, (algorithm, mu, rows)
                assert name != "forest" or not pick(x, others).any(), "robots do not touch each other"


def test_public_functions():
    """Without jit and under vmap; the inverse by Cholesky of another algorithm's matrix."""
    sys, con, q, _, _, D, _ = case("arm")
    ours = jax.vmap(lambda q: delassus_matrix(sys, con, q))(q)
    assert robots.relative_error(ours, D) < 1e-10
    for algorithm, refinements in (("pvr", 0), ("caba", 1)):
        ours = delassus_inverse(sys, [con], q[0], 1e3, algorithm, refinements)
        assert robots.relative_error(ours[None], np.linalg.inv(D[:1] + np.eye(6) / 1e3)) < 1e-10


def test_kkt_factor_and_operator():
    sys, con, q, J, M, D, weight = case("loops")
    mu, nv, m = 1e3, sys.nv, con.rows
    rng = np.random.default_rng(1)
    f, c = rng.standard_normal((STATES, nv)), rng.standard_normal((STATES, m))

    def run(q, f, c):
        K, operator = kkt_factor(sys, con, q, mu), delassus_operator(sys, con, q, mu)
        return {
            "solve": jnp.concatenate(K.solve(f, c)),
            "M^-1": K.mass_matrix_inverse(),
            "Lambda": K.delassus_inverse(),
            "Lambda J M^-1": K.weighted_pseudoinverse(),
            "constrained": K.constrained_inverse(),
            "once": operator.solve(c, refinements=0),
        }

    ours = jax.jit(jax.vmap(run))(q, f, c)
    damping = np.diag(1 / (mu * weight))
    K = np.block([[-np.broadcast_to(damping, D.shape), J], [J.transpose(0, 2, 1), M]])
    inverse = np.linalg.inv(K)
    x = np.linalg.solve(K, np.concatenate([c, f], 1)[..., None])[..., 0]
    expected = {
        "solve": np.concatenate([x[:, m:], -x[:, :m]], 1),
        "M^-1": np.linalg.inv(M),
        "Lambda": -inverse[:, :m, :m],
        "Lambda J M^-1": inverse[:, :m, m:],
        "constrained": inverse[:, m:, m:],
        "once": np.linalg.solve(D + damping, c[..., None])[..., 0],
    }
    for what, reference in expected.items():
        assert robots.relative_error(ours[what], reference) < (1e-9 if what == "once" else 1e-11), what


@pytest.mark.parametrize("algorithm", ["caba", "pvr"])
def test_operators_answer_alike(algorithm):
    """One protocol, with the matrix and without: products, damped solves, diagonal, matrix."""
    sys, con, q, _, _, D, weight = case("loops")
    x = np.random.default_rng(2).standard_normal((STATES, con.rows))

    def run(q, x):
        operator = delassus_operator(sys, con, q, 1e3, algorithm)
        assert operator.shape == (con.rows, con.rows)
        return operator.apply(x), operator.solve(x), operator.diagonal(), operator.dense()

    ours = jax.jit(jax.vmap(run))(q, x)
    damped = D + np.diag(1 / (1e3 * weight))
    expected = [
        (D @ x[..., None])[..., 0],
        np.linalg.solve(damped, x[..., None])[..., 0],
        np.diagonal(D, axis1=1, axis2=2),
        D,
    ]
    for mine, reference in zip(ours, expected, strict=True):
        assert robots.relative_error(mine, reference) < 1e-11
    with pytest.raises(rbd.ArgumentError, match="algorithm is 'pvx', expected one of 'caba'"):
        delassus_operator(sys, con, q[0], algorithm="pvx")


def test_against_pinocchio():
    """ContactCholeskyDecomposition, whose mu is ours inverted, and whose rows have the other sign."""
    sys, model = robots.load(robots.SOLO12, "free"), robots.pinocchio_model(robots.SOLO12, "free")
    twin, data = robots.Twin(sys, model), model.createData()
    frames = ["FL_FOOT", "HR_FOOT"]
    q, mu = robots.random_states(sys, 1)[0][0], 1e4
    contacts = pin.StdVec_RigidConstraintModel()
    for name in frames:
        frame = model.frames[model.getFrameId(name)]
        contacts.append(
            pin.RigidConstraintModel(
                pin.ContactType.CONTACT_3D,
                model,
                frame.parentJoint,
                frame.placement,
                pin.ReferenceFrame.LOCAL_WORLD_ALIGNED,
            )
        )
    pin.computeJointJacobians(model, data, twin.q(q))
    pin.crba(model, data, twin.q(q), pin.Convention.WORLD)
    datas = pin.StdVec_RigidConstraintData()
    for contact in contacts:
        datas.append(contact.createData())
        contact.calc(model, data, datas[-1])
    cholesky = pin.ContactCholeskyDecomposition(model, data, contacts, datas)
    cholesky.compute(model, data, contacts, datas, 1 / mu)
    con = combine(*(connect(sys, name) for name in frames))
    K = kkt_factor(sys, con, q, mu)
    expected = cholesky.getOperationalSpaceInertiaMatrix()
    assert robots.relative_error(K.delassus_inverse()[None], expected[None]) < 1e-10
    inverse = cholesky.inverse()
    T, _ = twin.transform(q, np.zeros(sys.nv))
    mine, theirs = K.constrained_inverse(), T.T @ inverse[con.rows :, con.rows :] @ T
    assert robots.relative_error(mine[None], theirs[None]) < 1e-10


def test_gradients():
    """Of cABA-OSIM by q and by mu, nested rows included, against central differences."""
    sys = rbd.zoo.binary_tree(2, 2)
    con = combine(connect(sys, "tip0"), connect(sys, "tip1"), connect(sys, "link0_1", offset=(0.1, 0, 0.2)))
    rng = np.random.default_rng(3)
    W, b = rng.standard_normal((2, 9))

    def loss(x):
        q, mu = x[:-1], x[-1]
        return b @ delassus_inverse(sys, con, q, mu, "caba") @ W

    x = np.concatenate([rng.uniform(-1, 1, sys.nq), [10.0]])
    step = 1e-5 * np.eye(len(x))
    values = np.asarray(jax.jit(jax.vmap(loss))(np.concatenate([x + step, x - step])))
    expected = (values[: len(x)] - values[len(x) :]) / 2e-5
    gradient = jax.jit(jax.grad(loss))(x)
    assert robots.relative_error(gradient[None], expected[None]) < 1e-6


def test_bad_input():
    sys, con = arm()
    q = rbd.neutral(sys)
    with pytest.raises(rbd.ArgumentError, match="algorithm is 'cholesky', expected one of 'ltl'"):
        delassus_matrix(sys, con, q, "cholesky")
    with pytest.raises(rbd.ArgumentError, match="algorithm is 'cabafast'.*'cabaf'"):
        delassus_inverse(sys, con, q, 1e6, "cabafast")
    with pytest.raises(rbd.ArgumentError, match="refinements is -1, expected 0, 1, 2"):
        delassus_inverse(sys, con, q, 1e6, refinements=-1)
    for make in (lambda mu: delassus_inverse(sys, con, q, mu), *(
        lambda mu, f=f: f(sys, con, q, mu) for f in (kkt_factor, delassus_operator)
    )):  # fmt: skip
        for mu in (0.0, -1.0, np.nan):
            with pytest.raises(rbd.ArgumentError, match="mu is .*expected a positive penalty such as 1e6"):
                make(mu)
    with pytest.raises(rbd.ArgumentError, match="constraint .* made for another System"):
        delassus_matrix(rbd.zoo.double_pendulum(), con, np.zeros(2))
    with pytest.raises(rbd.ArgumentError, match="x has shape .5,., expected .m,. = .6,."):
        delassus_operator(sys, con, q).apply(np.zeros(5))


def test_float32():
    sys, con, q, _, _, D, _ = case("quadruped")
    single, con32 = robots.cast(sys, np.float32), robots.cast(con, np.float32)
    ours = jax.vmap(lambda q: delassus_matrix(single, con32, q, "pvr"))(q.astype(np.float32))
    assert ours.dtype == np.float32
    assert robots.relative_error(ours, D) < 1e-4


def test_operation_counts():
    """[CABA]: ConstrainedABA is linear in links and rows, ProxLTL is not; cABA-OSIM is quadratic in rows."""
    chains = [counts.chain_with_weld(n) for n in (10, 40)]
    power = lambda solver: counts.exponent((10, 40), [counts.dynamics_count(*x, solver, 3) for x in chains])  # noqa: E731
    assert power(rbd.ConstrainedABA) <= 1.15 < 1.4 < power(rbd.ProxLTL)
    trees = [counts.tree_with_points(depth) for depth in (2, 4)]
    grown = [counts.dynamics_count(*x, rbd.ConstrainedABA, 3) for x in trees]
    assert counts.exponent([con.rows for _, con in trees], grown) <= 1.15
    assert counts.third_difference(16, range(2, 7))[1] == [0, 0]


def test_refinement_restores_what_rows_of_the_base_cost_pvf():
    """A weld of the trunk moves with the free base alone: L_1 is zero, and its damped inverse is mu."""
    sys = rbd.zoo.quadruped()
    con = combine(weld(sys, "trunk"), connect(sys, "FL_foot"))
    q = robots.random_states(sys, 1)[0][0]
    J = np.asarray(constraint_jacobian(sys, con, q))
    M = np.asarray(rbd.mass_matrix(sys, q))
    exact = np.linalg.inv(J @ np.linalg.solve(M, J.T) + np.eye(con.rows) / 1e6)
    found = lambda *how: robots.relative_error(delassus_inverse(sys, con, q, 1e6, *how), exact)  # noqa: E731
    assert found("ltl") < 1e-11 and found("pvf", 1) < 1e-11
    assert 1e-11 < found("pvf") < 1e-7  # as documented
