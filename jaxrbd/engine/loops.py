"""The two loops over a schedule, on flat lists of arrays: a `jax.lax.scan` over its rows.

Each step handles one row of slots side by side and reads their parents (or children) by index from buffers
that are updated in place, so the number of steps is about slots / width.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrbd.engine.gather import gather_sum
from jaxrbd.engine.schedule import Schedule


def run_outward(nodes: Schedule, body, start, xs):
    """The loop on flat lists: values of all slots, then outputs."""
    N, w = nodes.size, nodes.width
    buffers = [jnp.concatenate([jnp.zeros((N,) + r.shape[1:], r.dtype), r]) for r in start]
    first = np.arange(nodes.rows, dtype=np.int32) * w
    parent = nodes.parent.reshape(nodes.rows, w).astype(np.int32)

    def step(buffers, row):
        first, parent, x = row
        value, out = body([_pick(b, parent) for b in buffers], x)
        return [_write(b, y, first) for b, y in zip(buffers, value)], out

    buffers, out = lax.scan(step, buffers, (first, parent, [_by_row(nodes, x) for x in xs]))
    return [b[:N] for b in buffers] + [y.reshape((N,) + y.shape[2:]) for y in out]


def run_inward(nodes: Schedule, body, start, xs, keep):
    """The loop on flat lists: sums at the roots, outputs, and with `keep` the incoming sum of every slot."""
    N, w = nodes.size, nodes.width
    buffers = [jnp.broadcast_to(z, (N + 1,) + z.shape[1:]) for z in start]
    first = np.arange(nodes.rows, dtype=np.int32) * w
    child = nodes.last_child.reshape(nodes.rows, w).astype(np.int32)
    sibling = nodes.previous_sibling.reshape(nodes.rows, w).astype(np.int32)
    branching = bool((nodes.previous_sibling < N).any())

    def step(buffers, row):
        first, child, sibling, x = row
        incoming = [_pick(b, child) for b in buffers]
        part, out = body(incoming, x)
        if branching:  # hand the sum of the earlier siblings on
            part = [y + _pick(b, sibling) for y, b in zip(part, buffers)]
        return [_write(b, y, first) for b, y in zip(buffers, part)], (out, incoming if keep else [])

    rows_of = [_by_row(nodes, x) for x in xs]
    buffers, (out, kept) = lax.scan(step, buffers, (first, child, sibling, rows_of), reverse=True)
    flat = [y.reshape((N,) + y.shape[2:]) for y in [*out, *kept]]
    return [gather_sum(b, nodes.root_children) for b in buffers] + flat


def _pick(buffer, index):
    return buffer.at[index].get(mode="promise_in_bounds")


def _write(buffer, value, start):
    return lax.dynamic_update_slice_in_dim(buffer, value, start, 0)


def _by_row(nodes, x):
    return x.reshape((nodes.rows, nodes.width) + x.shape[1:])


def visit_dofs(step, carry, paths: np.ndarray, depth: np.ndarray, inward: bool):
    """carry = step(carry, k, path to the root, depth) for every degree of freedom, one after another."""
    if len(depth) == 0:
        return carry
    xs = (np.arange(len(depth), dtype=np.int32), paths.astype(np.int32), depth.astype(np.int32))
    return lax.scan(lambda c, x: (step(c, *x), None), carry, xs, reverse=inward)[0]
