"""[CABA] Algorithms 1-5 line for line (`caba_paper`) against dense NumPy, and the library against them."""

import re
from pathlib import Path

import caba_paper
import jax
import numpy as np
import pytest
import robots
from caba_paper import Tree, algorithm_1, algorithm_3, algorithm_4, algorithm_5

import jaxrbd as rbd
from jaxrbd import constraints as con

LINES = {1: 12, 2: 7, 3: 11, 4: 19, 5: 21}  # of each listing
MU = 50.0  # small: the first iterates differ from each other and from their limit


# --- the transcriptions against dense linear algebra ---------------------------------------------------


def random_tree(seed=0) -> Tree:
    """A free base and ten links, one joint of three dofs, one of two.

    Rows on leaves, within chains and on both sides of branches; links 3, 6 and 10 support none.
    """
    rng = np.random.default_rng(seed)
    pi = [-1, 0, 1, 2, 2, 1, 5, 5, 7, 5, 9, 4]
    dofs = [0, 6, 1, 1, 3, 1, 1, 1, 1, 2, 1, 1]
    rows = [0, 0, 0, 0, 2, 0, 0, 3, 4, 1, 0, 3]
    H = []
    for _ in pi:
        m, c, A = rng.uniform(0.5, 3), caba_paper.skew(rng.normal(size=3)), rng.normal(size=(3, 3))
        H.append(np.block([[A @ A.T - m * c @ c, m * c], [-m * c, m * np.eye(3)]]))
    return Tree(
        pi=pi,
        S=[rng.normal(size=(6, k)) for k in dofs],
        H=H,
        nu=[rng.normal(size=k) for k in dofs],
        tau=[rng.normal(size=k) for k in dofs],
        f_ext=list(rng.normal(size=(len(pi), 6))),
        K=[rng.normal(size=(m, 6)) for m in rows],
        k=[rng.normal(size=m) for m in rows],
        a_grav=np.r_[0, 0, 0, 0, 0, -9.81],
    )


def dense(t: Tree):
    """M, f, J, c of M ν̇ + Jᵀλ = f, J ν̇ = c: sums over links and their ancestors, no recursion."""
    end = np.cumsum([s.shape[1] for s in t.S])
    columns = np.hstack(t.S)
    above = [np.isin(np.repeat(range(len(t.pi)), np.diff(end, prepend=0)), t.anc(i)) for i in t.links]
    Js = [None] + [columns * mask for mask in above]
    nu, n = np.concatenate(t.nu), end[-1]
    moving = [None] + [caba_paper.cross(Js[i] @ nu) @ t.S[i] @ t.nu[i] for i in t.links]
    M, f, J, c = np.zeros((n, n)), np.concatenate(t.tau), [], []
    for i in t.links:
        bias = -t.a_grav + sum(moving[j] for j in t.anc(i))  # a_i at ν̇ = 0
        v = Js[i] @ nu
        M += Js[i].T @ t.H[i] @ Js[i]
        f -= Js[i].T @ (t.H[i] @ bias + caba_paper.cross_star(v) @ t.H[i] @ v - t.f_ext[i])
        J.append(t.K[i] @ Js[i])
        c.append(t.k[i] - t.K[i] @ bias)
    return M, f, np.vstack(J), np.concatenate(c)


def proximal(M, f, J, c, mu, iterations):
    """[CABA] Eq. (16) by dense solves, from λ = 0."""
    lam = np.zeros(len(c))
    for _ in range(iterations):
        a = np.linalg.solve(M + mu * J.T @ J, f - J.T @ (lam - mu * c))
        lam = lam + mu * (J @ a - c)
    return a, lam


def joined(answer):
    return tuple(np.concatenate(x) for x in answer)


def error(x, reference):
    return np.abs(x - reference).max() / np.abs(reference).max()


def test_the_tree_is_no_special_case():
    t = random_tree()
    assert t.S_E == [1, 2, 4, 5, 7, 8, 9, 11] and t.E == [4, 7, 8, 9, 11]
    assert t.N == [1, 4, 5, 7, 8, 9, 11], "1 and 5 branch, the others carry rows, 2 only hands them on"


def test_the_three_sweeps_solve_one_step_from_any_multipliers():
    """Algorithm 1 alone, Eq. (16a)."""
    t = random_tree()
    M, f, J, c = dense(t)
    lam = [np.random.default_rng(1).normal(size=len(k)) for k in t.k]
    a = np.linalg.solve(M + MU * J.T @ J, f - J.T @ (np.concatenate(lam) - MU * c))
    ours = algorithm_1(t, MU, lam).nu_dot
    at = np.cumsum([s.shape[1] for s in t.S])
    assert max(error(ours[i], a[at[i - 1] : at[i]]) for i in t.S_E) < 1e-9


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("algorithm", [algorithm_3, algorithm_4])
def test_every_iterate_is_that_of_dense_algebra(algorithm, seed):
    t = random_tree(seed)
    numbers = dense(t)
    for iterations in (1, 2, 5):
        for ours, exact in zip(joined(algorithm(t, MU, iterations)), proximal(*numbers, MU, iterations)):
            assert error(ours, exact) < 1e-9


@pytest.mark.parametrize("algorithm", [algorithm_3, algorithm_4])
@pytest.mark.parametrize("contradiction", [0.0, 1.0])
def test_the_limit_is_gauss_principle_of_least_constraint(algorithm, contradiction):
    """KKT by least squares. A row stands twice; where both want something else, their mean is met."""
    t = random_tree()
    t.K[11][2], t.k[11][2] = t.K[11][0], t.k[11][0] + contradiction
    M, f, J, c = dense(t)
    assert np.linalg.matrix_rank(J) == len(J) - 1
    c = J @ np.linalg.lstsq(J, c, rcond=1e-10)[0]
    KKT = np.block([[M, J.T], [J, np.zeros((len(J),) * 2)]])
    a = np.linalg.lstsq(KKT, np.r_[f, c], rcond=1e-12)[0][: len(M)]
    ours = joined(algorithm(t, 1e4, 1000, eps=1e-9))[0]
    assert error(ours, a) < 1e-6


@pytest.mark.parametrize("seed", [0, 1])
def test_algorithm_5_is_the_damped_delassus_inverse(seed):
    t = random_tree(seed)
    M, _, J, _ = dense(t)
    exact = np.linalg.inv(J @ np.linalg.solve(M, J.T) + np.eye(len(J)) / MU)
    assert error(algorithm_5(t, MU), exact) < 1e-9


# --- the library against the transcriptions -------------------------------------------------------------


def robot():
    """A free trunk with a leg that forks, an arm and a tail: nine bodies, four types of joint."""
    b = rbd.Builder("forked")
    joints = {  # child: (parent, type, axis)
        "hip": ("trunk", "revolute", (1, 0, 0)),
        "shank": ("hip", "revolute", (0, 1, 0)),
        "toe_left": ("shank", "revolute", (0, 0.6, 0.8)),
        "toe_right": ("shank", "prismatic", (0, 0, 1)),
        "upper": ("trunk", "spherical", (0, 0, 1)),
        "lower": ("upper", "revolute", (0, 1, 0)),
        "tail": ("trunk", "revolute", (0, 0, 1)),
        "tip": ("tail", "revolute", (0, 1, 0)),
    }
    b.body("trunk", 3.0, com=(0.1, 0.0, 0.05), inertia=(0.2, 0.3, 0.4))
    b.joint("root", "free", None, "trunk")
    for k, (child, (parent, kind, axis)) in enumerate(joints.items()):
        b.body(child, 1.0 + 0.2 * k, com=(0.02, 0.03, -0.2), inertia=(0.03, 0.04, 0.02))
        b.joint(child, kind, parent, child, (0.1 * (k % 3) - 0.1, 0.05 * k - 0.2, -0.4), axis=axis)
        b.frame(f"{child}_end", child, (0.1, 0.05, -0.3))
    return b.build(dtype="float64")


POINTS = ("toe_right_end", "lower_end", "toe_left_end", "upper_end")  # the tail supports none
ITERATIONS = 3  # Algorithm 1, then Algorithm 2 twice


@pytest.fixture(scope="module")
def both():
    """What the library and the transcriptions say of one state, by name: (ours, the paper's)."""
    sys = robot()
    q, v, _, tau, f_ext = (x[0] for x in robots.random_states(sys, 1))
    want = np.random.default_rng(2).normal(size=(len(POINTS), 3))
    held = con.combine(*(con.connect(sys, p, target=w) for p, w in zip(POINTS, want)))
    solvers = [kind(mu=MU, iterations=ITERATIONS) for kind in (rbd.ConstrainedABA, rbd.ProxPV)]

    @jax.jit
    def library(q, v, tau, f_ext):
        motions = [rbd.constrained_dynamics(sys, q, v, tau, held, s, f_ext).value for s in solvers]
        return motions, con.delassus_inverse(sys, held, q, MU, algorithm="caba")

    motions, inverse = library(q, v, tau, f_ext)
    t = caba_paper.tree_of(sys, q, v, tau, f_ext, list(zip(POINTS, want)))
    bodies = [sys.topology.frame_bodies[sys.topology.frame_names.index(p)] for p in POINTS]
    order = np.argsort(bodies)  # rows of the transcriptions stand in the order of the links
    rows = (3 * order[:, None] + np.arange(3)).ravel()
    pairs = {"delassus_inverse": (np.asarray(inverse)[np.ix_(rows, rows)], algorithm_5(t, MU))}
    for name, m, algorithm in zip(("ConstrainedABA", "ProxPV"), motions, (algorithm_3, algorithm_4)):
        a, lam = joined(algorithm(t, MU, ITERATIONS))
        pairs[name] = np.r_[m.a, np.asarray(m.lam)[rows]], np.r_[a, -lam]  # our multipliers are forces
    return t, pairs


@pytest.mark.parametrize("name", ["ConstrainedABA", "ProxPV", "delassus_inverse"])
def test_the_library_gives_the_numbers_of_the_paper(both, name):
    """Of the third iterate, far from the limit, and of Λ_μ."""
    assert error(*both[1][name]) < 1e-11


def test_the_state_tells_iterates_apart(both):
    """Rows are independent (multipliers are unique), and what is compared has not converged."""
    t, _ = both
    _, _, J, _ = dense(t)
    assert np.linalg.matrix_rank(J) == len(J) == 12 and t.N == [1, 3, 4, 5, 6, 7]
    first, third, fourth = (joined(algorithm_3(t, MU, k))[0] for k in (1, 3, 4))
    assert min(error(first, third), error(third, fourth)) > 1e-4


# --- the transcriptions against the listings ------------------------------------------------------------


def test_every_line_of_the_listings_stands_once():
    text = Path(caba_paper.__file__).read_text()
    tags = [(int(a), int(n)) for a, n in re.findall(r"# \[CABA\] Alg\. (\d+), line (\d+)\b", text)]
    assert sorted(tags) == [(a, n) for a, last in LINES.items() for n in range(1, last + 1)]


def tagged(text: str):
    """(algorithm, line) of every comment such as `# [CABA] Alg. 1, lines 7-9, 12; Alg. 2, line 3`."""
    for comment in re.findall(r"# \[CABA\] Alg\. .*", text):
        for number, lines in re.findall(r"Alg\. (\d), lines? (\d+(?:-\d+)?(?:, \d+(?:-\d+)?)*)", comment):
            for part in lines.split(", "):
                first, _, last = part.partition("-")
                yield from ((int(number), n) for n in range(int(first), int(last or first) + 1))


def test_every_line_of_the_listings_is_named_once_in_the_library():
    """Beside the line of ours that does it, or takes its place."""
    files = (Path(rbd.__file__).parent).rglob("*.py")
    tags = sorted(tag for path in files for tag in tagged(path.read_text()))
    assert tags == [(a, n) for a, last in LINES.items() for n in range(1, last + 1)]


def test_the_lines_stand_in_their_function_in_order():
    parts = re.split(r"^def algorithm_(\d)", Path(caba_paper.__file__).read_text(), flags=re.M)
    for number, body in zip(parts[1::2], parts[2::2]):
        found = re.findall(r"\[CABA\] Alg\. (\d+), line (\d+)", body)
        assert found == [(number, str(n)) for n in range(1, LINES[int(number)] + 1)]


def test_the_map_has_every_line_of_the_listings():
    """`docs/pages/caba_map.md`, whose files and functions `test_docs.py` looks up."""
    page = Path(__file__).parent.parent / "docs" / "pages" / "caba_map.md"
    parts = re.split(r"^## (?:Algorithm (\d).*|.*)$", page.read_text(), flags=re.M)
    for number, text in zip(parts[1::2], parts[2::2]):
        if number:
            lines = [int(n) for n in re.findall(r"^\| (\d+) \|", text, re.M)]
            assert lines == sorted(lines) and set(lines) == set(range(1, LINES[int(number)] + 1)), number
    assert sorted(n for n in parts[1::2] if n) == [str(n) for n in LINES]
