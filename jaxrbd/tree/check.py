"""`check`: look at the values of a state on the host, where data enters a program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.joints import TYPES
from jaxrbd.model.system import System, check_system
from jaxrbd.tree.opening import loop_error, opened, tree_of
from jaxrbd.typing import ArrayLike


def check(
    sys: System, q: ArrayLike, v: ArrayLike | None = None, tol: float | None = None, *, limits: bool = True
) -> None:
    """Look at values on the host. Raises ArgumentError that names the joint; returns None.

    Numbers must be finite, quaternions of unit length, and q and v within the joints' limits, all to `tol`
    (1e-4, in double precision 1e-8). Limits are springs here, so a simulation may pass them a little: with
    limits=False they are not looked at. Loops of clusters must be closed.

    Under jit values cannot raise, so call this where data enters your program. Works on batches too.
    """
    check_system(sys, "check")
    q = _values(sys, "q", q, sys.nq, sys.topology.q_starts, sys.topology.kept_q)
    v = None if v is None else _values(sys, "v", v, sys.nv, sys.topology.v_starts, sys.topology.independent)
    tol = tol or (1e-4 if sys.dtype == jnp.float32 else 1e-8)
    if sys.topology.clusters:
        sys, q, v = _open_loops(sys, q, v, tol)
    for joint, kind in zip(sys.joint_names, sys.joint_types):
        if TYPES[kind].on_manifold:
            norm = np.linalg.norm(q[..., sys.q_index(joint)][..., -4:], axis=-1)
            worst = float(norm.flat[np.argmax(np.abs(norm - 1))])
            if abs(worst - 1) > tol:
                raise ArgumentError(
                    f"the quaternion of joint {joint!r} has norm {worst:.6g}, expected 1 (order w, x, y, z). "
                    "Use rbd.normalize(sys, q)."
                )
    if limits:
        _check_limits(sys, q, v, tol)


def _open_loops(sys: System, q: np.ndarray, v: np.ndarray | None, tol: float):
    """The open tree and its state, loops checked."""
    rows = jnp.asarray(q.reshape(-1, sys.nq), sys.dtype)
    error = np.asarray(jax.vmap(lambda q: loop_error(sys, q).error)(rows))
    worst = float(np.abs(error).max(initial=0.0))
    if worst > tol:
        raise ArgumentError(
            f"the loops of {sys.name!r} are open by {worst:.3g} (m, rad, m²) in q, expected at most {tol:g}. "
            "Use rbd.close_loops(sys, q)."
        )
    shape = lambda x: np.asarray(x, float).reshape(q.shape[:-1] + x.shape[-1:])  # noqa: E731
    if v is None:
        return tree_of(sys), shape(jax.vmap(lambda q: opened(sys, q)[1])(rows)), None
    speeds = jnp.asarray(np.broadcast_to(v, q.shape[:-1] + v.shape[-1:]).reshape(-1, sys.nv), sys.dtype)
    q_t, v_t = jax.vmap(lambda q, v: opened(sys, q, v)[1:])(rows, speeds)
    return tree_of(sys), shape(q_t), shape(v_t)


def _values(sys: System, name: str, x, size: int, starts: tuple[int, ...], places) -> np.ndarray:
    """q or v as finite numbers on the host, (..., size); `places` of its numbers in the open tree's."""
    if isinstance(x, jax.core.Tracer):
        raise ArgumentError(f"check: {name} is traced. Call check outside of jit, vmap and grad.")
    x = np.asarray(x)
    if x.shape[-1:] != (size,):
        raise ArgumentError(f"{name} has shape {x.shape}, expected (..., {size}).")
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        at = tuple(bad[0].tolist())
        place = places[at[-1]] if sys.topology.clusters else at[-1]
        joint = sys.joint_names[int(np.searchsorted(starts, place, side="right")) - 1]
        raise ArgumentError(f"{_place(name, at, joint)} is {x[at]}, expected finite numbers.")
    return x.astype(float)


def _check_limits(sys: System, q: np.ndarray, v: np.ndarray | None, tol: float) -> None:
    """q between `lower` and `upper` where a joint has scalar coordinates, |v| up to `velocity_limit`."""
    t = sys.topology
    low, high, fastest = (np.asarray(x, float) for x in (sys.lower, sys.upper, sys.velocity_limit))
    for joint, kind, qs, vs, end in zip(t.joint_names, t.joint_types, t.q_starts, t.v_starts, t.v_starts[1:]):
        dofs = slice(vs, end)
        if not TYPES[kind].on_manifold:
            x = q[..., qs : qs + end - vs]
            _within("q", joint, qs, x, low[dofs], high[dofs], tol, "Limits are sys.lower and sys.upper.")
        if v is not None:
            x, most = v[..., dofs], fastest[dofs]
            _within("v", joint, vs, x, -most, most, tol, "The limit is sys.velocity_limit.")


def _within(name: str, joint: str, start: int, x, low, high, tol: float, remedy: str) -> None:
    bad = np.argwhere((x < low - tol) | (x > high + tol))
    if len(bad):
        at = tuple(bad[0].tolist())
        k = at[-1]
        place = _place(name, (*at[:-1], start + k), joint)
        span = f"expected {low[k]:.6g} to {high[k]:.6g}"
        raise ArgumentError(f"{place} is {x[at]:.6g}, {span}. {remedy} Pass limits=False to allow it.")


def _place(name: str, at: tuple[int, ...], joint: str) -> str:
    return f"{name}[{', '.join(map(str, at))}] of joint {joint!r}"
