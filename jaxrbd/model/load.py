"""Load a model from a file or from text; the format is recognised by the root tag."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from jaxrbd.errors import ArgumentError, ModelError, short, warn
from jaxrbd.model.compile import build
from jaxrbd.model.description import Description
from jaxrbd.model.names import near_files
from jaxrbd.model.save import FORMAT as SAVED
from jaxrbd.model.system import System
from jaxrbd.model.validate import listing
from jaxrbd.model.xml_safe import parse_xml
from jaxrbd.typing import DTypeLike, StrPath

_MAX_BYTES = 64 * 2**20


def load(
    source: StrPath,
    *,
    base: str | None = None,
    package_dirs: StrPath | Iterable[StrPath] = (),
    dtype: DTypeLike | None = None,
    strict: bool = False,
) -> System:
    """`jaxrbd.load` with relations kept as data, which a warning says."""
    description = read_description(source, package_dirs=package_dirs)
    sys = build(description, base=base, dtype=dtype, strict=strict)
    _warn_unenforced(sys)
    return sys


def read_description(source: StrPath, *, package_dirs: StrPath | Iterable[StrPath] = ()) -> Description:
    """Parse a model file or text into a Description without compiling it."""
    text, name, folder = _read(source)
    root = parse_xml(text, name)
    tag = root.tag.rsplit("}", 1)[-1]
    package_dirs = [
        Path(p) for p in ([package_dirs] if isinstance(package_dirs, (str, os.PathLike)) else package_dirs)
    ]
    if tag == "robot":
        from jaxrbd.model.urdf import read_urdf

        return read_urdf(root, source=name, folder=folder, package_dirs=package_dirs)
    if tag == "mujoco":
        from jaxrbd.model.mjcf import read_mjcf

        return read_mjcf(root, source=name, folder=folder, package_dirs=package_dirs)
    if tag == "sdf":
        raise ModelError(name, "this is an SDF file", "Convert it to URDF or MJCF first; SDF is not read.")
    raise ModelError(
        name, f"the root element is <{short(tag)}>", "A URDF starts with <robot>, an MJCF with <mujoco>."
    )


def _refuse_other_formats(path: Path) -> None:
    """Files that jaxrbd writes and that are no models."""
    with path.open("rb") as file:
        start = file.read(4096)
    if start[8:9] == b"{" and SAVED.encode() in start:
        raise ModelError(str(path), "this is a System that save wrote", "Read it with rbd.load_system.")
    if start.startswith(b"PK"):
        remedy = "Read it with numpy.load; a model is a URDF or MJCF file, a saved System is for load_system."
        raise ModelError(str(path), "this is an archive (such as .npz), not a model", remedy)


def _warn_unenforced(sys: System) -> None:
    """Mimics and loops are data until a constraint solver gets them: said once, when a file brings them."""
    t = sys.topology
    mimics = [t.joint_names[joint] for joint, _ in t.mimics]
    loops = [name for name, active in zip(t.loop_names, t.loop_active) if active]
    parts = [
        f"{len(names)} {what} ({listing(names)})"
        for what, names in (("mimic joints", mimics), ("loops", loops))
        if names
    ]
    if parts:
        warn(
            f"{t.source}: {' and '.join(parts)} are kept as data and move freely. To enforce them, pass "
            "constraints=jaxrbd.constraints.of_model(sys) to step or rollout."
        )


def _read(source: StrPath) -> tuple[str, str, Path | None]:
    if isinstance(source, str) and "<" in source:
        return source, "<text>", None
    if not isinstance(source, (str, os.PathLike)):
        raise ArgumentError(
            f"load: found {type(source).__name__}, expected the path of a URDF or MJCF file, or its text. "
            "A Description is compiled by rbd.build."
        )
    path = Path(source)
    if not path.is_file():
        remedy = near_files(path) or "Check the path; a model can also be passed as its XML text."
        raise ModelError(f"{source!s:.200}", "there is no such file", remedy)
    _refuse_other_formats(path)
    if path.stat().st_size > _MAX_BYTES:
        raise ModelError(
            str(source), f"the file is larger than {_MAX_BYTES >> 20} MiB", "This is no robot model."
        )
    try:
        return path.read_bytes().decode("utf-8-sig"), path.name, path.resolve().parent
    except UnicodeDecodeError:
        raise ModelError(str(source), "the file is not UTF-8 text", "Save it as UTF-8 XML.") from None
