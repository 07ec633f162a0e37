"""Zoo models with loops: their sizes before and after clustering, closed in their default pose, standing."""

from functools import lru_cache

import numpy as np
import pytest
from test_zoo import positions

import jaxrbd as rbd
from jaxrbd.errors import ArgumentError
from jaxrbd.model import zoo

CASES = {  # model and arguments: bodies, relations, nv of the open tree, nv
    ("geared_chain",): (24, 12, 24, 12),
    ("belt_chain",): (24, 12, 24, 12),
    ("linkage_chain",): (12, 4, 12, 4),
    ("linkage_chain", 4, "rocker"): (12, 4, 12, 4),
    ("four_bar",): (3, 1, 3, 1),
    ("five_bar",): (4, 1, 4, 2),
    ("six_bar", "watt"): (5, 2, 5, 1),
    ("six_bar", "stephenson"): (5, 2, 5, 1),
    ("six_bar", "loop"): (5, 1, 5, 3),
    ("slider_crank",): (3, 1, 3, 1),
    ("rod_leg",): (7, 2, 9, 3),
    ("cassie_leg",): (10, 2, 10, 7),
    ("mini_cheetah",): (25, 12, 30, 18),
    ("mit_humanoid",): (37, 18, 42, 24),
    ("tello",): (37, 18, 42, 24),
    ("jvrc1",): (58, 25, 63, 38),
}
LOOPED = [case for case in CASES if zoo.describe(*case).loops]


@lru_cache
def clustered(*case):
    sys = getattr(zoo, case[0])(*case[1:])
    return sys, rbd.cluster(sys)


def name(case):
    return "-".join(map(str, case))


@pytest.mark.parametrize("case", CASES, ids=name)
def test_sizes(case):
    d = zoo.describe(*case)
    sys, c = clustered(*case)
    assert (sys.nb, len(d.loops) + len(d.linear), sys.nv, c.nv) == CASES[case]


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_default_pose_is_closed_as_given(case):
    """Clustering moves no joint: neither loops nor gears need a correction."""
    sys, c = clustered(*case)
    np.testing.assert_allclose(c.q0, np.asarray(sys.q0)[list(c.topology.kept_q)], atol=1e-12)
    t, q = sys.topology, np.asarray(sys.q0)
    terms = np.split(np.asarray(sys.linear_coefficients), np.cumsum([len(j) for j in t.linear_joints]))
    for joints, coefficients in zip(t.linear_joints, terms):
        assert abs(q[[t.q_starts[j] for j in joints]] @ coefficients) < 1e-12


@pytest.mark.parametrize("case", LOOPED, ids=name)
def test_loops_are_closed_and_far_from_singular(case):
    _, c = clustered(*case)
    found = rbd.loop_error(c, c.q0)
    assert np.abs(np.asarray(found.error)).max() < 1e-9
    assert np.asarray(found.pivot).min() > 0.05


@pytest.mark.parametrize(
    ("robot", "feet", "radius", "mass"),
    [
        ("mini_cheetah", ("FL_foot", "FR_foot", "RL_foot", "RR_foot"), 0.0175, (8.5, 9.5)),
        ("mit_humanoid", ("left_sole", "right_sole"), 0.0, (24, 28)),
        ("tello", ("left_sole", "right_sole"), 0.0, (16, 18)),
        ("jvrc1", ("left_sole", "right_sole"), 0.0, (60, 70)),
    ],
)
def test_robots_stand(robot, feet, radius, mass):
    d = zoo.describe(robot)
    pose = positions(d, d.keyframes[0])
    points = [pose[f.body][0] @ f.pose.p + pose[f.body][1] for f in d.frames if f.name in feet]
    total = sum(b.mass for b in d.bodies)
    com = sum(b.mass * (pose[b.name][0] @ b.com + pose[b.name][1]) for b in d.bodies) / total
    np.testing.assert_allclose([p[2] for p in points], radius, atol=1e-12)
    assert len(points) == len(feet)
    assert mass[0] < total < mass[1]
    assert np.min(points, 0)[0] - 0.07 < com[0] < np.max(points, 0)[0] + 0.07
    assert abs(com[1]) < 1e-12


def test_tellos_hip_is_a_differential():
    """Both cranks forward pitch the thigh by the same angle, one against the other rolls it."""
    _, c = clustered("tello")
    t = c.topology
    G = np.asarray(rbd.loop_jacobian(c, c.q0))
    dof = lambda joint: t.v_starts[t.joint_names.index(joint)]  # noqa: E731
    for side in ("left", "right"):
        lanes = [t.independent.index(dof(f"{side}_hip_{crank}")) for crank in ("outer", "inner")]
        pitch, roll = (G[dof(f"{side}_hip_{joint}"), lanes] for joint in ("pitch", "roll"))
        np.testing.assert_allclose(pitch, 0.5, atol=1e-9)
        assert roll[0] == pytest.approx(-roll[1])
        assert abs(roll[0]) > 0.3


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (("geared_chain", 0), "positive"),
        (("belt_chain", 3), "even"),
        (("linkage_chain", 0), "positive"),
        (("linkage_chain", 2, "crank"), "'coupler' or 'rocker'"),
        (("six_bar", "klann"), "'watt', 'stephenson' or 'loop'"),
    ],
)
def test_wrong_arguments(case, words):
    with pytest.raises(ArgumentError, match=words):
        zoo.describe(*case)
