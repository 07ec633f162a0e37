"""Constrained forward dynamics as tasks: "constrained:SOLVER:CASE", for every contender that has it.

Cases are named as in [CABA]: F feet, H hands, T fingertips; 3 rows hold a point, 6 a whole link; x2 means
two of them.
Chains and trees of the zoo have the case "tips": a chain's tip is welded, the tips of a tree are points held.
"inverse:ALGORITHM:CASE" is the damped Delassus inverse under the same constraints.
"""

from collections.abc import Callable

_SOLO = ("FL_FOOT", "HR_FOOT", "FR_FOOT", "HL_FOOT")
_FEET, _HANDS = ("leg_left_6_link", "leg_right_6_link"), ("arm_left_7_link", "arm_right_7_link")
CASES = {
    "solo12": {"F3x2": [(3, f) for f in _SOLO[:2]], "F3x4": [(3, f) for f in _SOLO]},
    "talos_full_v2": {
        "F6x2": [(6, f) for f in _FEET],
        "F6x2H6x2": [(6, f) for f in (*_FEET, *_HANDS)],
    },
}
_FINGERS = [f"{s}_{f}_tip" for s in ("left", "right") for f in ("thumb", "index", "middle", "ring", "little")]
ZOO_CASES = {  # built in code, like [CABA]'s iiwa and Atlas with hands
    "arm7": {"H6": [(6, "tool")]},
    "hands": {"F6x2T3x10": [(6, "left_sole"), (6, "right_sole"), *((3, f) for f in _FINGERS)]},
}
SOLVERS = ("ConstrainedABA", "ProxPV", "ProxLTLs", "ProxLTL")
INVERSES = ("cabaf", "caba", "pvf", "pvr", "ltl")
ITERATIONS, MU = 3, 1e4  # the latter for inverses in float32


def is_constrained(task: str) -> bool:
    return task.startswith(("constrained:", "inverse:"))


def contacts_of(task: str) -> list[tuple[int, str]]:
    """Rows and link of every contact; a case's name belongs to one robot only."""
    case = task.split(":")[2]
    return next(cases[case] for cases in (*CASES.values(), *ZOO_CASES.values()) if case in cases)


def ours(system, task: str) -> Callable:
    """Accelerations under the case's constraints by one of our solvers, three iterations; or the inverse."""
    import jaxrbd as rbd

    kind, name, case = task.split(":")
    make = {3: rbd.constraints.connect, 6: rbd.constraints.weld}
    tips = [f for f in system.frame_names if f.startswith("tip")]
    held = [(6 if len(tips) == 1 else 3, f) for f in tips] if case == "tips" else contacts_of(task)
    constraints = rbd.constraints.combine(*(make[n](system, f) for n, f in held))
    if kind == "inverse":
        return lambda q, v, tau: rbd.constraints.delassus_inverse(system, constraints, q, MU, name)
    solver = getattr(rbd, name)(iterations=ITERATIONS)
    return lambda q, v, tau: rbd.constrained_dynamics(system, q, v, tau, constraints, solver).value.a


def pinocchio(pin, model, task: str) -> Callable:
    """constraintDynamics with [PROX]'s settings: mu = 1e-6, at most three iterations."""
    kinds = {3: pin.ContactType.CONTACT_3D, 6: pin.ContactType.CONTACT_6D}
    held = pin.StdVec_RigidConstraintModel()
    for rows, name in contacts_of(task):
        frame = model.frames[model.getFrameId(name, pin.FrameType.BODY)]
        held.append(
            pin.RigidConstraintModel(kinds[rows], model, frame.parentJoint, frame.placement, pin.LOCAL)
        )
    datas, data = pin.StdVec_RigidConstraintData(), model.createData()
    for constraint in held:
        datas.append(constraint.createData())
    pin.initConstraintDynamics(model, data, held, datas)
    settings = pin.ProximalSettings(1e-16, 1e-6, ITERATIONS)
    return lambda q, v, tau: pin.constraintDynamics(model, data, q, v, tau, held, datas, settings)


def mujoco_model(spec, task: str):
    """A MuJoCo model with the case's constraints as equalities with the world.

    One Newton iteration, which is all that equalities need: the fastest settings that solve them.
    """
    import mujoco

    for k, (rows, name) in enumerate(contacts_of(task)):
        equality = spec.add_equality()
        equality.name = f"held{k}"
        equality.type = mujoco.mjtEq.mjEQ_CONNECT if rows == 3 else mujoco.mjtEq.mjEQ_WELD
        equality.objtype = mujoco.mjtObj.mjOBJ_BODY
        equality.name1, equality.name2 = moving_body(spec, name), "world"
    bit = mujoco.mjtDisableBit
    spec.option.disableflags = bit.mjDSBL_CONTACT | bit.mjDSBL_EULERDAMP | bit.mjDSBL_AUTORESET
    spec.option.solver = mujoco.mjtSolver.mjSOL_NEWTON
    spec.option.iterations, spec.option.ls_iterations = 1, 4
    return spec.compile()


def moving_body(spec, name: str) -> str:
    """The body with a joint that carries a link, which MuJoCo may have merged into it."""
    body = spec.body(name)
    while body is not None and not list(body.joints):
        body = body.parent
    return body.name
