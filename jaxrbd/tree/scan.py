"""The one home of tree recursion: an outward and an inward pass, each a `jax.lax.scan` over rows.

An algorithm supplies the body of the loop and nothing else. Leaves have the shape (N, ..., B): slots
of `Nodes` first, batch last; a leaf that is the integer 0 stays symbolic. Each step handles one row of
links side by side and reads their parents (or children) by index from buffers that are updated in
place, so the number of steps is about links / width and compile time does not grow with the tree.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrbd.tree.nodes import Nodes


def outward(nodes: Nodes, body, xs, root):
    """value[i] = body(value[parent(i)], xs[i]) from the roots to the leaves.

    `root` holds the values of the roots, (nroots, ..., B). Returns values for all slots, (N, ..., B).
    """
    N, w = nodes.size, nodes.width
    if N == 0:
        return jax.tree.map(lambda r: r[:0], root)
    pack, unpack = _split_zeros(xs)
    rows = [x.reshape((nodes.rows, w) + x.shape[1:]) for x in pack]
    buffers = jax.tree.map(lambda r: jnp.concatenate([jnp.zeros((N,) + r.shape[1:], r.dtype), r]), root)
    start = np.arange(nodes.rows, dtype=np.int32) * w
    parent = nodes.parent.reshape(nodes.rows, w).astype(np.int32)

    def step(buffers, row):
        start, parent, leaves = row
        value = body(jax.tree.map(lambda b: _rows(b, parent), buffers), unpack(leaves))
        return jax.tree.map(lambda b, y: _write(b, y, start), buffers, value), None

    buffers, _ = lax.scan(step, buffers, (start, parent, rows))
    return jax.tree.map(lambda b: b[:N], buffers)


def inward(nodes: Nodes, body, xs, zero):
    """(part[i], out[i]) = body(sum of part over the children of i, xs[i]) from the leaves to the roots.

    `zero` is the sum over no children, leaves (..., B). Returns the sums that arrive at the roots,
    (nroots, ..., B), and `out` for all slots.
    """
    N, w = nodes.size, nodes.width
    buffers = jax.tree.map(lambda z: jnp.broadcast_to(z, (N + 1,) + z.shape), zero)
    if N == 0:
        return jax.tree.map(lambda b: jnp.broadcast_to(b[:1], (nodes.nroots,) + b.shape[1:]), buffers), None
    pack, unpack = _split_zeros(xs)
    rows = [x.reshape((nodes.rows, w) + x.shape[1:]) for x in pack]
    start = np.arange(nodes.rows, dtype=np.int32) * w
    child = nodes.last_child.reshape(nodes.rows, w).astype(np.int32)
    sibling = nodes.previous_sibling.reshape(nodes.rows, w).astype(np.int32)
    branching = bool((nodes.previous_sibling < N).any())

    def step(buffers, row):
        start, child, sibling, leaves = row
        part, out = body(jax.tree.map(lambda b: _rows(b, child), buffers), unpack(leaves))
        if branching:  # hand the sum of the earlier siblings on
            part = jax.tree.map(lambda y, b: y + _rows(b, sibling), part, buffers)
        return jax.tree.map(lambda b, y: _write(b, y, start), buffers, part), out

    buffers, out = lax.scan(step, buffers, (start, child, sibling, rows), reverse=True)
    out = jax.tree.map(lambda y: y.reshape((N,) + y.shape[2:]), out)
    return jax.tree.map(lambda b: sum_rows(b, nodes.root_children), buffers), out


def accumulate(nodes: Nodes, xs):
    """Subtree sums: total[i] = xs[i] + sum of total over children; also the sums at the roots."""
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), xs)

    def add(acc, x):
        total = jax.tree.map(jnp.add, acc, x)
        return total, total

    roots, totals = inward(nodes, add, xs, zero)
    return (xs if totals is None else totals), roots


def sum_rows(x, table: np.ndarray):
    """Sum rows of x as listed in each row of `table`."""
    total = x[table[:, 0]]
    for k in range(1, table.shape[1]):
        total = total + x[table[:, k]]
    return total


def _rows(buffer, index):
    return buffer.at[index].get(mode="promise_in_bounds")


def _write(buffer, value, start):
    value = jnp.broadcast_to(value, value.shape[:1] + buffer.shape[1:])
    return lax.dynamic_update_slice_in_dim(buffer, value.astype(buffer.dtype), start, 0)


def _split_zeros(tree):
    """Array leaves of a tree, and the function that puts new ones back beside the symbolic zeros."""
    leaves, treedef = jax.tree.flatten(tree)
    is_array = [not isinstance(x, int) for x in leaves]

    def unpack(arrays):
        arrays = iter(arrays)
        return jax.tree.unflatten(treedef, [next(arrays) if a else x for a, x in zip(is_array, leaves)])

    return [x for x, a in zip(leaves, is_array) if a], unpack


def visit_dofs(step, carry, paths: np.ndarray, depth: np.ndarray, inward: bool):
    """carry = step(carry, k, path to the root, depth) for every degree of freedom, one after another."""
    if len(depth) == 0:
        return carry
    xs = (np.arange(len(depth), dtype=np.int32), paths.astype(np.int32), depth.astype(np.int32))
    return lax.scan(lambda c, x: (step(c, *x), None), carry, xs, reverse=inward)[0]
