"""Mechanisms with closed loops: a four-bar, a leg like Cassie's, a Delta robot.

Each function returns (sys, constraints, q): the System, the loops that the model declares and a
configuration in which they are closed, found by Newton's method in NumPy from a guess: compiling `project`
for each of them takes longer than most tests.
"""

from __future__ import annotations

from functools import lru_cache

import jax
import numpy as np

import jaxrbd as rbd
from jaxrbd.model.description import Pose


def closed(b: rbd.Builder, guess: dict, **options):
    """Build, and close the loops near a guess: {joint: coordinates}; the rest is neutral."""
    sys = b.build()
    constraints = rbd.constraints.of_model(sys, **options)
    q = np.array(rbd.neutral(sys))
    for joint, x in guess.items():
        q[sys.q_index(joint)] = x
    phi = jax.jit(lambda dq: rbd.constraints.constraint_error(sys, constraints, rbd.integrate(sys, q, dq)))
    dq = np.zeros(sys.nv)
    for _ in range(30):
        J = np.stack([np.asarray(phi(dq + 1e-6 * e) - phi(dq - 1e-6 * e)) for e in np.eye(sys.nv)], 1) / 2e-6
        dq = dq - np.linalg.lstsq(J, np.asarray(phi(dq)), rcond=1e-8)[0]
    assert np.abs(np.asarray(phi(dq))).max() < 1e-13
    return sys, constraints, rbd.integrate(sys, q, dq)


def at(*xyz) -> Pose:
    return Pose(np.eye(3), np.array(xyz, float))


@lru_cache
def four_bar(kind: str = "hinge", crank=0.2, coupler=0.5, rocker=0.4, ground=0.5, angle=0.8, **options):
    """Crank and rocker on the ground, joined by the coupler: plane xy, axes z, gravity along -y. 1 DoF.

    Three joints; the fourth is the loop, of five rows ("hinge") or three ("connect"), of which two count.
    """
    b = rbd.Builder("four_bar", gravity=(0, -9.81, 0))
    for name, length, mass in (("crank", crank, 0.6), ("coupler", coupler, 1.5), ("rocker", rocker, 1.2)):
        b.body(name, mass, shapes=[b.capsule_between(0.02, (0, 0, 0), (length, 0, 0))])
    b.joint("A", "continuous", None, "crank")
    b.joint("B", "continuous", "crank", "coupler", (crank, 0, 0))
    b.joint("D", "continuous", None, "rocker", (ground, 0, 0))
    b.loop("C", kind, "coupler", "rocker", at(coupler, 0, 0), at(rocker, 0, 0))
    return closed(b, {"A": angle, "B": 0.3 - angle, "D": 1.8}, **options)


@lru_cache
def cassie_leg(base: str = "fixed", **options):
    """Hip, knee, shin and tarsus with two loops: the Achilles rod from hip to heel, the rod of the foot.

    The shin and heel joints carry the leaf springs. 12 freedoms less six rows, of which five
    count; with "free" the pelvis floats. Lengths and masses are near those of the robot.
    """
    b = rbd.Builder("cassie_leg")
    b.body("pelvis", 10.0, shapes=[b.box(0.2, 0.25, 0.15)])
    b.body("hip_roll", 1.8, shapes=[b.sphere(0.06)])
    b.body("hip_yaw", 1.2, shapes=[b.sphere(0.05)])
    rod = lambda radius, *end: [b.capsule_between(radius, (0, 0, 0), end)]  # noqa: E731
    b.body("thigh", 5.5, shapes=rod(0.06, 0.0, 0.0, -0.12))
    b.body("knee", 0.8, shapes=rod(0.03, 0.06, 0.0, -0.04))
    b.body("shin", 0.6, shapes=rod(0.02, 0.43, 0.0, 0.0))
    b.body("tarsus", 0.8, shapes=rod(0.02, 0.0, 0.0, -0.41))
    b.body("heel", 0.13, shapes=rod(0.01, -0.11, 0.0, 0.0))
    b.body("crank", 0.13, shapes=rod(0.01, 0.055, 0.0, 0.0))
    b.body("plantar_rod", 0.12, shapes=rod(0.01, 0.0, 0.0, -0.35))
    b.body("foot", 0.15, shapes=[b.box(0.16, 0.03, 0.03)])
    b.body("achilles_rod", 0.16, shapes=rod(0.01, 0.5, 0.0, 0.0))
    y, common = (0, 1, 0), {"armature": 0.01}
    if base == "free":
        b.joint("root", "free", None, "pelvis")
    b.joint("hip_roll", "revolute", "pelvis", "hip_roll", (0, 0.135, -0.09), axis=(1, 0, 0), **common)
    b.joint("hip_yaw", "revolute", "hip_roll", "hip_yaw", (0, 0, -0.07), axis=(0, 0, 1), **common)
    b.joint("hip_pitch", "revolute", "hip_yaw", "thigh", (0, 0, -0.09), axis=y, **common)
    b.joint("knee", "revolute", "thigh", "knee", (0, 0, -0.12), axis=y, **common)
    b.joint("shin", "revolute", "knee", "shin", (0.06, 0, -0.04), axis=y, stiffness=1500.0, damping=0.1)
    b.joint("ankle", "revolute", "shin", "tarsus", (0.43, 0, 0), axis=y, damping=0.1)
    b.joint("heel", "revolute", "tarsus", "heel", (-0.01, 0, -0.03), axis=y, stiffness=1250.0, damping=0.1)
    b.joint("crank", "revolute", "tarsus", "crank", (0.0, 0, -0.06), axis=y, damping=0.1)
    b.joint("plantar_rod", "revolute", "crank", "plantar_rod", (0.055, 0, 0), axis=y, damping=0.1)
    b.joint("foot", "revolute", "tarsus", "foot", (0, 0, -0.41), axis=y, **common)
    b.joint("achilles", "universal", "thigh", "achilles_rod", (0, 0.045, 0), axis=(0, 0, 1), axis2=y)
    b.loop("achilles_end", "connect", "achilles_rod", "heel", at(0.5, 0, 0), at(-0.11, 0.02, 0))
    b.loop("plantar_end", "connect", "plantar_rod", "foot", at(0, 0, -0.35), at(0.055, 0, 0))
    b.frame("toe", "foot", (0.08, 0, -0.015))
    return closed(b, {"hip_pitch": -0.4, "achilles": (-0.05, 0.5), "ankle": 0.1}, **options)


@lru_cache
def delta(**options):
    """Three driven arms on a base carry a platform by six rods, so that it shifts without turning.

    Arms turn about the tangents of the base; each has two rods on universal joints. The platform hangs on
    the first rod by a ball and is connected to the five others: 18 freedoms less 15 rows.
    """
    base, arm, rod, platform, half = 0.2, 0.3, 0.7, 0.06, 0.04
    tilt = 0.3
    slant = np.arcsin((base + arm * np.cos(tilt) - platform) / rod)  # of the rods against the vertical
    b, guess = rbd.Builder("delta"), {}
    for i in range(3):
        turn = 2 * np.pi * i / 3
        b.body(f"arm{i}", 0.5, shapes=[b.capsule_between(0.02, (0, 0, 0), (arm, 0, 0))])
        place = (base * np.cos(turn), base * np.sin(turn), 0)
        b.joint(f"hip{i}", "revolute", None, f"arm{i}", place, (0, 0, turn), axis=(0, 1, 0), armature=0.02)
        guess[f"hip{i}"] = tilt
        for side, name in ((1, f"left{i}"), (-1, f"right{i}")):
            b.body(name, 0.1, shapes=[b.capsule_between(0.006, (0, 0, 0), (0, 0, -rod))])
            where = (arm, side * half, 0)
            b.joint(name, "universal", f"arm{i}", name, where, axis=(0, 1, 0), axis2=(1, 0, 0))
            guess[name] = (slant - tilt, 0.0)
    # the platform's origin is the ball on the rod left0
    ball = np.array([platform, half, 0])
    b.body("platform", 0.4, com=-ball, inertia=(4e-4, 4e-4, 8e-4))
    b.joint("ball", "spherical", "left0", "platform", (0, 0, -rod))
    guess["ball"] = (np.cos(slant / 2), 0, -np.sin(slant / 2), 0)
    b.frame("tool", "platform", -ball)
    for i in range(3):
        c, s = np.cos(2 * np.pi * i / 3), np.sin(2 * np.pi * i / 3)
        for side, name in ((1, f"left{i}"), (-1, f"right{i}")):
            if name != "left0":
                place = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ (platform, side * half, 0) - ball
                b.loop(name, "connect", name, "platform", at(0, 0, -rod), at(*place))
    return closed(b, guess, **options)


MECHANISMS = {"four_bar": four_bar, "cassie_leg": cassie_leg, "delta": delta}
