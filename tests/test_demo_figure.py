"""The demo's figure is legible: no tick label lies on another, and none of those in space is cut off."""

from contextlib import contextmanager
from itertools import combinations

import numpy as np

from jaxrbd import demo
from jaxrbd.commands.plots import figure


def test_tick_labels_do_not_overlap(tmp_path, monkeypatch):
    kept = []

    @contextmanager
    def keeping(size, path):
        with figure(size, path) as fig:
            kept.append(fig)
            yield fig

    monkeypatch.setattr(demo, "figure", keeping)
    t = np.linspace(0.01, 3, 50)
    arm = np.stack([np.linspace(0, 1, 9)[:, None] * np.array([0.4, -0.5, 0.8])] * 6)
    tool = np.random.default_rng(0).normal(0, 0.3, (20, 10, 3))
    demo.draw(
        tmp_path / "demo.png",
        {"tool": tool, "rate": 1e6, "batch": 4096, "seconds": 1},
        {"cost": np.geomspace(0.35, 0.02, 30), "before": arm, "after": arm},
        {"curves": {dt: (t, 1e-9 * dt * t) for dt in (4e-3, 2e-3, 1e-3)}},
    )
    (fig,) = kept
    fig.set_dpi(130)  # as it was written
    fig.canvas.draw()
    for ax in fig.axes:
        solid = hasattr(ax, "zaxis")  # asking for labels in space would move them back to the plane
        axes = (ax.xaxis, ax.yaxis, ax.zaxis) if solid else (ax.xaxis, ax.yaxis)
        ticks = [[tick.label1 for tick in x.majorTicks] if solid else x.get_ticklabels() for x in axes]
        shown = [text for texts in ticks for text in texts if text.get_text()]
        assert len(shown) > 5
        for text in shown + [x.label for x in axes] if solid else ():  # in a plane some are not drawn
            box = text.get_window_extent()
            assert fig.bbox.x0 <= box.x0 and box.x1 <= fig.bbox.x1, text
        for a, b in combinations(shown, 2):
            assert not a.get_window_extent().overlaps(b.get_window_extent()), (a, b)
