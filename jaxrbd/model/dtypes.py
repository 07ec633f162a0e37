"""The floating dtype that a user asked for, or the default."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.typing import DTypeLike


def resolve_dtype(dtype: DTypeLike | None) -> np.dtype:
    """None gives float64 where JAX has it enabled, else float32."""
    x64 = jax.config.jax_enable_x64
    if dtype is None:
        return jnp.dtype(jnp.float64 if x64 else jnp.float32)
    found = jnp.dtype(dtype)
    if found not in (jnp.float32, jnp.float64):
        raise ArgumentError(f"dtype is {found}, expected float32 or float64.")
    if found == jnp.float64 and not x64:
        raise ArgumentError(
            "dtype is float64, but JAX has it switched off. "
            'Call jax.config.update("jax_enable_x64", True) first.'
        )
    return found
