"""A path as one HTML file that plays in any browser, without a server or a network."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxrbd.errors import ArgumentError, FileError
from jaxrbd.model.system import System
from jaxrbd.typing import StrPath
from jaxrbd.viewer.extras import output_file
from jaxrbd.viewer.motion import PathLike, read_motion
from jaxrbd.viewer.viewer import TILES, Viewer

BUDGET = 30e6  # bytes of poses before compression; they hardly compress


@dataclass(frozen=True)
class Replay:
    """What was written: how many of the path's states and environments, and the size of the file."""

    path: Path
    frames: int
    environments: int
    bytes: int
    thinned: str  # what was left out, "" for nothing

    def __str__(self) -> str:
        size = f"{self.bytes / 1e6:.1f} MB"
        text = f"{self.path}: {self.frames} frames of {self.environments} environments, {size}"
        return f"{text} ({self.thinned})" if self.thinned else text


def save_html(
    sys: System,
    path: PathLike,
    file: StrPath,
    *,
    dt: float = 1e-3,
    fps: float = 30.0,
    environments: int | None = None,
    show: tuple[str, ...] = (),
    **what: Any,
) -> Replay:
    """Write a path to `file`, an HTML page with everything in it: play, speed and a time slider.

    `path`, `dt`, `environments` and `what` (ghost, constraints, wrenches, multipliers) as of `show`, whose
    switches `show` names ("collision", "frames", …). `fps` states per second of the path are kept, fewer
    where the poses of all bodies would take more than 30 MB; `thinned` of what is returned says so.
    """
    file = output_file(file, ".html")
    if not fps > 0:
        raise ArgumentError(f"fps is {fps}, expected a positive number of states per second.")
    motion = read_motion(sys, path, dt)
    count = min(motion.environments, TILES) if environments is None else environments
    with Viewer(sys, motion, dt=dt, environments=count, **what) as viewer:
        if viewer.player is not None:
            viewer.player.stop()
        for name in show:
            viewer.switch(name, True)
        keep = _kept(motion.t, fps, count * max(1, len(viewer.objects)))
        viewer.draw(int(keep[0]))
        record = viewer.server.get_scene_serializer()
        t = motion.t
        for last, k in itertools.pairwise(keep):
            record.insert_sleep(float(t[k] - t[last]))
            viewer.draw(int(k))
        record.insert_sleep(1 / fps)
        text = record.as_html()
        thinned = _thinned(len(keep), len(t), count, motion.environments)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        cause = f"cannot be written ({error.strerror})"
        raise FileError(str(file), cause, "Choose a folder that may be written to.") from None
    return Replay(file, len(keep), count, len(text.encode()), thinned)


def _kept(t: np.ndarray, fps: float, objects: int) -> np.ndarray:
    """Which states of the path are written, if each has the poses of so many objects."""
    wanted = min(len(t), int(np.ceil((t[-1] - t[0]) * fps)) + 1)
    wanted = max(2, min(wanted, int(BUDGET / (28 * objects)))) if len(t) > 1 else 1
    return np.unique(np.linspace(0, len(t) - 1, wanted).round().astype(int))


def _thinned(frames: int, states: int, count: int, every: int) -> str:
    parts = [f"{frames} of {states} states"] if frames < states else []
    if count < every:
        parts.append(f"{count} of {every} environments" + (f", at most {TILES}" if count == TILES else ""))
    return ", ".join(parts)
