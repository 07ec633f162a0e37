"""Packages that only the viewer needs, imported when they are needed: `import jaxrbd` stays without them."""

from __future__ import annotations

import importlib
from types import ModuleType

from jaxrbd.errors import ArgumentError


def need(module: str, what: str) -> ModuleType:
    """A module of the extra `viewer`, or an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        text = f"{what} needs {error.name}. Install it with: pip install 'jaxrbd[viewer]'"
        raise ArgumentError(text) from None
