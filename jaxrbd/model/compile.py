"""Description -> System: fixed joints merged, bodies sorted, quantities laid out as arrays."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError, ModelError
from jaxrbd.model.description import JOINT_SIZES, WORLD, Description, Joint, Pose
from jaxrbd.model.rotations import matrix_from_quaternion, quaternion_from_matrix
from jaxrbd.model.system import SLIP_SPEED, System, Topology
from jaxrbd.model.validate import validate

# joint limits as smooth springs: natural frequency and damping ratio on the inertia at the default pose
_LIMIT_FREQUENCY, _LIMIT_DAMPING = 100.0, 1.0
_MAX_NODES = 20_000


def build(description: Description, *, base: str | None = None, dtype=None, strict: bool = False) -> System:
    """Compile a Description. `base`: None as described, "free" or "fixed" for every tree's root joint."""
    dtype = resolve_dtype(dtype)
    description = set_base(description, base)
    validate(description, strict=strict)
    return _Compiler(description, dtype).system()


def resolve_dtype(dtype):
    """None gives float64 where JAX has it enabled, else float32."""
    x64 = jax.config.jax_enable_x64
    if dtype is None:
        return jnp.float64 if x64 else jnp.float32
    dtype = jnp.dtype(dtype)
    if dtype not in (jnp.float32, jnp.float64):
        raise ArgumentError(f"dtype is {dtype}, expected float32 or float64.")
    if dtype == jnp.float64 and not x64:
        raise ArgumentError(
            "dtype is float64, but JAX has it switched off. "
            'Call jax.config.update("jax_enable_x64", True) first.'
        )
    return dtype


def set_base(description: Description, base: str | None) -> Description:
    """Exchange the root joints: "free" turns fixed roots into free ones, "fixed" the reverse."""
    if base is None:
        return description
    if base not in ("free", "fixed"):
        raise ArgumentError(f'base is {base!r}, expected None, "free" or "fixed".')
    old, new = ("fixed", "free") if base == "free" else ("free", "fixed")
    joints, masses = [], _tree_has_mass(description)
    home = next((k.q for k in description.keyframes if k.name == "home"), None)
    at = 0
    for j in description.joints:
        size = JOINT_SIZES.get(j.type, (0, 0))[0]
        if j.parent == WORLD and j.type == old and (new == "fixed" or masses(j.child)):
            placement = j.placement
            if new == "fixed" and home is not None:  # stay where the default pose has it
                q = np.asarray(home, float)[at : at + size]
                placement = placement @ Pose(matrix_from_quaternion(q[3:]), q[:3])
            j = replace(j, type=new, placement=placement, lower=-np.inf, upper=np.inf)
        joints.append(j)
        at += size
    # keyframes hold q of the old joints; the base pose is not theirs to know
    return description.replace(joints=tuple(joints), keyframes=_rebase_keyframes(description, joints))


def _tree_has_mass(description):
    mass = {b.name: b.mass for b in description.bodies}
    children: dict[str, list[str]] = {}
    for j in description.joints:
        children.setdefault(j.parent, []).append(j.child)

    def has_mass(name) -> bool:
        todo, seen = [name], set()
        while todo:
            n = todo.pop()
            if n in seen:
                continue
            seen.add(n)
            if mass.get(n, 0) > 0:
                return True
            todo += children.get(n, [])
        return False

    return has_mass


def _rebase_keyframes(description, joints):
    result = []
    for key in description.keyframes:
        q, v, at_q, at_v = [], [], 0, 0
        key_v = None if key.v is None else np.asarray(key.v, float)
        for before, after in zip(description.joints, joints):
            nq, nv = JOINT_SIZES.get(before.type, (0, 0))
            old_q = np.asarray(key.q, float)[at_q : at_q + nq]
            old_v = np.zeros(nv) if key_v is None else key_v[at_v : at_v + nv]
            at_q, at_v = at_q + nq, at_v + nv
            if before.type != after.type:
                old_q = neutral_coordinates(after.type) if after.type == "free" else old_q[:0]
                old_v = np.zeros(JOINT_SIZES[after.type][1])
            q.append(old_q)
            v.append(old_v)
        result.append(replace(key, q=np.concatenate(q or [[]]), v=np.concatenate(v or [[]])))
    return tuple(result)


def neutral_coordinates(joint_type: str) -> np.ndarray:
    q = np.zeros(JOINT_SIZES[joint_type][0])
    if joint_type in ("spherical", "free"):
        q[-4] = 1.0
    return q


class _Compiler:
    def __init__(self, description: Description, dtype):
        self.d, self.dtype = description, dtype
        self.bodies = {b.name: b for b in description.bodies}
        children: dict[str, list[Joint]] = {}
        for j in description.joints:
            children.setdefault(j.parent, []).append(j)
        self.joints: list[Joint] = []  # of moving bodies, depth first
        self.parents: list[int] = []
        self.placements: list[Pose] = []  # joint frame in the moving parent
        self.link_names: list[str] = []
        self.link_body: list[int] = []
        self.link_pose: list[Pose] = []
        self.body_frames: list[int] = []
        todo = [(j, -1, Pose()) for j in reversed(children.get(WORLD, []))]
        while todo:
            j, carrier, X_carrier_parent = todo.pop()
            X = X_carrier_parent @ j.placement
            if j.type == "fixed":
                pose = X @ j.offset
            else:
                self.joints.append(j)
                self.parents.append(carrier)
                self.placements.append(X)
                self.body_frames.append(len(self.link_names))
                carrier, pose = len(self.joints) - 1, j.offset
            self.link_names.append(j.child)
            self.link_body.append(carrier)
            self.link_pose.append(pose)
            todo += [(c, carrier, pose) for c in reversed(children.get(j.child, []))]
        if sum(JOINT_SIZES[j.type][1] for j in self.joints) > _MAX_NODES:
            raise ModelError(
                description.source,
                f"more than {_MAX_NODES} degrees of freedom",
                "Split the model into several.",
            )

    def system(self) -> System:
        d, f = self.d, lambda x, shape: jnp.asarray(np.asarray(x, float).reshape(shape), self.dtype)
        nb, nl = len(self.joints), len(self.link_names)
        links = [self.bodies[n] for n in self.link_names]
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
        dof = lambda key: np.concatenate([per_dof(j, key) for j in self.joints] or [[]])  # noqa: E731
        diagonal, massless = self._inertia_at_neutral(links)
        shapes = [(frame_of[b.name], s) for b in links for s in b.shapes] + [(-1, s) for s in d.world_shapes]
        mimics = [
            (joint_index[j.name], joint_index[j.mimic.joint], j.mimic)
            for j in self.joints
            if j.mimic and j.mimic.joint in joint_index
        ]
        actuators = [a for a in d.actuators if a.joint in joint_index]
        v_starts = np.cumsum([0] + [JOINT_SIZES[j.type][1] for j in self.joints])
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
            body_frames=tuple(self.body_frames),
            shape_frames=tuple(i for i, _ in shapes),
            shape_kinds=tuple(s.kind for _, s in shapes),
            shape_names=tuple(s.name for _, s in shapes),
            shape_roles=tuple(s.role for _, s in shapes),
            shape_files=tuple((s.mesh, s.path) for _, s in shapes),
            mimics=tuple((i, k) for i, k, _ in mimics),
            actuator_names=tuple(a.name for a in actuators),
            actuator_kinds=tuple(a.kind for a in actuators),
            actuator_dofs=tuple(int(v_starts[joint_index[a.joint]]) + a.dof for a in actuators),
            loop_names=tuple(lp.name for lp in loops),
            loop_kinds=tuple(lp.kind for lp in loops),
            loop_frames=tuple((loop_target(lp, lp.body_a), loop_target(lp, lp.body_b)) for lp in loops),
            loop_active=tuple(bool(lp.active) for lp in loops),
            keyframe_names=tuple(k.name for k in d.keyframes),
            massless=tuple(massless),
            has_offsets=any(np.any(j.offset.p) for j in self.joints),
            source=d.source,
        )
        nv, nu, ns, nlp = topology.nv, len(actuators), len(shapes), len(loops)
        keys_q, keys_v = self._keyframes(topology)
        keys_u = np.zeros((len(d.keyframes), nu))
        for row, key in zip(keys_u, d.keyframes):
            if key.u is not None and len(key.u) == len(d.actuators):
                row[:] = [u for u, a in zip(key.u, d.actuators) if a.joint in joint_index]
        q0 = np.concatenate([neutral_coordinates(j.type) for j in self.joints] or [[]])
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
            keyframe_q=f(keys_q, (len(d.keyframes), topology.nq)),
            keyframe_v=f(keys_v, (len(d.keyframes), nv)),
            keyframe_u=f(keys_u, (len(d.keyframes), nu)),
        )

    def _keyframes(self, topology):
        """Keyframe rows, permuted from the description's joint order to tree order."""
        offsets, at_q, at_v = {}, 0, 0
        for j in self.d.joints:
            offsets[j.name] = (at_q, at_v)
            at_q, at_v = at_q + JOINT_SIZES[j.type][0], at_v + JOINT_SIZES[j.type][1]
        q_slices = [(offsets[j.name][0], JOINT_SIZES[j.type][0]) for j in self.joints]
        v_slices = [(offsets[j.name][1], JOINT_SIZES[j.type][1]) for j in self.joints]
        rows_q, rows_v = [], []
        for key in self.d.keyframes:
            q, v = np.asarray(key.q, float), np.zeros(at_v) if key.v is None else np.asarray(key.v, float)
            rows_q.append(np.concatenate([q[at : at + size] for at, size in q_slices] or [[]]))
            rows_v.append(np.concatenate([v[at : at + size] for at, size in v_slices] or [[]]))
        n = len(rows_q)
        return np.array(rows_q).reshape(n, topology.nq), np.array(rows_v).reshape(n, topology.nv)

    def _inertia_at_neutral(self, links):
        """Diagonal of M at the neutral pose, and the bodies whose joint moves nothing that has inertia."""
        nb = len(self.joints)
        world = []
        for parent, X in zip(self.parents, self.placements):
            world.append((world[parent] if parent >= 0 else Pose()) @ X)
        spatial = np.zeros((nb, 6, 6))  # about the world's origin, world axes
        for body, pose, link in zip(self.link_body, self.link_pose, links):
            if body >= 0:
                spatial[body] += _spatial_inertia(world[body] @ pose, link)
        for i in reversed(range(nb)):
            if self.parents[i] >= 0:
                spatial[self.parents[i]] += spatial[i]
        diagonal, massless = [], []
        for i, j in enumerate(self.joints):
            S, arm = _columns(j, world[i]), per_dof(j, "armature")
            block = S.T @ spatial[i] @ S + np.diag(arm)
            diagonal.append(np.maximum(np.diag(block), 1e-12))
            scale = max(np.abs(block).max(), 1e-30)
            if np.abs(block).max() < 1e-12 or np.linalg.eigvalsh(block)[0] < 1e-13 * scale:
                massless.append(j.child)
        return np.concatenate(diagonal or [[]]), massless


def per_dof(joint: Joint, key: str) -> np.ndarray:
    """A joint's parameter as one number per degree of freedom."""
    nv = JOINT_SIZES[joint.type][1]
    return np.broadcast_to(np.asarray(getattr(joint, key), float).reshape(-1), (nv,)).astype(float)


def unit(axis) -> np.ndarray:
    a = np.asarray(axis, float)
    n = np.linalg.norm(a)
    return a / n if n > 0 else np.array([0.0, 0.0, 1.0])


def second_axis(joint: Joint) -> np.ndarray:
    """axis2 as given; for planar joints made normal to the axis; a perpendicular where absent."""
    a = unit(joint.axis)
    if joint.axis2 is not None:
        b = unit(joint.axis2)
        if joint.type != "planar":
            return b
    else:
        b = np.array([1.0, 0.0, 0.0])
        if abs(a @ b) > 1 - 1e-6:
            b = np.array([0.0, 1.0, 0.0])
    b = b - (a @ b) * a
    return unit(b)


def _columns(joint: Joint, X: Pose) -> np.ndarray:
    """Motion subspace at the neutral pose about the world's origin, (6, nv)."""
    a, b = X.R @ unit(joint.axis), X.R @ second_axis(joint)
    turn = lambda s: np.concatenate([s, np.cross(X.p, s)])  # noqa: E731
    slide = lambda s: np.concatenate([np.zeros(3), s])  # noqa: E731
    t = joint.type
    if t in ("revolute", "continuous"):
        cols = [turn(a)]
    elif t == "prismatic":
        cols = [slide(a)]
    elif t == "screw":
        cols = [turn(a) + joint.pitch * slide(a)]
    elif t == "cylindrical":
        cols = [turn(a), slide(a)]
    elif t == "universal":
        cols = [turn(a), turn(b)]
    elif t == "planar":
        cols = [slide(b), slide(np.cross(a, b)), turn(a)]
    else:
        cols = [turn(e) for e in X.R.T] + ([slide(e) for e in X.R.T] if t == "free" else [])
    return np.stack(cols, 1)


def _spatial_inertia(X: Pose, link) -> np.ndarray:
    m, c = link.mass, X.R @ link.com + X.p
    cx = np.array([[0, -c[2], c[1]], [c[2], 0, -c[0]], [-c[1], c[0], 0]])
    I = X.R @ np.asarray(link.inertia) @ X.R.T - m * cx @ cx
    return np.block([[I, m * cx], [-m * cx, m * np.eye(3)]])
