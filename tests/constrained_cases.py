"""Robots with constraints for the tests: name -> (System, Constraints, q). Names follow [CABA] section VIII.

`q` is a configuration in which loops are closed, None where any will do.
"""

from __future__ import annotations

from functools import cache

import loops
import numpy as np
import robots

import jaxrbd as rbd
from jaxrbd import constraints as con

FEET = ("leg_left_6_link", "leg_right_6_link")
HANDS = ("arm_left_7_link", "arm_right_7_link")
CORNERS = [(x, y, -0.107) for x in (-0.1, 0.1) for y in (-0.06, 0.06)]
FINGERS = ("thumb", "index", "middle", "ring", "little")


def _solo(count):
    sys = robots.load(robots.SOLO12, "free")
    feet = ["FL_FOOT", "HR_FOOT", "FR_FOOT", "HL_FOOT"]
    return sys, con.combine(*(con.connect(sys, f) for f in feet[:count]))


def _talos(*names):
    sys = robots.load(robots.TALOS, "free")
    return sys, con.combine(*(con.weld(sys, f) for f in names))


def _talos_corners():
    sys = robots.load(robots.TALOS, "free")
    return sys, con.combine(*(con.connect(sys, f, offset=c) for f in FEET for c in CORNERS))


def talos_redundant():
    """Both feet and a hand welded, both elbows held as points: 24 rows of rank 23 ([CABA] Fig. 4)."""
    sys = robots.load(robots.TALOS, "free")
    welds = [con.weld(sys, f) for f in (*FEET, HANDS[0])]
    return sys, con.combine(*welds, *(con.connect(sys, f"arm_{s}_4_link") for s in ("left", "right")))


def humanoid_redundant():
    """Two welds on adjacent links, one of them twice, and a point: 21 rows."""
    sys = rbd.zoo.humanoid()
    welds = [con.weld(sys, f) for f in ("left_foot", "left_shank", "left_foot")]
    return sys, con.combine(*welds, con.connect(sys, "right_foot"))


def _atlas():
    sys = rbd.zoo.humanoid(hands=True)
    feet = [con.weld(sys, f"{s}_sole") for s in ("left", "right")]
    tips = [con.connect(sys, f"{s}_{f}_tip") for s in ("left", "right") for f in FINGERS]
    return sys, con.combine(*feet, *tips)


def _chain(n):
    sys = rbd.zoo.chain(n)
    return sys, con.weld(sys, sys.body_names[-1])


def _tree(n):
    sys = rbd.zoo.binary_tree(n)
    leaves = [b for k, b in enumerate(sys.body_names) if k not in sys.parents]
    return sys, con.combine(*(con.connect(sys, b) for b in leaves))


def _arm(make):
    sys = rbd.zoo.arm7()
    return sys, make(sys, "tool")


CASES = {
    "arm7 H3": lambda: _arm(con.connect),
    "arm7 H6": lambda: _arm(con.weld),
    "solo12 F3²": lambda: _solo(2),
    "solo12 F3⁴": lambda: _solo(4),
    "talos F6²": lambda: _talos(*FEET),
    "talos F6²H6²": lambda: _talos(*FEET, *HANDS),
    "talos F3⁸": _talos_corners,
    "humanoid with hands F6²T3¹⁰": _atlas,
    "chain 20 H6": lambda: _chain(20),
    "binary tree 45": lambda: _tree(4),  # levels of branches: 45 links
    "talos of rank 23": talos_redundant,
    "humanoid, rows repeated": humanoid_redundant,
    "four-bar": loops.four_bar,
    "cassie leg": loops.cassie_leg,
    "delta": loops.delta,
}
LOOPS = ("four-bar", "cassie leg", "delta")


@cache
def case(name: str):
    sys, constraints, *q = CASES[name]()
    return sys, constraints, q[0] if q else None


def states(sys, count: int, seed: int = 0, speed: float = 0.3, q=None):
    """q, v, tau of `count` states in float64, all at q if one is given."""
    random_q, v, _, tau, _ = robots.random_states(sys, count, seed)
    return random_q if q is None else np.tile(q, (count, 1)), speed * v, tau


def feasible(M, J, v):
    """The nearest velocity with J v = 0, so that redundant rows do not contradict each other."""
    X = np.linalg.solve(M, J.T)
    return v - X @ np.linalg.lstsq(J @ X, J @ v, rcond=1e-11)[0]


def dense(M, b, J, c, tau, rcond=1e-11):
    """Accelerations and least-norm multipliers of one state, NumPy alone: least squares where infeasible."""
    free = np.linalg.solve(M, tau - b)
    X = np.linalg.solve(M, J.T)
    lam = np.linalg.lstsq(J @ X, c - J @ free, rcond=rcond)[0]
    return free + X @ lam, lam
