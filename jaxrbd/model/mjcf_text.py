"""MJCF text made safe for MuJoCo's compiler, which would otherwise open any file a model names.

Model files are untrusted: the XML is parsed by `xml_safe`, `<include>` is expanded here, every file
attribute is replaced by a name that only exists in memory, counts that would allocate without bound
are refused, percent signs, which MuJoCo's messages take for formats, are exchanged, and what jaxrbd does
not represent (textures, sensors, skins, flexible bodies) is left out. The result is written out again, so
MuJoCo reads exactly the elements that were checked, each on the line it had in the file, and its messages
stay true.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from xml.sax.saxutils import quoteattr

from jaxrbd.errors import ModelError, short
from jaxrbd.model.checks import LARGEST
from jaxrbd.model.description import MAX_FREEDOMS
from jaxrbd.model.mesh_paths import find_mesh, package_folders
from jaxrbd.model.xml_safe import MAX_DEPTH, Element, parse_xml
from jaxrbd.typing import StrPath

PERCENT = "\ue025"  # stands for % in what MuJoCo reads: "%n" in a class aborts the process
MAX_COPIES = 20_000  # bodies or geoms that <replicate> and <composite> may ask for
MAX_FILE_BYTES = 256 * 2**20
MAX_MODELS = 64  # included files, and sub-models, each

_EXTENSIONS = {"model/obj": ".obj", "model/stl": ".stl", "model/vnd.mujoco.msh": ".msh"}
_NAMES = {"name", "class", "childclass", "file", "prefix", "model", "material", "mesh"}
_OUTSIDE = "Only the model's folder and package_dirs are searched; put the file there or name its folder."


@dataclass(frozen=True)
class AssetFile:
    """A file that the model names: as written, and where it is ("" if it was not found)."""

    written: str
    path: str


@dataclass
class MjcfText:
    """What MuJoCo may see: the rewritten model, sub-models by name, and the files behind made-up names."""

    text: str = ""
    submodels: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, AssetFile] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)  # elements left out, for a warning
    options: set[str] = field(default_factory=set)  # attributes of <option> that the file sets


def prepare(
    text: str | bytes | Element, source: str, folder: StrPath | None, package_dirs: Iterable[StrPath]
) -> MjcfText:
    """The model as MuJoCo may read it; ModelError where it is malformed, unsafe or out of bounds."""
    result = MjcfText()
    roots = package_folders(package_dirs)
    own = (os.path.abspath(os.fspath(folder)),) if folder is not None else ()
    result.text = _Rewriter(result, source, own[0] if own else None, own + roots).rewrite(text)
    result.dropped = sorted(set(result.dropped))
    return result


class _Rewriter:
    """Rewrites one MJCF document; a sub-model gets a rewriter of its own that fills the same result."""

    def __init__(
        self, result: MjcfText, source: str, folder: str | None, roots: tuple[str, ...], depth: int = 0
    ):
        self.result, self.source, self.folder, self.roots, self.depth = result, source, folder, roots, depth
        self.folders = {"mesh": "", "texture": ""}
        self.strip_path = False
        self.included: set[str] = set()

    def rewrite(self, text: str | bytes | Element) -> str:
        root = text if isinstance(text, Element) else parse_xml(text, self.source)
        if root.tag != "mujoco":
            raise ModelError(
                self.source, f"root element <{short(root.tag)}>", "Expected <mujoco> for an MJCF model."
            )
        self._expand(root, self.folder or "")
        if sum(1 for e in root.iter() if e.tag in ("joint", "freejoint")) > MAX_FREEDOMS:
            raise ModelError(self.source, f"more than {MAX_FREEDOMS} joints", "Split the model into several.")
        if self.depth == 0:
            self.result.options = {key for option in root.iterfind("option") for key in option.attrib}
        for compiler in root.all("compiler"):
            self._compiler(compiler)
        copies = sum(self._visit(child, 1, depth=1) for child in list(root))
        if copies > MAX_COPIES and any(True for _ in root.iter("replicate")):
            raise self._error(root, f"{copies} elements after replication", f"Keep below {MAX_COPIES}.")
        for child in list(root):
            if child.tag in ("size", "custom", "sensor", "deformable"):
                root.remove(child)
                if child.tag in ("sensor", "deformable") and len(child):
                    self.result.dropped.append(f"<{child.tag}>")
        return _write(root)

    def _error(self, element: Element, cause: str, remedy: str) -> ModelError:
        name = f" {short(written)!r}" if (written := element.get("name")) else ""
        line = f", line {element.line}" if element.line else ""
        return ModelError(f"{self.source}{line}, <{short(element.tag)}>{name}", short(cause, 200), remedy)

    def _expand(self, parent: Element, folder: str, depth: int = 0) -> None:
        """Put the children of included files in the place of <include file=.../>.

        A name is looked up beside the file that includes it, in `folder`, then beside the model.
        """
        if depth > MAX_DEPTH:
            raise self._error(parent, f"elements nested deeper than {MAX_DEPTH}", "Flatten the model.")
        for element in list(parent):
            if element.tag != "include":
                self._expand(element, folder, depth + 1)
                continue
            written = element.get("file", "").replace("\\", "/")
            path = find_mesh(os.path.join(folder, written), None, self.roots) if folder and written else ""
            path = path or self._find(written)
            if not path:
                raise self._error(element, f"included file {written!r} was not found", _OUTSIDE)
            if path in self.included or len(self.included) >= MAX_MODELS:
                remedy = f"Include each file once, and at most {MAX_MODELS} files."
                raise self._error(element, f"{written!r} is included again or is one too many", remedy)
            self.included.add(path)
            inner = parse_xml(_read(path), path)
            if inner.tag not in ("mujoco", "mujocoinclude"):
                remedy = "Expected the root <mujoco> or <mujocoinclude>."
                raise self._error(element, f"included file {written!r} has root <{inner.tag}>", remedy)
            for e in inner.iter():
                e.line = 0  # not a line of the main file
            self._expand(inner, os.path.dirname(path), depth)
            at = list(parent).index(element)
            parent[at : at + 1] = list(inner)

    def _compiler(self, compiler: Element) -> None:
        """Take the asset folders out; file names are resolved here."""
        both = compiler.attrib.pop("assetdir", None)
        for kind in self.folders:
            self.folders[kind] = compiler.attrib.pop(f"{kind}dir", both or self.folders[kind])
        self.strip_path = compiler.attrib.pop("strippath", str(self.strip_path)).lower() == "true"
        for child in compiler.findall("lengthrange"):  # runs a simulation while compiling
            compiler.remove(child)

    def _visit(self, element: Element, copies: int, depth: int) -> int:
        """Check and rewrite an element and its children; returns how many there are once copied."""
        self._check_numbers(element)
        total = copies
        if element.tag in ("replicate", "composite"):
            copies *= self._count(element)
            total = copies
        if total > MAX_COPIES:
            raise self._error(element, f"asks for {total} copies", f"Keep the count below {MAX_COPIES}.")
        if element.tag == "mesh":
            self._mesh(element)
        elif element.tag == "texture":
            self._texture(element)
        elif element.tag == "hfield":
            self._heightfield(element)
        elif element.tag == "model" and depth <= 3:
            self._submodel(element)
        for child in list(element):
            if child.tag in ("flexcomp", "skin", "flex", "flexvert", "flexstrain"):
                element.remove(child)
                self.result.dropped.append(f"<{child.tag}>")
            else:
                total += self._visit(child, copies, depth + 1)
        for key, value in element.attrib.items():
            if (
                key.startswith("file")
                and value not in self.result.files
                and value not in self.result.submodels
            ):
                raise self._error(element, f"attribute {key} is not expected here", "Remove it.")
        return total

    def _check_numbers(self, element: Element) -> None:
        for key, value in element.attrib.items():
            if key in _NAMES or not set("ne") & set(value.lower()):
                continue
            for token in value.split():
                try:
                    number = abs(float(token))
                except ValueError:
                    break
                if not number <= LARGEST:
                    cause = f"{short(key)} = {short(value)!r} is not finite or too large"
                    raise self._error(element, cause, f"Give finite numbers up to {LARGEST:g}.")

    def _count(self, element: Element) -> int:
        try:
            return math.prod(max(1, int(n)) for n in element.get("count", "1").split())
        except ValueError:
            return 1  # MuJoCo explains what it expects

    def _find(self, written: str, folder: str = "") -> str:
        if not written:
            return ""
        written, folder = written.replace("\\", "/"), folder.replace("\\", "/")
        below = os.path.join(folder, os.path.basename(written) if self.strip_path else written)
        return find_mesh(os.path.join(self.folder or "", below), self.folder, self.roots) or find_mesh(
            below, None, self.roots
        )

    def _register(self, element: Element, kind: str) -> str:
        """A made-up name for the file of this element."""
        written = element.attrib.pop("file")
        content_type = element.attrib.pop("content_type", "")
        element.attrib.setdefault("name", os.path.splitext(os.path.basename(written))[0])
        path = self._find(written, self.folders["mesh"])
        extension = _EXTENSIONS.get(content_type, os.path.splitext(written)[1].lower())
        extension = extension if extension[1:].isalnum() else ""
        name = f"jaxrbd_{kind}_{len(self.result.files)}{extension}"
        self.result.files[name] = AssetFile(written, path)
        return name

    def _mesh(self, element: Element) -> None:
        if element.get("file"):
            element.set("file", self._register(element, "mesh"))
        if element.get("builtin"):
            sizes = [float(t) for t in element.get("params", "").split() if t.replace(".", "", 1).isdigit()]
            if max(sizes, default=0) > 500:
                raise self._error(element, "builtin mesh of excessive resolution", "Keep params below 500.")

    def _texture(self, element: Element) -> None:
        """Colours only matter to a viewer: one flat pixel stands for every texture."""
        files = [k for k in element.attrib if k.startswith("file")]
        if files:
            stem = os.path.splitext(os.path.basename(element.attrib[files[0]]))[0]
            element.attrib.setdefault("name", stem)
        for key in [*files, "gridsize", "gridlayout", "content_type", "nchannel"]:
            element.attrib.pop(key, None)
        element.attrib.update(builtin="flat", width="1", height="1")

    def _heightfield(self, element: Element) -> None:
        """The elevation data stay in their file: a flat 2x2 field stands for them while compiling."""
        if element.get("file"):
            stand_in = self._register(element, "hfield")
            self.result.files[f"hfield {element.get('name')}"] = self.result.files.pop(stand_in)
        element.attrib.pop("elevation", None)
        element.attrib.update(nrow="2", ncol="2")

    def _submodel(self, element: Element) -> None:
        written = element.get("file")
        if not written:
            return
        path = self._find(written)
        if not path:
            raise self._error(element, f"sub-model {written!r} was not found", _OUTSIDE)
        if self.depth >= 8 or len(self.result.submodels) >= MAX_MODELS:
            raise self._error(element, "sub-models nested too deeply", "A model may not contain itself.")
        element.attrib.pop("content_type", None)
        inner = _Rewriter(self.result, path, os.path.dirname(path), self.roots, self.depth + 1)
        name = f"jaxrbd_model_{len(self.result.submodels)}.xml"
        self.result.submodels[name] = b""
        self.result.submodels[name] = inner.rewrite(_read(path)).encode()
        element.set("file", name)


def _read(path: str) -> bytes:
    """A file that `find_mesh` allowed, within bounds."""
    if os.path.getsize(path) > MAX_FILE_BYTES:
        raise ModelError(path, f"larger than {MAX_FILE_BYTES} bytes", "Simplify it.")
    with open(path, "rb") as file:
        return file.read()


def read_asset(asset: AssetFile) -> bytes:
    """The bytes of an asset file that was found."""
    return _read(asset.path)


def _write(root: Element) -> str:
    """XML text without percent signs in which each element starts on its own line of the original file."""
    parts: list[str] = []
    line = 1

    def emit(element: Element) -> None:
        nonlocal line
        if element.line > line:
            parts.append("\n" * (element.line - line))
            line = element.line
        attributes = "".join(f" {k}={quoteattr(v.replace('%', PERCENT))}" for k, v in element.attrib.items())
        if len(element) == 0:
            parts.append(f"<{element.tag}{attributes}/>")
            return
        parts.append(f"<{element.tag}{attributes}>")
        for child in element:
            emit(child)
        parts.append(f"</{element.tag}>")

    emit(root)
    return "".join(parts)
