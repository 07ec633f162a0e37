"""Watching a simulation while it runs: the newest state is drawn, whatever came meanwhile is dropped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError

if TYPE_CHECKING:
    from jaxrbd.viewer.viewer import Viewer

RATE = 30  # frames per second
SHARE = 0.05  # of the time may go into drawing


class Live:
    """Draws what `offer` was given last, in a thread of its own: `offer` costs the caller a copy."""

    def __init__(self, viewer: Viewer):
        self.viewer = viewer
        self._newest: tuple[np.ndarray, float] | None = None
        self._due = 0.0
        self._alive, self._event = True, threading.Event()
        with viewer.server.gui.add_folder("Live"):
            self.clock = viewer.server.gui.add_text("time [s]", "waiting", disabled=True)
        self._thread = threading.Thread(target=self._run, daemon=True, name="jaxrbd live")
        self._thread.start()

    def offer(self, q: Any, t: float = 0.0) -> None:
        """A state to draw: q (nq,) or (environments, nq). Returns at once; too many are dropped."""
        now = time.perf_counter()
        if now < self._due:
            return
        self._due = now + 1 / RATE
        q = np.asarray(q)
        self._newest = (q if q.ndim > 1 else q[None]), float(t)
        self._event.set()

    def watched(self, controls: Callable | None = None, every: int = 1000, dt: float = 1e-3) -> Callable:
        """The controller of a rollout whose states are seen here: (q, v, t) -> u, as `controls` gives it.

        Every `every` steps of `dt` the state goes to the page; under vmap all environments together. Each
        time costs about half a millisecond, with large batches some. Without `controls` u is zero.
        """
        if every < 1:
            raise ArgumentError(f"every is {every}, expected a positive number of steps.")
        sys = self.viewer.sys
        size = sys.nu or sys.nv
        send = _sender(self.offer)

        def controller(q, v, t):
            k = jnp.round(jnp.asarray(t, jnp.float32) / dt).astype(jnp.int32)
            jax.lax.cond(k % every == 0, send, lambda q, t: jnp.zeros((), jnp.int32), q, jnp.float32(t))
            return jnp.zeros(size, sys.dtype) if controls is None else controls(q, v, t)

        return controller

    def stop(self) -> None:
        self._alive = False
        self._event.set()
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        while self._alive:
            self._event.wait()
            self._event.clear()
            newest, self._newest = self._newest, None
            if newest is None or not self._alive:
                continue
            q, t = newest
            q = q[: len(self.viewer.which)]
            if len(q) < len(self.viewer.which):
                self.viewer.which = np.arange(len(q))
                self.viewer.rebuild()
            started = time.perf_counter()
            good = np.isfinite(q).all(-1, keepdims=True)
            self.clock.value = f"{t:.3f}" if good.all() else f"{t:.3f}: {int((~good).sum())} not finite"
            self.viewer.pose(np.where(good, q, np.asarray(self.viewer.sys.q0, float)))
            now = time.perf_counter()
            self._due = max(self._due, now + (now - started) / SHARE)


def _sender(offer: Callable):
    """A JAX function (q, t) that calls `offer` on the host, once for a whole batch."""

    def call(q, t):
        jax.debug.callback(partial(_host, offer), q, t)
        return jnp.zeros((), jnp.int32)

    send = jax.custom_batching.custom_vmap(call)

    @send.def_vmap
    def batched(size, which, q, t):
        q = q if which[0] else jnp.broadcast_to(q, (size,) + q.shape)
        call(q.reshape(-1, q.shape[-1]), t[0] if which[1] else t)
        return jnp.zeros(size, jnp.int32), True

    return send


def _host(offer: Callable, q, t) -> None:
    offer(q, float(np.ravel(t)[0]))
