"""Singular mass matrices are found when compiling, and the right joints are blamed."""

from __future__ import annotations

import warnings

import numpy as np
import pinocchio as pin
import pytest

import jaxrbd as rbd
from jaxrbd.errors import ModelWarning
from jaxrbd.model.compile import build
from jaxrbd.model.load import read_description
from jaxrbd.model.mass_rank import CANCELLING, idle_joints
from jaxrbd.model.rigid_tree import RigidTree

AXES = ("1 0 0", "0 1 0", "0 0 1")


def random_urdf(rng) -> str:
    """Joints in line, massless links, point masses and rods, from grams to 1e6 kg, in every combination."""
    n, text = int(rng.integers(3, 9)), '<link name="l0"/>'
    scale = 10.0 ** rng.integers(-3, 7)
    for i in range(1, n):
        inertial = '<inertial><origin xyz="{}"/><mass value="{}"/><inertia ixx="{}" iyy="{}" izz="{}" '
        inertial += 'ixy="0" ixz="0" iyz="0"/></inertial>'
        com = rng.choice(["0 0 0", "0.1 0.2 0.3", "0 0 0.2"])
        moments = [(0, 0, 0), (1, 1, 1), (0, 1, 1)][rng.integers(3)]
        filled = (
            inertial.format(com, scale, *(0.01 * scale * m for m in moments)) if rng.random() < 0.6 else ""
        )
        kind = rng.choice(
            ["revolute", "continuous", "prismatic", "fixed", "floating"], p=[0.3, 0.3, 0.2, 0.15, 0.05]
        )
        place = rng.choice(["0 0 0", "0.3 0 0", "0 0 0.4"])
        text += f'<link name="l{i}">{filled}</link><joint name="j{i}" type="{kind}"><origin xyz="{place}"/>'
        text += f'<parent link="l{rng.integers(max(0, i - 2), i)}"/><child link="l{i}"/>'
        text += f'<axis xyz="{rng.choice(AXES)}"/><limit effort="1" velocity="1"/></joint>'
    return f'<robot name="r">{text}</robot>'


def blamed_by_pinocchio(text: str) -> set[str]:
    """Joints in the null space of M at a random pose; M scaled, with columns of rounding noise zero."""
    model = pin.buildModelFromXML(text)
    data, rng = model.createData(), np.random.default_rng(7)
    M = pin.crba(model, data, pin.integrate(model, pin.neutral(model), rng.uniform(-2, 2, model.nv)))
    M = np.triu(M) + np.triu(M, 1).T
    moved = np.diag(M) > 1e-13 * max(np.diag(M).max(initial=0.0), 1e-300)
    scale = np.where(moved, 1 / np.sqrt(np.where(moved, np.diag(M), 1.0)), 0.0)
    values, vectors = np.linalg.eigh(scale[:, None] * M * scale)
    weight = np.sum(vectors[:, values < 1e-12] ** 2, axis=1)
    dofs = {name: slice(j.idx_v, j.idx_v + j.nv) for name, j in zip(model.names, model.joints) if j.nv}
    return {name for name, dof in dofs.items() if np.any(weight[dof] > 1e-6)}


@pytest.mark.filterwarnings("ignore::jaxrbd.ModelWarning")
def test_the_joints_to_blame_are_those_of_the_null_space():
    rng, singular = np.random.default_rng(0), 0
    for _ in range(300):
        text = random_urdf(rng)
        tree = RigidTree(read_description(text))
        ours = {tree.joints[i].name for _, i in idle_joints(tree)}
        assert ours == blamed_by_pinocchio(text), text
        singular += bool(ours)
    assert 50 < singular < 250  # both kinds were there


IN_LINE = """<robot name="r"><link name="a"/><link name="b"/><link name="c">
  <inertial><origin xyz="1 0 0"/><mass value="{mass}"/><inertia ixx="1" iyy="1" izz="1"/></inertial></link>
  <joint name="turn" type="continuous"><parent link="a"/><child link="b"/><axis xyz="0 0 1"/>
    {armature}</joint>
  <joint name="spin" type="continuous"><parent link="b"/><child link="c"/><axis xyz="0 0 1"/>
    <origin xyz="0 0 {z}" rpy="{tilt} 0 0"/></joint></robot>"""


def test_two_joints_in_line_warn_when_loaded_and_raise_when_used():
    text = IN_LINE.format(mass=1, z=1, tilt=0, armature="")
    with pytest.warns(ModelWarning, match=f"{CANCELLING}: turn, spin"):
        sys = rbd.load(text)
    zero = np.zeros(2)
    with pytest.raises(
        rbd.ArgumentError, match="forward_dynamics: the mass matrix .* singular: .*: turn, spin"
    ):
        rbd.forward_dynamics(sys, zero, zero, zero)
    with pytest.raises(rbd.ModelError, match=CANCELLING):
        rbd.load(text, strict=True)


@pytest.mark.parametrize(
    "change", [{"tilt": 0.1}, {"armature": '<dynamics armature="1e-9"/>'}, {"tilt": 1e-3, "mass": 1e9}]
)
def test_what_is_only_nearly_singular_passes(change):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rbd.load(IN_LINE.format(**({"mass": 1, "z": 1, "tilt": 0, "armature": ""} | change)))


@pytest.mark.parametrize("kind", ["spherical", "cylindrical", "universal", "planar", "screw", "free"])
def test_joints_of_several_freedoms(kind):
    """Twice the same joint at one place with nothing between: one freedom too many at least."""
    b = rbd.Builder("pair").body("none").body("some", 1.0, inertia=1.0, com=(0.1, 0.2, 0.3))
    b.joint("first", kind, None, "none", pitch=0.1 * (kind == "screw"))
    b.joint("second", kind, "none", "some", pitch=0.1 * (kind == "screw"))
    with pytest.warns(ModelWarning, match=f"{CANCELLING}: first, second") as caught:
        sys = b.build()
    assert len(caught) == 1 and sys.topology.massless == ("none", "some")


def test_a_long_chain_of_point_masses_is_not_searched():
    """Beyond 400 joints through bodies without inertia only massless ends are looked for."""
    b = rbd.Builder("long")
    for i in range(600):
        b.body(f"b{i}", 1.0 if i < 599 else 0.0, com=(1, 0, 0))
        b.joint(f"j{i}", "revolute", f"b{i - 1}" if i else None, f"b{i}", xyz=(1, 0, 0), axis=(0, 1, i % 2))
    with pytest.warns(ModelWarning, match="move without mass: b599"):
        build(b.description())
