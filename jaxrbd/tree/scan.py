"""The one home of tree recursion: an outward and an inward pass, each a `jax.lax.scan` over rows.

An algorithm supplies the body of the loop and nothing else. Leaves have the shape (N, ..., B): slots
of `Nodes` first, batch last; a leaf that is the integer 0 stays symbolic. Each step handles one row of
links side by side and reads their parents (or children) by index from buffers that are updated in
place, so the number of steps is about links / width and compile time does not grow with the tree.
Bodies must not close over arrays: what they need comes with `xs`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrbd.tree.nodes import Schedule
from jaxrbd.tree.sweep import are_differentiable, rows, sweep


def outward(nodes: Schedule, body, xs, root):
    """value[i] = body(value[parent(i)], xs[i]) from the roots to the leaves.

    `root` holds the values of the roots, (nroots, ..., B). Returns values for all slots, (N, ..., B).
    """
    if nodes.size == 0:
        return jax.tree.map(lambda r: r[:0], root)
    start, treedef = jax.tree.flatten(root)
    leaves, unpack = _split_zeros(xs)

    def flat(state, x):
        value = body(jax.tree.unflatten(treedef, state), unpack(x))
        return [_fit(y, s) for y, s in zip(jax.tree.leaves(value), state)], []

    return jax.tree.unflatten(treedef, _run(run_outward, nodes, flat, start, leaves, inward=False))


def inward(nodes: Schedule, body, xs, zero):
    """(part[i], out[i]) = body(sum of part over the children of i, xs[i]) from the leaves to the roots.

    `zero` is the sum over no children, leaves (..., B). Returns the sums that arrive at the roots,
    (nroots, ..., B), and `out` for all slots.
    """
    start, treedef = jax.tree.flatten(jax.tree.map(lambda z: z[None], zero))
    if nodes.size == 0:
        empty = [jnp.broadcast_to(z, (nodes.nroots,) + z.shape[1:]) for z in start]
        return jax.tree.unflatten(treedef, empty), None
    leaves, unpack = _split_zeros(xs)
    out_treedef = None

    def flat(state, x):
        nonlocal out_treedef
        part, out = body(jax.tree.unflatten(treedef, state), unpack(x))
        out_leaves, out_treedef = jax.tree.flatten(out)
        like = (out_leaves or state)[0]
        return [_fit(y, s) for y, s in zip(jax.tree.leaves(part), state)], [
            y if not isinstance(y, int) else jnp.full(like.shape, y, like.dtype) for y in out_leaves
        ]

    result = _run(run_inward, nodes, flat, start, leaves, inward=True)
    sums, out = result[: len(start)], result[len(start) :]
    return jax.tree.unflatten(treedef, sums), jax.tree.unflatten(out_treedef, out)


def _run(run, nodes, body, start, xs, inward):
    if are_differentiable():
        return sweep(run, nodes, body, start, xs, inward=inward)
    return run(nodes, body, start, xs, False)


def _fit(y, like):
    """A body's new value in the shape and dtype of the buffer it goes to."""
    return jnp.broadcast_to(jnp.asarray(y, like.dtype), like.shape)


def run_outward(nodes: Schedule, body, start, xs, keep):
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
    return [sum_rows(b, nodes.root_children) for b in buffers] + flat


run_outward.other, run_inward.other = run_inward, run_outward


def accumulate(nodes: Schedule, xs):
    """Subtree sums: total[i] = xs[i] + sum of total over children; also the sums at the roots."""
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), xs)

    def add(acc, x):
        total = jax.tree.map(jnp.add, acc, x)
        return total, total

    roots, totals = inward(nodes, add, xs, zero)
    return (xs if totals is None else totals), roots


def sum_rows(x, table: np.ndarray):
    """Sum rows of x as listed in each row of `table`."""
    total = rows(x, table[:, 0])
    for k in range(1, table.shape[1]):
        total = total + rows(x, table[:, k])
    return total


def _pick(buffer, index):
    return buffer.at[index].get(mode="promise_in_bounds")


def _write(buffer, value, start):
    return lax.dynamic_update_slice_in_dim(buffer, value, start, 0)


def _by_row(nodes, x):
    return x.reshape((nodes.rows, nodes.width) + x.shape[1:])


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
