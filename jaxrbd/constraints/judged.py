"""An honest verdict on accelerations and multipliers from anywhere: what a solver of one's own returns."""

from __future__ import annotations

import jax.numpy as jnp

from jaxrbd.constraints.iterations import Run
from jaxrbd.constraints.joint_space import dual_method
from jaxrbd.constraints.method import Found, Settings
from jaxrbd.constraints.prox_ltl import damped_inverse, dual_penalties
from jaxrbd.constraints.task import Task
from jaxrbd.constraints.verdict import by_row
from jaxrbd.typing import Array


def judged(task: Task, a: Array, lam: Array, settings: Settings, iterations: int | Array = 1) -> Found:
    """a (nv, B) and lam (m, B) as the answer to a task, with the verdict that the library's own would get.

    The witness is the step that `ProxLTL` would take from here (`iterations.py`), for one factor of M and of
    J M^-1 Jᵀ; without settings.judged nobody reads the verdict and nothing is computed. `iterations`: how
    many were made, for the statistics.
    """
    residual = jnp.zeros_like(task.c[:1])
    if not settings.judged:
        nothing = residual[0]
        return Found(
            a, lam, jnp.broadcast_to(residual, (settings.length,) + residual.shape[1:]), *[nothing] * 3
        )
    build, mobility = dual_method(task, damped_inverse)
    penalty = dual_penalties(mobility, task._replace(R=None))
    method, run = build(penalty), Run(task.c, task.weight, penalty, mobility, settings)
    x, *_ = run.start(method._replace(first=None), lam)
    x = x._replace(a=a, lam=lam, r=task.c - method.rows(a))
    da, _ = method.correct(a, lam, x.r, None)
    x = x._replace(step=method.size(da) / jnp.maximum(1, method.size(a)), total=x.total + iterations)
    history = jnp.broadcast_to(by_row(x.r), (settings.length,) + x.r.shape[1:])
    return run.judge(method, x, history)
