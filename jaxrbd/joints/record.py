"""The record of a joint type: all that the rest of the package knows about it.

A type is a run of columns, one per degree of freedom, which the recursions take one after another. A column
turns about an axis, slides along it, or follows a path; a path may bend, so that the column depends on q.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.joints.groups import SE3, Group
from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.typing import Array, ArrayLike

PITCH = 2  # of `Column.slides`: as far as the joint's pitch says
AXIS, AXIS2, NORMAL, X, Y, Z = range(6)  # of `Column.axis`; the last three are the child's own


class Geometry(NamedTuple):
    """What a joint of a model has: two unit vectors (3,) in its frame, and a number."""

    axis: Any
    axis2: Any
    pitch: Any


Path = Callable[[Any, Geometry], tuple[Any, Any]]


@dataclass(frozen=True)
class Column:
    """One degree of freedom.

    `turns` 1 or 0, `slides` 0, 1 or PITCH, along `axis`: the joint's axis (0), its axis2 (1), axis x axis2
    (2), or x, y, z of the child (3-5). With a `path` the column is  path(q, geometry) -> (R (3, 3), p (3,)),
    the pose after the motion in the pose before it, written in jax.numpy for one number q; S(q) and S'(q)
    are its derivatives. `turns` then only says whether q is an angle, and path(0, geometry) is the identity.
    """

    turns: int = 0
    slides: int = 0
    axis: int = AXIS
    path: Path | None = None


@dataclass(frozen=True)
class JointType:
    """A joint type. Its columns follow one another from the parent to the child.

    `group`: None where the coordinates are one number per column and simply add; else the manifold that the
    columns, which are then the child's own axes, belong to. `axis`: whether joints have one; `axis2`: ""
    for none, "apart" (not parallel to the axis) or "normal" (perpendicular to it). `limited`: whether a file
    may limit its position. `urdf`: the type's name in URDF, "" if it has none; `urdf_parts`: types and axes
    (0: axis, 1: axis2) of single joints that stand for it there.
    """

    name: str
    columns: tuple[Column, ...]
    group: Group | None = None
    axis: bool = True
    axis2: str = ""
    limited: bool = True
    urdf: str = ""
    urdf_parts: tuple[tuple[str, int], ...] = ()

    def __post_init__(self):
        where = f"joint type {self.name!r}"
        if self.axis2 not in ("", "apart", "normal"):
            raise ArgumentError(f'{where}: axis2 is {self.axis2!r}, expected "", "apart" or "normal".')
        if self.group is not None and self.nv != self.group.nv:
            raise ArgumentError(
                f"{where}: {self.nv} columns, but its group has {self.group.nv}. Give as many."
            )
        if self.group is not None and any(c.path or c.axis < X for c in self.columns):
            raise ArgumentError(f"{where}: columns on a group are the child's axes, 3 to 5, without a path.")

    @property
    def nq(self) -> int:
        return len(self.columns) if self.group is None else self.group.nq

    @property
    def nv(self) -> int:
        return len(self.columns)

    @property
    def sizes(self) -> tuple[int, int]:
        return self.nq, self.nv

    @property
    def on_manifold(self) -> bool:
        """Whether q is more than one number per degree of freedom; the columns then move with the body."""
        return self.group is not None

    @property
    def free(self) -> bool:
        """Whether q is a pose."""
        return self.group is SE3

    @cached_property
    def curved(self) -> bool:
        """Whether some column depends on q."""
        return any(column.path for column in self.columns)

    @property
    def angles(self) -> np.ndarray:
        """(nv,) bool: which degrees of freedom turn."""
        return np.array([column.turns == 1 for column in self.columns], bool)

    def neutral(self) -> np.ndarray:
        return np.zeros(self.nq) if self.group is None else self.group.neutral()

    def random(self, rng: np.random.Generator) -> np.ndarray:
        """Angles over the full circle, shifts of decimetres, any rotation."""
        if self.group is not None:
            return self.group.random(rng)
        q = rng.uniform(-np.pi, np.pi, self.nq)
        q[~self.angles] /= 10.0
        return q

    def motion(
        self, q: np.ndarray, g: Geometry, R: np.ndarray | None = None, p: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """On the host: the pose (R, p) behind the joint that stands at (R, p) in front, and (6, nv) columns.

        The columns are twists, angular first, about the origin and in the axes in which the pose is given.
        """
        R, p = np.eye(3) if R is None else R, np.zeros(3) if p is None else p
        if self.group is not None:
            R_own, p_own = self.group.pose(q)
            R, p = R @ R_own, R @ p_own + p
        columns = []
        for k, column in enumerate(self.columns):
            if column.path is not None:
                R_own, p_own, S, _ = (np.asarray(x) for x in _path_motion_x64(column.path, q[k], g))
                R, p = R @ R_own, R @ p_own + p
                turned, slid = R @ S[:3], R @ S[3:]
            else:
                a, b = R @ g.axis, R @ g.axis2
                s = (a, b, np.cross(a, b), *R.T)[column.axis]
                slide = g.pitch if column.slides == PITCH else column.slides
                if self.group is None:
                    own = (g.axis, g.axis2, np.cross(g.axis, g.axis2), *np.eye(3))[column.axis]
                    p = p + (slide * q[k]) * s
                    R = R @ turn(own, q[k]) if column.turns else R
                turned, slid = column.turns * s, slide * s
            columns.append(np.concatenate([turned, np.cross(p, turned) + slid]))
        return R, p, np.stack(columns, 1) if columns else np.zeros((6, 0))


def path_motion(path: Path, q, g: Geometry):
    """(R, p, S, S') of a path at q: pose, column (6,) in the axes of the moved frame, and its slope in q."""

    def twist(q):
        (R, p), (dR, dp) = jax.jvp(lambda x: path(x, g), (q,), (jnp.ones_like(q),))
        W = R.T @ dR
        w = jnp.stack([W[2, 1] - W[1, 2], W[0, 2] - W[2, 0], W[1, 0] - W[0, 1]]) / 2
        return jnp.concatenate([w, R.T @ dp]), (R, p)

    S, slope, (R, p) = jax.jvp(twist, (q,), (jnp.ones_like(q),), has_aux=True)
    return R, p, S, slope


def _path_motion_x64(path: Path, q, g: Geometry):
    with jax.enable_x64(True):
        return path_motion(path, jnp.asarray(q, float), Geometry(*(jnp.asarray(x, float) for x in g)))


def turn(axis: ArrayLike, angle: ArrayLike) -> Array | np.ndarray:
    """The rotation (3, 3) about a unit vector: in NumPy for NumPy's numbers, else in jax.numpy."""
    if not any(isinstance(x, jax.Array) for x in (axis, angle)):
        return matrix_from_quaternion([np.cos(angle / 2), *(np.sin(angle / 2) * np.asarray(axis))])
    x, y, z = axis
    zero = jnp.zeros_like(x)
    K = jnp.stack([jnp.stack(row) for row in ((zero, -z, y), (z, zero, -x), (-y, x, zero))])
    return jnp.eye(3, dtype=K.dtype) + jnp.sin(angle) * K + (1 - jnp.cos(angle)) * (K @ K)
