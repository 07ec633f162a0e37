"""A System in a page of the browser: sliders and a handle to pose it, or the controls of a player.

`show` starts a server on this machine, whose threads draw; the caller goes on, or waits for the page.
"""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from typing import Any

import numpy as np

from jaxrbd.constraints.data import ConstraintsLike
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System
from jaxrbd.viewer.drawing import draw
from jaxrbd.viewer.extras import need
from jaxrbd.viewer.live import Live
from jaxrbd.viewer.motion import Motion, PathLike, read_motion
from jaxrbd.viewer.overlays import Overlays
from jaxrbd.viewer.player import Player
from jaxrbd.viewer.posing import Posing
from jaxrbd.viewer.scene import Robot, extent

TILES = 64  # environments side by side: more are a crowd
TRIANGLES = 1e6  # of all of them, to begin with: a browser without a graphics card takes seconds for more
PORTS = range(8080, 8180)


class Viewer:
    """What `show` returns: the page and its parts. `url` is its address; `close` ends it."""

    def __init__(
        self,
        sys: System,
        path: PathLike | None = None,
        *,
        dt: float = 1e-3,
        ghost: PathLike | None = None,
        environments: int | None = None,
        constraints: ConstraintsLike | None = None,
        wrenches: Any = None,
        multipliers: Any = None,
        q: Any = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        live: bool = False,
    ):
        viser = need("viser", "the viewer")
        self.sys = sys
        self.motion = None if path is None else read_motion(sys, path, dt)
        self.ghost_motion = None if ghost is None else read_motion(sys, ghost, dt)
        self.drawing = draw(sys)
        start = self.motion.at(0, np.array([0])) if self.motion is not None else _pose(sys, q)[None]
        self.constraints, self.wrenches, self.multipliers = constraints, wrenches, multipliers
        Overlays.check(sys, constraints, wrenches, multipliers)
        count = self.motion.environments if self.motion is not None else 1
        bearable = max(1, int(TRIANGLES / max(self.drawing.triangles, 1)))
        self._count = min(count, TILES, bearable) if environments is None else environments
        if self._count < 1 or (self._count > count and not live):
            raise ArgumentError(f"environments is {environments}, but the path has {count}.")
        self.which = np.arange(self._count)
        self._low, self._high = extent(sys, self.drawing, start[0])
        self.spacing = 1.5 * max(float(np.max(self._high - self._low)), 0.2)
        with contextlib.redirect_stdout(io.StringIO()):  # it would announce itself in a frame; `show` does
            self.server = viser.ViserServer(
                host=host, port=free_port(host, port), label=f"jaxrbd: {sys.name}", verbose=False
            )
        self.url = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{self.server.get_port()}"
        self._drawing = threading.RLock()
        self.scenery()
        self.robot: Robot | None = None
        self.ghost: Robot | None = None
        self.overlays: Overlays | None = None
        self._switched: dict[str, bool] = {}
        self.frame, self.q = 0, np.repeat(start, self._count, 0)
        self.rebuild()
        self._notes()
        self._switches()
        self.player = self.posing = self.live = None
        if live:
            self.live = Live(self)
        elif self.motion is not None and len(self.motion.t) > 1:
            self.player = Player(self)
        else:
            self.posing = Posing(self, start[0])
        self.server.flush()

    # --- the scene -------------------------------------------------------------------------------------

    def scenery(self) -> None:
        """Ground, lights and camera."""
        scene, camera = self.server.scene, self.server.initial_camera
        scene.set_up_direction("+z")
        floor = min(float(self._low[2]), 0.0) if self.sys.topology.nb else 0.0
        scene.add_grid(
            "/ground", infinite_grid=True, cell_size=0.1 if self.spacing < 1 else 0.5, position=(0, 0, floor)
        )
        side = self.spacing * (np.ceil(np.sqrt(self._count)) - 1)  # of the grid of environments
        low, high = self._low, self._high + np.array([side, side, 0.0])
        middle, size = (low + high) / 2, float(np.linalg.norm(high - low))
        camera.position = tuple(middle + max(size, 0.3) * np.array([0.7, -0.75, 0.42]))
        camera.look_at = tuple(middle)

    def rebuild(self) -> None:
        """Make the objects of the environments that are shown, and put them in place."""
        with self._drawing:
            for old in (self.robot, self.ghost, self.overlays):
                if old is not None:
                    old.remove()
            scene, count = self.server.scene, len(self.which)
            self.robot = Robot(scene, self.sys, self.drawing, "/robot", count)
            self.robot.tile(self.spacing if count > 1 else 0.0)
            self.robot.place_world()
            self.ghost = None
            if self.ghost_motion is not None:
                self.ghost = Robot(scene, self.sys, self.drawing, "/ghost", count, ghost=True)
                self.ghost.offsets = self.robot.offsets
            more = (self.constraints, self.wrenches, self.multipliers)
            self.overlays = Overlays(scene, self.sys, "/over", count, max(self.drawing.size, 0.02), *more)
            for what, on in self._switched.items():
                self._switch(what, on)
            self._mark()
            self.draw(self.frame)

    @property
    def objects(self) -> list[Any]:
        """Those of the robots and ghosts that a path moves."""
        return [x for robot in (self.robot, self.ghost) if robot is not None for x in robot.objects.values()]

    def draw(self, k: int) -> None:
        """Frame k of the path."""
        if self.motion is None:
            self.pose(self.q)
            return
        self.frame = int(k)
        self.pose(self.motion.at(self.frame, self.which))
        if self.ghost is not None and self.ghost_motion is not None:
            other = np.minimum(self.which, self.ghost_motion.environments - 1)
            self.ghost.move(self.ghost_motion.at(min(self.frame, len(self.ghost_motion.t) - 1), other))

    def pose(self, q: np.ndarray) -> None:
        """Put the robots to q (count, nq)."""
        assert self.robot is not None and self.overlays is not None
        with self._drawing, self.server.atomic():
            self.q = q
            R, p = self.robot.move(q)
            self.overlays.move(q, R, p, self.robot.offsets, self.frame, self.which)

    def _mark(self) -> None:
        """Say in the scene which environments cease to be finite."""
        assert self.robot is not None
        for e, t in self.motion.marks() if self.motion is not None else ():
            for i in np.flatnonzero(self.which == e):
                text = f"environment {e}: not finite from t = {t:.4g} s"
                place = self.robot.offsets[i] + (self._low + self._high) / 2
                self.server.scene.add_label(f"/robot/broken {e}", text, position=tuple(place))

    # --- the panel -------------------------------------------------------------------------------------

    def _notes(self) -> None:
        t = self.sys.topology
        lines = [f"**{self.sys.name}**: {self.sys.nb} bodies, {self.sys.nv} degrees of freedom"]
        lines += [f"- {note}" for note in self.drawing.notes[:20]]
        if not t.shape_kinds:
            lines.append("- the model has no shapes: what you see are ellipsoids of inertia")
        if self.motion is not None:
            lines += [
                f"- **environment {e} is not finite from t = {s:.4g} s**" for e, s in self.motion.marks()[:20]
            ]
        self.notes = tuple(lines)
        self.server.gui.add_markdown("\n".join(lines))

    def _switches(self) -> None:
        assert self.robot is not None and self.overlays is not None
        self.switches: dict[str, Any] = {}
        with self.server.gui.add_folder("Show", expand_by_default=False):
            for what, on in {**self.robot.roles, **self.overlays.on}.items():
                box = self.server.gui.add_checkbox(what, on)
                self._switched[what] = on
                self.switches[what] = box
                box.on_update(lambda _, what=what, box=box: self.switch(what, box.value))

    def switch(self, what: str, on: bool) -> None:
        """Show or hide: "visual", "collision", "inertia", "frames", "centres of mass", "constraints", …"""
        if what not in self._switched:
            raise ArgumentError(
                f"{what!r} is nothing to show here, expected one of {', '.join(self._switched)}."
            )
        with self._drawing:
            self._switched[what] = on
            self._switch(what, on)
            self.draw(self.frame)

    def _switch(self, what: str, on: bool) -> None:
        assert self.robot is not None and self.overlays is not None
        if what in self.robot.roles:
            self.robot.show(what, on)
        else:
            self.overlays.show(what, on)

    # --- its life --------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Until the user interrupts."""
        while not self._closed():
            time.sleep(0.2)

    def _closed(self) -> bool:
        return self.server is None

    def close(self) -> None:
        """Stop playing and close the page."""
        if self.player is not None:
            self.player.stop()
        if self.live is not None:
            self.live.stop()
        if self.server is not None:
            with contextlib.redirect_stdout(io.StringIO()):
                self.server.stop()
            self.server = None

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Viewer({self.sys.name!r}, {self.url})"


def _pose(sys: System, q: Any) -> np.ndarray:
    if q is None:
        return np.asarray(sys.q0, float)
    motion: Motion = read_motion(sys, q)
    return motion.q[0, 0]


def free_port(host: str, port: int | None) -> int:
    """The port asked for, if it is free; else the first free one."""
    for candidate in PORTS if port is None else (port,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, candidate))
            except OSError as error:
                reason = error.strerror
            except OverflowError:
                reason = "ports are 1 to 65535"
            else:
                return candidate
    where = f"port {port}" if port is not None else f"ports {PORTS.start} to {PORTS.stop - 1}"
    raise ArgumentError(f"viewer: {where} of {host!r} cannot be used ({reason}). Choose another with port=.")
