"""Which parts of a well-formed Description could not be built from matter.

Inertias: positive semidefinite and I1 + I2 >= I3 for the principal moments, within the digits that files
are usually written with. Moving parts: each degree of freedom must set some mass (or armature) in motion,
where links on fixed joints count as one body and massless links are fine if their subtree has mass.
"""

from __future__ import annotations

import numpy as np

from jaxrbd.model.description import JOINT_SIZES, WORLD, Body, Description, Joint, Pose

SEMIDEFINITE_TOLERANCE = 1e-9  # of the trace
TRIANGLE_TOLERANCE = 1e-6  # of the trace: plates whose six printed digits do not quite add up
GYRATION_FLOOR = 1e-6  # metres; an inertia below mass * floor² is the rounding noise of a point mass


def unphysical(description: Description) -> dict[str, list[str]]:
    """Names of links (or joints, where the cause says so) by cause; empty if the model is physical."""
    problems: dict[str, list[str]] = {}
    found = [(body.name, _bad_inertia(body)) for body in description.bodies]
    found += [(joint.name, _negative(joint)) for joint in description.joints]
    for name, cause in found + _weightless(description):
        if cause:
            problems.setdefault(cause, []).append(name)
    return problems


def _bad_inertia(body: Body) -> str:
    inertia = np.asarray(body.inertia, dtype=float)
    if not inertia.any():
        return ""  # a point mass or a frame
    if body.mass == 0.0:
        return "links with inertia but no mass"
    scale = np.max(np.abs(inertia))
    if scale < GYRATION_FLOOR**2 * body.mass:
        return ""
    moments = np.linalg.eigvalsh(inertia / scale)
    trace = np.sum(np.abs(moments))
    if moments[0] < -SEMIDEFINITE_TOLERANCE * trace:
        return "links whose inertia is not positive definite"
    if moments[0] + moments[1] < moments[2] - TRIANGLE_TOLERANCE * trace:
        return "links whose inertia breaks the triangle inequality"
    return ""


def _negative(joint: Joint) -> str:
    if JOINT_SIZES[joint.type][1] == 0:
        return ""
    names = [
        key for key in ("damping", "friction", "armature") if np.any(np.asarray(getattr(joint, key)) < 0.0)
    ]
    return f"joints with negative {' and '.join(names)}" if names else ""


def _weightless(description: Description) -> list[tuple[str, str]]:
    """Moving links whose joint would meet no inertia, so that the mass matrix is singular everywhere."""
    bodies = {body.name: body for body in description.bodies}
    joint_of = {joint.child: joint for joint in description.joints}
    carrier, pose = _carriers(description, joint_of)
    rigid = {name: [] for name in bodies}  # the links that move as one with each moving link
    for name in bodies:
        if carrier[name] != WORLD:
            rigid[carrier[name]].append(name)

    carried_by = {name: [] for name in bodies}  # moving links whose joint sits on each moving link
    massive = set()  # moving links whose subtree has mass
    for name in reversed(list(carrier)):  # children before parents
        if carrier[name] == WORLD:
            continue
        if bodies[name].mass > 0.0 or np.any(bodies[name].inertia):
            massive.add(carrier[name])
        if carrier[name] == name and (below := carrier[joint_of[name].parent]) != WORLD:
            carried_by[below].append(name)
            if name in massive:
                massive.add(below)

    problems = []
    for name in bodies:
        if carrier[name] != name or np.all(np.asarray(joint_of[name].armature) > 0.0):
            continue
        if name not in massive:
            problems.append((name, "links that move without mass"))
        elif massive.isdisjoint(carried_by[name]):
            parts = [(bodies[part], pose[part]) for part in rigid[name]]
            if not _resists(joint_of[name], parts):
                problems.append((name, "links that turn without rotational inertia"))
    return problems


def _carriers(description: Description, joint_of: dict[str, Joint]) -> tuple[dict[str, str], dict[str, Pose]]:
    """For each link, parents first: the moving link it is rigidly attached to, and its pose in that link."""
    carrier, pose = {WORLD: WORLD}, {WORLD: Pose()}
    for body in description.bodies:
        path, name = [], body.name
        while name not in carrier:
            path.append(name)
            name = joint_of[name].parent
        for name in reversed(path):
            joint = joint_of[name]
            if joint.type == "fixed":
                carrier[name] = carrier[joint.parent]
                pose[name] = pose[joint.parent] @ joint.placement @ joint.offset
            else:
                carrier[name], pose[name] = name, Pose()
    return carrier, pose


def _resists(joint: Joint, parts: list[tuple[Body, Pose]]) -> bool:
    """Whether Sᵀ I S is positive definite, for the motion S of a joint and its rigid body's inertia I."""
    inertia = np.zeros((6, 6))  # angular first, about the joint's origin
    with np.errstate(over="ignore", invalid="ignore"):
        for body, X in parts:
            X = joint.offset @ X
            x, y, z = X.R @ body.com + X.p
            c = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
            turning = X.R @ body.inertia @ X.R.T - body.mass * c @ c
            inertia += np.block([[turning, body.mass * c], [body.mass * c.T, body.mass * np.eye(3)]])
        S = _motion(joint)
        met = S.T @ inertia @ S
        if not np.isfinite(met).all():
            return True  # beyond floating point; not for this check to say
        turns = np.any(S[:3] != 0.0, axis=0)
        noise = np.where(turns, 1e-14 * abs(np.trace(inertia[:3, :3])), 0.0)
        if np.any(np.diag(met) <= noise):
            return False
        scale = np.sqrt(np.diag(met))
        return bool(np.linalg.eigvalsh(met / np.outer(scale, scale))[0] > 1e-12)


def _motion(joint: Joint) -> np.ndarray:
    """Columns of the joint's motion in its own frame at the zero position, (6, nv), angular first."""
    turn, slide = np.eye(6)[:, :3], np.eye(6)[:, 3:]
    if joint.type == "free":
        return np.eye(6)
    if joint.type == "spherical":
        return turn
    n = np.asarray(joint.axis, dtype=float)
    n = n / np.linalg.norm(n)
    across = np.linalg.svd(n[None])[2][1:].T  # two directions normal to the axis
    second = across[:, 0] if joint.axis2 is None else np.asarray(joint.axis2, dtype=float)
    columns = {
        "prismatic": [slide @ n],
        "screw": [turn @ n + joint.pitch * (slide @ n)],
        "cylindrical": [turn @ n, slide @ n],
        "universal": [turn @ n, turn @ second],
        "planar": [slide @ across[:, 0], slide @ across[:, 1], turn @ n],
    }
    return np.stack(columns.get(joint.type, [turn @ n]), axis=1)
