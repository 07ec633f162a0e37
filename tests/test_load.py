"""Loading files from the wild: what is skipped, silent or too large is said at the caller's line."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.errors import ModelError, ModelWarning, short
from jaxrbd.model.description import WORLD, Body, Joint
from jaxrbd.model.load import read_description

MASS = '<inertial><mass value="{mass}"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
URDF = f"""<robot name="r">
  <link name="a"><visual><geometry><mesh filename="lost.stl"/></geometry></visual></link>
  <link name="b">{MASS}</link><link name="c">{MASS}</link>
  <joint name="j" type="continuous"><parent link="a"/><child link="b"/></joint>
  <joint name="k" type="continuous"><parent link="b"/><child link="c"/><mimic joint="j"/></joint>
</robot>""".replace("{mass}", "1")
MJCF = """<mujoco>{0}<worldbody><body name="a"><joint name="j"/><geom size="1"/></body>
  <body name="b"><joint name="k"/><geom size="1"/></body></worldbody>{1}</mujoco>"""


def caught(call) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return found


def texts(call) -> list[str]:
    return [str(w.message) for w in caught(call)]


# --- warnings --------------------------------------------------------------------------------------------


def test_warnings_point_at_the_line_that_called():
    heavy = URDF.replace('ixx="1"', 'ixx="9"').replace("</robot>", "<xacro:arg/></robot>")
    odd = MJCF.format(
        '<option timestep="0.01" density="1"/>', '<equality><joint joint1="j" joint2="k"/></equality>'
    )
    for text, count in ((heavy, 4), (odd, 3)):
        for call in (lambda t=text: rbd.load(t), lambda t=text: rbd.build(read_description(t), base="free")):
            found = caught(call)
            assert {w.filename for w in found} == {__file__}
            assert len({w.lineno for w in found}) == 1
        assert len(caught(lambda t=text: rbd.load(t))) == count


def test_info_prints_each_warning_once(tmp_path, capsys):
    from jaxrbd.cli import main

    path = tmp_path / "r.urdf"
    path.write_text(URDF.replace('filename="lost.stl"', 'filename="package://p/lost.stl"'))
    assert main(["info", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.count("package://p/lost.stl") == 1
    assert out.count("1 mimic joints (k)") == 1


def test_mimics_and_loops_say_how_to_enforce_them():
    (text,) = (t for t in texts(lambda: rbd.load(URDF)) if "mimic" in t)
    assert "1 mimic joints (k)" in text and "constraints.of_model(sys)" in text
    loop = '<equality><connect name="pin" body1="a" body2="b" anchor="0 0 0"{}/></equality>'
    (text,) = texts(lambda: rbd.load(MJCF.format("", loop.format(""))))
    assert "1 loops (pin)" in text and "constraints.of_model(sys)" in text
    assert not texts(lambda: rbd.load(MJCF.format("", loop.format(' active="false"'))))


@pytest.mark.parametrize(
    "option, expected",
    [
        ('timestep="0.005"', "timestep 0.005, .*SemiImplicitEuler\\(dt=0.005\\)"),
        ('integrator="RK4"', "integrator RK4, .*RK4\\(dt=0.002\\)"),
        ('timestep="0.01" integrator="implicitfast"', "timestep 0.01, integrator IMPLICITFAST, .*dt=0.01"),
    ],
)
def test_how_the_file_wants_to_be_stepped_is_said(option, expected):
    with pytest.warns(ModelWarning, match=expected) as found:
        rbd.load(MJCF.format(f"<option {option}/>", ""))
    assert len(found) == 1


def test_actuators_of_disabled_groups_are_left_out():
    motors = '<actuator><motor name="m" joint="j" group="2"/><motor name="n" joint="k" group="1"/></actuator>'
    key = '<keyframe><key name="key" ctrl="3 4"/></keyframe>'
    with pytest.warns(
        ModelWarning, match="actuatorgroupdisable> switches off the actuators m: .*left out"
    ) as found:
        sys = rbd.load(MJCF.format('<option actuatorgroupdisable="2"/>', motors + key))
    assert len(found) == 1
    assert sys.actuator_names == ("n",)
    np.testing.assert_allclose(sys.keyframe_u[0], [4.0])


def test_bad_loops_of_a_urdf_name_their_place():
    for element, cause in (
        ('<loop name="l" type="x"/>', r'loop "l" .line 6.*unknown loop type "x"'),
        ('<loop name="l" type="revolute"/>', "no <predecessor>"),
        ('<coupling name="c"/>', r'coupling "c" .line 6.*no <predecessor>'),
        ('<coupling name="c"><term joint="no" coefficient="1"/></coupling>', "does not exist"),
    ):
        with pytest.raises(rbd.ModelError, match=cause):
            rbd.load(URDF.replace("</robot>", element + "</robot>"))


# --- xacro, packages, includes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stray",
    [
        '<xacro:property name="x" value="1"/>',
        '<xacro:arg name="x" default="$(find p)"/>',
        '<xacro:include filename="materials.xacro"/>',
        '<xacro:macro name="unused"><link name="no"/></xacro:macro>',
        '<xacro:if value="0"/>',
    ],
)
def test_what_xacro_left_behind_is_skipped(stray):
    found = texts(lambda: rbd.load(URDF.replace("</robot>", f"{stray}</robot>")))
    (text,) = (t for t in found if "xacro" in t)
    assert "(line 6)" in text and "xacro file.xacro > file.urdf" in text


@pytest.mark.parametrize(
    "change",
    [
        ("</robot>", '<xacro:leg side="left"/></robot>'),  # a macro that was not called yet
        ("</robot>", '<xacro:if value="1"><link name="d"/></xacro:if></robot>'),
        ('<joint name="k"', '<xacro:include filename="c.xacro"/><joint name="m"'),
        ('<child link="c"/>', '<child link="d"/><xacro:property name="x"/>'),  # a link is missing
        ('<parent link="b"/>', '<xacro:insert_block name="origin"/><parent link="b"/>'),
    ],
)
def test_a_file_that_needs_xacro_is_refused(change):
    text = URDF.replace(*change)
    if change[0].startswith("<joint"):
        text = text.replace('<parent link="b"/>', '<parent link="x"/>')
    with pytest.raises(ModelError, match=r"\(line \d\).*Expand it first, with `xacro"):
        rbd.load(text)


def test_meshes_of_the_package_around_the_model_are_found(tmp_path):
    package = tmp_path / "yard" / "arm_description"
    for path in ("urdf/deep/arm.urdf", "meshes/a.stl", "secret.stl"):
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_text("")
    (tmp_path / "yard" / "outside.stl").write_text("")
    mesh = '<visual><geometry><mesh filename="{}"/></geometry></visual>'
    names = [
        "package://arm_description/meshes/a.stl",
        "package://arm_description/../outside.stl",
        "../../secret.stl",
    ]
    names += [f"package://{tmp_path.parts[1]}/{'/'.join(tmp_path.parts[2:])}/yard/outside.stl"]
    path = package / "urdf" / "deep" / "arm.urdf"
    path.write_text(f'<robot name="r"><link name="a">{"".join(mesh.format(n) for n in names)}</link></robot>')
    with pytest.warns(ModelWarning, match="3 mesh files not found"):
        sys = rbd.load(path)
    assert [found for _, found in sys.topology.shape_files] == [str(package / "meshes" / "a.stl"), "", "", ""]


def test_the_home_folder_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "mine" / "robots").mkdir(parents=True)
    (tmp_path / "mine" / "key.stl").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "mine"))
    path = tmp_path / "mine" / "robots" / "r.urdf"
    mesh = '<visual><geometry><mesh filename="package://mine/key.stl"/></geometry></visual>'
    path.write_text(f'<robot name="r"><link name="a">{mesh}</link></robot>')
    with pytest.warns(ModelWarning, match="1 mesh files not found"):
        rbd.load(path)


def test_includes_are_looked_up_beside_the_file_that_includes(tmp_path):
    body = '<mujocoinclude><body name="{0}"><joint name="{0}"/><geom size="1"/></body>{1}</mujocoinclude>'
    files = {
        "model/scene.xml": '<mujoco><worldbody><include file="parts/arm.xml"/></worldbody></mujoco>',
        "model/parts/arm.xml": body.format("arm", '<include file="hand.xml"/><include file="foot.xml"/>'),
        "model/parts/hand.xml": body.format("hand", ""),
        "model/hand.xml": body.format("wrong", ""),
        "model/foot.xml": body.format("foot", ""),  # beside the model, as MuJoCo has it
        "outside.xml": body.format("outside", ""),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert rbd.load(tmp_path / "model" / "scene.xml").joint_names == ("arm", "hand", "foot")
    (tmp_path / "model" / "parts" / "hand.xml").write_text(
        body.format("hand", '<include file="../../outside.xml"/>')
    )
    with pytest.raises(ModelError, match="was not found"):
        rbd.load(tmp_path / "model" / "scene.xml")


# --- numbers, sizes and texts out of proportion -------------------------------------------------------------


MOTOR, FLOAT32 = '<actuator><motor joint="j" gear="1e200"/></actuator>', {"dtype": "float32"}


def with_com(x: str) -> str:
    return URDF.replace("<inertial>", f'<inertial><origin xyz="{x} 0 0"/>')


@pytest.mark.parametrize(
    "text, options, message",
    [
        (MJCF.format("", MOTOR), {}, "<motor>: gear = '1e200'"),
        (with_com("1e160"), {}, 'link "b".*centre of mass.*1e\\+60'),
        (URDF.replace('mass value="1"', 'mass value="1e39"'), FLOAT32, '"b": out of the range of float32'),
        (URDF.replace('mass value="1"', 'mass value="1e-50"'), FLOAT32, '"b": out of the range of float32'),
        (with_com("1e30"), FLOAT32, 'com of "b": out of the range of float32'),
        (URDF.replace('<mimic joint="j"/>', '<origin xyz="1e61 0 0"/>'), {}, 'joint "k".*placement.*beyond'),
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_our_errors(text, options, message):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ModelWarning)
        with pytest.raises(ModelError, match=message):
            rbd.load(text, **options)


def test_huge_models_are_refused_before_the_work():
    links = "".join(f'<link name="l{i}"/>' for i in range(100_001))
    joint = '<joint name="j{0}" type="continuous"><parent link="l{0}"/><child link="l{1}"/></joint>'
    chain = links + "".join(joint.format(i, i + 1) for i in range(100_000))
    bodies = '<body><joint/><geom size="1"/></body>' * 100_000
    for text in (f'<robot name="r">{chain}</robot>', f"<mujoco><worldbody>{bodies}</worldbody></mujoco>"):
        start = time.perf_counter()
        with pytest.raises(ModelError, match="too large|more than"):
            rbd.load(text)
        assert time.perf_counter() - start < 5  # a second on an idle machine
    bodies = tuple(Body(f"l{i}") for i in range(20_001))
    joints = [Joint(f"j{i}", "revolute", f"l{i - 1}" if i else WORLD, f"l{i}") for i in range(20_001)]
    with pytest.raises(ModelError, match="20001 degrees of freedom, more than 20000"):
        rbd.build(rbd.Description(bodies=bodies, joints=tuple(joints)))


LONG = "n" * 20_000


@pytest.mark.parametrize(
    "text",
    [
        URDF.replace('name="b"', f'name="{LONG}"'),
        URDF.replace('"continuous"', f'"{LONG}"'),
        URDF.replace('mass value="1"', f'mass value="{LONG}"'),
        URDF.replace('link="b"', f'link="{LONG}"').replace('name="c"', f'name="{LONG[1:]}"'),
        URDF.replace('value="1"', f'value="${{{LONG}}}"'),
        URDF.replace("robot", LONG),
        URDF.replace("</robot>", f"<xacro:{LONG}/></robot>"),
        MJCF.format("", "").replace('name="a"', f'name="{LONG}"').replace('name="b"', f'name="{LONG}"'),
        MJCF.format("", "").replace('name="a"', f'class="{LONG}"'),
        MJCF.format("", f'<actuator><motor joint="{LONG}"/></actuator>'),
        MJCF.format(f'<option gravity="{"1e999 " * 9999}"/>', ""),
        MJCF.format(f'<include file="{LONG}"/>', ""),
        MJCF.format(f"<{LONG}/>", ""),
    ],
)  # fmt: skip
def test_messages_quote_little_of_the_file(text):
    with pytest.raises(ModelError) as error:
        rbd.load(text)
    assert "n" * 201 not in str(error.value)
    assert len(str(error.value)) < 900
    assert short("abcdefghij", 9) == "abcd...ij"
