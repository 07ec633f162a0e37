"""What the kernel primitive runs on flat leaves: a kernel, its tangent, both at once, its adjoint.

Programs are hashable, so that each is traced and compiled once. Every program knows the shapes of its
results (`out_structs`), how to run batch last (`run`), whose topology it walks, and how it meets a batch:
`deciders` names the argument that decides whether a result is summed over the batch (the cotangent of what
the batch shares is), `tied` the arguments that must have the whole batch once an outer `vmap` comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrbd.tree.sweep import differentiable_sweeps


@dataclass(frozen=True)
class Base:
    """A kernel on the leaves of its arguments."""

    kernel: Any
    treedef: Any

    @property
    def uses_output(self) -> bool:
        return self.kernel.uses_output

    def structs(self, leaves):
        args = jax.tree.unflatten(self.treedef, leaves)
        dtype = args[0].dtype
        shapes = self.kernel.shape(*args)
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, dtype), shapes, is_leaf=lambda s: _is_shape(s))

    def out_structs(self, leaves):
        return jax.tree.leaves(self.structs(leaves))

    def run(self, leaves):
        sys, *states = jax.tree.unflatten(self.treedef, leaves)
        n = max(x.shape[-1] for x in leaves)
        widen = lambda x: jnp.broadcast_to(x, x.shape[:-1] + (n,))  # noqa: E731
        # parameters that come as a tree, such as constraints, stay narrow where the batch shares them
        states = [widen(x) if hasattr(x, "shape") else x for x in states]
        return [widen(y) for y in jax.tree.leaves(self.kernel.f(sys, *states))]

    @property
    def topology(self):
        return jax.tree.unflatten(self.treedef, [None] * self.treedef.num_leaves)[0].topology

    def deciders(self, count: int):
        """For every result, the argument that decides whether the batch is summed; None: never."""
        return (None,) * count

    @property
    def tied(self):
        return frozenset()


class _Derived:
    """What a derivative takes over from the program `of` which it is one."""

    of: Any

    @property
    def topology(self):
        return self.of.topology

    def deciders(self, count):
        return self.of.deciders(count)


@dataclass(frozen=True)
class Tangent(_Derived):
    """Directional derivative of a program; takes its leaves, (its results,) and tangents of active leaves."""

    of: Any
    active: tuple[bool, ...]
    uses_output = False

    def _split(self, leaves):
        n, k = len(self.active), sum(self.active)
        return list(leaves[:n]), list(leaves[n : len(leaves) - k]), list(leaves[len(leaves) - k :])

    def out_structs(self, leaves):
        return self.of.out_structs(leaves[: len(self.active)])

    def run(self, leaves):
        primals, out, tangents = self._split(leaves)
        primals, full = _match(primals, tangents, self.active)
        rule = getattr(getattr(self.of, "kernel", None), "tangent_rule", None)
        if rule is not None:
            return rule(self.of, primals, out, full)
        return partial_jvp(self.of.run, primals, full)

    @property
    def tied(self):
        tied = self.of.tied
        start = len(self.active)
        count = sum(self.active)
        position = {i: k for k, i in enumerate(i for i, a in enumerate(self.active) if a)}
        # negative: counted from the end, where the tangents stand
        return tied | {position[i] - count for i in tied if 0 <= i < start and i in position}


@dataclass(frozen=True)
class Pair(_Derived):
    """A kernel and its directional derivative: leaves and tangents in, results and their tangents out."""

    of: Base
    active: tuple[bool, ...]

    def out_structs(self, leaves):
        return 2 * self.of.out_structs(leaves[: len(self.active)])

    def run(self, leaves):
        n = len(self.active)
        out, dout = self.of.kernel.pair_rule(self.of, *_match(leaves[:n], leaves[n:], self.active))
        return [*out, *dout]

    @property
    def tied(self):
        return self.of.tied


def _match(primals, tangents, active):
    """Primals, and tangents of all of them (None: zero); one may have a batch that the other lacks."""
    primals, it = list(primals), iter(tangents)
    full = [next(it) if a else None for a in active]
    for i, t in enumerate(full):
        if t is not None:
            primals[i], full[i] = jnp.broadcast_arrays(primals[i], t)
    return primals, full


@dataclass(frozen=True)
class Adjoint:
    """Cotangents of the active leaves of a program; takes its leaves, (its results,) and cotangents."""

    of: Any
    active: tuple[bool, ...]
    results: int
    uses_output = False

    def out_structs(self, leaves):
        return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x, a in zip(leaves, self.active) if a]

    def run(self, leaves):
        n = len(self.active)
        primals, out = list(leaves[:n]), list(leaves[n : len(leaves) - self.results])
        cotangents = list(leaves[len(leaves) - self.results :])
        rule = getattr(getattr(self.of, "kernel", None), "adjoint_rule", None)
        if rule is not None:
            return rule(self.of, primals, out, self.active, cotangents)
        return partial_vjp(self.of.run, primals, self.active, cotangents)

    @property
    def topology(self):
        return self.of.topology

    def deciders(self, count):
        return tuple(i for i, a in enumerate(self.active) if a)

    @property
    def tied(self):
        return frozenset(i for i, a in enumerate(self.active) if a)


def partial_jvp(run, primals, tangents):
    """Tangents of run(primals) for those primals whose tangent is not None."""
    active = [t is not None for t in tangents]
    with differentiable_sweeps():
        f = lambda *xs: list(run(merge(primals, active, xs)))  # noqa: E731
        moved = [p for p, a in zip(primals, active) if a]
        return jax.jvp(f, tuple(moved), tuple(t for t in tangents if t is not None))[1]


def partial_vjp(run, primals, active, cotangents):
    """Cotangents of the active primals of run(primals)."""
    with differentiable_sweeps():
        f = lambda *xs: list(run(merge(primals, active, xs)))  # noqa: E731
        out, pull = jax.vjp(f, *(p for p, a in zip(primals, active) if a))
        return pull([jnp.broadcast_to(c, y.shape) for c, y in zip(cotangents, out)])


def merge(leaves, chosen, new):
    it = iter(new)
    return [next(it) if c else x for x, c in zip(leaves, chosen)]


def _is_shape(s) -> bool:
    return type(s) is tuple and all(isinstance(n, int) for n in s)
