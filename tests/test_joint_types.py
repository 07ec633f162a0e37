"""Joints beyond hinge and slide against Pinocchio's native or composite joints, in trees with neighbours.

Each mechanism is one table of joints, built twice: by our Builder and with Pinocchio's addJoint.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
import robots

import jaxrbd as rbd

STATES = 5


def unit(*numbers):
    return tuple(np.array(numbers) / np.linalg.norm(numbers))


SLANTED = unit(1.0, -2.0, 0.5)
ACROSS = unit(2.0, 1.0, 0.0)  # perpendicular to SLANTED
OBLIQUE = unit(2.0, 1.0, 1.5)
X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


@dataclass(frozen=True)
class Case:
    """One joint of the table: our name of the type and Pinocchio's model of it."""

    type: str
    pinocchio: object
    axis: tuple = Z
    axis2: tuple | None = None
    pitch: float = 0.0
    turned: bool = False  # Pinocchio's joint frame is turned to (axis2, axis x axis2, axis)

    @property
    def frame(self):
        if not self.turned:
            return pin.SE3.Identity()
        columns = [self.axis2, np.cross(self.axis, self.axis2), self.axis]
        return pin.SE3(np.column_stack(columns), np.zeros(3))


def composite(*joints):
    model = pin.JointModelComposite()
    for joint in joints:
        model.addJoint(joint, pin.SE3.Identity())
    return model


def revolute(axis):
    return pin.JointModelRevoluteUnaligned(*axis)


def prismatic(axis):
    return pin.JointModelPrismaticUnaligned(*axis)


CASES = {
    "revolute": Case("revolute", revolute(SLANTED), SLANTED),
    "continuous": Case("continuous", revolute(SLANTED), SLANTED),
    "continuous y": Case("continuous", pin.JointModelRUBY(), Y),
    "prismatic": Case("prismatic", prismatic(SLANTED), SLANTED),
    "screw x": Case("screw", pin.JointModelHX(0.3), X, pitch=0.3),
    "screw": Case("screw", pin.JointModelHelicalUnaligned(*SLANTED, -0.15), SLANTED, pitch=-0.15),
    "cylindrical z": Case("cylindrical", composite(pin.JointModelRZ(), pin.JointModelPZ()), Z),
    "cylindrical": Case("cylindrical", composite(revolute(SLANTED), prismatic(SLANTED)), SLANTED),
    "universal xy": Case("universal", composite(pin.JointModelRX(), pin.JointModelRY()), X, Y),
    "universal": Case("universal", composite(revolute(SLANTED), revolute(ACROSS)), SLANTED, ACROSS),
    "universal native": Case("universal", pin.JointModelUniversal(*SLANTED, *ACROSS), SLANTED, ACROSS),
    "universal oblique": Case("universal", composite(revolute(SLANTED), revolute(OBLIQUE)), SLANTED, OBLIQUE),
    "planar": Case("planar", pin.JointModelPlanar(), Z, X),
    "planar slanted": Case("planar", pin.JointModelPlanar(), SLANTED, ACROSS, turned=True),
    "planar composite": Case(
        "planar", composite(pin.JointModelPX(), pin.JointModelPY(), pin.JointModelRZ()), Z, X
    ),
    "spherical": Case("spherical", pin.JointModelSpherical()),
    "free": Case("free", pin.JointModelFreeFlyer()),
}


def mechanism(table, seed=0):
    """Our System and Pinocchio's model of a tree given as (case, index of the parent or -1), depth first."""
    rng = np.random.default_rng(seed)
    model, builder = pin.Model(), rbd.Builder("mechanism")
    fixes = {-1: pin.SE3.Identity()}  # from Pinocchio's joint frame to our body frame
    ids = {-1: 0}
    for i, (key, parent) in enumerate(table):
        case = CASES[key]
        mass, com, rpy = rng.uniform(0.5, 2), rng.uniform(-0.2, 0.2, 3), rng.uniform(-2, 2, 3)
        xyz = rng.uniform(-0.4, 0.4, 3)
        spread = rng.uniform(0.05, 0.2, (3, 3))
        inertia = np.trace(spread @ spread.T) * np.eye(3) - spread @ spread.T + 0.02 * np.eye(3)
        builder.body(f"body{i}", mass=mass, com=com, inertia=inertia)
        builder.joint(
            f"joint{i}",
            case.type,
            parent=None if parent < 0 else f"body{parent}",
            child=f"body{i}",
            xyz=xyz,
            rpy=rpy,
            axis=case.axis,
            axis2=case.axis2,
            pitch=case.pitch,
        )
        placement = pin.SE3(pin.rpy.rpyToMatrix(*rpy), xyz)
        ids[i] = model.addJoint(
            ids[parent], case.pinocchio, fixes[parent] * placement * case.frame, f"joint{i}"
        )
        fixes[i] = case.frame.inverse()
        model.appendBodyToJoint(ids[i], pin.Inertia(mass, com, inertia), fixes[i])
        model.addFrame(pin.Frame(f"body{i}", ids[i], fixes[i], pin.FrameType.BODY))
    return builder.build(), model


def disagreements(table, seed=0, everything=True):
    """Names of the quantities that differ from Pinocchio's by more than 1e-9, with the error."""
    sys, model = mechanism(table, seed)
    twin = robots.Twin(sys, model)
    states = robots.random_states(sys, STATES, seed)
    frames = [f"body{len(table) - 1}"]
    regressor = not any(CASES[key].turned for key, _ in table)  # the parameters' axes differ then
    rows = [twin.reference(*s, frames=frames, regressor=regressor) for s in zip(*states, strict=True)]
    evaluate = robots.quantities(sys, frames, regressor=regressor, everything=everything)
    ours = evaluate(*map(jnp.asarray, states))
    errors = {}
    for key in ours:
        errors[key] = robots.relative_error(ours[key], np.stack([row[key] for row in rows]), floor=1e-3)
    return {key: error for key, error in errors.items() if not error <= 1e-9}


def comb():
    """A spine of hinges, each carrying one case with a slide and a hinge beyond it."""
    table, spine = [], -1
    for key in CASES:
        table.append(("revolute", spine))
        spine = len(table) - 1
        table += [(key, spine), ("prismatic", spine + 1), ("revolute", spine + 2)]
    return table


@pytest.mark.parametrize("key", [pytest.param(key, marks=pytest.mark.all_robots) for key in CASES])
def test_between_other_joints(key):
    """One type in the middle of a chain: a hinge before it, a branch after it, and itself once more."""
    assert not disagreements([("revolute", -1), (key, 0), ("prismatic", 1), ("revolute", 2), (key, 1)])


def test_each_type_on_a_spine_of_hinges():
    assert not disagreements(comb(), everything=False)


TREE = [
    ("planar", -1),
    ("universal", 0),
    ("spherical", 1),
    ("screw", 2),
    ("cylindrical", 3),
    ("free", 1),
    ("cylindrical", 5),
    ("planar slanted", 6),
    ("continuous", 0),
    ("spherical", 8),
    ("universal native", 9),
]


def test_all_types_in_one_tree():
    assert not disagreements(TREE, seed=1)


def test_types_are_kept():
    """The System reports the declared types and sizes, in tree order."""
    sys, _ = mechanism(TREE)
    types = dict(zip(sys.joint_names, sys.joint_types, strict=True))
    assert types == {f"joint{i}": CASES[key].type for i, (key, _) in enumerate(TREE)}
    assert (sys.nq, sys.nv) == (31, 28)
