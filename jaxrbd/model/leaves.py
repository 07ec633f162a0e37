"""Leaves of a System: their shapes, and new values for them, one or a batch.

A leaf may carry one batch axis in front of its own shape: a System like that stands for many, and
`jax.vmap` takes it apart. What is not an array (the axes of `in_axes`, placeholders that JAX puts into
trees) passes unchecked.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.model.topology import Topology
from jaxrbd.typing import Array, Numbers

DOF_LEAVES = (
    "armature",
    "damping",
    "friction",
    "slip_speed",
    "stiffness",
    "spring_reference",
    "lower",
    "upper",
    "velocity_limit",
    "effort_limit",
    "limit_stiffness",
    "limit_damping",
)

# what the equations of motion know of a model; springs, actuators, limits, shapes and the rest act on them
MECHANISM = (
    "joint_quaternion",
    "joint_position",
    "axis",
    "axis2",
    "pitch",
    "frame_quaternion",
    "frame_position",
    "mass",
    "com",
    "inertia",
    "gravity",
    "armature",
)
# and of the loops of a System with clusters
LOOPS = (
    "mimic_ratio",
    "mimic_offset",
    "loop_quaternion",
    "loop_position",
    "loop_coefficients",
    "linear_coefficients",
    "linear_offset",
)


@lru_cache(maxsize=512)
def leaf_shapes(t: Topology) -> dict[str, tuple[int, ...]]:
    """The shape of every leaf of a System with topology `t`, without a batch axis."""
    nb, nf, nl, nv = t.nb, len(t.frame_names), t.link_count, t.v_starts[-1]
    nt, terms = len(t.linear_names), sum(map(len, t.linear_joints))
    nu, nm, ns, n, nk = map(len, (t.actuator_names, t.mimics, t.shape_kinds, t.loop_names, t.keyframe_names))
    return (
        {"joint_quaternion": (nb, 4), "joint_position": (nb, 3), "axis": (nb, 3), "axis2": (nb, 3)}
        | {"pitch": (nb,), "frame_quaternion": (nf, 4), "frame_position": (nf, 3)}
        | {"mass": (nl,), "com": (nl, 3), "inertia": (nl, 6), "gravity": (3,), "q0": (t.nq,)}
        | dict.fromkeys(DOF_LEAVES, (nv,))
        | {"actuator_gear": (nu,), "actuator_gain": (nu,), "actuator_bias": (nu, 3)}
        | {"control_range": (nu, 2), "force_range": (nu, 2), "mimic_ratio": (nm,), "mimic_offset": (nm,)}
        | {"shape_size": (ns, 4), "shape_quaternion": (ns, 4), "shape_position": (ns, 3)}
        | {"shape_rgba": (ns, 4), "shape_friction": (ns,)}
        | {"loop_quaternion": (n, 2, 4), "loop_position": (n, 2, 3), "loop_coefficients": (n, 5)}
        | {"linear_coefficients": (terms,), "linear_offset": (nt,)}
        | {"keyframe_q": (nk, t.nq), "keyframe_v": (nk, t.nv), "keyframe_u": (nk, nu)}
    )


def whole_leaf(key: str, old: Any, value: Numbers, shape: tuple[int, ...], names: tuple[str, ...]) -> Any:
    """`value` as the new leaf `key`: of its own `shape`, or with a batch axis in front."""
    if not hasattr(old, "dtype") or not hasattr(old, "shape"):
        return value
    new = _numbers("System.replace", key, value, old.dtype)
    if new.shape not in (old.shape, shape) and not (new.ndim == len(shape) + 1 and new.shape[1:] == shape):
        raise ArgumentError(
            f"System.replace: {key} has shape {new.shape}, expected {shape}, or (batch, "
            f"{', '.join(map(str, shape))}) for a batch of Systems. "
            "Pass one value per row; to set a single one use with_link, with_joint or .at[]."
        )
    if key == "mass":
        check_mass("System.replace", value, names)
    return new


def part_of_leaf(
    where: str,
    key: str,
    old: Array,
    at: int | slice,
    value: Numbers,
    shape: tuple[int, ...],
    scalar: bool,
) -> Array:
    """The leaf `old` with `value` in rows `at`; a batch of values gives a batch of leaves.

    `shape` is that of the leaf without a batch axis. With `scalar` one number serves for all rows.
    """
    new, target = _numbers(where, key, value, old.dtype), np.empty(shape)[at].shape
    if scalar and target == (1,) and new.ndim < 2 and new.shape != (1,):
        new = new[..., None]  # one number per System of a batch, or just one
    elif scalar and new.ndim == 0:
        new = jnp.broadcast_to(new, target)
    batch = new.shape[: new.ndim - len(target)]
    if new.shape != batch + target or len(batch) > 1:
        sizes = ", ".join(["batch", *map(str, target)]) + ("" if target else ",")
        raise ArgumentError(
            f"{where}: {key} has shape {new.shape}, expected {target}, or ({sizes}) for a batch of Systems."
        )
    old_batch = old.shape[: old.ndim - len(shape)]
    if batch and old_batch and batch != old_batch:
        raise ArgumentError(
            f"{where}: found {batch[0]} values of {key} for a batch of {old_batch[0]} Systems. "
            "Pass one, or one for each."
        )
    old = jnp.broadcast_to(old, (batch or old_batch) + shape)
    index = (..., at, *[slice(None)] * (len(shape) - 1))
    return old.at[index].set(new if batch or not old_batch else new[None])


def check_mass(where: str, value: Numbers, names: tuple[str, ...]) -> None:
    """Refuse negative masses (last axis: the named links) and NaN, as far as the values are known."""
    if isinstance(value, jax.core.Tracer):
        return
    try:
        mass = np.asarray(value, float)
    except (TypeError, ValueError, jax.errors.JAXTypeError):  # a list that holds tracers
        return
    bad = np.argwhere(~(mass >= 0))
    if len(bad):
        at = tuple(bad[0].tolist())
        link = names[at[-1]] if at and mass.shape[-1] == len(names) else names[0]
        raise ArgumentError(
            f"{where}: the mass of link {link!r} is {mass[at]:g}, expected zero or more kilograms. "
            "(For a tangent, which may be negative, use dataclasses.replace.)"
        )


def _numbers(where: str, key: str, value: Numbers, dtype: np.dtype) -> Array:
    try:
        return jnp.asarray(value, dtype)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{where}: {key} is {value!r:.60}, expected numbers ({error}).") from None
