"""Description -> System: fixed joints merged, bodies sorted, quantities laid out as arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ModelError, short
from jaxrbd.joints import TYPES
from jaxrbd.joints.matrices import quaternion_from_matrix
from jaxrbd.model.base import pose_coordinates, set_base
from jaxrbd.model.description import WORLD, Description, Pose
from jaxrbd.model.dtypes import resolve_dtype
from jaxrbd.model.mass_rank import idle_joints
from jaxrbd.model.rigid_tree import RigidTree, joint_motion, per_dof, second_axis, unit
from jaxrbd.model.system import SLIP_SPEED, System, Topology
from jaxrbd.model.validate import check_structure, judge
from jaxrbd.typing import DTypeLike

# joint limits as smooth springs: natural frequency and damping ratio on the inertia at the default pose
_LIMIT_FREQUENCY, _LIMIT_DAMPING = 100.0, 1.0
_MAY_BE_INFINITE = ("lower", "upper", "velocity_limit", "effort_limit", "control_range", "force_range")


def build(
    description: Description, *, base: str | None = None, dtype: DTypeLike | None = None, strict: bool = False
) -> System:
    """Compile a Description. `base`: None as described, "free" or "fixed" base, see `load`."""
    dtype = resolve_dtype(dtype)
    check_structure(description)
    tree = RigidTree(set_base(description, base))
    idle = idle_joints(tree)
    judge(tree, idle, strict)
    with np.errstate(over="ignore", invalid="ignore"):  # `_check_range` says what is too large for the dtype
        sys = _Compiler(tree, idle, dtype).system()
        _check_range(sys, tree)
    return jax.tree.map(jnp.asarray, sys)


class _Compiler:
    def __init__(self, tree: RigidTree, idle: list[tuple[str, int]], dtype):
        self.tree, self.d, self.dtype, self.idle = tree, tree.description, dtype, idle
        self.joints, self.parents = tree.joints, tree.parents
        self.link_names, self.link_body, self.link_pose = tree.link_names, tree.link_body, tree.link_pose
        floating = [TYPES[j.type].free and parent < 0 for j, parent in zip(self.joints, self.parents)]
        # q of a free joint on the ground is a pose in the world: its placement is only where it starts
        self.placements = [Pose() if free else X for free, X in zip(floating, tree.placements)]
        self.start = [
            pose_coordinates(X) if free else TYPES[j.type].neutral()
            for free, X, j in zip(floating, tree.placements, self.joints)
        ]

    def system(self) -> System:
        d, f = self.d, lambda x, shape: np.asarray(x, float).reshape(shape).astype(self.dtype)
        nb, nl = len(self.joints), len(self.link_names)
        links = self.tree.links
        frame_of = {n: i for i, n in enumerate(self.link_names)}
        extra = list(d.frames)
        names = self.link_names + [fr.name for fr in extra]
        bodies, poses = list(self.link_body), list(self.link_pose)
        for fr in extra:
            if fr.body == WORLD:
                bodies.append(-1)
                poses.append(fr.pose)
            else:
                bodies.append(self.link_body[frame_of[fr.body]])
                poses.append(self.link_pose[frame_of[fr.body]] @ fr.pose)
        joint_index = {j.name: i for i, j in enumerate(self.joints)}
        dof = lambda key: np.concatenate([np.zeros(0), *(per_dof(j, key) for j in self.joints)])  # noqa: E731
        diagonal = self._inertia_at_neutral(links)
        shapes = [(frame_of[b.name], s) for b in links for s in b.shapes] + [(-1, s) for s in d.world_shapes]
        named = {s.name: i for i, (_, s) in enumerate(shapes) if s.name}
        mimics = [
            (joint_index[j.name], joint_index[j.mimic.joint], j.mimic)
            for j in self.joints
            if j.mimic and j.mimic.joint in joint_index
        ]
        actuators = [a for a in d.actuators if a.joint in joint_index]
        v_starts = np.cumsum([0] + [TYPES[j.type].nv for j in self.joints])
        loops = d.loops
        loop_target = lambda lp, n: (  # noqa: E731
            joint_index.get(n, -1) if lp.kind == "coupling" else frame_of.get(n, -1)
        )
        topology = Topology(
            name=d.name,
            body_names=tuple(j.child for j in self.joints),
            joint_names=tuple(j.name for j in self.joints),
            joint_types=tuple(j.type for j in self.joints),
            parents=tuple(self.parents),
            frame_names=tuple(names),
            frame_bodies=tuple(bodies),
            link_count=nl,
            body_frames=tuple(self.tree.body_frames),
            shape_frames=tuple(i for i, _ in shapes),
            shape_kinds=tuple(s.kind for _, s in shapes),
            shape_names=tuple(s.name for _, s in shapes),
            shape_roles=tuple(s.role for _, s in shapes),
            shape_files=tuple((s.mesh, s.path) for _, s in shapes),
            shape_masks=tuple(s.masks for _, s in shapes),
            exclusions=tuple((frame_of.get(a, -1), frame_of.get(b, -1)) for a, b in d.exclusions),
            contact_pairs=tuple(
                (named[a], named[b]) for a, b in d.contact_pairs if a in named and b in named
            ),
            mimics=tuple((i, k) for i, k, _ in mimics),
            actuator_names=tuple(a.name for a in actuators),
            actuator_kinds=tuple(a.kind for a in actuators),
            actuator_dofs=tuple(int(v_starts[joint_index[a.joint]]) + a.dof for a in actuators),
            loop_names=tuple(lp.name for lp in loops),
            loop_kinds=tuple(lp.kind for lp in loops),
            loop_frames=tuple((loop_target(lp, lp.body_a), loop_target(lp, lp.body_b)) for lp in loops),
            loop_active=tuple(bool(lp.active) for lp in loops),
            keyframe_names=tuple(k.name for k in d.keyframes),
            massless=tuple(self.joints[i].child for _, i in self.idle),
            has_offsets=any(np.any(j.offset.p) for j in self.joints),
            source=d.source,
            followers=tuple(i for i, j in enumerate(self.joints) if not j.independent),
            linear_names=tuple(x.name for x in d.linear),
            linear_joints=tuple(tuple(joint_index[j] for j in x.joints) for x in d.linear),
        )
        nv, nu, ns, nlp = topology.nv, len(actuators), len(shapes), len(loops)
        keys_q, keys_v = self._keyframes(topology)
        keys_u = np.zeros((len(d.keyframes), nu))
        for row, key in zip(keys_u, d.keyframes):
            if key.u is not None and len(key.u) == len(d.actuators):
                row[:] = [u for u, a in zip(key.u, d.actuators) if a.joint in joint_index]
        q0 = np.concatenate([np.zeros(0), *self.start])
        if "home" in topology.keyframe_names:
            q0 = keys_q[topology.keyframe_names.index("home")]
        omega = _LIMIT_FREQUENCY
        return System(
            topology=topology,
            joint_quaternion=f([quaternion_from_matrix(X.R) for X in self.placements], (nb, 4)),
            joint_position=f([X.p for X in self.placements], (nb, 3)),
            axis=f([unit(j.axis) for j in self.joints], (nb, 3)),
            axis2=f([second_axis(j) for j in self.joints], (nb, 3)),
            pitch=f([j.pitch for j in self.joints], (nb,)),
            frame_quaternion=f([quaternion_from_matrix(X.R) for X in poses], (len(poses), 4)),
            frame_position=f([X.p for X in poses], (len(poses), 3)),
            mass=f([b.mass for b in links], (nl,)),
            com=f([b.com for b in links], (nl, 3)),
            inertia=f([np.asarray(b.inertia)[np.triu_indices(3)] for b in links], (nl, 6)),
            gravity=f(d.gravity, (3,)),
            armature=f(dof("armature"), (nv,)),
            damping=f(dof("damping"), (nv,)),
            friction=f(dof("friction"), (nv,)),
            slip_speed=f(np.full(nv, SLIP_SPEED), (nv,)),
            stiffness=f(dof("stiffness"), (nv,)),
            spring_reference=f(dof("spring_reference"), (nv,)),
            lower=f(dof("lower"), (nv,)),
            upper=f(dof("upper"), (nv,)),
            velocity_limit=f(dof("velocity_limit"), (nv,)),
            effort_limit=f(dof("effort_limit"), (nv,)),
            limit_stiffness=f(omega**2 * diagonal, (nv,)),
            limit_damping=f(2 * _LIMIT_DAMPING * omega * diagonal, (nv,)),
            q0=f(q0, (topology.nq,)),
            actuator_gear=f([a.gear for a in actuators], (nu,)),
            actuator_gain=f([a.gain for a in actuators], (nu,)),
            actuator_bias=f([a.bias for a in actuators], (nu, 3)),
            control_range=f([a.control_range for a in actuators], (nu, 2)),
            force_range=f([a.force_range for a in actuators], (nu, 2)),
            mimic_ratio=f([m.ratio for *_, m in mimics], (len(mimics),)),
            mimic_offset=f([m.offset for *_, m in mimics], (len(mimics),)),
            shape_size=f([(tuple(s.size) + (0.0,) * 4)[:4] for _, s in shapes], (ns, 4)),
            shape_quaternion=f([quaternion_from_matrix(s.pose.R) for _, s in shapes], (ns, 4)),
            shape_position=f([s.pose.p for _, s in shapes], (ns, 3)),
            shape_rgba=f([s.rgba or (0.7, 0.7, 0.7, 1.0) for _, s in shapes], (ns, 4)),
            shape_friction=f([1.0 if s.friction is None else s.friction for _, s in shapes], (ns,)),
            loop_quaternion=f(
                [[quaternion_from_matrix(X.R) for X in (lp.pose_a, lp.pose_b)] for lp in loops], (nlp, 2, 4)
            ),
            loop_position=f([[lp.pose_a.p, lp.pose_b.p] for lp in loops], (nlp, 2, 3)),
            loop_coefficients=f([(tuple(lp.coefficients) + (0.0,) * 5)[:5] for lp in loops], (nlp, 5)),
            linear_coefficients=f([c for x in d.linear for c in x.coefficients], (-1,)),
            linear_offset=f([x.offset for x in d.linear], (-1,)),
            keyframe_q=f(keys_q, (len(d.keyframes), topology.nq)),
            keyframe_v=f(keys_v, (len(d.keyframes), nv)),
            keyframe_u=f(keys_u, (len(d.keyframes), nu)),
        )

    def _keyframes(self, topology):
        """Keyframe rows, permuted from the description's joint order to tree order."""
        offsets, at_q, at_v = {}, 0, 0
        for j in self.d.joints:
            offsets[j.name] = (at_q, at_v)
            at_q, at_v = at_q + TYPES[j.type].nq, at_v + TYPES[j.type].nv
        q_slices = [(offsets[j.name][0], TYPES[j.type].nq) for j in self.joints]
        v_slices = [(offsets[j.name][1], TYPES[j.type].nv) for j in self.joints]
        rows_q, rows_v = [], []
        for key in self.d.keyframes:
            q, v = np.asarray(key.q, float), np.zeros(at_v) if key.v is None else np.asarray(key.v, float)
            rows_q.append(np.concatenate([np.zeros(0), *(q[at : at + size] for at, size in q_slices)]))
            rows_v.append(np.concatenate([np.zeros(0), *(v[at : at + size] for at, size in v_slices)]))
        n = len(rows_q)
        return np.array(rows_q).reshape(n, topology.nq), np.array(rows_v).reshape(n, topology.nv)

    def _inertia_at_neutral(self, links):
        """Diagonal of M at the neutral pose."""
        nb = len(self.joints)
        world: list[Pose] = []
        for parent, X in zip(self.parents, self.placements):
            world.append((world[parent] if parent >= 0 else Pose()) @ X)
        spatial = np.zeros((nb, 6, 6))  # about the world's origin, world axes
        for body, pose, link in zip(self.link_body, self.link_pose, links):
            if body >= 0:
                spatial[body] += _spatial_inertia(world[body] @ pose, link)
        for i in reversed(range(nb)):
            if self.parents[i] >= 0:
                spatial[self.parents[i]] += spatial[i]
        diagonal = []
        for i, j in enumerate(self.joints):
            _, S = joint_motion(j, TYPES[j.type].neutral(), world[i])
            diagonal.append(np.maximum(np.sum(S * (spatial[i] @ S), axis=0) + per_dof(j, "armature"), 1e-12))
        return np.concatenate(diagonal or [[]])


def _check_range(sys: System, tree: RigidTree) -> None:
    """Refuse finite numbers that the dtype turns into infinities, and masses that it turns into nothing."""
    remedy = "Give SI units; float64 reaches further than float32."
    for key, x in vars(sys).items():
        if key == "topology" or key in _MAY_BE_INFINITE:
            continue
        bad = ~np.isfinite(x)
        if key == "mass":
            bad |= (x == 0.0) & (np.array([link.mass for link in tree.links]) > 0.0)
        elif key == "com":  # algorithms take m |c|²
            bad |= ~np.isfinite(sys.mass[:, None] * np.sum(x * x, axis=1, keepdims=True))
        if bad.any():
            row = int(np.argwhere(bad)[0][0])
            names = _row_names(sys.topology, key)
            which = f' "{short(names[row])}"' if len(names) == len(x) else ""
            where = f"{sys.topology.source}, {key} of{which}" if which else f"{sys.topology.source}, {key}"
            raise ModelError(where, f"out of the range of {sys.dtype}", remedy)


def _row_names(t: Topology, key: str) -> tuple[str, ...]:
    """What the rows of a leaf belong to, as far as links and joints go."""
    if key in ("mass", "com", "inertia") or key.startswith("frame_"):
        return t.frame_names[: t.link_count] if key in ("mass", "com", "inertia") else t.frame_names
    if key in ("joint_position", "joint_quaternion", "axis", "axis2", "pitch"):
        return t.joint_names
    sizes = [TYPES[kind].nv for kind in t.joint_types]
    return tuple(name for name, nv in zip(t.joint_names, sizes) for _ in range(nv))


def _spatial_inertia(X: Pose, link) -> np.ndarray:
    m, c = link.mass, X.R @ link.com + X.p
    cx = np.array([[0, -c[2], c[1]], [c[2], 0, -c[0]], [-c[1], c[0], 0]])
    I = X.R @ np.asarray(link.inertia) @ X.R.T - m * cx @ cx
    return np.block([[I, m * cx], [-m * cx, m * np.eye(3)]])
