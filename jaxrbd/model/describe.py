"""System -> Description: the inverse of `build`, with the values that the leaves have now.

A System does not keep by which fixed joints its links were merged. They come back as bodies on joints
"<link>_fixed", placed directly on the moving body that carries them; what stands in the world hangs on
the first link fixed there, by a joint "root". build(describe(sys)) has the same links, joints and
coordinates in the same order, and the same dynamics.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

from jaxrbd.errors import ArgumentError, warn
from jaxrbd.joints import TYPES
from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.model.checks import SHAPE_SIZES
from jaxrbd.model.description import (
    WORLD,
    Actuator,
    Body,
    Description,
    Frame,
    Joint,
    Keyframe,
    Linear,
    Loop,
    Mimic,
    Pose,
    Shape,
)
from jaxrbd.model.leaves import leaf_shapes
from jaxrbd.model.system import System, check_system
from jaxrbd.model.urdf_write import write_urdf

_PER_DOF = (
    "lower",
    "upper",
    "velocity_limit",
    "effort_limit",
    "damping",
    "friction",
    "armature",
    "stiffness",
    "spring_reference",
)
_GREY, _FRICTION = (0.7, 0.7, 0.7, 1.0), 1.0  # what `build` puts where a shape says nothing


def describe(sys: System) -> Description:
    """The model as plain data, with the current value of every leaf; `build` turns it back.

    A default pose q0 other than the neutral one becomes the keyframe "home", from which `build` takes it.
    Loops of a System with clusters are described as relations of its open tree. The slip speed of dry
    friction and the stiffness and damping of the springs at joint limits have no place in a Description:
    `build` chooses them anew.
    """
    return _Describer(sys).description()


def to_urdf(sys: System) -> str:
    """The URDF text of a System; what URDF lacks is split, refused or named in a warning (`write_urdf`)."""
    return write_urdf(describe(sys))


def host_leaves(sys: System, caller: str) -> dict[str, np.ndarray]:
    """Every leaf as a NumPy array; refuses Systems that are traced or batched."""
    check_system(sys, caller)
    leaves = {key: getattr(sys, key) for key in leaf_shapes(sys.topology)}
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(leaves)):
        raise ArgumentError(
            f"{caller}: the System is traced (inside jit, vmap or grad), but its values are needed. "
            "Call it outside and pass the result in."
        )
    arrays = {key: np.asarray(x) for key, x in leaves.items()}
    for key, shape in leaf_shapes(sys.topology).items():
        if arrays[key].shape != shape:
            raise ArgumentError(
                f"{caller}: leaf {key} has shape {arrays[key].shape}, expected {shape}. "
                "Change leaves with sys.replace, which checks them."
            )
    return arrays


class _Describer:
    def __init__(self, sys: System):
        if check_system(sys, "describe").topology.functions:
            names = ", ".join(repr(f.name) for f in sys.topology.functions)
            raise ArgumentError(
                f"describe: {sys.name!r} has relations written as functions ({names}), which are no data. "
                "Edit or write the model first and add them with loop_function afterwards."
            )
        sys = sys.tree
        leaves = host_leaves(sys, "describe")
        self.t, self.dtype = sys.topology, leaves["mass"].dtype
        self.x = {key: value.astype(float) for key, value in leaves.items()}
        self.X_frame = [
            _pose(q, p) for q, p in zip(self.x["frame_quaternion"], self.x["frame_position"])
        ]  # in the moving body
        self.moving = {frame: body for body, frame in enumerate(self.t.body_frames)}
        self.grounds = self.ground_links()

    def description(self) -> Description:
        t, x = self.t, self.x
        shapes = [(frame, self.shape(i)) for i, frame in enumerate(t.shape_frames)]
        bodies = [
            Body(
                t.frame_names[i],
                float(x["mass"][i]),
                x["com"][i],
                x["inertia"][i][np.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])],
                tuple(shape for frame, shape in shapes if frame == i),
            )
            for i in range(t.link_count)
        ]
        return Description(
            name=t.name,
            bodies=tuple(bodies),
            joints=self.joints(),
            loops=self.loops(),
            linear=self.linear(),
            actuators=tuple(self.actuator(i) for i in range(len(t.actuator_names))),
            frames=tuple(self.frame(i) for i in range(t.link_count, len(t.frame_names))),
            keyframes=self.keyframes(),
            world_shapes=tuple(shape for frame, shape in shapes if frame < 0),
            exclusions=tuple((self.link(a), self.link(b)) for a, b in t.exclusions),
            contact_pairs=tuple((t.shape_names[a], t.shape_names[b]) for a, b in t.contact_pairs),
            gravity=x["gravity"],
            source=t.source,
        )

    def ground_links(self) -> list[int]:
        """For each link, the one fixed to the world that it would hang on; itself or -1: on the world.

        A free root starts anew: what follows must not move before it in the order of links. The last
        entry is for named frames.
        """
        grounds, ground = [], -1
        for i in range(self.t.link_count):
            if i in self.moving:
                if self.free_root(self.moving[i]):
                    ground = -1
            elif self.t.frame_bodies[i] < 0 and ground < 0:
                ground = i
            grounds.append(ground)
        return [*grounds, next((g for g in grounds if g >= 0), -1)]

    def free_root(self, body: int) -> bool:
        return TYPES[self.t.joint_types[body]].free and self.t.parents[body] < 0

    def joints(self) -> tuple[Joint, ...]:
        """One joint per link, in link order: moving ones as they are, fixed ones for merged links."""
        taken, joints = set(self.t.joint_names), []
        for i, link in enumerate(self.t.frame_names[: self.t.link_count]):
            if i in self.moving:
                joints.append(self.joint(self.moving[i]))
                continue
            name = "root" if i == self.grounds[i] and "root" not in taken else f"{link}_fixed"
            while name in taken:
                name += "_"
            taken.add(name)
            parent, X_parent = self.carrier(self.t.frame_bodies[i], i)
            joints.append(Joint(name, "fixed", parent, link, X_parent.inverse() @ self.X_frame[i]))
        return tuple(joints)

    def carrier(self, body: int, link: int) -> tuple[str, Pose]:
        """What carries a link that is joined to a moving body or the world: its name and pose there."""
        if body >= 0:
            return self.t.body_names[body], self.X_frame[self.t.body_frames[body]]
        ground = self.grounds[link]
        if ground in (-1, link):
            return WORLD, Pose()
        return self.t.frame_names[ground], self.X_frame[ground]

    def joint(self, i: int) -> Joint:
        t, x = self.t, self.x
        placement, link = _pose(x["joint_quaternion"][i], x["joint_position"][i]), t.body_frames[i]
        if self.free_root(i):
            parent = WORLD
        else:
            parent, X_parent = self.carrier(t.parents[i], link)
            placement = X_parent.inverse() @ placement
        dofs = slice(t.v_starts[i], t.v_starts[i + 1])
        leaders = [
            Mimic(t.joint_names[k], float(ratio), float(offset))
            for (j, k), ratio, offset in zip(t.mimics, x["mimic_ratio"], x["mimic_offset"])
            if j == i
        ]
        return Joint(
            t.joint_names[i],
            t.joint_types[i],
            parent,
            t.body_names[i],
            placement,
            self.X_frame[link],
            x["axis"][i],
            x["axis2"][i],
            float(x["pitch"][i]),
            mimic=leaders[0] if leaders else None,
            independent=i not in t.followers,
            **{key: x[key][dofs] for key in _PER_DOF},
        )

    def link(self, i: int) -> str:
        return self.t.frame_names[i] if i >= 0 else WORLD

    def frame(self, i: int) -> Frame:
        body, X_body = self.carrier(self.t.frame_bodies[i], self.t.link_count)
        return Frame(self.t.frame_names[i], body, X_body.inverse() @ self.X_frame[i])

    def shape(self, i: int) -> Shape:
        t, x = self.t, self.x
        count, size = SHAPE_SIZES[t.shape_kinds[i]], x["shape_size"][i]
        if count is None:  # a plane: as many as were given
            count = int(np.max(np.flatnonzero(size), initial=-1)) + 1
        rgba = tuple(x["shape_rgba"][i].tolist())
        grey = np.array_equal(rgba, np.asarray(_GREY, self.dtype))
        mesh, path = t.shape_files[i]
        return Shape(
            t.shape_kinds[i],
            tuple(size[:count].tolist()),
            _pose(x["shape_quaternion"][i], x["shape_position"][i]),
            t.shape_roles[i],
            t.shape_names[i],
            mesh,
            path,
            None if grey else rgba,
            None if x["shape_friction"][i] == _FRICTION else float(x["shape_friction"][i]),
            t.shape_masks[i] if t.shape_masks else (1, 1),
        )

    def actuator(self, i: int) -> Actuator:
        t, x = self.t, self.x
        joint = int(np.searchsorted(t.v_starts, t.actuator_dofs[i], side="right")) - 1
        return Actuator(
            t.actuator_names[i],
            t.joint_names[joint],
            t.actuator_dofs[i] - t.v_starts[joint],
            t.actuator_kinds[i],
            float(x["actuator_gear"][i]),
            float(x["actuator_gain"][i]),
            tuple(x["actuator_bias"][i].tolist()),
            tuple(x["control_range"][i].tolist()),
            tuple(x["force_range"][i].tolist()),
        )

    def loops(self) -> tuple[Loop, ...]:
        t, x, loops = self.t, self.x, []
        for i, (name, kind, (a, b)) in enumerate(zip(t.loop_names, t.loop_kinds, t.loop_frames)):
            if kind == "coupling":
                if a < 0:
                    text = f'{t.source}: the coupling "{name}" drives a joint that does not move; dropped.'
                    warn(text)
                    continue
                first, second = t.joint_names[a], t.joint_names[b] if b >= 0 else ""
            else:
                first, second = (t.frame_names[k] if k >= 0 else WORLD for k in (a, b))
            pose_a, pose_b = (_pose(x["loop_quaternion"][i, k], x["loop_position"][i, k]) for k in (0, 1))
            numbers = tuple(x["loop_coefficients"][i].tolist())
            loops.append(Loop(name, kind, first, second, pose_a, pose_b, numbers, t.loop_active[i]))
        return tuple(loops)

    def linear(self) -> tuple[Linear, ...]:
        t, found, at = self.t, [], 0
        for name, joints, offset in zip(t.linear_names, t.linear_joints, self.x["linear_offset"]):
            numbers = self.x["linear_coefficients"][at : at + len(joints)]
            at += len(joints)
            names = tuple(t.joint_names[j] for j in joints)
            found.append(Linear(name, names, tuple(numbers.tolist()), float(offset)))
        return tuple(found)

    def keyframes(self) -> tuple[Keyframe, ...]:
        t, x = self.t, self.x
        rows = [
            Keyframe(name, x["keyframe_q"][i], x["keyframe_v"][i], x["keyframe_u"][i])
            for i, name in enumerate(t.keyframe_names)
        ]
        neutral = np.concatenate([np.zeros(0), *(TYPES[kind].neutral() for kind in t.joint_types)])
        if "home" in t.keyframe_names:
            home = t.keyframe_names.index("home")
            rows[home] = replace(rows[home], q=x["q0"])
        elif not np.array_equal(x["q0"], neutral):
            rows.append(Keyframe("home", x["q0"]))
        return tuple(rows)


def _pose(quaternion: np.ndarray, position: np.ndarray) -> Pose:
    return Pose(matrix_from_quaternion(quaternion), position)
