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

from jaxrbd.engine.gather import gather, gather_sum
from jaxrbd.engine.schedule import Schedule
from jaxrbd.engine.sweep import sweep


def outward(nodes: Schedule, body, xs, root):
    """value[i] = body(value[parent(i)], xs[i]) from the roots to the leaves.

    `root` holds the values of the roots, (nroots, ..., B). Returns values for all slots, (N, ..., B).
    """
    if nodes.size == 0:
        return jax.tree.map(lambda r: r[:0], root)
    if nodes.folded:
        return _outward_folded(nodes, body, xs, root)
    start, treedef = jax.tree.flatten(root)
    leaves, unpack = _split_zeros(xs)

    def flat(state, x):
        value = body(jax.tree.unflatten(treedef, state), unpack(x))
        return [_fit(y, s) for y, s in zip(jax.tree.leaves(value), state)], []

    return jax.tree.unflatten(treedef, sweep(nodes, flat, start, leaves, inward=False))


def inward(nodes: Schedule, body, xs, zero):
    """(part[i], out[i]) = body(sum of part over the children of i, xs[i]) from the leaves to the roots.

    `zero` is the sum over no children, leaves (..., B). Returns the sums that arrive at the roots,
    (nroots, ..., B), and `out` for all slots.
    """
    if nodes.folded:
        return _inward_folded(nodes, body, xs, zero)
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

    result = sweep(nodes, flat, start, leaves, inward=True)
    sums, out = result[: len(start)], result[len(start) :]
    return jax.tree.unflatten(treedef, sums), jax.tree.unflatten(out_treedef, out)


def _outward_folded(nodes: Schedule, body, xs, root):
    """The scan, then all folded slots at once: nothing depends on them."""
    n = nodes.rows * nodes.width
    inner = outward(nodes.in_rows, body, gather(xs, slice(0, n)), root)
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), inner, root)
    above = nodes.parent[n:]
    above = np.where(above >= nodes.size, above - nodes.folded, above)
    parent = gather(both, above)
    tips = body(parent, gather(xs, slice(n, None)))
    return jax.tree.map(lambda a, y, p: jnp.concatenate([a, _fit(y, p)]), inner, tips, parent)


def _inward_folded(nodes: Schedule, body, xs, zero):
    """All folded slots at once, then the scan, which adds what they hand on to what their parents get."""
    n = nodes.rows * nodes.width
    empty = jax.tree.map(lambda z: jnp.broadcast_to(z, (nodes.folded,) + z.shape), zero)
    part, out = body(empty, gather(xs, slice(n, None)))
    part = jax.tree.map(lambda e, y: jnp.concatenate([_fit(y, e), jnp.zeros_like(e[:1])]), empty, part)
    given = jax.tree.map(lambda x: gather_sum(x, nodes.folded_children), part)

    def with_folded(acc, x):
        more, x = x
        return body(jax.tree.map(jnp.add, acc, more), x)

    inner = (gather(given, slice(0, n)), gather(xs, slice(0, n)))
    sums, inner_out = inward(nodes.in_rows, with_folded, inner, zero)
    sums = jax.tree.map(lambda s, x: s + x[n:], sums, given)
    behind = lambda a, y: jnp.concatenate([a, jnp.broadcast_to(y, (nodes.folded,) + a.shape[1:])])  # noqa: E731
    return sums, jax.tree.map(behind, inner_out, out)


def _fit(y, like):
    """A body's new value in the shape and dtype of the buffer it goes to."""
    return jnp.broadcast_to(jnp.asarray(y, like.dtype), like.shape)


def accumulate(nodes: Schedule, xs):
    """Subtree sums: total[i] = xs[i] + sum of total over children; also the sums at the roots."""
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), xs)

    def add(acc, x):
        total = jax.tree.map(jnp.add, acc, x)
        return total, total

    roots, totals = inward(nodes, add, xs, zero)
    return (xs if totals is None else totals), roots


def _split_zeros(tree):
    """Array leaves of a tree, and the function that puts new ones back beside the symbolic zeros."""
    leaves, treedef = jax.tree.flatten(tree)
    is_array = [not isinstance(x, int) for x in leaves]

    def unpack(arrays):
        arrays = iter(arrays)
        return jax.tree.unflatten(treedef, [next(arrays) if a else x for a, x in zip(is_array, leaves)])

    return [x for x, a in zip(leaves, is_array) if a], unpack
