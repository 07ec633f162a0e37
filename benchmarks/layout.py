"""Translation between the neutral layout of states (`robots.py`) and each contender's own."""

from dataclasses import dataclass

import numpy as np

from benchmarks.robots import Robot, States


@dataclass(frozen=True)
class Layout:
    """Velocities v' = T v of a contender that orders the joints by `joints`.

    base "world": world-linear then body-angular (MuJoCo, MJX, frax); "body": both in body axes, linear first
    (Pinocchio); "neutral": as in `robots.py` (ours).
    """

    robot: Robot
    joints: tuple[str, ...]
    base: str

    @property
    def order(self) -> np.ndarray:
        return np.array([self.robot.joints.index(j) for j in self.joints], int)

    def matrix(self, states: States) -> np.ndarray:
        """T(q), (n, nv, nv); its inverse is its transpose."""
        count, nv = states.v.shape
        T = np.zeros((count, nv, nv))
        if self.base == "neutral":
            T[:, :6, :6] = np.eye(6)
        else:
            T[:, 0:3, 3:6] = states.rotation if self.base == "world" else np.eye(3)
            T[:, 3:6, 0:3] = np.eye(3)
        T[:, 6 + np.arange(nv - 6), 6 + self.order] = 1.0
        return T

    def drift(self, states: States) -> np.ndarray:
        """(dT/dt) v, (n, nv): the world-linear velocity turns with the body."""
        out = np.zeros_like(states.v)
        if self.base == "world":
            turning = np.cross(states.v[:, 0:3], states.v[:, 3:6])
            out[:, 0:3] = np.einsum("nij,nj->ni", states.rotation, turning)
        return out

    def tangent(self, states: States) -> np.ndarray:
        """Derivative of q by a displacement that is laid out like a neutral v, (n, nq, nv)."""
        count, nv = states.v.shape
        w, x, y, z = np.moveaxis(self.q(states)[:, 3:7], 1, 0)
        E = np.zeros((count, nv + 1, nv))
        E[:, 0:3, 3:6] = states.rotation
        E[:, 3:7, 0:3] = 0.5 * np.moveaxis(np.array([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]]), 2, 0)
        E[:, 7 + np.arange(nv - 6), 6 + self.order] = 1.0
        return E

    def turning(self, states: States, x: np.ndarray) -> np.ndarray:
        """Derivative of T x by the same displacement for constant x, (n, nv, nv)."""
        D = np.zeros((*x.shape, x.shape[1]))
        if self.base == "world":
            a, b, c = np.moveaxis(x[:, 3:6], 1, 0)
            o = np.zeros_like(a)
            D[:, 0:3, 0:3] = states.rotation @ np.moveaxis(
                np.array([[o, c, -b], [-c, o, a], [b, -a, o]]), 2, 0
            )
        return D

    def neutral_cotangents(self, states: States, ct_q, *others) -> list[np.ndarray]:
        """Cotangents of (q, then v, then tau, as far as given) for neutral displacements and values."""
        pull = lambda A, y: np.einsum("nij,ni->nj", A, np.asarray(y, float))  # noqa: E731
        given = list(zip(others, (states.v, states.tau), strict=False))
        by_q = pull(self.tangent(states), ct_q)
        by_q = by_q + sum(pull(self.turning(states, x), y) for y, x in given)
        return [by_q] + [pull(self.matrix(states), y) for y, _ in given]

    def q(self, states: States, scalar_last: bool = False) -> np.ndarray:
        quaternion = states.q[:, 3:7]
        if self.base != "neutral":  # float32 values are unit only to 1e-7, which Pinocchio does not forgive
            quaternion = quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)
        quaternion = np.roll(quaternion, -1, axis=1) if scalar_last else quaternion
        return np.concatenate([states.q[:, :3], quaternion, states.q[:, 7:][:, self.order]], 1)

    def v(self, states: States) -> np.ndarray:
        return np.einsum("nij,nj->ni", self.matrix(states), states.v)

    def a(self, states: States) -> np.ndarray:
        return np.einsum("nij,nj->ni", self.matrix(states), states.a) + self.drift(states)

    def tau(self, states: States) -> np.ndarray:
        return np.einsum("nij,nj->ni", self.matrix(states), states.tau)

    def back(self, task: str, states: States, result) -> np.ndarray:
        """A result of the peer in the neutral layout."""
        T = self.matrix(states)
        if task == "mass_matrix":
            return np.swapaxes(T, 1, 2) @ np.asarray(result, float) @ T
        if task == "forward_dynamics":
            return np.einsum("nji,nj->ni", T, np.asarray(result, float) - self.drift(states))
        if task == "inverse_dynamics":
            return np.einsum("nji,nj->ni", T, np.asarray(result, float))
        q, v = (np.asarray(x, float) for x in result)
        neutral = np.concatenate([q[:, :7], q[:, 7:][:, np.argsort(self.order)]], 1)
        after = States(neutral, v, v, v)
        return np.concatenate([neutral, np.einsum("nji,nj->ni", self.matrix(after), v)], 1)

    def inputs(self, task: str, states: States, scalar_last: bool = False) -> tuple[np.ndarray, ...]:
        q = self.q(states, scalar_last)
        if task == "mass_matrix":
            return (q,)
        return q, self.v(states), (self.a if task == "inverse_dynamics" else self.tau)(states)
