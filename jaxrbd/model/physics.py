"""Which parts of a well-formed Description could not be built from matter.

Inertias: positive semidefinite and I1 + I2 >= I3 for the principal moments, within the digits that files
are usually written with. Moving parts: every motion of the joints must set some mass (or armature) in motion,
see `mass_rank.py`; links on fixed joints count as one body.
"""

from __future__ import annotations

import numpy as np

from jaxrbd.joints import TYPES
from jaxrbd.model.description import Body, Joint
from jaxrbd.model.mass_rank import CANCELLING, GYRATION_FLOOR
from jaxrbd.model.rigid_tree import RigidTree

SEMIDEFINITE_TOLERANCE = 1e-9  # of the trace
TRIANGLE_TOLERANCE = 1e-6  # of the trace: plates whose six printed digits do not quite add up


def unphysical(tree: RigidTree, idle: list[tuple[str, int]]) -> dict[str, list[str]]:
    """Names of links (or joints, if the cause says so) by cause, given the `idle_joints`."""
    problems: dict[str, list[str]] = {}
    found = [(body.name, _bad_inertia(body)) for body in tree.description.bodies]
    found += [(joint.name, _negative(joint)) for joint in tree.description.joints]
    joints = [(cause, tree.joints[i]) for cause, i in idle]
    for name, cause in found + [(j.name if cause == CANCELLING else j.child, cause) for cause, j in joints]:
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
    if TYPES[joint.type].nv == 0:
        return ""
    names = [
        key for key in ("damping", "friction", "armature") if np.any(np.asarray(getattr(joint, key)) < 0.0)
    ]
    return f"joints with negative {' and '.join(names)}" if names else ""
