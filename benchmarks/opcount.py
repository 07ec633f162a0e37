"""Arithmetic operations of a function, counted in its jaxpr.

Additions, multiplications, divisions, roots, trigonometric functions and so on count once per number that
they give; comparisons, selections and moving data are free. A scan counts as often as it runs. Code whose
result nobody uses does not count. Kernels are counted by the code behind them (`Kernel.f`), batch last with
batch 1.
"""

from __future__ import annotations

import math
from unittest import mock

import jax
from jax.extend import core
from jax.interpreters import partial_eval

from jaxrbd.engine import loops, scan

COUNTED = {
    "add", "add_any", "sub", "mul", "div", "rem", "neg", "abs", "sqrt", "rsqrt", "cbrt", "integer_pow", "pow",
    "square", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh",
}  # fmt: skip
REDUCTIONS = {"reduce_sum", "reduce_prod", "cumsum", "cumprod"}


def operations(f, *args) -> int:
    """Operations of f(*args), where the leaves of `args` are arrays or their shapes."""
    with mock.patch.object(scan, "sweep", _open_sweep):
        closed = jax.make_jaxpr(f)(*args)
    return count(closed.jaxpr)


def _open_sweep(nodes, body, start, xs, *, inward: bool):
    """A pass as the loop that it is, instead of a primitive that hides it."""
    if inward:
        return loops.run_inward(nodes, body, start, xs, False)
    return loops.run_outward(nodes, body, start, xs)


def count_kernel(kernel, *args) -> int:
    """Operations of one call of a kernel: its code on arguments with a last axis of length one."""
    last = lambda x: jax.ShapeDtypeStruct(x.shape + (1,), x.dtype)  # noqa: E731
    return operations(kernel.batch_last, *jax.tree.map(last, args))


def count(jaxpr) -> int:
    jaxpr = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0]
    return sum(_equation(eqn) for eqn in jaxpr.eqns)


def _equation(eqn) -> int:
    name = eqn.primitive.name
    floating = lambda v: jax.numpy.issubdtype(v.aval.dtype, jax.numpy.floating)  # noqa: E731
    if name == "while":
        raise ValueError("a while loop has no number of operations: give solvers a number of iterations.")
    if name == "scan":
        return eqn.params["length"] * count(eqn.params["jaxpr"].jaxpr)
    if name == "cond":
        return max(count(branch.jaxpr) for branch in eqn.params["branches"])
    inner = [p for p in eqn.params.values() if isinstance(p, (core.Jaxpr, core.ClosedJaxpr))]
    if inner:
        return sum(count(getattr(p, "jaxpr", p)) for p in inner)
    if name.startswith("jaxrbd_kernel"):
        raise ValueError(f"{name} is opaque: count the function behind it with count_kernel.")
    out = eqn.outvars[0].aval
    size = math.prod(out.shape)
    if name in COUNTED and floating(eqn.outvars[0]):
        return size
    if name in REDUCTIONS and floating(eqn.outvars[0]):
        return max(0, math.prod(eqn.invars[0].aval.shape) - size)
    if name in ("scatter-add", "scatter_add"):
        return math.prod(eqn.invars[2].aval.shape)
    if name == "dot_general":
        (left, _), _ = eqn.params["dimension_numbers"]
        return size * (2 * math.prod(eqn.invars[0].aval.shape[k] for k in left) - 1)
    if name == "cholesky":
        n = out.shape[-1]
        return math.prod(out.shape[:-2]) * (n * (n + 1) * (2 * n + 1) // 6)
    if name == "triangular_solve":
        n = eqn.invars[0].aval.shape[-1]
        return size * n
    if name == "lu":
        n = out.shape[-1]
        return math.prod(out.shape[:-2]) * (2 * n**3 // 3)
    return 0
