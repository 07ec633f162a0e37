"""Checks of shapes, dtypes and names while tracing; `check` (in its own file) looks at values on the host."""

from __future__ import annotations

import jax.numpy as jnp

from jaxrbd.errors import ArgumentError
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
