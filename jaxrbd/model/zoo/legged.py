"""Robots on legs with a free base: a quadruped of the size of a Unitree Go2 and a human-sized humanoid.

Both have a ground plane, limits, actuators, foot frames, and a keyframe "home" in which they stand: the
feet touch z = 0 and the centre of mass is above them.
"""

from __future__ import annotations

import numpy as np

from jaxrbd.model.builder import Builder
from jaxrbd.model.description import Description
from jaxrbd.model.zoo.arm import drive
from jaxrbd.typing import Numbers


def quadruped(actuation: str = "torque", kp: float = 40.0, kd: float = 1.0) -> Description:
    """15 kg, 12 joints and a free base "root"; legs FL, FR, RL, RR of hip (abduction), thigh and calf.

    Frames "FL_foot"… are the centres of the spherical feet.
    """
    thigh, calf, foot = 0.213, 0.213, 0.022
    b = Builder("quadruped").ground()
    b.body("trunk", 6.9, shapes=[b.box(0.376, 0.094, 0.114)])
    b.joint("root", "free", None, "trunk")
    motors = []
    for leg in ("FL", "FR", "RL", "RR"):
        front, left = (1 if leg[0] == "F" else -1), (1 if leg[1] == "L" else -1)
        b.body(f"{leg}_hip", 0.68, shapes=[b.cylinder(0.046, 0.06, (0, 0.03 * left, 0), (np.pi / 2, 0, 0))])
        b.body(f"{leg}_thigh", 1.15, shapes=[b.box(0.034, 0.0245, thigh, (0, 0, -thigh / 2))])
        shin = b.capsule_between(0.012, (0, 0, 0), (0, 0, -calf))
        b.body(f"{leg}_calf", 0.2, shapes=[shin, b.sphere(foot, (0, 0, -calf), name=f"{leg}_foot")])
        joints = (
            ("hip", "trunk", (0.193 * front, 0.047 * left, 0), (1, 0, 0), (-1.05, 1.05), 23.7, 30.1),
            ("thigh", f"{leg}_hip", (0, 0.0955 * left, 0), (0, 1, 0), (-1.57, 3.49), 23.7, 30.1),
            ("calf", f"{leg}_thigh", (0, 0, -thigh), (0, 1, 0), (-2.72, -0.84), 45.4, 15.7),
        )
        for part, parent, xyz, axis, limits, effort, speed in joints:
            motors.append(f"{leg}_{part}")
            b.joint(
                motors[-1],
                "revolute",
                parent,
                f"{leg}_{part}",
                xyz,
                axis=axis,
                limits=limits,
                effort=effort,
                velocity=speed,
                damping=0.1,
                friction=0.2,
                armature=0.01,
            )
        b.frame(f"{leg}_foot", f"{leg}_calf", (0, 0, -calf))
    drive(b, motors, actuation, kp, kd)
    bend = 0.9  # thigh forward, calf back by twice as much: the foot is below the hip
    pose = {"hip": 0.0, "thigh": bend, "calf": -2 * bend}
    home = {name: pose[name.split("_")[1]] for name in motors}
    _standing(b, home, (thigh + calf) * np.cos(bend) + foot, actuation)
    return b.description()


# joint: axis, range [rad], torque [N m] and armature for a body of 65 kg; as seen on the left side
LEG = (
    ("hip_yaw", (0, 0, 1), (-0.8, 0.8), 90, 0.05),
    ("hip_roll", (1, 0, 0), (-0.4, 0.9), 140, 0.08),
    ("hip_pitch", (0, 1, 0), (-2.2, 0.8), 180, 0.10),
    ("knee", (0, 1, 0), (0.0, 2.4), 220, 0.10),
    ("ankle_pitch", (0, 1, 0), (-0.9, 0.7), 120, 0.05),
    ("ankle_roll", (1, 0, 0), (-0.4, 0.4), 50, 0.02),
)
ARM = (
    ("shoulder_pitch", (0, 1, 0), (-3.0, 1.2), 70, 0.03),
    ("shoulder_roll", (1, 0, 0), (-0.3, 2.8), 70, 0.03),
    ("shoulder_yaw", (0, 0, 1), (-1.6, 1.6), 50, 0.02),
    ("elbow", (0, 1, 0), (-2.4, 0.0), 50, 0.02),
    ("wrist_yaw", (0, 0, 1), (-1.6, 1.6), 15, 0.005),
    ("wrist_roll", (1, 0, 0), (-0.8, 0.8), 10, 0.005),
    ("wrist_pitch", (0, 1, 0), (-1.2, 1.2), 10, 0.005),
)


# finger: place on the palm and lengths of its links as parts of the height, joint axes along it
FINGERS = {
    "thumb": ((0.008, 0.014, -0.03), (0, 0.012, 0, 0.022, 0.018), "zxxyy"),
    "index": ((0.0, 0.015, -0.085), (0, 0.026, 0.015, 0.014), "xyyy"),
    "middle": ((0.0, 0.005, -0.085), (0, 0.028, 0.016, 0.014), "xyyy"),
    "ring": ((0.0, -0.005, -0.085), (0, 0.026, 0.015, 0.014), "xyyy"),
    "little": ((0.0, -0.015, -0.05), (0.03, 0, 0.022, 0.013, 0.012), "xxyyy"),
}


def humanoid(
    height: float = 1.7,
    mass: float = 65.0,
    actuation: str = "torque",
    kp: float = 200.0,
    kd: float = 10.0,
    hands: bool = False,
) -> Description:
    """31 joints and a free base "root": legs of 6, waist 3, arms 7 each, head 2.

    With `hands`, five fingers on each hand: 44 joints more, and frames "left_thumb_tip" and so on.

    Segment lengths and masses follow the human proportions of Winter's tables (thigh 0.245 and shank 0.246
    of the height; trunk half of the mass). Links between the axes of one anatomical joint are motors.
    Frames "left_sole", "right_sole", "left_palm", "right_palm" and "eyes".
    """
    h, m = height, mass
    b = Builder("humanoid").ground()
    motors: list[str] = []

    def part(name, fraction, parent, shape, xyz, joint, side=0):
        key, axis, (low, high), effort, armature = joint
        if side < 0 and not axis[1]:  # roll and yaw are mirrored
            low, high = -high, -low
        b.body(name, fraction * m, shapes=[shape])
        name_of_joint = f"{('right_', '', 'left_')[side + 1]}{key}"
        scale = m / 65.0
        b.joint(
            name_of_joint,
            "revolute",
            parent,
            name,
            xyz,
            axis=axis,
            limits=(low, high),
            effort=effort * scale,
            velocity=12.0,
            damping=0.5,
            friction=0.2,
            armature=armature * scale,
        )
        motors.append(name_of_joint)
        return name

    def motor(radius=0.024):
        return b.sphere(radius * h)

    def limb(radius, length):
        return b.capsule_between(radius * h, (0, 0, -radius * h), (0, 0, -(length - radius) * h))

    b.body("pelvis", 0.11 * m, shapes=[b.box(0.09 * h, 0.15 * h, 0.08 * h)])
    b.joint("root", "free", None, "pelvis")
    trunk = part(
        "waist_a", 0.01, "pelvis", motor(), (0, 0, 0.04 * h), ("waist_yaw", (0, 0, 1), (-1.2, 1.2), 120, 0.06)
    )
    trunk = part(
        "waist_b", 0.01, trunk, motor(), (0, 0, 0), ("waist_roll", (1, 0, 0), (-0.5, 0.5), 120, 0.06)
    )
    chest = b.box(0.11 * h, 0.17 * h, 0.24 * h, (0, 0, 0.15 * h))
    trunk = part("torso", 0.326, trunk, chest, (0, 0, 0), ("waist_pitch", (0, 1, 0), (-0.4, 1.0), 160, 0.08))
    neck = part(
        "neck", 0.006, trunk, motor(0.015), (0, 0, 0.3 * h), ("head_yaw", (0, 0, 1), (-1.3, 1.3), 12, 0.005)
    )
    skull = b.ellipsoid(0.05 * h, 0.043 * h, 0.065 * h, (0.01 * h, 0, 0.07 * h))
    head = part("head", 0.075, neck, skull, (0, 0, 0), ("head_pitch", (0, 1, 0), (-0.6, 0.8), 12, 0.005))
    b.frame("eyes", head, (0.06 * h, 0, 0.08 * h))

    for side, word in ((1, "left"), (-1, "right")):
        foot = b.box(0.15 * h, 0.055 * h, 0.02 * h, (0.03 * h, 0, -0.029 * h))
        leg = (
            ("hip_a", 0.01, motor(), (0, 0.055 * h * side, -0.04 * h)),
            ("hip_b", 0.01, motor(), (0, 0, 0)),
            ("thigh", 0.095, limb(0.04, 0.245), (0, 0, 0)),
            ("shank", 0.045, limb(0.028, 0.246), (0, 0, -0.245 * h)),
            ("ankle", 0.004, motor(0.015), (0, 0, -0.246 * h)),
            ("foot", 0.0125, foot, (0, 0, 0)),
        )
        arm = (
            ("shoulder_a", 0.006, motor(0.02), (0, 0.105 * h * side, 0.24 * h)),
            ("shoulder_b", 0.006, motor(0.02), (0, 0, 0)),
            ("upper_arm", 0.02, limb(0.025, 0.172), (0, 0, 0)),
            ("elbow", 0.008, limb(0.022, 0.073), (0, 0, -0.172 * h)),
            ("forearm", 0.008, limb(0.018, 0.073), (0, 0, -0.073 * h)),
            ("wrist", 0.002, motor(0.012), (0, 0, -0.073 * h)),
            ("hand", 0.005, b.box(0.02 * h, 0.04 * h, 0.07 * h, (0, 0, -0.05 * h)), (0, 0, 0)),
        )
        for parent, links, joints in (("pelvis", leg, LEG), ("torso", arm, ARM)):
            for (name, fraction, shape, xyz), joint in zip(links, joints):
                parent = part(f"{word}_{name}", fraction, parent, shape, xyz, joint, side)
        b.frame(f"{word}_sole", f"{word}_foot", (0.03 * h, 0, -0.039 * h))
        b.frame(f"{word}_palm", f"{word}_hand", (0, 0, -0.05 * h))
        for finger, (place, lengths, axes) in FINGERS.items() if hands else ():
            parent = f"{word}_hand"
            at: tuple[float, float, float] = (place[0] * h, place[1] * h * side, place[2] * h)
            for k, (length, axis) in enumerate(zip(lengths, axes)):
                bend = (finger + f"_{k + 1}", {"x": (1, 0, 0), "y": (0, 1, 0), "z": (0, 0, 1)}[axis])
                shape = b.capsule_between(0.004 * h, (0, 0, 0), (0, 0, -max(length, 0.004) * h))
                joint = (*bend, (-0.4, 0.4) if axis == "x" else (-1.6, 0.2), 2, 1e-4)
                name = f"{word}_{finger}_{k + 1}"
                parent = part(name, 0.0001 + 0.01 * length, parent, shape, at, joint, side)
                at = (0, 0, -length * h)
            b.frame(f"{word}_{finger}_tip", parent, at)

    drive(b, motors, actuation, kp, kd)
    thigh, shank = (
        0.25,
        0.35,
    )  # tilts: knees bent, away from the singular straight leg; hips ahead of the ankles
    pose = {
        "hip_pitch": -thigh,
        "knee": thigh + shank,
        "ankle_pitch": -shank,
        "elbow": -0.5,
        "shoulder_pitch": 0.1,
    }
    home = {name: pose.get(name.split("_", 1)[-1], 0.0) for name in motors}
    legs = 0.245 * np.cos(thigh) + 0.246 * np.cos(shank)
    _standing(b, home, (0.04 + legs + 0.039) * h, actuation)
    return b.description()


def _standing(b: Builder, joints: dict[str, float], height: float, actuation: str) -> None:
    q: dict[str, Numbers] = {"root": (0, 0, height, 1, 0, 0, 0), **joints}
    b.keyframe("home", q, u=list(joints.values()) if actuation == "position" else None)
