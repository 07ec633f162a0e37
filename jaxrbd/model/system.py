"""System: a compiled model. Static topology, and every physical quantity as a differentiable leaf.

A System is a frozen pytree. Its `topology` (names, joint types, who hangs on whom) is static: one
compile per topology. Everything else is an array: `jax.grad` with respect to a System gives the
gradient for each mass or placement, `jax.vmap` over Systems is domain randomisation.

Links joined by fixed joints move as one body; each link keeps its own mass, centre and inertia, and
they are merged inside jit. Body i moves with joint i (tree order: parents first).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.model.description import JOINT_SIZES

# default of the leaf: below about this speed a joint with dry friction counts as sticking, rad/s or m/s
SLIP_SPEED = 1e-2


def static(**kw):
    return field(metadata={"static": True}, **kw)


@dataclass_transform(frozen_default=True, field_specifiers=(field, static))
def pytree(cls):
    """Frozen dataclass registered with JAX; fields marked `static()` belong to the tree structure."""
    cls = dataclass(frozen=True, eq=False)(cls)
    static_names = [f.name for f in fields(cls) if f.metadata.get("static")]
    data_names = [f.name for f in fields(cls) if not f.metadata.get("static")]
    return jax.tree_util.register_dataclass(cls, data_fields=data_names, meta_fields=static_names)


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
    massless: tuple[str, ...] = ()  # moving bodies whose whole subtree has no inertia along a joint
    has_offsets: bool = False  # some body frame is not at its joint
    row_width: int | None = None  # links handled side by side by the tree recursion; None: chosen by jaxrbd
    source: str = "<python>"

    @cached_property
    def _key(self):
        return tuple(getattr(self, f.name) for f in fields(self))

    @cached_property
    def _hash(self):
        return hash(self._key)

    def __hash__(self):
        return self._hash

    def __eq__(self, other):
        return self is other or (
            isinstance(other, Topology) and self._hash == other._hash and self._key == other._key
        )

    @property
    def nb(self) -> int:
        return len(self.body_names)

    @cached_property
    def q_starts(self) -> tuple[int, ...]:
        return tuple(np.cumsum([0] + [JOINT_SIZES[t][0] for t in self.joint_types]).tolist())

    @cached_property
    def v_starts(self) -> tuple[int, ...]:
        return tuple(np.cumsum([0] + [JOINT_SIZES[t][1] for t in self.joint_types]).tolist())

    @property
    def nq(self) -> int:
        return self.q_starts[-1]

    @property
    def nv(self) -> int:
        return self.v_starts[-1]


@pytree
class System:
    """A compiled model; build one with `load`, `Builder.build` or `build`."""

    topology: Topology = static()
    # joints: placement of the joint frame in the parent body, unit axes, screw pitch
    joint_quaternion: jax.Array  # (nb, 4) w, x, y, z
    joint_position: jax.Array  # (nb, 3)
    axis: jax.Array  # (nb, 3)
    axis2: jax.Array  # (nb, 3) universal: second axis; planar: x direction
    pitch: jax.Array  # (nb,)
    # frames: placement of every link and named frame in its moving body
    frame_quaternion: jax.Array  # (nf, 4)
    frame_position: jax.Array  # (nf, 3)
    # links: mass, centre of mass in the link frame, inertia about it in link axes
    mass: jax.Array  # (nl,)
    com: jax.Array  # (nl, 3)
    inertia: jax.Array  # (nl, 6) xx, xy, xz, yy, yz, zz
    gravity: jax.Array  # (3,)
    # per degree of freedom, (nv,)
    armature: jax.Array
    damping: jax.Array
    friction: jax.Array
    slip_speed: jax.Array  # dry friction is friction * tanh(v / slip_speed)
    stiffness: jax.Array
    spring_reference: jax.Array
    lower: jax.Array
    upper: jax.Array
    velocity_limit: jax.Array
    effort_limit: jax.Array
    # smooth springs that stand in for hard joint limits
    limit_stiffness: jax.Array  # (nv,)
    limit_damping: jax.Array  # (nv,)
    q0: jax.Array  # (nq,) default pose
    actuator_gear: jax.Array  # (nu,)
    actuator_gain: jax.Array  # (nu,)
    actuator_bias: jax.Array  # (nu, 3)
    control_range: jax.Array  # (nu, 2)
    force_range: jax.Array  # (nu, 2)
    mimic_ratio: jax.Array  # (nm,)
    mimic_offset: jax.Array  # (nm,)
    shape_size: jax.Array  # (ns, 4)
    shape_quaternion: jax.Array  # (ns, 4) in the shape's frame (link)
    shape_position: jax.Array  # (ns, 3)
    shape_rgba: jax.Array  # (ns, 4)
    shape_friction: jax.Array  # (ns,)
    loop_quaternion: jax.Array  # (n, 2, 4)
    loop_position: jax.Array  # (n, 2, 3)
    loop_coefficients: jax.Array  # (n, 5)
    keyframe_q: jax.Array  # (nk, nq)
    keyframe_v: jax.Array  # (nk, nv)
    keyframe_u: jax.Array  # (nk, nu)

    nb = property(lambda self: self.topology.nb)
    nq = property(lambda self: self.topology.nq)
    nv = property(lambda self: self.topology.nv)
    nu = property(lambda self: len(self.topology.actuator_names))
    name = property(lambda self: self.topology.name)
    body_names = property(lambda self: self.topology.body_names)
    joint_names = property(lambda self: self.topology.joint_names)
    joint_types = property(lambda self: self.topology.joint_types)
    parents = property(lambda self: self.topology.parents)
    frame_names = property(lambda self: self.topology.frame_names)
    link_names = property(lambda self: self.topology.frame_names[: self.topology.link_count])
    actuator_names = property(lambda self: self.topology.actuator_names)
    keyframe_names = property(lambda self: self.topology.keyframe_names)
    dtype = property(lambda self: self.mass.dtype)

    def q_index(self, joint: str) -> slice:
        """Where the joint's coordinates stand in q."""
        i, t = find(self.joint_names, joint, "joint"), self.topology
        return slice(t.q_starts[i], t.q_starts[i + 1])

    def v_index(self, joint: str) -> slice:
        """Where the joint's velocities stand in v, a and tau."""
        i, t = find(self.joint_names, joint, "joint"), self.topology
        return slice(t.v_starts[i], t.v_starts[i + 1])

    def body_index(self, name: str) -> int:
        return find(self.body_names, name, "body")

    def keyframe(self, name: str):
        """(q, v, u) of a named keyframe."""
        i = find(self.keyframe_names, name, "keyframe")
        return self.keyframe_q[i], self.keyframe_v[i], self.keyframe_u[i]

    def replace(self, **leaves) -> System:
        """A copy with some leaves exchanged; shapes must stay."""
        for key, value in leaves.items():
            if key not in _LEAVES:
                raise ArgumentError(f"System.replace: unknown leaf {key!r}. Leaves are {', '.join(_LEAVES)}.")
            old = getattr(self, key)
            new = jnp.asarray(value, old.dtype)
            if new.shape != old.shape:
                raise ArgumentError(
                    f"System.replace: {key} has shape {new.shape}, expected {old.shape}. "
                    "Pass one value per row; to set a single one use with_link, with_joint or .at[]."
                )
            leaves[key] = new
        return replace(self, **leaves)

    def with_link(self, name: str, **values) -> System:
        """Set mass, com or inertia (3x3 or six numbers, about the com) of one link by its name."""
        i = find(self.link_names, name, "link")
        changed = {}
        for key, value in values.items():
            if key not in ("mass", "com", "inertia"):
                raise ArgumentError(
                    f"with_link({name!r}): unknown parameter {key!r}. Use mass, com or inertia."
                )
            value = jnp.asarray(value, self.dtype)
            if key == "inertia" and value.shape == (3, 3):
                value = value[jnp.array([0, 0, 0, 1, 1, 2]), jnp.array([0, 1, 2, 1, 2, 2])]
            old = getattr(self, key)
            if value.shape != old.shape[1:]:
                raise ArgumentError(
                    f"with_link({name!r}): {key} has shape {value.shape}, expected {old.shape[1:]}."
                )
            changed[key] = old.at[i].set(value)
        return replace(self, **changed)

    def with_joint(self, name: str, **values) -> System:
        """Set parameters of one joint by its name: axis, placement, or per-DoF ones such as damping."""
        i, dofs = find(self.joint_names, name, "joint"), self.v_index(name)
        changed = {}
        for key, value in values.items():
            if key in _JOINT_LEAVES:
                where = i
            elif key in _DOF_LEAVES:
                where = dofs
            else:
                options = ", ".join(_JOINT_LEAVES + _DOF_LEAVES)
                raise ArgumentError(f"with_joint({name!r}): unknown parameter {key!r}. Use one of {options}.")
            old = getattr(self, key)
            value = jnp.asarray(value, self.dtype)
            target = old[where].shape
            if value.shape not in (target, ()) or (value.shape == () and key in ("axis", "axis2")):
                raise ArgumentError(
                    f"with_joint({name!r}): {key} has shape {value.shape}, expected {target}."
                )
            changed[key] = old.at[where].set(value)
        return replace(self, **changed)

    def astype(self, dtype) -> System:
        """The same System with every leaf in another floating dtype."""
        return jax.tree.map(lambda x: x.astype(dtype), self)

    def with_row_width(self, width: int | None) -> System:
        """Choose how many links the recursion handles side by side (None: jaxrbd decides)."""
        return replace(self, topology=replace(self.topology, row_width=width))

    def __repr__(self):
        t = self.topology
        return f"System({t.name!r}, nb={t.nb}, nq={t.nq}, nv={t.nv}, nu={self.nu}, dtype={self.dtype})"


_LEAVES = tuple(f.name for f in fields(System) if not f.metadata.get("static"))
_JOINT_LEAVES = ("axis", "axis2", "pitch", "joint_position", "joint_quaternion")
_DOF_LEAVES = (
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


def find(names: tuple[str, ...], name: str, kind: str) -> int:
    """Index of a name, or an error that offers the nearest ones."""
    if name in names:
        return names.index(name)
    import difflib

    near = difflib.get_close_matches(str(name), names, 3)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Known: {', '.join(names[:12])}"
    more = "" if near or len(names) <= 12 else f" and {len(names) - 12} more."
    raise ArgumentError(f"there is no {kind} named {name!r}. {hint}{more}")
