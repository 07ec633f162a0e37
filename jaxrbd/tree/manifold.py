"""The configuration manifold: q + v on SO(3) and SE(3) joints, plain addition elsewhere.

integrate(q, dv) moves from q along the joint velocities dv for unit time: the exponential of SE(3) or
SO(3) where the joint has one, so difference(q, integrate(q, dv)) = dv for rotations below pi.
"""

from __future__ import annotations

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import gather
from jaxrbd.model.system import System, Topology, check_system
from jaxrbd.tree.arguments import arguments, array


@lru_cache(maxsize=512)
def layout(t: Topology):
    """Index arrays: scalar coordinates (q, v), quaternions (q start, v start), free positions (q, v)."""
    scalar_q, scalar_v, quat_q, quat_v, free_q, free_v = [], [], [], [], [], []
    for kind, q, v, q_end in zip(t.joint_types, t.q_starts, t.v_starts, t.q_starts[1:]):
        if kind == "spherical":
            quat_q.append(q)
            quat_v.append(v)
        elif kind == "free":
            free_q.append(q)
            free_v.append(v)
        else:
            scalar_q += range(q, q_end)
            scalar_v += range(v, v + q_end - q)
    return tuple(np.array(x, int) for x in (scalar_q, scalar_v, quat_q, quat_v, free_q, free_v))


def neutral(sys: System):
    """The configuration with every coordinate zero and every rotation the identity."""
    check_system(sys, "neutral")
    _, _, sq, _, fq, _ = layout(sys.topology)
    q = np.zeros(sys.nq)
    q[sq], q[fq + 3] = 1.0, 1.0
    return jnp.asarray(q, sys.dtype)


def random_configuration(sys: System, key, spread: float = 1.0):
    """Uniform within joint limits where they are finite (else in ±pi or ±1 m), uniform rotations.

    `spread` scales the range of unlimited coordinates and the positions of free joints.
    """
    check_system(sys, "random_configuration")
    scalar_q, scalar_v, sq, _, fq, _ = layout(sys.topology)
    k1, k2, k3 = jax.random.split(key, 3)
    turns = np.ones(sys.nq)
    t = sys.topology
    for kind, q in zip(t.joint_types, t.q_starts):
        if kind in ("revolute", "continuous", "screw", "universal", "cylindrical"):
            turns[q : q + (2 if kind == "universal" else 1)] = np.pi
        elif kind == "planar":
            turns[q + 2] = np.pi
    reach = jnp.asarray(turns, sys.dtype) * spread
    low, high = sys.lower[scalar_v], sys.upper[scalar_v]
    low = jnp.where(jnp.isfinite(low), low, jnp.where(jnp.isfinite(high), high, 0) - reach[scalar_q])
    high = jnp.where(jnp.isfinite(high), high, jnp.where(jnp.isfinite(low), low, 0) + reach[scalar_q] * 2)
    unlimited = ~jnp.isfinite(sys.lower[scalar_v]) & ~jnp.isfinite(sys.upper[scalar_v])
    high = jnp.where(unlimited, reach[scalar_q], high)
    q = jnp.zeros(sys.nq, sys.dtype)
    u = jax.random.uniform(k1, (len(scalar_q),), sys.dtype)
    q = q.at[scalar_q].set(low + u * (high - low))
    starts = np.concatenate([sq, fq + 3])
    quats = jax.random.normal(k2, (len(starts), 4), sys.dtype)
    quats = quats / jnp.linalg.norm(quats, axis=1, keepdims=True)
    q = q.at[starts[:, None] + np.arange(4)].set(quats)
    p = jax.random.uniform(k3, (len(fq), 3), sys.dtype, -1.0, 1.0) * spread
    return q.at[fq[:, None] + np.arange(3)].set(p)


def normalize(sys: System, q):
    """q with every quaternion divided by its norm."""
    (q,) = arguments(sys, q=q)
    _, _, sq, _, fq, _ = layout(sys.topology)
    starts = np.concatenate([sq, fq + 3])
    if not len(starts):
        return q
    where = starts[:, None] + np.arange(4)
    quat = gather(q, where)
    return q.at[where].set(quat / jnp.linalg.norm(quat, axis=1, keepdims=True))


def integrate(sys: System, q, dv):
    """q ⊞ dv: the configuration reached from q by moving with joint velocities dv for unit time."""
    q, dv = arguments(sys, q=q, dv=dv)
    return _integrate(sys.topology, q, dv)


@partial(jax.checkpoint, prevent_cse=False, static_argnums=0)  # reverse mode keeps q and dv alone
def _integrate(t: Topology, q, dv):
    scalar_q, scalar_v, sq, sv, fq, fv = layout(t)
    pieces = [(scalar_q, gather(q, scalar_q) + gather(dv, scalar_v))]
    if len(sq):
        quat = gather(q, sq[:, None] + np.arange(4))
        turn = quaternion_exp(gather(dv, sv[:, None] + np.arange(3)))
        pieces.append((sq[:, None] + np.arange(4), unit(quaternion_product(quat, turn))))
    if len(fq):
        w, u = gather(dv, fv[:, None] + np.arange(3)), gather(dv, fv[:, None] + np.arange(3, 6))
        where, at = fq[:, None] + np.arange(3, 7), fq[:, None] + np.arange(3)
        quat = gather(q, where)
        pieces.append((where, unit(quaternion_product(quat, quaternion_exp(w)))))
        pieces.append((at, gather(q, at) + quaternion_rotate(unit(quat), _left_jacobian(w, u))))
    return assemble(pieces)


def difference(sys: System, q0, q1):
    """q1 ⊟ q0: the joint velocities that lead from q0 to q1 in unit time; the inverse of `integrate`."""
    q0, q1 = arguments(sys, q0=q0, q1=q1)
    scalar_q, scalar_v, sq, sv, fq, fv = layout(sys.topology)
    pieces = [(scalar_v, gather(q1, scalar_q) - gather(q0, scalar_q))]
    if len(sq):
        where = sq[:, None] + np.arange(4)
        w = quaternion_log(quaternion_product(conjugate(gather(q0, where)), gather(q1, where)))
        pieces.append((sv[:, None] + np.arange(3), w))
    if len(fq):
        where, at = fq[:, None] + np.arange(3, 7), fq[:, None] + np.arange(3)
        back = conjugate(unit(gather(q0, where)))
        w = quaternion_log(quaternion_product(back, gather(q1, where)))
        u = _left_jacobian_inverse(w, quaternion_rotate(back, gather(q1, at) - gather(q0, at)))
        pieces += [(fv[:, None] + np.arange(3), w), (fv[:, None] + np.arange(3, 6), u)]
    return assemble(pieces)


def assemble(pieces):
    """One vector from (indices, values) pieces that cover it: a concatenation and a gather."""
    index = np.concatenate([np.asarray(i).reshape(-1) for i, _ in pieces])
    values = jnp.concatenate([x.reshape(-1) for _, x in pieces])
    return gather(values, np.argsort(index))


def exchange(x, where, values):
    """x with other numbers at the indices `where`."""
    rest = np.setdiff1d(np.arange(x.shape[0]), where)
    return assemble([(rest, gather(x, rest)), (where, values)])


def tangent_gradient(sys: System, q, g):
    """Gradient with respect to the nv numbers of dv in integrate(q, dv), from the nq numbers of jax.grad."""
    (q,) = arguments(sys, q=q)
    g = array("g", g, (sys.nq,), f"(nq,) = ({sys.nq},)", sys.dtype)
    zero = jnp.zeros(sys.nv, q.dtype)
    return jax.vjp(lambda dv: integrate(sys, q, dv), zero)[1](g)[0]


def quaternion_product(a, b):
    aw, bw, av, bv = a[..., :1], b[..., :1], a[..., 1:], b[..., 1:]
    w = aw * bw - jnp.sum(av * bv, -1, keepdims=True)
    return jnp.concatenate([w, aw * bv + bw * av + jnp.cross(av, bv)], -1)


def quaternion_rotate(q, x):
    t = 2 * jnp.cross(q[..., 1:], x)
    return x + q[..., :1] * t + jnp.cross(q[..., 1:], t)


def quaternion_exp(w):
    """exp of the rotation vector w as a unit quaternion; smooth at zero."""
    t2 = jnp.sum(w * w, -1, keepdims=True)
    small = t2 < _tiny(t2)
    t = jnp.sqrt(jnp.where(small, 1.0, t2))
    half_sinc = jnp.where(small, 0.5 - t2 / 48, jnp.sin(t / 2) / t)
    cosine = jnp.where(small, 1 - t2 / 8, jnp.cos(t / 2))
    return jnp.concatenate([cosine, half_sinc * w], -1)


def quaternion_log(q):
    """Rotation vector of a quaternion, the one shorter than pi; smooth at the identity."""
    q = jnp.where(q[..., :1] < 0, -q, q)
    w, v = q[..., :1], q[..., 1:]
    s2 = jnp.sum(v * v, -1, keepdims=True)
    small = s2 < _tiny(s2) * w * w
    s = jnp.sqrt(jnp.where(small, 1.0, s2))
    safe_w = jnp.where(small, w, 1.0)
    series = 2 / safe_w * (1 - s2 / (3 * safe_w * safe_w))
    return v * jnp.where(small, series, 2 * jnp.arctan2(s, jnp.where(small, 1.0, w)) / s)


def _left_jacobian(w, u):
    """Integral of exp(t [w]) u over unit time: where a constant body twist (w, u) leads."""
    t2 = jnp.sum(w * w, -1, keepdims=True)
    small = t2 < _tiny(t2)
    safe = jnp.where(small, 1.0, t2)
    t = jnp.sqrt(safe)
    b = jnp.where(small, 0.5 - t2 / 24, 2 * jnp.sin(t / 2) ** 2 / safe)
    c = jnp.where(small, 1 / 6 - t2 / 120, (t - jnp.sin(t)) / (safe * t))
    wu = jnp.cross(w, u)
    return u + b * wu + c * jnp.cross(w, wu)


def _left_jacobian_inverse(w, x):
    t2 = jnp.sum(w * w, -1, keepdims=True)
    small = t2 < _tiny(t2)
    safe = jnp.where(small, 1.0, t2)
    t = jnp.sqrt(safe)
    c = jnp.where(small, 1 / 12 + t2 / 720, (1 - 0.5 * t / jnp.tan(t / 2)) / safe)
    wx = jnp.cross(w, x)
    return x - 0.5 * wx + c * jnp.cross(w, wx)


def _tiny(x):
    return 1e-6 if x.dtype == jnp.float64 else 1e-3


def conjugate(q):
    return q * jnp.asarray([1.0, -1.0, -1.0, -1.0], q.dtype)


def unit(q):
    return q / jnp.sqrt(jnp.sum(q * q, -1, keepdims=True))
