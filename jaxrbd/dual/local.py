"""What a splitting solver does with one contact, all others held: [LOOPS] Algorithms 2, 3, 4 and one more.

Arrays have the rows of a contact first and the batch last: λ, b (d, B), normal last; b is the velocity of the
contact without its own impulse. Each local solver prepares what depends on D alone once (`prepare`, for all
contacts of a run side by side: (d, d, n, B)) and then answers (`answer`, one contact at a time).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrbd.dual.cones import norm, project_cone, project_disk
from jaxrbd.dual.small import damped_inverse, eigen, times
from jaxrbd.typing import Array


class Contact(NamedTuple):
    """One contact's part of the problem: D of its rows, its radius, what was prepared."""

    D: Array  # (d, d, B)
    mu: Array  # (B,)
    ready: tuple


class Local(Protocol):
    def prepare(self, D: Array, mu: Array) -> tuple:
        """From (d, d, n, B) and (n, B): arrays (..., n, B)."""
        ...

    def answer(self, contact: Contact, lam: Array, b: Array, lift: Array) -> Array:
        """The contact's next λ (d, B); `lift` (B,) is its De Saxcé term, zero for those that do without."""
        ...


def raised(b: Array, lift: Array) -> Array:
    return jnp.concatenate([b[:-1], (b[-1] + lift)[None]])


def safe(x: Array) -> Array:
    return jnp.where(x > 0, x, 1)


# --- projected steps ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConeStep:
    """Algorithm 2: one projected gradient step onto the cone.

    `printed`: its step 3 / tr D exceeds 2 / λ_max where normal and tangents are coupled, and then some
    problems never converge; by default it is 1 / λ_max.
    """

    printed: bool = False

    def prepare(self, D, mu):
        d = D.shape[0]
        if self.printed:
            return (d / safe(sum(D[i, i] for i in range(d))),)
        return (1 / safe(jnp.max(eigen(D)[0], 0)),)

    def answer(self, contact, lam, b, lift):
        z = raised(times(contact.D, lam) + b, lift)
        return project_cone((lam - contact.ready[0] * z)[None], contact.mu[None])[0]


@dataclass(frozen=True)
class NormalThenTangent:
    """Algorithm 3: the normal by its own equation, then the tangents onto the disk of radius μ λ_N.

    `printed`: tangents by 1 / min diag D_TT, from a velocity that has not heard of the new normal impulse; by
    default 1 / λ_max(D_TT), and it has.
    """

    printed: bool = False

    def prepare(self, D, mu):
        d = D.shape[0] - 1
        if self.printed:
            step = jnp.min(jnp.stack([D[i, i] for i in range(d)]), 0)
        else:
            step = jnp.max(eigen(D[:d, :d])[0], 0)
        return (1 / safe(step), jnp.where(D[d, d] > 0, 1 / safe(D[d, d]), 0))

    def answer(self, contact, lam, b, lift):
        D, (step, give) = contact.D, contact.ready
        z = raised(times(D, lam) + b, lift)
        normal = jnp.maximum(lam[-1] - give * z[-1], 0)
        tangent = z[:-1] if self.printed else z[:-1] + D[:-1, -1] * (normal - lam[-1])
        t = project_disk(lam[:-1] - step * tangent, contact.mu * normal)
        return jnp.concatenate([t, normal[None]])


# --- exact solutions ------------------------------------------------------------------------------------
#
# With the normal velocity zero, λ_N = a_0 + a·x for the tangential impulse x, where a_0 = -b_N / D_NN and
# a = -D_NT / D_NN, and the tangential velocity is S x + c with the Schur complement
# S = D_TT - D_TN D_NT / D_NN and c = b_T - D_TN b_N / D_NN. All of it in the eigenvectors of S.


class Schur(NamedTuple):
    s: Array  # eigenvalues of S, (d-1, B)
    U: Array  # (d-1, d-1, B)
    a: Array  # (d-1, B), in eigenvectors
    couple: Array  # D_TN / D_NN, (d-1, B)
    give: Array  # 1 / D_NN, 0 where the contact cannot move


def schur(D: Array) -> Schur:
    t = D.shape[0] - 1
    normal = D[t, t]
    give = jnp.where(normal > 0, 1 / safe(normal), 0)
    couple = D[:t, t] * give
    S = D[:t, :t] - couple[:, None] * D[t, :t][None]
    s, U = eigen(S)
    floor = 8 * jnp.finfo(D.dtype).eps * jnp.max(jnp.stack([D[i, i] for i in range(t)]), 0)
    return Schur(
        jnp.maximum(s, jnp.where(floor > 0, floor, 1)), U, times(jnp.swapaxes(U, 0, 1), -couple), couple, give
    )


def unpack(schur: Schur, b: Array) -> tuple[Array, Array]:
    """a_0 (B,) and c (d-1, B) in eigenvectors."""
    return -b[-1] * schur.give, times(jnp.swapaxes(schur.U, 0, 1), b[:-1] - schur.couple * b[-1])


def pack(schur: Schur, x: Array, a_0: Array, closed: Array) -> Array:
    """λ from x in eigenvectors; zero where the contact is open."""
    normal = a_0 + jnp.sum(schur.a * x, 0)
    return jnp.where(closed, jnp.concatenate([times(schur.U, x), normal[None]]), 0)


@dataclass(frozen=True)
class ExactCoulomb:
    """The contact's own NCP: open, stick, or slip with the impulse against the sliding velocity.

    Slip: S x + c = -α x with α > 0 and |x| = μ λ_N. The ratio μ λ_N / |x| is almost linear in α: Newton's
    method on it, in a bracket that is known beforehand.
    """

    iterations: int = 8

    def prepare(self, D, mu):
        return tuple(schur(D))

    def answer(self, contact, lam, b, lift):
        del lam, lift  # λ does not depend on where it starts, and Γ is part of the law
        S, mu = Schur(*contact.ready), contact.mu
        a_0, c = unpack(S, b)
        held = lambda x: lax.stop_gradient(x)  # noqa: E731

        def ratio(alpha, S, a_0, c, mu):
            """μ λ_N / |x| - 1, its slope, and x; positive where x = 0."""
            x = -c / (S.s + alpha)
            square = jnp.sum(x * x, 0)
            live = square > 0
            square = jnp.where(live, square, 1)
            r = jnp.sqrt(square)
            normal = a_0 + jnp.sum(S.a * x, 0)
            turn = x / (S.s + alpha)
            slope = -mu * (jnp.sum(S.a * turn, 0) - normal * jnp.sum(x * turn, 0) / square) / r
            return jnp.where(live, mu * normal / r - 1, 1), jnp.where(live, slope, 0), x

        def root():
            """α, zero where the contact sticks; not differentiated."""
            fixed = held((S, a_0, c, mu))
            tiny = jnp.finfo(b.dtype).tiny ** 0.5
            reach = norm(fixed[2], 0) * (1 + fixed[3] * norm(fixed[0].a, 0))
            high = reach / jnp.maximum(fixed[3] * fixed[1], tiny)
            start, slope, _ = ratio(jnp.zeros_like(high), *fixed)

            def newton(_, now):
                alpha, low, high = now
                g, slope, _ = ratio(alpha, *fixed)
                low, high = jnp.where(g < 0, alpha, low), jnp.where(g < 0, high, alpha)
                new = alpha - g / jnp.where(slope > 0, slope, 1)
                good = (slope > 0) & (new >= low) & (new <= high)  # at the root it stays where it is
                return jnp.where(good, new, 0.5 * (low + high)), low, high

            first = jnp.clip(-start / jnp.where(slope > 0, slope, 1), 0, high)
            found = lax.fori_loop(0, self.iterations, newton, (first, jnp.zeros_like(high), high))[0]
            return jnp.where(start >= 0, 0, found), start >= 0

        alpha, stick = held(root())
        g, slope, _ = ratio(alpha, S, a_0, c, mu)
        step = g / jnp.where(held(slope) > 0, held(slope), 1)  # zero at the root, but its derivative is not
        x = ratio(jnp.where(stick, 0, jnp.maximum(alpha - step, 0)), S, a_0, c, mu)[2]
        x = jnp.where(stick, x, _onto_cone(S, x, a_0, mu))
        return pack(S, jnp.where(mu > 0, x, 0), a_0, (b[-1] < 0) & (S.give > 0))


def _onto_cone(S: Schur, y: Array, a_0: Array, mu: Array) -> Array:
    """x along y with |x| = μ λ_N: what is left of the root goes into the sliding velocity."""
    r = norm(y, 0)
    along = 1 - mu * jnp.sum(S.a * y, 0) / safe(r)
    return y * jnp.where((along > 0) & (r > 0), mu * a_0 / (safe(along) * safe(r)), 1)


@dataclass(frozen=True)
class ConicSection:
    """Algorithm 4, after Preclik: the slipping impulse that dissipates most, where cone and plane meet.

    The plane is where the normal velocity vanishes; x(θ) = ρ(θ) (cos θ, sin θ) with ρ = μ a_0 / (1 - μ a·t).
    Not the NCP's answer where normal and tangents are coupled. `search`: "all" looks over the whole section
    for the smallest objective (the document solves a quartic), "bisection" walks from the sticking impulse's
    direction (RaiSim). Contacts of dimension 3.
    """

    search: str = "all"
    samples: int = 16
    halvings: int = 24

    def prepare(self, D, mu):
        return (*schur(D), *damped_inverse(D, 8 * float(np.finfo(D.dtype).eps)).reshape((9,) + D.shape[2:]))

    def answer(self, contact, lam, b, lift):
        del lam
        S, mu = Schur(*contact.ready[:5]), contact.mu
        inverse = jnp.stack(contact.ready[5:]).reshape((3, 3) + b.shape[1:])
        stuck = -times(inverse, raised(b, lift))
        stick = norm(stuck[:-1], 0) <= mu * stuck[-1]
        a_0, _ = unpack(S, b)
        _, c = unpack(S, raised(b, lift))

        def at(theta):
            t = jnp.stack([jnp.cos(theta), jnp.sin(theta)])
            along = 1 - mu * jnp.sum(S.a * t, 0)
            return t, jnp.where(along > 1e-6, mu * a_0 / jnp.where(along > 1e-6, along, 1), jnp.inf)

        def objective(theta):
            t, rho = at(theta)
            found = 0.5 * rho * rho * jnp.sum(S.s * t * t, 0) + rho * jnp.sum(c * t, 0)
            return jnp.where(jnp.isfinite(rho), found, jnp.inf)

        def slope(theta):
            t, rho = at(theta)
            rho = jnp.where(jnp.isfinite(rho), rho, 0)
            across = jnp.stack([-t[1], t[0]])
            grow = rho * rho * jnp.sum(S.a * across, 0) / jnp.maximum(a_0, jnp.finfo(b.dtype).tiny ** 0.5)
            gradient = S.s * rho * t + c
            return jnp.sum(gradient * (grow * t + rho * across), 0)

        width = 2 * jnp.pi / self.samples
        if self.search == "all":
            grid = width * jnp.arange(self.samples, dtype=b.dtype)
            values = jnp.stack([objective(jnp.full_like(mu, g)) for g in grid])
            middle = grid[jnp.argmin(values, 0)]
        else:
            start = times(jnp.swapaxes(S.U, 0, 1), stuck[:-1])
            middle, width = jnp.arctan2(start[1], start[0]), jnp.pi / 2

        def halve(_, x):
            low, high = x
            mid = 0.5 * (low + high)
            down = slope(mid) < 0
            return jnp.where(down, mid, low), jnp.where(down, high, mid)

        low, high = lax.fori_loop(0, self.halvings, halve, (middle - width, middle + width))
        # Newton's last step: the digits that halving leaves, and the derivative that comparisons do not have
        theta = lax.stop_gradient(0.5 * (low + high))
        value, bend = jax.jvp(slope, (theta,), (jnp.ones_like(theta),))
        step = value / safe(lax.stop_gradient(bend))
        theta = theta - jnp.where((bend > 0) & (jnp.abs(step) < 1e-3), step, 0)
        t, rho = at(theta)
        x = jnp.where(jnp.isfinite(rho), rho, 0) * t
        slip = pack(S, jnp.where(mu > 0, x, 0), a_0, True)
        closed = (b[-1] < 0) & (S.give > 0)
        return jnp.where(closed, jnp.where(stick & (mu > 0), stuck, slip), 0)
