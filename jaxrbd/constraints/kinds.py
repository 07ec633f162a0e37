"""The kinds of constraints: weld, connect, hinge, hold, plane, distance, rolling, coupling, velocity rows.

Each function gives a `Constraints` of one entry; `of_model` those that a file or a builder declared.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, Entry, combine
from jaxrbd.errors import ArgumentError
from jaxrbd.joints.matrices import quaternion_from_matrix
from jaxrbd.joints.rotations import quaternion_of
from jaxrbd.model.names import check_name
from jaxrbd.model.system import System, find
from jaxrbd.tree.arguments import arguments, frame_index
from jaxrbd.tree.frames import frame_pose

DIRECTIONS = ("turn_x", "turn_y", "turn_z", "x", "y", "z")
WORLD = ("world", None)


def weld(sys: System, frame: str, to: str | None = None, **options) -> Constraints:
    """Hold a frame in all six directions to another frame, or to the world.

    Options of every constraint between frames: `offset`, where it sits in the frame, and `anchor`, where in
    `to` (or in the world): a point, or a pose (R, p). `q`: put the anchor where the constraint is met in
    this configuration. `weight`: what it counts where rows contradict each other, one number or one per
    row. `baumgarte`: a time constant T in seconds, for stiffness 1/T² and damping 2/T, or the pair
    (stiffness, damping). `target`: accelerations to follow, one per row. `name`: for `row_index`, messages.
    """
    return _between_frames(sys, "frame", frame, to, tuple(range(6)), **options)


def connect(sys: System, frame: str, to: str | None = None, **options) -> Constraints:
    """Hold the origin of a frame (or the point `offset`) to a point: three rows. Options as in `weld`."""
    return _between_frames(sys, "frame", frame, to, (3, 4, 5), **options)


def hinge(sys: System, frame: str, to: str | None = None, **options) -> Constraints:
    """Close a loop by a hinge about z of both frames (turn them with `offset`, `anchor`): five rows."""
    return _between_frames(sys, "hinge", frame, to, (0, 1, 3, 4, 5), **options)


def hold(sys: System, frame: str, directions: Sequence[str], to: str | None = None, **options) -> Constraints:
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
    return _between_frames(sys, "frame", frame, to, tuple(DIRECTIONS.index(d) for d in directions), **options)


def point_on_plane(
    sys: System, frame: str, to: str | None = None, *, normal=(0, 0, 1), point=(0, 0, 0), **options
):
    """Hold a point on the plane through `point` with `normal`, both given in `to` (or the world): one row."""
    if {"anchor", "q"} & set(options):
        raise ArgumentError(
            f"point_on_plane({frame!r}): give the plane by point= and normal=, not anchor or q."
        )
    anchor = (_frame_with_z(f"point_on_plane({frame!r})", normal), point)
    return _between_frames(sys, "frame", frame, to, (5,), anchor=anchor, **options)


def distance(sys: System, frame: str, to: str | None = None, *, length=None, **options) -> Constraints:
    """Hold two points at a distance: one row. `length` [m], or the present one at `q`."""
    q = options.pop("q", None)
    if (length is None) == (q is None):
        raise ArgumentError(f"distance({frame!r}): give either length= or q=, where it is measured.")
    if q is not None:
        poses = [_pose_in(sys, frame, options.get("offset")), _pose_in(sys, to, options.get("anchor"))]
        p, r = (
            (R_f @ x + p_f) for (_, x), (R_f, p_f) in zip(poses, (_world(sys, q, frame), _world(sys, q, to)))
        )
        length = jnp.linalg.norm(p - r)
    if not isinstance(length, jax.core.Tracer) and not float(length) > 1e-9:
        raise ArgumentError(
            f"distance({frame!r}): the length is {float(length)}, expected a positive one: at zero the "
            "direction of the force is undefined. Use connect for points that coincide."
        )
    return _between_frames(sys, "distance", frame, to, (5,), parameter=[length], anchored=True, **options)


def rolling(
    sys: System, frame: str, to: str | None = None, *, radius, normal=(0, 0, 1), point=(0, 0, 0), **options
):
    """A ball or upright wheel of `radius` about the frame's origin rolls on a plane, no slip: three rows.

    Two rows are not integrable: the velocity of the material point that touches the plane is zero. The
    third keeps the centre at its height.
    """
    if {"anchor", "q"} & set(options):
        raise ArgumentError(f"rolling({frame!r}): give the plane by point= and normal=, not anchor or q.")
    if not isinstance(radius, jax.core.Tracer) and not float(radius) > 0:
        raise ArgumentError(f"rolling({frame!r}): radius is {radius!r}, expected a positive number.")
    anchor = (_frame_with_z(f"rolling({frame!r})", normal), point)
    return _between_frames(sys, "rolling", frame, to, (3, 4, 5), anchor=anchor, parameter=[radius], **options)


def coupling(sys: System, joint: str, to: str | None, *, ratio=None, offset=None, polynomial=None, **options):
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
    leader = -1 if to is None else _scalar_dof(sys, to)
    entry = Entry("coupling", options.pop("name", joint), _scalar_dof(sys, joint), leader, (5,))
    return _constraints(sys, entry, parameter=numbers, **options)


def velocity_rows(sys: System, matrix, **options) -> Constraints:
    """Rows that hold at the level of velocities, matrix (m, nv): matrix v = 0, with constant entries."""
    A = np.asarray(matrix, float)
    if A.ndim != 2 or A.shape[1] != sys.nv or not len(A) or not A.any(axis=1).all():
        raise ArgumentError(
            f"velocity_rows: matrix has shape {A.shape}, expected (m, {sys.nv}), m > 0 and no row zero."
        )
    pattern = tuple((int(i), int(j)) for i, j in zip(*np.nonzero(A)))
    entry = Entry("velocity", options.pop("name", "velocity_rows"), -1, -1, (5,) * len(A), pattern)
    return _constraints(sys, entry, coefficients=A[A != 0], **options)


def of_model(sys: System, mimics: bool = True, **options) -> Constraints:
    """The loops and couplings that the model's file or builder declared, and its mimic joints."""
    t, found = sys.topology, []
    for k, (name, kind, (a, b)) in enumerate(zip(t.loop_names, t.loop_kinds, t.loop_frames)):
        if not t.loop_active[k]:
            continue
        if kind == "coupling":
            leader = None if a == b else sys.joint_names[b]  # MJCF couples a joint to a constant
            numbers = sys.loop_coefficients[k] if leader else sys.loop_coefficients[k, :1]
            found.append(coupling(sys, sys.joint_names[a], leader, polynomial=numbers, name=name, **options))
            continue
        sides = [(_matrix(sys.loop_quaternion[k, s]), sys.loop_position[k, s]) for s in (0, 1)]
        if a < 0 or t.frame_bodies[a] < 0:  # what does not move is on side B
            a, b, sides = b, a, sides[::-1]
        frame, to = (None if f < 0 else sys.frame_names[f] for f in (a, b))
        more = {"offset": sides[0], "anchor": sides[1], "name": name, **options}
        if kind == "distance":
            found.append(distance(sys, frame, to, length=sys.loop_coefficients[k, 0], **more))
        else:
            make = {"connect": connect, "weld": weld, "hinge": hinge}[kind]
            found.append(make(sys, frame, to, **more))
    for k, (joint, leader) in enumerate(t.mimics if mimics else ()):
        numbers = [sys.mimic_offset[k], sys.mimic_ratio[k]]
        names = sys.joint_names[joint], sys.joint_names[leader]
        found.append(coupling(sys, *names, polynomial=numbers, name=f"{names[0]} mimics", **options))
    if not found:
        raise ArgumentError(f"of_model: {sys.name!r} declares no active loop, coupling or mimic joint.")
    return combine(*found)


def _between_frames(
    sys, kind, frame, to, mask, *, offset=None, anchor=None, q=None, name=None, anchored=False, **options
):
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
    pose_a = _pose_in(sys, frame, offset)
    if q is not None:
        R_a, p_a = _world(sys, q, frame)
        R, p = R_a @ pose_a[0], R_a @ pose_a[1] + p_a
        R_b, p_b = _world(sys, q, to)
        pose_b = (R_b.T @ R, R_b.T @ (p - p_b))
        if body_b < 0 and kind == "frame" and set(mask) <= {3, 4, 5}:
            pose_b = (jnp.eye(3, dtype=sys.dtype), pose_b[1])  # a point in the world is held along its axes
        placed = True
    else:
        placed = anchor is not None or body_b >= 0 or anchored
        if not placed and options.get("baumgarte") is not None:
            raise ArgumentError(
                f"constraint on {frame!r}: baumgarte= pulls to the anchor in the world, but none is given. "
                "Pass q=, a configuration that meets the constraint, or anchor=."
            )
        pose_b = _pose_in(sys, to, anchor)
    entry = Entry(kind, name or frame, a, b, mask, placed=placed)
    return _constraints(sys, entry, pose_a=pose_a, pose_b=pose_b, **options)


_OPTIONS = ("offset", "anchor", "q", "weight", "baumgarte", "target", "name")


def _constraints(
    sys,
    entry,
    *,
    pose_a=None,
    pose_b=None,
    parameter=(),
    coefficients=(),
    weight=1.0,
    baumgarte=None,
    target=None,
    **unknown,
):
    for option in unknown:
        check_name(f"constraint {entry.name!r}", "option", option, _OPTIONS)
    dtype, where = sys.dtype, f"constraint {entry.name!r}"
    if np.shape(weight) not in ((), (entry.rows,)):
        raise ArgumentError(
            f"{where}: weight has shape {np.shape(weight)}, expected a number or one per row, "
            f"({entry.rows},)."
        )
    known = not isinstance(weight, jax.core.Tracer)
    if known and not np.all((np.asarray(weight) > 0) & (np.asarray(weight) < np.inf)):
        raise ArgumentError(f"{where}: weight is {weight!r}, expected positive numbers.")
    gains = (0.0, 0.0) if baumgarte is None else baumgarte
    if np.ndim(gains) == 0 and not isinstance(gains, (tuple, list)):
        if not isinstance(gains, jax.core.Tracer) and not float(gains) > 0:
            raise ArgumentError(
                f"{where}: baumgarte is {gains!r}, expected a positive time constant in seconds."
            )
        gains = (1 / gains**2, 2 / gains)
    if len(gains) != 2 or any(not isinstance(g, jax.core.Tracer) and not float(g) >= 0 for g in gains):
        raise ArgumentError(
            f"{where}: baumgarte is {baumgarte!r}, expected a time constant or two gains, not negative."
        )
    target = jnp.zeros(entry.rows, dtype) if target is None else jnp.asarray(target, dtype)
    if target.shape != (entry.rows,):
        raise ArgumentError(
            f"{where}: target has shape {target.shape}, expected ({entry.rows},), one number per row."
        )
    numbers = [jnp.asarray(x, dtype) for x in parameter]
    identity = (jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype))
    (R_a, p_a), (R_b, p_b) = pose_a or identity, pose_b or identity
    return Constraints(
        entries=(entry,),
        position_a=p_a[None],
        quaternion_a=_quaternion(R_a)[None],
        position_b=p_b[None],
        quaternion_b=_quaternion(R_b)[None],
        parameter=jnp.stack([*numbers, *[jnp.zeros((), dtype)] * (5 - len(numbers))])[None],
        coefficients=jnp.asarray(coefficients, dtype),
        weight=jnp.broadcast_to(jnp.asarray(weight, dtype), (entry.rows,)),
        stiffness=jnp.asarray(gains[0], dtype)[None],
        damping=jnp.asarray(gains[1], dtype)[None],
        target=target,
    )


def _pose_in(sys: System, frame, pose):
    """(R, p) from None, a point, or a pair."""
    dtype = sys.dtype
    if pose is None:
        return jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype)
    if isinstance(pose, (tuple, list)) and len(pose) == 2:
        R, p = jnp.asarray(pose[0], dtype), jnp.asarray(pose[1], dtype)
    else:
        R, p = jnp.eye(3, dtype=dtype), jnp.asarray(pose, dtype)
    if R.shape != (3, 3) or p.shape != (3,):
        raise ArgumentError(
            f"constraint at {frame or 'world'!r}: a place has shapes {R.shape} and {p.shape}, "
            "expected a point (3,) or a pose ((3, 3), (3,))."
        )
    return R, p


def _world(sys: System, q, frame):
    if frame in WORLD:
        return jnp.eye(3, dtype=sys.dtype), jnp.zeros(3, sys.dtype)
    return frame_pose(sys, arguments(sys, q=q)[0], frame)


def _scalar_dof(sys: System, joint: str) -> int:
    i = find(sys.joint_names, joint, "joint")
    if sys.joint_types[i] not in ("revolute", "continuous", "prismatic", "screw"):
        raise ArgumentError(
            f"coupling: joint {joint!r} is {sys.joint_types[i]}, expected one with a scalar coordinate."
        )
    return sys.topology.v_starts[i]


def _frame_with_z(where: str, normal) -> np.ndarray:
    """A rotation whose third column is the given direction."""
    n = np.asarray(normal, float)
    if n.shape != (3,) or not 0 < np.linalg.norm(n) < np.inf:
        raise ArgumentError(f"{where}: normal is {normal!r}, expected three numbers, not zero.")
    z = n / np.linalg.norm(n)
    x = np.cross([0.0, 1.0, 0.0] if abs(z[1]) < 0.9 else [0.0, 0.0, 1.0], z)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], 1)


def _matrix(quaternion):
    from jaxrbd.tree.spatial import rotation_from_quaternion

    return jnp.array([list(row) for row in rotation_from_quaternion(*quaternion)])


def _quaternion(R):
    """Quaternion (w, x, y, z) of a rotation, on the host where it can be."""
    if not isinstance(R, jax.core.Tracer):
        return jnp.asarray(quaternion_from_matrix(np.asarray(R, float)), R.dtype)
    return quaternion_of(R)
