"""The groups on which joints with quaternions move: SO(3), and SE(3) as position and rotation.

Velocities are those of the body in its own axes, angular first. exp(q, dv) moves from q with dv for unit
time, log is its inverse for rotations below pi; the bracket is that of the Lie algebra. All three take and
return tuples of parts, see `Group.parts_q` and `parts_v`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.joints.rotations import (
    conjugate,
    left_jacobian,
    left_jacobian_inverse,
    quaternion_exp,
    quaternion_log,
    quaternion_product,
    quaternion_rotate,
    unit,
)
from jaxrbd.typing import Array

Parts = tuple[Array, ...]


@dataclass(frozen=True)
class Group(ABC):
    """Sizes, and where in q the quaternion (w, x, y, z) begins; what stands before it is the position."""

    nq: int
    nv: int
    quaternion: int

    @property
    def parts_q(self) -> tuple[slice, ...]:
        """Where the quaternion, and then the position if there is one, stand in q."""
        turn = slice(self.quaternion, self.nq)
        return (turn, slice(0, self.quaternion)) if self.quaternion else (turn,)

    @property
    def parts_v(self) -> tuple[slice, ...]:
        """Where the angular, and then the linear velocity if there is one, stand in v."""
        return tuple(slice(k, k + 3) for k in range(0, self.nv, 3))

    @abstractmethod
    def exp(self, q: Parts, dv: Parts) -> Parts:
        """q ⊞ dv for parts whose last axis holds the numbers."""

    @abstractmethod
    def log(self, q0: Parts, q1: Parts) -> Parts:
        """dv with exp(q0, dv) = q1."""

    @abstractmethod
    def bracket(self, x: Parts, y: Parts) -> Parts:
        """[x, y] of two velocities."""

    def pose(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(R, p) on the host."""
        position = q[: self.quaternion] if self.quaternion else np.zeros(3)
        return matrix_from_quaternion(q[self.quaternion :]), position

    def neutral(self) -> np.ndarray:
        q = np.zeros(self.nq)
        q[self.quaternion] = 1.0
        return q

    def random(self, rng: np.random.Generator) -> np.ndarray:
        """Any rotation, positions of about a metre; on the host."""
        q = rng.standard_normal(self.nq)
        q[self.quaternion :] /= np.linalg.norm(q[self.quaternion :])
        return q


class _SO3(Group):
    def exp(self, q: Parts, dv: Parts) -> Parts:
        return (unit(quaternion_product(q[0], quaternion_exp(dv[0]))),)

    def log(self, q0: Parts, q1: Parts) -> Parts:
        return (quaternion_log(quaternion_product(conjugate(q0[0]), q1[0])),)

    def bracket(self, x: Parts, y: Parts) -> Parts:
        return (jnp.cross(x[0], y[0]),)


class _SE3(Group):
    def exp(self, q: Parts, dv: Parts) -> Parts:
        (quat, p), (w, u) = q, dv
        turned = unit(quaternion_product(quat, quaternion_exp(w)))
        return turned, p + quaternion_rotate(unit(quat), left_jacobian(w, u))

    def log(self, q0: Parts, q1: Parts) -> Parts:
        (quat0, p0), (quat1, p1) = q0, q1
        back = conjugate(unit(quat0))
        w = quaternion_log(quaternion_product(back, quat1))
        return w, left_jacobian_inverse(w, quaternion_rotate(back, p1 - p0))

    def bracket(self, x: Parts, y: Parts) -> Parts:
        (xw, xv), (yw, yv) = x, y
        return jnp.cross(xw, yw), jnp.cross(xw, yv) + jnp.cross(xv, yw)


SO3 = _SO3(nq=4, nv=3, quaternion=0)
SE3 = _SE3(nq=7, nv=6, quaternion=3)
