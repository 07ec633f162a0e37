"""MJCF reader: MuJoCo's compiler resolves defaults, classes, includes and inertias; we convert its model.

A body with several joints becomes a chain of joints through massless bodies named "body/joint". Each
MuJoCo joint moves the body about its own anchor, X <- X T(pos) motion(q - qpos0) T(-pos), so it is a
Joint with `placement` (... T(pos) motion(-qpos0)) and `offset` T(-pos). Our q of a hinge or slide is
therefore MuJoCo's qpos, `ref` included, and joints come in MuJoCo's order; only the velocity of a
free joint differs (`convert.to_mujoco`). What a Description cannot hold is listed in one warning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxrbd.errors import ModelError, short, warn
from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.model.description import Body, Description, Frame, Joint, Keyframe, Pose
from jaxrbd.model.mjcf_actuators import joint_actuators, read_actuators, read_linear, read_loops
from jaxrbd.model.mjcf_compile import compile_mjcf, import_mujoco
from jaxrbd.model.mjcf_context import BALL, FREE, HINGE, SLIDE, Context, unique
from jaxrbd.model.mjcf_shapes import read_pairs, read_shapes
from jaxrbd.model.xml_safe import Element
from jaxrbd.typing import StrPath

_TYPES = {HINGE: "revolute", SLIDE: "prismatic", BALL: "spherical", FREE: "free"}


def read_mjcf(
    text: str | bytes | Element,
    source: str = "<string>",
    folder: StrPath | None = None,
    package_dirs: Iterable[StrPath] = (),
) -> Description:
    """A Description from MJCF text; files are looked up only inside `folder` and `package_dirs`.

    The pose that MuJoCo starts in (qpos0) becomes a keyframe "home", unless the file has one.
    """
    mujoco = import_mujoco(source)
    ctx = Context(mujoco, compile_mjcf(text, source, folder, package_dirs), source)
    _check_finite(ctx)
    bodies, joints = _tree(ctx)
    actuators = read_actuators(ctx)
    exclusions, contact_pairs = read_pairs(ctx)
    description = Description(
        name=ctx.compiled.name or "model",
        bodies=tuple(bodies),
        joints=tuple(joints),
        loops=tuple(read_loops(ctx)),
        linear=tuple(read_linear(ctx)),
        actuators=tuple(a for a, _ in actuators),
        frames=tuple(_frames(ctx)),
        keyframes=tuple(_keyframes(ctx, [control for _, control in actuators])),
        world_shapes=read_shapes(ctx, 0),
        exclusions=exclusions,
        contact_pairs=contact_pairs,
        gravity=np.zeros(3) if "gravity" in ctx.disabled else np.array(ctx.m.opt.gravity),
        source=source,
        scenery=True,
    )
    _note_unrepresented(ctx)
    if ctx.lost:
        lost = [short(what, 120) for what in dict.fromkeys(ctx.lost)]
        more = f"; and {len(lost) - 30} more" if len(lost) > 30 else ""
        warn(f"{source}: read, but not represented: {'; '.join(lost[:30])}{more}.")
    _note_stepping(ctx)
    return description


def _check_finite(ctx: Context) -> None:
    for field in ("body_mass", "body_inertia", "body_pos", "body_quat", "jnt_axis", "qpos0"):
        if not np.isfinite(getattr(ctx.m, field)).all():
            raise ModelError(ctx.source, f"{field} is not finite", "Give finite numbers.")


def _tree(ctx: Context) -> tuple[list[Body], list[Joint]]:
    m, bodies, joints = ctx.m, [], []
    for i in range(1, m.nbody):
        name, parent = ctx.bodies[i], ctx.bodies[m.body_parentid[i]]
        pose = Pose(matrix_from_quaternion(m.body_quat[i]), np.array(m.body_pos[i]))
        first, count = m.body_jntadr[i], m.body_jntnum[i]
        if count == 0:
            joint = unique(name, ctx.taken_joints)
            joints.append(Joint(joint, "fixed", parent, name, placement=pose))
        for j in range(first, first + count):
            last = j == first + count - 1
            child = name if last else unique(f"{name}/{ctx.joints[j]}", ctx.taken_bodies)
            joints.append(_joint(ctx, j, parent, child, pose))
            if not last:
                bodies.append(Body(child))
            parent, pose = child, Pose()
        axes = matrix_from_quaternion(m.body_iquat[i])
        inertia = axes @ np.diag(m.body_inertia[i]) @ axes.T
        bodies.append(
            Body(
                name,
                mass=float(m.body_mass[i]),
                com=np.array(m.body_ipos[i]),
                inertia=(inertia + inertia.T) / 2,
                shapes=read_shapes(ctx, i),
            )
        )
    return bodies, joints


def _joint(ctx: Context, j: int, parent: str, child: str, pose: Pose) -> Joint:
    m, kind = ctx.m, ctx.joint_kind[j]
    axis, anchor, qpos0 = np.array(m.jnt_axis[j]), np.array(m.jnt_pos[j]), m.qpos0[m.jnt_qposadr[j]]
    if kind == FREE:
        placement, offset = Pose(), Pose()
    else:
        at_reference = Pose()
        if kind == HINGE:
            at_reference = Pose(_about(axis, -qpos0))
        elif kind == SLIDE:
            at_reference = Pose(p=-axis * qpos0)
        placement = pose @ Pose(p=anchor) @ at_reference
        offset = Pose(p=-anchor)
    values = _joint_values(ctx, j, kind)
    if kind in (HINGE, SLIDE):
        values["axis"] = axis / np.linalg.norm(axis)
    return Joint(ctx.joints[j], _TYPES[kind], parent, child, placement, offset, **values)


def _joint_values(ctx: Context, j: int, kind: str) -> dict[str, Any]:
    """Limits, damping, dry friction, armature and springs, per degree of freedom in our order."""
    m, name = ctx.m, ctx.joints[j]
    nv = {FREE: 6, BALL: 3}.get(kind, 1)
    start = m.jnt_dofadr[j]
    order = np.array([3, 4, 5, 0, 1, 2]) if kind == FREE else np.arange(nv)  # ours is angular first

    def per_dof(field: np.ndarray) -> float | tuple[float, ...]:
        values = tuple(float(x) for x in field[start : start + nv][order])
        return values if nv > 1 and len(set(values)) > 1 else values[0]

    values: dict[str, Any] = {"armature": per_dof(m.dof_armature)}
    if kind == FREE and np.any(values["armature"]):
        ctx.lost.append(f"armature of free joint {name!r} in world axes (here it acts on the body twist)")
    if "damper" not in ctx.disabled:
        values["damping"] = per_dof(m.dof_damping)
    if "frictionloss" not in ctx.disabled and "constraint" not in ctx.disabled:
        values["friction"] = per_dof(m.dof_frictionloss)
    if kind in (HINGE, SLIDE):  # MuJoCo reflects rotor inertia and damping of scalar joints only
        for i in joint_actuators(ctx, j):
            gear = float(m.actuator_gear[m.actuator_outadr[i], 0])
            gear2 = gear * gear  # the power would raise where the product is infinite
            values["armature"] += gear2 * float(m.actuator_armature[i])
            values["damping"] = values.get("damping", 0.0) + gear2 * float(m.actuator_damping[i])
    if m.jnt_limited[j] and "limit" not in ctx.disabled:
        if kind in (HINGE, SLIDE):
            values["lower"], values["upper"] = (float(x) for x in m.jnt_range[j])
        else:
            ctx.lost.append(f"limit of {kind} joint {name!r}")
    if m.jnt_actfrclimited[j]:
        low, high = (float(x) for x in m.jnt_actfrcrange[j])
        values["effort_limit"] = max(abs(low), abs(high))
        if low != -high:
            ctx.lost.append(f"lower end of actuatorfrcrange of joint {name!r}")
    if m.jnt_stiffness[j] and "spring" not in ctx.disabled:
        if kind in (HINGE, SLIDE):
            values["stiffness"] = float(m.jnt_stiffness[j])
            values["spring_reference"] = float(m.qpos_spring[m.jnt_qposadr[j]])
        else:
            ctx.lost.append(f"spring of {kind} joint {name!r}")
    dofs = slice(start, start + nv)
    if np.any(m.jnt_stiffnesspoly[j]) or np.any(m.dof_dampingpoly[dofs]) or m.jnt_plasticadr[j] >= 0:
        ctx.lost.append(f"nonlinear spring or damper of joint {name!r}")
    return values


def _frames(ctx: Context) -> list[Frame]:
    m, frames, taken = ctx.m, [], set(ctx.taken_bodies)
    for i in range(m.nsite):
        body = ctx.bodies[m.site_bodyid[i]]
        written = ctx.name("site", i) or f"{body}/site{i}"
        name = unique(written, taken, "_site")
        if name != written:
            ctx.lost.append(f"the name of site {written!r}, which a body has too (now {name!r})")
        frames.append(Frame(name, body, ctx.site_pose(i)))
    return frames


def _keyframes(ctx: Context, controls: list[int]) -> list[Keyframe]:
    m, frames = ctx.m, []
    taken: set[str] = set()
    for k in range(m.nkey):
        name = unique(ctx.name("key", k) or f"key{k}", taken)
        u = np.array(m.key_ctrl[k])[np.array(controls, int)]
        frames.append(
            Keyframe(name, np.array(m.key_qpos[k]), _velocity(ctx, m.key_qpos[k], m.key_qvel[k]), u)
        )
    if "home" not in taken:
        frames.append(Keyframe("home", np.array(m.qpos0), np.zeros(m.nv), np.zeros(len(controls))))
    return frames


def _velocity(ctx: Context, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """Our v: a free joint's is the body-frame twist, angular first."""
    m, v = ctx.m, np.array(qvel)
    for j in range(m.njnt):
        if ctx.joint_kind[j] == FREE:
            at, dof = m.jnt_qposadr[j], m.jnt_dofadr[j]
            v[dof : dof + 3] = qvel[dof + 3 : dof + 6]
            v[dof + 3 : dof + 6] = matrix_from_quaternion(qpos[at + 3 : at + 7]).T @ qvel[dof : dof + 3]
    return v


def _note_unrepresented(ctx: Context) -> None:
    m = ctx.m
    counts = {
        "tendons": m.ntendon - len(ctx.tendons),
        "flexible bodies": m.nflex,
        "skins": m.nskin,
        "plugins": m.nplugin,
        "mocap bodies": m.nmocap,
        "parameters of contact pairs": m.npair,
        "bodies with gravcomp": np.count_nonzero(m.body_gravcomp),
    }
    ctx.lost.extend(f"{count} {what}" for what, count in counts.items() if count)
    if m.opt.density or m.opt.viscosity or np.any(m.opt.wind):
        ctx.lost.append("fluid forces (density, viscosity, wind)")


def _note_stepping(ctx: Context) -> None:
    """How the file wants to be simulated is for the caller of `step` and `rollout` to say."""
    asked = sorted(ctx.compiled.options & {"timestep", "integrator"}, reverse=True)
    if asked:
        kind = ctx.mujoco.mjtIntegrator(ctx.m.opt.integrator).name.removeprefix("mjINT_")
        values = {"timestep": f"{ctx.m.opt.timestep:g}", "integrator": kind}
        ours = "RK4" if kind == "RK4" else "SemiImplicitEuler"
        wanted = ", ".join(f"{key} {values[key]}" for key in asked)
        warn(
            f"{ctx.source}: <option> asks for {wanted}, which a System does not keep: pass "
            f"integrator=jaxrbd.{ours}(dt={ctx.m.opt.timestep:g}) to step and rollout."
        )


def _about(axis: np.ndarray, angle: float) -> np.ndarray:
    """Rotation by `angle` about a unit axis."""
    return matrix_from_quaternion(
        np.concatenate([[np.cos(angle / 2)], np.sin(angle / 2) * axis / np.linalg.norm(axis)])
    )
