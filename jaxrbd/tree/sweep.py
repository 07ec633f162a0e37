"""Passes over the tree as primitives that know their derivatives.

A sweep runs rows of links outward or inward (`scan.py` says how) and is all that is recursive in this
library. JAX would differentiate its loop step by step: whole buffers saved at every step, gathers turned
into scatters. As a primitive, a sweep is differentiated as a whole:

- the tangent of a sweep is a sweep in the same direction, with the tangent of the body;
- the adjoint of an outward sweep is an inward one, and the reverse: what a parent gives to its children
  comes back as a sum over the children.

Both are linear in the links, in time and in memory, and are sweeps again, so every order and mode works.
`rows` is a gather with a fixed index whose adjoint is a gather too.

Only the derivatives of kernels need this (`differentiable_sweeps`); elsewhere plain loops are traced.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

_differentiable = [False]


@contextmanager
def differentiable_sweeps():
    """Within: sweeps and gathers are primitives with structured derivatives."""
    before, _differentiable[0] = _differentiable[0], True
    try:
        yield
    finally:
        _differentiable[0] = before


def are_differentiable() -> bool:
    return _differentiable[0]


# --- gathers with a fixed index ------------------------------------------------------------------------

rows_p = Primitive("jaxrbd_rows")


class _Index:
    """A fixed index array, equal to another with the same contents."""

    def __init__(self, array: np.ndarray):
        self.array = np.asarray(array)
        self.key = (self.array.shape, self.array.tobytes())

    def __eq__(self, other):
        return self.key == other.key

    def __hash__(self):
        return hash(self.key)


def rows(x, index, axis: int = 0):
    """x[index] along one axis, for a fixed integer index (a NumPy array of any shape).

    Of nothing it is zero: the padding of a System without joints reads a freedom that does not exist.
    """
    x, index = jnp.asarray(x), np.asarray(index, np.int32)
    if not x.shape[axis]:
        return jnp.zeros(x.shape[:axis] + index.shape + x.shape[axis + 1 :], x.dtype)
    return rows_p.bind(x, index=_Index(index), axis=axis)


def take(tree, index):
    """Rows of every array leaf; symbolic zeros stay."""
    pick = rows if isinstance(index, np.ndarray) else lambda x, i: x[i]
    return jax.tree.map(lambda x: x if isinstance(x, int) else pick(x, index), tree)


@rows_p.def_abstract_eval
def _rows_abstract(x, *, index, axis):
    shape = x.shape[:axis] + index.array.shape + x.shape[axis + 1 :]
    return jax.core.ShapedArray(shape, x.dtype)


def _rows_run(x, *, index, axis):
    pieces = _pieces(index)
    if pieces is not None:
        found = [_piece(x, *piece, axis) for piece in pieces]
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
def _pieces(index: _Index):
    """An index as at most three (start, step, count, repeat), or None: slices fuse better than gathers."""
    flat, pieces = index.array, []
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


def _piece(x, start, step, count, repeat, axis):
    y = lax.slice_in_dim(x, start, start + step * (count - 1) + 1, step, axis)
    if repeat == 1:
        return y
    shape = y.shape[:axis] + (count, repeat) + y.shape[axis + 1 :]
    y = jnp.broadcast_to(jnp.expand_dims(y, axis + 1), shape)
    return y.reshape(y.shape[:axis] + (count * repeat,) + y.shape[axis + 2 :])


def _rows_transpose(ct, x, *, index, axis):
    if isinstance(ct, ad.Zero):
        return [ad.Zero(x.aval)]
    shape = x.aval.shape
    flat = ct.reshape(shape[:axis] + (index.array.size,) + shape[axis + 1 :])
    return [_collect(flat, index, shape[axis], axis)]


def _collect(y, index: _Index, count: int, axis: int):
    """The adjoint of a gather: row k is the sum of the rows of y that were read from row k."""
    table, most = _inverse(index, count)
    if most <= 4:
        zero = jnp.zeros(y.shape[:axis] + (1,) + y.shape[axis + 1 :], y.dtype)
        padded = jnp.concatenate([y, zero], axis)
        total = rows(padded, table[:, 0], axis)
        for k in range(1, most):
            total = total + rows(padded, table[:, k], axis)
        return total
    one_hot = np.zeros((count, y.shape[axis]))
    one_hot[index.array.reshape(-1), np.arange(y.shape[axis])] = 1
    total = jnp.tensordot(jnp.asarray(one_hot, y.dtype), y, (1, axis), precision="highest")
    return jnp.moveaxis(total, 0, axis)


@lru_cache(maxsize=4096)
def _inverse(index: _Index, count: int):
    """For every row, the positions that read it (filled up with the number of positions)."""
    flat = index.array.reshape(-1)
    lists: list[list[int]] = [[] for _ in range(count)]
    for position, k in enumerate(flat):
        lists[k].append(position)
    most = max([1] + [len(x) for x in lists])
    return np.array([x + [len(flat)] * (most - len(x)) for x in lists], int).reshape(count, most), most


def _rows_batch(args, dims, *, index, axis):
    (x,), (d,) = args, dims
    return rows_p.bind(jnp.moveaxis(x, d, 0), index=index, axis=axis + 1), 0


@lru_cache(maxsize=4096)
def _rows_compiled(index, axis):
    return jax.jit(lambda x: _rows_run(x, index=index, axis=axis))


rows_p.def_impl(lambda x, *, index, axis: _rows_compiled(index, axis)(x))
mlir.register_lowering(rows_p, mlir.lower_fun(_rows_run, multiple_results=False))
ad.deflinear2(rows_p, _rows_transpose)
batching.primitive_batchers[rows_p] = _rows_batch


def put_rows(x, index: np.ndarray, new):
    """x with some rows exchanged, as one gather: cheaper than a scatter, and kinder to XLA's fusion."""
    order = np.arange(x.shape[0])
    order[index] = x.shape[0] + np.arange(len(index))
    return rows(jnp.concatenate([x, jnp.broadcast_to(new, (len(index),) + x.shape[1:])]), order)


# --- sweeps --------------------------------------------------------------------------------------------

sweep_p = Primitive("jaxrbd_sweep")
sweep_p.multiple_results = True
# Parameters: `run(body, nodes, start, xs, keep)`, the loop (outward or inward); `body(state, x)` on flat
# lists, giving (new state, outputs); `states`, how many operands are the start values (roots, outward) or
# the empty sums (inward); `inward`; `keep`, whether an inward sweep also returns every link's incoming sum.


def sweep(run, nodes, body, start, xs, *, inward: bool, keep: bool = False):
    """Run a pass as a primitive; results are a flat list: states (of links, or sums at roots), outputs."""
    return sweep_p.bind(
        *start, *xs, run=run, nodes=nodes, body=body, states=len(start), inward=inward, keep=keep
    )


def _sweep_run(*operands, run, nodes, body, states, inward, keep):
    return run(nodes, body, list(operands[:states]), list(operands[states:]), keep)


def _row_structs(nodes, start, xs):
    w = nodes.width
    row = lambda x: jax.ShapeDtypeStruct((w,) + x.shape[1:], x.dtype)  # noqa: E731
    return [row(s) for s in start], [row(x) for x in xs]


@sweep_p.def_abstract_eval
def _sweep_abstract(*avals, run, nodes, body, states, inward, keep):
    start, xs = avals[:states], avals[states:]
    _, out = jax.eval_shape(body, *_row_structs(nodes, start, xs))
    N, nroots = nodes.size, nodes.nroots
    full = lambda n, x: jax.core.ShapedArray((n,) + x.shape[1:], x.dtype)  # noqa: E731
    kept = [full(N, s) for s in start] if keep else []
    return [full(nroots if inward else N, s) for s in start] + [full(N, y) for y in out] + kept


def _sweep_jvp(primals, tangents, *, run, nodes, body, states, inward, keep):
    start, xs = list(primals[:states]), list(primals[states:])
    everything = sweep(run, nodes, body, start, xs, inward=inward, keep=inward)
    if inward:
        incoming = everything[len(everything) - states :]
        out = everything if keep else everything[: len(everything) - states]
    else:
        out, values = everything, everything[:states]
        incoming = [rows(jnp.concatenate([y, r]), nodes.parent) for y, r in zip(values, start)]
    active = tuple(not isinstance(t, ad.Zero) for t in tangents[states:])
    dstart = [ad.instantiate_zeros(t) for t in tangents[:states]]
    dxs = [t for t, a in zip(tangents[states:], active) if a]
    dout = sweep(
        run,
        nodes,
        TangentBody(body, states, active),
        dstart,
        [*incoming, *xs, *dxs],
        inward=inward,
        keep=keep,
    )
    return out, dout


class TangentBody:
    """(dstate, [state, x, active dx]) -> (dstate', dout): linear in dstate and dx."""

    def __init__(self, body, states: int, active: tuple[bool, ...]):
        self.body, self.states, self.active = body, states, active

    def __call__(self, dstate, x):
        n = len(self.active)
        state, x, dx = x[: self.states], x[self.states : self.states + n], x[self.states + n :]

        def f(state, moved):
            it = iter(moved)
            return self.body(state, [next(it) if a else y for y, a in zip(x, self.active)])

        moved = [y for y, a in zip(x, self.active) if a]
        return jax.jvp(f, (list(state), moved), (list(dstate), list(dx)))[1]


class AdjointBody:
    """The transposed step of a linear body: (what comes in, [known x, cotangents]) -> (handed on, dx)."""

    def __init__(self, body, inward: bool, known: tuple[bool, ...], states, linear, kept: bool):
        self.body, self.inward, self.known, self.kept = body, inward, known, kept
        self.states, self.linear = states, linear  # shapes of one row

    def __call__(self, incoming, x):
        count = sum(self.known)
        known, cts = list(x[:count]), list(x[count:])
        if self.inward:  # the transposed body belonged to an outward sweep: its state came with cotangents
            n = len(self.states)
            state_ct = [a + b for a, b in zip(incoming, cts[:n])]
            out_ct = cts[n:]
        else:
            n = len(cts) - len(self.states) if self.kept else len(cts)
            state_ct, out_ct = list(incoming), cts[:n]

        def f(dstate, dx):
            a, b = iter(known), iter(dx)
            return self.body(list(dstate), [next(a) if k else next(b) for k in self.known])

        handed, dx = jax.linear_transpose(f, list(self.states), list(self.linear))((state_ct, out_ct))
        if self.kept:  # the sums that the transposed sweep kept
            handed = [a + b for a, b in zip(handed, cts[len(out_ct) :])]
        return handed, dx


def _sweep_transpose(cts, *operands, run, nodes, body, states, inward, keep):
    start, xs = operands[:states], operands[states:]
    known = tuple(not ad.is_undefined_primal(x) for x in xs)
    cts = [ad.instantiate_zeros(c) for c in cts]
    aval = lambda x: x.aval if ad.is_undefined_primal(x) else jax.typeof(x)  # noqa: E731
    state_rows, linear_rows = _row_structs(
        nodes, [aval(s) for s in start], [x.aval for x, k in zip(xs, known) if not k]
    )
    adjoint = AdjointBody(body, not inward, known, state_rows, linear_rows, keep)
    residuals = [x for x, k in zip(xs, known) if k]
    other = run.other
    if inward:  # cotangents of the sums at the roots go outward
        begin, extra = cts[:states], cts[states:]
        result = sweep(other, nodes, adjoint, begin, [*residuals, *extra], inward=False)
        start_ct = [None] * states  # empty sums are zero and stay zero
    else:
        begin = [jnp.zeros((1,) + s.shape[1:], s.dtype) for s in state_rows]
        result = sweep(other, nodes, adjoint, begin, [*residuals, *cts], inward=True)
        start_ct = [c if ad.is_undefined_primal(s) else None for s, c in zip(start, result[:states])]
    dxs = iter(result[states:])
    return start_ct + [None if k else next(dxs) for k in known]


sweep_p.def_impl(_sweep_run)
mlir.register_lowering(sweep_p, mlir.lower_fun(_sweep_run, multiple_results=True))
ad.primitive_jvps[sweep_p] = _sweep_jvp
ad.primitive_transposes[sweep_p] = _sweep_transpose
