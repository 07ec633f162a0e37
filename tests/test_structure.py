"""The package keeps its shape: imports point downwards only."""

import ast
import re
import tomllib
from pathlib import Path

import numpy as np

import jaxrbd

ROOT = Path(jaxrbd.__file__).parent
# each layer may import itself and the ones before it
LAYERS = [
    ("errors",),
    ("model",),
    ("engine",),
    ("tree",),
    ("solution", "forces", "inertia", "ik_targets", "ik"),
    ("constraints",),
    ("integrators",),
    ("controllers",),
    ("simulate", "devices"),
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


def test_the_readme_starts_on_its_constraints():
    """The lines that prepare a constrained rollout, run as they stand."""
    text = (ROOT.parent / "README.md").read_text()
    names = {"rbd": jaxrbd, "con": jaxrbd.constraints, "sys": jaxrbd.zoo.humanoid()}
    names |= {"q": names["sys"].q0, "v": np.zeros(names["sys"].nv)}
    for variable in ("held", "on", "start"):
        exec(re.search(rf"^{variable} = .*$", text, re.MULTILINE)[0], names)
    assert "rollout(sys, start, integrator=rbd.RK4(dt=1e-3), constraints=held" in text
    error = jaxrbd.constraints.constraint_error(names["sys"], names["held"], names["start"].q)
    np.testing.assert_allclose(error, 0, atol=1e-12)
