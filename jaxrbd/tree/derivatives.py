"""Full Jacobians of inverse and forward dynamics by analytic formulas, O(nb depth).

Derivatives with respect to q are taken in the tangent space: along integrate(q, dv) at dv = 0. With all
quantities about the root's origin in world axes, composites of inertia I, of the velocity-product matrix
2B and of force f over the subtree of j, and the parent's velocity and acceleration (which starts with
minus gravity), the columns

    Sp = V_parent x S,   Spp = A_parent x S + V_parent x Sp,   Sd = V x S

give for every i on the path from j to the root (Singh, Russo and Wensing, 2022; same joint: without f)

    dtau_j/dq_i = S_j·(2B_j Sp_i + I_j Spp_i)
    dtau_i/dq_j = S_i·(2B_j Sp_j + I_j Spp_j + S_j x* f_j)
    dtau_j/dv_i = S_j·(2B_j S_i + I_j (Sp_i + Sd_i))
    dtau_i/dv_j = S_i·(2B_j S_j + I_j (Sp_j + Sd_j))

For a rigid body with momentum (n, p) = I V, 2B = [[T, 0], [-2 p x, 0]] has twelve numbers.
External wrenches keep their world axes while their bodies move; they enter with terms of their own. Where
columns depend on q (`jaxrbd.joints.Column.path`) the Jacobians are those of autodiff.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.engine.scan import accumulate, outward
from jaxrbd.model.system import System, Topology
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.aba import Factor, articulated_motion, forward_dynamics
from jaxrbd.tree.arguments import arguments, external, require_mass
from jaxrbd.tree.crba import columns_by_dof, relations
from jaxrbd.tree.joints import column, joint_transforms
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.manifold import integrate
from jaxrbd.tree.node import Node, Pivot
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.rnea import inverse_dynamics
from jaxrbd.tree.spatial import ZERO3, Force, Inertia, Mat3, Motion, Vec3, outer, skew
from jaxrbd.typing import ArrayLike


class InverseDynamicsDerivatives(NamedTuple):
    """Jacobians (nv, nv) of tau = inverse_dynamics(q, v, a); with respect to a it is the mass matrix."""

    q: jax.Array
    v: jax.Array
    a: jax.Array


class ForwardDynamicsDerivatives(NamedTuple):
    """Jacobians (nv, nv) of a = forward_dynamics(q, v, tau); with respect to tau it is M^-1."""

    q: jax.Array
    v: jax.Array
    tau: jax.Array


def inverse_dynamics_derivatives(
    sys: System, q: ArrayLike, v: ArrayLike, a: ArrayLike, f_ext: ArrayLike | None = None
) -> InverseDynamicsDerivatives:
    """∂tau/∂(q, v, a), each (nv, nv), q in the tangent space; analytic, O(nb depth)."""
    q, v, a = arguments(sys, q=q, v=v, a=a)
    if needs_autodiff(sys):
        return InverseDynamicsDerivatives(*_by_autodiff(inverse_dynamics, sys, q, v, a, f_ext))
    return InverseDynamicsDerivatives(*_inverse_derivatives(sys, q, v, a, external(sys, f_ext, q.dtype)))


def forward_dynamics_derivatives(
    sys: System, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: ArrayLike | None = None
) -> ForwardDynamicsDerivatives:
    """∂a/∂(q, v, tau), each (nv, nv), q in the tangent space.

    -M^-1 times the derivatives of inverse dynamics at the acceleration that tau produces.
    """
    q, v, tau = arguments(sys, q=q, v=v, tau=tau)
    require_mass(sys, "forward_dynamics_derivatives")
    if needs_autodiff(sys):
        return ForwardDynamicsDerivatives(*_by_autodiff(forward_dynamics, sys, q, v, tau, f_ext))
    return ForwardDynamicsDerivatives(*_forward_derivatives(sys, q, v, tau, external(sys, f_ext, q.dtype)))


def needs_autodiff(sys: System) -> bool:
    """Whether columns depend on q, or loops close: the formulas above hold for neither."""
    return bool(sys.topology.clusters or nodes_of(sys.topology).paths)


def _by_autodiff(f, sys: System, q, v, x, f_ext):
    """The Jacobians of f column by column."""
    moved = lambda dq, v, x: f(sys, integrate(sys, q, dq), v, x, f_ext)  # noqa: E731
    return jax.jacfwd(moved, (0, 1, 2))(jnp.zeros_like(v), v, x)


@kernel(lambda sys, *_: [(sys.nv, sys.nv)] * 3)
def _forward_derivatives(sys: System, q, v, tau, f_ext):
    a, factor = articulated_motion(sys, q, v, tau, f_ext)
    dq, dv, _, columns = _by_rows(sys, q, v, a, f_ext)
    dq, dv, L = (jnp.moveaxis(x, -1, 0) for x in (dq, dv, _triangle(sys, factor, *columns)))
    half = _inverse_triangle(L)
    inverse = _product(half, jnp.swapaxes(half, -1, -2))
    return [jnp.moveaxis(x, 0, -1) for x in (-_product(inverse, dq), -_product(inverse, dv), inverse)]


def _triangle(sys: System, factor: Factor, S: Motion, R: Mat3, p: Vec3):
    """L, (nv, nv, B), of M = Lᵀ L from articulated bodies: L_ji = √D_j S_i·G_j for i on the path of j.

    Each D was found in the frame of its link; a Cholesky factorisation of M would lose digits to the
    condition number instead (float32, Talos: M^-1 off by 4e-4).
    """
    G, Dinv = _factor_by_dof(sys, factor, R, p)
    above = np.tril(relations(sys.topology)[0], -1)[:, :, None]
    own = np.eye(sys.topology.nv, dtype=bool)[:, :, None]

    def row(_, x):
        G_r, scale, above, own = x
        return None, jnp.where(own, scale, jnp.where(above, S.dot(G_r) * scale, 0))

    return jax.lax.scan(row, None, (G, jax.lax.rsqrt(Dinv), above, own))[1]


def _factor_by_dof(sys: System, factor: Factor, R: Mat3, p: Vec3):
    """(G, 1/D) of every freedom, G in world axes about the root's origin; roots give theirs one by one."""
    nodes = nodes_of(sys.topology)
    N, IA = nodes.size, factor.root
    armature = [x for part in kin.root_rows(sys, sys.armature) for x in part]
    world = jnp.asarray(np.arange(nodes.nroots) == 0, sys.dtype)[:, None]  # stands still: anything but zero
    at_roots: list = [None] * 6
    for k in reversed(range(6)):
        e = [int(i == k) for i in range(6)]
        column_k = Motion(Vec3(*e[:3]), Vec3(*e[3:]))
        IA, (G, Dinv) = Node(None, None, column_k, armature[k] + world).eliminate(IA)
        at_roots[k] = G.rotate(gather(R, slice(N, None))), Dinv
    at_nodes = at_roots[0]
    if N and isinstance(factor.pivot, Pivot):
        R, p = gather((R, p), slice(0, N))
        at_nodes = factor.pivot.UD.rotate(R @ factor.space.links.A).from_(p), factor.pivot.Dinv
    return jax.tree.map(lambda x, *six: kin.gather_dofs(sys, x, six), at_nodes, *at_roots)


def _product(x, y):
    return jnp.matmul(x, y, precision="highest")


def _inverse_triangle(L):
    """L^-1, (B, n, n), lower triangular; halves at a time, which trades substitutions for products."""
    n = L.shape[-1]

    def solve(L):
        eye = jnp.broadcast_to(jnp.eye(L.shape[-1], dtype=L.dtype), L.shape)
        return jax.lax.linalg.triangular_solve(L, eye, left_side=True, lower=True)

    if n < 24:
        return solve(L)
    k = n // 2
    first, second = solve(L[:, :k, :k]), solve(L[:, k:, k:])
    corner = -_product(second, _product(L[:, k:, :k], first))
    top = jnp.concatenate([first, jnp.zeros((len(L), k, n - k), L.dtype)], -1)
    return jnp.concatenate([top, jnp.concatenate([corner, second], -1)], -2)


@lru_cache(maxsize=512)
def _dof_rows(t: Topology):
    """For every freedom: rows (nodes, then roots) of itself, of what moves its column, of its parent."""
    nodes = nodes_of(t)
    N = nodes.size
    found = []
    for s in map(int, nodes.slot_of_dof):
        body = int(nodes.body[s]) if s < N else -1
        if s >= N:  # a free root: its columns move with it, its parent is the world
            root = N + 1 + (s - N) // 6
            found.append((root, root, N))
        elif nodes.moves[s]:
            found.append((s, s, int(nodes.parent[s])))
        else:  # spherical or inner free: columns move with the body
            start = next(int(k) for k in nodes.quaternion_first if nodes.body[k] == body)
            found.append((s, int(nodes.body_slot[body]), int(nodes.parent[start])))
    return tuple(np.array(found, int).reshape(-1, 3).T)


def _motions(sys: System, q, v, a):
    """Columns, positions, velocities and accelerations about the roots' origins, nodes then roots."""
    nodes = nodes_of(sys.topology)
    joints, roots = joint_transforms(sys, q, v), kin.root_states(sys, q, v)
    A0 = kin.root_twists(sys, roots.R, a)
    A0 = Motion(A0.ang, Vec3(*(x - sys.gravity[k][None] for k, x in enumerate(A0.lin))))

    def move(parent, x):
        R, p, V, A, _ = parent
        j, qd, qdd = x
        p = p + R @ j.p
        R = R @ j.R
        back = Vec3(*(-c for c in p))
        S = column(j, R).at(back)
        bias = None if j.bias is None else j.bias.rotate(R).at(back)
        return R, p, *Node(None, None, S).move(V, A, qd, qdd, bias), S

    zero3 = jax.tree.map(jnp.zeros_like, roots.p)
    start = kin.broadcast((roots.R, zero3, roots.V, A0, Motion(zero3, zero3)), q)
    R, p, V, A, S = outward(nodes, move, (joints, gather(v, nodes.v), gather(a, nodes.v)), start)
    at_roots = kin.broadcast((roots.R, zero3, roots.V, A0), q)
    return roots, S, *kin.join((R, p, V, A), at_roots)


class _Composite(NamedTuple):
    I: Inertia
    T: Mat3  # upper left of 2B
    p: Vec3  # linear momentum: the lower left of 2B is -2 p x
    f: Force
    E: object  # external: sum of x fᵀ - (x·f) 1, with f at x; or None
    f_ext: object


@kernel(lambda sys, *_: [(sys.nv, sys.nv)] * 3)
def _inverse_derivatives(sys: System, q, v, a, f_ext):
    return _by_rows(sys, q, v, a, f_ext)[:3]


def _by_rows(sys: System, q, v, a, f_ext):
    """The three Jacobians; and the columns S of all freedoms, rotations and positions they came from."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    N = nodes.size
    roots, S, R, p, V, A = _motions(sys, q, v, a)
    at_nodes, at_roots = kin.node_inertias(sys, kin.body_inertias(sys))
    I = kin.join(*kin.broadcast((at_nodes, at_roots), q)).rotate(R).from_(p)
    h = I @ V
    w, u, c = skew(V.ang), skew(V.lin), skew(I.h)
    T = w @ I.I - I.I.full() @ w - u @ c - c @ u - skew(h.ang)
    own = _Composite(I, T, h.lin, I @ A + V.cross_force(h), None, None)
    if f_ext is not None:
        fx = kin.join(*kin.external_forces(sys, f_ext, R))
        x = _body_origins(sys, R, p)
        dot = x.dot(fx.lin)
        E = outer(x, fx.lin) - Mat3(Vec3(dot, 0, 0), Vec3(0, dot, 0), Vec3(0, 0, dot))
        own = own._replace(E=E, f_ext=fx.from_(p))
    own = kin.broadcast(own, q)
    below, from_children = accumulate(nodes, gather(own, slice(0, N)))
    total = kin.join(below, jax.tree.map(jnp.add, from_children, gather(own, slice(N, None))))

    # by degree of freedom
    S, _ = columns_by_dof(sys, S, gather(p, slice(0, N)), roots)
    mine, carried, parent = _dof_rows(t)
    V_parent, A_parent = gather((V, A), parent)
    Sp = V_parent.cross(S)
    Spp = A_parent.cross(S) + V_parent.cross(Sp)
    Sv = Sp + gather(V, carried).cross(S)
    C = gather(total, mine)
    two_b = lambda m: Force(C.T @ m.ang, C.p.cross(m.ang) * -2.0)  # noqa: E731
    F = C.I @ S
    W = C.T.T @ S.ang + C.p.cross(S.lin) * 2.0  # (2B)ᵀ S, whose linear part is zero
    by_q = two_b(Sp) + C.I @ Spp
    by_v = two_b(S) + C.I @ Sv
    turned = S.cross_force(C.f)
    if f_ext is not None:
        moved = Force(C.E @ S.ang + S.lin.cross(C.f_ext.lin), ZERO3)
        turned = turned - moved
        # tau_j = -S_j·f_ext with S_j carried along by S_i: -S_i·(S_j x* f_ext) - S_j·moved_i, no linear part
        arm = S.cross_force(C.f_ext).ang + C.E.T @ S.ang
        W_ext = Vec3(*(-x for x in arm))

    # Row by row: path formulas where the column moves the row, subtree formulas where the row moves the
    # column. In a loop, because XLA would otherwise compute the columns anew for every entry.
    by_q = by_q + turned
    above, below = (m[:, :, None] for m in relations(t))

    def row(_, x):
        S_r, F_r, W_r, W_ext_r, above, below = x
        choose = lambda x, y: jnp.where(above, x, jnp.where(below, y, 0))  # noqa: E731
        path_q = W_r.dot(Sp.ang) + Spp.dot(F_r)
        path_q = path_q if f_ext is None else path_q + W_ext_r.dot(S.ang)
        dq = choose(path_q, S_r.dot(by_q))
        dv = choose(W_r.dot(S.ang) + Sv.dot(F_r), S_r.dot(by_v))
        return None, (dq, dv, choose(S.dot(F_r), S_r.dot(F)))

    xs = (S, F, W, None if f_ext is None else W_ext, above, below)
    _, (dq, dv, mass) = jax.lax.scan(row, None, xs)
    armature = jnp.asarray(np.eye(t.nv)[:, :, None], q.dtype) * sys.armature[:, None]
    return dq, dv, mass + armature, (S, R, p)


def _body_origins(sys: System, R: Mat3, p: Vec3) -> Vec3:
    """Where external wrenches act: the origin of the body frame of every node that carries one, else p."""
    t, nodes = sys.topology, nodes_of(sys.topology)
    if not t.has_offsets:
        return p
    offset = gather(sys.frame_position, np.array(t.body_frames, int))
    offset = Vec3(*(jnp.concatenate([offset[:, k], jnp.zeros_like(offset[:1, k])]) for k in range(3)))
    index = np.where(nodes.last & nodes.live, nodes.body, t.nb)
    return p + R @ gather(offset, np.concatenate([index, [t.nb], nodes.root_bodies]).astype(int))
