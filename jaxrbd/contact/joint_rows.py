"""Rows of one freedom each that something beside the System brings into a step's dual problem.

Joints in maximal coordinates are no freedoms of their System: their limits, dry friction, armature, dampers
and servos come this way. `HardContact(joints=f)` asks f(sys, q, v, dt) for them at the start of a step.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxrbd.constraints.data import Constraints
from jaxrbd.typing import Array


class JointRows(NamedTuple):
    """With λ the impulses and w⁺ = J u⁺ the rates after the step:

        soft    w⁺ + R λ = target
        limits  0 ≤ λ ⟂ w⁺ + what the gap allows ≥ 0
        boxes   the same as soft rows, where |λ| ≤ dt bound

    `compliance` R and `target` are those of the soft rows, then of the boxes. `force` acts on the freedoms of
    the System during the step.
    """

    soft: Constraints | None
    limits: Constraints | None
    boxes: Constraints | None
    compliance: Array
    target: Array
    gap: Array  # of the limits
    bound: Array  # of the boxes, forces
    force: Array  # (nv,)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Soft rows, limits, boxes."""
        soft, limits, boxes = (0 if x is None else x.rows for x in (self.soft, self.limits, self.boxes))
        return soft, limits, boxes
