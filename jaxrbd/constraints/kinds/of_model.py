"""The constraints that a file or a builder declared."""

from __future__ import annotations

from jaxrbd.constraints.data import Constraints, combine
from jaxrbd.constraints.kinds.coupling import coupling
from jaxrbd.constraints.kinds.distance import distance
from jaxrbd.constraints.kinds.frames import connect, hinge, weld
from jaxrbd.constraints.kinds.placing import matrix
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System


def of_model(sys: System, mimics: bool = True, *, weight=1.0, baumgarte=None) -> Constraints:
    """The loops and couplings that the model's file or builder declared, and its mimic joints.

    `weight` and `baumgarte` of all of them as in `weld`.
    """
    shared = {"weight": weight, "baumgarte": baumgarte}
    t, found = sys.topology, []
    for k, (name, kind, (a, b)) in enumerate(zip(t.loop_names, t.loop_kinds, t.loop_frames)):
        if not t.loop_active[k]:
            continue
        if kind == "coupling":
            leader = None if a == b else sys.joint_names[b]  # MJCF couples a joint to a constant
            numbers = sys.loop_coefficients[k] if leader else sys.loop_coefficients[k, :1]
            found.append(coupling(sys, sys.joint_names[a], leader, polynomial=numbers, name=name, **shared))
            continue
        sides = [(matrix(sys.loop_quaternion[k, s]), sys.loop_position[k, s]) for s in (0, 1)]
        if a < 0 or t.frame_bodies[a] < 0:  # what does not move is on side B
            a, b, sides = b, a, sides[::-1]
        frame, to = (None if f < 0 else sys.frame_names[f] for f in (a, b))
        more = {"offset": sides[0], "anchor": sides[1], "name": name, **shared}
        if kind == "distance":
            found.append(distance(sys, frame, to, length=sys.loop_coefficients[k, 0], **more))
        else:
            make = {"connect": connect, "weld": weld, "hinge": hinge}[kind]
            found.append(make(sys, frame, to, **more))
    for k, (joint, leader) in enumerate(t.mimics if mimics else ()):
        numbers = [sys.mimic_offset[k], sys.mimic_ratio[k]]
        names = sys.joint_names[joint], sys.joint_names[leader]
        found.append(coupling(sys, *names, polynomial=numbers, name=f"{names[0]} mimics", **shared))
    if not found:
        raise ArgumentError(f"of_model: {sys.name!r} declares no active loop, coupling or mimic joint.")
    return combine(*found)
