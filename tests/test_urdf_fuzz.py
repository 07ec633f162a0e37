"""Mutated URDFs: whatever happens to a valid file, the outcome is a sound Description or an error of ours."""

# ruff: noqa: SIM905, PT017 (lists of words; an error is one of two good outcomes, so pytest.raises does not fit)

from __future__ import annotations

import copy
import sysconfig
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxrbd.errors import ModelWarning, RbdError
from jaxrbd.model.description import Description
from jaxrbd.model.urdf import read_urdf
from jaxrbd.model.urdf_write import write_urdf
from jaxrbd.model.validate import validate

ROBOTS = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix" / "share" / "example-robot-data" / "robots"
SMALL = """<robot name="r">
  <material name="m"><color rgba="1 0 0 1"/></material>
  <link name="a"><visual><geometry><mesh filename="x.stl" scale="1 1 1"/></geometry><material name="m"/>
    </visual></link>
  <link name="b"><inertial><origin xyz="0 0 1" rpy="0 0.1 0"/><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1"/></inertial>
    <collision><geometry><cylinder radius="1" length="2"/></geometry></collision></link>
  <link name="c"><inertial><mass value="1"/><inertia ixx="1" ixy="0" iyy="1" izz="1"/></inertial></link>
  <joint name="j" type="revolute"><parent link="a"/><child link="b"/><axis xyz="0 0 1"/>
    <origin xyz="0 1 0"/><limit lower="-1" upper="1" effort="1" velocity="1"/>
    <dynamics damping="1" friction="0" armature="1"/></joint>
  <joint name="k" type="prismatic"><parent link="b"/><child link="c"/>
    <axis xyz="1 0 0" xyz2="0 1 0" pitch="1"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/><mimic joint="j" multiplier="2" offset="0"/></joint>
</robot>"""
SOURCES = [SMALL] + [
    (ROBOTS / name).read_text()
    for name in (
        "double_pendulum_description/urdf/double_pendulum.urdf",
        "solo_description/robots/solo12.urdf",
        "panda_description/urdf/panda.urdf",
    )
]
TREES = [ET.fromstring(text.encode()) for text in SOURCES]
TAGS = "link joint inertial mass axis limit mimic xacro:if origin robot geometry".split()
KINDS = (
    "revolute continuous prismatic floating planar fixed spherical ball screw cylindrical universal".split()
)
JUNK = "nan inf -inf 1e999 -1e308 1e308 1e-320 0 -1 1,2,3 x 0x10 1_0 １ ${x}".split()
JUNK += ["<world>", "root", "../../etc/passwd", "", " ", "0 0 0", "1 2", "$(find p)", "a\n", "\t", "é" * 500]
MARKUP = ["&x;", "<", "]]>", "<!--", "\0", "</link>", "&#0;", "<?xml version='1.0'?>"]
MARKUP += ["<!DOCTYPE r [<!ENTITY a 'b'>]>"]
ACTIONS = "drop double move tag value value value type lose swap".split()


def survives(text: str | bytes) -> Description | None:
    """Read, judge and write; anything but a Description or an RbdError fails the test that called."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a stray NumPy warning is a failure too
        warnings.simplefilter("ignore", ModelWarning)
        try:
            description = read_urdf(text, "fuzz.urdf", folder=ROBOTS)
        except RbdError as error:
            assert str(error).startswith("fuzz.urdf") and error.remedy
            return None
        assert isinstance(description, Description)
        validate(description)  # what was read is structurally sound
        try:
            validate(description, strict=True)
            read_urdf(write_urdf(description), "fuzz.urdf")
        except RbdError as error:
            assert str(error).startswith("fuzz.urdf")
    return description


@st.composite
def mutated_trees(draw) -> str:
    root = copy.deepcopy(draw(st.sampled_from(TREES)))
    for _ in range(draw(st.integers(1, 3))):
        parents = [element for element in root.iter() if len(element)]
        everything = list(root.iter())
        at = st.integers(0, 10**6)
        parent = parents[draw(at) % len(parents)] if parents else root
        child = parent[draw(at) % len(parent)] if len(parent) else None
        element = everything[draw(at) % len(everything)]
        action = draw(st.sampled_from(ACTIONS))
        key = list(element.attrib)[draw(at) % len(element.attrib)] if element.attrib else None
        if action == "drop" and child is not None:
            parent.remove(child)
        elif action == "double" and child is not None:
            parent.insert(0, copy.deepcopy(child))
        elif action == "move" and child is not None:
            parents[draw(at) % len(parents)].append(copy.deepcopy(child))
        elif action == "tag":
            element.tag = draw(st.sampled_from(TAGS))
        elif action == "value" and key:
            element.set(key, draw(st.sampled_from(JUNK) | st.floats().map(repr) | names(root)))
        elif action == "type":
            joints = root.findall("joint")
            if joints:
                joints[draw(at) % len(joints)].set("type", draw(st.sampled_from(KINDS)))
        elif action == "lose" and key:
            del element.attrib[key]
        elif action == "swap" and key:
            element.set(
                draw(st.sampled_from(["name", "xyz", "value", "link", "rpy"])), element.attrib.pop(key)
            )
    return ET.tostring(root, encoding="unicode")


def names(root: ET.Element) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted({element.get("name", "a") for element in root.iter()}))


@st.composite
def mutated_texts(draw) -> str:
    text = draw(st.sampled_from(SOURCES))
    where = draw(st.integers(0, len(text)))
    action = draw(st.sampled_from(["truncate", "insert", "cut", "replace"]))
    if action == "truncate":
        return text[:where]
    if action == "insert":
        return text[:where] + draw(st.sampled_from(MARKUP)) + text[where:]
    until = where + draw(st.integers(1, 40))
    return text[:where] + ("" if action == "cut" else draw(st.text(max_size=5))) + text[until:]


bounded = settings(
    derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=250
)


@bounded
@given(mutated_trees())
def test_mutated_elements_and_attributes(text):
    survives(text)


@bounded
@given(mutated_texts())
def test_mutated_text(text):
    survives(text)


@bounded
@given(st.binary(max_size=60), st.integers(0, len(SMALL)))
def test_mutated_bytes(noise, where):
    data = SMALL.encode()
    survives(data[:where] + noise + data[where + len(noise) :])
    survives(noise)


@pytest.mark.parametrize("text", SOURCES)
def test_originals_survive(text):
    assert survives(text) is not None


def test_an_entity_bomb_is_refused_at_once():
    lines = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 10))
    assert survives(f'<!DOCTYPE r [<!ENTITY e0 "ha">{lines}]><robot name="&e9;"/>') is None
    assert (
        survives('<!DOCTYPE r [<!ENTITY e SYSTEM "file:///etc/passwd">]><robot name="r">&e;</robot>') is None
    )
