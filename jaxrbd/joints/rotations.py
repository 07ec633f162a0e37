"""Exponentials and logarithms of rotations and rigid motions, smooth at the identity.

Quaternions are (w, x, y, z). Everything works on arrays (..., 4) or (..., 3), one per row.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax


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


def quaternion_log(q, axis: int = -1):
    """Rotation vector of a quaternion, the one shorter than pi; smooth at the identity.

    `axis`: where the four numbers stand, and the three of the result.
    """
    part = lambda q, start, stop: lax.slice_in_dim(q, start, stop, axis=axis)  # noqa: E731
    q = jnp.where(part(q, 0, 1) < 0, -q, q)
    w, v = part(q, 0, 1), part(q, 1, 4)
    s2 = jnp.sum(v * v, axis, keepdims=True)
    small = s2 < _tiny(s2) * w * w
    s = jnp.sqrt(jnp.where(small, 1.0, s2))
    safe_w = jnp.where(small, w, 1.0)
    x2 = s2 / (safe_w * safe_w)
    series = 2 / safe_w * (1 - x2 * (1 / 3 - x2 / 5))
    return v * jnp.where(small, series, 2 * jnp.arctan2(s, jnp.where(small, 1.0, w)) / s)


def quaternion_of(R, axis: int = -1):
    """Unit quaternion of a rotation given by its rows R[i][j], arrays of any shape; it stands along `axis`.

    By way of 4 q qᵀ, whose column with the largest diagonal is a well conditioned multiple of q.
    """
    (a, b, c), (d, e, f), (g, h, i) = R
    x, y, z, xy, xz, yz = h - f, c - g, d - b, b + d, c + g, f + h
    diagonal = (1 + a + e + i, 1 + a - e - i, 1 - a + e - i, 1 - a - e + i)
    ww, xx, yy, zz = diagonal
    best, length = (ww, x, y, z), ww
    for candidate, k in zip(((x, xx, xy, xz), (y, xy, yy, yz), (z, xz, yz, zz)), diagonal[1:]):
        longer = k > length
        best = tuple(jnp.where(longer, new, old) for new, old in zip(candidate, best))
        length = jnp.where(longer, k, length)
    q = jnp.stack(best, axis)
    return q / jnp.sqrt(jnp.sum(q * q, axis, keepdims=True))


def rotation_log(R, axis: int = -1):
    """Rotation vector of a rotation given by its rows, its length at most pi; smooth below pi."""
    return quaternion_log(quaternion_of(R, axis), axis)


def left_jacobian(w, u):
    """Integral of exp(t [w]) u over unit time: where a constant body twist (w, u) leads."""
    t2 = jnp.sum(w * w, -1, keepdims=True)
    small = t2 < _tiny(t2)
    safe = jnp.where(small, 1.0, t2)
    t = jnp.sqrt(safe)
    b = jnp.where(small, 0.5 - t2 / 24, 2 * jnp.sin(t / 2) ** 2 / safe)
    c = jnp.where(small, 1 / 6 - t2 / 120, (t - jnp.sin(t)) / (safe * t))
    wu = jnp.cross(w, u)
    return u + b * wu + c * jnp.cross(w, wu)


def left_jacobian_inverse(w, x):
    """u with left_jacobian(w, u) = x; its transpose is the inverse of the right Jacobian."""
    t2 = jnp.sum(w * w, -1, keepdims=True)
    small = t2 < _tiny(t2)
    safe = jnp.where(small, 1.0, t2)
    t = jnp.sqrt(safe)
    c = jnp.where(small, 1 / 12 + t2 / 720, (1 - 0.5 * t / jnp.tan(t / 2)) / safe)
    wx = jnp.cross(w, x)
    return x - 0.5 * wx + c * jnp.cross(w, wx)


def conjugate(q):
    return q * jnp.asarray([1.0, -1.0, -1.0, -1.0], q.dtype)


def unit(q):
    return q / jnp.sqrt(jnp.sum(q * q, -1, keepdims=True))


def _tiny(x):
    return 1e-6 if x.dtype == jnp.float64 else 1e-3
