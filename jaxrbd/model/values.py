"""Numbers that users write, checked and brought to one form: vectors, tensors, axes, limits.

Each function takes `where`, the element that an error should name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrbd.errors import ModelError
from jaxrbd.joints import TYPES
from jaxrbd.model.description import PerDof
from jaxrbd.typing import Numbers


def vector(where: str, what: str, value: Numbers, size: int = 3) -> np.ndarray:
    """`size` finite numbers."""
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        array = np.full(0, np.nan)
    if array.shape != (size,) or not np.isfinite(array).all():
        raise ModelError(where, f"{what} = {value!r} is not {size} finite numbers", f"Give {size} numbers.")
    return array


def tensor(where: str, value: Numbers) -> np.ndarray:
    """Inertia tensor from a scalar (times the identity), three principal moments, or a 3×3 matrix."""
    array = np.asarray(value, float)
    if array.shape == ():
        array = array * np.eye(3)
    elif array.shape == (3,):
        array = np.diag(array)
    if array.shape != (3, 3) or not np.isfinite(array).all():
        remedy = "Give a scalar, three principal moments or a 3x3 matrix, about the centre of mass."
        raise ModelError(where, f"inertia of shape {np.shape(value)} or not finite", remedy)
    if not np.allclose(array, array.T, rtol=1e-9, atol=1e-12 * np.abs(array).max(initial=0.0)):
        raise ModelError(where, "the inertia is not symmetric", "Give I with I = I transposed.")
    return (array + array.T) / 2


def rotation_matrix(where: str, value: Numbers) -> np.ndarray:
    """A proper rotation, to 1e-6."""
    array = np.asarray(value, float)
    if (
        array.shape != (3, 3)
        or not np.allclose(array @ array.T, np.eye(3), atol=1e-6)
        or np.linalg.det(array) < 0
    ):
        raise ModelError(where, "R is not a rotation matrix", "Give R with R R^T = 1 and det R = 1, or rpy.")
    return array


def axes(where: str, type: str, axis, axis2) -> tuple[np.ndarray, np.ndarray | None]:
    """Unit vectors of a joint; a second one that is left out stays so, and the compiler chooses it."""
    axis = _unit(where, "axis", axis)
    if axis2 is None:
        return axis, None
    if not TYPES[type].axis2:
        raise ModelError(where, f"a {type} joint has no axis2", "Leave it out.")
    axis2 = _unit(where, "axis2", axis2)
    if TYPES[type].axis2 == "normal" and abs(axis @ axis2) > 1e-6:
        raise ModelError(
            where, "axis2 is not perpendicular to axis", "Give the x direction within the plane."
        )
    if np.linalg.norm(np.cross(axis, axis2)) < 1e-6:
        raise ModelError(where, "axis and axis2 are parallel", "Give two different axes.")
    return axis, axis2


def per_dof(where: str, what: str, value: Numbers, nv: int) -> float | tuple[float, ...]:
    """A float, or a tuple of `nv` floats; infinite is allowed, NaN is not."""
    array = np.asarray(value, float)
    if array.shape not in ((), (nv,)) or np.isnan(array).any():
        raise ModelError(
            where, f"{what} = {value!r} is not a number or {nv} numbers", "Give one per freedom."
        )
    return float(array) if array.shape == () else tuple(array.tolist())


def amounts(where: str, nv: int, **given: PerDof) -> dict[str, Any]:
    """Several quantities per degree of freedom, none of them negative."""
    checked = {key: per_dof(where, key, value, nv) for key, value in given.items()}
    for key, value in checked.items():
        if np.any(np.asarray(value) < 0):
            raise ModelError(where, f"{key} is negative", "Give numbers >= 0.")
    return checked


def limits(where: str, value: Sequence[PerDof] | np.ndarray | None, nv: int) -> tuple[PerDof, PerDof]:
    """(lower, upper) from None or a pair."""
    if value is None:
        return -np.inf, np.inf
    if len(value) != 2:
        raise ModelError(where, f"limits of length {len(value)}", "Give (lower, upper).")
    lower, upper = (per_dof(where, "limits", x, nv) for x in value)
    if np.any(np.asarray(lower) > np.asarray(upper)):
        raise ModelError(where, f"the limits {lower}, {upper} are reversed", "Give (lower, upper).")
    return lower, upper


def interval(where: str, what: str, value) -> tuple[float, float]:
    """(low, high) from a pair, or from one number x meaning (-x, x)."""
    pair = (-value, value) if np.ndim(value) == 0 else tuple(value)
    if len(pair) != 2 or not pair[0] <= pair[1]:
        raise ModelError(where, f"{what} = {value!r} is not (low, high)", "Give low <= high, or one number.")
    return float(pair[0]), float(pair[1])


def _unit(where: str, what: str, value) -> np.ndarray:
    array = vector(where, what, value)
    norm = np.linalg.norm(array)
    if norm < 1e-12:
        raise ModelError(where, f"{what} is zero", "Give the direction of motion.")
    return array / norm
