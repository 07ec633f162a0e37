"""MuJoCo's compiler run on text that `mjcf_text` made safe, with stand-ins for meshes nobody needs.

A mesh file is opened only where MuJoCo computes an inertia from it or fits a primitive to it; all
others are replaced by a tetrahedron while compiling, so a missing mesh stops nothing and a broken one
is never parsed. The names and paths stay for the Description's shapes.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from jaxrbd.errors import ModelError, short, warn
from jaxrbd.model.mjcf_text import PERCENT, AssetFile, MjcfText, prepare, read_asset
from jaxrbd.model.validate import listing
from jaxrbd.model.xml_safe import Element
from jaxrbd.typing import StrPath

if TYPE_CHECKING:
    from mujoco import MjModel, MjsBody, MjsGeom, MjsMesh, MjSpec

_STAND_IN = b"v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
_STAND_IN_NAME = "jaxrbd_stand_in.obj"


@dataclass(frozen=True)
class MeshAsset:
    """A mesh as the model file names it; `refpos` and `refquat` move the file's vertices."""

    file: AssetFile | None
    scale: np.ndarray
    refpos: np.ndarray
    refquat: np.ndarray


@dataclass
class CompiledMjcf:
    """A compiled MjModel with what MuJoCo does not keep: file names, and what was left out."""

    model: MjModel
    name: str
    meshes: dict[str, MeshAsset]
    heightfields: dict[str, AssetFile]
    dropped: list[str] = field(default_factory=list)
    options: set[str] = field(default_factory=set)  # attributes of <option> that the file sets


def import_mujoco(source: str) -> ModuleType:
    """The `mujoco` package, which is an optional extra."""
    try:
        import mujoco
    except ImportError as error:
        remedy = 'Install it with `pip install "jaxrbd[mujoco]"`.'
        raise ModelError(source, f"MJCF needs the mujoco package ({error})", remedy) from None
    return mujoco


def compile_mjcf(
    text: str | bytes | Element, source: str, folder: StrPath | None, package_dirs: Iterable[StrPath]
) -> CompiledMjcf:
    """Compile MJCF text; MuJoCo's complaints become ModelError."""
    mujoco = import_mujoco(source)
    safe = prepare(text, source, folder, package_dirs)
    try:
        spec = mujoco.MjSpec.from_string(safe.text, include=dict(safe.submodels))
    except (ValueError, TypeError, mujoco.FatalError, mujoco.UnexpectedError) as error:
        raise _refused(source, error) from None
    meshes = {mesh.name: _mesh_asset(mesh, safe) for mesh in spec.meshes}
    needed = _needed_meshes(mujoco, spec, meshes, source)
    assets = {_STAND_IN_NAME: _STAND_IN}
    for mesh in spec.meshes:
        asset = meshes[mesh.name].file
        if asset is None:
            continue
        if mesh.name in needed:
            data = read_asset(asset)
            extension = mesh.file[mesh.file.rfind(".") :] if "." in mesh.file else ""
            mesh.file = f"jaxrbd_{hashlib.sha256(data).hexdigest()}{extension}"
            assets[mesh.file] = data
        else:
            mesh.file = _STAND_IN_NAME
            mesh.scale, mesh.refpos, mesh.refquat = [1, 1, 1], [0, 0, 0], [1, 0, 0, 0]
    spec.assets = assets
    spec.compiler.LRopt.mode = 0  # finding actuator length ranges runs a simulation; nothing here uses them
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        try:
            model = spec.compile()
        except (ValueError, TypeError, mujoco.FatalError, mujoco.UnexpectedError) as error:
            raise _refused(source, error) from None
    for message in dict.fromkeys(str(c.message).strip() for c in complaints):
        warn(f"{source}: MuJoCo says: {short(written(message), 200)}")
    _warn_missing(meshes, safe, source)
    fields = {k.removeprefix("hfield "): f for k, f in safe.files.items() if k.startswith("hfield ")}
    name = "" if spec.modelname == "MuJoCo Model" else written(spec.modelname)
    meshes = {written(key): mesh for key, mesh in meshes.items()}
    return CompiledMjcf(model, name, meshes, fields, list(safe.dropped), safe.options)


def written(text: str) -> str:
    """What MuJoCo says, with the percent signs of the file back in their place."""
    return text.replace(PERCENT, "%")


def _refused(source: str, error: Exception) -> ModelError:
    message = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    message = short(re.sub(r"^((XML )?Error: )+", "", written(message)), 200)
    return ModelError(
        source,
        f"MuJoCo refused the model: {message}",
        "Correct that element; the XML reference of MuJoCo says what it may hold.",
    )


def _mesh_asset(mesh: MjsMesh, safe: MjcfText) -> MeshAsset:
    refquat = np.array(mesh.refquat, float)
    return MeshAsset(
        safe.files.get(mesh.file), np.array(mesh.scale, float), np.array(mesh.refpos, float), refquat
    )


def _needed_meshes(mujoco: ModuleType, spec: MjSpec, meshes: dict[str, MeshAsset], source: str) -> set[str]:
    """Meshes whose vertices decide an inertia or a fitted primitive; ModelError if such a file is missing."""
    needed = set()
    for body in spec.bodies:
        for geom in body.geoms:
            asset = meshes.get(geom.meshname)
            if asset is None or asset.file is None:
                continue
            fitted = geom.type not in (mujoco.mjtGeom.mjGEOM_MESH, mujoco.mjtGeom.mjGEOM_SDF)
            weighs = _gives_inertia(mujoco, body, geom)
            if asset.file.path:
                if fitted or weighs:
                    needed.add(geom.meshname)
                continue
            if weighs and not _is_static(body):
                names = [short(written(name)) for name in (body.name, geom.name or geom.meshname)]
                where = f"{source}, body {names[0]!r}, geom {names[1]!r}"
                cause = f"its inertia comes from mesh {short(asset.file.written)!r}, which was not found"
                remedy = "Name the mesh's folder in package_dirs, or give the body an <inertial> element."
                raise ModelError(where, cause, remedy)
            if weighs:
                geom.mass = 0.0
            geom.type = mujoco.mjtGeom.mjGEOM_MESH
    return needed


def _gives_inertia(mujoco: ModuleType, body: MjsBody, geom: MjsGeom) -> bool:
    from_geoms = body.compiler.inertiafromgeom
    modes = mujoco.mjtInertiaFromGeom
    if body.name == "world" or from_geoms == modes.mjINERTIAFROMGEOM_FALSE:
        return False
    if from_geoms == modes.mjINERTIAFROMGEOM_AUTO and body.explicitinertial:
        return False
    low, high = body.compiler.inertiagrouprange
    massless = geom.mass == 0.0 or (np.isnan(geom.mass) and geom.density == 0.0)
    return low <= geom.group <= high and not massless


def _is_static(body: MjsBody | None) -> bool:
    while body is not None and body.name != "world":
        if len(body.joints):
            return False
        body = body.parent
    return True


def _warn_missing(meshes: dict[str, MeshAsset], safe: MjcfText, source: str) -> None:
    files = [mesh.file for mesh in meshes.values() if mesh.file]
    files += [f for key, f in safe.files.items() if key.startswith("hfield ")]
    missing = sorted({f.written for f in files if not f.path})
    if missing:
        remedy = "Shapes keep the name; to have the files found, name their folder in package_dirs."
        text = f"{source}: {len(missing)} mesh files were not found: {listing(missing, 11)}. {remedy}"
        warn(text)
