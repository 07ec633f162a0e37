"""Forward dynamics by articulated bodies: a = M(q)^-1 (tau - b(q, v) + J^T f_ext) in O(nb).

[RBDA] Table 7.1, every link in its own frame with the joint axis along z. The joint's inertia is then
one entry of the articulated inertia and rigid inertias are constants; in world-aligned axes that entry
is a difference of large numbers (float32, 29-DoF humanoid, worst of 200 states: 1e-4 instead of 2e-6).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.engine.scan import inward, outward
from jaxrbd.engine.schedule import Schedule
from jaxrbd.model.system import System
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.arguments import arguments, external, require_mass
from jaxrbd.tree.crba import _mass_matrix
from jaxrbd.tree.dense import forward_dynamics_dense
from jaxrbd.tree.freedoms import Clustered, Single, at_roots, joint_space
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.lanes import LaneNode, LanePivot, Rates
from jaxrbd.tree.ldl import solve_ldl
from jaxrbd.tree.node import Node, Pivot
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.rnea import _inverse_dynamics
from jaxrbd.tree.spatial import ZERO3, ArticulatedInertia, Force, Motion, Vec3
from jaxrbd.typing import Array, ArrayLike

NO_BIAS = Motion(ZERO3, ZERO3)


class Factor(NamedTuple):
    """What remains of the inward pass over inertias: enough to apply M^-1 in O(nb)."""

    space: Single | Clustered
    pivot: Pivot | LanePivot | None
    root: ArticulatedInertia  # of the free roots, in their own axes


def forward_dynamics(
    sys: System, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: ArrayLike | None = None
) -> Array:
    """Joint accelerations  a = M(q)^-1 (tau - b(q, v) + J^T f_ext).

    Articulated bodies, [RBDA] Table 7.1, O(nb). f_ext: (nb, 6) wrenches on the bodies in world-aligned
    axes at the body origins, moment first [N m, N]. Armature is in M; damping, springs and friction are
    not here (see `passive_force`).
    """
    q, v, tau = arguments(sys, q=q, v=v, tau=tau)
    f_ext = external(sys, f_ext, q.dtype)
    require_mass(sys, "forward_dynamics")
    return _forward_dynamics(sys, q, v, tau, f_ext)


def mass_matrix_solve(sys: System, q: ArrayLike, b: ArrayLike) -> Array:
    """M(q)^-1 b in O(nb), by the same factorisation as forward dynamics."""
    q, b = arguments(sys, q=q, b=b)
    require_mass(sys, "mass_matrix_solve")
    return _mass_matrix_solve(sys, q, b)


def mass_matrix_inverse(sys: System, q: ArrayLike) -> Array:
    """M(q)^-1, (nv, nv), from one articulated-body factorisation: O(nb nv)."""
    (q,) = arguments(sys, q=q)
    require_mass(sys, "mass_matrix_inverse")
    return _mass_matrix_inverse(sys, q)


def _suits_masks(sys: System) -> bool:
    """Dense masks know neither columns that depend on q nor loops."""
    return not sys.topology.clusters and not nodes_of(sys.topology).paths


@kernel(lambda sys, *_: (sys.nv,), single=forward_dynamics_dense, small=2, suits=_suits_masks)
def _forward_dynamics(sys: System, q, v, tau, f_ext):
    return articulated_motion(sys, q, v, tau, f_ext)[0]


def articulated_motion(sys: System, q, v, tau, f_ext):
    """Accelerations and the factor they came from, batch last.

    Three passes: velocities outward, articulated inertias and biases inward, accelerations outward. A System
    with clusters takes the same passes with lanes ([GRBDA] Algorithm 1).
    """
    space = joint_space(sys, q, v)
    sys, nodes, links, q, v = space.sys, space.nodes, space.links, space.q, space.v
    qd, R0 = space.rates(v), kin.root_states(sys, q).R

    # pass 1, outward: velocities
    def velocity(V, x):
        node, qd = x
        return node.arrive(V) + node.expand(qd)

    V0 = kin.root_rows(sys, v, Motion)
    V = outward(nodes, velocity, (links.node, qd), V0)

    # between the passes, all links at once: velocity products and bias forces
    c = V.cross(links.node.expand(qd))
    c = c if links.bias is None else c + links.bias
    c = c if space.g is None else c + links.node.expand(space.rates(space.g))
    I, I0 = kin.node_inertias(sys, kin.body_inertias(sys), nodes)
    I = I.rotate(links.A.T)
    pA, pA0 = V.cross_force(I @ V), V0.cross_force(I0 @ V0)
    if f_ext is not None:
        f, f0 = kin.forces_in_links(sys, q, f_ext, links, nodes)
        pA, pA0 = pA - f, pA0 - f0
    I, pA, I0, pA0, c = space.fold(I, pA, I0, pA0, c)

    # pass 2, inward: articulated inertias and biases
    def articulate(acc, x):
        IA, pA = acc
        node, I, p_own, c, tau = x
        Ia, pivot = node.eliminate(IA + I.articulated())
        pA = pA + p_own
        u = tau - node.project(pA)
        pa = pivot.reaction(pA + Ia @ c, u)
        return (node.hand_on(Ia), node.hand_on(pa)), (pivot, pivot.alone(u))

    xs = (space.node, I, pA, c, space.loads(space.driving(tau)))
    (IA0, p0), out = inward(nodes.in_rows, articulate, xs, kin.zeros(space.zero, q))
    pivot, alone = out if nodes.size else (None, None)
    factor = Factor(space, pivot, at_roots(IA0) + I0.articulated())

    # the roots: a 6x6 symmetric solve each; the world accelerates against gravity, but armature does not
    g = R0.T @ Vec3(*(sys.gravity[k][None] for k in range(3)))
    rotor = kin.root_rows(sys, sys.armature, Force).lin
    f0 = kin.root_rows(sys, space.in_tree(tau), Force) - (at_roots(p0) + pA0)
    f0 = Force(f0.ang, Vec3(*(f - m * x for f, m, x in zip(f0.lin, rotor, g))))
    A0 = solve_roots(root_armature(sys), factor.root, f0)
    world = jnp.asarray(np.arange(nodes.nroots) == 0, q.dtype)[:, None]
    A0 = Motion(A0.ang, A0.lin - g * world)

    # pass 3, outward: accelerations
    qdd = joint_accelerations(nodes.in_rows, space.light, pivot, alone, A0, q, c, space.still)
    return space.collect(qdd, [*A0.ang, *(A0.lin + g)]), factor


def joint_accelerations(
    nodes: Schedule, node: Node | LaneNode, pivot, alone, A0: Motion, like, c=NO_BIAS, still=0
):
    """Outward from the accelerations A0 of the roots: (u - U·A) / D of every node; `alone` is u / D.

    `still`: the rate of a root, with as many numbers as nodes have lanes.
    """

    def accelerate(parent, x):
        node, pivot, alone, c = x
        A = node.arrive(parent[0]) + c
        a = node.rate(pivot, alone, A, parent[1])
        return A + node.expand(a), a

    rest = jax.tree.map(lambda _: jnp.zeros_like(A0.ang.x), still)
    start = kin.broadcast((A0, rest), like)
    needed = pivot and pivot._replace(Dinv=None)
    return outward(nodes, accelerate, (node, needed, alone, c), start)[1]


def articulated_solve(sys: System, q, b):
    """M^-1 b for one b: (nv, B), factor and solve together: one inward and one outward pass."""
    space = joint_space(sys, q)
    sys, nodes, links = space.sys, space.nodes, space.links
    I, I0 = kin.node_inertias(sys, kin.body_inertias(sys), nodes)
    I, I0 = space.fold_inertia(I.rotate(links.A.T), I0)

    def articulate(acc, x):
        IA, p = acc
        node, I, b = x
        Ia, pivot = node.eliminate(IA + I.articulated())
        u = b - node.project(p)
        return (node.hand_on(Ia), node.hand_on(pivot.reaction(p, u))), (pivot, pivot.alone(u))

    xs = (space.node, I, space.loads(b))
    (IA0, p0), out = inward(nodes.in_rows, articulate, xs, kin.zeros(space.zero, b))
    f0 = kin.root_rows(sys, space.in_tree(b), Force) - at_roots(p0)
    A0 = solve_roots(root_armature(sys), at_roots(IA0) + I0.articulated(), f0)
    pivot, alone = out if nodes.size else (None, None)
    a = joint_accelerations(nodes.in_rows, space.light, pivot, alone, A0, b, still=space.still)
    return space.collect(a, [*A0.ang, *A0.lin])


def articulated_factor(sys: System, q) -> Factor:
    """Articulated inertias alone: the O(nb) factorisation behind M^-1 b."""
    space = joint_space(sys, q)
    sys, nodes, links = space.sys, space.nodes, space.links
    I, I0 = kin.node_inertias(sys, kin.body_inertias(sys), nodes)
    I, I0 = space.fold_inertia(I.rotate(links.A.T), I0)

    def articulate(acc, x):
        node, I = x
        Ia, pivot = node.eliminate(acc + I.articulated())
        return node.hand_on(Ia), pivot

    IA0, pivot = inward(nodes.in_rows, articulate, (space.node, I), kin.zeros(space.zero[0], q))
    return Factor(space, pivot, at_roots(IA0) + I0.articulated())


def factor_solve(factor: Factor, b):
    """M^-1 b for b: (nv, B), given the factor: one inward and one outward pass."""
    space, pivot = factor.space, factor.pivot
    u, _, A0 = _loads(factor, b)
    alone = pivot and pivot.alone(u)
    a = joint_accelerations(space.nodes.in_rows, space.light, pivot, alone, A0, b, still=space.still)
    return space.collect(a, [*A0.ang, *A0.lin])


def _loads(factor: Factor, b):
    """The inward pass for joint forces b: what each node lacks, forces and accelerations of the roots."""
    space, pivot = factor.space, factor.pivot

    def push(acc, x):
        node, pivot, b = x
        u = b - node.project(acc)
        return node.hand_on(pivot.reaction(acc, u)), u

    xs = (space.light, pivot and pivot._replace(Dinv=None), space.loads(b))
    p0, u = inward(space.nodes.in_rows, push, xs, kin.zeros(space.zero[1], b))
    f0 = kin.root_rows(space.sys, space.in_tree(b), Force) - at_roots(p0)
    return u, f0, solve_roots(root_armature(space.sys), factor.root, f0)


def joint_loads_of(factor: Factor, b):
    """Halves of M^-1 for b: (nv, B): (u, D⁻¹ u) of all closings and roots, stacked (k, B).

    b1·M^-1 b2 is the sum of products of the first half of b1 and the second of b2: an inward pass alone.
    """
    u, f0, A0 = _loads(factor, b)
    alone = factor.pivot and factor.pivot.alone(u)
    six = lambda x: jnp.concatenate([*x.ang, *x.lin])  # noqa: E731
    lanes = lambda x: jnp.concatenate(jax.tree.leaves(x.c if isinstance(x, Rates) else x))  # noqa: E731
    return jnp.concatenate([lanes(u), six(f0)]), jnp.concatenate([lanes(alone), six(A0)])


def _forward_tangent(args, results, tangents):
    """da = M^-1 (dtau - dID), where dID is the tangent of inverse dynamics at the acceleration found.

    M(q) a + b = tau holds along any path, so the sweeps above are never differentiated.
    """
    sys, q, *_ = args
    rhs = _lacking_force(args, results[0], tangents)
    batch = jnp.broadcast_shapes(rhs.shape[-1:], q.shape[-1:])
    return [articulated_solve(sys, _widen(q, batch), _widen(rhs, batch))]


def _forward_pair(args, tangents):
    """The acceleration, and its tangent by the same factor: the articulated inertias are found once."""
    sys, *states = args
    batch = jnp.broadcast_shapes(*(x.shape[-1:] for x in jax.tree.leaves(args)))
    a, factor = articulated_motion(sys, *jax.tree.map(lambda x: _widen(x, batch), states))
    rhs = _lacking_force(args, a, tangents)
    return [a], [factor_solve(factor, _widen(rhs, batch))]


def _lacking_force(args, a, tangents):
    """dtau - dID: what the moved state lacks in joint forces to keep its acceleration a."""
    (sys, q, v, _, f_ext), (dsys, dq, dv, dtau, df_ext) = args, tangents
    rhs = jnp.zeros_like(a) if dtau is None else dtau
    moved = (dsys, dq, dv, None, df_ext)
    if jax.tree.leaves(moved):
        rhs = rhs - _inverse_dynamics.tangent((sys, q, v, a, f_ext), [], moved)[0]
    return rhs


def _forward_adjoint(args, results, wanted, cotangents):
    """lam = M^-1 times the cotangent of a is tau's cotangent; the others are the adjoint of ID at -lam."""
    (sys, q, v, tau, f_ext), (a,), (ct,) = args, results, cotangents
    batch = jnp.broadcast_shapes(ct.shape[-1:], *(x.shape[-1:] for x in jax.tree.leaves(args)))
    lam = articulated_solve(sys, _widen(q, batch), _widen(ct, batch))
    others = wanted[:3] + (False,) + wanted[4:]
    found = _inverse_dynamics.adjoint((sys, q, v, a, f_ext), [], others, [-lam])
    return *found[:3], lam if tau.shape[-1:] == batch else jnp.sum(lam, -1, keepdims=True), *found[4:]


def _widen(x, batch):
    return jnp.broadcast_to(x, x.shape[:-1] + batch)


_forward_dynamics.derivatives(_forward_tangent, _forward_adjoint, uses_output=True, pair=_forward_pair)


@kernel(lambda sys, *_: (sys.nv,))
def _mass_matrix_solve(sys: System, q, b):
    return articulated_solve(sys, q, b)


@kernel(lambda sys, *_: (sys.nv, sys.nv))
def _mass_matrix_inverse(sys: System, q):
    """All columns of M^-1 from one factorisation: O(nb nv)."""
    nv = sys.topology.nv
    batch = jnp.broadcast_shapes(q.shape[-1:], sys.mass.shape[-1:])
    factor = articulated_factor(sys, jnp.broadcast_to(q, q.shape[:-1] + batch))
    eye = jnp.eye(nv, dtype=q.dtype)

    def column(e):
        return factor_solve(factor, jnp.broadcast_to(e[:, None], (nv,) + batch))

    inverse = jax.lax.map(column, eye)
    return 0.5 * (inverse + jnp.swapaxes(inverse, 0, 1))


def _inverse_tangent(args, results, tangents):
    """d(M^-1) = -M^-1 dM M^-1, with dM that of composite rigid bodies."""
    (dM,) = _mass_matrix.tangent(args, [], tangents)
    return [-product(results[0], product(dM, results[0]))]


def _inverse_adjoint(args, results, wanted, cotangents):
    (inverse,), (ct,) = results, cotangents
    return _mass_matrix.adjoint(args, [], wanted, [-product(inverse, product(ct, inverse))])


_mass_matrix_inverse.derivatives(_inverse_tangent, _inverse_adjoint, uses_output=True)


def product(A: Array, B: Array) -> Array:
    """Matrices (k, n, B) times (n, m, B), an outer product after the other."""
    batch = jnp.broadcast_shapes(A.shape[-1:], B.shape[-1:])
    zero = jnp.zeros((A.shape[0], B.shape[1], *batch), B.dtype)
    step = lambda C, x: (C + x[0][:, None] * x[1][None], None)  # noqa: E731
    return jax.lax.scan(step, zero, (jnp.swapaxes(A, 0, 1), B))[0]


def root_armature(sys: System):
    """Armature of the roots' six columns, (nroots, 6, B); the world's is zero."""
    six = kin.root_rows(sys, sys.armature, Force)
    return jnp.stack([*six.ang, *six.lin], 1)


def solve_roots(armature, IA: ArticulatedInertia, f: Force) -> Motion:
    """(IA + armature) A = f for every free root by 6x6 LDLᵀ; the world's row is zero."""
    zero = jax.tree.map(lambda x: jnp.zeros_like(x[:1]), f)
    if f.ang.x.shape[0] == 1:
        return Motion(zero.ang, zero.lin)
    IA, f, armature = gather((IA, f, armature), slice(1, None))
    M = symmetric_matrix(IA)
    for k in range(6):
        M[k][k] = M[k][k] + armature[:, k]
    x = solve_ldl(M, [*f.ang, *f.lin])
    return kin.join(Motion(zero.ang, zero.lin), Motion(Vec3(*x[:3]), Vec3(*x[3:])))


def symmetric_matrix(IA: ArticulatedInertia) -> list[list]:
    """The 36 numbers of an articulated inertia, row by row."""
    A, B, C = IA.A.full(), IA.B, IA.C.full()
    return [[*A[i], *B[i]] for i in range(3)] + [[*(B[k][i] for k in range(3)), *C[i]] for i in range(3)]
