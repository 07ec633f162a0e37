"""Robots with geared joints, belts and differentials, after [GRBDA] Fig. 8.

As in `loops` they are open trees with relations as data, and rotors stand on the body of their motor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrbd.model.builder import Builder
from jaxrbd.model.description import Description, Pose, Shape
from jaxrbd.model.zoo.loops import RATIO, X, Y, Z, _rotor
from jaxrbd.typing import Numbers

SIDES = ((1, "left"), (-1, "right"))


def mini_cheetah() -> Description:
    """8.9 kg, 12 joints with rotors and a free base "root"; legs FL, FR, RL, RR of abad, hip and knee.

    Masses, lengths, ratios and rotors after the published model of the MIT Mini Cheetah (Katz, Di Carlo and
    Kim); links are solids. Frames "FL_foot"… are the centres of the spherical feet.
    """
    thigh, shank, foot = 0.209, 0.195, 0.0175
    b = Builder("mini_cheetah").ground()
    b.body("trunk", 3.3, shapes=[b.box(0.33, 0.2, 0.1)])
    b.joint("root", "free", None, "trunk")
    tilt = 0.8  # thigh forward, shank back so that the foot is below the hip
    bend = np.arcsin(thigh / shank * np.sin(tilt))
    home: dict[str, float] = {}
    for leg in ("FL", "FR", "RL", "RR"):
        front, left = (1 if leg[0] == "F" else -1), (1 if leg[1] == "L" else -1)
        links = (  # parent, place, axis, mass, shape, range, ratio, place of the rotor
            ("abad", "trunk", (0.19 * front, 0.049 * left, 0), X, 0.54, b.sphere(0.05, (0, 0.036 * left, 0)),
             (-1.0, 1.0), 6.0, (0.14 * front, 0.049 * left, 0)),
            ("hip", f"{leg}_abad", (0, 0.062 * left, 0), Y, 0.634,
             b.capsule_between(0.03, (0, 0.016 * left, 0), (0, 0.016 * left, -thigh + 0.03)),
             (-2.0, 2.5), 6.0, (0, 0.04 * left, 0)),
            ("knee", f"{leg}_hip", (0, 0, -thigh), Y, 0.064,
             b.capsule_between(0.01, (0, 0, 0), (0, 0, -shank)),
             (-2.7, 2.7), 9.33, (0, 0, 0)),
        )  # fmt: skip
        for part, parent, xyz, axis, mass, shape, limits, ratio, place in links:
            name = f"{leg}_{part}"
            ball = [b.sphere(foot, (0, 0, -shank), name=f"{leg}_foot")] if part == "knee" else []
            b.body(name, mass, shapes=[shape, *ball])
            b.joint(name, "revolute", parent, name, xyz, axis=axis, limits=limits, damping=0.01)
            _rotor(b, name, parent, place, axis, {name: ratio}, effort=3.0)
        b.frame(f"{leg}_foot", f"{leg}_knee", (0, 0, -shank))
        home |= {f"{leg}_hip": tilt, f"{leg}_knee": -tilt - bend}
    _stand(b, home, thigh * np.cos(tilt) + shank * np.cos(bend) + foot)
    return b.description()


def mit_humanoid() -> Description:
    """27 kg, 18 joints with rotors and a free base "root": legs of 5 joints, arms of 4.

    The belts of knee and ankle run in parallel from two motors on the thigh, with a ratio of 12 in all.
    Masses, lengths and ratios after the published model of the MIT Humanoid (Chignoli et al.), rounded; its
    hip axes, which are inclined, stand upright here, and the rotors are plausible. Frames "left_sole"
    and "right_sole".
    """
    b = Builder("mit_humanoid").ground()
    b.body("torso", 8.52, shapes=[b.box(0.1, 0.2, 0.3, (0.01, 0, 0.1))])
    b.joint("root", "free", None, "torso")
    home: dict[str, float] = {}
    for side, word in SIDES:
        leg = _Limb(b, word, side)
        for name, parent, xyz, axis, mass, shape, limits, place in (
            ("hip_yaw", "torso", (-0.006, 0.082, -0.057), Z, 0.85, b.sphere(0.05, (-0.06, 0, -0.06)),
             (-0.7, 0.7), (-0.008, 0.082, -0.042)),
            ("hip_roll", "hip_yaw", (-0.064, 0, -0.075), X, 1.21, b.sphere(0.055, (0.067, 0, 0)),
             (-0.3, 0.8), (-0.083, 0, -0.066)),
            ("hip_pitch", "hip_roll", (0.071, 0, 0), Y, 2.64,
             b.capsule_between(0.05, (0.01, 0, -0.03), (0.01, 0, -0.2)),
             (-1.9, 0.9), (0.071, -0.024, 0)),
        ):  # fmt: skip
            leg.link(name, parent, xyz, axis, mass, shape, limits)
            leg.rotor(name, parent, place, axis, {name: RATIO}, mass=0.2)
        _shank_and_foot(leg, "hip_pitch", 0.267, 0.2785, 0.35)
        leg.rotor("knee", "hip_pitch", (0.013, 0.05, -0.018), Y, {"knee": 2 * RATIO}, mass=0.2)
        leg.rotor("ankle", "hip_pitch", (0, 0, 0), Y, {"knee": 2 * RATIO, "ankle": 2 * RATIO})
        home |= {f"{word}_{j}": q for j, q in _crouch(0.267, 0.2785).items()} | {f"{word}_elbow": -0.6}
        _arm(b, word, side, (0.013, 0.176, 0.247))
    _stand(b, home, 0.057 + 0.075 + _reach(0.267, 0.2785) + 0.041)
    return b.description()


def tello() -> Description:
    """17 kg, 18 joints, 18 motors and a free base "root": legs of 5 joints with differentials, arms of 4.

    Two motors on the thigh act on knee and ankle together: one turns by their sum, the other by their
    difference. Hip roll and pitch follow two cranks on the yaw link by rods (distance): together they pitch
    the thigh, against each other they roll it. A crank is the output of its gear, its rotor part of the
    armature. Masses and lengths of the legs after the published model of the UIUC Tello (Sim and Ramos),
    rounded; the rods are plausible, and the arms are the MIT Humanoid's. Frames "left_sole", "right_sole".
    """
    b = Builder("tello").ground()
    b.body("torso", 2.3, shapes=[b.box(0.1, 0.3, 0.2)])
    b.joint("root", "free", None, "torso")
    thigh, shank, drop, arm = 0.2268, 0.26, 0.1425, 0.05
    home: dict[str, float] = {}
    for side, word in SIDES:
        leg = _Limb(b, word, side)
        leg.link("hip_yaw", "torso", (0, 0.126, -0.087), Z, 1.33, b.sphere(0.06), (-0.7, 0.7))
        leg.rotor("hip_yaw", "torso", (0, 0.126, -0.026), Z, {"hip_yaw": RATIO})
        leg.link("hip_roll", "hip_yaw", (0, 0, -drop), X, 0.44, b.sphere(0.05, (0, 0, 0.026)), (-0.4, 0.4))
        shape = b.capsule_between(0.05, (0, 0, 0), (0, 0, -0.1))
        leg.link("hip_pitch", "hip_roll", (0, 0, 0), Y, 1.54, shape, (-1.2, 0.8))
        for hand, name in ((1, "outer"), (-1, "inner")):
            at = (0, arm * hand, 0)
            bar = b.capsule_between(0.008, (0, 0, 0), (arm, 0, 0))
            leg.link(f"hip_{name}", "hip_yaw", at, Y, 0.12, bar, (-1.3, 1.3), RATIO**2 * 5e-5, 20.0)
            tips = (Pose(p=np.array((arm, 0, 0))), Pose(p=np.array((arm, arm * hand * side, 0))))
            ends = f"{word}_hip_{name}", f"{word}_hip_pitch"
            b.loop(f"{word}_{name}_rod", "distance", *ends, *tips, coefficients=(drop,))
        _shank_and_foot(leg, "hip_pitch", thigh, shank, 0.31)
        leg.rotor("knee", "hip_pitch", (0, 0.027, 0), Y, {"knee": RATIO, "ankle": RATIO})
        leg.rotor("ankle", "hip_pitch", (0, -0.027, 0), Y, {"knee": RATIO, "ankle": -RATIO})
        pose = _crouch(thigh, shank)
        pose |= dict.fromkeys(("hip_outer", "hip_inner"), pose["hip_pitch"]) | {"elbow": -0.6}
        home |= {f"{word}_{j}": q for j, q in pose.items()}
        _arm(b, word, side, (0, 0.17, 0.08))
    _stand(b, home, 0.087 + drop + _reach(thigh, shank) + 0.041)
    return b.description()


# joint: parent, place, axis, mass of its link, length and radius of the link, range; as on the left side


JVRC1_TRUNK = (
    ("waist_yaw", "pelvis", (0, 0, 0.192), Z, 1.0, 0.0, 0.05, (-0.78, 0.78)),
    ("waist_pitch", "waist_yaw", (0, 0, 0), Y, 1.0, 0.0, 0.05, (-0.44, 0.87)),
    ("waist_roll", "waist_pitch", (0, 0, 0), X, 10.0, 0.4, 0.1, (-0.26, 0.26)),
    ("neck_yaw", "waist_roll", (0, 0, 0.453), Z, 0.5, 0.0, 0.035, (-1.22, 1.22)),
    ("neck_roll", "neck_yaw", (0, 0, 0), X, 0.5, 0.0, 0.035, (-0.7, 0.7)),
    ("neck_pitch", "neck_roll", (0, 0, 0), Y, 2.0, 0.2, 0.08, (-0.7, 0.87)),
)


JVRC1_LEG = (
    ("hip_pitch", "pelvis", (0, 0.096, 0), Y, 1.0, 0.0, 0.05, (-2.0, 0.7)),
    ("hip_roll", "hip_pitch", (0, 0, 0), X, 1.0, 0.0, 0.05, (-0.35, 0.61)),
    ("hip_yaw", "hip_roll", (0, 0, 0), Z, 3.0, -0.389, 0.06, (-0.7, 1.05)),
    ("knee", "hip_yaw", (0, 0, -0.389), Y, 3.0, -0.357, 0.05, (0.0, 2.5)),
    ("ankle_roll", "knee", (0, 0, -0.357), X, 1.0, 0.0, 0.035, (-0.8, 0.7)),
    ("ankle_pitch", "ankle_roll", (0, 0, 0), Y, 1.5, 0.0, 0.0, (-1.2, 0.7)),
)

JVRC1_ARM = (
    ("shoulder_pitch", "waist_roll", (0, 0.24, 0.33), Y, 1.0, 0.0, 0.05, (-3.0, 1.0)),
    ("shoulder_roll", "shoulder_pitch", (0, 0, 0), X, 1.0, 0.0, 0.05, (-0.17, 1.7)),
    ("shoulder_yaw", "shoulder_roll", (0, 0, 0), Z, 2.0, -0.305, 0.045, (-1.6, 1.6)),
    ("elbow_pitch", "shoulder_yaw", (0, 0, -0.305), Y, 1.0, -0.239, 0.04, (-2.4, 0.05)),
    ("elbow_yaw", "elbow_pitch", (0, 0, -0.239), Z, 1.0, 0.0, 0.035, (-1.6, 1.6)),
    ("wrist_roll", "elbow_yaw", (0, 0, 0), X, 0.5, 0.0, 0.03, (-0.9, 0.9)),
    ("wrist_yaw", "wrist_roll", (0, 0, 0), Z, 0.5, -0.12, 0.02, (-0.9, 0.9)),
)


def jvrc1(ratio: float = 50.0) -> Description:
    """A humanoid of 1.7 m, 32 joints and a free base "root": legs of 6, waist 3, neck 3, arms of 7.

    The 25 joints of legs, waist and arms have rotors; neck and wrists are driven directly. Joint order,
    masses and lengths after the published JVRC-1, with links as solids; rotors and ratio are plausible.
    Frames "left_sole", "right_sole".
    """
    b = Builder("jvrc1").ground()
    b.body("pelvis", 10.0, shapes=[b.box(0.2, 0.25, 0.15, (-0.01, 0, 0.034))])
    b.joint("root", "free", None, "pelvis")
    home: dict[str, float] = {}
    limbs = [
        ("", 1, JVRC1_TRUNK),
        *((word, side, rows) for side, word in SIDES for rows in (JVRC1_LEG, JVRC1_ARM)),
    ]
    for word, side, rows in limbs:
        limb = _Limb(b, word, side)
        for name, parent, xyz, axis, mass, length, radius, limits in rows:
            if name == "ankle_pitch":
                shape = b.box(0.22, 0.1, 0.04, (0.03, 0, -0.075))
            else:
                shape = b.capsule_between(radius, (0, 0, 0), (0, 0, length))
            limb.link(name, parent, xyz, axis, mass, shape, limits)
            if name.startswith(("neck", "wrist")):
                joint = f"{word}_{name}".lstrip("_")
                b.actuator(joint, limits=10.0, control_range=10.0)
            else:
                limb.rotor(name, parent, xyz, axis, {name: ratio}, mass=0.15, radius=0.02, effort=3.0)
        if rows is JVRC1_LEG:
            b.frame(f"{word}_sole", f"{word}_ankle_pitch", (0.03, 0, -0.095))
            pose = _crouch(0.389, 0.357, "ankle_pitch")
        else:
            pose = {"elbow_pitch": -0.5, "shoulder_roll": 0.15 * side} if word else {}
        home |= {f"{word}_{j}": q for j, q in pose.items()}
    _stand(b, home, _reach(0.389, 0.357) + 0.095)
    return b.description()


class _Limb:
    """Links and rotors of one side: y is mirrored on the right, and so are the ranges of roll and yaw."""

    def __init__(self, b: Builder, word: str, side: int):
        self.b, self.word, self.side = b, word, side
        self.names: dict[str, str] = {}

    def name(self, key: str) -> str:
        return self.names.get(key, key)

    def link(
        self,
        key: str,
        parent: str,
        xyz: Numbers,
        axis: Numbers,
        mass: float,
        shape: Shape,
        limits: tuple[float, float],
        armature: float = 0.0,
        effort: float | None = None,
    ) -> None:
        """A link with a joint of the same name; with `effort`, a motor on it."""
        name = f"{self.word}_{key}".lstrip("_")
        if self.side < 0 and not np.asarray(axis)[1]:
            limits = (-limits[1], -limits[0])
        self.b.body(name, mass, shapes=[shape])
        options: dict[str, Any] = {"limits": limits, "damping": 0.05, "armature": armature}
        self.b.joint(name, "revolute", self.name(parent), name, self.mirrored(xyz), axis=axis, **options)
        self.names[key] = name
        if effort is not None:
            self.b.actuator(name, limits=effort, control_range=effort)

    def rotor(
        self, key: str, parent: str, xyz: Numbers, axis: Numbers, terms: Mapping[str, float], **options: Any
    ) -> None:
        """A rotor "<key>_rotor" on `parent`, which turns by the sum of `terms` (joint: ratio)."""
        names = {self.name(joint): ratio for joint, ratio in terms.items()}
        _rotor(self.b, self.name(key), self.name(parent), self.mirrored(xyz), axis, names, **options)

    def mirrored(self, xyz: Numbers) -> np.ndarray:
        return np.asarray(xyz, float) * (1, self.side, 1)


def _shank_and_foot(leg: _Limb, thigh: str, knee: float, ankle: float, mass: float) -> None:
    """Knee and ankle of a small humanoid; the sole is 41 mm below the ankle."""
    b = leg.b
    shape = b.capsule_between(0.02, (0, 0, 0), (0, 0, -ankle))
    leg.link("knee", thigh, (0, 0, -knee), Y, mass, shape, (0.0, 2.3))
    foot = b.box(0.15, 0.05, 0.02, (0.025, 0, -0.031))
    leg.link("ankle", "knee", (0, 0, -ankle), Y, 0.28, foot, (-1.3, 0.9))
    b.frame(f"{leg.word}_sole", leg.name("ankle"), (0.025, 0, -0.041))


def _arm(b: Builder, word: str, side: int, shoulder: Numbers) -> None:
    """The MIT Humanoid's arm on the torso."""
    arm = _Limb(b, word, side)
    for name, parent, xyz, axis, mass, shape, limits, ratio in (
        ("shoulder_pitch", "torso", shoulder, Y, 0.79, b.sphere(0.045), (-2.8, 1.2), 6.0),
        ("shoulder_roll", "shoulder_pitch", (0, 0.0575, 0), X, 0.8, b.sphere(0.05, (0, 0, -0.08)),
         (-0.2, 2.8), 6.0),
        ("shoulder_yaw", "shoulder_roll", (0, 0, -0.1025), Z, 0.91,
         b.capsule_between(0.04, (0, 0, 0), (0, 0, -0.12)), (-1.5, 1.5), 6.0),
        ("elbow", "shoulder_yaw", (0, 0, -0.1455), Y, 0.35,
         b.capsule_between(0.02, (0, 0, 0), (0, 0, -0.25)), (-2.3, 0.0), 9.0),
    ):  # fmt: skip
        arm.link(name, parent, xyz, axis, mass, shape, limits)
        arm.rotor(name, parent, xyz, axis, {name: ratio})


def _tilts(thigh: float, shank: float) -> tuple[float, float]:
    """A bent leg whose ankle is below its hip: how far the thigh tilts forward and the shank back."""
    return 0.4, float(np.arcsin(thigh / shank * np.sin(0.4)))


def _crouch(thigh: float, shank: float, ankle: str = "ankle") -> dict[str, float]:
    a, c = _tilts(thigh, shank)
    return {"hip_pitch": -a, "knee": a + c, ankle: -c}


def _reach(thigh: float, shank: float) -> float:
    a, c = _tilts(thigh, shank)
    return float(thigh * np.cos(a) + shank * np.cos(c))


def _stand(b: Builder, joints: Mapping[str, float], height: float) -> None:
    """Keyframe "home": the root at `height`, the rotors where their gears put them."""
    q: dict[str, Numbers] = {"root": (0, 0, height, 1, 0, 0, 0), **joints}
    for gear in b.description().linear:
        rotor, *others = gear.joints
        q[rotor] = -sum(c * joints.get(j, 0.0) for j, c in zip(others, gear.coefficients[1:]))
    b.keyframe("home", q)
