"""Kernels with the batch last, behind functions that users call unbatched, `vmap` and differentiate.

Plain `vmap` puts the batch in front, and every scan over links then starts with transposes. A kernel
here is a function of a System and arrays, written once for leaves of shape (..., B); leaves of the
System that the batch shares have B = 1. `kernel` makes it one JAX primitive, so that

- it is compiled as one piece, also when it is called outside of `jit`;
- `vmap`, nested to any depth, runs it once with the batch moved to the end;
- on CPU a large batch is cut into chunks that stay in cache;
- its derivatives are kernels too (`Tangent` and `Adjoint`), of any order and mode. They come from the
  kernel's own code, whose recursions know their adjoints (`sweep`), or from rules written by hand;
- where a rule says how, forward mode computes value and tangent together (`Pair`) and shares their work.

Reverse mode keeps the arguments of a kernel (and its result, if a rule wants it) and nothing else; the
adjoint computes again what it needs, so a gradient through a long rollout stays small.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from jaxrbd.engine.jax_internals import (
    ShapedArray,
    define,
    instantiate_zeros,
    is_undefined_primal,
    is_zero,
    new_primitive,
    partial_evaluation,
)
from jaxrbd.engine.partition import divisible
from jaxrbd.engine.programs import Adjoint, Base, Pair, Tangent, merge

# On CPU a chunk holds about so many slots x states, so that a recursion stays in a core's cache, but at
# least so many numbers per row of slots, so that a step of the scan is worth its overhead.
CHUNK_ELEMENTS, ROW_ELEMENTS = 4096, 512
# Rows of a multiple of 512 bytes make arrays whose sizes are multiples of a cache way, and all of them then
# compete for the same few lines (forward dynamics of solo12: 1.4 M/s in chunks of 512, 1.9 M/s of 520).
CLASH = 128


class Kernel:
    """A batch-last function of a model and arrays, with the shapes of its results and its own rules."""

    def __init__(
        self,
        f: Callable,
        shape: Callable,
        extent: Callable,
        single: Callable | None = None,
        small: int = 1,
        only: Callable | None = None,
        suits: Callable | None = None,
    ):
        self.f, self.shape, self.extent, self.single, self.small = f, shape, extent, single, small
        self.only, self.suits = only, suits
        self.tangent_rule: Callable | None = None
        self.adjoint_rule: Callable | None = None
        self.pair_rule: Callable | None = None
        self.uses_output = False
        functools.update_wrapper(self, f)

    def __call__(self, *args):
        if self.only is not None:
            args = (self.only(args[0]), *args[1:])
        leaves, treedef = jax.tree.flatten(args)
        program = Base(self, treedef)
        out = kernel_p.bind(*leaves, program=program, batched=(False,) * len(leaves))
        return jax.tree.unflatten(jax.tree.structure(program.structs(leaves)), out)

    def batch_last(self, *args):
        """The code itself, on leaves (..., B)."""
        return self.f(*args)

    def derivatives(
        self, tangent: Callable, adjoint: Callable, uses_output: bool, pair: Callable | None = None
    ) -> None:
        """Use rules written by hand, on batch-last leaves in the form of the kernel's own arguments.

        `tangent(args, results, tangents)` -> list of results' tangents; tangents that are None vanish.
        `adjoint(args, results, wanted, cotangents)` -> a tuple like args, whose wanted leaves are read.
        `pair(args, tangents)` -> results and their tangents together. `results` is empty without
        `uses_output`. A rule that returns NotImplemented leaves the case to the derivative of the code.
        """
        self.tangent_rule, self.adjoint_rule, self.uses_output = tangent, adjoint, uses_output
        self.pair_rule = pair

    def tangent(self, args, results, tangents) -> list:
        """The tangent rule, or the code's own derivative, for use in the rules of another kernel."""
        leaves, treedef = jax.tree.flatten(args)
        return Base(self, treedef).tangent(leaves, results, treedef.flatten_up_to(tangents))

    def adjoint(self, args, results, wanted, cotangents):
        """The adjoint in the form of `args`, None where it is not wanted."""
        leaves, treedef = jax.tree.flatten(args)
        active = treedef.flatten_up_to(wanted)
        found = iter(Base(self, treedef).adjoint(leaves, results, active, cotangents))
        return jax.tree.unflatten(treedef, [next(found) if a else None for a in active])


def kernel(
    shape: Callable,
    extent: Callable,
    single: Callable | None = None,
    small: int = 1,
    only: Callable | None = None,
    suits: Callable | None = None,
):
    """Decorator. `shape(*args)`: a pytree of result shapes, unbatched, of the dtype of the first argument.

    `extent(first argument)`: (slots, slots per row) that one state works on, for the size of chunks.
    `single(*args)` is an unbatched algorithm, used for plain calls and batches <= small; `suits(first
    argument)` says for which models (None: all).
    `only(first argument)`: the part of it that the kernel needs; the rest is not carried through.
    """
    return lambda f: Kernel(f, shape, extent, single, small, only, suits)


# --- the primitive -------------------------------------------------------------------------------------

kernel_p, pair_p = new_primitive("jaxrbd_kernel"), new_primitive("jaxrbd_kernel_and_tangent")


def _summed(program, batched, count):
    """Which results are sums over the batch (cotangents of what the batch shares)."""
    return [any(batched) and d is not None and not batched[d] for d in program.summed_like(count)]


def _size(leaves, batched) -> int | None:
    return next((x.shape[0] for x, b in zip(leaves, batched) if b), None)


def _results(program, leaves, batched):
    """Shapes and dtypes of the results for one state."""
    one = [jax.ShapeDtypeStruct(x.shape[1:] if b else x.shape, x.dtype) for x, b in zip(leaves, batched)]
    return program.out_structs(one)


def _shapes(*avals, program, batched):
    size = _size(avals, batched)
    out = _results(program, avals, batched)
    summed = _summed(program, batched, len(out))
    lead = [() if size is None or s else (size,) for s in summed]
    return [ShapedArray(n + tuple(y.shape), y.dtype) for n, y in zip(lead, out)]


def _single_of(program, leaves) -> Callable | None:
    """The kernel's algorithm for single states, where it has one that suits the model."""
    if not isinstance(program, Base) or program.kernel.single is None:
        return None
    suits = program.kernel.suits
    good = suits is None or suits(jax.tree.unflatten(program.treedef, leaves)[0])
    return program.kernel.single if good else None


def _execute(*leaves, program, batched):
    size = _size(leaves, batched)
    single = _single_of(program, leaves)
    if size is None:
        if single is not None:
            return jax.tree.leaves(single(*jax.tree.unflatten(program.treedef, leaves)))
        return [y[..., 0] for y in program.run([x[..., None] for x in leaves])]
    if single is not None and size <= program.kernel.small:
        one = lambda *ls: jax.tree.leaves(single(*jax.tree.unflatten(program.treedef, ls)))  # noqa: E731
        return jax.vmap(one, [0 if b else None for b in batched])(*leaves)
    return _run_chunks(program, leaves, batched, size)


def _execute_over_devices(primitive, *leaves, program, batched):
    """The same where a batch may be divided over devices: each cuts its own share into chunks."""
    if not any(batched):
        return _execute(*leaves, program=program, batched=batched)
    summed = _summed(program, batched, len(_results(program, leaves, batched)))
    whole = functools.partial(primitive.bind, program=program, batched=batched)
    part = functools.partial(_execute, program=program, batched=batched)
    return divisible(whole, part, batched, summed)(*leaves)


@functools.lru_cache(maxsize=4096)
def _compiled(program, batched):
    return jax.jit(functools.partial(_execute, program=program, batched=batched))


def _eager(*leaves, program, batched):
    return _compiled(program, batched)(*leaves)


def _run_chunks(program, leaves, batched, size):
    """Move the batch to the end and run, on CPU in chunks of about CHUNK_ELEMENTS / slots states."""
    results = _results(program, leaves, batched)
    summed = _summed(program, batched, len(results))

    def run(cut):
        it = iter(cut)
        last = [jnp.moveaxis(next(it), 0, -1) if b else x[..., None] for x, b in zip(leaves, batched)]
        return [y[..., 0] if s else jnp.moveaxis(y, -1, 0) for y, s in zip(program.run(last), summed)]

    chunk = _chunk_size(program, size)
    linear = isinstance(program, Adjoint)  # in its cotangents: zeros add nothing to a sum
    if any(summed) and size % chunk and not linear:
        chunk = next(c for c in range(min(chunk, size), 0, -1) if size % c == 0)
        chunk = chunk if chunk >= 32 else size
    own = [x for x, b in zip(leaves, batched) if b]
    cotangent = [linear and i >= program.first_along for i, b in enumerate(batched) if b]
    if chunk >= size:
        wide = [_padded(x, chunk - size, zero) for x, zero in zip(own, cotangent)]
        return [y if s else y[:size] for y, s in zip(run(wide), summed)]
    count = -(-size // chunk)

    # The last chunk ends with the batch and overlaps the one before it, so that no array is copied to be
    # padded. It comes first, with cotangents of zero in the overlap, and what it found there is overwritten.
    def step(k, total):
        i = count - 1 - k
        start = jnp.minimum(i * chunk, size - chunk)
        mine = start + jnp.arange(chunk) >= i * chunk
        cut = [lax.dynamic_slice_in_dim(x, start, chunk) for x in own]
        if size % chunk:
            cut = [_where(mine, x) if zero else x for x, zero in zip(cut, cotangent)]
        add = lambda t, y, s: t + y if s else lax.dynamic_update_slice_in_dim(t, y, start, 0)  # noqa: E731
        return [add(*each) for each in zip(total, run(cut), summed)]

    shapes = [y.shape if s else (size, *y.shape) for y, s in zip(results, summed)]
    return lax.fori_loop(0, count, step, [jnp.zeros(n, y.dtype) for n, y in zip(shapes, results)])


def _padded(x, more: int, zero: bool):
    """More states at the end: zeros, or the last one again."""
    if not more:
        return x
    last = jnp.broadcast_to(x[-1:], (more,) + x.shape[1:])
    return jnp.concatenate([x, jnp.zeros_like(last) if zero else last])


def _where(keep, x):
    return jnp.where(keep.reshape((-1,) + (1,) * (x.ndim - 1)), x, 0)


def _chunk_size(program, size: int) -> int:
    """How many states are computed together: all of them, unless on CPU; the last chunk may be padded."""
    if jax.default_backend() != "cpu":
        return size
    slots, width = program.extent
    largest = max(CHUNK_ELEMENTS // max(slots, 8), ROW_ELEMENTS // width) // 32 * 32
    count = -(-size // largest)
    chunk = size if count == 1 else -(-size // (8 * count)) * 8
    return chunk + 8 if chunk % CLASH == 0 and chunk >= 2 * CLASH else chunk


def _batch_rule(primitive, args, dims, *, program, batched):
    """Merge a new axis with the batch that is there already."""
    outer = next(x.shape[d] for x, d in zip(args, dims) if d is not None)
    args = [x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(args, dims)]
    inner = next((x.shape[1 if d is not None else 0] for x, d, b in zip(args, dims, batched) if b), None)
    # cotangents of what the batch shared must now be told apart: give these arguments the whole batch
    needs_batch = program.needs_batch
    merged, flags = [], []
    for i, (x, d, b) in enumerate(zip(args, dims, batched)):
        flag = b or d is not None or i in needs_batch
        if flag:
            x = x if d is not None else x[None]
            if inner is None:
                x = jnp.broadcast_to(x, (outer,) + x.shape[1:])
            else:
                x = x if b else x[:, None]
                x = jnp.broadcast_to(x, (outer, inner) + x.shape[2:])
                x = x.reshape((outer * inner,) + x.shape[2:])
        merged.append(x)
        flags.append(flag)
    out = primitive.bind(*merged, program=program, batched=tuple(flags))
    if inner is not None:
        summed = _summed(program, batched, len(out))
        out = [y.reshape((outer, inner) + y.shape[1:]) for y in out]
        out = [jnp.sum(y, 1) if s else y for y, s in zip(out, summed)]
    return out, [0] * len(out)


def _jvp_rule(primals, tangents, *, program, batched):
    active = tuple(not is_zero(t) for t in tangents)
    args = [*primals, *(t for t, a in zip(tangents, active) if a)]
    flags = batched + tuple(b for b, a in zip(batched, active) if a)
    if isinstance(program, Base) and program.kernel.pair_rule is not None:
        out = pair_p.bind(*args, program=Pair(program, active), batched=flags)
        return out[: len(out) // 2], out[len(out) // 2 :]
    return _value_and_tangent(kernel_p.bind, args, program, active, flags)


def _value_and_tangent(bind, args, program, active, flags):
    """Results and tangents by one program each, given leaves and tangents and which of them are batched."""
    n = len(active)
    primals, batched = args[:n], flags[:n]
    out = bind(*primals, program=program, batched=batched)
    extra = out if program.uses_output else []
    extra_flags = [any(batched) and not s for s in _summed(program, batched, len(out))][: len(extra)]
    dout = bind(
        *primals,
        *extra,
        *args[n:],
        program=Tangent(program, active, len(extra)),
        batched=(*batched, *extra_flags, *flags[n:]),
    )
    return out, dout


# --- value and tangent as one --------------------------------------------------------------------------


def _unpaired(bind, args, program, batched):
    """The results of a pair from its two halves, for whoever wants only one of them or their derivatives."""
    out, dout = _value_and_tangent(bind, args, program.of, program.active, batched)
    return [*out, *dout]


def _pair_jvp(primals, tangents, *, program, batched):
    moved = [not is_zero(t) for t in tangents]
    f = lambda *xs: _unpaired(kernel_p.bind, merge(primals, moved, xs), program, batched)  # noqa: E731
    pick = lambda values: tuple(x for x, m in zip(values, moved) if m)  # noqa: E731
    return jax.jvp(f, pick(primals), pick(tangents))


def _pair_batch(args, dims, *, program, batched):
    n = len(program.active)
    if any(d is not None for d in dims[:n]):
        return _batch_rule(pair_p, args, dims, program=program, batched=batched)
    # many tangents at one point, as in jacfwd: one value for all
    count = len(program.of.out_structs(args[:n]))
    split = lambda *xs: _unpaired(kernel_p.bind, xs, program, batched)  # noqa: E731
    out = jax.vmap(split, dims, [None] * count + [0] * count)(*args)
    return out, [None] * count + [0] * count


def _pair_partial_eval(trace, *tracers, program, batched):
    """Linearisation knows the leaves but not the tangents: the value must not wait for them."""
    bind = lambda *args, **params: trace.process_primitive(kernel_p, args, params)  # noqa: E731
    return _unpaired(bind, tracers, program, batched)


def _pair_partial_eval_jaxpr(saveable, unknown, inst, eqn):
    """The same within `jax.checkpoint`: values now, and once more with the tangents later."""
    program, n = eqn.params["program"], len(eqn.params["program"].active)
    count = len(eqn.outvars) // 2
    missing = [x for x, i in zip(eqn.invars, inst) if not i]
    if any(unknown[:n]):
        return None, eqn, [True] * 2 * count, [True] * 2 * count, missing
    value = {"program": program.of, "batched": eqn.params["batched"][:n]}
    now = eqn.replace(primitive=kernel_p, invars=eqn.invars[:n], outvars=eqn.outvars[:count], params=value)
    return now, eqn, [False] * count + [True] * count, [True] * 2 * count, missing


def _transpose_rule(cts, *args, program, batched):
    if not isinstance(program, Tangent):
        raise TypeError("a kernel is not linear in its arguments; only its tangent is")
    first, moved = program.first_along, program.moved
    wanted = [is_undefined_primal(x) for x in args[first:]]
    # tangents that are known add a constant, which has no part in the transpose
    where = [(i, flag) for i, flag, w in zip(moved, batched[first:], wanted) if w]
    primals, flags = list(args[:first]), list(batched[:first])
    size = _size([x.aval if is_undefined_primal(x) else x for x in args], batched)
    for i, flag in where:
        if flag and not flags[i]:  # the cotangent has a batch that its primal lacks
            primals[i] = jnp.broadcast_to(primals[i], (size,) + primals[i].shape)
            flags[i] = True
    summed = _summed(program, batched, len(cts))
    cts = [instantiate_zeros(c) for c in cts]
    ct_flags = [any(batched) and not s for s in summed]
    chosen = {i for i, _ in where}
    active = tuple(i in chosen for i in range(len(program.active)))
    adjoint = Adjoint(program.of, active, program.results)
    out = kernel_p.bind(*primals, *cts, program=adjoint, batched=tuple(flags) + tuple(ct_flags))
    out = iter([jnp.sum(y, 0) if flags[i] and not flag else y for y, (i, flag) in zip(out, where)])
    return [None] * first + [next(out) if w else None for w in wanted]


define(
    kernel_p,
    shapes=_shapes,
    run=_execute,
    over_devices=functools.partial(_execute_over_devices, kernel_p),
    eager=_eager,
    jvp=_jvp_rule,
    transpose=_transpose_rule,
    batch=functools.partial(_batch_rule, kernel_p),
)
define(
    pair_p,
    shapes=_shapes,
    run=_execute,
    over_devices=functools.partial(_execute_over_devices, pair_p),
    eager=_eager,
    jvp=_pair_jvp,
    batch=_pair_batch,
)
partial_evaluation(pair_p, _pair_partial_eval, _pair_partial_eval_jaxpr)
