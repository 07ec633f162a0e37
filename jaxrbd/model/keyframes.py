"""Keyframes that name joints, as plain rows of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxrbd.errors import ModelError
from jaxrbd.joints import TYPES
from jaxrbd.model import values
from jaxrbd.model.base import pose_coordinates
from jaxrbd.model.description import WORLD, Joint, Keyframe
from jaxrbd.typing import Numbers


def named_keyframe(
    source: str,
    name: str,
    joints: Sequence[Joint],
    actuators: int,
    q: Numbers | Mapping[str, Numbers],
    v: Numbers | Mapping[str, Numbers] | None,
    u: Numbers | None,
) -> Keyframe:
    """A keyframe from arrays, or from numbers by joint: the rest is where a joint is if nothing is said."""
    where = f"{source}, keyframe {name!r}"

    def flat(given, column):
        if isinstance(given, Mapping):
            rest = _start if column == 0 else lambda j: np.zeros(TYPES[j.type].nv)
            parts = [np.ravel(given.get(j.name, rest(j))) for j in joints]
            given = np.concatenate(parts) if parts else ()
        return values.vector(where, "qv"[column], given, sum(TYPES[j.type].sizes[column] for j in joints))

    if u is not None and np.shape(u) != (actuators,):
        raise ModelError(where, f"u has shape {np.shape(u)}", f"There are {actuators} actuators.")
    return Keyframe(
        name, flat(q, 0), None if v is None else flat(v, 1), None if u is None else np.asarray(u, float)
    )


def _start(joint: Joint) -> np.ndarray:
    if TYPES[joint.type].free and joint.parent == WORLD:
        return pose_coordinates(joint.placement)
    return TYPES[joint.type].neutral()
