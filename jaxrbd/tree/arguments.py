"""Checks of shapes, dtypes and names while tracing; `check` looks at values on the host."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.joints import TYPES
from jaxrbd.model.names import hint
from jaxrbd.model.system import System, check_system, find
from jaxrbd.typing import Array, ArrayLike, DTypeLike

FRAMES = {"body": "body", "local": "body", "world": "world", "world_aligned": "world_aligned"}


def arguments(sys: System, **arrays: ArrayLike | None) -> list[Array]:
    """Arrays with shapes checked: `q` has nq numbers, everything else nv; cast to the System's dtype."""
    check_system(sys)
    result = []
    for name, x in arrays.items():
        size, label = (sys.nq, "nq") if name in ("q", "q0", "q1") else (sys.nv, "nv")
        result.append(array(name, x, (size,), f"({label},) = ({size},)", sys.dtype))
    return result


def array(name: str, x: ArrayLike | None, shape: tuple[int, ...], expected: str, dtype: DTypeLike) -> Array:
    if x is None:
        raise ArgumentError(f"{name} is None, expected an array of shape {expected}.")
    try:
        x = jnp.asarray(x)
    except TypeError as error:
        raise ArgumentError(
            f"{name} cannot be read as an array ({error}), expected shape {expected}."
        ) from None
    if x.shape != shape:
        remedy = ""
        if len(x.shape) == len(shape) + 1 and x.shape[1:] == shape:
            remedy = f" This looks like a batch of {x.shape[0]}: wrap the call in jax.vmap."
        elif name in ("q", "q0", "q1") or name in ("v", "a", "tau"):
            remedy = " Note that nq and nv differ when the model has free or spherical joints."
        raise ArgumentError(f"{name} has shape {x.shape}, expected {expected}.{remedy}")
    if not (jnp.issubdtype(x.dtype, jnp.floating) or jnp.issubdtype(x.dtype, jnp.integer)):
        raise ArgumentError(
            f"{name} has dtype {x.dtype}, expected {jnp.dtype(dtype).name}. Convert it first."
        )
    if (
        jnp.issubdtype(x.dtype, jnp.floating)
        and x.dtype != dtype
        and x.dtype not in (jnp.float32, jnp.float64)
    ):
        raise ArgumentError(
            f"{name} has dtype {x.dtype}, expected {jnp.dtype(dtype).name}. Convert it first."
        )
    if x.dtype == jnp.float64 and dtype == jnp.float32:
        raise ArgumentError(
            f"{name} has dtype float64, but the System is float32. "
            f"Use {name}.astype('float32'), or sys.astype('float64') to compute in double precision."
        )
    return x.astype(dtype)


def external(sys: System, f_ext: ArrayLike | None, dtype: DTypeLike) -> Array | None:
    if f_ext is None:
        return None
    return array("f_ext", f_ext, (sys.nb, 6), f"(nb, 6) = ({sys.nb}, 6)", dtype)


def frame_index(sys: System, name: str) -> int:
    return find(check_system(sys, single=False).frame_names, name, "frame")


def reference_frame(frame: str) -> str:
    """One of "body", "world", "world_aligned"; Pinocchio's "local" means the first."""
    if frame not in FRAMES:
        expected = "'body' (or 'local'), 'world', 'world_aligned'"
        raise ArgumentError(f"frame is {frame!r}, expected one of {expected}. {hint(frame, FRAMES)}")
    return FRAMES[frame]


def require_mass(sys: System, caller: str) -> None:
    """Refuse forward dynamics that cannot exist: known from the model, so said while tracing."""
    t = sys.topology
    bad = [name for name, body in zip(t.joint_names, t.body_names) if body in set(t.massless)]
    if bad:
        names = ", ".join(bad[:6]) + (f" and {len(bad) - 6} more" if len(bad) > 6 else "")
        raise ArgumentError(
            f"{caller}: the mass matrix of {sys.name!r} is singular: joints can move without moving any "
            f"mass: {names}. Give the links behind them mass and inertia, or the joints an armature, "
            "or lock joints with lock_joints. Inverse dynamics works as it is."
        )


def check(
    sys: System, q: ArrayLike, v: ArrayLike | None = None, tol: float | None = None, *, limits: bool = True
) -> None:
    """Look at values on the host. Raises ArgumentError that names the joint; returns None.

    Numbers must be finite, quaternions of unit length, and q and v within the joints' limits, all to `tol`
    (1e-4, in double precision 1e-8). Limits are springs here, so a simulation may pass them a little: with
    limits=False they are not looked at.

    Under jit values cannot raise, so call this where data enters your program. Works on batches too.
    """
    check_system(sys, "check")
    q = _values(sys, "q", q, sys.nq, sys.topology.q_starts)
    v = None if v is None else _values(sys, "v", v, sys.nv, sys.topology.v_starts)
    tol = tol or (1e-4 if sys.dtype == jnp.float32 else 1e-8)
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


def _values(sys: System, name: str, x, size: int, starts: tuple[int, ...]) -> np.ndarray:
    """q or v as finite numbers on the host, (..., size)."""
    if isinstance(x, jax.core.Tracer):
        raise ArgumentError(f"check: {name} is traced. Call check outside of jit, vmap and grad.")
    x = np.asarray(x)
    if x.shape[-1:] != (size,):
        raise ArgumentError(f"{name} has shape {x.shape}, expected (..., {size}).")
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        at = tuple(bad[0].tolist())
        joint = sys.joint_names[int(np.searchsorted(starts, at[-1], side="right")) - 1]
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
