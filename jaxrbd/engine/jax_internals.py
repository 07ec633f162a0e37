"""All that the engine uses of JAX below its public face: look here first when a new JAX breaks something.

Public for users of JAX: everything else in this package. Semi-public, and liable to change: `jax.extend` and
`jax.interpreters`, through which a primitive gets its rules. Tested with the versions in `pyproject.toml`.
"""

from __future__ import annotations

from collections.abc import Callable

from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe

__all__ = [
    "ShapedArray",
    "Zero",
    "define",
    "instantiate_zeros",
    "is_undefined_primal",
    "is_zero",
    "new_primitive",
    "partial_evaluation",
]

Zero = ad.Zero  # a tangent or cotangent that is known to vanish
is_undefined_primal = ad.is_undefined_primal  # whether an operand of a transpose rule is to be solved for
instantiate_zeros = ad.instantiate_zeros


def is_zero(x) -> bool:
    return isinstance(x, ad.Zero)


def new_primitive(name: str, multiple_results: bool = True) -> Primitive:
    primitive = Primitive(name)
    primitive.multiple_results = multiple_results
    return primitive


def define(
    primitive: Primitive,
    *,
    shapes: Callable,
    run: Callable,
    eager: Callable | None = None,
    jvp: Callable | None = None,
    transpose: Callable | None = None,
    linear_transpose: Callable | None = None,
    batch: Callable | None = None,
) -> None:
    """Give a primitive its rules.

    `shapes(*avals, **params)`: abstract results. `run(*operands, **params)`: what it computes, in terms of
    JAX; `eager`: the same outside of jit (by default `run`). `jvp(primals, tangents, **params)`;
    `transpose(cotangents, *operands, **params)`; `linear_transpose` instead of both if it is linear in its
    one operand; `batch(args, dims, **params)`.
    """
    primitive.def_abstract_eval(shapes)
    primitive.def_impl(eager or run)
    mlir.register_lowering(primitive, mlir.lower_fun(run, multiple_results=primitive.multiple_results))
    if jvp is not None:
        ad.primitive_jvps[primitive] = jvp
    if transpose is not None:
        ad.primitive_transposes[primitive] = transpose
    if linear_transpose is not None:
        ad.deflinear2(primitive, linear_transpose)
    if batch is not None:
        batching.primitive_batchers[primitive] = batch


def partial_evaluation(primitive: Primitive, traced: Callable, jaxpr: Callable) -> None:
    """How a primitive splits into what is known now and what waits for tangents.

    `traced(trace, *tracers, **params)` under linearisation, `jaxpr(saveable, unknown, inst, eqn)` within
    `jax.checkpoint`.
    """
    pe.custom_partial_eval_rules[primitive] = traced
    pe.partial_eval_jaxpr_custom_rules[primitive] = jaxpr
