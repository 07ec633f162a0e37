"""Playing a path: play and pause, speed, time, which environments, and curves of signals."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxrbd.viewer.viewer import Viewer

RATE = 30  # frames per second that are sent
POINTS = 1500  # of a curve


class Player:
    """The panel and the clock. `time` is in seconds of the path."""

    def __init__(self, viewer: Viewer):
        assert viewer.motion is not None
        self.viewer, self.motion = viewer, viewer.motion
        self.playing, self._alive, self._drawn = False, True, -1
        self._curve_time = 0.0
        gui, t = viewer.server.gui, self.motion.t
        step = float(t[1] - t[0])
        with gui.add_folder("Time"):
            self.button = gui.add_button("Play")
            self.slider = gui.add_slider("time [s]", 0.0, float(t[-1]), step, 0.0)
            self.speed = gui.add_slider("speed", 0.05, 4.0, 0.05, 1.0)
            self.again = gui.add_checkbox("repeat", True)
        self.button.on_click(lambda _: self.play(not self.playing))
        self.slider.on_update(lambda _: self._draw())
        count = self.motion.environments
        if count > 1:
            with gui.add_folder("Environments"):
                self.tiled = gui.add_slider("side by side", 1, min(64, count), 1, len(viewer.which))
                self.first = gui.add_slider("first", 0, count - 1, 1, 0)
            self.tiled.on_update(lambda _: self.choose(self.first.value, self.tiled.value))
            self.first.on_update(lambda _: self.choose(self.first.value, self.tiled.value))
        self._curves(gui)
        self._thread = threading.Thread(target=self._run, daemon=True, name="jaxrbd player")
        self._thread.start()

    # --- time ------------------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        return float(self.slider.value)

    def seek(self, t: float) -> None:
        """Go to a time."""
        self.slider.value = float(np.clip(t, 0.0, self.motion.t[-1]))
        self._draw()

    def play(self, on: bool = True) -> None:
        if on and self.time >= float(self.motion.t[-1]):
            self.seek(0.0)
        self.playing = on
        self.button.label = "Pause" if on else "Play"

    def stop(self) -> None:
        self._alive = False
        self._thread.join(timeout=2.0)

    def _draw(self) -> None:
        step = float(self.motion.t[1] - self.motion.t[0])
        k = int(np.clip(round(self.time / step), 0, len(self.motion.t) - 1))
        if k != self._drawn:  # `seek` moves the slider, which then asks again
            self._drawn = k
            self.viewer.draw(k)
            self._mark_curve()

    def _run(self) -> None:
        last = time.perf_counter()
        while self._alive:
            time.sleep(1 / RATE)
            now = time.perf_counter()
            elapsed, last = now - last, now
            if not self.playing:
                continue
            t, end = self.time + elapsed * float(self.speed.value), float(self.motion.t[-1])
            if t >= end:
                t = t % end if self.again.value else end
                if not self.again.value:
                    self.play(False)
            self.seek(t)

    # --- environments ----------------------------------------------------------------------------------

    def choose(self, first: int, count: int) -> None:
        """Show `count` environments, beginning with `first`."""
        first = int(min(first, self.motion.environments - 1))
        which = np.arange(first, min(first + int(count), self.motion.environments))
        if not np.array_equal(which, self.viewer.which):
            self.viewer.which = which
            self.viewer.rebuild()
            self._draw_curve()

    # --- curves ----------------------------------------------------------------------------------------

    def _curves(self, gui: Any) -> None:
        from viser import uplot

        names = ["none", *self.motion.signals(self.viewer.sys)]
        with gui.add_folder("Curve", expand_by_default=False):
            self.signal = gui.add_dropdown("signal", names, initial_value="none")
            now, empty = np.zeros(1), np.zeros(1)
            self.curve = gui.add_uplot(
                (now, empty, empty),
                series=(
                    uplot.Series(label="t [s]"),
                    uplot.Series(label="signal", stroke="#0b6e99", width=2),
                    uplot.Series(label="now", stroke="#e03e3e", points={"show": True, "size": 10}),
                ),
                scales={"x": uplot.Scale(time=False, auto=True), "y": uplot.Scale(auto=True)},
                aspect=1.6,
                visible=False,
            )
        self._data = (now, empty)
        self.signal.on_update(lambda _: self._draw_curve())

    def plot(self, signal: str) -> None:
        """Draw the curve of a signal of the first environment that is shown."""
        self.signal.value = signal
        self._draw_curve()

    def _draw_curve(self) -> None:
        name = self.signal.value
        self.curve.visible = name != "none"
        if name == "none":
            return
        y = self.motion.signal(self.viewer.sys, name, int(self.viewer.which[0]))
        keep = np.unique(np.linspace(0, len(y) - 1, min(POINTS, len(y))).astype(int))
        self._data = np.asarray(self.motion.t[keep], float), np.asarray(y[keep], float)
        self._mark_curve(force=True)

    def _mark_curve(self, force: bool = False) -> None:
        now = time.perf_counter()
        if self.signal.value == "none" or (not force and now - self._curve_time < 0.2):
            return
        self._curve_time = now
        t, y = self._data
        k = int(np.argmin(np.abs(t - self.time)))
        marker = np.full_like(y, np.nan)
        marker[k] = y[k]
        self.curve.data = (t, y, marker)
