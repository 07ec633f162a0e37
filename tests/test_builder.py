"""The Builder: what it describes, the inertias it derives, and the errors it raises at the faulty call."""

import numpy as np
import pytest

from jaxrbd.errors import ModelError
from jaxrbd.model import shapes
from jaxrbd.model.builder import Builder
from jaxrbd.model.description import WORLD, Mimic


def two_links():
    b = Builder("two", gravity=(0, 0, -1.6))
    b.body("a", 2.0, (0, 0, 0.5), 0.1).body("b", 1.0, inertia=(1, 2, 3))
    b.joint("j1", "revolute", None, "a", axis=(0, 3, 0), limits=(-1, 2), effort=5, velocity=7, damping=0.3)
    return b.joint(
        "j2", "universal", "a", "b", (0, 0, 1), rpy=(0, 0, np.pi / 2), axis2=(1, 0, 0), armature=(1, 2)
    )


def test_description_holds_what_was_said():
    d = two_links().frame("tool", "b", (1, 2, 3)).description()
    assert [x.name for x in d.bodies] == ["a", "b"]
    assert [(j.parent, j.child) for j in d.joints] == [(WORLD, "a"), ("a", "b")]
    np.testing.assert_allclose(d.joints[0].axis, (0, 1, 0))  # made a unit vector
    np.testing.assert_allclose(d.joints[1].placement.R @ (1, 0, 0), (0, 1, 0), atol=1e-15)
    np.testing.assert_allclose(d.bodies[0].inertia, 0.1 * np.eye(3))
    np.testing.assert_allclose(d.bodies[1].inertia, np.diag((1, 2, 3)))
    assert (d.joints[0].lower, d.joints[0].upper, d.joints[0].effort_limit) == (-1.0, 2.0, 5.0)
    assert d.joints[1].armature == (1.0, 2.0)
    assert d.gravity[2] == -1.6
    np.testing.assert_allclose(d.frames[0].pose.p, (1, 2, 3))


def test_keyframes_follow_the_joints():
    b = two_links().body("ball", 1.0, inertia=1.0).joint("float", "free", None, "ball")
    b.actuator("j1").keyframe("home", {"j2": (0.1, 0.2)}, v={"j1": 3.0}, u=[4.0])
    key = b.description().keyframes[0]
    np.testing.assert_allclose(key.q, [0, 0.1, 0.2, 0, 0, 0, 1, 0, 0, 0])
    np.testing.assert_allclose(key.v, [3] + [0] * 8)
    np.testing.assert_allclose(key.u, [4])


def test_actuators_become_gain_and_bias():
    b = two_links().actuator("j1", "position", kp=10, kd=2, gear=3, limits=5)
    b.actuator("j2", "velocity", kd=2, dof=1).actuator("j2", limits=(-1, 4), name="motor")
    position, velocity, torque = b.description().actuators
    assert (position.gain, position.bias, position.force_range, position.gear) == (
        10,
        (0, -10, -2),
        (-5, 5),
        3,
    )
    assert (velocity.gain, velocity.bias, velocity.dof, velocity.name) == (2, (0, 0, -2), 1, "j2_1")
    assert (torque.kind, torque.gain, torque.force_range) == ("torque", 1, (-1, 4))


def test_bodies_without_a_joint_are_roots():
    d = Builder("r").body("base", 1.0, inertia=1.0).description()
    assert [(j.name, j.type, j.parent, j.child) for j in d.joints] == [("root", "fixed", WORLD, "base")]
    two = Builder("r").body("a", 1.0).body("b", 1.0).description()
    assert [j.name for j in two.joints] == ["root_a", "root_b"]


SOLIDS = [
    shapes.box(0.2, 0.3, 0.5),
    shapes.sphere(0.4),
    shapes.cylinder(0.2, 0.7),
    shapes.capsule(0.2, 0.5),
    shapes.ellipsoid(0.2, 0.3, 0.4),
]


@pytest.mark.parametrize("shape", SOLIDS, ids=lambda s: s.kind)
def test_solid_inertia_is_the_integral_over_the_volume(shape):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (400_000, 3)) * 0.6
    s = shape.size
    radius, z = np.hypot(x[:, 0], x[:, 1]), x[:, 2]
    inside = {
        "box": lambda: (np.abs(x) <= np.array(s) / 2).all(1),
        "sphere": lambda: (x**2).sum(1) <= s[0] ** 2,
        "cylinder": lambda: (radius <= s[0]) & (np.abs(z) <= s[1] / 2),
        "capsule": lambda: radius**2 + np.maximum(np.abs(z) - s[1] / 2, 0) ** 2 <= s[0] ** 2,
        "ellipsoid": lambda: ((x / np.array(s)) ** 2).sum(1) <= 1,
    }[shape.kind]()
    np.testing.assert_allclose(inside.mean() * 1.2**3, shapes.volume(shape), rtol=0.03)
    y = x[inside]
    integral = ((y**2).sum(1)[:, None, None] * np.eye(3) - y[:, :, None] * y[:, None, :]).mean(0)
    inertia = shapes.solid_inertia(shape, 1.0)
    np.testing.assert_allclose(integral, inertia, atol=0.03 * inertia.max())


def test_body_inertia_from_shapes_is_invariant_under_cutting():
    whole = Builder().body("a", 3.0, shapes=[shapes.box(0.4, 0.2, 0.1, (1, 2, 3))]).description().bodies[0]
    halves = [shapes.box(0.2, 0.2, 0.1, (x, 2, 3)) for x in (0.9, 1.1)]
    cut = Builder().body("a", 3.0, shapes=halves).description().bodies[0]
    np.testing.assert_allclose(whole.com, (1, 2, 3))
    np.testing.assert_allclose(cut.com, whole.com)
    np.testing.assert_allclose(cut.inertia, whole.inertia, atol=1e-15)


def test_capsule_between_runs_from_start_to_end():
    c = shapes.capsule_between(0.1, (1, 0, 0), (1, 2, -1))
    z = c.pose.R @ (0, 0, c.size[1] / 2)
    np.testing.assert_allclose(c.pose.p + z, (1, 2, -1), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(c.pose.R), 1)


FAULTS = {
    "unknown joint type": (lambda b: b.joint("x", "ball", None, "c"), "unknown joint type 'ball'"),
    "duplicate body": (lambda b: b.body("a", 1.0), "body 'a'.*exists already"),
    "duplicate joint": (lambda b: b.joint("j1", "free", None, "c"), "joint 'j1'.*exists already"),
    "missing parent": (lambda b: b.joint("x", "free", "nope", "c"), "unknown parent 'nope'"),
    "missing child": (lambda b: b.joint("x", "free", None, "nope"), "unknown child 'nope'"),
    "second parent": (lambda b: b.joint("x", "free", None, "b"), "already the child of joint 'j2'"),
    "cycle": (lambda b: b.joint("x", "revolute", "c", "c"), "its own ancestor"),
    "negative mass": (lambda b: b.body("x", -1.0), "mass -1.0"),
    "mass not a number": (lambda b: b.body("x", float("nan")), "mass nan"),
    "zero axis": (lambda b: b.joint("x", "revolute", None, "c", axis=(0, 0, 0)), "axis is zero"),
    "infinite position": (lambda b: b.joint("x", "revolute", None, "c", (0, 0, np.inf)), "xyz"),
    "limits reversed": (lambda b: b.joint("x", "revolute", None, "c", limits=(1, -1)), "reversed"),
    "negative damping": (lambda b: b.joint("x", "revolute", None, "c", damping=-1), "damping is negative"),
    "too many dampings": (lambda b: b.joint("x", "revolute", None, "c", damping=(1, 2)), "damping"),
    "parallel axes": (lambda b: b.joint("x", "universal", None, "c", axis2=(0, 0, 2)), "parallel"),
    "axis2 of a hinge": (lambda b: b.joint("x", "revolute", None, "c", axis2=(0, 1, 0)), "no axis2"),
    "not a rotation": (lambda b: b.joint("x", "revolute", None, "c", R=2 * np.eye(3)), "not a rotation"),
    "mimic of a missing joint": (
        lambda b: b.joint("x", "revolute", None, "c", mimic=Mimic("nope")),
        "mimics the unknown joint 'nope'",
    ),
    "asymmetric inertia": (lambda b: b.body("x", 1, inertia=[[1, 1, 0], [0, 1, 0], [0, 0, 1]]), "symmetric"),
    "inertia shape": (lambda b: b.body("x", 1, inertia=(1, 2)), "inertia of shape"),
    "frame named as a body": (lambda b: b.frame("a", "b"), "a body has this name"),
    "frame on nothing": (lambda b: b.frame("f", "nope"), "unknown body 'nope'"),
    "unknown loop kind": (lambda b: b.loop("l", "glue", "a", "b"), "unknown kind 'glue'"),
    "coupling of a missing joint": (lambda b: b.loop("l", "coupling", "j1", "nope"), "unknown joint 'nope'"),
    "unknown actuator kind": (lambda b: b.actuator("j1", "magic"), "unknown kind 'magic'"),
    "actuator of a missing joint": (lambda b: b.actuator("nope"), "unknown joint 'nope'"),
    "actuator of a missing freedom": (lambda b: b.actuator("j2", dof=2), "no degree of freedom 2"),
    "position actuator without gain": (lambda b: b.actuator("j1", "position"), "without gain"),
    "keyframe joint": (lambda b: b.keyframe("k", {"nope": 1}), "unknown joint 'nope'"),
    "keyframe size": (lambda b: b.keyframe("k", {"j2": 1}), "takes 2 numbers"),
    "keyframe length": (lambda b: b.keyframe("k", [1, 2]).description(), "keyframe 'k'"),
    "negative radius": (lambda b: b.sphere(-1), "not positive"),
    "world as a name": (lambda b: b.body(WORLD, 1.0), "means the ground"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named_at_the_call(fault):
    call, message = FAULTS[fault]
    with pytest.raises(ModelError, match=message):
        call(two_links().body("c", 1.0, inertia=1.0))


def test_empty_model_is_refused():
    with pytest.raises(ModelError, match="there is no body"):
        Builder().description()
