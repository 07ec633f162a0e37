"""Loops on the host: errors and Jacobians of a cluster in NumPy, closed samples of it, and its mobility.

Used once, when a System is clustered; what runs under jit is `jaxrbd.tree.loop_rows`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.joints import TYPES, Geometry
from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.model.leaves import LOOPS, MECHANISM
from jaxrbd.model.system import System
from jaxrbd.tree.mechanism import Relation, joint_dofs

_ITERATIONS, _CLOSED = 60, 1e-10


class HostCluster:
    """The bodies of a cluster with their relations; q and dofs are the open tree's."""

    def __init__(self, sys: System, bodies: tuple[int, ...], own: list[Relation]):
        self.sys, self.t, self.bodies, self.own = sys, sys.topology, bodies, own
        self.leaf = {key: np.asarray(getattr(sys, key), float) for key in (*MECHANISM, *LOOPS)}
        self.dofs = [d for b in bodies for d in joint_dofs(self.t, b)]
        self.place = {d: k for k, d in enumerate(self.dofs)}

    def rows(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """φ(q) and K, (m,) and (m, n): columns by `dofs`."""
        poses = self._poses(q)
        errors, lines = [np.zeros(0)], [np.zeros((0, len(self.dofs)))]
        for r in self.own:
            e, K = self._relation(r, q, poses)
            errors.append(e)
            lines.append(K)
        return np.concatenate(errors), np.concatenate(lines)

    def _poses(self, q):
        """World-free poses of the bodies, from the cluster's root, and their columns (6, n) about its
        origin.
        """
        t, x = self.t, self.leaf
        found: dict[int, tuple] = {}
        for b in self.bodies:
            R, p, S = found.get(t.parents[b], (np.eye(3), np.zeros(3), np.zeros((6, len(self.dofs)))))
            R0, p0 = R @ matrix_from_quaternion(x["joint_quaternion"][b]), R @ x["joint_position"][b] + p
            unit = x["axis"][b] / np.linalg.norm(x["axis"][b])
            geometry = Geometry(unit, x["axis2"][b], float(x["pitch"][b]))
            own = q[t.q_starts[b] : t.q_starts[b + 1]]
            R, p, columns = TYPES[t.joint_types[b]].motion(own, geometry, R0, p0)
            S = S.copy()
            S[:, [self.place[d] for d in joint_dofs(t, b)]] = columns
            found[b] = (R, p, S)
        return found

    def _end(self, poses, r: Relation, side: int):
        t, x = self.t, self.leaf
        frame, body = t.loop_frames[r.index][side], r.bodies[side]
        R, p = np.eye(3), np.zeros(3)
        if frame >= 0:
            R, p = matrix_from_quaternion(x["frame_quaternion"][frame]), x["frame_position"][frame]
        p = R @ x["loop_position"][r.index, side] + p
        R = R @ matrix_from_quaternion(x["loop_quaternion"][r.index, side])
        R_b, p_b, S = poses.get(body, (np.eye(3), np.zeros(3), np.zeros((6, len(self.dofs)))))
        point = R_b @ p + p_b
        return R_b @ R, point, S[:3], S[3:] + np.cross(S[:3].T, point).T

    def _relation(self, r: Relation, q, poses):
        if not r.geometric:
            return self._scalar(r, q)
        (Ra, a, Wa, Va), (Rb, b, Wb, Vb) = (self._end(poses, r, side) for side in (0, 1))
        W, V, d = Wb - Wa, Vb - Va, b - a
        if r.kind == "distance":
            length = self.leaf["loop_coefficients"][r.index, 0]
            return np.array([(d @ d - length**2) / 2]), (d @ V)[None]
        if r.kind == "connect":
            return d, V
        if r.kind == "weld":
            turned = sum(np.cross(Ra[:, i], Rb[:, i]) for i in range(3)) / 2
            return np.r_[d, turned], np.r_[V, W]
        tilt = np.cross(Ra[:, 2], Rb[:, 2])
        return np.r_[d, Ra[:, :2].T @ tilt], np.r_[V, Ra[:, :2].T @ W]

    def _scalar(self, r: Relation, q):
        t, x = self.t, self.leaf
        coordinate = [t.q_starts[self._body(d)] for d in r.dofs]
        y = q[coordinate]
        K = np.zeros((r.rows, len(self.dofs)))
        at = [self.place[d] for d in r.dofs]
        row: Any
        if r.kind == "mimic":
            e, row = (
                y[0] - x["mimic_offset"][r.index] - x["mimic_ratio"][r.index] * y[1],
                [1, -x["mimic_ratio"][r.index]],
            )
        elif r.kind == "coupling":
            c = x["loop_coefficients"][r.index] * ([1] * 5 if len(y) > 1 else [1, 0, 0, 0, 0])
            P = np.polynomial.Polynomial(c)
            z = y[1] if len(y) > 1 else 0.0
            e, row = y[0] - P(z), [1, -P.deriv()(z)][: len(y)]
        elif r.kind == "linear":
            start = sum(len(j) for j in t.linear_joints[: r.index])
            row = x["linear_coefficients"][start : start + len(y)]
            e = row @ y - x["linear_offset"][r.index]
        else:
            f = t.functions[r.index]
            n = len(f.joints)
            with jax.enable_x64(True):
                value, slope = (
                    np.asarray(f.function(jnp.asarray(y[:n]))),
                    np.asarray(jax.jacfwd(f.function)(jnp.asarray(y[:n]))),
                )
            if not f.follows:
                K[:, at] = slope
                return value, K
            K[:, at[:n]], K[:, at[n:]] = -slope, np.eye(r.rows)
            return y[n:] - value, K
        K[0, at] = row
        return np.array([e]), K

    def _body(self, d: int) -> int:
        return next(b for b in self.bodies if d in joint_dofs(self.t, b))

    def move(self, q: np.ndarray, step: np.ndarray) -> np.ndarray:
        """q with its joints moved by a step in the tangent space (by `dofs`)."""
        t, q = self.t, q.copy()
        for b in self.bodies:
            own = slice(t.q_starts[b], t.q_starts[b + 1])
            dv = step[[self.place[d] for d in joint_dofs(t, b)]]
            record = TYPES[t.joint_types[b]]
            if record.group is None:
                q[own] += dv
            else:  # spherical: q times the exponential of the step
                angle = np.linalg.norm(dv)
                half = np.r_[np.cos(angle / 2), np.sinc(angle / 2 / np.pi) / 2 * dv]
                q[own] = _product(q[own], half)
        return q

    def close(self, q: np.ndarray, held: tuple[int, ...] = ()) -> tuple[np.ndarray, float]:
        """Gauss-Newton from q, the `held` dofs left where they are: closed q and its largest error."""
        free = [k for k, d in enumerate(self.dofs) if d not in held]
        e, K = self.rows(q)
        for _ in range(_ITERATIONS):
            if not e.size or np.abs(e).max() < 1e-14:
                break
            step = np.zeros(len(self.dofs))
            step[free] = -np.linalg.lstsq(K[:, free], e, rcond=1e-8)[0]
            step *= min(1.0, 0.5 / max(np.abs(step).max(), 1e-12))
            new = self.move(q, step)
            e_new, K_new = self.rows(new)
            shrink = 0
            while np.linalg.norm(e_new) > np.linalg.norm(e) and shrink < 8:
                step, shrink = step / 2, shrink + 1
                new = self.move(q, step)
                e_new, K_new = self.rows(new)
            if np.linalg.norm(e_new) >= np.linalg.norm(e) and np.abs(e).max() < _CLOSED:
                break
            q, e, K = new, e_new, K_new
        return q, float(np.abs(e).max()) if e.size else 0.0

    def samples(self, q: np.ndarray, count: int, seed: int = 0) -> list[np.ndarray]:
        """Closed configurations near and far, found by walking from the closed q."""
        rng = np.random.default_rng(seed)
        found = [q]
        for _ in range(4 * count):
            reach = 0.1 + 0.6 * rng.uniform()
            start = found[rng.integers(len(found))]
            new, error = self.close(self.move(start, reach * rng.normal(size=len(self.dofs))))
            if error < _CLOSED and np.all(np.abs(new) < 1e3):
                found.append(new)
            if len(found) > count:
                break
        return found


def _product(a, b):
    """Quaternion product, w first."""
    w = a[0] * b[0] - a[1:] @ b[1:]
    return np.r_[w, a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])]
