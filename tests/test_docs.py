"""README and pages tell the truth: programs run, commands parse, links and tables lead somewhere."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest
from test_structure import LAYERS

import jaxrbd as rbd
from jaxrbd import cli

ROOT = Path(rbd.__file__).parent.parent
PAGES = ROOT / "docs" / "pages"
TEXTS = [ROOT / "README.md", *sorted(PAGES.rglob("*.md"))]
OTHERS = [ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"]  # commands and paths, no programs
BLOCK = re.compile(
    r"(?:^\*Not run in the tests: (?P<reason>.+)\*\n\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
INLINE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?:jaxrbd|tests|benchmarks|examples|docs|\.ci)/[\w./-]*")
MAKEFILE = (ROOT / "Makefile").read_text()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, *languages: str):
    """(first line, code, reason not to run it) of the fenced blocks in one of the languages."""
    text = path.read_text()
    for found in BLOCK.finditer(text):
        if found["language"] in languages:
            yield text[: found.start("code")].count("\n") + 1, found["code"], found["reason"]


def prose(path: Path) -> str:
    return BLOCK.sub("", path.read_text())


# --- blocks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [p for p in TEXTS if any(not reason for *_, reason in blocks(p, "python"))], ids=name_of
)
def test_python_blocks_run(path, tmp_path, monkeypatch):
    """The blocks of a page share their names, as a reader's session would."""
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for line, code, reason in blocks(path, "python"):
        if reason:
            continue
        program = compile("\n" * (line - 1) + code, name_of(path), "exec")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "configure_cpu")  # JAX has started long ago
            exec(program, names)
    if path == ROOT / "README.md":  # its constraints are met where they were made, and its gradient is one
        held = rbd.constraints.combine(*names["held"])
        error = rbd.constraints.constraint_error(names["sys"], held, names["q"])
        np.testing.assert_allclose(error, 0, atol=1e-12)
        assert names["sol"].converged and np.abs(names["grad"]).max() > 0


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_blocks_have_a_language_that_is_checked(path):
    languages = {m["language"] for m in BLOCK.finditer(path.read_text())}
    assert languages <= {"python", "sh", "text"}, "fence programs as python, commands as sh, the rest as text"
    assert path.read_text().count("```") == 2 * len(BLOCK.findall(path.read_text()))


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


# --- commands ------------------------------------------------------------------------------------------


def commands(path: Path):
    """Lines of sh blocks, and what stands between backquotes and begins like a command."""
    for _, code, _ in blocks(path, "sh"):
        yield from (line for line in code.replace("\\\n", " ").splitlines() if line.split("#")[0].strip())
    for text in INLINE.findall(prose(path)):
        if re.match(r"(make|jaxrbd|pip install|python -m) ", text) and "…" not in text:
            yield text


def wrong(command: str) -> str:
    """What is wrong with a command line, or nothing."""
    words = shlex.split(command, comments=True)
    if words[0] == "make":
        targets = set(re.findall(r"^([\w-]+):", MAKEFILE, re.M))
        return ", ".join(w for w in words[1:] if "=" not in w and w not in targets)
    if words[0] == "jaxrbd":
        try:
            cli._parser().parse_args(words[1:])
        except cli.UsageError as error:
            return str(error)
        return ""
    if words[:2] == ["python", "-m"]:
        module = words[2].replace(".", "/") + ".py"
        return "" if words[2] == "pytest" or (ROOT / module).is_file() else f"no {module}"
    if "pip" in words and "install" in words:
        named = re.findall(r"^(?:\.|jaxrbd)\[(.*)\]$", words[-1])
        return ", ".join(extra for extra in ",".join(named).split(",") if extra and extra not in EXTRAS)
    if (ROOT / words[0]).is_file() or words[0].startswith(".venv/bin/"):
        return ""
    return "a command that this test does not know"


@pytest.mark.parametrize("path", TEXTS + OTHERS, ids=name_of)
def test_commands_parse(path):
    found = {command: wrong(command) for command in commands(path)}
    assert not {c: w for c, w in found.items() if w}


def test_wrong_commands_are_noticed():
    for bad in ("make tea", "jaxrbd view", "python -m benchmarks.tea", "pip install '.[tea]'", "tea"):
        assert wrong(bad), bad


# --- names and links -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_links_lead_somewhere(path):
    """Relative links, anchors included: headings become anchors as in the site and on code hosts."""
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"\w+://", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.is_file() or (anchor and anchor not in anchors(there)):
            lost.append(target)
    assert not lost


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(path), re.M)
    plain = (re.sub(r"[^\w\s-]", "", h).strip().lower() for h in headings)
    return {re.sub(r"[\s]+", "-", h) for h in plain}


@pytest.mark.parametrize("path", TEXTS + OTHERS, ids=name_of)
def test_paths_exist(path):
    named = [text for text in INLINE.findall(prose(path)) if PATH.fullmatch(text.partition("::")[0])]
    assert not [p for p in named if not (ROOT / p.partition("::")[0]).exists()]


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_public_names_exist(path):
    """Whatever is written as rbd.name, in programs and in prose."""
    missing = [
        name for name in re.findall(r"\brbd\.([a-zA-Z_][\w.]*\w)", path.read_text()) if not reachable(name)
    ]
    assert not missing


def reachable(name: str, thing=rbd) -> bool:
    for part in name.split("."):
        if not hasattr(thing, part):
            return False
        thing = getattr(thing, part)
    return True


def tables(path: Path):
    """Rows of the tables that name a file, as dictionaries by column."""
    header = None
    for line in prose(path).splitlines():
        if not line.startswith("|"):
            header = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if header is None:
            header = cells
        elif "file" in header and "function" in header and not set(line) <= set("|- "):
            yield dict(zip(header, cells, strict=True))


@pytest.mark.parametrize("path", [p for p in TEXTS if any(tables(p))], ids=name_of)
def test_tables_name_real_functions_and_tests(path):
    lost = []
    for row in tables(path):
        (file,) = INLINE.findall(row["file"])
        module = importlib.import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        lost += [f"{file}: {f}" for f in INLINE.findall(row["function"]) if not reachable(f, module)]
        (test,) = INLINE.findall(row["test"])
        where, _, name = test.partition("::")
        if not name:
            continue
        tree = ast.parse((ROOT / where).read_text())
        if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            lost.append(test)
    assert not lost


def test_the_drawing_of_the_layers_is_the_one_that_is_kept():
    drawn = next(code for _, code, _ in blocks(PAGES / "architecture.md", "text"))
    names = [line.split("  ")[0].split(", ") for line in drawn.splitlines() if not line.startswith("─")]
    assert [set(row) for row in reversed(names)] == [set(row) - {"__main__"} for row in LAYERS]


def test_every_document_has_its_table():
    for page in ("caba", "prox", "grbda", "hovi", "loops"):
        assert any(tables(PAGES / f"{page}.md")), page


# --- the site ------------------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation():
    listed = re.findall(r"^\s+- (\S+\.md)$", (ROOT / "docs" / "mkdocs.yml").read_text(), re.M)
    assert sorted(listed) == sorted(str(p.relative_to(PAGES)) for p in PAGES.rglob("*.md"))


def test_the_reference_has_every_public_name():
    text = "\n".join(p.read_text() for p in (PAGES / "api").glob("*.md"))
    listed = set(re.findall(r"^::: jaxrbd\.([\w.]+)$", text, re.M))
    public = {n for n in vars(rbd) if not n.startswith("_") and callable(getattr(rbd, n))}
    public |= {
        f"constraints.{n}"
        for n, thing in vars(rbd.constraints).items()
        if not n.startswith("_") and callable(thing) and getattr(rbd, n, None) is not thing
    }
    for package in ("viewer", "dual", "contact"):
        public |= {f"{package}.{n}" for n in getattr(rbd, package).__all__}
    public |= {f"checkpoint.{n}" for n in ("Run", "load", "save")}
    zoo = {n for n in listed if n.startswith("model.zoo.")}
    assert {n.rpartition(".")[2] for n in zoo} == set(rbd.zoo.DESCRIPTIONS)
    assert listed - zoo == public


def test_packages_are_regular():
    """The reference is made without importing: every folder of modules must say that it is a package."""
    folders = {p.parent for p in (ROOT / "jaxrbd").rglob("*.py")}
    assert not [name_of(f) for f in folders if not (f / "__init__.py").is_file()]
