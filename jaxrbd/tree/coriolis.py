"""Coriolis matrix C(q, v) with C v + g = b and Ṁ - 2C skew-symmetric.

The body-level matrix B = ½ [(V×*) I - I (V×) + (I V)×̄*] (Niemeyer and Slotine; Echeandia and Wensing,
2021) satisfies B V = V ×* I V and B + Bᵀ = İ; composites of B and I then give, for i on the path from
j to the root,  C_ij = S_i·(Ic_j Ṡ_j + Bc_j S_j)  and  C_ji = S_j·(Ic_j Ṡ_i + Bc_j S_i). All about the
root's origin, where everything adds up. O(nb depth).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.engine.scan import accumulate
from jaxrbd.model.system import System
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.arguments import arguments
from jaxrbd.tree.crba import ancestor_pairs, columns_by_dof, mass_matrix
from jaxrbd.tree.joints import column
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.manifold import integrate
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.opening import loop_jacobian, opened
from jaxrbd.tree.spatial import Motion, Vec3, skew, stack
from jaxrbd.typing import Array, ArrayLike


def coriolis_matrix(sys: System, q: ArrayLike, v: ArrayLike) -> Array:
    """C(q, v), (nv, nv), such that C v + g(q) = bias_force(q, v) and Ṁ - 2C is skew."""
    q, v = arguments(sys, q=q, v=v)
    if not sys.topology.clusters:
        return _coriolis(sys, q, v)
    # M = Gᵀ M_t G, so C = Gᵀ (C_t G + M_t Ġ): Ṁ - 2C stays skew
    tree, q_t, v_t = opened(sys, q, v)
    path = lambda s: loop_jacobian(sys, integrate(sys, q, s * v))  # noqa: E731
    G, dG = jax.jvp(path, (jnp.zeros((), q.dtype),), (jnp.ones((), q.dtype),))
    return G.T @ (_coriolis(tree, q_t, v_t) @ G + mass_matrix(tree, q_t) @ dG)


@kernel(lambda sys, *_: (sys.nv, sys.nv))
def _coriolis(sys: System, q, v):
    t, nodes = sys.topology, nodes_of(sys.topology)
    joints, roots, _, R, V, _, _ = kin.motion_pass(sys, q, v, jnp.zeros_like(v), jnp.zeros((3, 1), q.dtype))
    p_all = kin.poses(sys, joints, roots, q).p
    at_nodes, at_roots = kin.node_inertias(sys, kin.body_inertias(sys))
    I = kin.join(*kin.broadcast((at_nodes.rotate(R), at_roots.rotate(roots.R)), q)).from_(p_all)
    V_all = kin.join(V, kin.broadcast(roots.V, q)).at(Vec3(*(-x for x in p_all)))  # about the root's origin

    # 6x6 matrices as arrays (rows, 6, 6, B): this algorithm is for analysis, not for speed
    like = V_all.ang.x
    inertia = _six(I.articulated(), like)
    h = I @ V_all
    Vx = _cross_matrix(V_all, like)
    force_cross = _blocks(skew(h.ang), skew(h.lin), skew(h.lin), None, like)
    force_cross = -force_cross  # (f ×̄*) m = m ×* f
    B = 0.5 * (-jnp.swapaxes(Vx, 1, 2)[:, :, :, None] * inertia[:, None]).sum(2)
    B = B - 0.5 * (inertia[:, :, :, None] * Vx[:, None]).sum(2) + 0.5 * force_cross

    N = nodes.size
    (Ic, Bc), (Ic0, Bc0) = accumulate(nodes, (inertia[:N], B[:N]))
    Ic, Bc = jnp.concatenate([Ic, Ic0 + inertia[N:]]), jnp.concatenate([Bc, Bc0 + B[N:]])

    # columns, their derivatives and composites by degree of freedom
    S, origin = columns_by_dof(sys, column(joints, R), gather(p_all, slice(0, N)), roots)
    S = S.at(Vec3(*(-x for x in origin)))
    S_dot = _column_velocities(sys, V_all).cross(S)
    if joints.bent is not None:  # columns that change within their nodes as well
        back = Vec3(*(-x for x in gather(p_all, slice(0, N))))
        bend = (joints.bent.slope.rotate(R) * gather(v, nodes.v)).at(back)
        still = [jnp.zeros_like(roots.R.a.x)] * 6
        S_dot = S_dot + jax.tree.map(lambda x: kin.gather_dofs(sys, x, still), bend)
    dof_row = np.array([s if s < N else N + 1 + (s - N) // 6 for s in nodes.slot_of_dof], int)
    S6, Sd6 = (stack([*m.ang, *m.lin], 1, m.ang.x + 0 * m.lin.x) for m in (S, S_dot))
    apply = lambda M, x: jnp.sum(M * x[:, None], 2)  # noqa: E731
    X = apply(gather(Ic, dof_row), Sd6) + apply(gather(Bc, dof_row), S6)
    F = apply(gather(Ic, dof_row), S6)
    W = apply(gather(jnp.swapaxes(Bc, 1, 2), dof_row), S6)

    i, j, _ = ancestor_pairs(t)
    upper = jnp.sum(gather(S6, i) * gather(X, j), 1)
    lower = jnp.sum(gather(F, j) * gather(Sd6, i) + gather(W, j) * gather(S6, i), 1)
    entries = jnp.concatenate([upper, lower, jnp.zeros_like(upper[:1])])
    table = np.full((t.nv, t.nv), 2 * len(i))
    table[j, i] = len(i) + np.arange(len(i))
    table[i, j] = np.arange(len(i))
    return gather(entries, table)


def _column_velocities(sys: System, V_all: Motion) -> Motion:
    """The velocity with which each column moves: its node's, or the body's for spherical and free joints."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    rows = []
    for s in nodes.slot_of_dof:
        if s >= nodes.size:
            rows.append(nodes.size + 1 + (s - nodes.size) // 6)
            continue
        b = int(nodes.body[s])
        serial = bool(nodes.moves[s])
        rows.append(int(s) if serial else int(nodes.body_slot[b]))
    return gather(V_all, np.array(rows, int)) if t.nv else gather(V_all, slice(0, 0))


def _blocks(a, b, c, d, like):
    """6x6 array from four 3x3 component matrices; None is zero."""
    rows = []
    for left, right in ((a, b), (c, d)):
        for k in range(3):
            row = [*(left[k] if left else (0, 0, 0)), *(right[k] if right else (0, 0, 0))]
            rows.append(stack(row, 1, like))
    return jnp.stack(rows, 1)


def _six(IA, like):
    return _blocks(IA.A.full(), IA.B, IA.B.T, IA.C.full(), like)


def _cross_matrix(V: Motion, like):
    return _blocks(skew(V.ang), None, skew(V.lin), skew(V.ang), like)
