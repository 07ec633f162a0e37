"""Exceptions of jaxrbd: each message names the place, the cause and the remedy."""

from __future__ import annotations

import os
import re
import sys
import warnings

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LONGEST = 600  # characters of each part of a message


class RbdError(Exception):
    """Base class of every error that jaxrbd raises on purpose."""


class ModelError(RbdError, ValueError):
    """A model description or file that cannot be turned into a System.

    The text reads "<where>: <cause>. <remedy>", where `where` is the file and the element.
    """

    def __init__(self, where: str, cause: str, remedy: str = ""):
        where, cause, remedy = (_tamed(part) for part in (where, cause, remedy))
        self.where, self.cause, self.remedy = where, cause, remedy
        text = f"{where}: {cause.rstrip('.')}."
        super().__init__(f"{text} {remedy}".rstrip())


class FileError(ModelError):
    """A file of jaxrbd's own (a saved System, a run, …) that is damaged, foreign or not writable."""


class ArgumentError(RbdError, ValueError):
    """A wrong shape, dtype, name or option passed to a function."""


class StateWarning(UserWarning):
    """A state that was accepted, but does not fit what it is used for."""


class ModelWarning(UserWarning):
    """Something in a model file that was read, but is unphysical, missing or not represented."""


def warn(text: str) -> None:
    """Give a ModelWarning that points at the line which called into jaxrbd."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, ModelWarning, stacklevel=level + 1)


def short(text: str, limit: int = 60) -> str:
    """Text of a file as a message may quote it: the middle of what is too long left out."""
    if len(text) <= limit:
        return text
    head = (limit - 3) * 2 // 3
    return f"{text[:head]}...{text[len(text) - (limit - 3 - head) :]}"


def _tamed(text: str) -> str:
    """Part of a message without endless names in it."""
    text = re.sub(
        r"(?<=\").{81,}?(?=\")|(?<=').{81,}?(?=')|\S{201,}", lambda found: short(found[0], 80), text
    )
    return short(text, _LONGEST)
