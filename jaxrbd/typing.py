"""Names for what signatures take and return; all of them are JAX's and NumPy's own."""

from __future__ import annotations

import os

from jax import Array
from jax.typing import ArrayLike, DTypeLike
from numpy.typing import ArrayLike as Numbers

__all__ = ["Array", "ArrayLike", "DTypeLike", "Numbers", "StrPath"]

# Array: what functions return. ArrayLike: what they take for it, arrays of JAX and NumPy and plain numbers.
# Numbers: where a model is written down, nested lists and tuples as well.
StrPath = str | os.PathLike[str]
