"""What one loop costs in a robot that has none: a humanoid with one geared motor, or one knee on a rod."""

from __future__ import annotations

import numpy as np

import jaxrbd as rbd
from benchmarks.cluster_race import BATCH, race, row, states
from jaxrbd.model.description import Body, Description, Joint, Linear, Loop, Pose

Y = np.array([0.0, 1.0, 0.0])
SOLID = np.diag([1e-3, 1e-3, 1e-3])


def hinge(name: str, parent: str, xyz) -> Joint:
    return Joint(name, "revolute", parent, name, Pose(p=np.array(xyz, float)), axis=Y)


def geared(d: Description) -> Description:
    """A rotor on the left thigh that turns six times the knee."""
    return d.replace(
        bodies=(*d.bodies, Body("rotor", 0.3, inertia=SOLID)),
        joints=(*d.joints, hinge("rotor", "left_thigh", (0, 0, -0.1))),
        linear=(*d.linear, Linear("gear", ("rotor", "left_knee"), (1.0, -6.0))),
        keyframes=(),
    )


def rod_driven(d: Description) -> Description:
    """A crank on the left thigh that moves the shank by a rod, as a parallelogram."""
    knee = next(j for j in d.joints if j.name == "left_knee").placement.p
    pivot, tip = np.array([0, 0, -0.1]), np.array([-0.06, 0, 0])
    bodies = tuple(Body(n, 0.3, com=c, inertia=SOLID) for n, c in (("crank", tip / 2), ("rod", (0, 0, -0.1))))
    return d.replace(
        bodies=(*d.bodies, *bodies),
        joints=(*d.joints, hinge("crank", "left_thigh", pivot), hinge("rod", "crank", tip)),
        loops=(*d.loops, Loop("pin", "connect", "rod", "left_shank", Pose(p=knee - pivot), Pose(p=tip))),
        keyframes=(),
    )


def one_loop(rounds: int) -> list[dict]:
    """C-ABA with one loop beside ABA of the same bodies with the loop cut, and of the robot as it was."""
    rows = []
    plain = rbd.zoo.describe("humanoid").replace(keyframes=())
    for name, change in (("a gear", geared), ("a rod", rod_driven)):
        models = {
            "one loop": rbd.cluster(rbd.model.compile.build(change(plain))),
            "the loop cut": rbd.model.compile.build(change(plain)),
            "without it": rbd.model.compile.build(plain),
        }
        contenders = {
            key: (lambda q, v, tau, s=sys: rbd.forward_dynamics(s, q, v, tau), states(sys))
            for key, sys in models.items()
        }
        best = race(contenders, rounds)
        more = {key: 100 * (best["one loop"] / best[key] - 1) for key in list(models)[1:]}
        print(
            f"humanoid with {name}: C-ABA {1e6 * best['one loop'] / BATCH:.2f} us a state, "
            + ", ".join(f"{x:+.0f} % beside {key}" for key, x in more.items()),
            flush=True,
        )
        rows += [row(f"humanoid with {name}", best["one loop"], best[key], key) for key in more]
    return rows
