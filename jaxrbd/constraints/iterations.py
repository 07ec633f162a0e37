"""Proximal iterations, whatever factor they stand on, and what may be said of their answer.

Every method corrects accelerations and multipliers by the residuals of both equations,

    r_d = f - M a + Jᵀ lam,   r = c - J a:      (M + JᵀRJ) da = r_d + JᵀR r,   dlam = R (r - J da),

in joint space or along the links, by this matrix or by its dual, J M^-1 Jᵀ + R^-1 ([CABA] Fig. 6). So one iteration
corrects the rounding of the last, and its step is a witness: along an eigenvalue x of R J M^-1 Jᵀ it is x/(1 + x) of
the error that is left, unbalanced forces included. An answer counts only if this step is small even against
the smallest x that the precision can tell from zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrbd.constraints.unmeetable import unmeetable
from jaxrbd.solution import Result, largest

MOST = 40  # iterations where their number is left to the method


@dataclass(frozen=True)
class Settings:
    """Static choices. `iterations` None: as many as the verdict needs, at most `MOST`.

    `fixed` leaves out everything that reverse mode cannot pass: iterations are then a scan.
    """

    method: str
    iterations: int | None
    tolerance: float | None = None
    fixed: bool = False


class Limits(NamedTuple):
    """What counts as small, relative to the largest acceleration or right-hand side."""

    wrong: float  # an answer that far off must not be called right
    noise: float  # steps below are rounding
    met: float  # rows
    contradicting: float  # rows that miss by more are looked at


LIMITS = {"float64": Limits(1e-6, 1e-13, 1e-8, 1e-10), "float32": Limits(1e-2, 3e-6, 1e-3, 1e-4)}


class Method(NamedTuple):
    """A factored problem, batch last."""

    zero: Any  # accelerations of zero, any pytree
    correct: Callable  # (a, lam, r) -> (da, dlam)
    rows: Callable  # a -> J a
    size: Callable  # a -> largest joint acceleration, (B,)
    jacobian: Callable  # () -> J, (m, nv, B)
    stiffness: Any  # (B,) smallest R d over the rows, kappa in `penalties`


class Iterate(NamedTuple):
    a: Any
    lam: Any
    r: Any  # c - s - J a
    s: Any  # what no motion can meet
    step: Any  # (B,) size of the last step, relative to a
    doubt: Any  # (B,) how far s may be off, in units of a
    count: Any  # (B,) iterations made since the (second) start
    looked: Any  # (B,) bool: s was computed
    done: Any  # (B,) bool


class Found(NamedTuple):
    a: Any  # of the method's own kind
    lam: Any  # (m, B)
    history: Any  # (iterations, B) largest |J a - c| after each iteration
    change: Any  # (B,) the last step
    iterations: Any  # (B,)
    verdict: Any  # (B,) `Result` as a number


def iterate(method: Method, c, lam, weight, settings: Settings) -> Found:
    """Correct a = 0 and `lam` until the answer is known to be right, or as often as the settings say."""
    limits = LIMITS[c.dtype.name]
    batch = c.shape[-1:]
    full = lambda x, dtype=c.dtype: jnp.full(batch, x, dtype)  # noqa: E731
    start = Iterate(
        method.zero, lam, c, jnp.zeros_like(c), full(jnp.inf), full(0.0), full(0.0), full(False, bool), full(False, bool)
    )
    wanted = jnp.maximum(1, by_row(c))
    scale = lambda a: jnp.maximum(wanted, 0.1 * method.size(a))  # what rows are small against  # noqa: E731
    length = settings.iterations or MOST

    def advance(x: Iterate) -> Iterate:
        da, dlam = method.correct(x.a, x.lam, x.r)
        a = jax.tree.map(jnp.add, x.a, da)
        size = jnp.maximum(1, method.size(a))
        return x._replace(
            a=a, lam=x.lam + dlam, r=c - x.s - method.rows(a), step=method.size(da) / size, count=x.count + 1
        )

    # the smallest step that a wrong answer can leave; below the noise nothing can be seen
    m, eps = c.shape[0], jnp.finfo(c.dtype).eps
    visible = limits.wrong * jnp.minimum(1, method.stiffness * m * eps)
    small = jnp.maximum(0.3 * visible, limits.noise)

    def finish(x: Iterate, history, count) -> Found:
        size = jnp.maximum(1, method.size(x.a))
        contradict = by_row(x.s) > limits.contradicting * scale(x.a)
        right = (x.step <= small) & (x.doubt * by_row(x.s) <= 0.3 * limits.wrong * size)
        missed = by_row(x.r + x.s)
        met = missed <= (limits.met * scale(x.a) if settings.tolerance is None else settings.tolerance)
        met = met if settings.tolerance is not None else met & ~contradict & right
        verdict = jnp.where(met, Result.converged, jnp.where(right, Result.stationary, Result.not_converged))
        finite = jnp.isfinite(missed) & jnp.isfinite(x.step)
        verdict = jnp.where(finite, verdict, Result.not_converged).astype(c.dtype)
        return Found(x.a, x.lam, history, x.step * size, count, verdict)

    if settings.fixed:

        def fixed(x, _):
            x = advance(x)
            return x, by_row(x.r)

        x, history = jax.lax.scan(fixed, start, length=length)
        return finish(x, history, full(float(length)))

    def once(carry):
        old, history, k, total = carry
        x = advance(old)
        residual = by_row(x.r + x.s)
        if settings.tolerance is not None:
            over = jnp.minimum(x.step * method.size(x.a), by_row(x.r)) < settings.tolerance
        elif settings.iterations is None:
            over = (x.step <= small) & (by_row(x.r) <= limits.contradicting * scale(x.a))
        else:
            over = full(False, bool)
        last = x.count >= length
        # rows that no longer move, or never will
        stuck = (by_row(x.r - old.r) < 0.1 * by_row(x.r)) & (settings.iterations is None) | last
        missed = by_row(x.r) > limits.contradicting * scale(x.a)
        look = ~old.done & ~x.looked & (over | stuck) & (x.count > 1) & missed
        x = jax.lax.cond(jnp.any(look), lambda x: take_out(x, look), lambda x: x, x)
        again = look & (by_row(x.s) > 0)
        x = x._replace(done=old.done | ((over | last) & ~again))
        x = jax.tree.map(lambda a, b: jnp.where(old.done, a, b), old, x)
        total = total + jnp.where(old.done, 0, 1)
        history = jax.lax.dynamic_update_slice(history, jnp.where(old.done, history[k - 1], residual)[None], (k, 0))
        return x, history, k + 1, total

    def take_out(x: Iterate, which) -> Iterate:
        found = unmeetable(method.jacobian(), x.r, weight)
        s = jnp.where(which & (by_row(found.part) > limits.contradicting * scale(x.a)), found.part, 0)
        again = by_row(s) > 0
        fresh = start._replace(s=s, r=c - s, doubt=jnp.where(again, found.doubt, 0))
        x = jax.tree.map(lambda a, b: jnp.where(again, a, b), fresh, x)
        return x._replace(looked=x.looked | which)

    def unfinished(carry):
        x, _, k, _ = carry
        return (k < 2 * length) & ~jnp.all(x.done)

    history = jnp.zeros((2 * length,) + batch, c.dtype)
    x, history, k, total = jax.lax.while_loop(unfinished, once, (start, history, 0, full(0.0)))
    kept = jnp.where((jnp.arange(length) < k)[:, None], history[:length], history[k - 1])
    return finish(x, kept, total)


def by_row(x):
    """Largest magnitude over the rows, (B,)."""
    return largest(x, 0)
