"""What `rollout` takes as controls: rows of numbers, functions of the state, functions with a memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrbd.errors import ArgumentError
from jaxrbd.integrators.arguments import read_controls, refuse_integrator
from jaxrbd.integrators.contract import State
from jaxrbd.model.system import System, check_system, pytree


@pytree
class Rows:
    """One row of controls (T, nu) and of joint forces (T, nv) per step; None where there are none."""

    u: jax.Array | None
    tau: jax.Array | None


@dataclass(frozen=True)
class Controller:
    """The function that gives the controls at the start of a step, and its first memory, None without one."""

    sys: System
    function: Callable | None
    carry: Any

    def __call__(self, carry, state: State, row, t):
        """(carry, u) of a step that starts at `state` and time t; without a function u is `row`."""
        if self.function is None:
            return carry, row
        if self.carry is None:
            return None, read_controls(self.sys, self.function(state.q, state.v, t))
        answer = self.function(carry, state.q, state.v, t)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise ArgumentError(
                f"controls: with carry= the function (carry, q, v, t) returns a pair (carry, u), found "
                f"{type(answer).__name__}."
            )
        return _like(carry, answer[0]), read_controls(self.sys, answer[1])


def _like(before, after):
    """The memory after a call, which must be of the kind that it was before."""
    kind = lambda tree: jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree)  # noqa: E731
    after = jax.tree.map(_strong, after)
    if kind(before) != kind(after):
        raise ArgumentError(
            f"controls: the function got the carry {kind(before)} and returned {kind(after)}, expected the "
            "same shapes and dtypes. Start with a carry= of that kind."
        )
    return after


def _strong(x):
    """An array of definite dtype, also of a Python number."""
    return jnp.asarray(x, jnp.result_type(x))


def read_controller(sys: System, controls, tau, carry, steps: int | None) -> tuple[Controller, Rows, int]:
    """The controller, the rows that steps go through, and their number, from the arguments of `rollout`."""
    check_system(sys)
    refuse_integrator("controls", controls)
    function = controls if callable(controls) else None
    if carry is not None and function is None:
        raise ArgumentError(
            "carry is given, but the controls are no function (carry, q, v, t) -> (carry, u). Pass one, or "
            "leave carry out."
        )
    u = None if controls is None or function else _table(sys, "controls", controls)
    rows = Rows(u, None if tau is None or callable(tau) else _table(sys, "tau", tau))
    counts = {"steps": steps, "controls": None if u is None else len(u)}
    counts["tau"] = None if rows.tau is None else len(rows.tau)
    given = {name: n for name, n in counts.items() if n is not None}
    if not given:
        raise ArgumentError("rollout: pass `steps` when the controls are a function or None.")
    if steps is not None and not (hasattr(steps, "__index__") and int(steps) >= 0):
        raise ArgumentError(f"steps is {steps!r}, expected a number of steps, an integer.")
    if len(set(given.values())) > 1:
        said = ", ".join(
            f"{name} {'is' if name == 'steps' else 'has rows:'} {n}" for name, n in given.items()
        )
        raise ArgumentError(f"rollout: {said}. They must be equal; `steps` may be left out.")
    carry = None if carry is None else jax.tree.map(_strong, carry)
    return Controller(sys, function, carry), rows, next(iter(given.values()))


def _table(sys: System, name: str, x):
    """(T, nu) controls or (T, nv) joint forces."""
    x = jnp.asarray(x, sys.dtype)
    joint = name == "tau" or sys.nu == 0
    size, label = (sys.nv, "nv") if joint else (sys.nu, "nu")
    if x.ndim == 2 and (x.shape[1] == size or (name == "controls" and x.shape[1] == sys.nu)):
        return x
    remedy = ""
    if not joint and x.ndim == 2 and x.shape[1] == sys.nv:
        remedy = " Joint forces (T, nv) are tau=, which is added to what the actuators do."
    elif x.shape == (size,):
        remedy = f" For the same in every step write jnp.tile({name}, (T, 1))."
    raise ArgumentError(f"{name} has shape {x.shape}, expected (T, {label}) = (T, {size}).{remedy}")
