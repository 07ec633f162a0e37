"""Proximal iterations, whatever factor they stand on.

Every method corrects accelerations and multipliers by the residuals of both equations,

    r_d = f - M a + Jᵀ lam,   r = c - J a:      (M + JᵀRJ) da = r_d + JᵀR r,   dlam = R (r - J da),

in joint space or along the links, by this matrix or by its dual, J M^-1 Jᵀ + R^-1 ([CABA] Fig. 6). So one
iteration corrects the rounding of the last, and its step tells how much is left (`verdict.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxrbd.constraints.method import Found, Iterate, Method, Settings
from jaxrbd.constraints.unmeetable import unmeetable
from jaxrbd.constraints.verdict import Verdict, by_row

BURST = 6  # conjugate gradients in a row
TURNS, GROWTH = 3, 100.0  # of adaptive penalties


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


class Run(Verdict):
    """The iterations of one problem."""

    def fixed(self, method: Method, lam) -> Found:
        """The plain loop, so many iterations: derivatives pass through them, and by the verdict."""

        def once(x, _):
            x = self.advance(method, x)
            return x, by_row(x.r)

        x, begun, k = self.start(method, lam)
        # the loop of `settle` without its break
        x, history = jax.lax.scan(once, x, length=self.length - k)
        history = jnp.concatenate([begun[:k], history])
        return self.judge(method, x, history) if self.settings.judged else self.finish(method, x, history)

    def settle(self, method: Method, R, x: Iterate, history, k):
        """Iterate until every state is done."""

        def once(carry):
            old, history, k = carry
            new = self.accelerate(method, R, old) if self.free else self.advance(method, old)
            stopped = old.done | self.last(old)
            # an answer that overflowed is not taken
            lost = ~stopped & ~jnp.isfinite(new.step + by_row(new.r))
            over = self.over(method, new) & (old.burst == 0)
            halted = stopped | lost
            new, again = self.restarted(method, new, look=~halted & self.suspicious(method, old, new, over))
            x = self.kept(old, new, halted)
            x = x._replace(
                step=jnp.where(lost, jnp.inf, x.step),
                # [CABA] Alg. 3, line 7; Alg. 4, line 15, state by state of a batch
                done=old.done | lost | (over & ~again & ~stopped),
            )
            history = jax.lax.dynamic_update_slice(history, by_row(x.r + x.s)[None], (k, 0))
            return x, history, k + 1

        def unfinished(carry):
            return ~jnp.all(carry[0].done | self.last(carry[0]))

        # [CABA] Alg. 3, line 5; Alg. 4, line 12
        return jax.lax.while_loop(unfinished, once, (x, history, k))

    def record(self, history, k):
        """One residual per iteration; the last one where fewer were needed."""
        made = jnp.arange(self.length) < k
        return jnp.where(made[:, None], history[: self.length], history[jnp.maximum(k - 1, 0)])

    def last(self, x: Iterate):
        return x.count >= self.length

    def kept(self, old: Iterate, new: Iterate, halted) -> Iterate:
        """The new iterate, where a state has halted the old one."""
        names = ("a", "lam", "r", "step", "count", "total", "burst")
        keep = lambda now, new: jnp.where(halted, now, new)  # noqa: E731
        return new._replace(**{k: jax.tree.map(keep, getattr(old, k), getattr(new, k)) for k in names})

    # --- one iteration ---------------------------------------------------------------------------------

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

    def advance(self, method: Method, x: Iterate) -> Iterate:
        """One iteration."""
        # [CABA] Alg. 3, line 8; `accelerate` makes the same correction where x.burst is 0
        return self.stepped(method, x, *method.correct(x.a, x.lam, x.r, None))

    def stepped(self, method: Method, x: Iterate, da, dlam) -> Iterate:
        a = jax.tree.map(jnp.add, x.a, da)
        # [CABA] Alg. 4, line 16: lam + dlam; `accelerate` adds them itself
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
        # a gradient of rounding may lead uphill, and far away: it is not taken
        uphill = slow & ~(jnp.sum(R * new.r * new.r, 0) < jnp.sum(R * x.r * x.r, 0))
        a, lam, r = jax.tree.map(lambda y, now: jnp.where(uphill, now, y), new[:3], x[:3])
        ended = uphill | (x.burst == 1)
        dragging = ~slow & (new.count > 2) & (new.step > self.small(method, new.a))
        dragging &= (new.step > 0.1 * x.step) & ~self.contradicts(method, new)
        burst = jnp.where(dragging, float(BURST), jnp.where(ended, 0, jnp.maximum(x.burst - 1, 0)))
        return new._replace(a=a, lam=lam, r=r, burst=burst, tired=x.tired | ended)

    # --- rows that contradict each other ---------------------------------------------------------------

    def suspicious(self, method: Method, old: Iterate, x: Iterate, over):
        """Iterations are over, or get nowhere, and rows are missed: do they contradict each other?"""
        missed = by_row(x.r) > self.limits.contradicting * self.small_rows(method, x.a)
        stuck = self.last(x)
        if self.free:  # rows that miss by more than an iteration moves them
            resting = (old.burst == 0) & (by_row(x.r - old.r) < by_row(x.r))
            stuck |= resting & (x.tired | self.contradicts(method, x))
        else:
            missed &= self.contradicts(method, x)
        return ~x.looked & (over | stuck) & missed & ((x.count > 1) | self.last(x))

    def restarted(self, method: Method, x: Iterate, look):
        """Where rows contradict each other, start again from zero without what they contradict by."""
        nothing = lambda r: (jnp.zeros_like(r), jnp.zeros_like(x.doubt))  # noqa: E731
        find = lambda r: tuple(unmeetable(method.jacobian(), r, self.weight))  # noqa: E731
        s, doubt = jax.lax.cond(jnp.any(look), find, nothing, x.r)
        again = look & (by_row(s) > self.limits.contradicting * self.small_rows(method, x.a))
        zero = lambda tree: jax.tree.map(lambda y: jnp.where(again, 0, y), tree)  # noqa: E731
        s = jnp.where(again, s, x.s)
        x = x._replace(
            a=zero(x.a),
            lam=zero(x.lam),
            r=jnp.where(again, self.c - s, x.r),
            s=s,
            doubt=jnp.where(again, doubt, x.doubt),
            count=zero(x.count),
            looked=x.looked | look,
            burst=zero(x.burst),
            tired=x.tired & ~again,
        )
        return x, again
