"""What is drawn over the robot: frames, centres of mass, constraints and forces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints import constraint_places, constraint_wrenches
from jaxrbd.constraints.data import ConstraintsLike, fitting
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System
from jaxrbd.viewer.motion import all_frames, quaternions
from jaxrbd.viewer.scene import centres

CENTRE, WHOLE, ANCHOR, WRENCH, MULTIPLIER = (
    (30, 30, 30),
    (220, 40, 40),
    (150, 60, 190),
    (230, 120, 20),
    (20, 150, 90),
)


class Overlays:
    """Everything drawn over `count` environments, hidden until it is switched on.

    `wrenches`: (..., nb, 6) as f_ext, `multipliers`: (..., m) of `constraints`, both along the path.
    """

    def __init__(
        self,
        scene: Any,
        sys: System,
        name: str,
        count: int,
        size: float,
        constraints: ConstraintsLike | None = None,
        wrenches: Any = None,
        multipliers: Any = None,
    ):
        self.sys, self.count, self.size = sys, count, size
        self.con, self.wrenches, self.multipliers = self.check(sys, constraints, wrenches, multipliers)
        self.mass, self.centre = centres(sys)
        largest = [np.abs(x).max() for x in (self._forces(), self.multipliers) if x is not None and x.size]
        self.scale = 2 * size / max([1e-9, *largest])  # the largest force is two bodies long
        self._make(scene, name)
        self.on: dict[str, bool] = dict.fromkeys(self.drawn, False)

    @staticmethod
    def check(sys: System, constraints: ConstraintsLike | None, wrenches: Any, multipliers: Any):
        """What to draw, of the right shapes: constraints, wrenches (E, T, nb, 6), multipliers (E, T, m)."""
        con = None if constraints is None else fitting(sys, constraints)
        if con is None and multipliers is not None:
            raise ArgumentError("multipliers are given without constraints=, so nobody knows where they act.")
        lam = None if con is None else _along("multipliers", multipliers, (con.rows,))
        return con, _along("wrenches", wrenches, (sys.nb, 6)), lam

    def remove(self) -> None:
        for made, _ in self.drawn.values():
            for one in made:
                one.remove()

    def _forces(self):
        return None if self.wrenches is None else self.wrenches[..., 3:]

    def _make(self, scene: Any, name: str) -> None:
        import trimesh

        s, count, nb, nf = self.size, self.count, self.sys.nb, len(self.sys.frame_names)

        def at(n):
            return {"batched_wxyzs": np.tile([1.0, 0, 0, 0], (n, 1)), "batched_positions": np.zeros((n, 3))}

        def balls(label, n, radius, colour):
            b = trimesh.creation.icosphere(subdivisions=2, radius=radius)
            made = scene.add_batched_meshes_simple(
                f"{name}/{label}", b.vertices, b.faces, **at(n), batched_colors=colour, visible=False
            )
            return made

        def arrows(label, n, colour):
            points = np.zeros((n, 2, 3), np.float32)
            return scene.add_arrows(
                f"{name}/{label}",
                points,
                colour,
                shaft_radius=s / 40,
                head_radius=s / 16,
                head_length=s / 8,
                visible=False,
            )

        self.drawn: dict[str, tuple[tuple[Any, ...], Callable]] = {}
        axes = scene.add_batched_axes(
            f"{name}/frames", **at(count * nf), axes_length=s / 4, axes_radius=s / 80, visible=False
        )
        self.drawn["frames"] = (axes,), self._move_frames
        own, whole = balls("centres", count * nb, s / 25, CENTRE), balls("centre", count, s / 12, WHOLE)
        self.drawn["centres of mass"] = (own, whole), self._move_centres
        if self.con is not None:
            anchors = balls("constraints", count * len(self.con.entries) * 2, s / 15, ANCHOR)
            self.drawn["constraints"] = (anchors,), self._move_anchors
            sys, con = self.sys, self.con
            self._places = jax.jit(jax.vmap(lambda q: constraint_places(sys, con, q)))
            self._on_a = jax.jit(jax.vmap(lambda q, lam: constraint_wrenches(sys, con, q, lam)))
        if self.wrenches is not None:
            self.drawn["wrenches"] = (arrows("wrenches", count * nb, WRENCH),), self._move_wrenches
        if self.multipliers is not None:
            n = count * len(self.con.entries)
            self.drawn["multipliers"] = (arrows("multipliers", n, MULTIPLIER),), self._move_multipliers

    def show(self, what: str, visible: bool) -> None:
        self.on[what] = visible
        for made in self.drawn[what][0]:
            made.visible = visible

    def move(self, q: np.ndarray, R: np.ndarray, p: np.ndarray, offsets: np.ndarray, k: int, which) -> None:
        """To the poses R, p of bodies at frame k of the environments `which`; what is off stays."""
        for what, (made, mover) in self.drawn.items():
            if self.on[what]:
                mover(made, q, R, p, offsets, k, which)

    def _move_frames(self, made, q, R, p, offsets, k, which) -> None:
        R, p = all_frames(self.sys, q)
        made[0].batched_wxyzs = quaternions(R).reshape(-1, 4).astype(np.float32)
        made[0].batched_positions = (p + offsets[:, None]).reshape(-1, 3).astype(np.float32)

    def _move_centres(self, made, q, R, p, offsets, k, which) -> None:
        x = np.einsum("ebij,bj->ebi", R, self.centre) + p
        made[0].batched_positions = x.reshape(-1, 3).astype(np.float32)
        whole = np.einsum("b,ebi->ei", self.mass, x) / max(self.mass.sum(), 1e-12)
        made[1].batched_positions = whole.astype(np.float32)

    def _move_anchors(self, made, q, R, p, offsets, k, which) -> None:
        x = np.asarray(self._places(jnp.asarray(q, self.sys.dtype))) + offsets[:, None, None]
        made[0].batched_positions = np.nan_to_num(x.reshape(-1, 3), nan=-1e6).astype(np.float32)

    def _move_wrenches(self, made, q, R, p, offsets, k, which) -> None:
        f = _at(self.wrenches, k, which)[..., 3:]
        made[0].points = self._arrows(p, f)

    def _move_multipliers(self, made, q, R, p, offsets, k, which) -> None:
        q, lam = jnp.asarray(q, self.sys.dtype), jnp.asarray(_at(self.multipliers, k, which), self.sys.dtype)
        places = np.asarray(self._places(q))[:, :, 0]
        f = np.asarray(self._on_a(q, lam))[..., 3:]
        made[0].points = self._arrows(np.nan_to_num(places) + offsets[:, None], f)

    def _arrows(self, start, force) -> np.ndarray:
        force = np.nan_to_num(force)
        return np.stack([start, start + self.scale * force], -2).reshape(-1, 2, 3).astype(np.float32)


def _along(name: str, x: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """(E or 1, T or 1, ...) of numbers along a path."""
    if x is None:
        return None
    x = np.asarray(x, float)
    lead = x.ndim - len(shape)
    if not 0 <= lead <= 2 or x.shape[lead:] != shape:
        want = ", ".join(map(str, shape))
        raise ArgumentError(f"{name} has shape {x.shape}, expected ({want},) after environments and steps.")
    return x.reshape((1,) * (2 - lead) + x.shape)


def _at(x: np.ndarray, k: int, which) -> np.ndarray:
    e = np.minimum(which, x.shape[0] - 1)
    return x[e, min(k, x.shape[1] - 1)]
