"""The package keeps its shape: imports point downwards only, and what it exports is typed."""

import ast
import inspect
import re
import sys
import tomllib
from pathlib import Path

import jaxrbd
from jaxrbd import collision, constraints, integrators, joints, zoo

ROOT = Path(jaxrbd.__file__).parent
# each layer may import itself and the ones before it
LAYERS = [
    ("errors", "typing"),
    ("joints",),
    ("model",),
    ("engine",),
    ("tree",),
    ("solution", "forces", "inertia", "ik_targets", "ik"),
    ("clusters",),
    ("dual",),
    ("constraints",),
    ("collision",),
    ("contact",),
    ("maximal",),
    ("integrators",),
    ("controllers",),
    ("simulate", "devices", "hosts", "checkpoint"),
    ("viewer",),
    ("demo", "commands", "cli", "__main__"),
]
TOP = {"demo", "commands", "cli", "__main__"}  # may use the package as its users do
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imported(path: Path):
    """(module, name) of everything that a file imports from the package, in every form of import.

    `name` is None where a module itself is imported.
    """
    package = ("jaxrbd", *path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "jaxrbd":
                    yield alias.name, None
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                module = ".".join([*package[: len(package) - node.level + 1], *filter(None, [module])])
            if module.split(".")[0] == "jaxrbd":
                for alias in node.names:
                    yield module, alias.name


def layer(module: str, name: str | None) -> str:
    """The top part of the package that an import reaches, "" for the package itself."""
    parts = module.split(".")[1:]
    return parts[0] if parts else name if name in RANK else ""


def test_imports_point_downwards():
    wrong = []
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts == ("__init__",):
            continue
        for module, name in imported(path):
            target = layer(module, name)
            if not target or RANK[target] > RANK[parts[0]]:  # the whole package stands above all of it
                wrong.append(f"{'/'.join(parts)} imports {module} {name or ''}")
    assert not [w for w in wrong if w.split("/")[0].split()[0] not in TOP], wrong


def test_every_form_of_import_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "tree").mkdir()
    path = tmp_path / "tree" / "x.py"
    path.write_text(
        "import jaxrbd as rbd\nimport jaxrbd.cli\nfrom jaxrbd import simulate\nfrom jaxrbd.cli import main\n"
        "from .nodes import a\nfrom ..cli import b\nfrom . import c\nfrom .. import simulate\nimport jax\n"
    )
    found = [layer(*x) for x in imported(path)]
    assert found == ["", "cli", "simulate", "cli", "tree", "cli", "tree", "simulate"]


def test_nothing_private_is_imported_across_packages():
    wrong = []
    for path in ROOT.rglob("*.py"):
        own = path.relative_to(ROOT).parts[0]
        for module, name in imported(path):
            private = [
                p for p in (*module.split(".")[1:], name or "") if p.startswith("_") and p != "__version__"
            ]
            if private and layer(module, name) != own:
                wrong.append(f"{path.relative_to(ROOT)}: {module} {name}")
    assert not wrong, wrong


def test_no_file_outgrows_its_page():
    long = {
        str(p.relative_to(ROOT)): n
        for p in ROOT.rglob("*.py")
        if (n := len(p.read_text().splitlines())) > 400
    }
    assert not long, long


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
    assert "gym" not in extras  # nothing imports what it would install


def exported(module):
    """(name, object) of what a module offers of the package: functions, classes and their public methods."""
    for name, thing in vars(module).items():
        if name.startswith("_") or not getattr(thing, "__module__", "").startswith("jaxrbd"):
            continue
        if inspect.isclass(thing):
            for base in thing.__mro__:
                if base.__module__.startswith("jaxrbd"):
                    yield from members(base)
        elif callable(thing):
            yield f"{thing.__module__}.{name}", thing


def members(kind):
    for name, member in vars(kind).items():
        if name.startswith("_") and name not in ("__init__", "__call__"):
            continue
        for wrapped in ("fget", "__func__", "func"):  # property; static and class methods; cached_property
            member = getattr(member, wrapped, None) or member
        if inspect.isfunction(member) and member.__module__.startswith("jaxrbd"):
            yield f"{kind.__module__}.{kind.__qualname__}.{name}", member


def test_every_public_signature_is_typed():
    missing, seen = [], set()
    for place, function in {
        x for module in (jaxrbd, collision, constraints, integrators, joints, zoo) for x in exported(module)
    }:
        signature = inspect.signature(function)
        named = {p.name: p.annotation for p in signature.parameters.values() if p.name not in ("self", "cls")}
        if not place.endswith("__init__"):
            named["return"] = signature.return_annotation
        missing += [f"{place}: {name}" for name, kind in named.items() if kind is inspect.Parameter.empty]
        seen.add(place)
    assert not missing, sorted(missing)
    assert len(seen) > 200 and "jaxrbd.model.system.System.replace" in seen  # the walk reaches methods
