"""Models with kinematic loops: gears, belts, linkages, and robots that have them, after [GRBDA] Fig. 8.

They are open trees with relations as data; `rbd.cluster(sys)` makes the relations hold exactly. Linkages are
drawn in the pose q = 0, where their loops are closed. Rotors stand on the body that carries their motor and
are named like the joint they drive, with "_rotor"; motors act on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.joints.matrices import matrix_from_rpy
from jaxrbd.model.builder import Builder
from jaxrbd.model.description import Description, Pose
from jaxrbd.model.zoo.families import LINK_LENGTH, LINK_MASS, LINK_RADIUS
from jaxrbd.typing import Numbers

X, Y, Z = (1, 0, 0), (0, 1, 0), (0, 0, 1)
RATIO = 6.0  # of the planetary gears in robots of the size of the Mini Cheetah
SIDES = ((1, "left"), (-1, "right"))


def geared_chain(n: int = 12, ratio: float = RATIO) -> Description:
    """n links in series, each with a rotor on the link before that turns `ratio` times as far.

    [GRBDA] Fig. 8e. Links as in `chain`, axes alternating between y and x; the frame "tip" is at the end.
    """
    _need("geared_chain", n, n >= 1, "a positive count")
    b = Builder(f"geared_chain{n}")
    parent, xyz = None, (0.0, 0.0, 0.0)
    for i in range(n):
        axis = X if i % 2 else Y
        _chain_link(b, i, parent, xyz, axis)
        _rotor(b, f"joint{i}", parent, xyz, axis, {f"joint{i}": ratio})
        parent, xyz = f"link{i}", (0.0, 0.0, -LINK_LENGTH)
    b.frame("tip", f"link{n - 1}", xyz)
    return b.description()


def belt_chain(n: int = 12, ratio: float = RATIO) -> Description:
    """Pairs of links whose two motors stand on the body before the pair and drive them by parallel belts.

    [GRBDA] Fig. 8f. The second belt runs past the first joint: its rotor turns by ratio (q1 + q2). The axes
    of a pair are parallel and alternate between y and x from pair to pair; the frame "tip" is at the end.
    """
    _need("belt_chain", n, n >= 2 and n % 2 == 0, "a positive even count")
    b = Builder(f"belt_chain{n}")
    parent, xyz = None, (0.0, 0.0, 0.0)
    for i in range(0, n, 2):
        axis, offset = (X if i % 4 else Y), 0.05 * np.array(Y if i % 4 else X)
        _chain_link(b, i, parent, xyz, axis)
        _chain_link(b, i + 1, f"link{i}", (0.0, 0.0, -LINK_LENGTH), axis)
        pair = {f"joint{k}": ratio for k in (i, i + 1)}
        _rotor(b, f"joint{i}", parent, xyz + offset, axis, {f"joint{i}": ratio})
        _rotor(b, f"joint{i + 1}", parent, xyz - offset, axis, pair)
        parent, xyz = f"link{i + 1}", (0.0, 0.0, -LINK_LENGTH)
    b.frame("tip", f"link{n - 1}", xyz)
    return b.description()


def linkage_chain(n: int = 4, mount: str = "coupler") -> Description:
    """n planar four-bars in series, each mounted on the "coupler" or the "rocker" of the one before.

    Their planes turn by a right angle from one to the next, so that the chain moves in space. Bars are
    "crank0", "coupler0", "rocker0" and so on; motors drive the cranks.
    """
    _need("linkage_chain", n, n >= 1, "a positive count")
    if mount not in ("coupler", "rocker"):
        raise ArgumentError(f"linkage_chain: unknown mount {mount!r}. Give 'coupler' or 'rocker'.")
    b = Builder(f"linkage_chain{n}_{mount}")
    left, right, low_left, low_right = (-0.06, 0, 0), (0.06, 0, 0), (-0.04, 0, -0.1), (0.09, 0, -0.13)
    end = (0.02, 0, -0.2) if mount == "coupler" else (0.11, 0, -0.22)
    plate, arm = ([end], []) if mount == "coupler" else ([], [end])
    base, place, turn = None, np.zeros(3), 0.0
    for i in range(n):
        draw = _Linkage(b, base, place, turn)
        draw.bar(f"crank{i}", base, left, low_left, effort=20.0)
        draw.bar(f"coupler{i}", f"crank{i}", low_left, low_right, *plate)
        draw.bar(f"rocker{i}", base, right, low_right, *arm)
        draw.pin(f"pin{i}", f"coupler{i}", f"rocker{i}", low_right)
        base, turn = f"{mount}{i}", np.pi / 2
        place = draw.point(base, end)
    b.frame("tip", base, place)
    return b.description()


def four_bar() -> Description:
    """A planar crank and rocker: the crank of 6 cm can turn around; bars "crank", "coupler", "rocker"."""
    b = Builder("four_bar")
    a, c, o = (0, 0, 0.06), (0.17, 0, 0.137), (0.2, 0, 0)
    draw = _Linkage(b)
    draw.bar("crank", None, (0, 0, 0), a, effort=5.0)
    draw.bar("coupler", "crank", a, c)
    draw.bar("rocker", None, o, c)
    draw.pin("pin", "coupler", "rocker", c)
    return b.description()


def five_bar() -> Description:
    """Two driven cranks and two rods that meet at the frame "tip": a planar mechanism with 2 freedoms."""
    b = Builder("five_bar")
    tip = (0.06, 0, -0.3)
    draw = _Linkage(b)
    for side, foot, knee in (("left", 0.0, -0.06), ("right", 0.12, 0.18)):
        draw.bar(f"{side}_crank", None, (foot, 0, 0), (knee, 0, -0.13), effort=5.0)
        draw.bar(f"{side}_rod", f"{side}_crank", (knee, 0, -0.13), tip)
    draw.pin("pin", "left_rod", "right_rod", tip)
    b.frame("tip", "left_rod", draw.point("left_rod", tip))
    return b.description()


def six_bar(kind: str = "watt") -> Description:
    """Planar linkages of five moving bars. "watt": a second four-bar on the rocker of the first, 1 freedom;
    "stephenson": a rod from the coupler of a four-bar to a second rocker, 1 freedom; "loop": one loop, 3.
    """
    b = Builder(f"six_bar_{kind}")
    draw = _Linkage(b)
    if kind == "loop":
        left, top_left, top, right = (-0.08, 0, 0.12), (-0.02, 0, 0.25), (0.12, 0, 0.27), (0.2, 0, 0.13)
        draw.bar("bar1", None, (0, 0, 0), left, effort=5.0)
        draw.bar("bar2", "bar1", left, top_left, effort=5.0)
        draw.bar("bar3", "bar2", top_left, top)
        draw.bar("bar5", None, (0.14, 0, 0), right, effort=5.0)
        draw.bar("bar4", "bar5", right, top)
        draw.pin("pin", "bar3", "bar4", top)
        return b.description()
    a, c = (0.03, 0, 0.095), (0.22, 0, 0.16)
    rod: dict[str, tuple[Numbers, Numbers, Numbers]] = {  # by its carrier: its ends, the output's foot
        "rocker": ((0.33, 0, 0.1), (0.5, 0, 0.15), (0.5, 0, 0)),
        "coupler": ((0.15, 0, 0.25), (0.35, 0, 0.3), (0.4, 0, 0.08)),
    }
    if kind not in ("watt", "stephenson"):
        raise ArgumentError(f"six_bar: unknown kind {kind!r}. Give 'watt', 'stephenson' or 'loop'.")
    carrier = "rocker" if kind == "watt" else "coupler"
    start, end, output = rod[carrier]
    ends = {name: [c, start] if name == carrier else [c] for name in rod}
    draw.bar("crank", None, (0, 0, 0), a, effort=5.0)
    draw.bar("coupler", "crank", a, *ends["coupler"])
    draw.bar("rocker", None, (0.25, 0, 0), *ends["rocker"])
    draw.bar("rod", carrier, start, end)
    draw.bar("output", None, output, end)
    draw.pin("first_pin", "coupler", "rocker", c)
    draw.pin("second_pin", "rod", "output", end)
    return b.description()


def slider_crank() -> Description:
    """A piston "slider" along x, driven by a crank of 5 cm and a rod of 20 cm with a hinge at its end."""
    b = Builder("slider_crank")
    a, c = (0.03, 0, 0.04), (0.03 + 0.0384**0.5, 0, 0)
    draw = _Linkage(b)
    draw.bar("crank", None, (0, 0, 0), a, effort=5.0)
    draw.bar("rod", "crank", a, c)
    b.body("slider", 0.4, shapes=[b.box(0.05, 0.04, 0.04)])
    draw.join("slider", "prismatic", None, c, axis=X, damping=1.0)
    draw.pin("pin", "rod", "slider", c, "hinge")
    return b.description()


def rod_leg() -> Description:
    """A shin on a knee whose ankle (pitch, roll) is driven in parallel: two cranks with rods to the foot.

    A rod hangs on its crank by a universal joint and ends in a ball on the foot, so that it cannot spin about
    itself. Plausible numbers for the leg of a humanoid of 60 kg; motors on the knee and the cranks.
    """
    b = Builder("rod_leg")
    draw = _Linkage(b)
    b.body("shin", 2.5, shapes=[b.capsule_between(0.045, (0, 0, -0.05), (0, 0, -0.35))])
    draw.join("shin", "revolute", None, (0, 0, 0), axis=Y, limits=(-0.2, 2.2), effort=150.0)
    b.body("ankle", 0.2, shapes=[b.sphere(0.03)])
    draw.join("ankle", "revolute", "shin", (0, 0, -0.4), axis=Y, limits=(-0.8, 0.8))
    b.body("foot", 0.9, shapes=[b.box(0.22, 0.1, 0.03, (0.04, 0, -0.055))])
    draw.join("foot", "revolute", "ankle", (0, 0, -0.4), axis=X, limits=(-0.4, 0.4))
    for side, word in SIDES:
        pivot, tip, heel = (0, 0.055 * side, -0.15), (-0.05, 0.055 * side, -0.14), (-0.06, 0.05 * side, -0.42)
        draw.bar(f"{word}_crank", "shin", pivot, tip, effort=60.0, limits=(-1.0, 1.0), armature=0.02)
        draw.bar(f"{word}_rod", f"{word}_crank", tip, heel, type="universal", axis=Y, axis2=X)
        draw.pin(f"{word}_ball", f"{word}_rod", "foot", heel)
    b.actuator("shin", limits=150.0, control_range=150.0)
    b.frame("sole", "foot", (0.04, 0, -0.07))
    return b.description()


def cassie_leg() -> Description:
    """The left leg of a robot like Cassie on a fixed hip, standing at q = 0: 10 joints, 7 freedoms.

    Hip roll, yaw and pitch, knee, a leaf spring "shin", tarsus, a leaf spring "heel" that a rod (distance)
    ties to the thigh, and a four-bar "crank", "plantar_rod", "toe" along the tarsus. Masses, lengths and
    stiffness after the published description of Agility Robotics' Cassie, rounded; the links lie in one
    plane, and the rod has no mass.
    """
    b = Builder("cassie_leg")
    draw = _Linkage(b)
    knee, shin, tarsus = (0.09, 0, -0.08), (0.055, 0, -0.149), (-0.14, 0, -0.536)
    along, back = np.array((0.4, 0, -0.9165)), np.array((-0.9165, 0, -0.4))
    heel_tip = tarsus - np.array(knee)  # with the thigh and the shin a parallelogram
    crank = tarsus + 0.06 * along
    crank_tip = crank + 0.055 * back
    toe, toe_back = crank + 0.35 * along, crank_tip + 0.35 * along
    b.body("hip_roll", 1.82, shapes=[b.capsule_between(0.05, (0, 0, 0), (-0.07, 0, 0))])
    draw.join("hip_roll", "revolute", None, (0.07, 0, 0.09), X, limits=(-0.26, 0.35), effort=112.5)
    b.body("hip_yaw", 1.17, shapes=[b.capsule_between(0.05, (0, 0, 0), (0, 0, -0.09))])
    draw.join("hip_yaw", "revolute", "hip_roll", (0, 0, 0.09), Z, limits=(-0.38, 0.38), effort=112.5)
    b.body("hip_pitch", 5.52, shapes=[b.capsule_between(0.06, (0, 0, 0), knee)])
    draw.join("hip_pitch", "revolute", "hip_yaw", (0, 0, 0), Y, limits=(-1.0, 0.8), effort=195.2)
    draw.bar("knee", "hip_pitch", knee, shin, mass=0.76, limits=(-0.8, 0.9), effort=195.2)
    draw.bar("shin", "knee", shin, tarsus, mass=0.58, stiffness=1500.0, damping=1.0, limits=(-0.35, 0.35))
    draw.bar("tarsus", "shin", tarsus, toe, mass=0.78, limits=(-0.9, 0.8))
    draw.bar("heel", "tarsus", tarsus, heel_tip, mass=0.13, stiffness=1250.0, damping=1.0)
    draw.bar("crank", "tarsus", crank, crank_tip, mass=0.13, effort=45.0, limits=(-0.9, 0.9))
    draw.bar("plantar_rod", "crank", crank_tip, toe_back, mass=0.12)
    draw.bar("toe", "tarsus", toe, toe_back, toe + np.array((0.09, 0, -0.03)), mass=0.15)
    draw.rod("achilles_rod", "hip_pitch", (0, 0.045, 0), "heel", heel_tip)
    draw.pin("plantar_pin", "plantar_rod", "toe", toe_back)
    for name, limit in (("hip_roll", 112.5), ("hip_yaw", 112.5), ("hip_pitch", 195.2)):
        b.actuator(name, limits=limit, control_range=limit)
    return b.description()


class _Linkage:
    """Draws bars in the pose q = 0, where all frames have the same axes: points are those of the drawing.

    The drawing is put on `base` at `place`, turned about z by `turn`. Only joints on `base` see that.
    """

    def __init__(self, b: Builder, base: str | None = None, place: Numbers = (0, 0, 0), turn: float = 0.0):
        self.b, self.base, self.place, self.turn = b, base, np.asarray(place, float), turn
        self.origin: dict[str | None, np.ndarray] = {base: np.zeros(3)}

    def point(self, body: str | None, at: Numbers) -> np.ndarray:
        """A point of the drawing in the frame of one of its bodies."""
        return np.asarray(at, float) - self.origin[body]

    def join(
        self, name: str, type: str, parent: str | None, at: Numbers, axis: Numbers = Y, **options: Any
    ) -> None:
        """Let the body `name` move in `parent` about the point `at`; joint and body have one name."""
        turn = self.turn if parent == self.base else 0.0
        xyz = self.point(parent, at)
        if parent == self.base:
            xyz = matrix_from_rpy(np.array((0, 0, turn))) @ xyz + self.place
        self.b.joint(name, type, parent, name, xyz, (0, 0, turn), axis=axis, **options)
        self.origin[name] = np.asarray(at, float)

    def bar(
        self,
        name: str,
        parent: str | None,
        start: Numbers,
        *ends: Numbers,
        mass: float | None = None,
        type: str = "revolute",
        damping: float = 0.01,
        **options: Any,
    ) -> None:
        """A bar from its joint at `start` to one or more ends, of 1 kg/m; with `effort`, it has a motor."""
        arms = [np.asarray(end, float) - np.asarray(start, float) for end in ends]
        if mass is None:
            mass = 0.02 + float(sum(np.linalg.norm(arm) for arm in arms))
        self.b.body(name, mass, shapes=[self.b.capsule_between(0.01, (0, 0, 0), arm) for arm in arms])
        self.join(name, type, parent, start, damping=damping, **options)
        if "effort" in options:
            self.b.actuator(name, limits=options["effort"], control_range=options["effort"])

    def pin(self, name: str, a: str, c: str, at: Numbers, kind: str = "connect") -> None:
        """Join two bodies at a point: a ball, or a hinge about y."""
        across = matrix_from_rpy(np.array((-np.pi / 2, 0, 0)))  # its z is the drawing's y
        self.b.loop(name, kind, a, c, Pose(across, self.point(a, at)), Pose(across, self.point(c, at)))

    def rod(self, name: str, a: str, start: Numbers, c: str, end: Numbers) -> None:
        """Keep the distance between a point of `a` and one of `c`."""
        length = float(np.linalg.norm(np.subtract(end, start)))
        ends = Pose(p=self.point(a, start)), Pose(p=self.point(c, end))
        self.b.loop(name, "distance", a, c, *ends, coefficients=(length,))


def _rotor(
    b: Builder,
    name: str,
    parent: str | None,
    xyz: Numbers,
    axis: Numbers,
    terms: Mapping[str, float],
    mass: float = 0.055,
    radius: float = 0.048,
    effort: float = 4.0,
) -> None:
    """A rotor with a motor on `parent`: it turns by the sum of ratio times q over `terms` (joint: ratio)."""
    rpy = {0: (0, np.pi / 2, 0), 1: (np.pi / 2, 0, 0), 2: (0, 0, 0)}[int(np.argmax(np.abs(axis)))]
    rotor = f"{name}_rotor"
    b.body(rotor, mass, shapes=[b.cylinder(radius, 0.02, rpy=rpy, role="visual")])
    b.joint(rotor, "continuous", parent, rotor, xyz, axis=axis)
    b.gear(f"{name}_gear", {rotor: 1.0, **{joint: -ratio for joint, ratio in terms.items()}})
    b.actuator(rotor, limits=effort, control_range=effort)


def _chain_link(b: Builder, i: int, parent: str | None, xyz: Numbers, axis: Numbers) -> None:
    shape = b.capsule_between(LINK_RADIUS, (0, 0, 0), (0, 0, -LINK_LENGTH))
    b.body(f"link{i}", LINK_MASS, shapes=[shape])
    b.joint(f"joint{i}", "revolute", parent, f"link{i}", xyz, axis=axis)


def _need(what: str, n: int, good: bool, remedy: str) -> None:
    if not good:
        raise ArgumentError(f"{what}: {n} links. Give {remedy}.")
