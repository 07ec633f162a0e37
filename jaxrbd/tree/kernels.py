"""Kernels of Systems: the engine's, told how much of a tree one state works on."""

from __future__ import annotations

from collections.abc import Callable

from jaxrbd.engine import kernel as engine
from jaxrbd.tree.nodes import nodes_of


def extent(model) -> tuple[int, int]:
    nodes = nodes_of(model.topology)
    return nodes.size, nodes.width


def kernel(shape: Callable, single: Callable | None = None, small: int = 1):
    """Decorator; see `jaxrbd.engine.kernel.kernel`. The first argument has a `topology`."""
    return engine.kernel(shape, extent, single, small)
