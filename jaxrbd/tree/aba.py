"""Forward dynamics by articulated bodies: a = M(q)^-1 (tau - b(q, v) + J^T f_ext) in O(nb).

[RBDA] Table 7.1 in world-aligned axes, every inertia about its own link's origin: nothing rotates
after forward kinematics, links only translate, and float32 keeps its digits far from the base.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.model.system import System
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.arguments import arguments, external, require_mass
from jaxrbd.tree.batching import kernel
from jaxrbd.tree.dense import forward_dynamics_dense
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.scan import inward, outward
from jaxrbd.tree.spatial import (
    ZERO3,
    ArticulatedInertia,
    Force,
    Mat3,
    Motion,
    Sym3,
    Vec3,
)


class Factor(NamedTuple):
    """What remains of the inward pass over inertias: enough to apply M^-1 in O(nb)."""

    S: Motion  # columns, world axes, own origin
    r: Vec3  # from the parent node's origin to the node's
    G: Force  # U / D
    Dinv: object
    root: list  # Cholesky-like factor of the root's 6x6 articulated inertia
    R_root: Mat3


def articulated_step(acc: ArticulatedInertia, I, S: Motion, armature):  # noqa: E741
    """[RBDA] Eq. 7.43-7.47 for one column: IA, then U, D, and what the parent is handed."""
    IA = acc + I.articulated()
    U = IA @ S
    Dinv = 1 / (S.dot(U) + armature)
    G = U * Dinv
    return IA.minus_outer(U, G), G, Dinv


def bias_step(Ia: ArticulatedInertia, pA: Force, S: Motion, c: Motion, G: Force, tau):
    """The force handed to the parent, and u = tau - S·pA."""
    u = tau - S.dot(pA)
    return pA + Ia @ c + G * u, u


def forward_dynamics(sys: System, q, v, tau, f_ext=None):
    """Joint accelerations  a = M(q)^-1 (tau - b(q, v) + J^T f_ext).

    Articulated bodies, [RBDA] Table 7.1, O(nb). f_ext: (nb, 6) wrenches on the bodies in world-aligned
    axes at the body origins, moment first [N m, N]. Armature is in M; damping, springs and friction are
    not here (see `passive_force`).
    """
    q, v, tau = arguments(sys, q=q, v=v, tau=tau)
    f_ext = external(sys, f_ext, q.dtype)
    require_mass(sys, "forward_dynamics")
    return _forward_dynamics(sys, q, v, tau, f_ext)


def mass_matrix_solve(sys: System, q, b):
    """M(q)^-1 b in O(nb), by the same factorisation as forward dynamics."""
    q, b = arguments(sys, q=q, b=b)
    require_mass(sys, "mass_matrix_solve")
    return _mass_matrix_solve(sys, q, b)


def mass_matrix_inverse(sys: System, q):
    """M(q)^-1, (nv, nv), from one articulated-body factorisation: O(nb nv)."""
    (q,) = arguments(sys, q=q)
    require_mass(sys, "mass_matrix_inverse")
    return _mass_matrix_inverse(sys, q)


@kernel(single=forward_dynamics_dense, small=2)
def _forward_dynamics(sys: System, q, v, tau, f_ext):
    """Three passes: velocities outward, articulated inertias and biases inward, accelerations outward."""
    nodes = nodes_of(sys.topology)
    joints = kin.joint_transforms(sys, q, v)
    roots = kin.root_states(sys, q, v)
    qd, tau_n = v[nodes.v], tau[nodes.v]

    # pass 1, outward: orientations and velocities
    def velocity(parent, x):
        R, V, _ = parent
        j, qd = x
        r = R @ j.p
        R = R @ j.R
        return R, V.at(r) + kin.column(j, R) * qd, r

    zero3 = jax.tree.map(jnp.zeros_like, roots.p)
    start = (roots.R, roots.V, zero3)
    R, V, r = outward(nodes, velocity, (joints, qd), kin.broadcast(start, q))

    # between the passes, all links at once: columns, inertias in world axes, biases
    S = kin.column(joints, R)
    c = V.cross(S * qd)
    if joints.bias is not None:
        c = c + Motion(R @ joints.bias.ang, R @ joints.bias.lin)
    at_nodes, at_roots = kin.node_inertias(sys, kin.body_inertias(sys))
    I, I_root = at_nodes.rotate(R), at_roots.rotate(roots.R)
    pA, pA_root = V.cross_force(I @ V), roots.V.cross_force(I_root @ roots.V)
    if f_ext is not None:
        f, f_root = kin.external_forces(sys, f_ext, kin.join(R, roots.R))
        pA, pA_root = pA - f, pA_root - f_root

    # pass 2, inward: articulated inertias and biases
    def articulate(acc, x):
        IA, pA = acc
        I, p, S, c, r, tau, armature = x
        Ia, G, Dinv = articulated_step(IA, I, S, armature)
        pa, u = bias_step(Ia, pA + p, S, c, G, tau)
        return (Ia.from_(r), pa.from_(r)), (G, u * Dinv)

    zero = kin.zeros((zero_articulated(), Force(ZERO3, ZERO3)), q)
    xs = (I, pA, S, c, r, tau_n, _armature(sys, nodes))
    (IA0, p0), out = inward(nodes, articulate, xs, zero)

    # the roots: a 6x6 symmetric solve each
    IA0, p0 = IA0 + I_root.articulated(), p0 + pA_root
    wrench = Force(*kin.root_twists(sys, roots.R, tau))
    A0 = _solve_roots(sys, roots.R, IA0, wrench - p0)
    A0 = _falling_world(A0, sys.gravity)

    # pass 3, outward: accelerations
    def accelerate(parent, x):
        A, _ = parent
        r, c, S, (G, ud) = x
        A = A.at(r) + c
        qdd = ud - A.dot(G)
        return A + S * qdd, qdd

    _, qdd = outward(nodes, accelerate, (r, c, S, out), (A0, jnp.zeros_like(A0.ang.x)))
    A_joint = Motion(A0.ang, A0.lin + Vec3(*(sys.gravity[k][None] for k in range(3))))
    return kin.gather_dofs(sys, qdd, kin.root_axes(roots.R, A_joint))


def articulated_factor(sys: System, q) -> tuple[Factor, object]:
    """Articulated inertias alone: the O(nb) factorisation behind M^-1 b."""
    nodes = nodes_of(sys.topology)
    joints, roots = kin.joint_transforms(sys, q), kin.root_states(sys, q)

    def place(parent, j):
        R, _ = parent
        return R @ j.R, R @ j.p

    zero3 = jax.tree.map(jnp.zeros_like, roots.p)
    R, r = outward(nodes, place, joints, kin.broadcast((roots.R, zero3), q))
    S = kin.column(joints, R)
    at_nodes, at_roots = kin.node_inertias(sys, kin.body_inertias(sys))

    def articulate(acc, x):
        I, S, r, armature = x  # noqa: E741
        Ia, G, Dinv = articulated_step(acc, I, S, armature)
        return Ia.from_(r), (G, Dinv)

    xs = (at_nodes.rotate(R), S, r, _armature(sys, nodes))
    IA0, out = inward(nodes, articulate, xs, kin.zeros(zero_articulated(), q))
    G, Dinv = out if nodes.size else (None, None)
    return Factor(S, r, G, Dinv, IA0 + at_roots.rotate(roots.R).articulated(), roots.R)


def factor_solve(sys: System, factor: Factor, b):
    """M^-1 b for b: (nv, B), given the factor: one inward and one outward pass."""
    nodes = nodes_of(sys.topology)

    def push(acc, x):
        S, G, r, b = x
        u = b - S.dot(acc)
        return (acc + G * u).from_(r), u

    p0, u = inward(nodes, push, (factor.S, factor.G, factor.r, b[nodes.v]), kin.zeros(Force(ZERO3, ZERO3), b))
    A0 = _solve_roots(sys, factor.R_root, factor.root, Force(*kin.root_twists(sys, factor.R_root, b)) - p0)

    def accelerate(parent, x):
        A, _ = parent
        r, S, G, Dinv, u = x
        A = A.at(r)
        a = u * Dinv - A.dot(G)
        return A + S * a, a

    if not nodes.size:
        return kin.gather_dofs(sys, None, kin.root_axes(factor.R_root, A0))
    xs = (factor.r, factor.S, factor.G, factor.Dinv, u)
    _, a = outward(nodes, accelerate, xs, (A0, jnp.zeros_like(A0.ang.x)))
    return kin.gather_dofs(sys, a, kin.root_axes(factor.R_root, A0))


@kernel()
def _mass_matrix_solve(sys: System, q, b):
    return factor_solve(sys, articulated_factor(sys, q), b)


@kernel()
def _mass_matrix_inverse(sys: System, q):
    """All columns of M^-1 from one factorisation: O(nb nv)."""
    nv = sys.topology.nv
    batch = jnp.broadcast_shapes(q.shape[-1:], sys.mass.shape[-1:])
    factor = articulated_factor(sys, jnp.broadcast_to(q, q.shape[:-1] + batch))
    eye = jnp.eye(nv, dtype=q.dtype)

    def column(e):
        return factor_solve(sys, factor, jnp.broadcast_to(e[:, None], (nv,) + batch))

    inverse = jax.lax.map(column, eye)
    return 0.5 * (inverse + jnp.swapaxes(inverse, 0, 1))


def zero_articulated() -> ArticulatedInertia:
    return ArticulatedInertia(Sym3(*[0] * 6), Mat3(ZERO3, ZERO3, ZERO3), Sym3(*[0] * 6))


def _armature(sys: System, nodes):
    dead = jnp.asarray(~nodes.live, sys.dtype)[:, None]
    return sys.armature[nodes.v] + dead if not nodes.live.all() else sys.armature[nodes.v]


def _falling_world(A: Motion, gravity) -> Motion:
    """Gravity as an upward acceleration of the world's row; free roots feel it through that frame."""
    first = jnp.zeros((A.ang.x.shape[0], 1), gravity.dtype).at[0].set(1)
    return Motion(A.ang, Vec3(*(x - first * gravity[k][None] for k, x in enumerate(A.lin))))


def _solve_roots(sys: System, R: Mat3, IA: ArticulatedInertia, f: Force) -> Motion:
    """IA A = f for every free root by 6x6 LDLᵀ; the world's row is zero. Armature acts in root axes."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    zero = jnp.zeros_like(f.ang.x)
    if not len(nodes.root_bodies):
        return Motion(Vec3(zero, zero, zero), Vec3(zero, zero, zero))
    rows = kin.take((IA, f, R), slice(1, None))
    IA, f, R = rows
    arm = [sys.armature[np.array([t.v_starts[b] + k for b in nodes.root_bodies])] for k in range(6)]
    A, B, C = IA.A.full(), IA.B, IA.C.full()
    # eliminate in root axes, where armature is diagonal: Rᵀ (.) R block by block
    Ab, Bb, Cb = (R.T @ X @ R for X in (A, B, C))
    M = [[*Ab[i], *Bb[i]] for i in range(3)] + [[*(Bb[k][i] for k in range(3)), *Cb[i]] for i in range(3)]
    for k in range(6):
        M[k][k] = M[k][k] + arm[k]
    x = solve_ldl(M, [*(R.T @ f.ang), *(R.T @ f.lin)])
    a = Motion(R @ Vec3(*x[:3]), R @ Vec3(*x[3:]))
    return jax.tree.map(lambda y: jnp.concatenate([zero[:1], y]), a)


def solve_ldl(M, b):
    """Solve a small symmetric positive definite system written out in scalars, by L D Lᵀ."""
    n = len(b)
    L, D = [[None] * n for _ in range(n)], [None] * n
    for j in range(n):
        D[j] = M[j][j] - sum(L[j][k] * L[j][k] * D[k] for k in range(j)) if j else M[j][j]
        inverse = 1 / D[j]
        for i in range(j + 1, n):
            t = M[i][j] - sum(L[i][k] * L[j][k] * D[k] for k in range(j)) if j else M[i][j]
            L[i][j] = t * inverse
    x = list(b)
    for i in range(n):
        for k in range(i):
            x[i] = x[i] - L[i][k] * x[k]
    x = [x[i] / D[i] for i in range(n)]
    for i in reversed(range(n)):
        for k in range(i + 1, n):
            x[i] = x[i] - L[k][i] * x[k]
    return x
