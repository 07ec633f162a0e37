"""Visual and collision geometry, materials and meshes of a URDF link."""

from __future__ import annotations

import os

import numpy as np

from jaxrbd.errors import ModelError, warn
from jaxrbd.model.description import Shape
from jaxrbd.model.mesh_paths import find_mesh
from jaxrbd.model.urdf_values import Reader
from jaxrbd.model.validate import listing
from jaxrbd.model.xml_safe import Element

_KINDS = ("box", "sphere", "cylinder", "capsule", "mesh")


class Meshes:
    """Looks mesh files up and remembers those that were not found."""

    def __init__(self, folder: str | os.PathLike | None, package_dirs: tuple[str, ...]):
        self.folder, self.package_dirs = folder, package_dirs
        self.found: dict[str, str] = {}

    def find(self, name: str) -> str:
        if name not in self.found:
            self.found[name] = find_mesh(name, self.folder, self.package_dirs)
        return self.found[name]

    def warn(self, source: str) -> None:
        missing = [name for name, path in self.found.items() if not path]
        if missing:
            text = (
                f"{source}: {len(missing)} mesh files not found: {listing(missing)}. Their names are kept; "
                "meshes are looked up only in the model's folder, the package around it and package_dirs=."
            )
            warn(text)


def read_materials(read: Reader, root: Element) -> dict[str, tuple[float, ...]]:
    """Colours by name: those defined at the top, then those defined inside a visual; the first one wins."""
    materials: dict[str, tuple[float, ...]] = {}
    for material in root.all("material") + root.all("link/visual/material"):
        color = _color(read, material, material)
        if color is not None and (name := material.get("name")):
            materials.setdefault(name, color)
    return materials


def read_shapes(
    read: Reader, link: Element, materials: dict[str, tuple[float, ...]], meshes: Meshes
) -> tuple[Shape, ...]:
    contact = link.find("contact/lateral_friction")
    friction = None if contact is None else read.number(link, contact, "value")
    shapes = []
    for element in link:
        if element.tag not in ("visual", "collision"):
            continue
        kind, size, mesh = _geometry(read, link, element)
        shapes.append(
            Shape(
                kind,
                size,
                pose=read.pose(link, element),
                role=element.tag,
                name=element.get("name", ""),
                mesh=mesh,
                path=meshes.find(mesh) if mesh else "",
                rgba=_rgba(read, link, element, materials),
                friction=friction if element.tag == "collision" else None,
            )
        )
    return tuple(shapes)


def _geometry(read: Reader, link: Element, element: Element) -> tuple[str, tuple[float, ...], str]:
    """(kind, size, mesh file name)"""
    shape = next((g for g in element.all("geometry/*") if g.tag in _KINDS), None)
    if shape is None:
        remedy = f"Put one of {', '.join(f'<{kind}>' for kind in _KINDS)} into its <geometry>."
        raise ModelError(read.at(link, element), f"<{element.tag}> without a known geometry", remedy)
    if shape.tag == "box":
        return "box", tuple(read.vector(link, shape, "size").tolist()), ""
    if shape.tag == "sphere":
        return "sphere", (read.number(link, shape, "radius"),), ""
    if shape.tag == "mesh":
        written = read.vector(link, shape, "scale", np.ones(1), sizes=(1, 3))
        scale = tuple(float(x) for x in written)
        return "mesh", scale if len(scale) == 3 else 3 * scale, read.attribute(link, shape, "filename")
    return shape.tag, (read.number(link, shape, "radius"), read.number(link, shape, "length")), ""


def _rgba(
    read: Reader, link: Element, element: Element, materials: dict[str, tuple[float, ...]]
) -> tuple[float, ...] | None:
    material = element.find("material")
    if material is None:
        return None
    return _color(read, link, material) or materials.get(material.get("name", ""))


def _color(read: Reader, owner: Element, material: Element) -> tuple[float, ...] | None:
    color = material.find("color")
    if color is None or color.get("rgba") is None:
        return None
    rgba = tuple(read.vector(owner, color, "rgba", sizes=(3, 4)).tolist())
    return rgba if len(rgba) == 4 else (*rgba, 1.0)
