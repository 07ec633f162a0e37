"""A batch over several devices: how XLA's partitioner may divide a kernel.

Inside, a kernel cuts its batch into chunks. Left to itself the partitioner would cut these chunks across
devices, and every step of a recursion would talk to all of them. A kernel is therefore one opaque call with
this rule: the leading axis of the batched leaves may be divided in any way, all leaves alike; nothing else
is; results that are sums over the batch are summed over the devices too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
from jax.sharding import NamedSharding, PartitionSpec

from jaxrbd.engine.jax_internals import custom_partitioning


def divisible(whole: Callable, part: Callable, batched: Sequence[bool], summed: Sequence[bool]) -> Callable:
    """`whole(*leaves)` with a rule that divides it; `part(*leaves)` is the same on one device's share.

    `batched` leaves lead with the batch, and so do results that are not `summed` over it.
    """
    call = custom_partitioning(lambda *leaves: tuple(whole(*leaves)))

    def shardings(mesh, arg_shapes):
        axes = next((a for x, b in zip(arg_shapes, batched) if b and (a := _leading(x)) is not None), None)
        along = lambda yes: NamedSharding(mesh, PartitionSpec(axes) if yes else PartitionSpec())  # noqa: E731
        return axes, [along(b) for b in batched], [along(not s) for s in summed]

    def infer(mesh, arg_shapes, result_shape):
        return tuple(shardings(mesh, arg_shapes)[2])

    def partition(mesh, arg_shapes, result_shape):
        axes, given, made = shardings(mesh, arg_shapes)

        def local(*leaves):
            out = part(*leaves)
            if axes is None:
                return tuple(out)
            return tuple(jax.lax.psum(y, axes) if s else y for y, s in zip(out, summed))

        return mesh, local, tuple(made), tuple(given)

    def rule(mesh, arg_types, result_types):
        names: list[list[str]] = []
        alone: list[str] = []

        def factors(kind, leads: bool):
            rank = len(kind.shape)
            own = [f"d{len(names)}x{k}" for k in range(int(leads), rank)]
            alone.extend(own)
            names.append(own)
            return " ".join((["batch"] if leads else []) + own)

        left = ", ".join([factors(t, b) for t, b in zip(arg_types, batched)])
        right = ", ".join([factors(t, not s) for t, s in zip(result_types, summed)])
        return f"{left} -> {right}", {"need_replication_factors": tuple(alone)}

    call.def_partition(partition, infer, sharding_rule=rule)
    return call


def _leading(x):
    """Mesh axes that the leading axis of an argument is divided over, None if it is not."""
    spec = getattr(x.sharding, "spec", None)
    return spec[0] if spec else None
