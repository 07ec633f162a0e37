"""Looking at robots: a page in the browser, replays in one file, pictures for documents.

    viewer = rbd.viewer.show(sys)                        # sliders, and a handle that drags a frame
    viewer = rbd.viewer.show(sys, path, dt=1e-3)         # play what rollout returned
    rbd.viewer.save_html(sys, path, "run.html")          # the same in one file, without a server
    rbd.viewer.save_png(sys, "robot.png")

Needs the extra `viewer`: pip install 'jaxrbd[viewer]'. Nothing of it is imported before it is used.
"""

from __future__ import annotations

from typing import Any

from jaxrbd.constraints.data import ConstraintsLike
from jaxrbd.model.system import System
from jaxrbd.viewer.motion import PathLike
from jaxrbd.viewer.picture import save_gif, save_png
from jaxrbd.viewer.replay import Replay, save_html
from jaxrbd.viewer.viewer import Viewer


def show(
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
) -> Viewer:
    """Open a page that shows a System; its address is printed. The caller goes on: `wait` or `close` it.

    `path`: what `rollout` returns, a State or q, with leaves (steps, …) or (environments, steps, …), or a
    `checkpoint.Run`; its states are `dt` apart. Without one, or with a single state, joints have sliders and
    a frame can be dragged; `q` is the pose to begin with. `ghost`: a second path, drawn pale over the first.
    `environments`: how many stand side by side; unless given at most 64, and a million triangles in all.
    `constraints` shows where they sit, `multipliers` (…, m) what they exert there, `wrenches` (…, nb, 6),
    as f_ext, what acts on bodies: arrows, the longest for the largest force.
    `live`: shows what `viewer.live.offer(q, t)` is given, or a rollout whose controls went through
    `viewer.live.watched(controls)`; `environments` says how many there will be.
    The page is served to this machine alone unless `host` says otherwise; `port` is the first free one.
    """
    viewer = Viewer(
        sys,
        path,
        dt=dt,
        ghost=ghost,
        environments=environments,
        constraints=constraints,
        wrenches=wrenches,
        multipliers=multipliers,
        q=q,
        host=host,
        port=port,
        live=live,
    )
    print(f"{sys.name} is shown at {viewer.url}", flush=True)
    for note in viewer.drawing.notes:
        print(f"  {note}", flush=True)
    return viewer


__all__ = ["Replay", "Viewer", "save_gif", "save_html", "save_png", "show"]
