"""Kernels with the batch last, behind functions that users call unbatched and `vmap`.

Plain `vmap` puts the batch in front, and every scan over links then starts with transposes. A kernel
here is a function of a System and arrays, written once for leaves of shape (..., B); leaves of the
System that the batch shares have B = 1. `kernel` wraps it so that

- a plain call runs it with B = 1 (or runs the `single` variant, if the algorithm has one),
- `vmap`, nested to any depth, runs it once with the batch moved to the end,
- on CPU a large batch is cut into chunks that stay in cache,
- derivatives of any order and mode come from the plain code.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from jaxrbd.tree.nodes import nodes_of

# On CPU a chunk holds about so many links x states, so that a recursion stays in a core's cache, but at
# least so many numbers per row of links, so that a step of the scan is worth its overhead.
CHUNK_ELEMENTS, ROW_ELEMENTS = 8192, 512


def kernel(single=None, small: int = 1):
    """Decorator; `single(*args)` is an unbatched algorithm, used for plain calls and batches <= small."""

    def decorate(f):
        def plain(*args):
            last = jax.tree.map(lambda x: x[..., None], args)
            return jax.tree.map(lambda y: y[..., 0], f(*last))

        one = single or plain

        @functools.cache
        def batched(mask: tuple[bool, ...], treedef):
            """The kernel on flat leaves, batched along axis 0 where the mask says so."""

            @custom_vmap
            def run(*leaves):
                size = next(x.shape[0] for x, b in zip(leaves, mask) if b)
                if single is not None and size <= small:
                    axes = [0 if b else None for b in mask]
                    return jax.vmap(lambda *ls: single(*jax.tree.unflatten(treedef, ls)), axes)(*leaves)
                return _run_chunks(f, leaves, mask, treedef, size)

            @run.def_vmap
            def rule(axis_size, in_batched, *leaves):
                inner = next((x.shape[1 if o else 0] for x, b, o in zip(leaves, mask, in_batched) if b))
                merged = []
                for x, b, o in zip(leaves, mask, in_batched):
                    if b or o:
                        x = x if b else x[:, None]
                        x = x if o else x[None]
                        x = jnp.broadcast_to(x, (axis_size, inner) + x.shape[2:])
                        x = x.reshape((axis_size * inner,) + x.shape[2:])
                    merged.append(x)
                both = tuple(b or o for b, o in zip(mask, in_batched))
                out = batched(both, treedef)(*merged)
                out = jax.tree.map(lambda y: y.reshape((axis_size, inner) + y.shape[1:]), out)
                return out, jax.tree.map(lambda _: True, out)

            return run

        @custom_vmap
        def vmappable(*args):
            return one(*args)

        @vmappable.def_vmap
        def vmap_rule(axis_size, in_batched, *args):
            leaves, treedef = jax.tree.flatten(args)
            mask = tuple(jax.tree.leaves(in_batched))
            out = batched(mask, treedef)(*leaves)
            return out, jax.tree.map(lambda _: True, out)

        @jax.custom_jvp
        def differentiable(*args):
            return vmappable(*args)

        @differentiable.defjvp
        def jvp_rule(primals, tangents):
            return jax.jvp(plain, primals, tangents)

        functools.update_wrapper(differentiable, f)
        differentiable.plain = plain
        differentiable.batch_last = f
        return differentiable

    return decorate


def _run_chunks(f, leaves, mask, treedef, size):
    """Move the batch to the end and run f, on CPU in chunks of about CHUNK_ELEMENTS / links states."""

    def run(batched_leaves):
        it = iter(batched_leaves)
        n = batched_leaves[0].shape[0]
        moved = [jnp.moveaxis(next(it), 0, -1) if b else x[..., None] for x, b in zip(leaves, mask)]
        sys, *states = jax.tree.unflatten(treedef, moved)
        states = jax.tree.map(lambda x: jnp.broadcast_to(x, x.shape[:-1] + (n,)), states)
        out = f(sys, *states)
        return jax.tree.map(lambda y: jnp.moveaxis(jnp.broadcast_to(y, y.shape[:-1] + (n,)), -1, 0), out)

    batched_leaves = [x for x, b in zip(leaves, mask) if b]
    chunk = _chunk_size(treedef, leaves, size)
    if chunk >= size:
        return run(batched_leaves)
    count = -(-size // chunk)
    pad = count * chunk - size

    def split(x):
        x = jnp.concatenate([x, jnp.broadcast_to(x[-1:], (pad,) + x.shape[1:])]) if pad else x
        return x.reshape((count, chunk) + x.shape[1:])

    out = lax.map(run, [split(x) for x in batched_leaves])
    return jax.tree.map(lambda y: y.reshape((count * chunk,) + y.shape[2:])[:size], out)


def _chunk_size(treedef, leaves, size: int) -> int:
    if jax.default_backend() != "cpu":
        return size
    nodes = nodes_of(jax.tree.unflatten(treedef, leaves)[0].topology)
    largest = max(CHUNK_ELEMENTS // max(nodes.size, 8), ROW_ELEMENTS // nodes.width) // 32 * 32
    if size <= largest:
        return size
    count = -(-size // largest)
    return -(-size // (8 * count)) * 8
