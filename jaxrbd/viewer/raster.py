"""Triangles to pixels in NumPy: a z-buffer, flat light and a shadow on the ground.

Small on purpose. Libraries that draw without a screen want OpenGL from the system and hundreds of megabytes;
a figure for a document wants neither. Triangles are sorted by the size of their box on the screen, and each
size is filled at once, so that the cost is that of the pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LIGHT = np.array([0.35, -0.45, 0.82])
CHUNK = 2_000_000  # pixels that are looked at together


@dataclass(frozen=True)
class Camera:
    """Where a picture is taken from, what at; `fov` in degrees, top to bottom."""

    position: np.ndarray
    look_at: np.ndarray
    fov: float = 40.0

    def project(self, x: np.ndarray, width: int, height: int) -> np.ndarray:
        """Pixels (column, row) and depth of points (n, 3)."""
        forward = self.look_at - self.position
        forward = forward / np.linalg.norm(forward)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        size = np.linalg.norm(right)
        right = right / size if size > 1e-9 else np.array([1.0, 0.0, 0.0])
        up = np.cross(right, forward)
        d = (x - self.position) @ np.stack([right, up, forward], 1)
        depth = np.maximum(d[:, 2], 1e-6)
        focus = height / 2 / np.tan(np.radians(self.fov) / 2)
        column, row = width / 2 + focus * d[:, 0] / depth, height / 2 - focus * d[:, 1] / depth
        return np.stack([column, row, d[:, 2]], 1)


class Canvas:
    """Colours (height, width, 3) and depths, filled by `triangles`."""

    def __init__(self, width: int, height: int, background=(255, 255, 255)):
        self.colour = np.empty((height, width, 3))
        self.colour[:] = background
        self.depth = np.full((height, width), np.inf)

    @property
    def shape(self) -> tuple[int, int]:
        return self.depth.shape

    def triangles(self, corners: np.ndarray, colours: np.ndarray, alpha: float = 1.0) -> None:
        """Fill triangles (n, 3 corners, 3: column, row, depth), each in its colour (n, 3)."""
        height, width = self.shape
        low = np.floor(corners[..., :2].min(1)).astype(int)
        high = np.ceil(corners[..., :2].max(1)).astype(int)
        seen = (corners[..., 2] > 1e-3).all(1) & (high >= 0).all(1)
        seen &= (low[:, 0] < width) & (low[:, 1] < height)
        low, high = np.maximum(low, 0), np.minimum(high, [width - 1, height - 1])
        side = np.maximum((high - low).max(1) + 1, 1)
        levels = 2 ** np.ceil(np.log2(side)).astype(int)
        for level in np.unique(levels[seen]):
            some = np.flatnonzero(seen & (levels == level))
            for part in np.array_split(some, -(-len(some) * level**2 // CHUNK)):
                self._fill(corners[part], colours[part], low[part], int(level), alpha)

    def _fill(self, corners, colours, low, level: int, alpha: float) -> None:
        height, width = self.shape
        steps = np.arange(level)
        x = low[:, 0, None, None] + steps[None, None, :] + 0 * steps[None, :, None]
        y = low[:, 1, None, None] + steps[None, :, None] + 0 * steps[None, None, :]
        (x0, y0, z0), (x1, y1, z1), (x2, y2, z2) = (
            [corners[:, k, i, None, None] for i in range(3)] for k in range(3)
        )
        area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
        area = np.where(np.abs(area) < 1e-9, np.nan, area)
        px, py = x + 0.5, y + 0.5
        b1 = ((px - x0) * (y2 - y0) - (x2 - x0) * (py - y0)) / area
        b2 = ((x1 - x0) * (py - y0) - (px - x0) * (y1 - y0)) / area
        inside = (b1 >= 0) & (b2 >= 0) & (b1 + b2 <= 1) & (x < width) & (y < height)
        which, i, j = np.nonzero(inside)
        rows, columns = y[which, i, j], x[which, i, j]
        # 1 / depth is linear on the screen
        w = 1 / np.stack([z0, z1, z2])[:, which, 0, 0]
        b = b1[which, i, j], b2[which, i, j]
        z = 1 / (w[0] + b[0] * (w[1] - w[0]) + b[1] * (w[2] - w[0]))
        order = np.argsort(-z, kind="stable")  # the nearest is written last
        rows, columns, z, which = rows[order], columns[order], z[order], which[order]
        nearest = np.full(self.shape, np.inf)
        nearest[rows, columns] = z
        keep = (z <= nearest[rows, columns]) & (z < self.depth[rows, columns])
        rows, columns, z, which = rows[keep], columns[keep], z[keep], which[keep]
        if alpha < 1:
            self.colour[rows, columns] = (1 - alpha) * self.colour[rows, columns] + alpha * colours[which]
            return
        self.colour[rows, columns], self.depth[rows, columns] = colours[which], z


def shaded(points: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Colours of triangles (n, 3, 3) of the world under a light from above and some of the sky's."""
    normal = np.cross(points[:, 1] - points[:, 0], points[:, 2] - points[:, 0])
    size = np.linalg.norm(normal, axis=1, keepdims=True)
    normal = normal / np.maximum(size, 1e-30)
    light = LIGHT / np.linalg.norm(LIGHT)
    bright = 0.62 + 0.42 * np.maximum(normal @ light, 0) + 0.08 * normal[:, 2]
    return np.clip(colour * np.clip(bright, 0.3, 1.15)[:, None], 0, 255)
