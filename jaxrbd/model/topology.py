"""Topology: the static part of a System, names, joint types and who hangs on whom."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from jaxrbd.joints import TYPES


@dataclass(frozen=True, eq=False)
class Topology:
    """All that is known when a System is compiled and never changes: it keys JAX's compile cache."""

    name: str
    body_names: tuple[str, ...]
    joint_names: tuple[str, ...]
    joint_types: tuple[str, ...]
    parents: tuple[int, ...]  # body index of the parent, -1 for the world
    frame_names: tuple[str, ...]  # every link, then every further frame
    frame_bodies: tuple[int, ...]  # the moving body that carries it, -1 for the world
    link_count: int  # the first so many frames are links with mass
    body_frames: tuple[int, ...]  # the frame that carries the body's own name
    shape_frames: tuple[int, ...] = ()
    shape_kinds: tuple[str, ...] = ()
    shape_names: tuple[str, ...] = ()
    shape_roles: tuple[str, ...] = ()
    shape_files: tuple[tuple[str, str], ...] = ()  # (mesh as written, path found or "")
    mimics: tuple[tuple[int, int], ...] = ()  # (joint, the joint it follows)
    actuator_names: tuple[str, ...] = ()
    actuator_kinds: tuple[str, ...] = ()
    actuator_dofs: tuple[int, ...] = ()
    loop_names: tuple[str, ...] = ()
    loop_kinds: tuple[str, ...] = ()
    loop_frames: tuple[tuple[int, int], ...] = ()  # frames (bodies), or joints for "coupling"
    loop_active: tuple[bool, ...] = ()
    keyframe_names: tuple[str, ...] = ()
    massless: tuple[str, ...] = ()  # bodies whose joint takes part in a motion without inertia: M is singular
    has_offsets: bool = False  # some body frame is not at its joint
    row_width: int | None = None  # links handled side by side by the tree recursion; None: chosen by jaxrbd
    source: str = "<python>"

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return tuple(getattr(self, f.name) for f in fields(self))

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Topology) and self._hash == other._hash and self._key == other._key
        )

    @property
    def nb(self) -> int:
        return len(self.body_names)

    @cached_property
    def q_starts(self) -> tuple[int, ...]:
        return tuple(np.cumsum([0] + [TYPES[t].nq for t in self.joint_types]).tolist())

    @cached_property
    def v_starts(self) -> tuple[int, ...]:
        return tuple(np.cumsum([0] + [TYPES[t].nv for t in self.joint_types]).tolist())

    @property
    def nq(self) -> int:
        return self.q_starts[-1]

    @property
    def nv(self) -> int:
        return self.v_starts[-1]
