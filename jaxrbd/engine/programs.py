"""What the kernel primitive runs on flat leaves: a kernel, its tangent, both at once, its adjoint.

Programs are hashable, so that each is traced and compiled once. The leaves of a program stand in groups
(`Groups`): its own arguments, the results of the program that it is a derivative of (if a rule wants them),
and tangents or cotangents. Every program knows the shapes of its results (`out_structs`), how to run batch
last (`run`), how much one state of it works on (`extent`), and how it meets a batch: `summed_like` names for
each result the leaf that decides whether it is summed over the batch (the cotangent of what the batch shares
is), `needs_batch` the leaves that must have the whole batch once an outer `vmap` comes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Groups(NamedTuple):
    """The leaves of a program by what they are."""

    primals: list
    results: list
    along: list  # tangents or cotangents


@dataclass(frozen=True)
class Base:
    """A kernel on the leaves of its arguments."""

    kernel: Any
    treedef: Any

    @property
    def uses_output(self) -> bool:
        return self.kernel.uses_output

    def arguments(self, leaves):
        return jax.tree.unflatten(self.treedef, leaves)

    def structs(self, leaves):
        args = self.arguments(leaves)
        dtype = args[0].dtype
        shapes = self.kernel.shape(*args)
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, dtype), shapes, is_leaf=_is_shape)

    def out_structs(self, leaves) -> list:
        return jax.tree.leaves(self.structs(leaves))

    def run(self, leaves) -> list:
        first, *others = self.arguments(leaves)
        n = max(x.shape[-1] for x in leaves)
        widen = lambda x: jnp.broadcast_to(x, x.shape[:-1] + (n,))  # noqa: E731
        # parameters that come as a tree, such as constraints, stay narrow where the batch shares them
        others = [widen(x) if hasattr(x, "shape") else x for x in others]
        return [widen(y) for y in jax.tree.leaves(self.kernel.f(first, *others))]

    def tangent(self, leaves, results, tangents) -> list:
        """Tangents of the results for those of the leaves (None: zero), by a rule if the kernel has one."""
        rule, found = self.kernel.tangent_rule, NotImplemented
        if rule is not None:
            found = rule(self.arguments(leaves), results, self.arguments(tangents))
        return partial_jvp(self.run, leaves, tangents) if found is NotImplemented else found

    def adjoint(self, leaves, results, active, cotangents) -> list:
        """Cotangents of the active leaves."""
        if not any(active):
            return []
        rule, found = self.kernel.adjoint_rule, NotImplemented
        if rule is not None:
            found = rule(self.arguments(leaves), results, self.arguments(active), cotangents)
        if found is NotImplemented:
            return partial_vjp(self.run, leaves, active, cotangents)
        return [x for x, a in zip(self.treedef.flatten_up_to(found), active) if a]

    def pair(self, leaves, tangents) -> tuple[list, list]:
        return self.kernel.pair_rule(self.arguments(leaves), self.arguments(tangents))

    @property
    def extent(self) -> tuple[int, int]:
        return self.kernel.extent(self.arguments([None] * self.treedef.num_leaves)[0])

    def summed_like(self, count: int) -> Sequence[int | None]:
        return (None,) * count

    @property
    def needs_batch(self) -> frozenset[int]:
        return frozenset()


@dataclass(frozen=True)
class Derived(ABC):
    """A derivative of the program `of` by its active leaves; `results` of those it is given too."""

    of: Any
    active: tuple[bool, ...]
    results: int = 0
    uses_output = False

    @property
    def extent(self) -> tuple[int, int]:
        return self.of.extent

    @abstractmethod
    def run(self, leaves) -> list:
        """Results for leaves with the batch last."""

    @property
    def moved(self) -> list[int]:
        """The active leaves."""
        return [i for i, a in enumerate(self.active) if a]

    @property
    def first_along(self) -> int:
        return len(self.active) + self.results

    def groups(self, leaves) -> Groups:
        n, m = len(self.active), self.first_along
        return Groups(list(leaves[:n]), list(leaves[n:m]), list(leaves[m:]))

    def tangent(self, leaves, results, tangents) -> list:
        return partial_jvp(self.run, leaves, tangents)

    def adjoint(self, leaves, results, active, cotangents) -> list:
        return partial_vjp(self.run, leaves, active, cotangents)


@dataclass(frozen=True)
class Tangent(Derived):
    """Directional derivative; takes leaves, results, and tangents of the active leaves."""

    def out_structs(self, leaves) -> list:
        return self.of.out_structs(self.groups(leaves).primals)

    def run(self, leaves) -> list:
        primals, results, tangents = self.groups(leaves)
        primals, full = _match(primals, tangents, self.active)
        return self.of.tangent(primals, results, full)

    def summed_like(self, count: int) -> Sequence[int | None]:
        return self.of.summed_like(count)

    @property
    def needs_batch(self) -> frozenset[int]:
        tangents = {self.first_along + k for k, i in enumerate(self.moved) if i in self.of.needs_batch}
        return self.of.needs_batch | tangents


@dataclass(frozen=True)
class Pair(Derived):
    """A kernel and its directional derivative: leaves and tangents in, results and their tangents out."""

    def out_structs(self, leaves) -> list:
        return 2 * self.of.out_structs(self.groups(leaves).primals)

    def run(self, leaves) -> list:
        primals, _, tangents = self.groups(leaves)
        out, dout = self.of.pair(*_match(primals, tangents, self.active))
        return [*out, *dout]

    def summed_like(self, count: int) -> Sequence[int | None]:
        return self.of.summed_like(count)

    @property
    def needs_batch(self) -> frozenset[int]:
        return self.of.needs_batch


@dataclass(frozen=True)
class Adjoint(Derived):
    """Cotangents of the active leaves; takes leaves, results, and cotangents of the results."""

    def out_structs(self, leaves) -> list:
        return [jax.ShapeDtypeStruct(leaves[i].shape, leaves[i].dtype) for i in self.moved]

    def run(self, leaves) -> list:
        primals, results, cotangents = self.groups(leaves)
        return self.of.adjoint(primals, results, self.active, cotangents)

    def summed_like(self, count: int) -> Sequence[int | None]:
        return self.moved

    @property
    def needs_batch(self) -> frozenset[int]:
        return frozenset(self.moved)


def _match(primals, tangents, active):
    """Primals, and tangents of all of them (None: zero); one may have a batch that the other lacks."""
    primals, it = list(primals), iter(tangents)
    full = [next(it) if a else None for a in active]
    for i, t in enumerate(full):
        if t is not None:
            primals[i], full[i] = jnp.broadcast_arrays(primals[i], t)
    return primals, full


def partial_jvp(run: Callable, primals, tangents) -> list:
    """Tangents of run(primals) for those primals whose tangent is not None."""
    active = [t is not None for t in tangents]
    f = lambda *xs: list(run(merge(primals, active, xs)))  # noqa: E731
    moved = [p for p, a in zip(primals, active) if a]
    return jax.jvp(f, tuple(moved), tuple(t for t in tangents if t is not None))[1]


def partial_vjp(run: Callable, primals, active, cotangents) -> list:
    """Cotangents of the active primals of run(primals)."""
    f = lambda *xs: list(run(merge(primals, active, xs)))  # noqa: E731
    out, pull = jax.vjp(f, *(p for p, a in zip(primals, active) if a))
    return pull([jnp.broadcast_to(c, y.shape) for c, y in zip(cotangents, out)])


def merge(leaves, chosen, new) -> list:
    """Leaves with the chosen ones exchanged for new ones."""
    it = iter(new)
    return [next(it) if c else x for x, c in zip(leaves, chosen)]


def _is_shape(s) -> bool:
    return type(s) is tuple and all(isinstance(n, int) for n in s)
