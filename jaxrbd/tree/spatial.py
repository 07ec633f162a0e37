"""Spatial algebra on struct-of-arrays: every component is an array over links (and batch).

A 3-vector is three arrays, a rigid inertia ten, an articulated inertia twenty-one; the operators
below expand to scalar arithmetic, which XLA turns into plain vector loops. A component may also be
the Python integer 0 or 1: products with it vanish while tracing, so a joint axis (0, 0, 1) or the skew
part of a rigid inertia costs nothing. Conventions of [RBDA] chapter 2, angular before linear; axes and
origin are the caller's business.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

Scalar = Any  # an array, or the integer 0


def _is_zero(x) -> bool:
    return isinstance(x, int) and x == 0


def _is_one(x) -> bool:
    return isinstance(x, int) and x == 1


def _add(a, b):
    return b if _is_zero(a) else a if _is_zero(b) else a + b


def _sub(a, b):
    return a if _is_zero(b) else -b if _is_zero(a) else a - b


def _mul(a, b):
    if _is_zero(a) or _is_zero(b):
        return 0
    return b if _is_one(a) else a if _is_one(b) else a * b


def _neg(a):
    return 0 if _is_zero(a) else -a


class Vec3(NamedTuple):
    x: Scalar
    y: Scalar
    z: Scalar

    def __add__(self, o):
        return Vec3(_add(self.x, o.x), _add(self.y, o.y), _add(self.z, o.z))

    def __sub__(self, o):
        return Vec3(_sub(self.x, o.x), _sub(self.y, o.y), _sub(self.z, o.z))

    def __neg__(self):
        return Vec3(_neg(self.x), _neg(self.y), _neg(self.z))

    def __mul__(self, s):
        return Vec3(_mul(self.x, s), _mul(self.y, s), _mul(self.z, s))

    def dot(self, o):
        return _add(_add(_mul(self.x, o.x), _mul(self.y, o.y)), _mul(self.z, o.z))

    def cross(self, o):
        return Vec3(
            _sub(_mul(self.y, o.z), _mul(self.z, o.y)),
            _sub(_mul(self.z, o.x), _mul(self.x, o.z)),
            _sub(_mul(self.x, o.y), _mul(self.y, o.x)),
        )


ZERO3 = Vec3(0, 0, 0)


class Mat3(NamedTuple):
    """A 3x3 matrix by rows."""

    a: Vec3
    b: Vec3
    c: Vec3

    @property
    def T(self):
        return Mat3(*(Vec3(r, s, t) for r, s, t in zip(self.a, self.b, self.c)))

    def __add__(self, o):
        return Mat3(self.a + o.a, self.b + o.b, self.c + o.c)

    def __sub__(self, o):
        return Mat3(self.a - o.a, self.b - o.b, self.c - o.c)

    def __mul__(self, s):
        return Mat3(self.a * s, self.b * s, self.c * s)

    def __matmul__(self, o):
        if isinstance(o, Vec3):
            return Vec3(self.a.dot(o), self.b.dot(o), self.c.dot(o))
        t = (o.full() if isinstance(o, Sym3) else o).T
        return Mat3(t @ self.a, t @ self.b, t @ self.c)

    def congruence(self, o: Sym3) -> Sym3:
        """R S Rᵀ, six entries only."""
        t = self @ o
        return Sym3(
            t.a.dot(self.a),
            t.a.dot(self.b),
            t.a.dot(self.c),
            t.b.dot(self.b),
            t.b.dot(self.c),
            t.c.dot(self.c),
        )


EYE3 = Mat3(Vec3(1, 0, 0), Vec3(0, 1, 0), Vec3(0, 0, 1))


class Sym3(NamedTuple):
    xx: Scalar
    xy: Scalar
    xz: Scalar
    yy: Scalar
    yz: Scalar
    zz: Scalar

    def full(self) -> Mat3:
        return Mat3(
            Vec3(self.xx, self.xy, self.xz), Vec3(self.xy, self.yy, self.yz), Vec3(self.xz, self.yz, self.zz)
        )

    def __add__(self, o):
        return Sym3(*(_add(a, b) for a, b in zip(self, o)))

    def __sub__(self, o):
        return Sym3(*(_sub(a, b) for a, b in zip(self, o)))

    def __matmul__(self, v: Vec3) -> Vec3:
        return Vec3(
            _add(_add(_mul(self.xx, v.x), _mul(self.xy, v.y)), _mul(self.xz, v.z)),
            _add(_add(_mul(self.xy, v.x), _mul(self.yy, v.y)), _mul(self.yz, v.z)),
            _add(_add(_mul(self.xz, v.x), _mul(self.yz, v.y)), _mul(self.zz, v.z)),
        )


def outer(a: Vec3, b: Vec3) -> Mat3:
    return Mat3(b * a.x, b * a.y, b * a.z)


def outer_sym(a: Vec3, b: Vec3) -> Sym3:
    """The upper triangle of a bᵀ, for products known to be symmetric."""
    return Sym3(
        _mul(a.x, b.x), _mul(a.x, b.y), _mul(a.x, b.z), _mul(a.y, b.y), _mul(a.y, b.z), _mul(a.z, b.z)
    )


def skew(r: Vec3) -> Mat3:
    return Mat3(Vec3(0, _neg(r.z), r.y), Vec3(r.z, 0, _neg(r.x)), Vec3(_neg(r.y), r.x, 0))


class Motion(NamedTuple):
    """A twist, a spatial acceleration, or a joint's column S."""

    ang: Vec3
    lin: Vec3

    def __add__(self, o):
        return Motion(self.ang + o.ang, self.lin + o.lin)

    def __sub__(self, o):
        return Motion(self.ang - o.ang, self.lin - o.lin)

    def __mul__(self, s):
        return Motion(self.ang * s, self.lin * s)

    def dot(self, f: Force):
        return _add(self.ang.dot(f.ang), self.lin.dot(f.lin))

    def cross(self, o: Motion) -> Motion:
        return Motion(self.ang.cross(o.ang), self.ang.cross(o.lin) + self.lin.cross(o.ang))

    def cross_force(self, f: Force) -> Force:
        return Force(self.ang.cross(f.ang) + self.lin.cross(f.lin), self.ang.cross(f.lin))

    def rotate(self, R: Mat3) -> Motion:
        return Motion(R @ self.ang, R @ self.lin)

    def at(self, r: Vec3) -> Motion:
        """The same motion about an origin displaced by r."""
        return Motion(self.ang, self.lin + self.ang.cross(r))


class Force(NamedTuple):
    """A wrench or a momentum: moment, then force."""

    ang: Vec3
    lin: Vec3

    def __add__(self, o):
        return Force(self.ang + o.ang, self.lin + o.lin)

    def __sub__(self, o):
        return Force(self.ang - o.ang, self.lin - o.lin)

    def __mul__(self, s):
        return Force(self.ang * s, self.lin * s)

    def rotate(self, R: Mat3) -> Force:
        return Force(R @ self.ang, R @ self.lin)

    def from_(self, r: Vec3) -> Force:
        """The same wrench about the old origin, when it was given about one displaced by r."""
        return Force(self.ang + r.cross(self.lin), self.lin)


class Inertia(NamedTuple):
    """Rigid inertia about the origin: mass, mass times centre of mass, rotational inertia."""

    mass: Scalar
    h: Vec3
    I: Sym3

    def __add__(self, o):
        return Inertia(_add(self.mass, o.mass), self.h + o.h, self.I + o.I)

    def __matmul__(self, v: Motion) -> Force:
        return Force(self.I @ v.ang + self.h.cross(v.lin), v.lin * self.mass - self.h.cross(v.ang))

    def rotate(self, R: Mat3) -> Inertia:
        return Inertia(self.mass, R @ self.h, R.congruence(self.I))

    def from_(self, r: Vec3) -> Inertia:
        """About the old origin, when given about one displaced by r (parallel axes)."""
        h2 = self.h + r * self.mass
        s = _add(self.h.dot(r), r.dot(h2))
        m, n = outer_sym(self.h, r), outer_sym(r, h2)
        # I - [h][r] - [r][h2] = I + (h·r + r·h2) 1 - (h rᵀ + r h2ᵀ), symmetric as a whole
        o = self.I - m - n
        return Inertia(self.mass, h2, Sym3(_add(o.xx, s), o.xy, o.xz, _add(o.yy, s), o.yz, _add(o.zz, s)))

    def articulated(self) -> ArticulatedInertia:
        m = self.mass
        return ArticulatedInertia(self.I, skew(self.h), Sym3(m, 0, 0, m, 0, m))


class ArticulatedInertia(NamedTuple):
    """Symmetric 6x6 [[A, B], [Bᵀ, C]]: 21 numbers."""

    A: Sym3
    B: Mat3
    C: Sym3

    def __add__(self, o):
        return ArticulatedInertia(self.A + o.A, self.B + o.B, self.C + o.C)

    def __matmul__(self, v: Motion) -> Force:
        return Force(self.A @ v.ang + self.B @ v.lin, self.B.T @ v.ang + self.C @ v.lin)

    def rotate(self, R: Mat3) -> ArticulatedInertia:
        return ArticulatedInertia(R.congruence(self.A), R @ self.B @ R.T, R.congruence(self.C))

    def minus_outer(self, U: Force, G: Force) -> ArticulatedInertia:
        """IA - U Gᵀ, where U and G are parallel."""
        return ArticulatedInertia(
            self.A - outer_sym(U.ang, G.ang), self.B - outer(G.ang, U.lin), self.C - outer_sym(U.lin, G.lin)
        )

    def from_(self, r: Vec3) -> ArticulatedInertia:
        """About the old origin, when given about one displaced by r: Xᵀ IA X, only translations."""
        rx = skew(r)
        B = self.B + rx @ self.C.full()
        P, Q = rx @ self.B.T, rx @ B.T
        return ArticulatedInertia(
            self.A
            + Sym3(
                _add(P.a.x, Q.a.x),
                _add(P.a.y, Q.b.x),
                _add(P.a.z, Q.c.x),
                _add(P.b.y, Q.b.y),
                _add(P.b.z, Q.c.y),
                _add(P.c.z, Q.c.z),
            ),
            B,
            self.C,
        )


def zero_articulated() -> ArticulatedInertia:
    return ArticulatedInertia(Sym3(*[0] * 6), Mat3(ZERO3, ZERO3, ZERO3), Sym3(*[0] * 6))


def rotation_from_quaternion(w, x, y, z) -> Mat3:
    """Rotation of the quaternion divided by its norm (w, x, y, z), so that any nonzero one is valid."""
    s = 2.0 / (w * w + x * x + y * y + z * z)
    return Mat3(
        Vec3(1 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)),
        Vec3(s * (x * y + w * z), 1 - s * (x * x + z * z), s * (y * z - w * x)),
        Vec3(s * (x * z - w * y), s * (y * z + w * x), 1 - s * (x * x + y * y)),
    )


def stack(components, axis: int, like):
    """Components (zeros included) as one array, broadcast to `like` with the new axis put in."""
    full = [jnp.broadcast_to(jnp.asarray(c, like.dtype), like.shape) for c in components]
    return jnp.stack(full, axis)


def vec3(array, axis: int = 1) -> Vec3:
    """Split the axis of length three of an array into components."""
    return Vec3(*(lax.index_in_dim(array, i, axis, keepdims=False) for i in range(3)))
