"""Every example runs to its closing assertion, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

LONG = ("01", "02", "03", "04", "07")  # a quarter of a minute to a minute each: left to `make test-all`
EXAMPLES = [
    pytest.param(path, marks=pytest.mark.all_robots if path.name.startswith(LONG) else ())
    for path in sorted((Path(__file__).parent.parent / "examples").glob("[0-9]*.py"))
]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(path, tmp_path):
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()
