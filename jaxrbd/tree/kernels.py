"""Kernels of Systems: the engine's, told how much of a tree one state works on and what of a System it needs.

Every kernel here computes with the mechanism alone. The other leaves (actuators, limits, shapes, ...) stay
outside, so that a batch in which each state has its own does not carry them through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jaxrbd.engine import kernel as engine
from jaxrbd.joints import PITCH
from jaxrbd.model.leaves import LOOPS, MECHANISM, leaf_shapes
from jaxrbd.model.system import System
from jaxrbd.tree.nodes import nodes_of


def kernel(shape: Callable, single: Callable | None = None, small: int = 1, suits: Callable | None = None):
    """Decorator; see `jaxrbd.engine.kernel.kernel`. The first argument is a System, or has its `topology`."""
    return engine.kernel(shape, extent, single, small, only=mechanism, suits=suits)


def extent(model) -> tuple[int, int]:
    nodes = nodes_of(model.topology.opened)
    return nodes.size, nodes.width


def mechanism(model):
    """A System without the leaves that no equation of motion reads: they are None."""
    if not isinstance(model, System):
        return model
    used = set(MECHANISM) - unused_axes(model) | set(LOOPS if model.topology.clusters else ())
    unread: dict[str, Any] = {key: None for key in leaf_shapes(model.topology) if key not in used}
    return replace(model, **unread)


def unused_axes(sys: System) -> set[str]:
    """Second axes and pitches, if no joint has one (`joints.py` asks the same); paths may read both."""
    nodes = nodes_of(sys.topology.opened)
    if nodes.paths:
        return set()
    unused = set() if (nodes.axis[nodes.live] > 0).any() else {"axis2"}
    return unused if (nodes.slides == PITCH).any() else unused | {"pitch"}
