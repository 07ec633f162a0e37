"""Proximal iterations, whatever factor they stand on, and what may be said of their answer.

Every method corrects accelerations and multipliers by the residuals of both equations,

    r_d = f - M a + Jᵀ lam,   r = c - J a:      (M + JᵀRJ) da = r_d + JᵀR r,   dlam = R (r - J da),

in joint space or along the links, by this matrix or by its dual, J M^-1 Jᵀ + R^-1 ([CABA] Fig. 6). So one
iteration corrects the rounding of the last, and its step is a witness: along an eigenvalue x of R J M^-1 Jᵀ
it is x/(1 + x) of the error that is left, unbalanced forces included. An answer counts only if this step is
small even against the smallest x that the precision can tell from zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrbd.constraints.unmeetable import unmeetable
from jaxrbd.solution import Result, largest

MOST = 48  # iterations where their number is left to the method
BURST = 3  # conjugate gradients in a row
TURNS, GROWTH = 3, 100.0  # of adaptive penalties


@dataclass(frozen=True)
class Settings:
    """Static choices. `iterations` None: as many as the verdict needs, at most `MOST`.

    `adaptive`: where they do not settle, the penalties grow and the iterations go on. `fixed` leaves out
    everything that reverse mode cannot pass: iterations are then a scan.
    """

    iterations: int | None
    tolerance: float | None = None
    adaptive: bool = False
    fixed: bool = False
    judged: bool = True  # whether anybody reads the verdict

    @property
    def length(self) -> int:
        """Of the history."""
        return self.iterations or MOST


class Limits(NamedTuple):
    """What counts as small, relative to the largest acceleration or right-hand side."""

    wrong: float  # an answer that far off must not be called right
    noise: float  # steps below are rounding
    met: float  # rows
    contradicting: float  # rows that miss by more are looked at


LIMITS = {"float64": Limits(1e-6, 2e-13, 1e-8, 1e-10), "float32": Limits(1e-2, 5e-6, 1e-3, 1e-4)}


class Method(NamedTuple):
    """A factored problem, batch last."""

    zero: Any  # accelerations of zero, any pytree
    correct: (
        Callable  # (a, lam, r, load) -> (da, dlam); the forces of the problem act times `load`, None for 1
    )
    rows: Callable  # a -> J a
    size: Callable  # a -> largest joint acceleration, (B,)
    jacobian: Callable  # () -> J, (m, nv, B)
    first: Callable | None = None  # (lam, r) -> (da, dlam) at a = 0, where there is a cheaper way


class Iterate(NamedTuple):
    a: Any
    lam: Any
    r: Any  # c - s - J a
    s: Any  # what no motion can meet
    step: Any  # (B,) size of the last step, relative to a
    doubt: Any  # (B,) how far s may be off, in units of a
    count: Any  # (B,) iterations since the last start
    total: Any  # (B,) all iterations
    looked: Any  # (B,) bool: s was computed
    done: Any  # (B,) bool
    burst: Any  # (B,) how many conjugate gradients are still to come
    tired: Any  # (B,) bool: a burst of them is over
    way: Any  # (da, dlam, J da, zᵀK z): the direction of the last one


class Found(NamedTuple):
    a: Any  # of the method's own kind
    lam: Any  # (m, B)
    history: Any  # (iterations, B) largest |J a - c| after each iteration
    change: Any  # (B,) the last step
    iterations: Any  # (B,)
    verdict: Any  # (B,) `Result` as a number


def iterate(build: Callable, penalty, mobility, c, lam, weight, settings: Settings) -> Found:
    """Correct a = 0 and `lam` until the answer is known to be right, or as often as the settings say.

    `build(R)`: the Method with penalties R; `penalty` and `mobility` of the rows, (m, B).
    """
    run = Run(c, weight, penalty, mobility, settings)
    if settings.fixed:
        return run.fixed(build(penalty), lam)
    if not settings.adaptive:
        method = build(penalty)
        x, history, k = run.settle(method, penalty, *run.start(method, lam))
        return run.finish(method, x, run.record(history, k))

    def again(carry):
        x, history, k, R, turn = carry
        R = jnp.where(x.done | (turn == 0), R, GROWTH * R)
        x = x._replace(count=jnp.zeros_like(x.count))
        return *run.settle(build(R), R, x, history, k), R, turn + 1

    unsettled = lambda carry: (carry[-1] < TURNS) & ~jnp.all(carry[0].done)  # noqa: E731
    method = build(penalty)
    x, history, k = run.start(method, lam)
    x, history, k, *_ = jax.lax.while_loop(unsettled, again, (x, history, k, penalty, 0))
    return run.finish(method, x, run.record(history, k))


class Run:
    """The iterations of one problem: what they look at and when they stop."""

    def __init__(self, c, weight, penalty, mobility, settings: Settings):
        self.c, self.weight, self.settings = c, weight, settings
        self.limits = LIMITS[c.dtype.name]
        self.length = settings.length
        self.wanted = jnp.maximum(1, by_row(c))
        # the smallest step that a wrong answer can leave; below the noise nothing can be seen
        stiffness = jnp.min(penalty * mobility, 0)
        visible = self.limits.wrong * jnp.minimum(1, stiffness * c.shape[0] * jnp.finfo(c.dtype).eps)
        self.visible = jax.lax.stop_gradient(0.3 * visible)

    def start(self, method: Method, lam):
        c = self.c
        number = jnp.zeros(c.shape[-1:], c.dtype)
        flag = jnp.zeros(c.shape[-1:], bool)
        x = Iterate(
            method.zero,
            lam,
            c,
            jnp.zeros_like(c),
            number + jnp.inf,
            number,
            number,
            number,
            flag,
            flag,
            number,
            flag,
            (method.zero, jnp.zeros_like(c), jnp.zeros_like(c), number),
        )
        history = jnp.zeros((2 * self.length,) + c.shape[-1:], c.dtype)
        if method.first is None or self.length == 1:  # the only iteration is looked at in the loop
            return x, history, 0
        new = self.stepped(method, x, *method.first(lam, c))
        lost = ~jnp.isfinite(new.step + by_row(new.r))
        x = jax.tree.map(lambda old, new: jnp.where(lost, old, new), x, new)
        return x, history.at[0].set(by_row(x.r)), 1

    def small_rows(self, method: Method, a):
        """What rows are small against: the right-hand side, or what accelerations round off."""
        return jnp.maximum(self.wanted, 0.1 * method.size(a))

    def small(self, method: Method, a):
        """Steps, relative to a, that are rounding or leave no wrong answer."""
        noise = self.limits.noise * self.wanted / jnp.maximum(1, method.size(a))
        return jnp.maximum(self.visible, jnp.clip(noise, self.limits.noise, 1e-2 * self.limits.wrong))

    def advance(self, method: Method, x: Iterate) -> Iterate:
        """One iteration."""
        return self.stepped(method, x, *method.correct(x.a, x.lam, x.r, None))

    def stepped(self, method: Method, x: Iterate, da, dlam) -> Iterate:
        a = jax.tree.map(jnp.add, x.a, da)
        return self.moved(method, x, a, x.lam + dlam, method.size(da))

    def moved(self, method: Method, x: Iterate, a, lam, step) -> Iterate:
        return x._replace(
            a=a,
            lam=lam,
            r=self.c - x.s - method.rows(a),
            step=step / jnp.maximum(1, method.size(a)),
            count=x.count + 1,
            total=x.total + 1,
        )

    def accelerate(self, method: Method, R, x: Iterate) -> Iterate:
        """One iteration, or one conjugate gradient of  min |c - s - J a|²_R  where iterations have become
        slow.

        The same factor preconditions both. A gradient z = (M + JᵀRJ)^-1 JᵀR r has no part of the forces, so
        that stretching it does not stretch their rounding; balanced forces stay balanced, M z = Jᵀ dlam.
        """
        slow = x.burst > 0
        still = lambda tree: jax.tree.map(lambda y: jnp.where(slow, 0, y), tree)  # noqa: E731
        load = jnp.where(slow, 0, 1).astype(self.c.dtype)
        z, dlam = method.correct(still(x.a), still(x.lam), x.r, load)
        Jz, (*old_way, old) = method.rows(z), x.way
        zKz = jnp.sum(dlam * Jz + R * Jz * Jz, 0)
        later = slow & (x.burst < BURST) & (old > 0)
        beta = jnp.where(later, zKz / jnp.where(later, old, 1), 0)
        p, y, Jp = way = jax.tree.map(lambda z, p: z + beta * p, (z, dlam, Jz), tuple(old_way))
        curve = jnp.sum(R * Jp * Jp, 0)
        stretch = slow & (curve > 0)
        alpha = jnp.where(stretch, zKz / jnp.where(stretch, curve, 1), 1)
        a, lam = jax.tree.map(lambda now, p: now + alpha * p, (x.a, x.lam), (p, y))
        new = self.moved(method, x, a, lam, method.size(z))
        # the step of an iteration tells how much is left; that of a gradient does not
        new = new._replace(step=jnp.where(slow, x.step, new.step), way=(*way, zKz))
        dragging = ~slow & (new.count > 2) & (new.step > self.small(method, new.a))
        dragging &= (new.step > 0.1 * x.step) & ~self.contradicts(method, new)
        burst = jnp.where(dragging, float(BURST), jnp.maximum(x.burst - 1, 0))
        return new._replace(burst=burst, tired=x.tired | (x.burst == 1))

    def contradicts(self, method: Method, x: Iterate):
        """Rows miss by more than a few iterations leave of rows that agree, and nobody has looked yet."""
        much = 30 * self.limits.contradicting * self.small_rows(method, x.a)
        return ~x.looked & (by_row(x.r) > much)

    def settle(self, method: Method, R, x: Iterate, history, k):
        """Iterate until every state is done."""
        last = lambda x: x.count >= self.length  # noqa: E731

        def once(carry):
            old, history, k = carry
            free = self.settings.iterations is None
            x = self.accelerate(method, R, old) if free else self.advance(method, old)
            over = self.over(method, x) & (old.burst == 0)
            missed = by_row(x.r) > self.limits.contradicting * self.small_rows(method, x.a)
            stuck = last(x)
            if free:  # rows that no longer move
                resting = (old.burst == 0) & (by_row(x.r - old.r) < 0.1 * by_row(x.r))
                stuck |= resting & (x.tired | self.contradicts(method, x))
            else:
                missed &= self.contradicts(method, x)
            stopped = old.done | last(old)
            lost = ~stopped & ~jnp.isfinite(x.step + by_row(x.r))  # an answer that overflowed is not taken
            halted = stopped | lost
            look = ~halted & ~x.looked & (over | stuck) & missed & ((x.count > 1) | last(x))
            nothing = lambda r: (jnp.zeros_like(r), jnp.zeros_like(x.doubt))  # noqa: E731
            find = lambda r: tuple(unmeetable(method.jacobian(), r, self.weight))  # noqa: E731
            s, doubt = jax.lax.cond(jnp.any(look), find, nothing, x.r)
            again = look & (by_row(s) > self.limits.contradicting * self.small_rows(method, x.a))
            # where rows contradict each other, start again from zero without what they contradict by
            choose = lambda now, new: jnp.where(halted, now, jnp.where(again, 0, new))  # noqa: E731
            keep = lambda now, new: jax.tree.map(choose, now, new)  # noqa: E731
            s = jnp.where(again, s, x.s)
            x = x._replace(
                a=keep(old.a, x.a),
                lam=keep(old.lam, x.lam),
                r=jnp.where(halted, old.r, jnp.where(again, self.c - s, x.r)),
                s=s,
                step=jnp.where(lost, jnp.inf, jnp.where(halted, old.step, x.step)),
                doubt=jnp.where(again, doubt, x.doubt),
                count=keep(old.count, x.count),
                total=jnp.where(halted, old.total, x.total),
                looked=x.looked | look,
                done=old.done | lost | (over & ~again & ~halted),
                burst=keep(old.burst, x.burst),
                tired=x.tired & ~again,
            )
            residual = by_row(x.r + x.s)
            history = jax.lax.dynamic_update_slice(history, residual[None], (k, 0))
            return x, history, k + 1

        def unfinished(carry):
            return ~jnp.all(carry[0].done | last(carry[0]))

        return jax.lax.while_loop(unfinished, once, (x, history, k))

    def over(self, method: Method, x: Iterate):
        """Whether a state is done."""
        if self.settings.tolerance is not None:
            step = x.step * jnp.maximum(1, method.size(x.a))
            return jnp.minimum(step, by_row(x.r)) < self.settings.tolerance
        if self.settings.iterations is not None and not self.settings.adaptive:
            return jnp.zeros(x.done.shape, bool)
        met = by_row(x.r) <= self.limits.contradicting * self.small_rows(method, x.a)
        # up to three iterations as far as rounding, then as far as the verdict needs
        enough = (x.step <= self.small(method, x.a)) & (x.count >= 3)
        return ((x.step <= self.limits.noise) | enough) & met

    def fixed(self, method: Method, lam) -> Found:
        """A number of iterations that derivatives pass through; the verdict is not part of them."""

        def once(x, _):
            x = self.advance(method, x)
            return x, by_row(x.r)

        x, begun, k = self.start(method, lam)
        x, history = jax.lax.scan(once, x, length=self.length - k)
        history = jnp.concatenate([begun[:k], history])
        return self.judge(method, x, history) if self.settings.judged else self.finish(method, x, history)

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

    def record(self, history, k):
        """One residual per iteration; the last one where fewer were needed."""
        made = jnp.arange(self.length) < k
        return jnp.where(made[:, None], history[: self.length], history[jnp.maximum(k - 1, 0)])

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


def by_row(x):
    """Largest magnitude over the rows, (B,)."""
    return largest(x, 0)
