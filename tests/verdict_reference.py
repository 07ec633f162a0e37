"""What constrained dynamics should answer, in plain NumPy: rows, least squares, what is decidable.

Rows are those of the docstrings of `jaxrbd.constraints`: relative motion of A in B, at the point that A
carries, in the axes of B. The answer minimises the weighted violation of the rows first,

    a_ref = argmin ½|a - a_free|²_M   over   argmin ½ sum of w_r (J a + J̇v - a*)_r²,

by singular values of A = J M^-½ (eigenvalues of J M^-1 Jᵀ are their squares, so that sixteen digits of A
tell exact dependence, at 1e-26 and below, from an eigenvalue that float64 or float32 cannot see).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from verdict_tree import Motion, rotation, tree

EXACT = 1e-12  # singular values below EXACT · m · largest are rounding of this file: rows depend exactly


@dataclass(frozen=True)
class Problem:
    """One problem: minimise over a as above. `c` = a* - J̇v."""

    M: np.ndarray
    f: np.ndarray  # tau - b
    J: np.ndarray
    c: np.ndarray
    w: np.ndarray  # (m,) one weight per row


@dataclass(frozen=True)
class Answer:
    a: np.ndarray  # the least-squares answer
    cuts: np.ndarray  # (k, nv) the answers at every rank that the precision cannot tell from the true one
    feasible: bool  # all rows can be met
    dependent: bool  # the rows depend on each other exactly
    rank: int
    undecidable: bool  # an eigenvalue of J M^-1 Jᵀ is not zero, yet below m eps λ_max
    smallest: float  # λ / λ_max, the smallest that is not zero
    smallest_weighted: float  # the same of W^½ J M^-1 Jᵀ W^½
    doubt: float = 0.0  # how far `a` itself may be off


def _point(m: Motion, i: int, x):
    """Point x carried by body i: place, velocity, acceleration at a = 0, Jacobian (B, 3, nv)."""
    p = m.p[i] + np.einsum("bij,j->bi", m.R[i], x)
    V, A, J = m.V[i], m.A[i], m.J[i]
    u = V[:, 3:] + np.cross(V[:, :3], p)
    acc = A[:, 3:] + np.cross(A[:, :3], p) + np.cross(V[:, :3], u)
    Jp = J[:, 3:] + np.moveaxis(np.cross(np.moveaxis(J[:, :3], 1, 2), p[:, None]), 2, 1)
    return p, u, acc, Jp


def _frame_rows(m: Motion, a, b, x_a, R_b, mask):
    """Directions of the pose of A in B: J (B, 6, nv), J v (B, 6) and J̇v (B, 6), those of the mask."""
    c, u, acc, Jp = _point(m, a, x_a)
    V, A, J = m.V[b], m.A[b], m.J[b]  # of the point of B that is at c now
    w_b = V[:, :3]
    u_b = V[:, 3:] + np.cross(w_b, c)
    J_b = J[:, 3:] + np.moveaxis(np.cross(np.moveaxis(J[:, :3], 1, 2), c[:, None]), 2, 1)
    w = m.V[a][:, :3] - w_b
    # of u - v_B(c), where c moves with A: v̇_B = A_B + α_B × c + ω_B × ċ
    turn = m.A[a][:, :3] - A[:, :3] - np.cross(w_b, w)
    shift = acc - (A[:, 3:] + np.cross(A[:, :3], c) + np.cross(w_b, u)) - np.cross(w_b, u - u_b)
    axes = np.swapaxes(m.R[b] @ R_b, 1, 2)
    mask = list(mask)
    full_J = np.concatenate([axes @ (m.J[a][:, :3] - J[:, :3]), axes @ (Jp - J_b)], 1)
    both = lambda x, y: np.concatenate([(axes @ x[..., None])[..., 0], (axes @ y[..., None])[..., 0]], 1)  # noqa: E731
    return full_J[:, mask], both(w, u - u_b)[:, mask], both(turn, shift)[:, mask]


def _distance_row(m: Motion, a, b, x_a, x_b):
    p, u, acc, J = _point(m, a, x_a)
    r, u_b, acc_b, J_b = _point(m, b, x_b)
    d = np.linalg.norm(p - r, axis=1, keepdims=True)
    n, rel = (p - r) / d, u - u_b
    along = np.sum(n * rel, 1, keepdims=True)
    bias = np.sum(n * (acc - acc_b), 1, keepdims=True) + (np.sum(rel**2, 1, keepdims=True) - along**2) / d
    return np.einsum("bi,bij->bj", n, J - J_b)[:, None], along, bias


def rows(sys, con, m: Motion, q, v):
    """J (B, m, nv), J v and J̇v (B, m) of frame, hinge, distance, coupling and velocity rows."""
    t, B = sys.topology, len(q)
    leaf = lambda x: np.asarray(x, np.float64)  # noqa: E731
    Rf, pf = rotation(leaf(sys.frame_quaternion)), leaf(sys.frame_position)
    found = []
    entries = 0
    for k, e in enumerate(con.entries):
        if e.word in ("weld", "connect", "hinge", "hold", "point_on_plane", "distance"):
            sides = []
            for f, R, x in (
                (e.a, rotation(leaf(con.quaternion_a[k])), leaf(con.position_a[k])),
                (e.b, rotation(leaf(con.quaternion_b[k])), leaf(con.position_b[k])),
            ):
                body = t.frame_bodies[f] if f >= 0 else -1
                sides.append((body, R, x) if f < 0 else (body, Rf[f] @ R, Rf[f] @ x + pf[f]))
            (a, _, x_a), (b, R_b, x_b) = sides
            if e.word == "distance":
                found.append(_distance_row(m, a, b, x_a, x_b))
            else:
                found.append(_frame_rows(m, a, b, x_a, R_b, e.mask))
        elif e.word == "coupling":
            J, bias = np.zeros((B, 1, t.nv)), np.zeros((B, 1))
            J[:, 0, e.dof] = 1
            if e.leader >= 0:
                x = q[:, t.q_starts[t.v_starts.index(e.leader)]]
                k1 = np.polynomial.polynomial.polyder(leaf(con.parameter[k]))
                J[:, 0, e.leader] -= np.polynomial.polynomial.polyval(x, k1)
                curve = np.polynomial.polynomial.polyval(x, np.polynomial.polynomial.polyder(k1))
                bias[:, 0] -= curve * v[:, e.leader] ** 2
            found.append((J, np.einsum("bij,bj->bi", J, v), bias))
        elif e.word == "velocity":
            J = np.zeros((B, e.rows, t.nv))
            for i, d in e.pattern:
                J[:, i, d] = leaf(con.coefficients)[entries]
                entries += 1
            found.append((J, np.einsum("bij,bj->bi", J, v), np.zeros((B, e.rows))))
        else:
            raise ValueError(f"rows of a {e.word} are not in this oracle")
    return tuple(np.concatenate(x, 1) for x in zip(*found))


def judged(p: Problem, eps: float) -> Answer:
    """`least_squares` with its own doubt: ten times what the rounding of its numbers does to it."""
    return replace(least_squares(p, eps), doubt=10 * sensitivity(p, float(np.finfo(float).eps)))


def problems(sys, con, q, v, tau, **leaves) -> list[Problem]:
    """Of a batch. Leaves with a batch axis: those of `tree`, and weight, target, damping of the rows."""
    leaf = lambda x: np.asarray(x, np.float64)  # noqa: E731
    own = lambda name: leaf(leaves[name] if name in leaves else [getattr(con, name)] * len(q))  # noqa: E731
    q, v, tau = leaf(q), leaf(v), leaf(tau)
    x = tree(sys, q, v, leaves)
    J, rate, bias = rows(sys, con, x.motion, q, v)
    each = np.repeat(np.arange(len(con.entries)), [e.rows for e in con.entries])
    c = own("target") - own("damping")[:, each] * rate - bias
    return [Problem(*p) for p in zip(x.M, tau - x.b, J, c, own("weight"))]


class _Metric:
    """M = L Lᵀ, scaled by its diagonal first: heavy and light bodies keep their digits."""

    def __init__(self, M):
        self.d = 1 / np.sqrt(np.diag(M))
        self.L = np.linalg.cholesky(M * np.outer(self.d, self.d))

    def down(self, X):
        """M^-½ X, as L^-1 D X."""
        return np.linalg.solve(self.L, (X.T * self.d).T)

    def up(self, y):
        """M^-½ᵀ y, back to accelerations."""
        return self.d * np.linalg.solve(self.L.T, y)


def _weighted(U, s, Vt, w, r):
    """y of least norm that minimises sum w (U s Vᵀ y - r)², U s Vᵀ of full rank."""
    root = np.sqrt(w / w.max())
    order = np.argsort(-root)  # large rows first: Householder's QR then bears weights of many decades
    Q, R = np.linalg.qr((root[:, None] * U)[order])
    t = np.linalg.solve(R, Q.T @ (root * r)[order])
    return Vt.T @ (t / s)


def _answers(p: Problem, metric: _Metric, A, low: int, high: int):
    """Accelerations with J M^-½ taken to be of rank low, ..., high."""
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    free = metric.up(metric.down(p.f))
    r = p.c - p.J @ free
    return np.array(
        [
            free + metric.up(_weighted(U[:, :k], s[:k], Vt[:k], p.w, r)) if k else free
            for k in range(low, high + 1)
        ]
    )


def least_squares(p: Problem, eps: float) -> Answer:
    """The answer, and what a precision of `eps` can know of it."""
    metric = _Metric(p.M)
    A = metric.down(p.J.T).T
    s = np.linalg.svd(A, compute_uv=False)
    m, top = len(p.c), s[0]
    exact = int(np.sum(s > EXACT * m * top))  # the rank
    seen = int(np.sum(s**2 > m * eps * top**2))
    answers = _answers(p, metric, A, seen, exact)
    a = answers[-1]
    left = p.J @ a - p.c
    scale = np.abs(p.J) @ np.abs(a) + np.abs(p.c)
    weighted = np.linalg.svd(np.sqrt(p.w)[:, None] * A, compute_uv=False)[:exact]
    return Answer(
        a=a,
        cuts=answers,
        feasible=bool(np.all(np.abs(left) <= max(1e-9, 10 * eps) * (scale + 1))),
        dependent=exact < m,
        rank=exact,
        undecidable=seen < exact,
        smallest=float((s[exact - 1] / top) ** 2) if exact else 1.0,
        smallest_weighted=float((weighted[-1] / weighted[0]) ** 2) if exact else 1.0,
    )


def sensitivity(p: Problem, eps: float, seed: int = 0) -> float:
    """Error of the answer where every number of the problem is off by eps, the rank being known."""
    rng = np.random.default_rng(seed)
    off = lambda x: x * (1 + eps * rng.uniform(-1, 1, x.shape))  # noqa: E731
    near = Problem(p.M * (1 + eps * _symmetric(rng, len(p.M))), off(p.f), off(p.J), off(p.c), p.w)
    known = least_squares(p, eps)
    try:
        metric = _Metric(near.M)
    except np.linalg.LinAlgError:  # M is not positive definite any more
        return np.inf
    return error(_answers(near, metric, metric.down(near.J.T).T, known.rank, known.rank)[0], known.a)


def _symmetric(rng, n):
    X = rng.uniform(-1, 1, (n, n))
    return (X + X.T) / 2


def penalty(p: Problem, mu: float) -> tuple[np.ndarray, float]:
    """`Soft`: argmin ½|a - a_free|²_M + ½ mu sum of w_r (J a - c)_r², and how stiff its springs are.

    That is the largest eigenvalue of mu W^½ J M^-1 Jᵀ W^½: springs against the inertia they meet.
    """
    metric = _Metric(p.M)
    free = metric.up(metric.down(p.f))
    root = np.sqrt(mu * p.w)
    A = np.concatenate([root[:, None] * metric.down(p.J.T).T, np.eye(len(free))])
    r = np.concatenate([root * (p.c - p.J @ free), np.zeros(len(free))])
    order = np.argsort(-np.r_[root, np.ones(len(free))])
    Q, R = np.linalg.qr(A[order])
    stiffness = np.linalg.norm(A[: len(p.c)], 2) ** 2
    return free + metric.up(np.linalg.solve(R, Q.T @ r[order])), float(stiffness)


def error(a, reference) -> float:
    """max|a - a_ref| / max(1, max|a_ref|); NaN counts as infinite."""
    e = np.max(np.abs(a - reference), initial=0.0) / max(1.0, np.max(np.abs(reference), initial=0.0))
    return float(e) if np.isfinite(e) else np.inf
