"""Exceptions of jaxrbd: each message names the place, the cause and the remedy."""

from __future__ import annotations


class RbdError(Exception):
    """Base class of every error that jaxrbd raises on purpose."""


class ModelError(RbdError, ValueError):
    """A model description or file that cannot be turned into a System.

    The text reads "<where>: <cause>. <remedy>", where `where` is the file and the element.
    """

    def __init__(self, where: str, cause: str, remedy: str = ""):
        self.where, self.cause, self.remedy = where, cause, remedy
        text = f"{where}: {cause.rstrip('.')}."
        super().__init__(f"{text} {remedy}".rstrip())


class ArgumentError(RbdError, ValueError):
    """A wrong shape, dtype, name or option passed to a function."""


class StateWarning(UserWarning):
    """A state that was accepted, but does not fit what it is used for."""


class ModelWarning(UserWarning):
    """Something in a model file that was read, but is unphysical, missing or not represented."""
