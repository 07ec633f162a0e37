"""All that the engine uses of JAX below its public face: look here first when a new JAX breaks something.

Public for users of JAX: everything else in this package. Semi-public, and liable to change: `jax.extend` and
`jax.interpreters`, through which a primitive gets its rules, and `jax.experimental.custom_partitioning`.
Private: one set in `jax._src`. Tested with the versions in `pyproject.toml`.
"""

from __future__ import annotations

from collections.abc import Callable

from jax._src.dispatch import prim_requires_devices_during_lowering
from jax.core import ShapedArray
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe

__all__ = [
    "ShapedArray",
    "Zero",
    "custom_partitioning",
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
    over_devices: Callable | None = None,
    eager: Callable | None = None,
    jvp: Callable | None = None,
    transpose: Callable | None = None,
    linear_transpose: Callable | None = None,
    batch: Callable | None = None,
) -> None:
    """Give a primitive its rules.

    `shapes(*avals, **params)`: abstract results. `run(*operands, **params)`: what it computes, in terms of
    JAX; `over_devices`: the same in a program that the partitioner divides over several devices;
    `eager`: the same outside of jit (by default `run`). `jvp(primals, tangents, **params)`;
    `transpose(cotangents, *operands, **params)`; `linear_transpose` instead of both if it is linear in its
    one operand; `batch(args, dims, **params)`.
    """
    primitive.def_abstract_eval(shapes)
    primitive.def_impl(eager or run)
    alone = mlir.lower_fun(run, multiple_results=primitive.multiple_results)
    divided = alone
    if over_devices is not None:
        prim_requires_devices_during_lowering.add(primitive)  # as `custom_partitioning` itself does
        divided = mlir.lower_fun(over_devices, multiple_results=primitive.multiple_results)

    def lower(ctx, *operands, **params):
        several = _divides(ctx.module_context.axis_context)
        return (divided if several else alone)(ctx, *operands, **params)

    mlir.register_lowering(primitive, lower)
    if jvp is not None:
        ad.primitive_jvps[primitive] = jvp
    if transpose is not None:
        ad.primitive_transposes[primitive] = transpose
    if linear_transpose is not None:
        ad.deflinear2(primitive, linear_transpose)
    if batch is not None:
        batching.primitive_batchers[primitive] = batch


def _divides(context) -> bool:
    """Whether a program is compiled for several devices, and not by hand for each of them (`shard_map`)."""
    if hasattr(context, "manual_axes"):
        return set(context.manual_axes) != set(context.mesh.axis_names)
    return getattr(context, "num_devices", 1) > 1


def partial_evaluation(primitive: Primitive, traced: Callable, jaxpr: Callable) -> None:
    """How a primitive splits into what is known now and what waits for tangents.

    `traced(trace, *tracers, **params)` under linearisation, `jaxpr(saveable, unknown, inst, eqn)` within
    `jax.checkpoint`.
    """
    pe.custom_partial_eval_rules[primitive] = traced
    pe.partial_eval_jaxpr_custom_rules[primitive] = jaxpr
