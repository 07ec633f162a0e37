"""Edit compiled models: lock joints, attach one model to another, put several into one System.

Each function describes its Systems, edits the plain data and builds again, so every leaf keeps its current
value and dtype. What cannot be carried over is named in a ModelWarning.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from jaxrbd.errors import ArgumentError, ModelWarning
from jaxrbd.joints import TYPES
from jaxrbd.joints.matrices import matrix_from_rpy
from jaxrbd.model.compile import build
from jaxrbd.model.describe import describe
from jaxrbd.model.description import WORLD, Description, Keyframe, Pose
from jaxrbd.model.edit_descriptions import DEFAULT, fix_joints, join, mounted, prefixed
from jaxrbd.model.system import System, check_system, find
from jaxrbd.model.validate import listing
from jaxrbd.typing import ArrayLike, Numbers


def lock_joints(
    sys: System, joints: Mapping[str, Numbers] | Sequence[str], q: ArrayLike | None = None
) -> System:
    """`jaxrbd.lock_joints` for Systems without clusters."""
    positions = _locked_positions(check_system(sys, "lock_joints"), joints, q)
    if sys.nb and len(positions) == sys.nb:
        raise ArgumentError("lock_joints: nothing would move any more. Leave at least one joint.")
    d, lost = fix_joints(_with_default(sys), positions)
    if lost:
        text = f"{d.source}: locking {listing(positions)} drops {listing(lost, 12)}."
        warnings.warn(text, ModelWarning, stacklevel=2)
    return _keep_limit_springs(_rebuild(d, sys.dtype), [(sys, "")], sys.topology.row_width)


def attach(
    sys: System,
    other: System,
    frame: str | None,
    xyz: Numbers = (0.0, 0.0, 0.0),
    rpy: Numbers = (0.0, 0.0, 0.0),
    prefix: str = "",
) -> System:
    """`jaxrbd.attach` for Systems without clusters."""
    _same_kind("attach", (sys, other))
    base, arm = _with_default(sys), _with_default(other)
    body, X_mount = WORLD, Pose()
    if frame is not None:
        find(sys.frame_names, frame, "frame")
        body, X_mount = next(((f.body, f.pose) for f in base.frames if f.name == frame), (frame, Pose()))
    X_mount = X_mount @ Pose(matrix_from_rpy(_three("rpy", rpy)), _three("xyz", xyz))
    roots = [j for j in arm.joints if j.parent == WORLD]
    free = {j.name: j.offset.inverse() for j in roots if TYPES[j.type].free}
    if free and len(roots) > 1:
        raise ArgumentError(
            f"attach: {other.name!r} has {len(roots)} trees, some of them free: {listing(free)}. "
            "Attach each tree by itself, or lock the free joints with lock_joints first."
        )
    arm, lost = fix_joints(arm, free)
    lost += ["the ground's shapes"] if arm.world_shapes else []
    if lost:
        text = f"{arm.source}: attaching it to {frame!r} drops {listing(lost, 12)}."
        warnings.warn(text, ModelWarning, stacklevel=2)
    arm = mounted(prefixed(arm, prefix), body, X_mount)
    d = join((base, arm), sys.name, f"attach: give prefix=... so that names of {other.name!r} differ")
    return _rebuild(d, sys.dtype).with_row_width(sys.topology.row_width)


def combine(*systems: System, names: Sequence[str] | None = None) -> System:
    """`jaxrbd.combine` for Systems without clusters."""
    if not systems:
        raise ArgumentError("combine: no System was given. Pass at least one.")
    _same_kind("combine", systems)
    if names is None:
        count = Counter(s.name for s in systems)
        seen: Counter = Counter()
        names = []
        for s in systems:
            names.append(s.name if count[s.name] == 1 else f"{s.name}{seen[s.name]}")
            seen[s.name] += 1
    if isinstance(names, str) or len(names) != len(systems):
        raise ArgumentError(f"combine: {len(systems)} Systems, but names={names!r}. Give one name for each.")
    gravities = [np.asarray(s.gravity) for s in systems]
    for s, g in zip(systems, gravities):
        if not np.array_equal(g, gravities[0]):
            raise ArgumentError(
                f"combine: gravity is {g} in {s.name!r}, but {gravities[0]} in {systems[0].name!r}. "
                "Set one with sys.replace(gravity=...)."
            )
    prefixes = [f"{name}/" if name else "" for name in names]
    parts = tuple(prefixed(_with_default(s), prefix) for s, prefix in zip(systems, prefixes))
    name = "_".join(n or s.name for n, s in zip(names, systems))
    d = join(parts, name, "combine: give names=[...] that differ")
    return _keep_limit_springs(_rebuild(d, systems[0].dtype), list(zip(systems, prefixes)), None)


def _locked_positions(sys: System, joints, q) -> dict[str, np.ndarray]:
    """Coordinates of each joint to lock, checked."""
    if isinstance(joints, Mapping):
        if q is not None:
            raise ArgumentError("lock_joints: coordinates were given twice, as a mapping and as q. Drop one.")
        given = dict(joints)
    else:
        names = [joints] if isinstance(joints, str) else list(joints)
        q = np.asarray(sys.q0 if q is None else q, float)
        if q.shape != (sys.nq,):
            raise ArgumentError(f"lock_joints: q has shape {q.shape}, expected ({sys.nq},).")
        given = {name: q[sys.q_index(name)] for name in names}
    return {name: _coordinates(sys, name, value) for name, value in given.items()}


def _coordinates(sys: System, name: str, value) -> np.ndarray:
    kind = sys.joint_types[find(sys.joint_names, name, "joint")]
    try:
        q = np.asarray(value, float).reshape(-1)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"lock_joints: joint {name!r} is to stand at {value!r:.60}, not numbers."
        ) from None
    if q.shape != (TYPES[kind].nq,):
        need = TYPES[kind].nq
        raise ArgumentError(f"lock_joints: joint {name!r} ({kind}) takes {need} coordinates, not {q.size}.")
    if not np.isfinite(q).all():
        raise ArgumentError(f"lock_joints: joint {name!r} has a NaN or infinite coordinate: {q}.")
    if TYPES[kind].on_manifold and abs(np.linalg.norm(q[-4:]) - 1.0) > 1e-4:
        raise ArgumentError(
            f"lock_joints: the quaternion {q[-4:]} of joint {name!r} has not unit length. Normalise it."
        )
    return q


def _with_default(sys: System) -> Description:
    d = describe(sys)
    return d.replace(keyframes=(*d.keyframes, Keyframe(DEFAULT, np.asarray(sys.q0, float))))


def _rebuild(d: Description, dtype) -> System:
    return build(d.replace(keyframes=tuple(k for k in d.keyframes if k.name != DEFAULT)), dtype=dtype)


def _keep_limit_springs(new: System, parts: Sequence[tuple[System, str]], row_width) -> System:
    """Carry limit springs and slip speeds of joints that still move, which a Description does not hold."""
    kept = {key: np.array(getattr(new, key)) for key in ("limit_stiffness", "limit_damping", "slip_speed")}
    for old, prefix in parts:
        for name in old.joint_names:
            if prefix + name in new.joint_names:
                at, was = new.v_index(prefix + name), old.v_index(name)
                for key, values in kept.items():
                    values[at] = getattr(old, key)[was]
    return new.replace(**kept).with_row_width(row_width)


def _same_kind(caller: str, systems: Sequence[System]) -> None:
    for s in systems:
        check_system(s, caller)
        if s.dtype != systems[0].dtype:
            raise ArgumentError(
                f"{caller}: {s.name!r} is {s.dtype}, {systems[0].name!r} is {systems[0].dtype}. "
                f"Cast one with sys.astype(...)."
            )


def _three(what: str, value) -> np.ndarray:
    x = np.asarray(value, float)
    if x.shape != (3,) or not np.isfinite(x).all():
        raise ArgumentError(f"attach: {what} is {value!r:.60}, expected three finite numbers.")
    return x
