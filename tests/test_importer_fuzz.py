"""Mutated URDF and MJCF files in a process of their own: no abort, no hang, no foreign exception."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jaxrbd

pytest.importorskip("mujoco")

TESTS = Path(__file__).parent


def test_mutated_files_are_loaded_or_refused(request, tmp_path):
    count = 10_000 if request.config.getoption("--all-robots") else 300
    paths = [str(Path(jaxrbd.__file__).parent.parent), str(TESTS)]
    run = subprocess.run(
        [sys.executable, str(TESTS / "mutants.py"), "0", str(count)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=60 + count / 5,
        check=False,
    )
    lines = run.stdout.splitlines()
    assert run.returncode == 0, f"file {lines[-1:]} ended the process: {run.stderr[-2000:]}"
    report = json.loads(lines[-1])
    assert not report["foreign"], report["foreign"]
    assert report["counts"]["loaded"] > count / 10
    assert report["counts"]["refused"] > count / 10
    assert sum(report["counts"].values()) == count
    print(report["counts"])
