"""A progress bar on stderr: redrawn in place on a terminal, a line every tenth elsewhere."""

from __future__ import annotations

import sys
import time


class Progress:
    """Use as a context manager and call `advance(count)`; nothing is written to stdout.

    `weight`: what one of `total` is worth in the throughput that is shown; `done`: how much was done before.
    """

    def __init__(
        self, total: int, label: str = "", stream=None, width: int = 32, weight: float = 1.0, done=0
    ):
        self.total, self.label, self.width, self.weight = max(total, 1), label, width, weight
        self.stream = sys.stderr if stream is None else stream
        self.in_place = getattr(self.stream, "isatty", lambda: False)()
        self.done = self.before = done
        self.tenths, self.start = int(10 * done / self.total), time.perf_counter()

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
        fresh = self.done - self.before  # in this process; the rest was done before
        left = (
            f"{elapsed * (self.total - self.done) / fresh:.0f} s left"
            if fresh and share < 1
            else f"{elapsed:.1f} s"
        )
        rate = f" {si(self.weight * fresh / elapsed)}/s" if fresh and self.weight != 1 else ""
        text = f"{self.label} {share:4.0%} {self.done}/{self.total}{rate} {left}"
        if self.in_place:
            full = round(share * self.width)
            self.stream.write(f"\r[{'#' * full}{'.' * (self.width - full)}] {text}\033[K")
        elif int(10 * share) > self.tenths:
            self.tenths = int(10 * share)
            self.stream.write(text + "\n")
        self.stream.flush()


def si(x: float) -> str:
    """1234567 -> "1.23 M"."""
    for factor, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if x >= factor:
            return f"{x / factor:.3g}{letter}"
    return f"{x:.3g}"
