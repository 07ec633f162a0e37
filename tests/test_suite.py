"""The benchmark suite of [LOOPS]: systems against Table II, samples, metrics, verdicts, profiles."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from benchmarks.loops_suite import orderings
from benchmarks.loops_suite.measure import Record, judge
from benchmarks.loops_suite.metrics import metrics, profile
from benchmarks.loops_suite.samples import DT, Former, Sample, classes_of, closed, groups, rank_of, wanted
from benchmarks.loops_suite.solvers import solvers
from benchmarks.loops_suite.systems import TABLE, Counts, does_not_close, mechanism
from jaxrbd import constraints as con

OFF = {  # where the table does not close, or counts a base's freedoms in one line and not in the other
    "Box-on-Plane": {"passive"},
    "Boxes-Fixed": {"passive"},
    "Nunchuk": {"passive"},
    "Fourbar (fixed)": {"dofs", "passive"},
    "Fourbar (free)": {"dofs", "passive"},
    "Arm7D": {"joints"},
    "BDX": {"dofs"},
    "Gazelle": {"dofs", "passive"},
    "IronMan": {"dofs", "passive"},
}


@pytest.mark.parametrize("name", TABLE)
def test_counts_are_those_of_table_ii(name):
    ours, table = mechanism(name).counts(), TABLE[name]
    off = {k for k in Counts._fields if k != "ratio" and getattr(ours, k) != getattr(table, k)}
    assert off == OFF.get(name, set())
    assert ours.ratio == pytest.approx(table.ratio, rel=1e-12)
    assert all(k in does_not_close(name) for k in off)


def test_stand_ins_are_the_same_every_time():
    for name in ("Walker", "IronMan"):
        a, b = mechanism(name), mechanism(name)
        assert a.tree[0].name == b.tree[0].name
        assert [x.mass for x in a.bodies] == [x.mass for x in b.bodies]
        np.testing.assert_array_equal([x.point for x in a.joints], [x.point for x in b.joints])
        assert {x.name for x in a.tree}.isdisjoint(x.name for x in a.closing)
        assert set(a.actuated) <= {j.name for j in a.joints if j.kind == "revolute"}


def test_four_bars_close():
    """Pivots keep their distances, and rates are the derivatives of angles."""
    turn = lambda a, x: np.array([np.cos(a) * x[0] + np.sin(a) * x[2], -np.sin(a) * x[0] + np.cos(a) * x[2]])  # noqa: E731
    for name in ("Fourbar (free)", "Gazelle"):
        for bar in mechanism(name).bars:
            p, h = bar.pivots, 1e-6
            for theta in (-0.9, 0.0, 0.4, 1.1):
                (coupler, rocker), rates = closed(bar, theta, 0.7)
                elbow = p[0, [0, 2]] + turn(theta, p[1] - p[0])
                tip = elbow + turn(theta + coupler, p[2] - p[1])
                assert np.abs(tip - (p[3, [0, 2]] + turn(rocker, p[2] - p[3]))).max() < 1e-14
                ahead, behind = (closed(bar, theta + s * h, 0)[0] for s in (1, -1))
                np.testing.assert_allclose(rates, 0.7 * (ahead - behind) / (2 * h), atol=1e-8)


def test_classes_of_samples():
    """VII-C, by hand: a box on four corners, a four-bar, an arm."""
    assert classes_of(1, 0, 0, 0, 1) == {"single contact"}
    assert classes_of(1, 0, 0, 0, 2) == {"sparse contacts"}
    assert classes_of(1, 0, 0, 0, 4) == {"dense contacts"}
    assert classes_of(4, 4, 20, 17, 0) == {"redundant joints"}
    assert classes_of(4, 5, 26, 23, 0) == {"dense joints"}
    assert classes_of(8, 8, 41, 41, 0) == {"independent joints"}
    assert classes_of(8, 8, 41, 41, 3) == {"sparse contacts", "dense constraints"}
    for name in TABLE:
        m = mechanism(name)
        for group in groups(m, 200):
            for kind, n in group.items():
                ranks = (m.counts().rows, m.counts().rows - 1)
                met = set().union(*(classes_of(len(m.bodies), len(m.joints), r[0], r[1], n) for r in
                                    ((ranks[0], ranks[0]), ranks)))  # fmt: skip
                assert kind in met or kind == "joints"
    assert "dense contacts" not in wanted(mechanism("IronMan"), 200)


@pytest.fixture(scope="module")
def fourbar():
    m = mechanism("Fourbar (free)")
    former = Former(m, 4)
    return former, former.samples([wanted(m, 0)], 2)[0]


def check_former(former: Former):
    """States are closed, D is J M^-1 Jᵀ, and v_f by differences of J v along a free step."""
    (D, v_f, Q, V), _, gap = former.draw(2)
    free, rows, n = former.cut.system, former.cut.constraints, sum(former.joints)

    @jax.jit
    @jax.vmap
    def at(Q, V):
        J = con.constraint_jacobian(free, rows, Q)
        M = rbd.mass_matrix(free, Q)
        return con.constraint_error(free, rows, Q), J @ V, J @ jnp.linalg.solve(M, J.T), J

    error, rate, dense, J = (np.asarray(x) for x in at(Q, V))
    assert n == former.m.counts().rows == J.shape[1]
    assert np.abs(error).max() < 1e-13
    assert np.abs(rate).max() < 1e-12
    assert np.abs(D[:, :n, :n] - dense).max() < 1e-10 * np.abs(dense).max()
    assert [rank_of(d[:n, :n]) for d in D] == [np.linalg.matrix_rank(j) for j in J]
    assert np.abs(D - np.swapaxes(D, 1, 2)).max() == 0
    assert np.abs(v_f[:, :n]).max() < 1  # dt (J a + J̇ v): gravity and spins in 2 ms
    assert np.isfinite(v_f).all()
    assert (np.abs(gap) <= 1e-3).all()
    return [rank_of(d[:n, :n]) for d in D]


def test_problems_of_a_four_bar(fourbar):
    assert check_former(fourbar[0]) == [17, 17]  # 20 rows, three redundant
    kinds = [s.kind for s in fourbar[1]]
    assert kinds == [k for k in ("redundant joints", "single contact", "sparse contacts", "dense constraints")
                     for _ in range(2)]  # fmt: skip
    last = fourbar[1][-1]
    assert last.densities() == (20 / 24, 9 / 24, 29 / 24)
    assert last.conditioning()[0] <= 24
    empty = last.D[last.rows :]
    assert (empty[:, : last.rows] == 0).all()


@pytest.mark.all_robots
@pytest.mark.parametrize("name", [n for n in TABLE if mechanism(n).joints])
def test_problems_of_every_system(name):
    check_former(Former(mechanism(name), 1))


def block(lam, kind="single contact") -> tuple[Sample, np.ndarray]:
    """2 kg that slides at 1 m/s and would fall at 0.02 m/s; μ = 0.5."""
    s = Sample("block", kind, (), np.eye(3) / 2, np.array([1.0, 0.0, -0.02]), np.array([0.5]), np.zeros(1),
               1, 1, 0)  # fmt: skip
    return s, np.array(lam)


def test_metrics_by_hand():
    s, lam = block([-0.02, 0.0, 0.04])  # friction is μ times 0.04 N s, against the motion
    m = metrics(s, lam)
    assert max(m.dual, m.complementarity, m.natural, m.ncp, m.penetration) < 1e-15
    assert m.sliding == pytest.approx(0.99)
    assert m.ccp == pytest.approx(0.5 * 0.99 / 1.25)  # the relaxation would lift it off
    s, lam = block([0.0, 0.0, 0.0])
    m = metrics(s, lam)  # v̂ = (1, 0, -0.02 + 0.5) is outside of K* = {μ |v_T| ≤ v_N}: the block falls
    assert m.dual == pytest.approx(0.02 / 1.25)
    assert m.complementarity == 0
    assert m.penetration == pytest.approx(0.02 * DT)
    s, lam = block([0.0, 0.0, 0.04])  # no friction: λ·v̂ = 0.04 · 0.5 · 1
    m = metrics(s, lam)
    assert m.complementarity == pytest.approx(0.02)
    assert m.rows["complementarity"] == 2


def run_all(group, names, precision="float64") -> list[Record]:
    made = solvers(1e-4, 300)
    return [r for n in names for r in judge(group, n, made[n], precision)]


def check_records(records):
    assert not [r for r in records if r.wrong]
    assert any(r.converged for r in records)
    assert any(not r.converged for r in records)
    doctored = replace(next(r for r in records if not r.converged and r.own > 1e-3), converged=True)
    assert doctored.wrong  # so that the count can fail


def test_no_answer_says_converged_without_reason(fourbar):
    records = run_all(fourbar[1], ("PGS-CCP", "NBGS exact", "ADMM-NCP-SA"))
    check_records(records)
    found = {c["what"]: c for c in orderings.check(records)}
    assert found["solved CCPs that slide break the NCP's complementarity (not its dual residual)"]["holds"]
    assert set(orderings.HELD) & set(found)
    first = next(c for c in found.values() if c["what"] in orderings.HELD and c["holds"])
    assert orderings.lost([{**first, "holds": False}]) == [first["what"]]
    joints = [r for r in records if r.sample.kind == "redundant joints"]
    assert all(r.solved for r in joints if r.solver == "ADMM-NCP-SA")


@pytest.mark.all_robots
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_all_solvers_on_a_four_bar(fourbar, precision):
    check_records(run_all(fourbar[1], tuple(solvers(1e-4, 1)), precision))


def test_profiles_by_hand():
    """Three problems, two solvers: A needs 1, 2, -; B needs 2, 1, 4; the third is solved by B alone."""
    costs = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 4.0]])
    solved = np.array([[True, True], [True, True], [False, True]])
    tau, rho = profile(costs, solved)
    np.testing.assert_array_equal(tau, [1, 2])
    np.testing.assert_allclose(rho, [[1 / 3, 2 / 3], [2 / 3, 1]])
    tau, rho = profile(costs, np.zeros_like(solved))  # nobody solves anything
    np.testing.assert_array_equal(rho, [[0], [0]])
    # with a floor of 2: 1 becomes 1.5
    tau, rho = profile(costs, solved, floor=2.0)
    np.testing.assert_allclose(tau, [1, 4 / 3])
    np.testing.assert_allclose(rho, [[1 / 3, 2 / 3], [2 / 3, 1]])
