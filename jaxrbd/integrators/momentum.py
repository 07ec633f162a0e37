"""Momentum of free-floating trees, made exact after a step by a change of each free root's velocity.

With h the momentum of a tree and ḣ its rate at (q, v, a), which is the wrench of all outer forces, the step
ends with h' = h + dt ḣ: linear momentum, and angular momentum about the centre of mass, which moves by
dt P'/m. What the step itself misses is of order dt², so its order stays. The change at the root solves the
6x6 of the composite inertia at q', in parts: total mass, and inertia about the centre of mass.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.engine.scan import outward
from jaxrbd.joints import TYPES
from jaxrbd.model.system import System, Topology
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree.joints import column, joint_transforms
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.ldl import solve_ldl
from jaxrbd.tree.manifold import exchange, free_joints
from jaxrbd.tree.node import Node
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.tree.opening import opened
from jaxrbd.tree.spatial import Inertia, Motion, Sym3, Vec3, rotation_from_quaternion, vec3


def keep_momentum(sys: System, start, a, end, dt):
    """The state `end`, reached from `start` with acceleration a in dt, with h' = h + dt ḣ for each free root.

    States are pairs (q, v). Other joints keep what they have.
    """
    places = free_roots(sys.topology)[0][:, :3]
    if not len(places):
        return end
    (q, v), (q1, v1) = start, end
    # M (v + dt a) + dt b = h + dt ḣ
    mass, c, P, L = _centroidal(_wrenches(*opened(sys, q, v, a + v / dt)), dt)
    c1, v1 = _with_momentum(sys, q1, v1, P, L)
    x = vec3(gather(q, places)) + c - c1 + P * (dt / mass)
    return exchange(q1, places, jnp.stack([*x], 1)), v1


def carry_momentum(sys: System, q, v, q1):
    """The velocity at q1 with the momentum that v has at q; the centre of mass should be the same."""
    if not len(free_roots(sys.topology)[0]):
        return v
    _, _, P, L = _centroidal(_momenta(sys, q, v))
    return _with_momentum(sys, q1, v, P, L)[1]


def _with_momentum(sys: System, q, v, P: Vec3, L: Vec3):
    """Centre of mass of each tree (from its root's origin), and v with the roots changed to momenta P, L."""
    rows, twists = free_roots(sys.topology)
    now = _momenta(sys, q, v)
    mass, c, P_now, L_now = _centroidal(now)
    inertia = _about_centre(Inertia(mass, c * mass, Sym3(*(now[:, k] for k in range(10, 16)))))
    turn = Vec3(*solve_ldl(inertia, [*(L - L_now)]))
    slide = (P - P_now) * (1 / mass) - turn.cross(c)
    R = rotation_from_quaternion(*(gather(q, rows[:, k]) for k in range(3, 7)))
    change = Motion(turn, slide).rotate(R.T)
    return c, exchange(v, twists, gather(v, twists) + jnp.stack([*change.ang, *change.lin], 1))


def free_roots(t: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, 7) of q and (n, 6) of v of the free joints on the world."""
    on_world = [t.parents[b] < 0 for b, kind in enumerate(t.joint_types) if TYPES[kind].free]
    q, v = free_joints(t)
    return q[on_world], v[on_world]


def _momenta(sys: System, q, v):
    tree, q, v = opened(sys, q, v)
    return _wrenches(tree, q, None, v)


def _centroidal(h, dt=1):
    """(mass, centre of mass, linear, angular momentum about it) from dt times the wrenches of `_wrenches`."""
    L, P, mass = vec3(h[:, :3] * dt), vec3(h[:, 3:6] * dt), h[:, 6]
    c = vec3(h[:, 7:10]) * (1 / mass)
    return mass, c, P, L - c.cross(P)


def _about_centre(I: Inertia):
    """Inertia about the centre of mass as rows of entries: parallel axes backwards."""
    c = I.h * (1 / I.mass)
    s = c.dot(I.h)
    full, h = I.I.full(), I.h
    return [[full[i][j] - (s if i == j else 0) + c[i] * h[j] for j in range(3)] for i in range(3)]


@kernel(lambda sys, q, v, a: (len(nodes_of(sys.topology).root_bodies), 16 if v is None else 10))
def _wrenches(sys: System, q, v, a):
    """Per free root, in world axes about its origin: wrench M a + b of its tree without gravity and rotors,
    then mass (1) and mass moment (3) of the tree; with v None no velocity products, and its inertia (6)."""
    nodes = nodes_of(sys.topology)
    joints, roots = joint_transforms(sys, q, v), kin.root_states(sys, q, v)
    A0 = kin.root_twists(sys, roots.R, a)

    def move(parent, x):
        R, p, A, V = parent
        j, qdd, qd = x
        r = R @ j.p
        R = R @ j.R
        node = Node(None, r, column(j, R))
        bias = None if j.bias is None else j.bias.rotate(R)
        if V is None:
            return R, p + r, node.arrive(A) + node.expand(qdd), None
        V, A = node.move(V, A, qd, qdd, bias)
        return R, p + r, A, V

    start = kin.broadcast((roots.R, jax.tree.map(jnp.zeros_like, roots.p), A0, roots.V), q)
    speeds = None if v is None else gather(v, nodes.v)
    R, p, A, V = outward(nodes, move, (joints, gather(a, nodes.v), speeds), start)
    bodies, root_bodies = kin.node_inertias(sys, kin.body_inertias(sys))
    _, p0, A_roots, V_roots = start
    own = _numbers(root_bodies.rotate(roots.R), p0, A_roots, V_roots, q)[1:]
    if not nodes.size:
        return own
    parts = _numbers(bodies.rotate(R), p, A, V, q)
    trees = [np.flatnonzero((nodes.root == k) & nodes.live) for k in range(1, nodes.nroots)]
    return own + jnp.stack([jnp.sum(gather(parts, tree), 0) for tree in trees])


def _numbers(I: Inertia, p: Vec3, A: Motion, V: Motion | None, like):
    """The same of each body, from its inertia about its own origin, which lies at p."""
    f = I @ A if V is None else I @ A + V.cross_force(I @ V)
    f = f.from_(p)
    if V is None:
        moved = I.from_(p)
        inertia = [moved.mass, *moved.h, *moved.I]
    else:
        inertia = [I.mass, *(I.h + p * I.mass)]
    numbers = [*f.ang, *f.lin, *inertia]
    return jnp.stack([jnp.broadcast_to(x, x.shape[:1] + like.shape[1:]) for x in numbers], 1)
