"""A seven-joint arm of the size of a KUKA LBR iiwa 7: 1.27 m tall when stretched, 24 kg, 0.8 m reach.

Segment lengths, joint ranges, torques and speeds are the published ones of that class of arm; links are
solid capsules, which brings the inertias to the right size.
"""

from __future__ import annotations

import numpy as np

from jaxrbd.model.builder import Builder
from jaxrbd.model.description import Description

# mass [kg], length to the next axis [m], radius [m]; joint axis, range [deg], torque [N m], speed [deg/s]
LINKS = (
    (4.0, 0.19, 0.068, (0, 0, 1), 170, 176, 98),
    (4.0, 0.20, 0.068, (0, 1, 0), 120, 176, 98),
    (3.2, 0.20, 0.060, (0, 0, 1), 170, 110, 100),
    (3.0, 0.20, 0.060, (0, -1, 0), 120, 110, 130),
    (2.2, 0.20, 0.055, (0, 0, 1), 170, 110, 140),
    (2.0, 0.08, 0.055, (0, 1, 0), 120, 40, 180),
    (0.6, 0.046, 0.040, (0, 0, 1), 175, 40, 180),
)
BASE_MASS, BASE_HEIGHT = 5.0, 0.15


def arm7(actuation: str = "torque", kp: float = 300.0, kd: float = 30.0) -> Description:
    """The arm on a fixed base, pointing up at q = 0; frames "tool" and "elbow", keyframes "home" and "up".

    `actuation` is "torque", "position" (gains kp, kd), "velocity" (gain kd) or "none".
    """
    b = Builder("arm7").ground()
    b.body("base", BASE_MASS, shapes=[b.cylinder(0.09, BASE_HEIGHT, (0, 0, BASE_HEIGHT / 2))])
    b.joint("mount", "fixed", None, "base")
    parent, height = "base", BASE_HEIGHT
    for i, (mass, length, radius, axis, reach, torque, speed) in enumerate(LINKS, 1):
        b.body(f"link{i}", mass, shapes=[b.capsule_between(radius, (0, 0, 0), (0, 0, length))])
        b.joint(
            f"joint{i}",
            "revolute",
            parent,
            f"link{i}",
            (0, 0, height),
            axis=axis,
            limits=np.deg2rad((-reach, reach)),
            effort=torque,
            velocity=np.deg2rad(speed),
            damping=0.5,
            friction=0.2,
            armature=0.1 if i < 6 else 0.03,
        )
        parent, height = f"link{i}", length
    b.frame("elbow", "link4").frame("tool", "link7", (0, 0, LINKS[-1][1]))
    drive(b, [f"joint{i}" for i in range(1, 8)], actuation, kp, kd)
    home = {"joint2": 0.5, "joint4": -1.4, "joint6": 1.2}
    target = [home.get(f"joint{i}", 0.0) for i in range(1, 8)] if actuation == "position" else None
    b.keyframe("home", home, u=target)
    b.keyframe("up", {})
    return b.description()


def drive(b: Builder, joints, actuation: str, kp: float, kd: float) -> None:
    """One actuator per joint, its force limited as the joint's effort is."""
    if actuation == "none":
        return
    for name in joints:
        effort = b.joint_named(name).effort_limit
        control = effort if actuation == "torque" else np.inf
        b.actuator(name, actuation, kp=kp, kd=kd, limits=effort, control_range=control)
