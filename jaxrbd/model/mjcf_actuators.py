"""Actuators and equality constraints of a compiled MJCF model, as far as a Description can say them."""

from __future__ import annotations

import numpy as np

from jaxrbd.errors import warn
from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.model.description import Actuator, Linear, Loop, Pose
from jaxrbd.model.mjcf_context import BALL, FREE, HINGE, SLIDE, Context, unique
from jaxrbd.model.validate import listing


def read_actuators(ctx: Context) -> list[tuple[Actuator, int]]:
    """Actuators on one degree of freedom, each with the index of its control in MuJoCo's ctrl."""
    m, found, disabled = ctx.m, [], []
    taken: set[str] = set()
    for i in range(m.nactuator):
        name = unique(ctx.name("actuator", i) or f"actuator{i}", taken)
        group = int(m.actuator_group[i])
        if 0 <= group < 31 and m.opt.disableactuator >> group & 1:
            disabled.append(name)
            continue
        target, why = _actuated_dof(ctx, i)
        if target is None:
            ctx.lost.append(f"actuator {name!r} ({why})")
            continue
        joint, dof, gear = target
        control = int(m.actuator_ctrladr[i])
        gain, bias = float(m.actuator_gainprm[i, 0]), (0.0, 0.0, 0.0)
        if ctx.mujoco.mjtBias(m.actuator_biastype[i]) == ctx.mujoco.mjtBias.mjBIAS_AFFINE:
            bias = _three(m.actuator_biasprm[i])
        if m.actuator_ctrllimited[control] and "clampctrl" not in ctx.disabled:
            control_range = _pair(m.actuator_ctrlrange[control])
        else:
            control_range = (-np.inf, np.inf)
        force_range = (-np.inf, np.inf)
        if m.actuator_forcelimited[i]:
            force_range = _pair(m.actuator_forcerange[i])
        kind = _actuator_kind(gain, bias)
        found.append(
            (
                Actuator(name, joint, dof, kind, gear, gain, bias, control_range, force_range),
                control,
            )
        )
    if disabled:
        warn(
            f"{ctx.source}: <option actuatorgroupdisable> switches off the actuators {listing(disabled)}: "
            "they are left out. Remove the option to have them."
        )
    if "actuation" in ctx.disabled and found:
        ctx.lost.append("the flag that disables actuation")
    return found


def _actuated_dof(ctx: Context, i: int) -> tuple[tuple[str, int, float] | None, str]:
    """((joint, dof, gear), "") of an actuator that we can express, else (None, why not)."""
    m, mj = ctx.m, ctx.mujoco
    transmission = mj.mjtTrn(m.actuator_trntype[i])
    if transmission == mj.mjtTrn.mjTRN_TENDON:
        terms = fixed_tendon(ctx, int(m.actuator_trnid[i, 0]))
        if terms is None or len(terms) != 1:
            return None, "on a tendon of several joints"
    elif transmission not in (mj.mjtTrn.mjTRN_JOINT, mj.mjtTrn.mjTRN_JOINTINPARENT):
        return None, f"transmission {transmission.name.removeprefix('mjTRN_').lower()}"
    if mj.mjtDyn(m.actuator_dyntype[i]) != mj.mjtDyn.mjDYN_NONE or m.actuator_actnum[i] > 0:
        return None, "activation dynamics"
    if m.actuator_plugin[i] >= 0 or m.actuator_ctrlnum[i] != 1 or m.actuator_delay[i] != 0:
        return None, "plugin, delay or several controls"
    gain_type, bias_type = mj.mjtGain(m.actuator_gaintype[i]), mj.mjtBias(m.actuator_biastype[i])
    affine = gain_type == mj.mjtGain.mjGAIN_AFFINE
    if not affine and gain_type != mj.mjtGain.mjGAIN_FIXED:
        return None, f"gain {gain_type.name.removeprefix('mjGAIN_').lower()}"
    if affine and np.any(m.actuator_gainprm[i, 1:3]):
        return None, "gain that depends on position or velocity"
    if bias_type not in (mj.mjtBias.mjBIAS_NONE, mj.mjtBias.mjBIAS_AFFINE):
        return None, f"bias {bias_type.name.removeprefix('mjBIAS_').lower()}"
    if transmission == mj.mjtTrn.mjTRN_TENDON and terms:
        (joint, coefficient), ratio = next(iter(terms.items())), m.actuator_gear[m.actuator_outadr[i]][0]
        ctx.tendons.add(int(m.actuator_trnid[i, 0]))
        return (joint, 0, coefficient * float(ratio)), ""
    j = int(m.actuator_trnid[i, 0])
    kind, gear = ctx.joint_kind[j], np.array(m.actuator_gear[m.actuator_outadr[i]])
    if kind in (HINGE, SLIDE):
        return (ctx.joints[j], 0, float(gear[0])), ""
    used = np.flatnonzero(gear[: 3 if kind == BALL else 6])
    biased = bias_type == mj.mjtBias.mjBIAS_AFFINE and np.any(m.actuator_biasprm[i, 1:3])
    in_parent = transmission == mj.mjtTrn.mjTRN_JOINTINPARENT
    if len(used) != 1 or biased or in_parent or (kind == FREE and used[0] < 3):
        return None, f"on a {kind} joint, other than a torque about one body axis"
    return (ctx.joints[j], int(used[0]) % 3, float(gear[used[0]])), ""


def _pair(row: np.ndarray) -> tuple[float, float]:
    return float(row[0]), float(row[1])


def _three(row: np.ndarray) -> tuple[float, float, float]:
    return float(row[0]), float(row[1]), float(row[2])


def _actuator_kind(gain: float, bias: tuple[float, float, float]) -> str:
    if bias == (0.0, 0.0, 0.0) and gain == 1.0:
        return "torque"
    if bias[0] == 0.0 and bias[1] == -gain != 0.0:
        return "position"
    if bias[0] == bias[1] == 0.0 and bias[2] == -gain != 0.0:
        return "velocity"
    return "affine"


def read_loops(ctx: Context) -> list[Loop]:
    m, mj, loops = ctx.m, ctx.mujoco, []
    taken: set[str] = set()
    for i in range(m.neq):
        kind = mj.mjtEq(m.eq_type[i]).name.removeprefix("mjEQ_").lower()
        name = unique(ctx.name("equality", i) or f"equality{i}", taken)
        active = bool(m.eq_active0[i]) and not ctx.disabled & {"equality", "constraint"}
        a, b, data = int(m.eq_obj1id[i]), int(m.eq_obj2id[i]), m.eq_data[i]
        if kind == "joint":
            coupling = _coupling(ctx, name, a, b, data, active)
            if coupling:
                loops.append(coupling)
            continue
        if kind == "tendon":  # `read_linear` has it
            continue
        if kind not in ("connect", "weld"):
            ctx.lost.append(f"equality {name!r} ({kind})")
            continue
        if mj.mjtObj(m.eq_objtype[i]) == mj.mjtObj.mjOBJ_SITE:
            pose_a, pose_b = ctx.site_pose(a), ctx.site_pose(b)
            a, b = int(m.site_bodyid[a]), int(m.site_bodyid[b])
        elif kind == "connect":
            pose_a, pose_b = Pose(p=np.array(data[0:3])), Pose(p=np.array(data[3:6]))
        else:  # weld: the anchor in body 2, then the pose of that point in body 1
            pose_a = Pose(matrix_from_quaternion(data[6:10]), np.array(data[3:6]))
            pose_b = Pose(p=np.array(data[0:3]))
        loops.append(Loop(name, kind, ctx.bodies[a], ctx.bodies[b], pose_a, pose_b, active=active))
    return loops


def _coupling(ctx: Context, name: str, a: int, b: int, data: np.ndarray, active: bool) -> Loop | None:
    """q_a - qpos0_a = polynomial(q_b - qpos0_b), rewritten as a polynomial in q_b itself."""
    m = ctx.m
    if any(ctx.joint_kind[j] not in (HINGE, SLIDE) for j in (a, b) if j >= 0):
        ctx.lost.append(f"equality {name!r} (joint that is not a hinge or slide)")
        return None
    rest = float(m.qpos0[m.jnt_qposadr[a]])
    if b < 0:
        joint = ctx.joints[a]
        return Loop(name, "coupling", joint, joint, coefficients=(rest + float(data[0]),), active=active)
    shifted = np.polynomial.Polynomial([-float(m.qpos0[m.jnt_qposadr[b]]), 1.0])
    value = np.polynomial.Polynomial(np.array(data[:5]))(shifted) + rest
    coefficients = tuple(float(c) for c in value.coef) + (0.0,) * (5 - len(value.coef))
    return Loop(name, "coupling", ctx.joints[a], ctx.joints[b], coefficients=coefficients, active=active)


def read_linear(ctx: Context) -> list[Linear]:
    """Equalities of fixed tendons, whose lengths are sums over joints: linear couplings of several joints."""
    m, mj, found = ctx.m, ctx.mujoco, []
    taken: set[str] = set()
    for i in range(m.neq):
        if mj.mjtEq(m.eq_type[i]) != mj.mjtEq.mjEQ_TENDON:
            continue
        name = unique(ctx.name("equality", i) or f"equality{i}", taken)
        a, b, data = int(m.eq_obj1id[i]), int(m.eq_obj2id[i]), m.eq_data[i]
        first, second = fixed_tendon(ctx, a), fixed_tendon(ctx, b) if b >= 0 else {}
        if not (m.eq_active0[i] and not ctx.disabled & {"equality", "constraint"}):
            ctx.lost.append(f"equality {name!r} (switched off)")
        elif first is None or second is None or (b >= 0 and np.any(data[2:5])):
            ctx.lost.append(f"equality {name!r} (tendon that is not fixed, or a polynomial)")
        else:
            slope = float(data[1]) if b >= 0 else 0.0
            terms = {j: first.get(j, 0.0) - slope * second.get(j, 0.0) for j in {**first, **second}}
            rest = float(m.tendon_length0[a]) - (slope * float(m.tendon_length0[b]) if b >= 0 else 0.0)
            joints = tuple(j for j, c in terms.items() if c)
            found.append(Linear(name, joints, tuple(terms[j] for j in joints), rest + float(data[0])))
            ctx.tendons.update({a} | ({b} if b >= 0 else set()))
    return found


def fixed_tendon(ctx: Context, i: int) -> dict[str, float] | None:
    """Coefficients of a tendon's joints; None for a spatial one, or one on balls and free joints."""
    m, mj = ctx.m, ctx.mujoco
    terms: dict[str, float] = {}
    for w in range(int(m.tendon_adr[i]), int(m.tendon_adr[i] + m.tendon_num[i])):
        j = int(m.wrap_objid[w])
        if mj.mjtWrap(m.wrap_type[w]) != mj.mjtWrap.mjWRAP_JOINT or ctx.joint_kind[j] not in (HINGE, SLIDE):
            return None
        terms[ctx.joints[j]] = terms.get(ctx.joints[j], 0.0) + float(m.wrap_prm[w])
    return terms


def joint_actuators(ctx: Context, j: int) -> list[int]:
    """Actuators that push on joint `j`."""
    m, trn = ctx.m, ctx.mujoco.mjtTrn
    kinds = (int(trn.mjTRN_JOINT), int(trn.mjTRN_JOINTINPARENT))
    return [
        i for i in range(m.nactuator) if int(m.actuator_trntype[i]) in kinds and m.actuator_trnid[i, 0] == j
    ]
