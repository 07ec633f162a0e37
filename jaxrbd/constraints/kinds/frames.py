"""Constraints between two frames, or of a frame with the world: weld, connect, hinge, hold.

Rows are directions of the relative pose of A in B, in the axes of B, measured at A: turning about x, y, z,
then shifting along x, y, z. Points on planes, rods and rolling are kinds of the same family.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, Entry, Part
from jaxrbd.constraints.kinds.placing import (
    WORLD,
    Baumgarte,
    Options,
    Place,
    Placement,
    in_world,
    one_entry,
    pose_in,
)
from jaxrbd.constraints.kinds.relative import Relative, relative_motion
from jaxrbd.constraints.rows import Scene
from jaxrbd.errors import ArgumentError
from jaxrbd.model.names import check_name
from jaxrbd.model.system import System, Topology
from jaxrbd.tree.arguments import frame_index
from jaxrbd.tree.spatial import ZERO3, Force, Motion, Vec3
from jaxrbd.typing import ArrayLike, Numbers

DIRECTIONS = ("turn_x", "turn_y", "turn_z", "x", "y", "z")
WORDS = {(0, 1, 2, 3, 4, 5): "weld", (3, 4, 5): "connect", (5,): "point_on_plane"}


@dataclass(frozen=True)
class Frames(Entry):
    """Some of the six directions of frame A in frame B; -1 is the world."""

    a: int
    b: int
    mask: tuple[int, ...]  # which directions
    placed: bool = True

    @property
    def rows(self) -> int:
        return len(self.mask)

    @property
    def word(self) -> str:
        return WORDS.get(self.mask, "hold")

    @property
    def family(self) -> type[Entry]:
        return Frames

    def bodies(self, t: Topology) -> tuple[int, int]:
        a, b = (t.frame_bodies[f] if f >= 0 else -1 for f in (self.a, self.b))
        return a, b

    def fits(self, sys: System) -> bool:
        return max(self.a, self.b) < len(sys.frame_names)

    @classmethod
    def touch(cls, mine: np.ndarray, normal: Vec3, parameter) -> Vec3 | None:
        """From A's place to the point whose motion counts, in world axes; None for the place itself.

        Zero for constraints that are not in the mask `mine`.
        """
        return None

    @classmethod
    def measure(cls, mine: np.ndarray, x: Relative) -> Relative:
        """x with what this kind measures instead of directions, for the constraints in the mask `mine`."""
        return x

    @classmethod
    def places(cls, entries: Sequence[Entry]) -> tuple[list[list[int]], int]:
        masks = [e.mask for e in _of_family(entries)]
        used = _used(masks)
        found = [[len(used) * k + used.index(j) for j in mask] for k, mask in enumerate(masks)]
        return found, len(used) * len(masks)

    @classmethod
    def evaluate(cls, scene: Scene, which: np.ndarray) -> Part:
        """Every constraint in all directions that some of them holds."""
        entries = _of_family(scene.con.entries[k] for k in which)
        masks = [e.mask for e in entries]
        kinds = {type(e): np.array([type(other) is type(e) for other in entries]) for e in entries}

        def touch(normal, parameter):
            found = [kind.touch(mine, normal, parameter) for kind, mine in kinds.items()]
            shifts = [x for x in found if x is not None]
            return sum(shifts[1:], shifts[0]) if shifts else None

        frames = [e.a for e in entries], [e.b for e in entries]
        x = relative_motion(scene, which, *frames, masks, touch)
        for kind, mine in kinds.items():
            x = kind.measure(mine, x)
        used = _used(masks)
        pick = lambda y: _join([[*y.ang, *y.lin][j] for j in used], x.u)  # noqa: E731
        on_a = [Force(e, ZERO3) for e in x.directions] + [Force(x.arm_a.cross(e), e) for e in x.directions]
        KA = _join_wrenches([on_a[j].rotate(x.a.R_node.T) for j in used], x.u)
        KB = None
        if any(e.b >= 0 for e in entries):
            on_b = [Force(-e, ZERO3) for e in x.directions]
            on_b += [Force(-x.arm_b.cross(e), -e) for e in x.directions]
            KB = _join_wrenches([on_b[j].rotate(x.b.R_node.T) for j in used], x.u)
        return Part(pick(x.phi), pick(x.u), pick(x.gamma), KA, KB)


@dataclass(frozen=True)
class Hinge(Frames):
    """All directions but the turn about z."""

    @property
    def word(self) -> str:
        return "hinge"


def weld(
    sys: System,
    frame: str,
    to: str | None = None,
    *,
    offset: Placement | None = None,
    anchor: Placement | None = None,
    q: ArrayLike | None = None,
    weight: Numbers = 1.0,
    baumgarte: Baumgarte | None = None,
    target: Numbers | None = None,
    name: str | None = None,
) -> Constraints:
    """Hold a frame in all six directions to another frame, or to the world.

    Options of every constraint between frames: `offset`, where it sits in the frame, and `anchor`, where in
    `to` (or in the world): a point, or a pose (R, p). `q`: put the anchor where the constraint is met in
    this configuration. `weight`: what it counts where rows contradict each other, one number or one per
    row. `baumgarte`: a time constant T in seconds, for stiffness 1/T² and damping 2/T, or the pair
    (stiffness, damping). `target`: accelerations to follow, one per row. `name`: for `row_index`, messages.
    """
    place, options = Place(offset, anchor, q), Options(weight, baumgarte, target, name)
    return between_frames(sys, Frames, frame, to, tuple(range(6)), place, options)


def connect(
    sys: System,
    frame: str,
    to: str | None = None,
    *,
    offset: Placement | None = None,
    anchor: Placement | None = None,
    q: ArrayLike | None = None,
    weight: Numbers = 1.0,
    baumgarte: Baumgarte | None = None,
    target: Numbers | None = None,
    name: str | None = None,
) -> Constraints:
    """Hold the origin of a frame (or the point `offset`) to a point: three rows. Options as in `weld`."""
    place, options = Place(offset, anchor, q), Options(weight, baumgarte, target, name)
    return between_frames(sys, Frames, frame, to, (3, 4, 5), place, options)


def hinge(
    sys: System,
    frame: str,
    to: str | None = None,
    *,
    offset: Placement | None = None,
    anchor: Placement | None = None,
    q: ArrayLike | None = None,
    weight: Numbers = 1.0,
    baumgarte: Baumgarte | None = None,
    target: Numbers | None = None,
    name: str | None = None,
) -> Constraints:
    """Close a loop by a hinge about z of both frames (turn them with `offset`, `anchor`): five rows."""
    place, options = Place(offset, anchor, q), Options(weight, baumgarte, target, name)
    return between_frames(sys, Hinge, frame, to, (0, 1, 3, 4, 5), place, options)


def hold(
    sys: System,
    frame: str,
    directions: Sequence[str],
    to: str | None = None,
    *,
    offset: Placement | None = None,
    anchor: Placement | None = None,
    q: ArrayLike | None = None,
    weight: Numbers = 1.0,
    baumgarte: Baumgarte | None = None,
    target: Numbers | None = None,
    name: str | None = None,
) -> Constraints:
    """Hold any of the directions "turn_x", "turn_y", "turn_z", "x", "y", "z", in the axes of `to`.

    With `q` the axes are those that the frame has at q (a point in the world keeps the world's). Two turning
    directions leave one axis free to turn, as in `hinge`. A single one is not integrable: it is held at the
    level of velocities, phi = 0.
    """
    directions = (directions,) if isinstance(directions, str) else tuple(directions)
    for direction in directions:
        check_name(f"hold({frame!r})", "direction", direction, DIRECTIONS)
    if not directions or len(set(directions)) < len(directions):
        raise ArgumentError(
            f"hold({frame!r}): directions are {directions}, expected each once: {', '.join(DIRECTIONS)}."
        )
    mask = tuple(DIRECTIONS.index(d) for d in directions)
    place, options = Place(offset, anchor, q), Options(weight, baumgarte, target, name)
    return between_frames(sys, Frames, frame, to, mask, place, options)


def between_frames(
    sys: System,
    kind: type[Frames],
    frame: str,
    to: str | None,
    mask: tuple[int, ...],
    place: Place,
    options: Options,
    parameter=(),
    anchored: bool = False,
) -> Constraints:
    """A constraint of one entry between two frames; `anchored`: its place in the world is known."""
    offset, anchor, q = place
    if frame in WORLD:
        if to in WORLD:
            raise ArgumentError("a constraint between the world and itself holds nothing: name a frame.")
        raise ArgumentError("the first frame of a constraint must move: swap it with `to`.")
    a, b = frame_index(sys, frame), -1 if to in WORLD else frame_index(sys, to)
    bodies = sys.topology.frame_bodies
    body_a, body_b = bodies[a], bodies[b] if b >= 0 else -1
    if body_a == body_b:
        what = "do not move" if body_a < 0 else "belong to the same body"
        raise ArgumentError(
            f"frames {frame!r} and {to or 'world'!r} {what}: a constraint cannot act between them."
        )
    if body_a < 0:
        raise ArgumentError(f"the frame {frame!r} does not move: swap it with `to`, {to!r}.")
    if anchor is not None and q is not None:
        raise ArgumentError(f"constraint on {frame!r}: give either anchor= or q=, not both.")
    pose_a = pose_in(sys, frame, offset)
    if q is not None:
        R_a, p_a = in_world(sys, q, frame)
        R, p = R_a @ pose_a[0], R_a @ pose_a[1] + p_a
        R_b, p_b = in_world(sys, q, to)
        pose_b = (R_b.T @ R, R_b.T @ (p - p_b))
        if body_b < 0 and kind is Frames and set(mask) <= {3, 4, 5}:
            pose_b = (jnp.eye(3, dtype=sys.dtype), pose_b[1])  # a point in the world is held along its axes
        placed = True
    else:
        placed = anchor is not None or body_b >= 0 or anchored
        if not placed and options.baumgarte is not None:
            raise ArgumentError(
                f"constraint on {frame!r}: baumgarte= pulls to the anchor in the world, but none is given. "
                "Pass q=, a configuration that meets the constraint, or anchor=."
            )
        pose_b = pose_in(sys, to, anchor)
    entry = kind(options.name or frame, a, b, mask, placed)
    return one_entry(sys, entry, options, parameter=parameter, pose_a=pose_a, pose_b=pose_b)


def _of_family(entries: Iterable[Entry]) -> list[Frames]:
    """The entries, which a table has sorted by family."""
    return [e for e in entries if isinstance(e, Frames)]


def _used(masks: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Directions that some constraint holds."""
    return tuple(sorted({j for mask in masks for j in mask}))


def _join(components, like: Motion):
    """(directions nc, B): one number per direction and constraint."""
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in jax.tree.leaves(like)))
    full = [jnp.broadcast_to(jnp.asarray(x, _dtype(like)), shape) for x in components]
    return jnp.stack(full, 1).reshape((-1,) + shape[1:])


def _join_wrenches(wrenches, like: Motion) -> Force:
    pick = lambda get: _join([get(K) for K in wrenches], like)  # noqa: E731
    return Force(
        Vec3(*(pick(lambda K, i=i: K.ang[i]) for i in range(3))),
        Vec3(*(pick(lambda K, i=i: K.lin[i]) for i in range(3))),
    )


def _dtype(tree):
    return next(x.dtype for x in jax.tree.leaves(tree) if not isinstance(x, int))
