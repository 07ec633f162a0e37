"""[CABA] Algorithms 1-5 line for line in plain NumPy: a reading of the paper, and one more oracle.

A. Sathya and J. Carpentier, Constrained Articulated Body Dynamics Algorithms, 2024. One function per
algorithm, the paper's letters, and the number of the paper's line beside each of ours; what the paper says
outside its listings carries the number of its equation. 6x6 matrices in world axes about the world's
origin, as in its derivations, angular part first. Nothing here is fast, and nothing comes from the library
but the leaves of a System (`tree_of`).

Signs are the paper's: H a = f - Kᵀλ, so λ is minus the force along a row, and mu is a penalty. Where a
listing cannot be meant as printed, the comment says what was corrected.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import verdict_tree
from verdict_tree import skew

I6 = np.eye(6)


def cross(v):
    """v× of spatial motions as a matrix; v×* of spatial forces is -cross(v)ᵀ."""
    w, u = skew(v[:3]), skew(v[3:])
    return np.block([[w, np.zeros((3, 3))], [u, w]])


def cross_star(v):
    return -cross(v).T


@dataclass(frozen=True)
class Tree:
    """Links 1 to n_b, parents first; 0 is the world. Lists have an entry for every link, the world first.

    Desired accelerations k are in the field a_0 = -a_grav of Eq. (20d), where every acceleration is less by
    a_grav: k = a* - (what a row accelerates at a = 0) - K a_grav.
    """

    pi: list[int]  # parent
    S: list[np.ndarray]  # (6, n_i) motion subspace of joint i
    H: list[np.ndarray]  # (6, 6) inertia
    nu: list[np.ndarray]  # (n_i,) joint velocity
    tau: list[np.ndarray]  # (n_i,) joint force
    f_ext: list[np.ndarray]  # (6,)
    K: list[np.ndarray]  # (m_i, 6) constraint rows of link i, none for most
    k: list[np.ndarray]  # (m_i,)
    a_grav: np.ndarray  # (6,)

    @property
    def links(self):
        """𝒮, the world left out."""
        return range(1, len(self.pi))

    @property
    def E(self):
        """Constrained links."""
        return [i for i in self.links if len(self.K[i])]

    def T(self, i):
        """S_iᵀ T_i = 1."""
        return np.linalg.pinv(self.S[i]).T

    def children(self, i):
        return [j for j in self.links if self.pi[j] == i]

    def anc(self, i):
        """Ancestors of i, itself first."""
        return [i] + (self.anc(self.pi[i]) if self.pi[i] > 0 else [])

    def ES(self, i):
        """Constrained links that link i supports, itself included."""
        return {e for e in self.E if i in self.anc(e)}

    @property
    def S_E(self):
        """𝒮_ℰ: links that support constraints."""
        return [i for i in self.links if self.ES(i)]

    @property
    def N(self):
        """𝒩: links that support more constraints than any of their children."""
        return [i for i in self.S_E if all(self.ES(j) < self.ES(i) for j in self.children(i))]

    def N_anc(self, i):
        """Closest proper ancestor in 𝒩, or the world."""
        return max([j for j in self.N if j in self.anc(i)[1:]], default=0)

    def cca(self, i, j):
        """Closest common ancestor, or the world."""
        return max(set(self.anc(i)) & set(self.anc(j)), default=0)


@dataclass
class Sweeps:
    """What Algorithm 1 leaves for Algorithm 2: by link, the world's entry first."""

    a: list  # spatial accelerations of this iteration; a_0 = -a_grav
    lam: list
    a_b: dict = field(default_factory=dict)
    fA: dict = field(default_factory=dict)
    HA: dict = field(default_factory=dict)
    D: dict = field(default_factory=dict)
    P: dict = field(default_factory=dict)
    nu_dot: dict = field(default_factory=dict)
    df: dict = field(default_factory=dict)


def algorithm_1(t: Tree, mu, lam) -> Sweeps:
    """ConstrainedABA, three sweeps: accelerations of the links that support rows, λ as given."""
    w = Sweeps(a=[-t.a_grav] + [None] * len(t.links), lam=[x.copy() for x in lam])  # Eq. (20d)
    v, w.fA, w.HA = {0: np.zeros(6)}, {0: np.zeros(6)}, {0: np.zeros((6, 6))}
    # first forward sweep
    for i in t.links:  # [CABA] Alg. 1, line 1
        v[i] = v[t.pi[i]] + t.S[i] @ t.nu[i]  # [CABA] Alg. 1, line 2
        w.a_b[i] = cross(v[i]) @ t.S[i] @ t.nu[i]  # [CABA] Alg. 1, line 3 (as printed; Eq. (21) has ν̇ for ν)
        # [CABA] Alg. 1, line 4 (corrected: f_i on its right is what it computes, so it starts from zero)
        w.fA[i] = t.T(i) @ t.tau[i] - cross_star(v[i]) @ t.H[i] @ v[i] + t.f_ext[i]
        w.fA[t.pi[i]] = w.fA[t.pi[i]] - t.T(i) @ t.tau[i]
        # [CABA] Alg. 1, line 5
        w.HA[i] = t.H[i] + mu * t.K[i].T @ t.K[i]
        w.fA[i] = w.fA[i] + t.K[i].T @ (mu * t.k[i] - w.lam[i])
    # backward sweep
    for i in reversed(t.links):  # [CABA] Alg. 1, line 6
        # [CABA] Alg. 1, line 7
        w.D[i] = t.S[i].T @ w.HA[i] @ t.S[i]
        w.P[i] = I6 - w.HA[i] @ t.S[i] @ np.linalg.inv(w.D[i]) @ t.S[i].T
        w.fA[t.pi[i]] = w.fA[t.pi[i]] + w.P[i] @ (w.fA[i] - w.HA[i] @ w.a_b[i])  # [CABA] Alg. 1, line 8
        w.HA[t.pi[i]] = w.HA[t.pi[i]] + w.P[i] @ w.HA[i]  # [CABA] Alg. 1, line 9
    # second forward sweep
    for i in t.S_E:  # [CABA] Alg. 1, line 10
        force = w.fA[i] - w.HA[i] @ (w.a[t.pi[i]] + w.a_b[i])
        w.nu_dot[i] = np.linalg.solve(w.D[i], t.S[i].T @ force)  # [CABA] Alg. 1, line 11
        w.a[i] = w.a[t.pi[i]] + t.S[i] @ w.nu_dot[i] + w.a_b[i]  # [CABA] Alg. 1, line 12
    return w


def algorithm_2(t: Tree, mu, w: Sweeps) -> None:
    """ConstrainedABA, reduced: one more iteration, only what the multipliers change, in place."""
    # backward sweep
    for i in reversed(t.S_E):  # [CABA] Alg. 2, line 1
        w.df[i] = w.df[i] + mu * t.K[i].T @ (t.k[i] - t.K[i] @ w.a[i])  # [CABA] Alg. 2, line 2
        w.df[t.pi[i]] = w.df[t.pi[i]] + w.P[i] @ w.df[i]  # [CABA] Alg. 2, line 3
    # second forward sweep
    for i in t.S_E:  # [CABA] Alg. 2, line 4
        force = w.fA[i] + w.df[i] - w.HA[i] @ (w.a[t.pi[i]] + w.a_b[i])
        w.nu_dot[i] = np.linalg.solve(w.D[i], t.S[i].T @ force)  # [CABA] Alg. 2, line 5
        w.a[i] = w.a[t.pi[i]] + t.S[i] @ w.nu_dot[i] + w.a_b[i]  # [CABA] Alg. 2, line 6
        w.fA[i] = w.fA[i] + w.df[i]  # corrected: missing, without it Δf of earlier iterations is forgotten
        w.df[i] = np.zeros(6)  # [CABA] Alg. 2, line 7


def algorithm_3(t: Tree, mu, max_iter, eps=0.0):
    """ConstrainedABA: ν̇ and λ by link after at most max_iter iterations of the augmented Lagrangian."""
    lam = [np.zeros(len(k)) for k in t.k]  # [CABA] Alg. 3, line 1
    w = algorithm_1(t, mu, lam)  # [CABA] Alg. 3, line 2
    w.df[0] = np.zeros(6)  # the world takes forces and gives none on
    before = {i: np.full_like(x, np.inf) for i, x in w.nu_dot.items()}
    for i in t.links:  # [CABA] Alg. 3, line 3
        w.df[i] = np.zeros(6)  # [CABA] Alg. 3, line 4
    for _ in range(1, max_iter):  # [CABA] Alg. 3, line 5
        change = max(np.abs(w.nu_dot[i] - before[i]).max() for i in t.S_E)
        error = max(np.abs(t.K[i] @ w.a[i] - t.k[i]).max() for i in t.E)
        if min(change, error) < eps:  # [CABA] Alg. 3, line 6
            break  # [CABA] Alg. 3, line 7
        _update_multipliers(t, mu, w)
        before = dict(w.nu_dot)
        algorithm_2(t, mu, w)  # [CABA] Alg. 3, line 8
    _update_multipliers(t, mu, w)
    for i in [i for i in t.links if i not in t.S_E]:  # [CABA] Alg. 3, line 9
        force = w.fA[i] - w.HA[i] @ (w.a[t.pi[i]] + w.a_b[i])
        w.nu_dot[i] = np.linalg.solve(w.D[i], t.S[i].T @ force)  # [CABA] Alg. 3, line 10
        w.a[i] = w.a[t.pi[i]] + t.S[i] @ w.nu_dot[i] + w.a_b[i]  # [CABA] Alg. 3, line 11
    return [w.nu_dot[i] for i in t.links], w.lam[1:]


def _update_multipliers(t, mu, w):
    """Eq. (27b). Only λ itself needs it: line 2 of Algorithm 2 has the force that it adds."""
    for i in t.E:
        w.lam[i] = w.lam[i] + mu * (t.K[i] @ w.a[i] - t.k[i])


def algorithm_4(t: Tree, mu, max_iter, eps=0.0):
    """proxPV: ν̇ and λ by link after at most max_iter iterations of the proximal dual, from λ = 0."""
    v, fA, HA = {0: np.zeros(6)}, {0: np.zeros(6)}, {0: np.zeros((6, 6))}
    KA, LA, l = {0: np.zeros((0, 6))}, {0: np.zeros((0, 0))}, {0: np.zeros(0)}
    a_b, D, P, nu_dot = {}, {}, {}, {}
    last = np.cumsum([len(k) for k in t.k])
    rows = {i: list(range(last[i] - len(t.k[i]), last[i])) for i in range(len(t.pi))}  # which, in KA_i
    # first forward sweep
    for i in t.links:  # [CABA] Alg. 4, line 1
        v[i] = v[t.pi[i]] + t.S[i] @ t.nu[i]  # [CABA] Alg. 4, line 2
        a_b[i] = cross(v[i]) @ t.S[i] @ t.nu[i]  # [CABA] Alg. 4, line 3
        # [CABA] Alg. 4, line 4 (corrected: the link's own f, from zero, where f of its parent is printed)
        fA[i] = t.T(i) @ t.tau[i] - cross_star(v[i]) @ t.H[i] @ v[i] + t.f_ext[i]
        KA[i], l[i], LA[i], HA[i] = t.K[i], -t.k[i], np.zeros((len(t.k[i]),) * 2), t.H[i]
        fA[t.pi[i]] = fA[t.pi[i]] - t.T(i) @ t.tau[i]
    # backward sweep
    for i in reversed(t.links):  # [CABA] Alg. 4, line 5
        # [CABA] Alg. 4, line 6
        D[i] = t.S[i].T @ HA[i] @ t.S[i]
        Sinv = t.S[i] @ np.linalg.inv(D[i]) @ t.S[i].T
        P[i] = I6 - HA[i] @ Sinv
        fA[t.pi[i]] = fA[t.pi[i]] + P[i] @ (fA[i] - HA[i] @ a_b[i])  # [CABA] Alg. 4, line 7
        HA[t.pi[i]] = HA[t.pi[i]] + P[i] @ HA[i]  # [CABA] Alg. 4, line 8
        KA[t.pi[i]] = np.vstack([KA[t.pi[i]], KA[i] @ P[i].T])  # [CABA] Alg. 4, line 9
        # [CABA] Alg. 4, line 10 (corrected: the blocks stand on a diagonal, not on each other)
        LA[t.pi[i]] = _block_diagonal(LA[t.pi[i]], LA[i] + KA[i] @ Sinv @ KA[i].T)
        l_i = l[i] + KA[i] @ (a_b[i] + Sinv @ (fA[i] - HA[i] @ a_b[i]))
        l[t.pi[i]] = np.concatenate([l[t.pi[i]], l_i])  # [CABA] Alg. 4, line 11
        rows[t.pi[i]] = rows[t.pi[i]] + rows[i]
    a, lam, I = {0: -t.a_grav}, np.zeros(len(l[0])), np.eye(len(l[0]))  # Eq. (20d)
    for _ in range(1, max_iter + 1):  # [CABA] Alg. 4, line 12 (end included: as many as in Alg. 3)
        right = KA[0] @ a[0] + l[0]
        lam = np.linalg.solve(LA[0] + I / mu, lam / mu + right)  # [CABA] Alg. 4, line 13
        if np.abs(LA[0].T @ (LA[0] @ lam - right)).max() < eps:  # [CABA] Alg. 4, line 14
            break  # [CABA] Alg. 4, line 15
    lam_star = np.zeros_like(lam)
    lam_star[rows[0]] = lam  # [CABA] Alg. 4, line 16 (in the order of the links, not of the sweep)
    # second forward sweep
    for i in t.links:  # [CABA] Alg. 4, line 17
        force = fA[i] - HA[i] @ (a[t.pi[i]] + a_b[i]) - KA[i].T @ lam_star[rows[i]]
        # [CABA] Alg. 4, line 18 (corrected: what it gives is ν̇, not ν)
        nu_dot[i] = np.linalg.solve(D[i], t.S[i].T @ force)
        a[i] = a[t.pi[i]] + t.S[i] @ nu_dot[i] + a_b[i]  # [CABA] Alg. 4, line 19
    return [nu_dot[i] for i in t.links], np.split(lam_star, last[1:-1])


def _block_diagonal(A, B):
    return np.block([[A, np.zeros((len(A), len(B)))], [np.zeros((len(B), len(A))), B]])


def algorithm_5(t: Tree, mu):
    """cABA-OSIM: Λ_μ = (J M⁻¹ Jᵀ + 1/μ)⁻¹, rows in the order of the links."""
    HA, KA, d, L = {0: np.zeros((6, 6))}, {}, {}, {}
    P, Omega, K = {}, {}, {}  # P[j, i] is ʲP_i: from link i to its ancestor j
    # first forward sweep
    for i in t.links:  # [CABA] Alg. 5, line 1
        HA[i] = t.H[i]  # [CABA] Alg. 5, line 2
        if i in t.E:  # [CABA] Alg. 5, line 3
            # [CABA] Alg. 5, line 4
            HA[i] = HA[i] + mu * t.K[i].T @ t.K[i]
            KA[i] = mu * t.K[i]
    # backward sweep
    for i in reversed(t.links):  # [CABA] Alg. 5, line 5
        if i in t.N:  # [CABA] Alg. 5, line 6
            d[i], P[i, i], Omega[i, i] = i, I6, np.zeros((6, 6))  # [CABA] Alg. 5, line 7
        # [CABA] Alg. 5, line 8
        D_i = t.S[i].T @ HA[i] @ t.S[i]
        Sinv = t.S[i] @ np.linalg.inv(D_i) @ t.S[i].T
        P_i = I6 - HA[i] @ Sinv
        # [CABA] Alg. 5, line 9 (corrected: its second part and lines 10, 11 where i supports rows)
        HA[t.pi[i]] = HA[t.pi[i]] + P_i @ HA[i]
        if i in t.S_E:
            P[t.pi[i], d[i]] = P_i @ P[i, d[i]]
            # [CABA] Alg. 5, line 10
            Omega[t.pi[i], d[i]] = Omega[i, d[i]] + P[i, d[i]].T @ Sinv @ P[i, d[i]]
            d[t.pi[i]] = d[i]  # [CABA] Alg. 5, line 11
    Omega[0, 0] = np.zeros((6, 6))  # the world does not move
    for i in t.N:  # [CABA] Alg. 5, line 12
        j = t.N_anc(i)
        Omega[0, i] = Omega[j, i] + P[j, i].T @ Omega[0, j] @ P[j, i]  # [CABA] Alg. 5, line 13
    for e in t.E:  # [CABA] Alg. 5, line 14
        K[e, e] = KA[e]  # what the text under the listing says of its dummy links
        for i in sorted(set(t.N) & set(t.anc(e)), reverse=True):  # [CABA] Alg. 5, line 15
            K[t.N_anc(i), e] = K[i, e] @ P[t.N_anc(i), i].T  # [CABA] Alg. 5, line 16
    for i, j in ((i, j) for i in t.E for j in t.E if i <= j):  # [CABA] Alg. 5, line 17
        c = t.cca(i, j)
        L[i, j] = K[c, i] @ Omega[0, c] @ K[c, j].T  # [CABA] Alg. 5, line 18
        if i != j:  # [CABA] Alg. 5, line 19
            L[j, i] = L[i, j].T  # [CABA] Alg. 5, line 20 (corrected: of L_ij, not of itself)
    L0 = np.block([[L[i, j] for j in t.E] for i in t.E])
    return mu * np.eye(len(L0)) - L0  # [CABA] Alg. 5, line 21


def tree_of(sys, q, v, tau, f_ext, points) -> Tree:
    """The Tree of a System without armature, by forward kinematics in NumPy.

    points: (name of a frame, desired acceleration (3,) of its origin in world axes), each three rows.
    Joints whose columns move with the body alone: revolute, prismatic, spherical, free.
    """
    top, leaf = sys.topology, lambda name: np.asarray(getattr(sys, name), np.float64)
    assert not leaf("armature").any(), "the paper's D_i has no armature"
    motion = verdict_tree.motion(sys, q[None], v[None])
    R, p, V, J = (x[:, 0] for x in (motion.R, motion.p, motion.V, motion.J))
    Rf, pf = verdict_tree.rotation(leaf("frame_quaternion")), leaf("frame_position")
    a_grav = np.r_[0, 0, 0, leaf("gravity")]
    dofs = [slice(a, b) for a, b in zip(top.v_starts[:-1], top.v_starts[1:])]
    none = np.zeros(0)
    H = [np.zeros((6, 6)) for _ in range(top.nb + 1)]
    K, k = [np.zeros((0, 6))] * (top.nb + 1), [none] * (top.nb + 1)
    for link in range(top.link_count):
        i = top.frame_bodies[link]
        if i >= 0:
            pose = (R[i] @ Rf[link])[None], (p[i] + R[i] @ pf[link])[None]
            m, I = leaf("mass")[None, link], leaf("inertia")[None, link]
            H[i + 1] = H[i + 1] + verdict_tree.inertia(m, leaf("com")[link], I, *pose)[0]
    for name, target in points:
        frame = top.frame_names.index(name)
        i = top.frame_bodies[frame]
        x = p[i] + R[i] @ pf[frame]
        row = np.hstack([-skew(x), np.eye(3)])
        k_row = target - np.cross(V[i][:3], row @ V[i]) - row @ a_grav
        K[i + 1], k[i + 1] = np.vstack([K[i + 1], row]), np.concatenate([k[i + 1], k_row])
    wrench = [np.r_[f[:3] + np.cross(x, f[3:]), f[3:]] for f, x in zip(f_ext, p)]
    return Tree(
        pi=[-1] + [parent + 1 for parent in top.parents],
        S=[np.zeros((6, 0))] + [J[i][:, dof] for i, dof in enumerate(dofs)],
        H=H,
        nu=[none] + [v[dof] for dof in dofs],
        tau=[none] + [tau[dof] for dof in dofs],
        f_ext=[np.zeros(6), *wrench],
        K=K,
        k=k,
        a_grav=a_grav,
    )
