"""The floating dtype that a user asked for, or the default."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.errors import ArgumentError


def resolve_dtype(dtype):
    """None gives float64 where JAX has it enabled, else float32."""
    x64 = jax.config.jax_enable_x64
    if dtype is None:
        return jnp.float64 if x64 else jnp.float32
    dtype = jnp.dtype(dtype)
    if dtype not in (jnp.float32, jnp.float64):
        raise ArgumentError(f"dtype is {dtype}, expected float32 or float64.")
    if dtype == jnp.float64 and not x64:
        raise ArgumentError(
            "dtype is float64, but JAX has it switched off. "
            'Call jax.config.update("jax_enable_x64", True) first.'
        )
    return dtype
