"""Mutated model files, and a process that loads them: python mutants.py FIRST COUNT.

Run apart from the tests, because a defect of MuJoCo's parser ends the process. The number of each file is
printed before it is loaded, so that the last one is the culprit; faulthandler ends a load that hangs. The
last line is a JSON object with the counts of outcomes and every foreign exception.
"""

# ruff: noqa: SIM905 (lists of words)

from __future__ import annotations

import collections
import copy
import faulthandler
import json
import random
import sys
import warnings
import xml.etree.ElementTree as ET

from mjcf_models import MODELS

import jaxrbd as rbd

SECONDS = 20  # for one file
URDF = """<robot name="r" xmlns:xacro="http://ros.org/wiki/xacro">
  <material name="m"><color rgba="1 0 0 1"/></material>
  <link name="a"><visual><geometry><mesh filename="package://p/x.stl" scale="1 1 1"/></geometry>
    <material name="m"/></visual></link>
  <link name="b"><inertial><origin xyz="0 0 1" rpy="0 0.1 0"/><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1"/></inertial>
    <collision><geometry><cylinder radius="1" length="2"/></geometry></collision></link>
  <link name="c"><inertial><mass value="1"/><inertia ixx="1" ixy="0" iyy="1" izz="1"/></inertial></link>
  <link name="d"/><link name="e"><inertial><mass value="0.1"/></inertial></link>
  <joint name="j" type="revolute"><parent link="a"/><child link="b"/><axis xyz="0 0 1"/>
    <origin xyz="0 1 0"/><limit lower="-1" upper="1" effort="1" velocity="1"/>
    <dynamics damping="1" friction="0" armature="1"/></joint>
  <joint name="k" type="prismatic"><parent link="b"/><child link="c"/>
    <axis xyz="1 0 0" xyz2="0 1 0" pitch="1"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/><mimic joint="j" multiplier="2" offset="0"/></joint>
  <joint name="l" type="floating"><parent link="c"/><child link="d"/><origin rpy="1 2 3"/></joint>
  <joint name="n" type="planar"><parent link="d"/><child link="e"/><axis xyz="0 1 0"/></joint>
  <xacro:property name="x" value="1"/><transmission name="t"/>
  <loop name="o" type="revolute"><predecessor link="a"><origin xyz="0 1 0"/></predecessor>
    <successor link="e"><origin xyz="0 0 1"/></successor><axis xyz="0 0 1"/></loop>
  <coupling name="p"><term joint="j" coefficient="1"/><term joint="k" coefficient="2"/></coupling>
</robot>"""
JUNK = "nan inf -inf 1e999 -1e308 1e308 1e200 1e160 1e59 1e39 1e-320 0 -1 -0 1,2,3 x 0x10 1_0 １ ${x}".split()
JUNK += ["%n", "%s%s%s%s%s", "%999999999d", "%", "a%20b", "world", "<world>", "root", "../../etc/passwd", ""]
JUNK += [" ", "0 0 0", "1 2", "1 0 0 0 0 0 0 0 0", "$(find p)", "a\n", "\t", "é" * 500, "n" * 5000, "true"]
JUNK += ["\ue025", "\U0001f600", "2147483648", "-2147483649", "99999999999999999999", "1 " * 300, "a/b:c"]
WORDS = "hinge slide ball free plane hfield sphere capsule ellipsoid cylinder box mesh sdf true auto".split()
WORDS += "cable particle grid degree radian XYZ affine fixed joint body site RK4 implicit disable".split()
KINDS = "revolute continuous prismatic floating planar fixed spherical screw cylindrical universal".split()
MARKUP = ["&x;", "<", "]]>", "<!--", "\0", "</link>", "&#0;", "<?xml version='1.0'?>", "%n", "&#37;n"]
MARKUP += ["<!DOCTYPE r [<!ENTITY a 'b'>]>"]


def schema() -> dict[str, list[tuple[str, list[str]]]]:
    """For every MJCF element: the children it may have, each with its attributes."""
    import mujoco

    children, path, attributes = collections.defaultdict(list), [], []
    for line in mujoco.mj_printSchema(False, False).splitlines():
        head, rest = line[:30], line[30:].split()
        if head.strip():
            depth = (len(head) - len(head.lstrip())) // 3
            tag, attributes = head.split()[0].removeprefix("(world)"), []
            path = [*path[:depth], tag]
            children[path[-2] if depth else ""].append((tag, attributes))
        attributes += rest
    spread = "count offset euler sep prefix type vertex initial curve size name pos file".split()
    children["body"] += [(tag, spread) for tag in ("frame", "replicate", "composite")]
    children["body"] += [("body", ["name", "pos", "quat", "mocap", "childclass", "gravcomp"])]
    for tag in ("worldbody", "frame", "replicate"):
        children[tag] = children["body"]
    return children


SCHEMA = schema()
KNOWN = [  # what was found before
    '<mujoco><worldbody><body><geom class="%n" size="1"/></body></worldbody></mujoco>',
    URDF.replace('iyy="1"', 'iyy="1e308"').replace("0 0.1 0", "1 1 1"),
    '<mujoco model="%n"><worldbody><body name="%s" childclass="%n%n"/></worldbody></mujoco>',
]
TREES = [ET.fromstring(text) for text in [URDF] * len(MODELS) + list(MODELS.values())]


def mutant(seed: int) -> str:
    if seed < len(KNOWN):
        return KNOWN[seed]
    rng = random.Random(seed)
    tree = TREES[seed % len(TREES)]
    if rng.random() < 0.1:
        return _mutated_text(ET.tostring(tree, encoding="unicode"), rng)
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice([1, 1, 2, 2, 3, 4])):
        _mutate(tree, rng)
    return ET.tostring(tree, encoding="unicode")


def _mutate(tree: ET.Element, rng: random.Random) -> None:
    everything = list(tree.iter())
    parents = [element for element in everything if len(element)]
    element, parent = rng.choice(everything), rng.choice(parents or everything)
    action = rng.choice(
        ["drop", "double", "move", "tag", "value", "value", "value", "lose", "swap", "new", "new"]
    )
    if action in ("drop", "double", "move") and len(parent):
        child = rng.choice(list(parent))
        if action == "drop":
            parent.remove(child)
        else:
            (parent if action == "double" else rng.choice(everything)).append(copy.deepcopy(child))
    elif action == "tag":
        element.tag = rng.choice(everything).tag
    elif action == "value" and element.attrib:
        element.set(rng.choice(list(element.attrib)), _value(tree, rng))
    elif action in ("lose", "swap") and element.attrib:
        value = element.attrib.pop(rng.choice(list(element.attrib)))
        if action == "swap":
            element.set(rng.choice(["name", "xyz", "value", "class", "type", "pos", "file"]), value)
    elif action == "new" and tree.tag == "mujoco":
        options = SCHEMA.get(element.tag) or SCHEMA["body"]
        tag, attributes = rng.choice(options)
        keys = rng.sample(attributes, min(len(attributes), rng.randint(0, 4)))
        ET.SubElement(element, tag, {key: _value(tree, rng) for key in keys})
    elif action == "new":
        joint = rng.choice(tree.findall("joint") or [tree])
        joint.set("type", rng.choice(KINDS))


def _value(tree: ET.Element, rng: random.Random) -> str:
    """Junk, a number, numbers, or a value that stands elsewhere in the file."""
    written = [value for element in tree.iter() for value in element.attrib.values()]
    choices = (
        lambda: rng.choice(JUNK),
        lambda: repr(rng.gauss(0, 1) * 10.0 ** rng.randint(-12, 12)),
        lambda: " ".join(repr(rng.uniform(-1, 1)) for _ in range(rng.randint(1, 10))),
        lambda: str(rng.randint(-2, 9)),
        lambda: rng.choice(WORDS),
        lambda: rng.choice(written or JUNK),
    )
    return rng.choice(choices)()


def _mutated_text(text: str, rng: random.Random) -> str:
    where = rng.randrange(len(text))
    action = rng.choice(["truncate", "insert", "cut", "replace"])
    if action == "truncate":
        return text[:where]
    if action == "insert":
        return text[:where] + rng.choice(MARKUP) + text[where:]
    until = where + rng.randint(1, 40)
    return text[:where] + ("" if action == "cut" else "".join(rng.choices('<>"= %nx0', k=3))) + text[until:]


def outcome(seed: int) -> str:
    """Loads one mutant: "loaded", "refused", or the foreign exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a stray NumPy warning is a failure too
        warnings.simplefilter("ignore", rbd.ModelWarning)
        try:
            options = {"base": (None, "free", "fixed")[seed % 3], "dtype": ("float32", "float64")[seed % 2]}
            rbd.load(_with_mark(mutant(seed)), **options)
        except rbd.RbdError as error:
            text = str(error)
            if len(text) > 1500 or any(letter * 201 in text for letter in "né"):
                return f"message of {len(text)} characters: {text[:300]}"
            return "refused"
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:300]
    return "loaded"


def _with_mark(text: str) -> str:
    return text if "<" in text else text + "<"  # else it would be a path


def main(first: int, count: int) -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    counts, foreign = collections.Counter(), {}
    for seed in range(first, first + count):
        print(seed, flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        result = outcome(seed)
        faulthandler.cancel_dump_traceback_later()
        counts[result if result in ("loaded", "refused") else "foreign"] += 1
        if result not in ("loaded", "refused"):
            foreign[seed] = result
    print(json.dumps({"counts": counts, "foreign": foreign}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
