"""Rows that give way: MuJoCo's softening ([LOOPS] V-D) and constant compliance (CFM, Eq. 87).

    (D + R) λ + v_f + v_r,   R_jj = c D_jj,   v_r = -v⁻ + dt (b v⁻ + k (r - margin)),
    c = (1 - d) / d,   b = 2 / (d_w T),   k = d / (d_w T ζ)²,   d = d_0 + s(|r - margin| / width) (d_w - d_0)

with s the reflected sigmoid of Eq. 103b. The text prints v_r without -v⁻ and shifts r by the midpoint in
Eq. 104a; as written here a row obeys MuJoCo's law, acceleration + R force = -b v - k r.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import pytree
from jaxrbd.typing import Array, ArrayLike

LEAST, MOST = 1e-4, 1 - 1e-4  # impedances are kept in between, as in MuJoCo

RANGES = {
    "d_0": (0, 1, "in [0, 1]"),
    "d_w": (0, 1, "in [0, 1]"),
    "width": (0, np.inf, "at least 0"),
    "midpoint": (0, 1, "in [0, 1]"),
    "power": (1, np.inf, "at least 1"),
    "time": (1e-300, np.inf, "positive"),
    "ratio": (1e-300, np.inf, "positive"),
}


@pytree
class Softening:
    """MuJoCo's solimp (d_0, d_w, width, midpoint, power) and solref (time, ratio); its default numbers.

    A number, or one per slot: limit, contact, dry friction, row of a loop. `time` [s] is the time constant,
    at least two steps; `ratio` the damping ratio; `margin` [m, rad]: limits and contacts act at distances
    below it. `R`: the regulariser of every row, as `efc_R` of MuJoCo has it, instead of c D_jj; contacts have
    their tangents first.
    """

    d_0: ArrayLike = 0.9
    d_w: ArrayLike = 0.95
    width: ArrayLike = 1e-3
    midpoint: ArrayLike = 0.5
    power: ArrayLike = 2.0
    time: ArrayLike = 0.02
    ratio: ArrayLike = 1.0
    margin: ArrayLike = 0.0
    R: ArrayLike | None = None

    def __post_init__(self):
        for name, (low, high, words) in RANGES.items():
            x = getattr(self, name)
            if isinstance(x, (int, float, np.ndarray)):
                seen = np.asarray(x)
                if not ((seen >= low) & (seen <= high)).all():
                    raise ArgumentError(f"Softening: {name} is {x}, expected {words}.")


@pytree
class CFM:
    """Constraint force mixing: v⁺ + compliance λ in place of v⁺; one number [1/kg] or one per row.

    What rows want stays what it is where they are hard.
    """

    compliance: ArrayLike

    def __post_init__(self):
        x = self.compliance
        if isinstance(x, (int, float, np.ndarray)) and not (np.asarray(x) >= 0).all():
            raise ArgumentError(f"CFM: compliance is {x}, expected at least 0.")


@pytree
class Soft:
    """Which kinds of rows give way, each by a `Softening` or a `CFM`; None: hard."""

    joints: Softening | CFM | None = None
    limits: Softening | CFM | None = None
    friction: Softening | CFM | None = None
    contacts: Softening | CFM | None = None

    def __post_init__(self):
        for name in ("joints", "limits", "friction", "contacts"):
            x = getattr(self, name)
            if isinstance(x, (int, float, str, dict, type)):
                raise ArgumentError(
                    f"Soft: {name} is {x!r}, expected contact.Softening(...) or contact.CFM(...)."
                )


def impedance(rule: Softening, r: ArrayLike) -> Array:
    """d(r), [LOOPS] Eq. 103-104 with MuJoCo's argument |r - margin| / width."""
    r = jnp.asarray(r)
    low, high = (jnp.clip(jnp.asarray(d, r.dtype), LEAST, MOST) for d in (rule.d_0, rule.d_w))
    width, power = (jnp.asarray(x, r.dtype) for x in (rule.width, rule.power))
    middle = jnp.clip(jnp.asarray(rule.midpoint, r.dtype), LEAST, MOST)
    flat = width <= 1e-15
    x = jnp.minimum(jnp.abs(r - rule.margin) / jnp.where(flat, 1, width), 1)
    first = x <= middle
    z, m = jnp.where(first, x, 1 - x), jnp.where(first, middle, 1 - middle)
    inside = z > 0  # so that powers of zero leave no NaN in gradients
    y = jnp.where(inside, jnp.where(inside, z, 1) ** power * m ** (1 - power), 0)
    d = low + jnp.where(first, y, 1 - y) * (high - low)
    return jnp.where(flat, 0.5 * (low + high), d)


def give(rule: Softening, r: Array, depth: Array, before: Array, mobility: Array, dt: Array):
    """(R, v_r) of rows: `r` shapes the impedance, `depth` is r - margin, and 0 for rows without a spring."""
    d = impedance(rule, r)
    _, high = (jnp.clip(jnp.asarray(x, d.dtype), LEAST, MOST) for x in (rule.d_0, rule.d_w))
    time = jnp.maximum(jnp.asarray(rule.time, d.dtype), 2 * dt)
    b, k = 2 / (high * time), d / (high * time * rule.ratio) ** 2
    R = (1 - d) / d * mobility if rule.R is None else jnp.broadcast_to(rule.R, d.shape).astype(d.dtype)
    return R, -before + dt * (b * before + k * depth)


def per_row(rule: Softening, slots: int, owner: np.ndarray) -> Softening:
    """Every number but R given per row, from one per slot."""
    spread = {}
    for name in (*RANGES, "margin"):
        x = jnp.asarray(getattr(rule, name))
        if x.shape not in ((), (slots,)):
            raise ArgumentError(f"Softening: {name} has shape {x.shape}, expected a number or ({slots},).")
        spread[name] = jnp.broadcast_to(x, (slots,))[owner]
    if rule.R is not None and jnp.shape(rule.R) not in ((), owner.shape):
        raise ArgumentError(
            f"Softening: R has shape {jnp.shape(rule.R)}, expected {owner.shape}: one per row."
        )
    return Softening(**spread, R=rule.R)
