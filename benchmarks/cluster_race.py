"""What the parts of `benchmarks.clusters` share: contenders in turns, states, rows of the table."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd

BATCH = 1024


def race(contenders: dict, rounds: int) -> dict[str, float]:
    """Best seconds of jitted calls {name: (function, arguments)}, taken in turns."""
    ready = {}
    for name, (f, args) in contenders.items():
        run = jax.jit(jax.vmap(f))
        jax.block_until_ready(run(*args))
        ready[name] = (run, args)
    best = dict.fromkeys(ready, float("inf"))
    for _ in range(rounds):
        for name, (run, args) in ready.items():
            start = time.perf_counter()
            jax.block_until_ready(run(*args))
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def states(sys: rbd.System, batch: int = BATCH):
    """Closed configurations near q0, velocities and forces of order one."""
    rng = np.random.default_rng(0)
    shape = (batch, sys.nv)
    step, v, tau = (jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(3))
    q = jax.jit(jax.vmap(lambda d: rbd.integrate(sys, sys.q0, 0.1 * d)))(step)
    return q, v, tau


def row(case: str, ours: float, peer: float, peer_name: str, **more) -> dict:
    return {
        "case": case,
        "metric": "us per state",
        "ours": 1e6 * ours / BATCH,
        "peer": 1e6 * peer / BATCH,
        "peer_name": peer_name,
        "ratio": peer / ours,
        **more,
    }
