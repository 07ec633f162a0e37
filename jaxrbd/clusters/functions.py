"""Relations between joints that a user writes in jax.numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp

from jaxrbd.errors import ArgumentError, ModelError
from jaxrbd.joints import TYPES
from jaxrbd.model.system import System, check_system, find
from jaxrbd.model.topology import LoopFunction


def loop_function(
    sys: System,
    name: str,
    function: Callable,
    joints: Sequence[str],
    *,
    follows: Sequence[str] = (),
) -> System:
    """`sys` with one more relation between joints that have scalar coordinates; `cluster` makes it hold.

    Implicit: function(x) = 0, an array of as many numbers as it takes away degrees of freedom, where x are
    the coordinates of `joints`. Explicit, with `follows`: the coordinates of these joints are function(x).
    Jacobians and biases come from autodiff, so it must be twice differentiable. It is kept by name in the
    topology: pass the same function object each time, or JAX compiles anew.
    """
    t = check_system(sys, "loop_function").topology
    if t.clusters:
        raise ArgumentError(f"loop_function: {sys.name!r} is clustered already. Start from sys.tree.")
    leads, led = ([find(t.joint_names, j, "joint") for j in x] for x in (joints, follows))
    for i in leads + led:
        if TYPES[t.joint_types[i]].sizes != (1, 1):
            raise ArgumentError(
                f"loop_function({name!r}): joint {t.joint_names[i]!r} is {t.joint_types[i]}, expected one "
                "with a single coordinate."
            )
    if len(set(leads + led)) != len(leads + led):
        raise ArgumentError(f"loop_function({name!r}): a joint is named twice. Name each once.")
    try:
        shape = jax.eval_shape(function, jax.ShapeDtypeStruct((len(leads),), jnp.zeros(0).dtype)).shape
    except Exception as error:  # whatever a user's function raises
        raise ModelError(
            f"loop_function({name!r})",
            f"the function fails for x of shape ({len(leads)},): {error}",
            "Write it in jax.numpy for the coordinates of `joints`, in their order.",
        ) from error
    rows = len(led)
    if len(shape) != 1 or shape[0] == 0 or (rows and shape != (rows,)):
        expected = (
            f"({rows},), one for each joint that follows" if rows else "(m,), the rows that must vanish"
        )
        raise ModelError(
            f"loop_function({name!r})",
            f"the function gives shape {shape}, expected {expected}",
            "Return such an array.",
        )
    new = LoopFunction(name, function, tuple(leads), shape[0], tuple(led))
    return replace(sys, topology=replace(t, functions=(*t.functions, new)))
