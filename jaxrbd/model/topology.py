"""Topology: the static part of a System, names, joint types and who hangs on whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from jaxrbd.joints import TYPES


@dataclass(frozen=True)
class LoopFunction:
    """A relation between joints with scalar coordinates, written in jax.numpy.

    Implicit: function(x) = 0, `rows` numbers of the coordinates x of `joints`. Explicit: the coordinates of
    `follows` are function(x).
    """

    name: str
    function: Callable
    joints: tuple[int, ...]
    rows: int
    follows: tuple[int, ...] = ()


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
    linear_names: tuple[str, ...] = ()  # couplings of several joints: sum of coefficient times q is an offset
    linear_joints: tuple[tuple[int, ...], ...] = ()
    followers: tuple[int, ...] = ()  # joints that the file says shall follow others
    functions: tuple[LoopFunction, ...] = ()  # relations between joints that a user wrote
    clusters: tuple[tuple[int, ...], ...] = ()  # bodies that move together through loops, in tree order
    independent: tuple[int, ...] = ()  # degrees of freedom of the tree that are v, where there are clusters
    dependent: tuple[int, ...] = ()  # joints that q leaves out: others say where they are
    shape_masks: tuple[tuple[int, int], ...] = ()  # contype and conaffinity of every shape; none: all are 1
    exclusions: tuple[tuple[int, int], ...] = ()  # links whose shapes never touch
    contact_pairs: tuple[tuple[int, int], ...] = ()  # shapes that may touch, whatever else is said
    folded: tuple[int, ...] = ()  # childless bodies that recursions handle beside their loop

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

    @cached_property
    def kept_q(self) -> tuple[int, ...]:
        """Where in the tree's q the numbers of q stand: all of them but explicit dependents."""
        left_out = {q for j in self.dependent for q in range(self.q_starts[j], self.q_starts[j + 1])}
        return tuple(q for q in range(self.q_starts[-1]) if q not in left_out)

    @property
    def nq(self) -> int:
        """Numbers in q; `q_starts` count those of the open tree."""
        return self.q_starts[-1] - len(self.dependent)

    @property
    def nv(self) -> int:
        """Numbers in v; `v_starts` count those of the open tree."""
        return len(self.independent) if self.clusters else self.v_starts[-1]

    @cached_property
    def tree(self) -> Topology:
        """The open tree: every joint a degree of freedom of its own."""
        if not self.clusters:
            return self
        chosen = {
            b for b in range(self.nb) for d in range(*self.v_starts[b : b + 2]) if d in self.independent
        }
        followers = tuple(b for cluster in self.clusters for b in cluster if b not in chosen)
        return replace(
            self, clusters=(), independent=(), dependent=(), folded=(), followers=tuple(sorted(followers))
        )

    @cached_property
    def opened(self) -> Topology:
        """The open tree with childless bodies of clusters folded, as the recursions take it."""
        return replace(self, clusters=(), independent=(), dependent=()) if self.clusters else self

    @cached_property
    def leading_joints(self) -> tuple[str, ...]:
        """Joints that have numbers in v."""
        if not self.clusters:
            return self.joint_names
        leads = lambda i: any(d in self.independent for d in range(*self.v_starts[i : i + 2]))  # noqa: E731
        return tuple(name for i, name in enumerate(self.joint_names) if leads(i))

    def whom_follows(self, joint: str) -> str:
        """Why a joint of a cluster has no number of its own, for messages."""
        cluster = next(c for c in self.clusters if self.joint_names.index(joint) in c)
        leaders = [self.joint_names[b] for b in cluster if self.joint_names[b] in self.leading_joints]
        return (
            f"joint {joint!r} follows {', '.join(map(repr, leaders)) or 'nobody'} in a loop, so it has no "
            "number of its own. Ask sys.tree for its place in the open tree's state, which rbd.to_tree gives."
        )
