"""Pictures and films of a System for documents: PNG and GIF, without a screen, a browser or OpenGL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jaxrbd.errors import ArgumentError, FileError
from jaxrbd.model.system import System
from jaxrbd.typing import StrPath
from jaxrbd.viewer.drawing import GREY, Drawing, draw
from jaxrbd.viewer.extras import need, output_file
from jaxrbd.viewer.motion import PathLike, poses, read_motion
from jaxrbd.viewer.raster import LIGHT, Camera, Canvas, shaded
from jaxrbd.viewer.scene import extent

FINER = 2  # pixels are averaged over so many along each side
TILES = 16
LINES = 16  # of the grid on the ground, to each side
LINE, SHADOW = np.array([222.0, 224.0, 228.0]), np.array([150.0, 152.0, 158.0])


def save_png(
    sys: System,
    file: StrPath,
    q: PathLike = None,
    *,
    size: tuple[int, int] = (800, 600),
    camera: tuple[Any, Any] | None = None,
    roles: tuple[str, ...] | None = None,
    environments: int | None = None,
    ground: bool = True,
) -> Path:
    """A picture of a pose: q (nq,), or (environments, nq) side by side, `sys.q0` without one.

    `camera`: (position, look at) in the world; `roles`: "visual", "collision", "inertia".
    """
    file, path = output_file(file, ".png"), sys.q0 if q is None else q
    path = np.asarray(path) if isinstance(path, (list, tuple)) else path
    if getattr(path, "ndim", 1) == 2:
        path = np.asarray(path)[:, None]
    motion = read_motion(sys, path)
    studio = Studio(sys, motion.at(0, np.arange(_count(motion, environments))), size, camera, roles, ground)
    _write(file, studio.picture(studio.q), None)
    return file


def save_gif(
    sys: System,
    path: PathLike,
    file: StrPath,
    *,
    dt: float = 1e-3,
    fps: float = 20.0,
    speed: float = 1.0,
    size: tuple[int, int] = (480, 360),
    camera: tuple[Any, Any] | None = None,
    roles: tuple[str, ...] | None = None,
    environments: int | None = None,
    ground: bool = True,
) -> Path:
    """A film of a path, `fps` pictures a second, at `speed` times real time; it repeats."""
    file = output_file(file, ".gif")
    if not (fps > 0 and speed > 0):
        raise ArgumentError(f"fps is {fps} and speed {speed}, expected positive numbers.")
    motion = read_motion(sys, path, dt)
    which = np.arange(_count(motion, environments))
    count = max(1, round(float(motion.t[-1]) * fps / speed))
    keep = np.unique(np.linspace(0, len(motion.t) - 1, count).round().astype(int))
    middle = motion.at(int(keep[len(keep) // 2]), which)
    studio = Studio(sys, motion.at(0, which), size, camera, roles, ground, also=middle)
    _write(file, [studio.picture(motion.at(int(k), which)) for k in keep], fps)
    return file


class Studio:
    """Parts, camera and size of the pictures of one System."""

    def __init__(self, sys: System, q, size, camera, roles, ground: bool, also=None):
        self.sys, self.q, self.ground = sys, q, ground
        self.drawing: Drawing = draw(sys)
        self.roles = self.drawing.roles() if roles is None else tuple(roles)
        if len(size) != 2 or not all(16 <= n <= 8192 for n in size):
            raise ArgumentError(f"size is {size}, expected (width, height) in pixels, 16 to 8192.")
        self.size = int(size[0]), int(size[1])
        low, high = extent(sys, self.drawing, q[0])
        if also is not None:
            more = extent(sys, self.drawing, also[0])
            low, high = np.minimum(low, more[0]), np.maximum(high, more[1])
        side = int(np.ceil(np.sqrt(len(q))))
        step = 1.4 * max(float(np.max((high - low)[:2])), 0.1)
        k = np.arange(len(q))
        self.offsets = np.stack([k % side, k // side, 0 * k], 1) * step
        low, high = low, high + self.offsets.max(0)
        self.floor = min(float(low[2]), 0.0) if low[2] < 0.3 * (high - low)[2] else float(low[2])
        if camera is None:
            self.camera = self._camera(low, high)
        else:
            self.camera = Camera(np.asarray(camera[0], float), np.asarray(camera[1], float))
        self.parts = [p for p in self.drawing.parts if p.role in self.roles or p.body < 0]
        self.reach = float(np.linalg.norm(high - low)) + 0.2

    def _camera(self, low, high) -> Camera:
        """As near as shows the whole box between two corners."""
        corners = np.array([[(low, high)[k >> i & 1][i] for i in range(3)] for k in range(8)])
        middle, toward = (low + high) / 2, np.array([0.75, -1.0, 0.45])
        distance = 0.3 * max(float(np.linalg.norm(high - low)), 0.1)
        while True:
            camera = Camera(middle + distance * toward / np.linalg.norm(toward), middle)
            x = camera.project(corners, *self.size)
            inside = np.abs(x[:, :2] / self.size - 0.5).max()
            if (x[:, 2] > 0).all() and inside < 0.46:
                return camera
            distance *= 1.05

    def picture(self, q: np.ndarray) -> np.ndarray:
        """Colours (height, width, 3) of the environments at q (count, nq)."""
        width, height = (FINER * n for n in self.size)
        canvas = Canvas(width, height)
        R, p = poses(self.sys, q)
        solid: list[tuple] = []
        clear: list[tuple] = []
        for e in range(len(q)):
            for part in self.parts:
                if part.mesh.extents.max() > 15:  # a plane: the ground stands in for it
                    continue
                x = np.asarray(part.mesh.vertices)
                x = x @ R[e, part.body].T + p[e, part.body] if part.body >= 0 else x
                colour, alpha = _colours(part.mesh)
                (solid if alpha >= 1 else clear).append((part.mesh.faces, x + self.offsets[e], colour, alpha))
        if self.ground:
            self._draw_ground(canvas, solid)
        if solid:
            x = np.concatenate([x[faces] for faces, x, _, _ in solid])
            colours = shaded(x, np.concatenate([colour for _, _, colour, _ in solid]))
            canvas.triangles(self._on_screen(x, canvas), colours)
        for faces, x, colour, alpha in clear:
            canvas.triangles(self._on_screen(x[faces], canvas), shaded(x[faces], colour), alpha)
        small = canvas.colour.reshape(self.size[1], FINER, self.size[0], FINER, 3).mean((1, 3))
        return np.clip(small + 0.5, 0, 255).astype(np.uint8)

    def _on_screen(self, triangles: np.ndarray, canvas: Canvas) -> np.ndarray:
        height, width = canvas.shape
        return self.camera.project(triangles.reshape(-1, 3), width, height).reshape(-1, 3, 3)

    def _draw_ground(self, canvas: Canvas, solid) -> None:
        light = LIGHT / LIGHT[2]
        if solid:  # shadows: along the light, onto the floor
            x = np.concatenate([x[faces] for faces, x, _, _ in solid])
            flat = x - np.maximum(x[..., 2:] - self.floor, 0) * light
            flat[..., 2] = self.floor
            canvas.triangles(self._on_screen(flat, canvas), np.broadcast_to(SHADOW, (len(flat), 3)))
        middle, decade = self.camera.look_at, 10.0 ** np.floor(np.log10(self.reach / 8))
        cell = decade * max(n for n in (1, 2, 5) if n * decade <= self.reach / 8)
        cells = np.arange(-LINES, LINES + 1) * cell
        centre = np.round(middle[:2] / cell) * cell
        thick, ends = self.reach / 600, LINES * cell
        lines = []
        for c in cells:
            lines.append([(c - thick, -ends), (c + thick, -ends), (c + thick, ends), (c - thick, ends)])
            lines.append([(-ends, c - thick), (-ends, c + thick), (ends, c + thick), (ends, c - thick)])
        corners = np.array(lines) + centre
        corners = np.concatenate(
            [corners, np.full(corners.shape[:2] + (1,), self.floor - 1e-4 * self.reach)], 2
        )
        faces = np.concatenate([corners[:, [0, 1, 2]], corners[:, [0, 2, 3]]])
        canvas.triangles(self._on_screen(faces, canvas), np.broadcast_to(LINE, (len(faces), 3)))
        canvas.depth[:] = np.inf  # whatever stands on the floor is in front of it


def _colours(mesh) -> tuple[np.ndarray, float]:
    """Colour of every triangle, (n, 3), and how opaque the mesh is."""
    visual = mesh.visual
    if visual.kind == "texture":
        main = getattr(visual.material, "main_color", None)
        image = getattr(visual.material, "baseColorTexture", None) or getattr(visual.material, "image", None)
        if image is None and main is not None:
            main = np.asarray(main, float)
            return np.broadcast_to(main[:3], (len(mesh.faces), 3)), float(main[3]) / 255
        visual = visual.to_color()
    if visual.kind in ("face", "vertex"):
        colours = np.asarray(visual.face_colors, float)
        return colours[:, :3], float(colours[:, 3].mean()) / 255
    return np.broadcast_to(255 * np.array(GREY[:3]), (len(mesh.faces), 3)), 1.0


def _count(motion, environments: int | None) -> int:
    count = min(motion.environments, TILES) if environments is None else environments
    if not 1 <= count <= motion.environments:
        raise ArgumentError(f"environments is {environments}, but the path has {motion.environments}.")
    return count


def _write(file: Path, pictures, fps: float | None) -> None:
    image = need("PIL.Image", "writing pictures")
    try:
        if fps is None:
            image.fromarray(pictures).save(file)
            return
        first, *rest = (image.fromarray(x).quantize(128) for x in pictures)
        first.save(file, save_all=True, append_images=rest, duration=round(1000 / fps), loop=0, optimize=True)
    except OSError as error:
        cause = f"cannot be written ({error.strerror})"
        raise FileError(str(file), cause, "Choose a folder that may be written to.") from None
