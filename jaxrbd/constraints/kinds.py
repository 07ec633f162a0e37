"""The kinds of constraints: weld, connect, hinge, hold, plane, distance, rolling, coupling, velocity rows.

Each function gives a `Constraints` of one entry; `of_model` those that a file or a builder declared.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, Entry, combine
from jaxrbd.constraints.placing import (
    Options,
    Place,
    between_frames,
    frame_with_z,
    in_world,
    matrix,
    one_entry,
    pose_in,
    scalar_dof,
)
from jaxrbd.errors import ArgumentError
from jaxrbd.model.names import check_name
from jaxrbd.model.system import System

DIRECTIONS = ("turn_x", "turn_y", "turn_z", "x", "y", "z")


def weld(
    sys: System,
    frame: str,
    to: str | None = None,
    *,
    offset=None,
    anchor=None,
    q=None,
    weight=1.0,
    baumgarte=None,
    target=None,
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
    return between_frames(sys, "frame", frame, to, tuple(range(6)), place, options)


def connect(
    sys: System,
    frame: str,
    to: str | None = None,
    *,
    offset=None,
    anchor=None,
    q=None,
    weight=1.0,
    baumgarte=None,
    target=None,
    name: str | None = None,
) -> Constraints:
    """Hold the origin of a frame (or the point `offset`) to a point: three rows. Options as in `weld`."""
    place, options = Place(offset, anchor, q), Options(weight, baumgarte, target, name)
    return between_frames(sys, "frame", frame, to, (3, 4, 5), place, options)


def hinge(
    sys: System,
    frame: str,
    to: str | None = None,
    *,
    offset=None,
    anchor=None,
    q=None,
    weight=1.0,
    baumgarte=None,
    target=None,
    name: str | None = None,
) -> Constraints:
    """Close a loop by a hinge about z of both frames (turn them with `offset`, `anchor`): five rows."""
    place, options = Place(offset, anchor, q), Options(weight, baumgarte, target, name)
    return between_frames(sys, "hinge", frame, to, (0, 1, 3, 4, 5), place, options)


def hold(
    sys: System,
    frame: str,
    directions: Sequence[str],
    to: str | None = None,
    *,
    offset=None,
    anchor=None,
    q=None,
    weight=1.0,
    baumgarte=None,
    target=None,
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
    return between_frames(sys, "frame", frame, to, mask, place, options)


def point_on_plane(
    sys: System,
    frame: str,
    to: str | None = None,
    *,
    normal=(0, 0, 1),
    point=(0, 0, 0),
    offset=None,
    weight=1.0,
    baumgarte=None,
    target=None,
    name: str | None = None,
) -> Constraints:
    """Hold a point on the plane through `point` with `normal`, both given in `to` (or the world): one row."""
    anchor = (frame_with_z(f"point_on_plane({frame!r})", normal), point)
    options = Options(weight, baumgarte, target, name)
    return between_frames(sys, "frame", frame, to, (5,), Place(offset, anchor), options)


def distance(
    sys: System,
    frame: str,
    to: str | None = None,
    *,
    length=None,
    offset=None,
    anchor=None,
    q=None,
    weight=1.0,
    baumgarte=None,
    target=None,
    name: str | None = None,
) -> Constraints:
    """Hold two points at a distance: one row. `length` [m], or the present one at `q`."""
    if (length is None) == (q is None):
        raise ArgumentError(f"distance({frame!r}): give either length= or q=, where it is measured.")
    if q is not None:
        poses = [pose_in(sys, frame, offset), pose_in(sys, to, anchor)]
        p, r = (
            (R_f @ x + p_f)
            for (_, x), (R_f, p_f) in zip(poses, (in_world(sys, q, frame), in_world(sys, q, to)))
        )
        length = jnp.linalg.norm(p - r)
    if not isinstance(length, jax.core.Tracer) and not float(length) > 1e-9:
        raise ArgumentError(
            f"distance({frame!r}): the length is {float(length)}, expected a positive one: at zero the "
            "direction of the force is undefined. Use connect for points that coincide."
        )
    options = Options(weight, baumgarte, target, name)
    return between_frames(
        sys, "distance", frame, to, (5,), Place(offset, anchor), options, [length], anchored=True
    )


def rolling(
    sys: System,
    frame: str,
    to: str | None = None,
    *,
    radius,
    normal=(0, 0, 1),
    point=(0, 0, 0),
    offset=None,
    weight=1.0,
    baumgarte=None,
    target=None,
    name: str | None = None,
) -> Constraints:
    """A ball or upright wheel of `radius` about the frame's origin rolls on a plane, no slip: three rows.

    Two rows are not integrable: the velocity of the material point that touches the plane is zero. The
    third keeps the centre at its height.
    """
    if not isinstance(radius, jax.core.Tracer) and not float(radius) > 0:
        raise ArgumentError(f"rolling({frame!r}): radius is {radius!r}, expected a positive number.")
    anchor = (frame_with_z(f"rolling({frame!r})", normal), point)
    options = Options(weight, baumgarte, target, name)
    return between_frames(sys, "rolling", frame, to, (3, 4, 5), Place(offset, anchor), options, [radius])


def coupling(
    sys: System,
    joint: str,
    to: str | None,
    *,
    ratio=None,
    offset=None,
    polynomial=None,
    weight=1.0,
    baumgarte=None,
    target=None,
    name: str | None = None,
) -> Constraints:
    """q_joint = offset + ratio q_to, or a polynomial (c0, ..., c4) of q_to: one row (gears, mimic joints).

    With `to` None the joint is held at `offset`.
    """
    if (ratio is None) == (polynomial is None) and to is not None:
        raise ArgumentError(f"coupling({joint!r}): give either ratio= or polynomial=.")
    if polynomial is not None and offset is not None:
        raise ArgumentError(f"coupling({joint!r}): the polynomial has an offset already. Leave offset= out.")
    if to is None and ratio is not None:
        raise ArgumentError(f"coupling({joint!r}): a ratio needs a joint: name it in `to`, or leave it out.")
    offset = 0.0 if offset is None else offset
    if joint == to:
        raise ArgumentError(f"coupling({joint!r}): a joint cannot be coupled to itself. Name two joints.")
    numbers = list(polynomial) if polynomial is not None else [offset] if to is None else [offset, ratio]
    if not 1 <= len(numbers) <= 5:
        raise ArgumentError(
            f"coupling({joint!r}): the polynomial has {len(numbers)} numbers, expected 1 to 5."
        )
    leader = -1 if to is None else scalar_dof(sys, to)
    entry = Entry("coupling", name or joint, scalar_dof(sys, joint), leader, (5,))
    return one_entry(sys, entry, Options(weight, baumgarte, target, name), parameter=numbers)


def velocity_rows(
    sys: System, matrix, *, weight=1.0, baumgarte=None, target=None, name: str | None = None
) -> Constraints:
    """Rows that hold at the level of velocities, matrix (m, nv): matrix v = 0, with constant entries."""
    A = np.asarray(matrix, float)
    if A.ndim != 2 or A.shape[1] != sys.nv or not len(A) or not A.any(axis=1).all():
        raise ArgumentError(
            f"velocity_rows: matrix has shape {A.shape}, expected (m, {sys.nv}), m > 0 and no row zero."
        )
    pattern = tuple((int(i), int(j)) for i, j in zip(*np.nonzero(A)))
    entry = Entry("velocity", name or "velocity_rows", -1, -1, (5,) * len(A), pattern)
    return one_entry(sys, entry, Options(weight, baumgarte, target, name), coefficients=A[A != 0])


def of_model(sys: System, mimics: bool = True, *, weight=1.0, baumgarte=None) -> Constraints:
    """The loops and couplings that the model's file or builder declared, and its mimic joints.

    `weight` and `baumgarte` of all of them as in `weld`.
    """
    shared = {"weight": weight, "baumgarte": baumgarte}
    t, found = sys.topology, []
    for k, (name, kind, (a, b)) in enumerate(zip(t.loop_names, t.loop_kinds, t.loop_frames)):
        if not t.loop_active[k]:
            continue
        if kind == "coupling":
            leader = None if a == b else sys.joint_names[b]  # MJCF couples a joint to a constant
            numbers = sys.loop_coefficients[k] if leader else sys.loop_coefficients[k, :1]
            found.append(coupling(sys, sys.joint_names[a], leader, polynomial=numbers, name=name, **shared))
            continue
        sides = [(matrix(sys.loop_quaternion[k, s]), sys.loop_position[k, s]) for s in (0, 1)]
        if a < 0 or t.frame_bodies[a] < 0:  # what does not move is on side B
            a, b, sides = b, a, sides[::-1]
        frame, to = (None if f < 0 else sys.frame_names[f] for f in (a, b))
        more = {"offset": sides[0], "anchor": sides[1], "name": name, **shared}
        if kind == "distance":
            found.append(distance(sys, frame, to, length=sys.loop_coefficients[k, 0], **more))
        else:
            make = {"connect": connect, "weld": weld, "hinge": hinge}[kind]
            found.append(make(sys, frame, to, **more))
    for k, (joint, leader) in enumerate(t.mimics if mimics else ()):
        numbers = [sys.mimic_offset[k], sys.mimic_ratio[k]]
        names = sys.joint_names[joint], sys.joint_names[leader]
        found.append(coupling(sys, *names, polynomial=numbers, name=f"{names[0]} mimics", **shared))
    if not found:
        raise ArgumentError(f"of_model: {sys.name!r} declares no active loop, coupling or mimic joint.")
    return combine(*found)
