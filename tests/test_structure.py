"""The package keeps its shape: imports point downwards only."""

import ast
import re
import tomllib
from pathlib import Path

import jaxrbd

ROOT = Path(jaxrbd.__file__).parent
# each layer may import itself and the ones before it
LAYERS = [
    ("errors",),
    ("joints",),
    ("model",),
    ("engine",),
    ("tree",),
    ("solution", "forces", "inertia", "ik_targets", "ik"),
    ("constraints",),
    ("integrators",),
    ("simulate", "devices"),
    ("constrained_simulate",),
    ("demo", "commands", "cli", "__main__"),
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imported(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("jaxrbd."):
            yield node.module.split(".")[1]


def test_imports_point_downwards():
    wrong = []
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts == ("__init__",):
            continue
        for target in imported(path):
            if RANK[target] > RANK[parts[0]]:
                wrong.append(f"{'/'.join(parts)} imports {target}")
    assert not wrong, wrong


def test_every_module_belongs_to_a_layer():
    names = {
        p.stem for p in ROOT.iterdir() if p.suffix == ".py" or (p.is_dir() and (p / "__init__.py").exists())
    }
    assert names - {"__init__", "__pycache__"} <= set(RANK)


def test_the_package_has_a_version_and_types():
    assert re.fullmatch(r"\d+\.\d+\.\d+", jaxrbd.__version__)
    assert (ROOT / "py.typed").is_file()
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["version"]["path"] == "jaxrbd/__init__.py"  # one place for the number
    extras = project["project"]["optional-dependencies"]
    assert "viewer" not in extras and "gym" not in extras  # nothing imports what they would install
