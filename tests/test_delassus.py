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
from jaxrbd.constraints.delassus import INVERSES, MATRICES

STATES = 3
SOLE = [(0.1, 0.05, 0), (0.1, -0.05, 0), (-0.1, 0.05, 0), (-0.1, -0.05, 0)]


def arm():
    sys = rbd.zoo.arm7()
    return sys, weld(sys, "tool")


def quadruped():
    sys = rbd.zoo.quadruped()
    return sys, combine(*(connect(sys, f"{leg}_foot") for leg in ("FL", "FR", "RL", "RR")))


def humanoid():
    """Hands and feet, many rows on one body, nested ones, one on the base; weights differ."""
    sys = rbd.zoo.humanoid()
    nested = [
        connect(sys, "left_sole"),
        connect(sys, "left_shank"),
        connect(sys, "left_thigh", offset=(0.1, 0, 0)),
    ]
    hands = [weld(sys, "left_palm", weight=3.0), connect(sys, "right_palm")]
    return sys, combine(
        *nested, *hands, *(connect(sys, "right_sole", offset=p) for p in SOLE), connect(sys, "pelvis")
    )


def forest():
    """An arm on the ground and a free body beside it, with a loop between them."""
    sys = rbd.combine(rbd.zoo.describe("arm7"), rbd.zoo.describe("quadruped"))
    names = sys.frame_names
    tool = next(n for n in names if n.endswith("tool"))
    feet = [n for n in names if n.endswith("_foot")]
    return sys, combine(connect(sys, feet[0]), connect(sys, feet[1], tool), connect(sys, tool))


def tree():
    sys = rbd.zoo.binary_tree(3)
    return sys, combine(*(connect(sys, f"tip{k}") for k in range(4)), connect(sys, "link1_1"))


def loops():
    """Loops within a branch and between branches, a coupling, and rows on one body."""
    sys = rbd.zoo.humanoid()
    pair = [j for j, kind in zip(sys.joint_names, sys.joint_types) if kind == "revolute"][3:6]
    return sys, combine(
        weld(sys, "left_sole"),
        connect(sys, "left_palm", "right_palm"),
        connect(sys, "right_sole", "right_thigh"),
        coupling(sys, pair[0], pair[2], ratio=0.5),
    )


CASES = {f.__name__: f for f in (arm, quadruped, humanoid, forest, tree, loops)}


@functools.cache
def case(name):
    """The System, constraints, a few configurations, and J, M, J M^-1 Jᵀ and the weights in NumPy."""
    sys, con = CASES[name]()
    q = robots.random_states(sys, STATES)[0]
    J = np.asarray(jax.vmap(lambda q: constraint_jacobian(sys, con, q))(q))
    M = np.asarray(jax.vmap(lambda q: rbd.mass_matrix(sys, q))(q))
    weight = np.repeat(np.asarray(con.weight), [e.rows for e in con.entries])
    return sys, con, q, J, M, J @ np.linalg.solve(M, J.transpose(0, 2, 1)), weight


@pytest.mark.parametrize("name", CASES)
def test_every_algorithm_gives_the_delassus_matrix_and_its_damped_inverse(name):
    sys, con, q, _, _, D, weight = case(name)
    inverses = list(INVERSES) if name == "arm" else ["caba", "cabaf", "pvf"]

    def all_of_them(q, mu):
        matrices = {a: delassus_matrix(sys, con, q, a) for a in MATRICES}
        return matrices, {a: delassus_inverse(sys, con, q, mu, a) for a in inverses}

    run = jax.jit(jax.vmap(jax.vmap(all_of_them, (0, None)), (None, 0)))
    matrices, damped = run(q, np.array([1e3, 1e6]))
    for algorithm, x in matrices.items():
        assert robots.relative_error(x[0], D) < 1e-10, algorithm
    for k, (mu, tolerance) in enumerate([(1e3, 1e-10), (1e6, 1e-7)]):
        Lambda = np.linalg.inv(D + np.diag(1 / (mu * weight)))
        for algorithm, x in damped.items():
            assert robots.relative_error(x[k], Lambda) < tolerance, (algorithm, mu)


@pytest.mark.parametrize("name", ["quadruped", "loops"])
def test_kkt_factor_and_operator(name):
    sys, con, q, J, M, D, weight = case(name)
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
            "apply": operator.apply(c),
            "damped": operator.solve(c),
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
        "apply": (D @ c[..., None])[..., 0],
        "damped": np.linalg.solve(D + damping, c[..., None])[..., 0],
    }
    expected["once"] = expected["damped"]
    for what, reference in expected.items():
        assert robots.relative_error(ours[what], reference) < (1e-9 if what == "once" else 1e-11), what


def test_operator_at_a_large_penalty():
    """Refinement gives back the digits that Eq. 40 loses."""
    sys, con, q, _, _, D, _ = case("quadruped")
    b = np.random.default_rng(2).standard_normal((STATES, con.rows))
    ours = jax.vmap(lambda q, b: delassus_operator(sys, con, q, 1e6).solve(b))(q, b)
    expected = np.linalg.solve(D + np.eye(con.rows) / 1e6, b[..., None])[..., 0]
    assert robots.relative_error(ours, expected) < 1e-11


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
    datas = pin.StdVec_RigidConstraintData()
    for contact in contacts:
        datas.append(contact.createData())
    pin.crba(model, data, twin.q(q), pin.Convention.WORLD)
    cholesky = pin.ContactCholeskyDecomposition(model, contacts)
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
    """Of several of them at once, by q and by mu, against central differences."""
    sys = rbd.zoo.binary_tree(2, 2)
    con = combine(connect(sys, "tip0"), connect(sys, "tip1"), connect(sys, "link0_1", offset=(0.1, 0, 0.2)))
    rng = np.random.default_rng(3)
    W, b = rng.standard_normal((9, 9)), rng.standard_normal(9)

    def loss(x):
        q, mu = x[:-1], x[-1]
        matrix = delassus_matrix(sys, con, q, "pvr") + 0.1 * delassus_matrix(sys, con, q, "efpa")
        damped = delassus_inverse(sys, con, q, mu, "caba")
        return jnp.sum(W * (matrix + damped)) + b @ delassus_operator(sys, con, q, mu).solve(b)

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
