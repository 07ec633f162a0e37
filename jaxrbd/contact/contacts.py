"""Contacts as data: places where bodies may touch, with gaps, frictions and restitutions as leaves.

Slots are static: which frames a slot is between, and its dimension; everything else may differ from state to
state and is differentiable. The normal points from B towards A and stands last in the contact's frame.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints
from jaxrbd.constraints.kinds.frames import Frames
from jaxrbd.contact.softening import CFM, Softening
from jaxrbd.errors import ArgumentError
from jaxrbd.joints.rotations import quaternion_of
from jaxrbd.model.system import System, pytree, static
from jaxrbd.tree.arguments import frame_index
from jaxrbd.tree.frames import frame_pose
from jaxrbd.typing import Array, ArrayLike

MASKS = {1: (5,), 3: (3, 4, 5), 4: (3, 4, 2, 5), 6: (3, 4, 2, 0, 1, 5)}  # directions of `constraints.hold`


@pytree
class Contacts:
    """n slots at one state; make them with `contacts`, or with a function of (sys, q) such as `on_plane`.

    position     (n, 3)      m    in the world
    axes         (n, 3, 3)   1    columns: two tangents, and the normal, which points from B to A
    gap          (n,)        m    negative where bodies overlap
    friction     (n, 3)           sliding [1], spinning [m], rolling [m]
    restitution  (n,)        1
    frames                        (A, B) of every slot, indices of frames; -1 is the world (static)
    dims                          1, 3, 4 or 6 of every slot (static)
    softening                     how they give way, instead of the integrator's `soft.contacts`
    """

    position: jax.Array
    axes: jax.Array
    gap: jax.Array
    friction: jax.Array
    restitution: jax.Array
    frames: tuple[tuple[int, int], ...] = static()
    dims: tuple[int, ...] = static()
    softening: Softening | CFM | None = None

    def __len__(self) -> int:
        return len(self.dims)


def contacts(
    sys: System,
    frames: Sequence[tuple[str, str | None]],
    position: ArrayLike,
    normal: ArrayLike,
    gap: ArrayLike,
    friction: ArrayLike = 0.5,
    restitution: ArrayLike = 0.0,
    dims: Sequence[int] | int = 3,
    softening: Softening | CFM | None = None,
) -> Contacts:
    """Contacts between pairs of frames (A, B), None for the world, at positions with normals from B to A."""
    n = len(frames)
    dims = (dims,) * n if isinstance(dims, int) else tuple(dims)
    if len(dims) != n or any(d not in MASKS for d in dims):
        raise ArgumentError(f"contacts: dims are {dims}, expected 1, 3, 4 or 6 for each of {n} contacts.")
    pairs = []
    for a, b in frames:
        i, j = frame_index(sys, a), -1 if b is None else frame_index(sys, b)
        bodies = sys.topology.frame_bodies
        if bodies[i] == (bodies[j] if j >= 0 else -1):
            raise ArgumentError(f"contacts: {a!r} and {b or 'the world'!r} do not move in each other.")
        if bodies[i] < 0:
            raise ArgumentError(
                f"contacts: {a!r} does not move. Name the moving frame first: ({b!r}, {a!r})."
            )
        pairs.append((i, j))
    friction = frictions(sys, friction, dims, "contacts")
    x, along, d, mu, e = numbers(sys, n, position, normal, gap, friction, restitution, "contacts")
    return Contacts(x, jax.vmap(axes_of)(along), d, mu, e, tuple(pairs), dims, softening)


def numbers(sys: System, n: int, position, normal, gap, friction, restitution, caller: str) -> list[Array]:
    """Position, normal, gap, friction and restitution of n contacts, checked."""
    shapes = {
        "position": (position, (n, 3)),
        "normal": (normal, (n, 3)),
        "gap": (gap, (n,)),
        "friction": (friction, (n, 3)),
        "restitution": (restitution, (n,)),
    }
    return [_read(sys, caller, name, x, shape) for name, (x, shape) in shapes.items()]


def frictions(sys: System, friction, dims: tuple[int, ...], caller: str) -> Array:
    """(n, 3) from a number, a number per contact, or three per contact."""
    friction = jnp.asarray(friction, sys.dtype)
    if friction.ndim >= 2:
        return friction
    if any(d > 3 for d in dims):
        raise ArgumentError(f"{caller}: dimensions 4 and 6 need friction (n, 3): sliding, spinning, rolling.")
    return jnp.broadcast_to(friction, (len(dims),))[:, None] * jnp.array([1.0, 0, 0], sys.dtype)


def _read(sys: System, caller: str, name: str, x, shape) -> Array:
    try:
        x = jnp.broadcast_to(jnp.asarray(x, sys.dtype), shape)
    except ValueError:
        raise ArgumentError(f"{caller}: {name} has shape {np.shape(x)}, expected {shape}.") from None
    if isinstance(x, jax.core.Tracer):
        return x
    low, high = {"friction": (0, np.inf), "restitution": (0, 1)}.get(name, (-np.inf, np.inf))
    value = np.asarray(x)
    if not ((value >= low) & (value <= high)).all():
        raise ArgumentError(f"{caller}: {name} is {value}, expected numbers in [{low}, {high}].")
    return x


def axes_of(normal: Array) -> Array:
    """A rotation whose last column is along the normal, continuous but at -z; (3, 3)."""
    square = jnp.sum(normal * normal)
    x, y, z = normal / jnp.sqrt(jnp.where(square > 0, square, 1))
    up = z >= 0
    s = jnp.where(up, 1.0, -1.0)
    a = -1 / (s + z)
    b = x * y * a
    t = jnp.stack([1 + s * x * x * a, s * b, -s * x])
    o = jnp.stack([b, s + y * y * a, -y])
    return jnp.stack([t, o, jnp.stack([x, y, z])], 1)


@pytree
class OnPlane:
    """`on_plane`'s contacts as a function of (sys, q); every number is a leaf."""

    offset: jax.Array  # (n, 3) in the frames
    radius: jax.Array  # (n,)
    normal: jax.Array  # (3,)
    height: jax.Array  # () along the normal
    friction: jax.Array  # (n, 3)
    restitution: jax.Array  # (n,)
    names: tuple[str, ...] = static()
    dims: tuple[int, ...] = static()
    softening: Softening | CFM | None = None

    def __call__(self, sys: System, q: ArrayLike) -> Contacts:
        n = self.normal / jnp.sqrt(jnp.sum(self.normal**2))
        poses = [frame_pose(sys, q, name) for name in self.names]
        points = jnp.stack([R @ x + p for (R, p), x in zip(poses, self.offset)])
        gap = points @ n - self.height - self.radius
        return contacts(
            sys,
            [(name, None) for name in self.names],
            points - (self.radius + gap)[:, None] * n,
            jnp.broadcast_to(n, points.shape),
            gap,
            self.friction,
            self.restitution,
            self.dims,
            self.softening,
        )


def on_plane(
    sys: System,
    frames: Sequence[str],
    offset: ArrayLike = (0.0, 0.0, 0.0),
    radius: ArrayLike = 0.0,
    *,
    normal: ArrayLike = (0.0, 0.0, 1.0),
    height: ArrayLike = 0.0,
    friction: ArrayLike = 0.5,
    restitution: ArrayLike = 0.0,
    dims: Sequence[int] | int = 3,
    softening: Softening | CFM | None = None,
) -> OnPlane:
    """Points or spheres fixed to frames, against the plane normal · x = height: contacts for `step`.

    `offset` (n, 3) in the frames, `radius` (n,) of the spheres around them. A frame may be named repeatedly.
    """
    n = len(frames)
    for name in frames:
        frame_index(sys, name)
    dims = (dims,) * n if isinstance(dims, int) else tuple(dims)
    friction = frictions(sys, friction, dims, "contacts")
    wide = lambda x, shape: jnp.broadcast_to(jnp.asarray(x, sys.dtype), shape)  # noqa: E731
    made = OnPlane(
        wide(offset, (n, 3)),
        wide(radius, (n,)),
        wide(normal, (3,)),
        wide(height, ()),
        wide(friction, (n, 3)),
        wide(restitution, (n,)),
        tuple(frames),
        dims,
        softening,
    )
    made(sys, sys.q0)  # what is wrong is said here, not in the first step
    return made


# --- as rows of constraints -----------------------------------------------------------------------------


def contact_rows(sys: System, q: Array, found: Contacts) -> Constraints:
    """The slots as rows of `constraints`: velocity of A in B along the contact's axes, normal last."""
    n, dtype = len(found), sys.dtype
    names, names_of = sys.frame_names, found.frames
    used = sorted({f for pair in names_of for f in pair if f >= 0})
    poses = {f: frame_pose(sys, q, names[f]) for f in used} | {
        -1: (jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype))
    }

    def sides(k: int):
        R, p = (jnp.stack([poses[pair[k]][i] for pair in names_of]) for i in (0, 1))
        turn = jnp.einsum("nji,njk->nik", R, found.axes)
        place = jnp.einsum("nji,nj->ni", R, found.position - p)
        return place, jax.vmap(quaternion_of)(turn)

    (place_a, turn_a), (place_b, turn_b) = sides(0), sides(1)
    entries = tuple(
        Frames(f"contact {k}", a, b, MASKS[d], False)
        for k, ((a, b), d) in enumerate(zip(names_of, found.dims))
    )
    m = sum(found.dims)
    zeros = jnp.zeros(n, dtype)
    return Constraints(
        entries=entries,
        position_a=place_a,
        quaternion_a=turn_a,
        position_b=place_b,
        quaternion_b=turn_b,
        parameter=jnp.zeros((n, 5), dtype),
        coefficients=jnp.zeros(0, dtype),
        weight=jnp.ones(m, dtype),
        stiffness=zeros,
        damping=zeros,
        target=jnp.zeros(m, dtype),
        params=(None,) * n,
    )
