"""Reading by a fixed index: a primitive whose adjoint is a gather too, where JAX would scatter."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrbd.engine.jax_internals import ShapedArray, Zero, define, is_zero, new_primitive

gather_p = new_primitive("jaxrbd_gather", multiple_results=False)


def gather(tree, index, axis: int = 0):
    """x[index] along one axis for every array x of a tree; symbolic zeros (Python integers) stay.

    `index`: a slice, or fixed integers as a NumPy array of any shape. Of nothing it reads zeros: the padding
    of a System without joints asks for a freedom that does not exist.
    """
    pick = (lambda x: x[index]) if isinstance(index, slice) else (lambda x: _gather(x, index, axis))
    return jax.tree.map(lambda x: x if isinstance(x, int) else pick(x), tree)


def put(x, index: np.ndarray, new):
    """x with some rows exchanged, as one gather: cheaper than a scatter, and kinder to XLA's fusion."""
    order = np.arange(x.shape[0])
    order[index] = x.shape[0] + np.arange(len(index))
    return gather(jnp.concatenate([x, jnp.broadcast_to(new, (len(index),) + x.shape[1:])]), order)


def gather_sum(x, table: np.ndarray):
    """Sums of the rows of x that each row of `table` lists."""
    total = gather(x, table[:, 0])
    for k in range(1, table.shape[1]):
        total = total + gather(x, table[:, k])
    return total


class Index:
    """A fixed index array, equal to another with the same contents."""

    def __init__(self, array: np.ndarray):
        self.array = np.asarray(array)
        self.key = (self.array.shape, self.array.tobytes())

    def __eq__(self, other: Any) -> bool:
        return self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _gather(x, index, axis: int):
    x, index = jnp.asarray(x), np.asarray(index, np.int32)
    if not x.shape[axis]:
        return jnp.zeros(x.shape[:axis] + index.shape + x.shape[axis + 1 :], x.dtype)
    return gather_p.bind(x, index=Index(index), axis=axis)


def _shapes(x, *, index, axis):
    return ShapedArray(x.shape[:axis] + index.array.shape + x.shape[axis + 1 :], x.dtype)


def _run(x, *, index, axis):
    pieces = _pieces(index)
    if pieces is not None:
        found = [_piece(x, piece, axis) for piece in pieces]
        return found[0] if len(found) == 1 else lax.concatenate(found, axis)
    extent = index.array.ndim
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(*range(axis), *range(axis + extent, x.ndim - 1 + extent)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    sizes = tuple(1 if k == axis else n for k, n in enumerate(x.shape))
    return lax.gather(x, index.array[..., None], numbers, sizes, mode="promise_in_bounds")


@lru_cache(maxsize=4096)
def _pieces(index: Index):
    """An index as at most three (start, step, count, repeat), or None: slices fuse better than gathers."""
    flat = index.array
    pieces: list[tuple[int, int, int, int]] = []
    if flat.ndim != 1 or not flat.size:
        return None
    first = int(np.argmax(flat != flat[0])) or flat.size
    if flat.size % first == 0 and first > 1 and first < flat.size:  # each row several times
        steps = np.diff(flat[::first])
        if (np.repeat(flat[::first], first) == flat).all() and (steps == steps[0]).all() and steps[0] > 0:
            return ((int(flat[0]), int(steps[0]), flat.size // first, first),)
    k = 0
    while k < flat.size:
        step = int(flat[k + 1] - flat[k]) if k + 1 < flat.size else 1
        end = k + 1
        while end < flat.size and flat[end] - flat[end - 1] == step:
            end += 1
        if step < 0 or len(pieces) == 3:
            return None
        pieces.append((int(flat[k]), step, end - k, 1) if step else (int(flat[k]), 1, 1, end - k))
        k = end
    return tuple(pieces)


def _piece(x, piece: tuple[int, int, int, int], axis: int):
    start, step, count, repeat = piece
    y = lax.slice_in_dim(x, start, start + step * (count - 1) + 1, step, axis)
    if repeat == 1:
        return y
    shape = y.shape[:axis] + (count, repeat) + y.shape[axis + 1 :]
    y = jnp.broadcast_to(jnp.expand_dims(y, axis + 1), shape)
    return y.reshape(y.shape[:axis] + (count * repeat,) + y.shape[axis + 2 :])


def _transpose(ct, x, *, index, axis):
    if is_zero(ct):
        return [Zero(x.aval)]
    shape = x.aval.shape
    flat = ct.reshape(shape[:axis] + (index.array.size,) + shape[axis + 1 :])
    return [_collect(flat, index, shape[axis], axis)]


def _collect(y, index: Index, count: int, axis: int):
    """The adjoint of a gather: row k is the sum of the rows of y that were read from row k."""
    table, most = _inverse(index, count)
    if most <= 4:
        zero = jnp.zeros(y.shape[:axis] + (1,) + y.shape[axis + 1 :], y.dtype)
        padded = jnp.concatenate([y, zero], axis)
        total = gather(padded, table[:, 0], axis)
        for k in range(1, most):
            total = total + gather(padded, table[:, k], axis)
        return total
    one_hot = np.zeros((count, y.shape[axis]))
    one_hot[index.array.reshape(-1), np.arange(y.shape[axis])] = 1
    total = jnp.tensordot(jnp.asarray(one_hot, y.dtype), y, (1, axis), precision="highest")
    return jnp.moveaxis(total, 0, axis)


@lru_cache(maxsize=4096)
def _inverse(index: Index, count: int):
    """For every row, the positions that read it (filled up with the number of positions)."""
    flat = index.array.reshape(-1)
    lists: list[list[int]] = [[] for _ in range(count)]
    for position, k in enumerate(flat):
        lists[k].append(position)
    most = max([1] + [len(x) for x in lists])
    return np.array([x + [len(flat)] * (most - len(x)) for x in lists], int).reshape(count, most), most


def _batch(args, dims, *, index, axis):
    (x,), (d,) = args, dims
    return gather_p.bind(jnp.moveaxis(x, d, 0), index=index, axis=axis + 1), 0


@lru_cache(maxsize=4096)
def _compiled(index, axis):
    return jax.jit(lambda x: _run(x, index=index, axis=axis))


define(
    gather_p,
    shapes=_shapes,
    run=_run,
    eager=lambda x, *, index, axis: _compiled(index, axis)(x),
    linear_transpose=_transpose,
    batch=_batch,
)
