"""Geoms of a compiled MJCF model as Shapes: MuJoCo's half sizes become the Description's sizes."""

from __future__ import annotations

import numpy as np

from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.model.description import Pose, Shape
from jaxrbd.model.mjcf_context import Context

_DEFAULT_RGBA = (0.5, 0.5, 0.5, 1.0)


def read_shapes(ctx: Context, body: int) -> tuple[Shape, ...]:
    """The geoms of one body (0: the ground), in its frame."""
    m = ctx.m
    first, count = m.body_geomadr[body], m.body_geomnum[body]
    shapes = [_shape(ctx, g) for g in range(first, first + count)]
    return tuple(s for s in shapes if s is not None)


def read_pairs(ctx: Context) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """(bodies that never touch, geoms that may whatever their masks say), by name."""
    m = ctx.m
    never = [(int(s) >> 16, int(s) & 0xFFFF) for s in m.exclude_signature]
    always = [
        (ctx.name("geom", int(a)), ctx.name("geom", int(b))) for a, b in zip(m.pair_geom1, m.pair_geom2)
    ]
    return tuple((ctx.bodies[a], ctx.bodies[b]) for a, b in never), tuple(always)


def _shape(ctx: Context, g: int) -> Shape | None:
    m, name = ctx.m, ctx.name("geom", g)
    kind = ctx.mujoco.mjtGeom(m.geom_type[g]).name.removeprefix("mjGEOM_").lower()
    pose = Pose(matrix_from_quaternion(m.geom_quat[g]), np.array(m.geom_pos[g]))
    a, b, c = (float(x) for x in m.geom_size[g])
    mesh = path = ""
    size: tuple[float, ...]
    if kind == "box":
        size = (2 * a, 2 * b, 2 * c)
    elif kind == "sphere":
        size = (a,)
    elif kind in ("capsule", "cylinder"):
        size = (a, 2 * b)
    elif kind == "ellipsoid":
        size = (a, b, c)
    elif kind == "plane":
        size = ()
    elif kind in ("mesh", "sdf"):
        kind, size, pose, mesh, path = _mesh(ctx, g, pose)
    elif kind == "hfield":
        kind, field = "heightfield", int(m.geom_dataid[g])
        size = tuple(float(x) for x in m.hfield_size[field])
        asset_name = ctx.name("hfield", field)
        file = ctx.compiled.heightfields.get(asset_name)
        mesh, path = (file.written, file.path) if file else (asset_name, "")
    else:
        ctx.lost.append(f"geom {name!r} ({kind})")
        return None
    rgba = tuple(float(x) for x in m.geom_rgba[g])
    if rgba == _DEFAULT_RGBA and m.geom_matid[g] >= 0:
        rgba = tuple(float(x) for x in m.mat_rgba[m.geom_matid[g]])
    return Shape(
        kind,
        size,
        pose,
        role="collision" if m.geom_contype[g] or m.geom_conaffinity[g] else "visual",
        name=name,
        mesh=mesh,
        path=path,
        rgba=rgba,
        friction=float(m.geom_friction[g, 0]),
        masks=(int(m.geom_contype[g]), int(m.geom_conaffinity[g])),
    )


def _mesh(ctx: Context, g: int, pose: Pose) -> tuple[str, tuple[float, ...], Pose, str, str]:
    """MuJoCo moves a mesh to its inertial frame; undo that, and place the file's own vertices."""
    m = ctx.m
    i = int(m.geom_dataid[g])
    name = ctx.name("mesh", i)
    pose = pose @ Pose(matrix_from_quaternion(m.mesh_quat[i]), np.array(m.mesh_pos[i])).inverse()
    asset = ctx.compiled.meshes.get(name)
    if asset is None or asset.file is None:
        ctx.lost.append(f"vertices of mesh {name!r}, written in the model instead of a file")
        return "mesh", tuple(float(x) for x in m.mesh_scale[i]), pose, name, ""
    turn = matrix_from_quaternion(asset.refquat).T
    # vertices are scale * (refquat^-1 (x - refpos)): a rigid pose of scale * x if scale and turn commute
    if not np.allclose(np.diag(asset.scale) @ turn, turn @ np.diag(asset.scale)):
        ctx.lost.append(f"refquat of mesh {name!r}, which is scaled differently along its axes")
    pose = pose @ Pose(turn, -(asset.scale * (turn @ asset.refpos)))
    return "mesh", tuple(float(x) for x in asset.scale), pose, asset.file.written, asset.file.path
