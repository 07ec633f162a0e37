"""Passes over a forest as a primitive that knows its derivatives.

A sweep runs rows of slots outward or inward (`loops.py`) and is all that is recursive in this library. JAX
would differentiate its loop step by step: whole buffers saved at every step, gathers turned into scatters.
As a primitive, a sweep is differentiated as a whole:

- the tangent of a sweep is a sweep in the same direction, with the tangent of the body;
- the adjoint of an outward sweep is an inward one, and the reverse: what a parent gives to its children
  comes back as a sum over the children.

Both are linear in the slots, in time and in memory, and are sweeps again, so every order and mode works.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.engine.gather import gather
from jaxrbd.engine.jax_internals import (
    ShapedArray,
    define,
    instantiate_zeros,
    is_undefined_primal,
    is_zero,
    new_primitive,
)
from jaxrbd.engine.loops import run_inward, run_outward

sweep_p = new_primitive("jaxrbd_sweep")


def sweep(nodes, body, start, xs, *, inward: bool, keep: bool = False):
    """Run a pass; results are a flat list: states (of slots, or sums at roots), outputs, kept sums.

    `body(state, x)` on flat lists gives (new state, outputs). `start`: values of the roots (outward) or the
    empty sums (inward). `keep`: an inward sweep also returns every slot's incoming sum.
    """
    return sweep_p.bind(*start, *xs, nodes=nodes, body=body, states=len(start), inward=inward, keep=keep)


def _run(*operands, nodes, body, states, inward, keep):
    start, xs = list(operands[:states]), list(operands[states:])
    return run_inward(nodes, body, start, xs, keep) if inward else run_outward(nodes, body, start, xs)


def _row_structs(nodes, start, xs):
    w = nodes.width
    row = lambda x: jax.ShapeDtypeStruct((w,) + x.shape[1:], x.dtype)  # noqa: E731
    return [row(s) for s in start], [row(x) for x in xs]


def _shapes(*avals, nodes, body, states, inward, keep):
    start, xs = avals[:states], avals[states:]
    _, out = jax.eval_shape(body, *_row_structs(nodes, start, xs))
    N, nroots = nodes.size, nodes.nroots
    full = lambda n, x: ShapedArray((n,) + x.shape[1:], x.dtype)  # noqa: E731
    kept = [full(N, s) for s in start] if keep else []
    return [full(nroots if inward else N, s) for s in start] + [full(N, y) for y in out] + kept


def _jvp(primals, tangents, *, nodes, body, states, inward, keep):
    start, xs = list(primals[:states]), list(primals[states:])
    everything = sweep(nodes, body, start, xs, inward=inward, keep=inward)
    if inward:
        incoming = everything[len(everything) - states :]
        out = everything if keep else everything[: len(everything) - states]
    else:
        out, values = everything, everything[:states]
        incoming = [gather(jnp.concatenate([y, r]), nodes.parent) for y, r in zip(values, start)]
    active = tuple(not is_zero(t) for t in tangents[states:])
    dstart = [instantiate_zeros(t) for t in tangents[:states]]
    dxs = [t for t, a in zip(tangents[states:], active) if a]
    dout = sweep(
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


def _transpose(cts, *operands, nodes, body, states, inward, keep):
    start, xs = operands[:states], operands[states:]
    known = tuple(not is_undefined_primal(x) for x in xs)
    cts = [instantiate_zeros(c) for c in cts]
    aval = lambda x: x.aval if is_undefined_primal(x) else jax.typeof(x)  # noqa: E731
    state_rows, linear_rows = _row_structs(
        nodes, [aval(s) for s in start], [x.aval for x, k in zip(xs, known) if not k]
    )
    adjoint = AdjointBody(body, not inward, known, state_rows, linear_rows, keep)
    residuals = [x for x, k in zip(xs, known) if k]
    if inward:  # cotangents of the sums at the roots go outward
        begin, extra = cts[:states], cts[states:]
        result = sweep(nodes, adjoint, begin, [*residuals, *extra], inward=False)
        start_ct = [None] * states  # empty sums are zero and stay zero
    else:
        begin = [jnp.zeros((1,) + s.shape[1:], s.dtype) for s in state_rows]
        result = sweep(nodes, adjoint, begin, [*residuals, *cts], inward=True)
        start_ct = [c if is_undefined_primal(s) else None for s, c in zip(start, result[:states])]
    dxs = iter(result[states:])
    return start_ct + [None if k else next(dxs) for k in known]


define(sweep_p, shapes=_shapes, run=_run, jvp=_jvp, transpose=_transpose)
