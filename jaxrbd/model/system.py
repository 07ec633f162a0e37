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
from os import PathLike
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.model.dtypes import resolve_dtype
from jaxrbd.model.leaves import DOF_LEAVES, check_mass, leaf_shapes, part_of_leaf, whole_leaf
from jaxrbd.model.names import check_name, find
from jaxrbd.model.topology import Topology
from jaxrbd.typing import Array, DTypeLike, Numbers

# default of the leaf: below about this speed a joint with dry friction counts as sticking, rad/s or m/s
SLIP_SPEED = 1e-2


T = TypeVar("T")


def static(**kw: Any) -> Any:
    """A field of a `pytree` that belongs to its structure: fixed when a program is traced, hashable."""
    return field(metadata={"static": True}, **kw)


@dataclass_transform(frozen_default=True, field_specifiers=(field, static))
def pytree(cls: type[T]) -> type[T]:
    """Frozen dataclass registered with JAX; fields marked `static()` belong to the tree structure."""
    made: Any = dataclass(frozen=True, eq=False)(cls)
    static_names = [f.name for f in fields(made) if f.metadata.get("static")]
    data_names = [f.name for f in fields(made) if not f.metadata.get("static")]
    return jax.tree_util.register_dataclass(made, data_fields=data_names, meta_fields=static_names)


@pytree
class System:
    """A compiled model; build one with `load`, `Builder.build` or `build`. Every leaf, in SI units:

    per joint, in the order of `joint_names` (joint i moves body i: nb of them)
      joint_quaternion   (nb, 4)     1        turn of the joint's frame in its parent body, w, x, y, z
      joint_position     (nb, 3)     m        and its place there
      axis               (nb, 3)     1        unit axis in the joint's frame
      axis2              (nb, 3)     1        universal: second axis; planar: x direction
      pitch              (nb,)       m/rad    of a screw
    per frame, in the order of `frame_names` (links come first)
      frame_quaternion   (nf, 4)     1        turn of the frame in its moving body, or in the world
      frame_position     (nf, 3)     m        and its place there
    per link, in the order of `link_names` (links on fixed joints count; they move as one body)
      mass               (nl,)       kg
      com                (nl, 3)     m        centre of mass in the link's frame
      inertia            (nl, 6)     kg m²    about the centre of mass, in link axes: xx, xy, xz, yy, yz, zz
    per degree of freedom, in the order of v (rad for turning, m for sliding ones; `v_index` has the places)
      armature           (nv,)       kg m², kg          inertia of the motor, added to the mass matrix
      damping            (nv,)       N m s/rad, N s/m
      friction           (nv,)       N m, N             dry friction
      slip_speed         (nv,)       rad/s, m/s         where dry friction turns from sticking to slipping
      stiffness          (nv,)       N m/rad, N/m       of the joint's spring
      spring_reference   (nv,)       rad, m             where that spring rests
      lower              (nv,)       rad, m             limit of the coordinate, -inf for none
      upper              (nv,)       rad, m             inf for none
      velocity_limit     (nv,)       rad/s, m/s         for your information: nothing enforces it
      effort_limit       (nv,)       N m, N             actuators give no more
      limit_stiffness    (nv,)       N m/rad, N/m       of the springs outside the limits
      limit_damping      (nv,)       N m s/rad, N s/m   of the dampers there
    per actuator, in the order of `actuator_names`: force = gear clip(gain u + bias · (1, gear q, gear v))
      actuator_gear      (nu,)       1
      actuator_gain      (nu,)       N m or N per unit of u; kp of a position servo
      actuator_bias      (nu, 3)     N m, N; per rad, m; per rad/s, m/s: (0, -kp, -kd) of a position servo
      control_range      (nu, 2)     of u
      force_range        (nu, 2)     N m or N
    per model
      gravity            (3,)        m/s²
      q0                 (nq,)       rad, m   default pose
    per mimic joint: q = offset + ratio q of its leader
      mimic_ratio        (nm,)
      mimic_offset       (nm,)       rad, m
    per shape, placed in its link or in the world
      shape_size         (ns, 4)     m        as many numbers as its kind takes, then zeros
      shape_quaternion   (ns, 4)     1
      shape_position     (ns, 3)     m
      shape_rgba         (ns, 4)     1
      shape_friction     (ns,)       1
    per loop: its place in both frames; length, or polynomial of a coupling
      loop_quaternion    (n, 2, 4)   1
      loop_position      (n, 2, 3)   m
      loop_coefficients  (n, 5)
    per term of linear couplings: sum of coefficient times q = offset, coupling after coupling
      linear_coefficients (nt,)
    per linear coupling
      linear_offset      (ng,)
    per keyframe, in the order of `keyframe_names`
      keyframe_q         (nk, nq)
      keyframe_v         (nk, nv)
      keyframe_u         (nk, nu)

    Any leaf may have a batch axis in front: see `replace` and `in_axes`.
    """

    topology: Topology = static()
    # joints: placement of the joint frame in the parent body, unit axes, screw pitch
    joint_quaternion: Array  # (nb, 4) w, x, y, z
    joint_position: Array  # (nb, 3)
    axis: Array  # (nb, 3)
    axis2: Array  # (nb, 3) universal: second axis; planar: x direction
    pitch: Array  # (nb,)
    # frames: placement of every link and named frame in its moving body
    frame_quaternion: Array  # (nf, 4)
    frame_position: Array  # (nf, 3)
    # links: mass, centre of mass in the link frame, inertia about it in link axes
    mass: Array  # (nl,)
    com: Array  # (nl, 3)
    inertia: Array  # (nl, 6) xx, xy, xz, yy, yz, zz
    gravity: Array  # (3,)
    # per degree of freedom, (nv,)
    armature: Array
    damping: Array
    friction: Array
    slip_speed: Array  # dry friction is friction * tanh(v / slip_speed)
    stiffness: Array
    spring_reference: Array
    lower: Array
    upper: Array
    velocity_limit: Array
    effort_limit: Array
    # smooth springs that stand in for hard joint limits
    limit_stiffness: Array  # (nv,)
    limit_damping: Array  # (nv,)
    q0: Array  # (nq,) default pose
    actuator_gear: Array  # (nu,)
    actuator_gain: Array  # (nu,)
    actuator_bias: Array  # (nu, 3)
    control_range: Array  # (nu, 2)
    force_range: Array  # (nu, 2)
    mimic_ratio: Array  # (nm,)
    mimic_offset: Array  # (nm,)
    shape_size: Array  # (ns, 4)
    shape_quaternion: Array  # (ns, 4) in the shape's frame (link)
    shape_position: Array  # (ns, 3)
    shape_rgba: Array  # (ns, 4)
    shape_friction: Array  # (ns,)
    loop_quaternion: Array  # (n, 2, 4)
    loop_position: Array  # (n, 2, 3)
    loop_coefficients: Array  # (n, 5)
    linear_coefficients: Array  # (terms,)
    linear_offset: Array  # (n,)
    keyframe_q: Array  # (nk, nq)
    keyframe_v: Array  # (nk, nv)
    keyframe_u: Array  # (nk, nu)

    @property
    def nb(self) -> int:
        """Moving bodies, and joints that move them."""
        return self.topology.nb

    @property
    def nq(self) -> int:
        """Length of q."""
        return self.topology.nq

    @property
    def nv(self) -> int:
        """Degrees of freedom: the length of v, a and tau."""
        return self.topology.nv

    @property
    def nu(self) -> int:
        """Actuators: the length of u."""
        return len(self.topology.actuator_names)

    @property
    def name(self) -> str:
        return self.topology.name

    @property
    def body_names(self) -> tuple[str, ...]:
        return self.topology.body_names

    @property
    def joint_names(self) -> tuple[str, ...]:
        return self.topology.joint_names

    @property
    def joint_types(self) -> tuple[str, ...]:
        return self.topology.joint_types

    @property
    def parents(self) -> tuple[int, ...]:
        """Index of every body's parent, -1 for the world."""
        return self.topology.parents

    @property
    def frame_names(self) -> tuple[str, ...]:
        """Every link, then every further frame."""
        return self.topology.frame_names

    @property
    def link_names(self) -> tuple[str, ...]:
        return self.topology.frame_names[: self.topology.link_count]

    @property
    def actuator_names(self) -> tuple[str, ...]:
        return self.topology.actuator_names

    @property
    def keyframe_names(self) -> tuple[str, ...]:
        return self.topology.keyframe_names

    @property
    def dtype(self) -> np.dtype:
        return self.mass.dtype

    @property
    def tree(self) -> System:
        """The open tree of a System with clusters: every joint a degree of freedom, q0 and keyframes open
        too.

        It has the same leaves; `rbd.to_tree` and `rbd.from_tree` convert states. A System without clusters is
        its own tree.
        """
        t = self.topology
        if not t.clusters:
            return self
        q, v = state_opener[0](self, self.keyframe_q, self.keyframe_v)
        q0 = state_opener[0](self, self.q0[None], None)[0]
        return replace(self, topology=t.tree, q0=q0[0], keyframe_q=q, keyframe_v=v)

    def q_index(self, joint: str) -> slice:
        """Where the joint's coordinates stand in q."""
        i, t = find(self.joint_names, joint, "joint"), self.topology
        if i in t.dependent:
            raise ArgumentError(f"q_index: {t.whom_follows(joint)}")
        left_out = sum(j < i for j in t.dependent)  # one number each
        return slice(t.q_starts[i] - left_out, t.q_starts[i + 1] - left_out)

    def v_index(self, joint: str) -> slice:
        """Where the joint's velocities stand in v, a and tau."""
        i, t = find(self.joint_names, joint, "joint"), self.topology
        if not t.clusters:
            return slice(t.v_starts[i], t.v_starts[i + 1])
        own = [k for k, d in enumerate(t.independent) if t.v_starts[i] <= d < t.v_starts[i + 1]]
        if not own:
            raise ArgumentError(f"v_index: {t.whom_follows(joint)}")
        return slice(own[0], own[-1] + 1)

    @property
    def leading_joints(self) -> tuple[str, ...]:
        """Joints that have numbers in v: all of them, unless loops make some follow."""
        return self.topology.leading_joints

    @property
    def placed_joints(self) -> tuple[str, ...]:
        """Joints that have numbers in q."""
        return tuple(n for i, n in enumerate(self.joint_names) if i not in self.topology.dependent)

    def body_index(self, name: str) -> int:
        return find(self.body_names, name, "body")

    def u_index(self, actuator: str) -> int:
        """Where an actuator's control stands in u."""
        return find(self.actuator_names, actuator, "actuator")

    def keyframe(self, name: str) -> tuple[Array, Array, Array]:
        """(q, v, u) of a named keyframe."""
        i = find(self.keyframe_names, name, "keyframe")
        return self.keyframe_q[i], self.keyframe_v[i], self.keyframe_u[i]

    @cached_property
    def batch(self) -> dict[str, int]:
        """Leaves that have a batch axis in front, and how long it is; empty for one System."""
        shapes = leaf_shapes(self.topology)
        found = {key: getattr(getattr(self, key), "shape", None) for key in _LEAVES}
        return {
            key: shape[0]
            for key, shape in found.items()
            if shape is not None and len(shape) == len(shapes[key]) + 1
        }

    @property
    def in_axes(self) -> System:
        """For vmap and spread over a batched System: 0 where a leaf has a batch axis, None elsewhere.

        many = sys.replace(mass=masses)  # (batch, links)
        jax.vmap(f, in_axes=(many.in_axes, 0))(many, q)
        """
        axes: dict[str, Any] = {key: 0 if key in self.batch else None for key in _LEAVES}
        return replace(self, **axes)

    def take(self, i: int) -> System:
        """System i of a batch."""
        return replace(self, **{key: getattr(self, key)[i] for key in self.batch})

    def replace(self, **leaves: Numbers) -> System:
        """A copy with some leaves exchanged, each of its own shape or with one batch axis in front.

        With a batch axis the result is a batch of Systems that share their other leaves; pass it through
        `jax.vmap(f, in_axes=(many.in_axes, ...))` or `spread`.
        """
        changed, shapes = {}, leaf_shapes(self.topology)
        for key, value in leaves.items():
            check_name("System.replace", "leaf", key, _LEAVES)
            changed[key] = whole_leaf(key, getattr(self, key), value, shapes[key], self.link_names)
        return replace(self, **changed)

    def with_link(self, name: str, **values: Numbers) -> System:
        """Set mass, com or inertia (3x3 or six numbers, about the com) of one link by its name.

        Values with a batch axis in front give a batch of Systems, as in `replace`.
        """
        i, where = find(self.link_names, name, "link"), f"with_link({name!r})"
        changed, shapes = {}, leaf_shapes(self.topology)
        for key, value in values.items():
            check_name(where, "parameter", key, _LINK_LEAVES)
            if key == "inertia" and np.shape(value)[-2:] == (3, 3):
                value = jnp.asarray(value)[..., np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 2, 1, 2, 2])]
            if key == "mass":
                check_mass(where, value, (name,))
            changed[key] = part_of_leaf(where, key, getattr(self, key), i, value, shapes[key], False)
        return replace(self, **changed)

    def with_joint(self, name: str, **values: Numbers) -> System:
        """Set parameters of one joint by its name: axis, placement, or per-DoF ones such as damping.

        Values with a batch axis in front give a batch of Systems, as in `replace`.
        """
        i, t = find(self.joint_names, name, "joint"), self.topology
        dofs = slice(t.v_starts[i], t.v_starts[i + 1])  # of the open tree: so are the leaves
        where, changed, shapes = f"with_joint({name!r})", {}, leaf_shapes(self.topology)
        for key, value in values.items():
            check_name(where, "parameter", key, _JOINT_LEAVES + DOF_LEAVES)
            at, scalar = (dofs, True) if key in DOF_LEAVES else (i, False)
            changed[key] = part_of_leaf(where, key, getattr(self, key), at, value, shapes[key], scalar)
        return replace(self, **changed)

    def astype(self, dtype: DTypeLike) -> System:
        """The same System with every leaf in another floating dtype."""
        target = resolve_dtype(dtype)
        return jax.tree.map(lambda x: x.astype(target), self)

    def with_row_width(self, width: int | None) -> System:
        """Choose how many links the recursion handles side by side (None: jaxrbd decides)."""
        return replace(self, topology=replace(self.topology, row_width=width))

    def __repr__(self) -> str:
        t, leaves = self.topology, [getattr(self, key) for key in _LEAVES]
        kinds = sorted({str(getattr(x, "dtype", type(x).__name__)) for x in leaves})
        what = f"{'dtype' if hasattr(self.mass, 'dtype') else 'leaves'}={', '.join(kinds)}"
        text = f"System({t.name!r}, nb={t.nb}, nq={t.nq}, nv={t.nv}, nu={self.nu}, {what}"
        sizes = ", ".join(map(str, sorted(set(self.batch.values()))))
        where = "" if len(self.batch) == len(_LEAVES) else f" in {', '.join(self.batch)}"
        return f"{text}, batch={sizes}{where})" if self.batch else f"{text})"


def check_system(sys: object, caller: str = "", single: bool = True) -> System:
    """The System itself; anything else, and (if `single`) a batch, is an error that says what to do."""
    where = f"{caller}: " if caller else ""
    if not isinstance(sys, System):
        if isinstance(sys, (str, PathLike)):
            remedy = f"Load it first: sys = rbd.load({str(sys)!r:.80})."
        else:
            remedy = "Make one with rbd.load, rbd.Builder or rbd.zoo, and pass it first."
        raise ArgumentError(
            f"{where}sys is {sys!r:.80} of type {type(sys).__name__}, expected a System. {remedy}"
        )
    if single and sys.batch:
        size = ", ".join(map(str, sorted(set(sys.batch.values()))))
        raise ArgumentError(
            f"{where}this System is batched: vmap over it. Found a batch axis of {size} in "
            f"{', '.join(list(sys.batch)[:6])}{' …' if len(sys.batch) > 6 else ''}; write "
            "jax.vmap(f, in_axes=(sys.in_axes, ...))(sys, ...), or take one out with sys.take(i)."
        )
    return sys


_LEAVES = tuple(f.name for f in fields(System) if not f.metadata.get("static"))
state_opener: list[Any] = []  # (System, rows of q and v) -> those of the open tree; `tree.opening` puts it in
_JOINT_LEAVES = ("axis", "axis2", "pitch", "joint_position", "joint_quaternion")
_LINK_LEAVES = ("mass", "com", "inertia")
