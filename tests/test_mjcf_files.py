"""MJCF files from the wild: missing meshes, includes, what is not represented, bad and hostile input."""

from __future__ import annotations

import os
import re
import sys

import numpy as np
import pytest
from mjcf_models import by_name, read

from jaxrbd.errors import ModelError, ModelWarning
from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.model.mjcf import read_mjcf

mujoco = pytest.importorskip("mujoco")

TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
MESHES = """
<mujoco>
  <compiler meshdir="meshes"/>
  <asset>
    <mesh name="tetra" file="tetra.obj" scale="2 2 2" refpos="0.1 0.2 0.3" refquat="0.8 0.6 0 0"/>
    <mesh file="sub/lost.stl"/>
    <texture name="wood" type="2d" file="wood.png"/>
    <material name="wooden" texture="wood" rgba="0.1 0.2 0.3 1"/>
    <hfield name="hills" file="hills.png" size="4 3 2 1"/>
  </asset>
  <worldbody>
    <geom type="hfield" hfield="hills"/>
    <body name="a" pos="0 0 1">
      <joint name="j"/>
      <geom name="seen" type="mesh" mesh="tetra" pos="1 2 3" euler="10 20 30" material="wooden"/>
    </body>
    <body name="b">
      <joint name="k"/>
      <inertial mass="1" pos="0 0 0" diaginertia="1 1 1"/>
      <geom type="mesh" mesh="lost" pos="1 0 0"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model" / "meshes").mkdir(parents=True)
    (tmp_path / "model" / "meshes" / "tetra.obj").write_text(TETRAHEDRON)
    (tmp_path / "outside.obj").write_text(TETRAHEDRON)
    return tmp_path / "model"


def test_missing_meshes_are_named_once_and_kept(folder):
    with pytest.warns(ModelWarning) as caught:
        description = read_mjcf(MESHES, "robot.xml", folder)
    (text,) = (str(w.message) for w in caught)
    assert "sub/lost.stl" in text
    assert "hills.png" in text
    bodies = by_name(description.bodies)
    (lost,), (seen,) = bodies["b"].shapes, bodies["a"].shapes
    assert (lost.kind, lost.mesh, lost.path, lost.size) == ("mesh", "sub/lost.stl", "", (1, 1, 1))
    np.testing.assert_allclose(lost.pose.p, [1, 0, 0], atol=1e-12)
    assert (seen.mesh, seen.path) == ("tetra.obj", str(folder / "meshes" / "tetra.obj"))
    assert seen.rgba == pytest.approx((0.1, 0.2, 0.3, 1))
    (hills,) = description.world_shapes
    assert (hills.kind, hills.size, hills.mesh) == ("heightfield", (4, 3, 2, 1), "hills.png")


def test_mesh_vertices_land_where_mujoco_has_them(folder):
    text = re.sub(r"<(texture|hfield|material|mesh file|geom type).*", "", MESHES).replace(
        'material="wooden"', ""
    )
    model = mujoco.MjModel.from_xml_string(text, {"meshes/tetra.obj": TETRAHEDRON.encode()})
    body = by_name(read(text, folder=folder).bodies)["a"]
    np.testing.assert_allclose([body.mass, *body.com], [model.body_mass[1], *model.body_ipos[1]])
    (shape,) = body.shapes
    raw = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    ours = raw * shape.size @ shape.pose.R.T + shape.pose.p
    theirs = model.mesh_vert @ matrix_from_quaternion(model.geom_quat[0]).T + model.geom_pos[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_missing_mesh_that_gives_the_inertia_is_an_error(folder):
    os.remove(folder / "meshes" / "tetra.obj")
    with pytest.raises(ModelError, match=r"robot.xml, body 'a', geom 'seen'.*tetra.obj.*<inertial>"):
        read_mjcf(MESHES, "robot.xml", folder)


@pytest.mark.parametrize("name", ["../../outside.obj", "/etc/passwd", "link.obj"])
def test_files_outside_the_folder_are_missing(folder, name):
    os.symlink(folder.parent / "outside.obj", folder / "meshes" / "link.obj")
    text = MESHES.replace('file="sub/lost.stl"', f'name="lost" file="{name}"')
    with pytest.warns(ModelWarning, match=re.escape(name)):
        description = read_mjcf(text, "robot.xml", folder)
    assert by_name(description.bodies)["b"].shapes[0].path == ""
    with pytest.warns(ModelWarning):
        named = read_mjcf(text, "robot.xml", folder, package_dirs=[folder.parent])
    found = by_name(named.bodies)["b"].shapes[0].path
    assert bool(found) == (name != "/etc/passwd")


def test_includes_and_submodels(folder):
    (folder / "arm.xml").write_text(
        '<mujocoinclude><body name="arm"><joint name="j"/><geom size="0.1"/></body></mujocoinclude>'
    )
    (folder / "tool.xml").write_text(
        '<mujoco model="tool"><worldbody><body name="t"><joint name="turn"/>'
        '<geom size="0.1"/></body></worldbody></mujoco>'
    )
    text = """<mujoco><asset><model name="tool" file="tool.xml"/></asset>
      <worldbody><include file="arm.xml"/>
      <body name="base"><geom size="1"/><attach model="tool" body="t" prefix="x_"/></body>
      </worldbody></mujoco>"""
    description = read(text, source="top.xml", folder=folder)
    assert [j.name for j in description.joints] == ["j", "base", "x_turn"]
    with pytest.raises(ModelError, match=r"top.xml, line 2, <include>.*was not found"):
        read_mjcf(text.replace("arm.xml", "../outside.xml"), "top.xml", folder)
    (folder / "arm.xml").write_text('<mujocoinclude><include file="arm.xml"/></mujocoinclude>')
    with pytest.raises(ModelError, match="included again"):
        read_mjcf(text, "top.xml", folder)


def test_what_is_not_represented_is_listed_in_one_warning():
    text = """<mujoco><option density="1.2"/><worldbody>
      <body name="a" gravcomp="1"><joint name="j" type="ball" range="0 1" limited="true"/><geom size="1"/>
        <site name="a"/><site name="s" pos="0 0 1"/></body>
      <body name="m" mocap="true"/>
    </worldbody>
    <tendon><spatial name="t"><site site="a"/><site site="s"/></spatial></tendon>
    <actuator><motor name="pull" tendon="t"/><muscle name="flex" tendon="t"/>
      <motor name="push" site="s"/></actuator>
    <sensor><ballquat joint="j"/></sensor></mujoco>"""
    with pytest.warns(ModelWarning) as caught:
        description = read_mjcf(text, "odd.xml")
    (message,) = (str(w.message) for w in caught)
    for part in ("limit of ball joint 'j'", "'pull'", "'flex'", "'push'", "tendon", "gravcomp", "fluid"):
        assert part in message
    for part in ("sensor", "mocap", "'a_site'"):
        assert part in message
    assert [f.name for f in description.frames] == ["a_site", "s"]
    assert description.actuators == ()


BAD = {
    "malformed": ("<mujoco><worldbody></mujoco>", "bad.xml, line 1.*malformed XML"),
    "entity": ('<!DOCTYPE m [<!ENTITY a "b">]><mujoco/>', "declarations are refused"),
    "element": ("<mujoco>\n<worldbody>\n<!-- two\nlines -->\n<bodi/></worldbody></mujoco>", "'bodi', line 5"),
    "joint": ('<mujoco><worldbody><body><joint type="hing"/></body></worldbody></mujoco>', "line 1"),
    "massless": ("<mujoco><worldbody><body><joint/></body></worldbody></mujoco>", "mass and inertia"),
    "number": ('<mujoco><option gravity="0 nan 0"/></mujoco>', "<option>.*not finite"),
    "huge number": ('<mujoco><option gravity="0 1e999 0"/></mujoco>', "<option>.*not finite"),
    "copies": (
        '<mujoco><worldbody><replicate count="9999"><replicate count="9999"><geom size="1"/></replicate>'
        "</replicate></worldbody></mujoco>",
        "<replicate>.*copies",
    ),
    "many copies": (
        '<mujoco><worldbody><replicate count="9999"><geom size="1"/><geom size="1"/><geom size="1"/>'
        "</replicate></worldbody></mujoco>",
        "elements after replication",
    ),
    "composite": (
        '<mujoco><worldbody><composite type="cable" count="99999999 1 1"/></worldbody></mujoco>',
        "copies",
    ),
    "file": (
        '<mujoco><worldbody><body file="/etc/passwd"/></worldbody></mujoco>',
        "<body>.*file.*not expected",
    ),
    "root": ("<robot/>", "root element <robot>"),
    "duplicate": (
        '<mujoco><worldbody><body name="a"/><body name="a"/></worldbody></mujoco>',
        "MuJoCo refused.*repeated name",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_raise_our_error(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, pattern = BAD[kind]
    with pytest.raises(ModelError, match=pattern) as caught:
        read_mjcf(text, "bad.xml")
    assert "bad.xml" in str(caught.value)
    assert os.listdir(tmp_path) == []  # MuJoCo's log file stays away


def test_without_mujoco_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ModelError, match=r'robot.xml.*pip install "jaxrbd\[mujoco\]"'):
        read_mjcf("<mujoco/>", "robot.xml")


def test_flexible_bodies_are_left_out_with_a_warning():
    text = """<mujoco><worldbody><body name="a"><joint name="j"/><geom size="1"/>
      <flexcomp name="cloth" type="grid" count="9 9 1" spacing="0.1 0.1 0.1" mass="1" dim="2"/>
      </body></worldbody></mujoco>"""
    with pytest.warns(ModelWarning, match="<flexcomp>"):
        assert [b.name for b in read_mjcf(text).bodies] == ["a"]


def test_sizes_that_would_allocate_are_ignored():
    text = """<mujoco><size memory="900G" nuserdata="2000000000"/>
      <custom><numeric name="n" size="2000000000" data="1"/></custom>
      <asset><texture name="t" type="2d" builtin="flat" width="90000" height="90000"/>
        <hfield name="h" nrow="90000" ncol="90000" size="1 1 1 1"/></asset>
      <worldbody><geom type="hfield" hfield="h"/></worldbody></mujoco>"""
    assert read(text).world_shapes[0].kind == "heightfield"
