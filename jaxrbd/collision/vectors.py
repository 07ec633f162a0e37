"""Vectors of three numbers whose lengths and directions have gradients without NaN, at zero too."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxrbd.typing import Array


def dot(a: Array, b: Array) -> Array:
    """Sum of products over the last axis."""
    return jnp.sum(a * b, -1)


def length(x: Array) -> Array:
    """Euclidean norm over the last axis; its gradient at zero is zero."""
    return root(dot(x, x))


def root(square: Array) -> Array:
    """Square root, zero with a zero gradient where its argument is not positive."""
    good = square > jnp.finfo(square.dtype).tiny
    return jnp.where(good, jnp.sqrt(jnp.where(good, square, 1)), 0)


def divide(a: Array, b: Array) -> Array:
    """a / b, and zero where b is zero."""
    good = jnp.abs(b) > jnp.finfo(b.dtype).tiny
    return jnp.where(good, a / jnp.where(good, b, 1), 0)


def unit(x: Array, otherwise: Array) -> Array:
    """x over its length, or `otherwise` where that is zero."""
    square = dot(x, x)[..., None]
    good = square > jnp.finfo(x.dtype).tiny
    return jnp.where(good, x / jnp.sqrt(jnp.where(good, square, 1)), otherwise)


def across(n: Array) -> tuple[Array, Array]:
    """Two unit vectors that stand on the unit vector n and on each other, right-handed with it."""
    x, y, z = n[..., 0], n[..., 1], n[..., 2]
    s = jnp.where(z >= 0, 1.0, -1.0).astype(n.dtype)
    a = -1 / (s + z)
    b = x * y * a
    return jnp.stack([1 + s * x * x * a, s * b, -s * x], -1), jnp.stack([b, s + y * y * a, -y], -1)


def off_axis(x: Array, z: Array, otherwise: Array) -> Array:
    """The unit vector along what of the unit vector x stands on z; `otherwise` where rounding decides."""
    rest = x - dot(x, z) * z
    square = dot(rest, rest)
    good = square > (32 * jnp.finfo(x.dtype).eps) ** 2
    u = unit(jnp.where(good, rest, otherwise), otherwise)
    return unit(u - dot(u, z) * z, otherwise)


def fixed(tree: Any) -> Any:
    """The same numbers without their gradients."""
    return jax.tree.map(jax.lax.stop_gradient, tree)


def slack(*points: Array) -> Array:
    """What rounding does to lengths among these points: below it they count as equal."""
    size = jnp.stack([jnp.max(jnp.abs(p)) for p in points]).max()
    return 32 * jnp.finfo(size.dtype).eps * jax.lax.stop_gradient(size)
