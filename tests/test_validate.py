"""Validation: what cannot be compiled is refused by name; what is unphysical warns or, strict, is refused."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from jaxrbd.errors import ModelError, ModelWarning, short
from jaxrbd.model.description import (
    WORLD,
    Actuator,
    Body,
    Description,
    Frame,
    Joint,
    Keyframe,
    Loop,
    Mimic,
    Pose,
    Shape,
)
from jaxrbd.model.validate import listing, validate


def body(name: str, mass: float = 1.0, inertia=(1.0, 1.0, 1.0), com=(0.0, 0.0, 0.0)) -> Body:
    return Body(name, mass, np.array(com), np.diag(inertia))


def chain(*bodies: Body, type: str = "revolute", **fields) -> Description:
    """The bodies one after another, the first fixed to the ground, the others on joints j1, j2 …"""
    joints = [Joint("root", "fixed", WORLD, bodies[0].name)]
    for i in range(1, len(bodies)):
        joints.append(Joint(f"j{i}", type, bodies[i - 1].name, bodies[i].name, **fields))
    return Description(bodies=bodies, joints=tuple(joints), source="robot.urdf")


def with_joint(**changes) -> Description:
    d = chain(body("a"), body("b"), body("c"))
    return d.replace(joints=(*d.joints[:2], replace(d.joints[2], **changes)))


def with_last(last: Body) -> Description:
    return chain(body("a"), body("b"), last)


GOOD = chain(body("a"), body("b"), body("c"))
NAN, INF = np.nan, np.inf
NOTHING = body("b", 0, (0, 0, 0))


def test_sound_models_pass_silently():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        validate(GOOD, strict=True)
        for type in (
            "continuous",
            "prismatic",
            "screw",
            "cylindrical",
            "universal",
            "planar",
            "spherical",
            "free",
        ):
            validate(chain(body("a"), body("b"), type=type), strict=True)


@pytest.mark.parametrize(
    "description, message",
    [
        (Description(source="robot.urdf"), "no bodies"),
        (with_joint(type="hinge"), 'joint "j2": unknown joint type "hinge"'),
        (with_joint(parent="x"), 'joint "j2": the parent link "x" does not exist'),
        (with_joint(child="x"), 'joint "j2": the child link "x" does not exist'),
        (with_joint(child=WORLD), "is the ground"),
        (with_joint(child="b"), 'link "b" is already the child of joint "j1"'),
        (with_joint(parent="c"), 'link "c": the links form a cycle: c <- c'),
        (with_joint(name="j1"), 'joint "j1": another joint has the same name'),
        (with_joint(name=""), "without a name"),
        (GOOD.replace(joints=GOOD.joints[:2]), 'link "c": no joint has this link as its child'),
        (GOOD.replace(bodies=(*GOOD.bodies, body("b"))), 'link "b": another link has the same name'),
        (with_last(body("c", -1.0)), 'link "c": negative mass'),
        (with_last(body("c", NAN)), 'link "c": mass has a NaN'),
        (with_last(body("c", com=(INF, 0, 0))), "centre of mass has a NaN or inf"),
        (with_last(Body("c", inertia=np.triu(np.ones((3, 3))))), "not symmetric"),
        (with_last(Body("c", shapes=(Shape("cone"),))), 'unknown shape "cone"'),
        (with_last(Body("c", shapes=(Shape("box", (1.0,)),))), "size of a box"),
        (with_joint(axis=np.zeros(3)), 'joint "j2": axis is zero'),
        (with_joint(axis=np.ones(2)), "axis has shape"),
        (with_joint(axis="up"), "axis is not numeric"),
        (with_joint(type="universal", axis2=np.array([0, 0, -2.0])), "parallel"),
        (with_joint(type="planar", axis2=np.array([0, 1.0, 1.0])), "not perpendicular"),
        (with_joint(type="screw", pitch=INF), "pitch has a NaN or infinite"),
        (with_joint(placement=Pose(np.eye(3), np.array([0, NAN, 0]))), "position of its placement"),
        (with_joint(placement=Pose(2 * np.eye(3))), "not a rotation"),
        (with_joint(offset=Pose(np.diag([1.0, 1.0, -1.0]))), "not a rotation"),
        (with_joint(lower=1.0, upper=0.0), 'joint "j2": limits reversed'),
        (with_joint(lower=NAN), "lower limit has a NaN"),
        (with_joint(lower=INF), "leave no position"),
        (with_joint(effort_limit=-1.0), "negative effort limit"),
        (with_joint(damping=(1.0, 2.0)), "damping has shape"),
        (with_joint(type="planar", damping=(1.0, 2.0)), "Wrong number of values"),
        (with_joint(armature=INF), "armature has a NaN or infinite"),
        (with_joint(mimic=Mimic("x")), 'joint "j2": mimics joint "x"'),
        (with_joint(mimic=Mimic("j2")), "mimics itself"),
        (with_joint(mimic=Mimic("root")), '"root" is fixed'),
        (with_joint(mimic=Mimic("j1", NAN)), "mimic multiplier"),
        (GOOD.replace(actuators=(Actuator("m", "x"),)), 'actuator "m": refers to joint "x"'),
        (GOOD.replace(actuators=(Actuator("m", "j1", dof=1),)), "which has 1"),
        (GOOD.replace(actuators=(Actuator("m", "root"),)), "which has 0"),
        (GOOD.replace(actuators=(Actuator("m", "j1", force_range=(1, -1)),)), "force range reversed"),
        (GOOD.replace(frames=(Frame("tool", "x"),)), 'frame "tool": the body "x" does not exist'),
        (GOOD.replace(frames=(Frame("t", "a"), Frame("t", "b"))), "another frame has the same name"),
        (GOOD.replace(frames=(Frame("b", "a"),)), "a link has the same name"),
        (GOOD.replace(loops=(Loop("l", "weld", "a", "x"),)), 'loop "l": the body_b "x" does not exist'),
        (GOOD.replace(loops=(Loop("l", "glue", "a", "b"),)), 'unknown kind "glue"'),
        (GOOD.replace(loops=(Loop("l", "coupling", "a", "j1"),)), 'loop "l": refers to joint "a"'),
        (GOOD.replace(keyframes=(Keyframe("home", np.zeros(3)),)), 'keyframe "home": q has shape'),
        (GOOD.replace(keyframes=(Keyframe("home", np.zeros(2), u=np.zeros(1)),)), "u has shape"),
        (GOOD.replace(gravity=np.array([0, 0, NAN])), "gravity has a NaN"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_is_refused(description, message):
    with pytest.raises(ModelError, match=message) as error:
        validate(description)
    assert str(error.value).startswith("robot.urdf") and error.value.remedy


def test_mimic_circles_and_long_cycles_are_refused():
    d = chain(body("a"), body("b"), body("c"))
    circle = [replace(d.joints[1], mimic=Mimic("j2")), replace(d.joints[2], mimic=Mimic("j1"))]
    with pytest.raises(ModelError, match="follow each other in a circle"):
        validate(d.replace(joints=(d.joints[0], *circle)))
    long = chain(*(body(f"b{i}") for i in range(5000)))
    with pytest.raises(ModelError, match=r"cycle: .* <- \.\.\. <- "):
        validate(long.replace(joints=(Joint("back", "fixed", "b4999", "b0"), *long.joints[1:])))


@pytest.mark.parametrize(
    "description, message",
    [
        (chain(body("a"), body("b", 0, (0, 0, 0))), "move without mass: b"),
        (chain(body("a"), body("b", 1, (0, 0, 0))), "turn without rotational inertia: b"),
        (chain(body("a"), body("b", 1, (0, 0, 0), (0, 0, 1))), "turn without rotational inertia: b"),
        (chain(body("a"), body("b", 1, (0, 0, 0), (1, 0, 0)), type="free"), "turn without .*: b"),
        (chain(body("a"), body("b", 1, (0, 0, 0), (1, 0, 0)), type="planar"), "turn without .*: b"),
        (chain(body("a"), body("b", 1, (1, 1, -0.5))), "not positive definite: b"),
        (chain(body("a"), body("b", 1, (1, 1, 2.1))), "triangle inequality: b"),
        (chain(body("a"), body("b", 0, (1, 1, 1))), "inertia but no mass: b"),
        (chain(body("a"), body("b"), damping=-1.0), "negative damping: j1"),
        (chain(body("a"), NOTHING, body("c")), "cancel without moving any mass: j1, j2"),
    ],
)  # fmt: skip
def test_unphysical_models_warn_once_or_are_refused(description, message):
    with pytest.warns(ModelWarning, match=message) as caught:
        validate(description)
    assert len(caught) == 1
    with pytest.raises(ModelError, match=message):
        validate(description, strict=True)


@pytest.mark.parametrize(
    "description",
    [
        chain(body("a", 0, (0, 0, 0)), body("b")),  # on the ground
        chain(body("a"), NOTHING, body("c"), placement=Pose(p=np.array([1.0, 0, 0]))),  # massless in between
        chain(body("a"), body("b", 1, (0, 0, 0), (1, 0, 0))),  # a point mass on an arm
        chain(body("a"), body("b", 1, (0, 0, 0)), type="prismatic"),
        chain(body("a"), body("b", 1, (0, 0, 0)), type="screw", pitch=0.1),
        chain(body("a"), body("b", 0, (0, 0, 0)), armature=0.1),
        chain(body("a"), body("b", 1, (1, 1, 2 + 1e-7))),  # a plate, rounded in its file
        chain(body("a"), body("b", 1, (-1e-11, 1, 1))),
        chain(body("a"), body("b", 1, (1e-20, -1e-20, 0), (1, 0, 0))),  # noise of a point mass
    ],
)  # fmt: skip
def test_sensible_idealisations_are_physical(description):
    validate(description, strict=True)


def test_links_on_fixed_joints_count_as_one_body():
    d = chain(body("a"), body("b", 0, (0, 0, 0)))
    welded = d.replace(bodies=(*d.bodies, body("c")), joints=(*d.joints, Joint("weld", "fixed", "b", "c")))
    validate(welded, strict=True)
    arm = Joint("weld", "fixed", "b", "c", Pose(p=np.array([1.0, 0, 0])))
    point = (*d.bodies, body("c", 1, (0, 0, 0)))
    validate(d.replace(bodies=point, joints=(*d.joints, arm)), strict=True)
    on_axis = Joint("weld", "fixed", "b", "c", Pose(p=np.array([0, 0, 1.0])))
    with pytest.raises(ModelError, match="turn without rotational inertia: b"):
        validate(d.replace(bodies=point, joints=(*d.joints, on_axis)), strict=True)


def test_offset_moves_the_mass_away_from_the_axis():
    d = chain(body("a"), body("b", 1, (0, 0, 0)), offset=Pose(p=np.array([1.0, 0, 0])))
    validate(d, strict=True)


def test_long_lists_are_cut():
    names = [f"b{i}" for i in range(30)]
    d = chain(body("ground"), *(body(name, 0, (0, 0, 0)) for name in names))
    with pytest.warns(ModelWarning, match="b0, b1, .*, b6 and 23 more"):
        validate(d)
    assert listing(["x", "y"]) == "x, y"
    assert len(listing(["long" * 10] * 5)) < 220
    assert listing(["x" * 500, "y"]) == f"{short('x' * 500)}, y"
