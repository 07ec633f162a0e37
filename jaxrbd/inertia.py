"""Inertial parameters that a gradient step cannot make unphysical: the log-Cholesky coordinates.

A rigid body is physical if and only if its pseudo-inertia

    J = [[½ tr(I) 1 - I, h], [hᵀ, m]]      (I about the frame's origin, h = m com)

is positive definite. With J = U Uᵀ and U = e^alpha [[e^d1, s12, s13, t1], [0, e^d2, s23, t2],
[0, 0, e^d3, t3], [0, 0, 0, 1]], any ten real numbers (alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3) give a
body with positive mass, principal moments and the triangle inequality (Rucker and Wensing, 2022).
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.engine.gather import put
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, check_system, find
from jaxrbd.typing import Array, ArrayLike


def pseudo_inertia(mass, com, inertia):
    """J (..., 4, 4) from mass, centre of mass and inertia (xx, xy, xz, yy, yz, zz) about it (..., 6)."""
    xx, xy, xz, yy, yz, zz = jnp.moveaxis(jnp.asarray(inertia), -1, 0)
    half = 0.5 * (xx + yy + zz)
    sigma = jnp.stack(
        [
            jnp.stack([half - xx, -xy, -xz], -1),
            jnp.stack([-xy, half - yy, -yz], -1),
            jnp.stack([-xz, -yz, half - zz], -1),
        ],
        -2,
    )
    com, mass = jnp.asarray(com), jnp.asarray(mass)
    h = mass[..., None] * com
    sigma = sigma + h[..., :, None] * com[..., None, :]
    top = jnp.concatenate([sigma, h[..., None]], -1)
    bottom = jnp.concatenate([h, mass[..., None]], -1)[..., None, :]
    return jnp.concatenate([top, bottom], -2)


def from_pseudo_inertia(J):
    """Mass, centre of mass and inertia about it, from a pseudo-inertia (..., 4, 4)."""
    mass, h = J[..., 3, 3], J[..., :3, 3]
    com = h / mass[..., None]
    sigma = J[..., :3, :3] - h[..., :, None] * com[..., None, :]
    xx, yy, zz = sigma[..., 0, 0], sigma[..., 1, 1], sigma[..., 2, 2]
    off = [-sigma[..., 0, 1], -sigma[..., 0, 2], -sigma[..., 1, 2]]
    return mass, com, jnp.stack([yy + zz, off[0], off[1], xx + zz, off[2], xx + yy], -1)


def log_cholesky_from_pseudo_inertia(J):
    """(..., 10) from J (..., 4, 4), positive definite."""
    flipped = J[..., ::-1, ::-1]
    U = jnp.linalg.cholesky(flipped)[..., ::-1, ::-1]  # upper triangular, J = U Uᵀ
    scale = U[..., 3, 3]
    U = U / scale[..., None, None]
    numbers = [
        jnp.log(scale),
        *(jnp.log(U[..., k, k]) for k in range(3)),
        U[..., 0, 1],
        U[..., 1, 2],
        U[..., 0, 2],
        *(U[..., k, 3] for k in range(3)),
    ]
    return jnp.stack(numbers, -1)


def pseudo_inertia_from_log_cholesky(theta):
    """J (..., 4, 4), positive definite for any theta (..., 10)."""
    alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3 = jnp.moveaxis(jnp.asarray(theta), -1, 0)
    zero, one = jnp.zeros_like(alpha), jnp.ones_like(alpha)
    rows = [
        [jnp.exp(d1), s12, s13, t1],
        [zero, jnp.exp(d2), s23, t2],
        [zero, zero, jnp.exp(d3), t3],
        [zero, zero, zero, one],
    ]
    U = jnp.exp(alpha)[..., None, None] * jnp.stack([jnp.stack(row, -1) for row in rows], -2)
    return U @ jnp.swapaxes(U, -1, -2)


def log_cholesky(sys: System, links: Sequence[str] | None = None) -> Array:
    """Log-Cholesky coordinates (n, 10) of the named links, or of all links with mass.

    `with_log_cholesky(sys, theta, links)` is the inverse. A link that is not physical raises ArgumentError.
    Columns 0-3 are logarithms, 4-9 lengths in metres: for optimisers measure those by the link's own size,
    mean(exp(theta[:, 1:4])).
    """
    index = _link_indices(sys, links)
    J = pseudo_inertia(sys.mass[index], sys.com[index], sys.inertia[index])
    if not isinstance(J, jax.core.Tracer):
        smallest = np.linalg.eigvalsh(np.asarray(J, float))[:, 0]
        scale = np.asarray(jnp.trace(J, axis1=-2, axis2=-1), float)
        bad = [sys.frame_names[i] for i, e, s in zip(index, smallest, scale) if not e > 1e-12 * s]
        if bad:
            names = ", ".join(map(repr, bad[:6])) + (f" and {len(bad) - 6} more" if len(bad) > 6 else "")
            raise ArgumentError(
                f"log_cholesky: {names} cannot be a rigid body: its mass is zero, or its inertia is not "
                "positive definite or breaks the triangle inequality. Correct the model, or pass `links` "
                "without it."
            )
    return log_cholesky_from_pseudo_inertia(J)


def with_log_cholesky(sys: System, theta: ArrayLike, links: Sequence[str] | None = None) -> System:
    """The System with masses, centres of mass and inertias from log-Cholesky coordinates (n, 10).

    Differentiable in theta; every theta gives physical inertias, so optimisers need no projection.
    """
    index = _link_indices(sys, links)
    theta = jnp.asarray(theta, sys.dtype)
    if theta.shape != (len(index), 10):
        raise ArgumentError(f"theta has shape {theta.shape}, expected ({len(index)}, 10): ten per link.")
    mass, com, inertia = from_pseudo_inertia(pseudo_inertia_from_log_cholesky(theta))
    return sys.replace(
        mass=put(sys.mass, index, mass),
        com=put(sys.com, index, com),
        inertia=put(sys.inertia, index, inertia),
    )


def _link_indices(sys: System, links) -> np.ndarray:
    t = check_system(sys, "log_cholesky").topology
    names = sys.frame_names[: t.link_count]
    if links is not None:
        return np.array([find(names, name, "link") for name in links], int)
    if isinstance(sys.mass, jax.core.Tracer):
        raise ArgumentError(
            "log_cholesky: which links have mass cannot be seen under jit. Pass `links`, their names."
        )
    return np.flatnonzero(np.asarray(sys.mass) > 0)
