"""A progress bar on stderr: redrawn in place on a terminal, a line every tenth elsewhere."""

from __future__ import annotations

import sys
import time


class Progress:
    """Use as a context manager and call `advance(count)`; nothing is written to stdout."""

    def __init__(self, total: int, label: str = "", stream=None, width: int = 32):
        self.total, self.label, self.width = max(total, 1), label, width
        self.stream = sys.stderr if stream is None else stream
        self.in_place = getattr(self.stream, "isatty", lambda: False)()
        self.done, self.tenths, self.start = 0, 0, time.perf_counter()

    def __enter__(self) -> Progress:
        self._draw()
        return self

    def __exit__(self, *error) -> None:
        if self.in_place:
            self.stream.write("\n")
            self.stream.flush()

    def advance(self, count: int = 1) -> None:
        self.done = min(self.done + count, self.total)
        self._draw()

    def _draw(self) -> None:
        share, elapsed = self.done / self.total, time.perf_counter() - self.start
        left = f"{elapsed * (1 / share - 1):.0f} s left" if 0 < share < 1 else f"{elapsed:.1f} s"
        text = f"{self.label} {share:4.0%} {self.done}/{self.total} {left}"
        if self.in_place:
            full = round(share * self.width)
            self.stream.write(f"\r[{'#' * full}{'.' * (self.width - full)}] {text}\033[K")
        elif int(10 * share) > self.tenths:
            self.tenths = int(10 * share)
            self.stream.write(text + "\n")
        self.stream.flush()
