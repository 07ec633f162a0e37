"""A System as things to look at: triangles in the frame of the body they move with.

Roles: "visual" and "collision" are the model's own shapes; "inertia", for every link, is the solid ellipsoid
of the same mass and inertia. What cannot be shown (a mesh that was not found or cannot be read, elevations
of a height field) appears as a box, and `notes` say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.model.system import System, check_system
from jaxrbd.viewer.extras import need

ROLES = ("visual", "collision", "inertia")
GREY, MISSING, MASS = (0.7, 0.7, 0.7, 1.0), (0.9, 0.45, 0.1, 0.6), (0.2, 0.5, 0.9, 0.45)
PLANE = 10.0  # half the side of what is drawn of a plane, m; see-through, since bodies may be below it
LARGEST = 2_000_000  # triangles of one mesh: more than a browser likes


@dataclass(frozen=True)
class Part:
    """Triangles that move with a body (-1: the world), in the axes of its frame."""

    body: int
    role: str
    name: str
    mesh: Any  # trimesh.Trimesh


@dataclass(frozen=True)
class Drawing:
    """All parts of a System, and what of it is not shown as it is."""

    parts: tuple[Part, ...]
    notes: tuple[str, ...]

    def roles(self) -> tuple[str, ...]:
        """Those that are shown unless the user says otherwise."""
        present = {p.role for p in self.parts if p.body >= 0}
        return next(((role,) for role in ROLES if role in present), ("visual",))

    @property
    def triangles(self) -> int:
        """Of what is shown of one environment."""
        return sum(len(p.mesh.faces) for p in self.parts if p.role in self.roles())

    @property
    def size(self) -> float:
        """About the largest extent of a moving part, m."""
        found = [float(np.max(np.ptp(p.mesh.bounds, axis=0))) for p in self.parts if p.body >= 0]
        return max(found, default=1.0)


def draw(sys: System) -> Drawing:
    """Every shape of a System and the ellipsoids of its inertias, as triangles."""
    check_system(sys, "viewer")
    need("trimesh", "drawing shapes")
    notes: list[str] = []
    parts = [*_shapes(sys, notes), *_ellipsoids(sys)]
    return Drawing(tuple(parts), tuple(dict.fromkeys(notes)))


def shape_placements(sys: System) -> np.ndarray:
    """(ns, 4, 4): every shape in the frame of its body, or in the world."""
    t, in_body = sys.topology, link_placements(sys)
    quaternion, position = np.asarray(sys.shape_quaternion, float), np.asarray(sys.shape_position, float)
    own = [placement(matrix_from_quaternion(a), p) for a, p in zip(quaternion, position)]
    links = [in_body[f] if f >= 0 else np.eye(4) for f in t.shape_frames]
    return np.array([X @ Y for X, Y in zip(links, own)]).reshape(-1, 4, 4)


def _shapes(sys: System, notes: list[str]) -> Iterator[Part]:
    t, placed = sys.topology, shape_placements(sys)
    size, rgba = np.asarray(sys.shape_size, float), np.asarray(sys.shape_rgba, float)
    for i, (kind, frame) in enumerate(zip(t.shape_kinds, t.shape_frames)):
        mesh = _triangles(sys, i, kind, size[i], rgba[i], notes)
        mesh.apply_transform(placed[i])
        body = t.frame_bodies[frame] if frame >= 0 else -1
        yield Part(body, t.shape_roles[i], t.shape_names[i] or f"{kind} {i}", mesh)


def _triangles(sys: System, i: int, kind: str, size, rgba, notes: list[str]):
    import trimesh

    make, t = trimesh.creation, sys.topology
    if kind == "mesh":
        return _from_file(sys, i, size[:3], rgba, notes)
    if kind == "box":
        mesh = make.box(size[:3])
    elif kind == "sphere":
        mesh = make.icosphere(subdivisions=3, radius=size[0])
    elif kind == "cylinder":
        mesh = make.cylinder(size[0], size[1], sections=32)
    elif kind == "capsule":
        mesh = make.capsule(height=size[1], radius=size[0], count=(24, 24))
    elif kind == "ellipsoid":
        mesh = make.icosphere(subdivisions=3, radius=1.0)
        mesh.apply_scale(size[:3])
    elif kind == "plane":
        mesh = make.box((2 * PLANE, 2 * PLANE, 1e-3))
        mesh.apply_translation((0, 0, -5e-4))
        rgba = (*rgba[:3], min(rgba[3], 0.3))
    else:  # a height field: semi-axes x and y, top, depth
        notes.append(f"height field {t.shape_names[i]!r}: its elevations are not kept, it is shown as a box")
        mesh = make.box((2 * size[0], 2 * size[1], size[2] + size[3]))
        mesh.apply_translation((0, 0, (size[2] - size[3]) / 2))
    return coloured(mesh, rgba)


def _from_file(sys: System, i: int, scale, rgba, notes: list[str]):
    t = sys.topology
    written, path = t.shape_files[i]
    cause = "was not found"
    if path:
        mesh, cause = _read(path)
        if mesh is not None:
            mesh = mesh.copy()
            mesh.apply_scale(scale)
            own = mesh.visual.defined and np.allclose(rgba, GREY)
            return mesh if own else coloured(mesh, rgba)
    frame = t.shape_frames[i]
    link = sys.frame_names[frame] if frame >= 0 else "the world"
    notes.append(f"mesh {written!r} of {link} {cause}: the box of its inertia stands in for it")
    return coloured(_inertia_box(sys, frame), MISSING)


@lru_cache(maxsize=256)
def _read(path: str):
    """(mesh or None, why not)."""
    trimesh = need("trimesh", "reading meshes")
    try:
        mesh = trimesh.load_scene(path).to_mesh()
    except Exception as error:  # whatever a damaged file makes its reader do: said in a note, not raised
        return None, f"cannot be read ({type(error).__name__}: {str(error)[:80]})"
    if not len(mesh.faces):
        return None, "has no triangles"
    if len(mesh.faces) > LARGEST:
        return None, f"has {len(mesh.faces)} triangles, more than {LARGEST}"
    return mesh, ""


def _inertia_box(sys: System, link: int):
    """The solid box with the mass and inertia of a link, in link axes; a small cube where it has none."""
    import trimesh

    X, sides = _principal(sys, link) if link >= 0 else (np.eye(4), np.zeros(3))
    mesh = trimesh.creation.box(np.maximum(np.sqrt(12.0) * sides, 0.02))
    mesh.apply_transform(X)
    return mesh


def _ellipsoids(sys: System) -> Iterator[Part]:
    import trimesh

    t, in_body = sys.topology, link_placements(sys)
    for link in range(t.link_count):
        if t.frame_bodies[link] < 0 or float(sys.mass[link]) <= 0:
            continue
        X, gyration = _principal(sys, link)
        if not gyration.any():
            continue
        mesh = trimesh.creation.icosphere(subdivisions=2)
        mesh.apply_scale(np.maximum(np.sqrt(5.0) * gyration, 1e-4))
        mesh.apply_transform(in_body[link] @ X)
        yield Part(t.frame_bodies[link], "inertia", t.frame_names[link], coloured(mesh, MASS))


def _principal(sys: System, link: int):
    """Axes at the centre of mass in link axes, and root mean squares of mass along each, from I = m Σ x²."""
    mass = float(sys.mass[link])
    xx, xy, xz, yy, yz, zz = np.asarray(sys.inertia[link], float)
    moments, axes = np.linalg.eigh(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
    axes[:, 2] *= np.linalg.det(axes)
    along = moments.sum() / 2 - moments  # ∫ x² dm per axis
    gyration = np.sqrt(np.maximum(along, 0) / mass) if mass > 0 else np.zeros(3)
    return placement(axes, np.asarray(sys.com[link], float)), gyration


def link_placements(sys: System) -> np.ndarray:
    """(nf, 4, 4): every frame in the frame that carries its body's name, or in the world."""
    t = sys.topology
    quaternion, position = np.asarray(sys.frame_quaternion, float), np.asarray(sys.frame_position, float)
    X = np.stack([placement(matrix_from_quaternion(a), p) for a, p in zip(quaternion, position)])
    for body, own in enumerate(t.body_frames):
        mine = np.array(t.frame_bodies) == body
        X[mine] = np.linalg.inv(X[own]) @ X[mine]
    return X


def placement(R, p) -> np.ndarray:
    """The 4 x 4 matrix of a pose."""
    X = np.eye(4)
    X[:3, :3], X[:3, 3] = R, p
    return X


def coloured(mesh, rgba):
    """A mesh in one colour."""
    from trimesh.visual import TextureVisuals
    from trimesh.visual.material import PBRMaterial

    rgba = np.clip(np.nan_to_num(rgba, nan=0.7), 0, 1)
    material = PBRMaterial(
        baseColorFactor=(255 * rgba).astype(np.uint8),
        metallicFactor=0.05,
        roughnessFactor=0.75,
        alphaMode="BLEND" if rgba[3] < 1 else "OPAQUE",
    )
    mesh.visual = TextureVisuals(material=material)
    return mesh
