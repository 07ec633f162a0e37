"""Maximal coordinates: every body free, every joint as rows ([LOOPS] IV)."""

from jaxrbd.maximal.maximal import Maximal, maximal

__all__ = ["Maximal", "maximal"]
