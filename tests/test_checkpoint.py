"""Runs that survive a kill: bit for bit, checksummed, and refused where something was damaged."""

import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import checkpoint
from jaxrbd.model import tensors

TREE = {
    "state": rbd.State(jnp.arange(3.0), jnp.zeros((2, 0))),
    "key": jax.random.key(7),
    "old key": jax.random.PRNGKey(3),
    "n": (1, 2.5, True),
    "flags": np.array([True, False]),
    "small": jnp.asarray(3, jnp.int8),
}


def same(a, b):
    a, b = (jax.tree.map(lambda x: jax.random.key_data(x) if checkpoint._is_key(x) else x, t) for t in (a, b))
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)):
        assert np.asarray(x).dtype == np.asarray(y).dtype
        np.testing.assert_array_equal(x, y)


def test_a_tree_comes_back_bit_for_bit(tmp_path):
    checkpoint.save(tmp_path / "tree.rbd", TREE)
    back = checkpoint.load(tmp_path / "tree.rbd", like=TREE)
    same(TREE, back)
    assert [type(x) for x in back["n"]] == [int, float, bool]
    assert jax.random.normal(back["key"]) == jax.random.normal(TREE["key"])


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({"a": jnp.zeros(3)}, "is float64\\[2\\], expected float64\\[3\\]"),
        ({"a": jnp.zeros(2, jnp.float32)}, "expected float32"),
        ({"b": jnp.zeros(2)}, "there is no"),
        ({"a": jax.random.key(0)}, "is no random key, expected threefry"),
        ({}, "it holds more"),
    ],
    ids=["shape", "dtype", "name", "key", "less"],
)
def test_a_tree_of_another_form_is_refused(tmp_path, like, message):
    checkpoint.save(tmp_path / "tree.rbd", {"a": jnp.zeros(2)})
    with pytest.raises(rbd.FileError, match=message) as error:
        checkpoint.load(tmp_path / "tree.rbd", like=like)
    assert "tree.rbd" in str(error.value)


def test_what_is_no_number_cannot_be_stored(tmp_path):
    with pytest.raises(rbd.ArgumentError, match=r"\['a'\] is <U4, which cannot be stored"):
        checkpoint.save(tmp_path / "x.rbd", {"a": np.array("text")})


def begin(folder, **changes):
    start = {"x": jnp.zeros(2), "key": jax.random.key(0)}
    return checkpoint.Run(folder, start, **{"dt": 0.1, "notes": {"seed": 0}, **changes})


def three_pieces(folder):
    with begin(folder) as run:
        for k in range(3):
            carry = {"x": run.carry["x"] + 1, "key": jax.random.split(run.carry["key"])[0]}
            run.add(carry, {"q": np.full((2, 4), float(k))})


def test_a_run_goes_on_where_it_stood(tmp_path):
    three_pieces(tmp_path / "run")
    with begin(tmp_path / "run") as run:
        assert run.count == 3 and run.notes == {"seed": 0}
        np.testing.assert_array_equal(run.carry["x"], [3, 3])
        np.testing.assert_array_equal(run.frames()["q"][:, 0], [0, 0, 1, 1, 2, 2])
        with pytest.raises(rbd.FileError, match="another process writes to this run"):
            begin(tmp_path / "run")
        with pytest.raises(rbd.FileError, match="float64\\[3\\], expected float64\\[2\\]"):
            run.add({"x": jnp.zeros(3), "key": jax.random.key(0)})
    reading = checkpoint.Run(tmp_path / "run")
    assert repr(reading).endswith("run', 3 pieces)")
    for forbidden in (lambda: reading.carry, lambda: reading.add({})):
        with pytest.raises(rbd.ArgumentError, match="opened to be read"):
            forbidden()


def test_another_computation_is_refused(tmp_path):
    three_pieces(tmp_path / "run")
    with pytest.raises(rbd.FileError, match="begun with notes = {'seed': 0}, not {'seed': 1}"):
        begin(tmp_path / "run", notes={"seed": 1})
    with pytest.raises(rbd.FileError, match="begun with dt = 0.1, not 0.2"):
        begin(tmp_path / "run", dt=0.2)
    arm = rbd.zoo.double_pendulum()
    begin(tmp_path / "with", sys=arm).close()
    begin(tmp_path / "with", sys=arm).close()
    with pytest.raises(rbd.FileError, match="begun with another System"):
        begin(tmp_path / "with", sys=arm.replace(mass=2 * arm.mass))
    (tmp_path / "with" / "system.rbd").unlink()
    with pytest.raises(rbd.FileError, match="system.rbd: missing or altered"):
        begin(tmp_path / "with", sys=arm)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    with pytest.raises(rbd.FileError, match="holds files, but no run"):
        begin(tmp_path / "full")


@pytest.mark.parametrize("piece", [0, 2])
@pytest.mark.parametrize("damage", ["cut", "altered", "header", "missing", "swapped"])
def test_damaged_pieces_are_refused_by_name(tmp_path, piece, damage):
    folder = tmp_path / "run"
    three_pieces(folder)
    file = folder / f"piece-{piece:06d}.rbd"
    content = bytearray(file.read_bytes())
    named = file.name
    if damage == "cut":
        file.write_bytes(content[:-9])
    elif damage == "altered":
        content[-1] ^= 1
        file.write_bytes(content)
    elif damage == "header":
        content[content.index(b"sha256")] ^= 1
        file.write_bytes(content)
    elif damage == "missing":
        file.unlink()
        if piece == 2:  # nobody can know that there was one more: the run goes on before it
            assert begin(folder).count == 2
            return
    else:
        other = folder / "piece-000001.rbd"
        file.write_bytes(other.read_bytes())
    for again in (lambda: begin(folder), lambda: checkpoint.Run(folder)):
        with pytest.raises(rbd.FileError, match=named):
            again()


def test_a_full_disk_is_an_error_and_the_run_goes_on(tmp_path, monkeypatch):
    three_pieces(tmp_path / "run")
    run = begin(tmp_path / "run")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        rbd.FileError, match="piece-000003.rbd: cannot be written .*No space left.* Make room"
    ):
        run.add(run.carry, {"q": np.zeros((2, 4))})
    monkeypatch.undo()
    assert sorted(p.name for p in (tmp_path / "run").iterdir())[-1] == "run.rbd"  # no half a file is left
    run.add(run.carry, {"q": np.zeros((2, 4))})
    run.close()
    assert begin(tmp_path / "run").count == 4


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_device_without_space(monkeypatch):
    """The same with the system's own error: /dev/full takes nothing."""
    monkeypatch.setattr(Path, "with_name", lambda self, name: self)
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
    with pytest.raises(rbd.FileError, match="/dev/full: cannot be written .*Make room"):
        tensors.write(Path("/dev/full"), [b"x" * 100_000])


def simulate(*arguments, **options):
    command = [sys.executable, "-m", "jaxrbd", "simulate", *map(str, arguments)]
    environment = os.environ | {"XLA_FLAGS": "", "JAX_ENABLE_X64": "0"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **options
    )


@pytest.mark.all_robots
def test_a_killed_simulation_goes_on_bit_for_bit(tmp_path):
    """SIGKILL at five random moments; the frames are those of a run that nobody disturbed."""
    what = ["zoo:arm7", "--batch", 64, "--steps", 40_000, "--every", 20, "--seed", 3]
    whole = simulate(*what, "--save", tmp_path / "whole")
    assert whole.wait(600) == 0, whole.stderr.read()
    moments, folder = random.Random(0), tmp_path / "killed"
    command = [*what, "--save", folder]
    for _ in range(5):
        job = simulate(*command)
        end = time.monotonic() + 600
        before = len(list(folder.glob("piece-*"))) if folder.exists() else 0
        while time.monotonic() < end and job.poll() is None:
            if folder.exists() and len(list(folder.glob("piece-*"))) > before:
                break
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.5))
        assert job.poll() is None, "it ended before it could be killed: make it longer"
        job.send_signal(signal.SIGKILL)
        job.wait()
        command = ["--resume", folder]
    job = simulate(*command)
    assert job.wait(600) == 0, job.stderr.read()
    a, b = checkpoint.Run(tmp_path / "whole"), checkpoint.Run(folder)
    assert a.count == b.count > 6
    for key, x in a.frames().items():
        np.testing.assert_array_equal(x, b.frames()[key])
    again = simulate("--resume", folder)
    assert "is complete" in again.communicate(timeout=600)[0] and again.returncode == 0


def test_headers_are_read_with_suspicion(tmp_path):
    """Types and shapes of a header are a stranger's."""
    file = tmp_path / "tree.rbd"
    checkpoint.save(file, {"a": jnp.zeros(2)})
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    name = "['a']"
    for change in ({"dtype": "PICKLE"}, {"shape": [-1]}, {"shape": "2"}, {"data_offsets": [0, 10**18]}):
        entries = {name: header[name] | change}
        metadata = {k: v for k, v in header["__metadata__"].items() if k != "sha256"}
        blank = tensors._header(entries, metadata | {"sha256": "0" * 64})
        forged = tensors._header(entries, metadata | {"sha256": hashlib.sha256(blank).hexdigest()})
        file.write_bytes(len(forged).to_bytes(8, "little") + forged + content[8 + length :])
        with pytest.raises(rbd.FileError, match="tree.rbd"):
            checkpoint.load(file, like={"a": jnp.zeros(2)})
