"""A System in a viser scene: one instanced object per body and role, for all environments together.

Environments that are shown side by side stand on a grid; `move` sends one message per object and moment.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrbd.model.system import System
from jaxrbd.viewer.drawing import ROLES, Drawing, link_placements
from jaxrbd.viewer.motion import poses, quaternions

GHOST = (80, 140, 220)


class Robot:
    """The bodies of `count` environments; `ghost`: in one colour, to compare another path with."""

    def __init__(self, scene: Any, sys: System, drawing: Drawing, name: str, count: int, ghost: bool = False):
        self.sys, self.count, self.scene, self.drawing, self.name = sys, count, scene, drawing, name
        self.ghost = ghost
        self.offsets: np.ndarray = np.zeros((count, 3))
        self.objects: dict[tuple[int, str], Any] = {}
        self.roles: dict[str, bool] = dict.fromkeys(ROLES, False)
        for role in drawing.roles():
            self.show(role, True)
        if not ghost:
            self._make("collision", worlds=True)  # the ground is shown whatever else is

    def _make(self, role: str, worlds: bool = False) -> None:
        """The objects of a role, sent to the page when it is first shown: most never are."""
        import trimesh

        n = self.count
        at = {"batched_wxyzs": np.tile([1.0, 0, 0, 0], (n, 1)), "batched_positions": np.zeros((n, 3))}
        for body in (-1,) if worlds else range(-1, self.sys.nb):
            meshes = [p.mesh for p in self.drawing.parts if (p.body, p.role) == (body, role)]
            if not meshes or (self.ghost and body < 0) or (body, role) in self.objects:
                continue
            label = f"{self.name}/{role}/{'world' if body < 0 else f'{body} {self.sys.body_names[body]}'}"
            if self.ghost:
                one = trimesh.util.concatenate([trimesh.Trimesh(m.vertices, m.faces) for m in meshes])
                made = self.scene.add_batched_meshes_simple(
                    label, one.vertices, one.faces, **at, batched_colors=GHOST, opacity=0.35
                )
            else:
                made = self.scene.add_batched_glb(label, trimesh.Scene(meshes).export(file_type="glb"), **at)
            self.objects[body, role] = made
        self.place_world()

    def tile(self, spacing: float) -> None:
        """Stand the environments on a square grid."""
        side = int(np.ceil(np.sqrt(self.count)))
        k = np.arange(self.count)
        self.offsets = np.stack([k % side, k // side, 0 * k], 1) * float(spacing)

    def move(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Put every body where q (count, nq) has it; returns the poses of the bodies, R and p."""
        R, p = poses(self.sys, q)
        p = p + self.offsets[:, None]
        wxyz = quaternions(R).astype(np.float32)
        for (body, _), made in self.objects.items():
            if body >= 0:
                made.batched_wxyzs = wxyz[:, body]
                made.batched_positions = p[:, body].astype(np.float32)
        return R, p

    def place_world(self) -> None:
        """Scenery under every environment."""
        for (body, _), made in self.objects.items():
            if body < 0:
                made.batched_positions = self.offsets.astype(np.float32)

    def show(self, role: str, visible: bool) -> None:
        """The bodies of a role; move them afterwards, since they may be new."""
        self.roles[role] = visible
        if visible:
            self._make(role)
        for (_, own), made in self.objects.items():
            if own == role:
                made.visible = visible

    def remove(self) -> None:
        for made in self.objects.values():
            made.remove()


def extent(sys: System, drawing: Drawing, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Corners of the box around what is shown of the moving bodies at q (nq,)."""
    R, p = poses(sys, q[None])
    shown = [x for x in drawing.parts if x.body >= 0 and x.role in drawing.roles()]
    points = [np.asarray(x.mesh.vertices)[::7] @ R[0, x.body].T + p[0, x.body] for x in shown]
    every = np.concatenate([*points, p[0].reshape(-1, 3), np.zeros((0, 3))])
    every = every if len(every) else np.zeros((1, 3))
    return every.min(0), every.max(0)


def centres(sys: System) -> tuple[np.ndarray, np.ndarray]:
    """Mass and centre of mass of every body in its frame, links merged: (nb,), (nb, 3)."""
    t, X = sys.topology, link_placements(sys)
    mass, first = np.zeros(sys.nb), np.zeros((sys.nb, 3))
    for i in range(t.link_count):
        if (body := t.frame_bodies[i]) >= 0:
            m = float(sys.mass[i])
            mass[body] += m
            first[body] += m * (X[i, :3, :3] @ np.asarray(sys.com[i], float) + X[i, :3, 3])
    return mass, first / np.maximum(mass, 1e-12)[:, None]
