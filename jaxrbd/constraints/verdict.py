"""What may be said of an answer.

The step of an iteration is a witness: along an eigenvalue x of R J M^-1 Jᵀ it is x/(1 + x) of the error that
is left, unbalanced forces included. An answer counts only if this step is small even against the smallest x
that the precision can tell from zero.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrbd.constraints.method import Found, Iterate, Method, Settings
from jaxrbd.constraints.unmeetable import unmeetable
from jaxrbd.solution import Result, largest


class Limits(NamedTuple):
    """What counts as small, relative to the largest acceleration or right-hand side."""

    wrong: float  # an answer that far off must not be called right
    noise: float  # steps below are rounding
    met: float  # rows
    contradicting: float  # rows that miss by more are looked at


LIMITS = {"float64": Limits(1e-6, 2e-13, 1e-8, 1e-10), "float32": Limits(1e-2, 5e-6, 1e-3, 1e-4)}


class Verdict:
    """When the iterations of one problem are over, and what their answer is worth."""

    def __init__(self, c, weight, penalty, mobility, settings: Settings):
        self.c, self.weight, self.settings = c, weight, settings
        self.limits = LIMITS[c.dtype.name]
        self.length, self.free = settings.length, settings.iterations is None
        self.wanted = jnp.maximum(1, by_row(c))
        # the smallest step that a wrong answer can leave; below the noise nothing can be seen
        stiffness = jnp.min(penalty * mobility, 0)
        visible = self.limits.wrong * jnp.minimum(1, stiffness * c.shape[0] * jnp.finfo(c.dtype).eps)
        self.visible = jax.lax.stop_gradient(0.3 * visible)

    def small_rows(self, method: Method, a):
        """What rows are small against: the right-hand side, or what accelerations round off."""
        return jnp.maximum(self.wanted, 0.1 * method.size(a))

    def small(self, method: Method, a):
        """Steps, relative to a, that are rounding or leave no wrong answer."""
        noise = self.limits.noise * self.wanted / jnp.maximum(1, method.size(a))
        return jnp.maximum(self.visible, jnp.clip(noise, self.limits.noise, 1e-2 * self.limits.wrong))

    def over(self, method: Method, x: Iterate):
        """Whether a state is done."""
        if self.settings.tolerance is not None:
            step = x.step * jnp.maximum(1, method.size(x.a))
            # [CABA] Alg. 3, line 6; Alg. 4, line 14, here with the same test
            return jnp.minimum(step, by_row(x.r)) < self.settings.tolerance
        if self.settings.iterations is not None and not self.settings.adaptive:
            return jnp.zeros(x.done.shape, bool)
        met = by_row(x.r) <= self.limits.contradicting * self.small_rows(method, x.a)
        # up to three iterations as far as rounding, then as far as the verdict needs
        enough = (x.step <= self.small(method, x.a)) & (x.count >= 3)
        return ((x.step <= self.limits.noise) | enough) & met

    def judge(self, method: Method, x: Iterate, history) -> Found:
        """The verdict on an answer whose last (or next) step is known; derivatives pass by it."""
        still = jax.lax.stop_gradient
        missed = by_row(x.r) > self.limits.contradicting * self.small_rows(method, x.a)

        def without_contradiction(x):
            found = unmeetable(method.jacobian(), x.r, self.weight)
            da, _ = method.correct(x.a, x.lam, x.r - found.part, None)
            step = method.size(da) / jnp.maximum(1, method.size(x.a))
            # multipliers have grown by every iteration, and their rounding with them
            settled = jnp.where(step <= 0.1 * self.limits.wrong, 0, jnp.inf)
            return found.part, jnp.where(missed, settled, x.step), found.doubt

        nothing = lambda x: (jnp.zeros_like(x.r), x.step, x.doubt)  # noqa: E731
        s, step, doubt = still(jax.lax.cond(jnp.any(missed), without_contradiction, nothing, still(x)))
        judged = still(x)._replace(s=s, r=still(x.r) - s, step=step, doubt=doubt)
        found = self.finish(method, judged, history)
        return found._replace(a=x.a, lam=x.lam, change=x.step * jnp.maximum(1, method.size(x.a)))

    def finish(self, method: Method, x: Iterate, history) -> Found:
        limits, tolerance = self.limits, self.settings.tolerance
        size, small_rows = jnp.maximum(1, method.size(x.a)), self.small_rows(method, x.a)
        right = (x.step <= self.small(method, x.a)) & (x.doubt * by_row(x.s) <= 0.3 * limits.wrong * size)
        right &= by_row(x.r) <= limits.met * small_rows  # what can be met is
        missed = by_row(x.r + x.s)
        if tolerance is None:
            met = (
                right
                & (missed <= limits.met * small_rows)
                & (by_row(x.s) <= limits.contradicting * small_rows)
            )
        else:
            met = missed <= tolerance
        verdict = jnp.where(met, Result.converged, jnp.where(right, Result.stationary, Result.not_converged))
        finite = jnp.isfinite(missed) & jnp.isfinite(size) & jnp.isfinite(x.step)
        verdict = jnp.where(finite, verdict, Result.not_converged).astype(self.c.dtype)
        return Found(x.a, x.lam, history.at[-1].set(missed), x.step * size, x.total, verdict)

    def contradicts(self, method: Method, x: Iterate):
        """Rows miss by more than a few iterations leave of rows that agree, and nobody has looked yet."""
        much = 30 * self.limits.contradicting * self.small_rows(method, x.a)
        return ~x.looked & (by_row(x.r) > much)


def by_row(x):
    """Largest magnitude over the rows, (B,)."""
    return largest(x, 0)
