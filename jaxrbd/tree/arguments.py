"""Checks of shapes, dtypes and names while tracing; `check` looks at values on the host."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, find

FRAMES = ("body", "world", "world_aligned")


def arguments(sys: System, **arrays):
    """Arrays with shapes checked: `q` has nq numbers, everything else nv; cast to the System's dtype."""
    result = []
    for name, x in arrays.items():
        size, label = (sys.nq, "nq") if name in ("q", "q0", "q1") else (sys.nv, "nv")
        result.append(array(name, x, (size,), f"({label},) = ({size},)", sys.dtype))
    return result


def array(name: str, x, shape: tuple[int, ...], expected: str, dtype):
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


def external(sys: System, f_ext, dtype):
    if f_ext is None:
        return None
    return array("f_ext", f_ext, (sys.nb, 6), f"(nb, 6) = ({sys.nb}, 6)", dtype)


def frame_index(sys: System, name: str) -> int:
    return find(sys.frame_names, name, "frame")


def reference_frame(frame: str) -> str:
    if frame not in FRAMES:
        raise ArgumentError(f"frame is {frame!r}, expected one of {', '.join(map(repr, FRAMES))}.")
    return frame


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


def check(sys: System, q, v=None, tol: float | None = None) -> None:
    """Look at values on the host: finite numbers, unit quaternions. Raises ArgumentError; returns None.

    Under jit values cannot raise, so call this where data enters your program. Works on batches too.
    """
    for name, x, size in (("q", q, sys.nq), ("v", v, sys.nv)):
        if x is None and name == "v":
            continue
        if isinstance(x, jax.core.Tracer):
            raise ArgumentError(f"check: {name} is traced. Call check outside of jit, vmap and grad.")
        x = np.asarray(x)
        if x.shape[-1:] != (size,):
            raise ArgumentError(f"{name} has shape {x.shape}, expected (..., {size}).")
        if not np.isfinite(x).all():
            where = np.argwhere(~np.isfinite(x))[0]
            raise ArgumentError(
                f"{name}{tuple(where.tolist())} is {x[tuple(where)]}, expected finite numbers."
            )
    q = np.asarray(q, float)
    tol = tol or (1e-4 if sys.dtype == jnp.float32 else 1e-8)
    for joint, kind in zip(sys.joint_names, sys.joint_types):
        if kind in ("spherical", "free"):
            norm = np.linalg.norm(q[..., sys.q_index(joint)][..., -4:], axis=-1)
            worst = float(norm.flat[np.argmax(np.abs(norm - 1))])
            if abs(worst - 1) > tol:
                raise ArgumentError(
                    f"the quaternion of joint {joint!r} has norm {worst:.6g}, expected 1 (order w, x, y, z). "
                    "Use rbd.normalize(sys, q)."
                )
