"""The command line: what it prints and stores, and one line with exit code 2 for a mistake of the user."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import cli
from jaxrbd.commands import simulate
from jaxrbd.commands.models import open_model
from jaxrbd.commands.progress import Progress

PENDULUM = """<robot name="pendulum">
  <link name="base"/>
  <link name="rod">
    <inertial><mass value="2"/><origin xyz="0 0 -0.5"/>
      <inertia ixx="0.2" iyy="0.2" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><geometry><mesh filename="package://nowhere/rod.stl"/></geometry></visual>
  </link>
  <link name="tip"/>
  <joint name="hinge" type="revolute"><parent link="base"/><child link="rod"/><axis xyz="0 1 0"/>
    <limit lower="-2" upper="2.5" effort="7" velocity="3"/><dynamics damping="0.1"/></joint>
  <joint name="glue" type="fixed"><parent link="rod"/><child link="tip"/><origin xyz="0 0 -1"/></joint>
</robot>"""


@pytest.fixture
def pendulum(tmp_path):
    path = tmp_path / "pendulum.urdf"
    path.write_text(PENDULUM)
    return str(path)


def run(*argv):
    """A fresh process, as a user would: device counts and precision are set before JAX starts."""
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, "-m", "jaxrbd", *map(str, argv)],
        capture_output=True,
        text=True,
        env=env,
        timeout=300,
    )


def test_info_table(pendulum, capsys):
    assert cli.main(["info", pendulum]) == 0
    out = capsys.readouterr().out
    assert "pendulum: 1 moving bodies, nq = 1, nv = 1" in out
    row = next(line for line in out.splitlines() if " hinge " in line)
    for cell in ("revolute", "world", "rod", "-2 … 2.5", "7", "3", "0.1"):
        assert cell in row
    assert "fixed to rod: tip" in out
    assert "mesh files not found: package://nowhere/rod.stl" in out
    assert "warning: " in out


def test_info_json(pendulum, capsys):
    assert cli.main(["info", pendulum, "--json", "--base", "free"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["nb"], facts["nq"], facts["nv"], facts["mass"]) == (2, 8, 7, 2.0)
    assert [j["type"] for j in facts["joints"]] == ["free", "revolute"]
    assert facts["joints"][1]["upper"] == [2.5]
    assert facts["joints"][0]["upper"] == [None] * 6


def test_info_of_the_zoo(capsys):
    assert cli.main(["info", "zoo:chain:4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nv"] == 4
    assert cli.main(["info", "zoo:humanoid"]) == 0
    assert "left_ankle_roll" in capsys.readouterr().out


MISTAKES = {
    "missing file": (["info", "nowhere.urdf"], "nowhere.urdf: the file does not exist"),
    "folder": (["info", "."], "is a folder"),
    "unknown zoo model": (["info", "zoo:spot"], "no model 'spot'"),
    "near zoo model": (["info", "zoo:quadruped_"], "Did you mean 'quadruped'?"),
    "zoo model without zoo:": (["info", "humanoid"], "Did you mean zoo:humanoid?"),
    "near command": (["simulat", "zoo:arm7"], "Did you mean 'simulate'?"),
    "zoo size": (["info", "zoo:chain:many"], "not whole numbers"),
    "no command": ([], "COMMAND"),
    "unknown command": (["fly"], "invalid choice"),
    "unknown option": (["info", "zoo:arm7", "--fast"], "--fast"),
    "negative steps": (["simulate", "zoo:arm7", "--steps", "-3"], "--steps"),
    "negative dt": (["simulate", "zoo:arm7", "--dt", "-1"], "--dt"),
    "text for a number": (["simulate", "zoo:arm7", "--batch", "all"], "--batch"),
    "bad ending": (["simulate", "zoo:arm7", "--save", "x.txt"], "does not end in .npz"),
    "bad folder": (["simulate", "zoo:arm7", "--save", "no/such/x.npz"], "does not exist"),
    "nothing to simulate": (["simulate"], "which model?"),
    "model and run": (["simulate", "zoo:arm7", "--resume", "x"], "leave FILE and --save out"),
    "no such run": (["simulate", "--resume", "no-such-run"], "there is no such run"),
    "no such replay": (["replay", "no-such-run"], "there is no such run"),
    "no such model to view": (["view", "no-such.urdf"], "does not exist"),
    "html ending": (["simulate", "zoo:arm7", "--html", "x.htm"], "does not end in .html"),
    "demo ending": (["demo", "--out", "x.jpg"], "does not end in .png"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line_and_code_2(mistake, capsys):
    argv, message = MISTAKES[mistake]
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("jaxrbd: error: ")
    assert message in err
    assert err.count("\n") == 1


def test_broken_model_is_one_line(tmp_path, capsys):
    path = tmp_path / "broken.urdf"
    path.write_text(PENDULUM.replace('type="revolute"', 'type="wobbly"'))
    assert cli.main(["info", str(path)]) == 2
    err = capsys.readouterr().err
    assert "broken.urdf" in err
    assert "hinge" in err
    assert err.count("\n") == 1


def test_simulate_saves_and_draws(pendulum, tmp_path):
    out, png = tmp_path / "t.npz", tmp_path / "t.png"
    options = ["--batch", 4, "--steps", 103, "--every", 10, "--precision", 64, "--integrator", "rk4"]
    done = run("simulate", pendulum, *options, "--save", out, "--plot", png)
    assert done.returncode == 0, done.stderr
    assert "4 states x 103 steps" in done.stdout
    assert "steps/s" in done.stdout
    assert "100%" in done.stderr
    with np.load(out, allow_pickle=False) as data:
        assert data["q"].shape == (4, 11, 1)
        assert data["v"].shape == (4, 11, 1)
        np.testing.assert_allclose(data["t"], 0.01 * np.arange(11))
        assert list(data["joint_names"]) == ["hinge"]
        q, v = data["q"][..., 0], data["v"][..., 0]
    # a damped physical pendulum: (I + m l²) a = -m g l sin q - d v, integrated here with a fine Euler step
    position, speed, dt = q[:, 0], v[:, 0], 1e-5
    for _ in range(10_000):
        speed = speed + dt * (-2 * 9.81 * 0.5 * np.sin(position) - 0.1 * speed) / (0.2 + 2 * 0.25)
        position = position + dt * speed
    np.testing.assert_allclose(q[:, -1], position, atol=1e-5)
    np.testing.assert_allclose(v[:, -1], speed, atol=1e-4)
    assert png.read_bytes()[:4] == b"\x89PNG"


def test_simulate_is_reproducible_and_splits_into_chunks_alike(tmp_path):
    runs = []
    for seed, every in ((1, 1), (1, 7), (2, 1)):
        path = tmp_path / f"{seed}{every}.npz"
        done = run(
            "simulate", "zoo:double_pendulum", "--steps", 70, "--seed", seed, "--every", every, "--save", path
        )
        assert done.returncode == 0, done.stderr
        runs.append(np.load(path)["q"])
    np.testing.assert_allclose(runs[0][:, ::7], runs[1], rtol=1e-6)
    assert not np.allclose(runs[0], runs[2])


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("reply", ["y\n", "\n"])
def test_large_files_are_announced(terminal, reply, monkeypatch, capsys):
    """1.23 GB is written on demand only: asked for at a terminal, else by --yes."""
    arm = rbd.zoo.arm7(dtype="float32")
    question = io.StringIO(reply)
    question.isatty = lambda: terminal
    monkeypatch.setattr("sys.stdin", question)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    args = SimpleNamespace(save=Path("fall.npz"), batch=4096, steps=1000, every=1, yes=False)
    size = (args.steps + 1) * (args.batch * 14 * 4 + 8)
    assert simulate.trajectory_bytes(arm, 4096, 1000, 1) == size
    if terminal and reply == "y\n":
        simulate.announce(args, arm)
    else:
        with pytest.raises(rbd.ArgumentError, match="fall.npz .*Pass --yes .*--every 3"):
            simulate.announce(args, arm)
    assert ("fall.npz will take 230 MB. Go on?" in capsys.readouterr().err) == terminal
    args.yes = True
    simulate.announce(args, arm)
    assert "fall.npz will take 230 MB" in capsys.readouterr().err
    args.every, args.yes = 3, False
    simulate.announce(args, arm)
    assert capsys.readouterr().err == "jaxrbd: fall.npz will take 76.6 MB\n"


def test_the_command_in_the_readme_writes_a_small_file():
    text = (Path(__file__).parent.parent / "README.md").read_text()
    command = next(line for line in text.splitlines() if line.startswith("jaxrbd simulate"))
    args = cli._parser().parse_args(command.split()[1:])
    model, _ = open_model(args.file)
    assert simulate.trajectory_bytes(model, args.batch, args.steps, args.every) < simulate.LARGE


def test_demo_lowers_the_cost_and_draws(tmp_path):
    png = tmp_path / "demo.png"
    done = run("demo", "--quick", "--out", png)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("batch ", "gradient ", "energy ", "steps/s"):
        assert word in done.stdout
    assert png.stat().st_size > 50_000


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_works_with_and_without_a_terminal(terminal):
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    with Progress(100, "work", stream) as bar:
        for _ in range(100):
            bar.advance()
    text = stream.getvalue()
    assert "100% 100/100" in text
    assert text.count("\n") == (1 if terminal else 10)
