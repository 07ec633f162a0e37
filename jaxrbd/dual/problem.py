"""One dual problem: find λ in K with  K* ∋ v̂ ⟂ λ,  v⁺ = D λ + v_f,  v̂ = v⁺ + Γ(v⁺)  ([LOOPS] III).

Nothing here knows of a robot: D = J M^-1 Jᵀ [1/kg], λ are impulses [N s], v⁺ velocities of the rows after
the event [m/s], v_f what they would be without impulses. Without Γ it is the convex relaxation (CCP), whose
contacts lift off where they slide; with it, Coulomb's law (NCP).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.dual.blocks import Blocks
from jaxrbd.dual.operator import Operator, is_operator
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import pytree, static
from jaxrbd.typing import Array, ArrayLike


@pytree
class Problem:
    """Make one with `dual.problem`, which checks it.

    D          (m, m)    Delassus matrix, symmetric; or an `Operator`: `constraints.delassus_operator`
    v_f        (m,)      velocities of the rows without impulses
    friction   (nc, 3)   of every contact: sliding [1], spinning [m], rolling [m]
    bound      (n,)      of every box: the largest impulse of dry friction
    blocks               which rows are joints, limits, boxes, contacts (static)
    """

    D: jax.Array | Operator
    v_f: jax.Array
    friction: jax.Array
    bound: jax.Array
    blocks: Blocks = static()

    def replace(self, **leaves: Any) -> Problem:
        return replace(self, **leaves)

    @property
    def dtype(self):
        return self.v_f.dtype


def problem(
    D: ArrayLike | Operator,
    v_f: ArrayLike,
    friction: ArrayLike | None = None,
    bound: ArrayLike | None = None,
    *,
    joints: tuple[int, ...] = (),
    limits: int = 0,
    boxes: int = 0,
    contacts: tuple[int, ...] = (),
) -> Problem:
    """A checked `Problem`; rows are joints, limits, boxes, contacts, in this order.

    `joints`: rows of every joint; `contacts`: dimension of every contact, 1, 3, 4 or 6, normal last.
    `friction`: (nc,) for sliding alone, or (nc, 3). Under `jit` values cannot be looked at; there a bad
    number ends in a `Solution` that is not converged.
    """
    blocks = Blocks(tuple(joints), limits, boxes, tuple(contacts))
    v_f = jnp.asarray(v_f)
    free = is_operator(D)
    held: Any = D if free else jnp.asarray(D)
    m, nc = blocks.rows, len(blocks.contacts)
    if held.shape != (m, m):
        raise ArgumentError(
            f"problem: D has shape {held.shape}, but the blocks have {m} rows: "
            f"{sum(blocks.joints)} of joints, {limits} limits, {boxes} boxes, "
            f"{sum(blocks.contacts)} of {nc} contacts."
        )
    if v_f.shape != (m,):
        raise ArgumentError(f"problem: v_f has shape {v_f.shape}, expected ({m},), a number per row.")
    friction = _friction(friction, blocks)
    if bound is None and blocks.boxes:
        raise ArgumentError("problem: boxes need bound=, the largest impulse of each.")
    bound = jnp.zeros(0) if bound is None else jnp.asarray(bound)
    if bound.shape not in ((), (blocks.boxes,)):
        raise ArgumentError(
            f"problem: bound has shape {bound.shape}, expected ({blocks.boxes},), an impulse per box."
        )
    bound = jnp.broadcast_to(bound, (blocks.boxes,))
    _values(v_f=v_f, friction=friction, bound=bound, **({} if free else {"D": held}))
    dtype = jax.eval_shape(held.apply, v_f).dtype if free else jnp.result_type(held, v_f, jnp.float32)
    v_f, friction, bound = (x.astype(dtype) for x in (v_f, friction, bound))
    return Problem(held if free else held.astype(dtype), v_f, friction, bound, blocks)


def _friction(friction, blocks: Blocks) -> Array:
    nc = len(blocks.contacts)
    if friction is None:
        if any(d > 1 for d in blocks.contacts):
            raise ArgumentError("problem: contacts with friction need friction=, a number per contact.")
        return jnp.zeros((nc, 3))
    friction = jnp.asarray(friction)
    if friction.shape in ((), (nc,)):
        if any(d > 3 for d in blocks.contacts):
            raise ArgumentError(
                "problem: contacts of dimension 4 or 6 need friction of shape (contacts, 3): sliding, "
                "spinning [m], rolling [m]."
            )
        sliding = jnp.broadcast_to(friction, (nc,))
        return jnp.stack([sliding, 0 * sliding, 0 * sliding], -1)
    if friction.shape != (nc, 3):
        raise ArgumentError(f"problem: friction has shape {friction.shape}, expected ({nc},) or ({nc}, 3).")
    return friction


def _values(**arrays) -> None:
    """What can be seen outside of jit: numbers, signs, symmetry."""
    seen = {k: np.asarray(x) for k, x in arrays.items() if not isinstance(x, jax.core.Tracer)}
    for name, x in seen.items():
        if not np.isfinite(x).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
            raise ArgumentError(f"problem: {name}{list(where)} is {x[where]}, expected finite numbers.")
    for name in ("friction", "bound"):
        if name in seen and (seen[name] < 0).any():
            where = tuple(int(i) for i in np.argwhere(seen[name] < 0)[0])
            raise ArgumentError(f"problem: {name}{list(where)} is {seen[name][where]}, expected at least 0.")
    D = seen.get("D", np.zeros((0, 0)))
    size = np.abs(D).max(initial=0)
    slack = 1e-4 if D.dtype == np.float32 else 1e-8
    if np.abs(D - D.T).max(initial=0) > slack * size:
        i, j = (int(k) for k in np.unravel_index(np.abs(D - D.T).argmax(), D.shape))
        raise ArgumentError(
            f"problem: D is not symmetric, D[{i}, {j}] = {D[i, j]:.6g} and D[{j}, {i}] = {D[j, i]:.6g}. "
            "It is J M^-1 Jᵀ; pass (D + D.T) / 2 if the difference is rounding."
        )
