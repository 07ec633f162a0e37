"""Triangles to pixels in NumPy: a z-buffer, flat light and a shadow on the ground.

Small on purpose. Libraries that draw without a screen want OpenGL from the system and hundreds of megabytes;
a figure for a document wants neither. Triangles are sorted by the size of their box on the screen, and each
size is filled at once, so that the cost is that of the pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LIGHT = np.array([0.35, -0.45, 0.82])
CHUNK = 200_000  # pixels that are looked at together
SMALL = 14  # pixels along the box of a triangle that is filled at once


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
        corners, colours = self._small(corners, colours)
        low, high = self._boxes(corners)
        levels = 2 ** np.ceil(np.log2(np.maximum((high - low).max(1) + 1, 1))).astype(int)
        for level in np.unique(levels):
            some = np.flatnonzero(levels == level)
            for part in np.array_split(some, -(-len(some) * level**2 // CHUNK)):
                self._fill(corners[part], colours[part], low[part], int(level), alpha)

    def _boxes(self, corners) -> tuple[np.ndarray, np.ndarray]:
        """First and last pixel of each triangle's box, within the canvas."""
        last = np.array(self.shape[::-1]) - 1
        low, high = np.floor(corners[..., :2].min(1)), np.ceil(corners[..., :2].max(1))
        return np.clip(low, 0, last).astype(int), np.clip(high, 0, last).astype(int)

    def _small(self, corners, colours):
        """What is seen, large triangles halved until their boxes are small: thin ones fill theirs badly."""
        done = []
        while len(corners):
            low, high = corners[..., :2].min(1), corners[..., :2].max(1)
            seen = (corners[..., 2] > 1e-3).all(1) & (high >= 0).all(1) & (low <= self.shape[::-1]).all(1)
            corners, colours = corners[seen], colours[seen]
            low, high = self._boxes(corners)
            small = (high - low).max(1) < SMALL
            done.append((corners[small], colours[small]))
            corners, colours = corners[~small], colours[~small]
            if not len(corners):
                break
            edges = np.linalg.norm(np.roll(corners, -1, 1)[..., :2] - corners[..., :2], axis=-1)
            turn = (np.argmax(edges, 1)[:, None] + np.arange(3)) % 3  # the longest edge first
            a, b, c = np.moveaxis(np.take_along_axis(corners, turn[..., None], 1), 1, 0)
            middle = (a + b) / 2
            middle[:, 2] = 2 / (1 / a[:, 2] + 1 / b[:, 2])  # 1 / depth is linear on the screen
            corners = np.concatenate([np.stack([a, middle, c], 1), np.stack([middle, b, c], 1)])
            colours = np.concatenate([colours, colours])
        if not done:
            return corners, colours
        return np.concatenate([x for x, _ in done]), np.concatenate([y for _, y in done])

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
        w = 1 / np.stack([z0, z1, z2])[:, which, 0, 0]
        b = b1[which, i, j], b2[which, i, j]
        z = 1 / (w[0] + b[0] * (w[1] - w[0]) + b[1] * (w[2] - w[0]))
        keep = np.flatnonzero(z < self.depth[rows, columns])
        order = keep[np.argsort(-z[keep], kind="stable")]  # the nearest is written last
        rows, columns, z, which = rows[order], columns[order], z[order], which[order]
        if alpha < 1:  # one layer: of several triangles of a part the nearest counts
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
