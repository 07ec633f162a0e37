"""Solution(value, result, stats): what every iterative solver returns.

Under jit a numerical failure cannot raise, so it is part of the answer: `result` is an integer array that
compares with the members of `Result`, `stats` says how far the solver came. Both batch with the value.
"""

from __future__ import annotations

import enum
from dataclasses import fields, is_dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.model.system import pytree


class Result(enum.IntEnum):
    """How a solver ended, from good to bad; prints as its name, and so does the `result` of a Solution."""

    converged = 0  # the answer meets the tolerance
    stationary = 1  # nothing left to gain, yet it misses the tolerance: infeasible or a local minimum
    not_converged = 2  # the answer was still moving, or nobody can tell whether it is right

    def __repr__(self):
        return self.name

    __str__ = __repr__

    def __format__(self, spec):
        return format(self.name, spec)


@pytree
class Solution:
    """The answer, how the solver ended (an int32 array of `Result` codes) and its numbers."""

    value: Any
    result: jax.Array
    stats: Any

    @property
    def converged(self) -> jax.Array:
        """True where the answer meets the tolerance; one flag per problem of a batch."""
        return self.result == Result.converged

    def __getattr__(self, name: str):
        """Looked up where there is no such attribute: says where the value has it."""
        remedy = (
            f" Its value has it: write .value.{name}" if hasattr(self.__dict__.get("value"), name) else ""
        )
        raise AttributeError(f"{type(self).__name__} has no {name!r}.{remedy}")

    def __repr__(self):
        rank = len(getattr(self.result, "shape", ()))
        return f"Solution({verdict(self.result)}, value={brief(self.value)}{_numbers(self.stats, rank)})"


def verdict(result) -> str:
    """The names behind result codes: "converged", or how often each occurs in a batch."""
    codes = _host(result)
    if codes is None:
        return f"result={brief(result)}"
    found, counts = np.unique(codes, return_counts=True)
    known = {int(r): r.name for r in Result}
    names = [known.get(int(code), str(code)) for code in found]
    if codes.ndim == 0:
        return names[0]
    return ", ".join(f"{name} {count}" for name, count in zip(names, counts)) or "none"


def brief(x) -> str:
    """A value in a few words: arrays by their sizes, trees by the names of their fields."""
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return f"{x.dtype}{_sizes(x)}"
    if is_dataclass(x):
        parts = [(f.name, getattr(x, f.name)) for f in fields(x) if not f.metadata.get("static")]
        optional = {f.name for f in fields(x) if f.default is None}
        parts = [(name, v) for name, v in parts if not (v is None and name in optional)]
        inside = (name + (_sizes(v) if hasattr(v, "shape") else f"={brief(v)}") for name, v in parts)
        return f"{type(x).__name__}({', '.join(inside)})"
    return f"{x!r:.60}"


def _sizes(x) -> str:
    return f"[{', '.join(map(str, x.shape))}]" if x.shape else ""


def _numbers(stats, rank: int) -> str:
    """What is one number per problem, the largest one of a batch of `rank` axes; the rest by its size."""
    if not is_dataclass(stats):
        return "" if stats is None else f", stats={brief(stats)}"
    text = ""
    for f in fields(stats):
        x = getattr(stats, f.name)
        values = _host(x)
        if values is None or values.ndim != rank or not values.size:
            text += f", {f.name}{_sizes(x)}" if hasattr(x, "shape") else f", {f.name}={brief(x)}"
        elif rank:
            text += f", {f.name}<={np.max(values):.3g}"
        else:
            text += f", {f.name}={values:.3g}"
    return text


def _host(x) -> np.ndarray | None:
    """The values of an array, or None where there are none to see: tracers, shapes, placeholders."""
    if isinstance(x, (int, float, np.ndarray, np.generic)):
        return np.asarray(x)
    seen = isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer) and x.is_fully_addressable
    return np.asarray(x) if seen and not x.is_deleted() else None


def worst(*results):
    """The most severe of several results, element by element: converged < stationary < not_converged."""
    order = (Result.converged, Result.stationary, Result.not_converged)
    found = jnp.full((), Result.converged, jnp.int32)
    for severe in order[1:]:
        hit = jnp.any(jnp.stack([jnp.asarray(r) == severe for r in results]), 0)
        found = jnp.where(hit, severe, found)
    return found.astype(jnp.int32)


def largest(x, axis=None):
    """Largest magnitude, for reports and limits: a constant to derivatives.

    JAX differentiates a maximum by looking for the number that equals it. Compiled into another loop, that
    number may be rounded otherwise, then none is equal and the derivative is 0/0.
    """
    return jax.lax.stop_gradient(jnp.max(jnp.abs(x), axis, initial=0))
