"""What is shown along time: the path that a caller gives, checked, and poses of bodies at its frames."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.checkpoint import Run
from jaxrbd.errors import ArgumentError
from jaxrbd.integrators import State
from jaxrbd.model.system import System, check_system
from jaxrbd.solution import Solution
from jaxrbd.tree.frames import forward_kinematics, frame_poses
from jaxrbd.tree.momentum import kinetic_energy, potential_energy

PathLike = Any  # State, Solution of one, checkpoint.Run, or q: (nq,), (T, nq) or (E, T, nq)


@dataclass(frozen=True)
class Motion:
    """Frames of one or more environments; `broken`: the first frame of each that is not finite, or T."""

    t: np.ndarray  # (T,) seconds
    q: np.ndarray  # (E, T, nq)
    v: np.ndarray | None  # (E, T, nv)
    broken: np.ndarray  # (E,)

    @property
    def environments(self) -> int:
        return self.q.shape[0]

    def at(self, k: int, which) -> np.ndarray:
        """q of some environments at frame k; an environment stays where it was last finite."""
        last = np.minimum(k, np.maximum(self.broken[which] - 1, 0))
        return self.q[which, last]

    def marks(self) -> list[tuple[int, float]]:
        """(environment, time) where states cease to be finite."""
        return [(int(e), float(self.t[k])) for e, k in enumerate(self.broken) if k < len(self.t)]

    def signal(self, sys: System, name: str, environment: int) -> np.ndarray:
        """One number per frame; `signals` lists the names."""
        kind, _, joint = name.partition(" ")
        q, v = self.q[environment], None if self.v is None else self.v[environment]
        if joint:
            joint, _, component = joint.removesuffix("]").partition("[")
            x, index = (q, sys.q_index(joint)) if kind == "q" else (v, sys.v_index(joint))
            return np.asarray(x)[:, index.start + int(component or 0)]
        states = jnp.asarray(q, sys.dtype), jnp.asarray(v, sys.dtype)
        return np.asarray(_energies(sys.topology)(sys, *states)[kind])

    def signals(self, sys: System) -> list[str]:
        """Names of what `signal` gives."""
        names = [f"q {x}" for x in _components(sys.placed_joints, sys.q_index)]
        if self.v is None:
            return names
        return [
            *names,
            *(f"v {x}" for x in _components(sys.leading_joints, sys.v_index)),
            "kinetic",
            "potential",
            "total",
        ]


def _components(joints, index) -> list[str]:
    sizes = {j: index(j).stop - index(j).start for j in joints}
    return [x for j, n in sizes.items() for x in ([j] if n == 1 else [f"{j}[{k}]" for k in range(n)])]


def read_motion(sys: System, path: PathLike, dt: float = 1e-3) -> Motion:
    """A path as frames. Frames are `dt` apart, unless the path knows it (a Run)."""
    check_system(sys, "viewer")
    if isinstance(path, Motion):
        return path
    if isinstance(path, Run):
        frames, axis = path.frames(), path.about["time_axis"]
        if "q" not in frames:
            raise ArgumentError(f"{path!r} has no frames named q: nothing to show.")
        dt = path.about["dt"] or dt
        turned = {k: np.moveaxis(x, axis, -2) if x.ndim > 1 else x for k, x in frames.items()}
        path = State(turned["q"], turned["v"]) if "v" in turned else turned["q"]
    if isinstance(path, Solution):
        path = path.value
    q, v = (path.q, path.v) if isinstance(path, State) else (path, None)
    q = _axes(sys, "q", q, sys.nq)
    v = None if v is None else _axes(sys, "v", v, sys.nv)
    if not q.shape[0] or not q.shape[1]:
        raise ArgumentError(f"the path holds nothing: q has shape {q.shape}.")
    finite = np.isfinite(q).all(-1) & (True if v is None else np.isfinite(v).all(-1))
    broken = np.where(finite.all(1), q.shape[1], np.argmin(finite, 1))
    if not (np.isfinite(dt) and dt > 0):
        raise ArgumentError(f"dt is {dt!r}, expected the seconds between two states of the path.")
    if not broken.all():
        q = np.where((broken == 0)[:, None, None], np.asarray(sys.q0, q.dtype), q)
    return Motion(dt * np.arange(q.shape[1]), q, v, broken)


def _axes(sys: System, name: str, x, size: int) -> np.ndarray:
    try:
        x = np.asarray(x)
    except ValueError:
        x = np.asarray(None)
    if x.dtype.kind not in "fiu":
        raise ArgumentError(
            f"the path holds {x.dtype} as {name}, expected what rollout returns, a State, a Run or q."
        )
    if not 1 <= x.ndim <= 3 or x.shape[-1] != size:
        raise ArgumentError(
            f"{name} of the path has shape {x.shape}, but {sys.name!r} needs ({size},), (steps, {size}) or "
            f"(environments, steps, {size}). Is it the path of another System?"
        )
    return x.reshape((1,) * (3 - x.ndim) + x.shape)


def poses(sys: System, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """World poses of all body frames: R (E, nb, 3, 3) and p (E, nb, 3) of q (E, nq)."""
    R, p = _bodies(sys.topology)(sys, jnp.asarray(q, sys.dtype))
    return np.asarray(R, float), np.asarray(p, float)


def all_frames(sys: System, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """World poses of all frames, likewise."""
    R, p = _frames(sys.topology)(sys, jnp.asarray(q, sys.dtype))
    return np.asarray(R, float), np.asarray(p, float)


@lru_cache(maxsize=64)
def _energies(topology):
    def one(sys, q, v):
        kinetic, potential = kinetic_energy(sys, q, v), potential_energy(sys, q)
        return {"kinetic": kinetic, "potential": potential, "total": kinetic + potential}

    return jax.jit(jax.vmap(one, (None, 0, 0)))


@lru_cache(maxsize=64)
def _bodies(topology):
    return jax.jit(jax.vmap(forward_kinematics, (None, 0)))


@lru_cache(maxsize=64)
def _frames(topology):
    return jax.jit(jax.vmap(frame_poses, (None, 0)))


def quaternions(R: np.ndarray) -> np.ndarray:
    """(..., 4) w, x, y, z of rotations (..., 3, 3), from the largest of the four squares."""
    m = R.reshape(-1, 3, 3)
    trace = np.einsum("nii->n", m)
    squares = np.stack([trace, *(m[:, k, k] for k in range(3))], 1)
    q = np.empty((len(m), 4))
    for k, rows in ((k, np.flatnonzero(np.argmax(squares, 1) == k)) for k in range(4)):
        x = m[rows]
        if k == 0:
            w = 1 + trace[rows]
            q[rows] = np.stack(
                [w, x[:, 2, 1] - x[:, 1, 2], x[:, 0, 2] - x[:, 2, 0], x[:, 1, 0] - x[:, 0, 1]], 1
            )
            continue
        i, j, l = k - 1, k % 3, (k + 1) % 3
        q[rows, 0] = x[:, l, j] - x[:, j, l]
        q[rows, 1 + i] = 1 + x[:, i, i] - x[:, j, j] - x[:, l, l]
        q[rows, 1 + j] = x[:, i, j] + x[:, j, i]
        q[rows, 1 + l] = x[:, i, l] + x[:, l, i]
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    return q.reshape(R.shape[:-2] + (4,))
