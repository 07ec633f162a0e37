"""Zoo models: their sizes, their physics at description level, and that each compiles to a System."""

import numpy as np
import pytest

from jaxrbd.errors import ArgumentError
from jaxrbd.joints import TYPES
from jaxrbd.model import zoo
from jaxrbd.model.description import WORLD
from jaxrbd.model.zoo.families import TREE_JOINTS

SIZES = {  # moving joints, nv
    "chain": (10, 10),
    "binary_tree": (21, 21),
    "cart_pole": (2, 2),
    "double_pendulum": (2, 2),
    "arm7": (7, 7),
    "quadruped": (13, 18),
    "humanoid": (32, 37),
}


def moving(d):
    return [j for j in d.joints if j.type != "fixed"]


def nv(d):
    return sum(TYPES[j.type].nv for j in d.joints)


@pytest.mark.parametrize("name", zoo.DESCRIPTIONS)
def test_links_are_physical_and_limits_hold_home(name):
    d = zoo.describe(name)
    for body in d.bodies:
        moments = np.linalg.eigvalsh(body.inertia)
        assert body.mass > 0
        assert moments[0] > 0
        assert moments[0] + moments[1] >= moments[2] * (1 - 1e-12), body.name
    if name in SIZES:
        assert (len(moving(d)), nv(d)) == SIZES[name]
    for key in d.keyframes:
        if key.name == "home":
            at = 0
            for j in d.joints:
                size = TYPES[j.type].nq
                q = key.q[at : at + size]
                at += size
                if size == 1:
                    assert j.lower <= q[0] <= j.upper, j.name


def positions(d, key):
    """World poses of all bodies by following the joints: an independent forward kinematics in NumPy."""
    values, at = {}, 0
    for j in d.joints:
        size = TYPES[j.type].nq
        values[j.name] = key.q[at : at + size]
        at += size
    pose = {WORLD: (np.eye(3), np.zeros(3))}
    for j in d.joints:
        R, p = pose[j.parent]
        R, p = R @ j.placement.R, R @ j.placement.p + p
        q = values[j.name]
        if j.type == "revolute":
            K = np.cross(np.eye(3), j.axis)
            R = R @ (np.eye(3) + np.sin(q[0]) * K + (1 - np.cos(q[0])) * K @ K)
        elif j.type == "free":
            assert tuple(q[3:]) == (1, 0, 0, 0)
            p = p + R @ q[:3]
        pose[j.child] = (R, p)
    return pose


@pytest.mark.parametrize(
    ("name", "feet", "mass"),
    [
        ("quadruped", ("FL_foot", "FR_foot", "RL_foot", "RR_foot"), (14, 16)),
        ("humanoid", ("left_sole", "right_sole"), (64.9, 65.1)),
    ],
)
def test_legged_robots_stand(name, feet, mass):
    d = zoo.describe(name)
    pose = positions(d, d.keyframes[0])
    total = sum(b.mass for b in d.bodies)
    com = sum(b.mass * (pose[b.name][0] @ b.com + pose[b.name][1]) for b in d.bodies) / total
    frames = {f.name: pose[f.body][0] @ f.pose.p + pose[f.body][1] for f in d.frames}
    soles = np.array([frames[f] for f in feet])
    clearance = 0.022 if name == "quadruped" else 0.0  # radius of the spherical feet
    assert mass[0] < total < mass[1]
    np.testing.assert_allclose(soles[:, 2], clearance, atol=1e-12)
    assert abs(com[1]) < 1e-12
    assert soles[:, 0].min() - 0.05 < com[0] < soles[:, 0].max() + 0.05  # well within the support


def test_humanoid_scales_with_height_and_mass():
    d = zoo.describe("humanoid", height=1.5, mass=40.0)
    np.testing.assert_allclose(sum(b.mass for b in d.bodies), 40.0, rtol=1e-12)


def test_arm_has_the_published_size():
    d = zoo.describe("arm7")
    assert abs(sum(b.mass for b in d.bodies) - 24) < 0.1
    pose = positions(d, next(k for k in d.keyframes if k.name == "up"))
    tool = next(f for f in d.frames if f.name == "tool")
    height = (pose["link7"][0] @ tool.pose.p + pose["link7"][1])[2]
    assert abs(height - 1.266) < 1e-3


def test_binary_tree_is_balanced():
    d = zoo.describe("binary_tree", depth=4)
    parent = {j.child: j.parent for j in d.joints}
    assert len(d.bodies) == 3 * 15
    leaves = set(parent) - set(parent.values())
    depths = set()
    for leaf in leaves:
        count, body = 0, leaf
        while body != WORLD:
            body, count = parent[body], count + 1
        depths.add(count)
    assert (len(leaves), depths) == (8, {12})
    assert [f.name for f in d.frames] == [f"tip{i}" for i in range(8)]
    children = [sum(p == body for p in parent.values()) for body in parent]
    assert set(children) == {0, 1, 2}


def test_random_tree_is_reproducible_and_mixed():
    a, b, c = (zoo.describe("random_tree", 60, seed=s) for s in (1, 1, 2))
    assert [j.type for j in a.joints] == [j.type for j in b.joints] != [j.type for j in c.joints]
    np.testing.assert_array_equal(a.joints[7].placement.p, b.joints[7].placement.p)
    assert {j.type for j in a.joints} == set(TREE_JOINTS)
    forest = zoo.describe("random_tree", 12, base="free", trees=3)
    assert [j.name for j in forest.joints if j.parent == WORLD] == ["root0", "root1", "root2"]
    assert all(j.type == "free" for j in forest.joints if j.parent == WORLD)


@pytest.mark.parametrize("name", zoo.DESCRIPTIONS)
def test_compiles(name):
    d = zoo.describe(name)
    sys = getattr(zoo, name)(strict=True)
    assert sys.nv == nv(d)
    assert set(sys.joint_names) == {j.name for j in moving(d)}
    assert sys.q0.shape == (sys.nq,)
    np.testing.assert_allclose(sys.mass.sum(), sum(b.mass for b in d.bodies))
    assert not sys.topology.massless
    assert getattr(zoo, name)(dtype="float32").dtype == np.float32


@pytest.mark.parametrize("joint", TREE_JOINTS)
def test_chains_of_every_joint(joint):
    assert zoo.chain(3, joint=joint).nv == 3 * TYPES[joint].nv


def test_unknown_model_and_sizes():
    with pytest.raises(ArgumentError, match="no model 'spot'.*humanoid"):
        zoo.describe("spot")
    with pytest.raises(ArgumentError, match="positive"):
        zoo.describe("chain", 0)


def test_names_of_the_humanoid_are_symmetric():
    """What lies in the middle has no side; every joint of the left has its fellow on the right."""
    names = zoo.humanoid(hands=True).joint_names
    middle = {n for n in names if not n.startswith(("left_", "right_"))}
    assert middle == {"root", "waist_yaw", "waist_roll", "waist_pitch", "head_yaw", "head_pitch"}
    left, right = ({n.removeprefix(s) for n in names if n.startswith(s)} for s in ("left_", "right_"))
    assert left == right and len(left) == 35
