"""The constraints that a file or a builder declared."""

from __future__ import annotations

from typing import Any

from jaxrbd.constraints.data import Constraints, combine
from jaxrbd.constraints.kinds.coupling import coupling
from jaxrbd.constraints.kinds.distance import distance
from jaxrbd.constraints.kinds.frames import connect, hinge, weld
from jaxrbd.constraints.kinds.linear import linear
from jaxrbd.constraints.kinds.placing import Baumgarte, matrix
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System
from jaxrbd.typing import Numbers


def of_model(
    sys: System, mimics: bool = True, *, weight: Numbers = 1.0, baumgarte: Baumgarte | None = None
) -> Constraints:
    """The loops and couplings that the model's file or builder declared, and its mimic joints.

    `weight` and `baumgarte` of all of them as in `weld`.
    """
    shared: dict[str, Any] = {"weight": weight, "baumgarte": baumgarte}
    t, found = sys.topology, []
    if t.clusters:
        raise ArgumentError(
            f"of_model: the loops of {sys.name!r} hold already, as part of its state. Leave the constraints "
            "out, or pass sys.tree."
        )
    for k, (name, kind, (a, b)) in enumerate(zip(t.loop_names, t.loop_kinds, t.loop_frames)):
        if not t.loop_active[k]:
            continue
        if kind == "coupling":
            other = None if a == b else sys.joint_names[b]  # MJCF couples a joint to a constant
            numbers = sys.loop_coefficients[k] if other else sys.loop_coefficients[k, :1]
            found.append(coupling(sys, sys.joint_names[a], other, polynomial=numbers, name=name, **shared))
            continue
        sides = [(matrix(sys.loop_quaternion[k, s]), sys.loop_position[k, s]) for s in (0, 1)]
        if a < 0 or t.frame_bodies[a] < 0:  # what does not move is on side B
            a, b, sides = b, a, sides[::-1]
        if a < 0:
            raise ArgumentError(f"of_model: the loop {name!r} ties the world to itself. Remove it.")
        frame, to = sys.frame_names[a], None if b < 0 else sys.frame_names[b]
        more: dict[str, Any] = {"offset": sides[0], "anchor": sides[1], "name": name, **shared}
        if kind == "distance":
            found.append(distance(sys, frame, to, length=sys.loop_coefficients[k, 0], **more))
        else:
            make = {"connect": connect, "weld": weld, "hinge": hinge}[kind]
            found.append(make(sys, frame, to, **more))
    for k, (joint, leader) in enumerate(t.mimics if mimics else ()):
        line = [sys.mimic_offset[k], sys.mimic_ratio[k]]
        follower, leads = sys.joint_names[joint], sys.joint_names[leader]
        found.append(coupling(sys, follower, leads, polynomial=line, name=f"{follower} mimics", **shared))
    at = 0
    for k, (name, joints) in enumerate(zip(t.linear_names, t.linear_joints)):
        numbers = sys.linear_coefficients[at : at + len(joints)]
        at += len(joints)
        found.append(
            linear(
                sys,
                {sys.joint_names[j]: c for j, c in zip(joints, numbers)},
                offset=sys.linear_offset[k],
                name=name,
                **shared,
            )
        )
    if not found:
        raise ArgumentError(f"of_model: {sys.name!r} declares no active loop, coupling or mimic joint.")
    return combine(*found)
