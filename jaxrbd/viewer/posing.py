"""Posing a robot by hand: a slider per degree of freedom, and a handle that drags a frame by IK.

Sliders are coordinates x of the tangent space at a reference: q = integrate(q_ref, x). For joints with one
number q_ref is zero, so that x is the joint's own coordinate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.ik import GaussNewton, inverse_kinematics
from jaxrbd.joints import TYPES
from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.model.system import System
from jaxrbd.tree.frames import frame_pose
from jaxrbd.tree.manifold import difference, integrate
from jaxrbd.viewer.motion import quaternions

if TYPE_CHECKING:
    from jaxrbd.viewer.viewer import Viewer

COLUMNS = ("turn x", "turn y", "turn z", "x", "y", "z")


class Posing:
    """The panel; `q` is the pose, `drag` the frame that follows the handle, None for none."""

    def __init__(self, viewer: Viewer, q: np.ndarray):
        self.viewer, self.sys = viewer, viewer.sys
        sys = self.sys
        self.reference, self.labels, self.low, self.high = _ranges(sys, q)
        self._integrate = jax.jit(lambda x: integrate(sys, jnp.asarray(self.reference, sys.dtype), x))
        self._difference = jax.jit(lambda q: difference(sys, jnp.asarray(self.reference, sys.dtype), q))
        self.q = np.asarray(q, float)
        gui = viewer.server.gui
        names = ["default pose", *sys.keyframe_names]
        x = np.clip(np.asarray(self._difference(jnp.asarray(q, sys.dtype))), self.low, self.high)
        with gui.add_folder("Pose"):
            self.pose = gui.add_dropdown("go to", names, initial_value=names[0])
            self.pose.on_update(lambda _: self.go_to(self.pose.value))
        with gui.add_folder("Drag a frame"):
            frames = ["none", *dict.fromkeys(sys.frame_names)]
            self.frame = gui.add_dropdown("frame", frames, initial_value="none")
            self.turn = gui.add_checkbox("turn as well", True)
        self.frame.on_update(lambda _: self.drag(None if self.frame.value == "none" else self.frame.value))
        with gui.add_folder("Joints", expand_by_default=sys.nv <= 30):
            self.sliders = [
                gui.add_slider(label, float(lo), float(hi), float((hi - lo) / 1000), float(value))
                for label, lo, hi, value in zip(self.labels, self.low, self.high, x)
            ]
        self._shown = self._values()
        for slider in self.sliders:
            slider.on_update(lambda _: self._slid())
        self.handle: Any = None

    def set(self, q) -> None:
        """Take a pose, and show it on the sliders."""
        self.q = np.asarray(q, float)
        x = np.asarray(self._difference(jnp.asarray(q, self.sys.dtype)), float)
        self._shown = [float(y) for y in np.clip(x, self.low, self.high)]
        with self.viewer.server.atomic():
            for slider, value in zip(self.sliders, self._shown):
                slider.value = value
        self.viewer.pose(self.q[None])

    def go_to(self, name: str) -> None:
        self.set(self.sys.keyframe(name)[0] if name in self.sys.keyframe_names else self.sys.q0)
        self._place_handle()

    def _values(self) -> list[float]:
        return [float(s.value) for s in self.sliders]

    def _slid(self) -> None:
        """A slider was moved: by the user, or by `set`, whose pose stands already."""
        x = self._values()
        if x == self._shown:
            return
        self._shown = x
        self.q = np.asarray(self._integrate(jnp.asarray(x, self.sys.dtype)), float)
        self.viewer.pose(self.q[None])
        self._place_handle()

    # --- the handle ------------------------------------------------------------------------------------

    def drag(self, frame: str | None) -> None:
        """Let a handle drag a frame; None takes it away."""
        if self.handle is not None:
            self.handle.remove()
            self.handle = None
        if frame is None:
            return
        sys = self.sys
        settings = GaussNewton(iterations=20)
        pose = lambda q, R, p: inverse_kinematics(sys, q, {frame: (R, p)}, solver=settings).value  # noqa: E731
        point = lambda q, p: inverse_kinematics(sys, q, {frame: p}, solver=settings).value  # noqa: E731
        self._solve_pose, self._solve_point = jax.jit(pose), jax.jit(point)
        self._name = frame
        size = 2.5 * max(self.viewer.drawing.size, 0.05)
        self.handle = self.viewer.server.scene.add_transform_controls("/handle", scale=size, depth_test=False)
        self._place_handle()
        self.handle.on_update(lambda _: self._dragged())

    def _place_handle(self) -> None:
        if self.handle is None:
            return
        R, p = frame_pose(self.sys, jnp.asarray(self.q, self.sys.dtype), self._name)
        self.handle.position, self.handle.wxyz = np.asarray(p, float), quaternions(np.asarray(R, float))

    def _dragged(self) -> None:
        if self.handle is None:
            return
        self.reach(np.asarray(self.handle.wxyz), np.asarray(self.handle.position))

    def reach(self, wxyz: np.ndarray, position: np.ndarray) -> None:
        """Bring the frame of the handle there, as far as the joints let it."""
        dtype, q = self.sys.dtype, jnp.asarray(self.q, self.sys.dtype)
        p = jnp.asarray(position, dtype)
        if self.turn.value:
            found = self._solve_pose(q, jnp.asarray(matrix_from_quaternion(wxyz), dtype), p)
        else:
            found = self._solve_point(q, p)
        if np.isfinite(found).all():
            self.set(found)


def _ranges(sys: System, q: np.ndarray):
    """Pose of reference, and label, lower and upper end of every slider."""
    reference, labels = np.array(q, float), []
    t, ends = sys.topology, []
    leaves = np.array(sys.lower, float), np.array(sys.upper, float)
    for name in sys.leading_joints:
        i, dofs = t.joint_names.index(name), sys.v_index(name)
        record = TYPES[sys.joint_types[i]]
        own = [d for d in range(t.v_starts[i], t.v_starts[i + 1]) if not t.clusters or d in t.independent]
        n = dofs.stop - dofs.start
        if record.on_manifold:
            words = COLUMNS[:n]
        else:
            if not t.clusters:
                reference[sys.q_index(name)] = 0.0
            words = ("",) if n == 1 else tuple(f" {k}" for k in range(n))
        labels += [f"{name} {w}".rstrip() for w in words]
        turning = [c.turns if hasattr(c, "turns") else 1 for c in record.columns]
        for d in own:
            wide = np.pi if turning[d - t.v_starts[i]] else 2.0
            low, high = (x[d] for x in leaves)
            # loops stay closed as they are in q: sliders tell how far joints are from there
            shift = (
                float(q[sys.q_index(name)][d - t.v_starts[i]]) if t.clusters and not record.on_manifold else 0
            )
            low, high = low - shift, high - shift
            ends.append((low if np.isfinite(low) else -wide, high if np.isfinite(high) else wide))
    low, high = np.array(ends, float).reshape(-1, 2).T
    flat = high - low < 1e-9
    return reference, labels, np.where(flat, low - 1e-3, low), np.where(flat, high + 1e-3, high)
