"""Signed distance with cylinders and ellipsoids: the largest separation s(n) over all directions n.

s(n) = min_A n·a - max_B n·b. Its maximum lies at a normal of a face, on the circle of normals of an edge (or
two of them), or inside the normals of a pair of patches; on each of these s is smooth:

    f(n) = n·(c_A - c_B) - |M_A n| - |M_B n|.

Every pair of patches is climbed by Newton steps on the sphere, from a few starts, for a fixed number of
iterations; s of any direction is a lower bound, so the largest one found is taken. One further Newton step
carries the gradients: at a maximum its derivative is that of the maximum itself.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.collision.manifold import clipped
from jaxrbd.collision.patches import Patches, flat, patches, pushed, separation, stretched
from jaxrbd.collision.segments import line_parameters
from jaxrbd.collision.shapes import Placed, Touch, rounded, single
from jaxrbd.collision.vectors import across, divide, dot, fixed, root, slack, unit
from jaxrbd.typing import Array

ITERATIONS = 20
FEW = 12  # pairs of patches up to which every start is tried


class Lane(NamedTuple):
    """A pair of patches; e is zero unless normals are bound to the circle about it."""

    c: Array
    MA: Array
    MB: Array
    e: Array


def smooth(kind_a: str, kind_b: str, count: int, A: Placed, B: Placed) -> Touch:
    """Bodies of which at least one is a cylinder or an ellipsoid."""
    (a, radius_a), (b, radius_b) = patches(kind_a, A), patches(kind_b, B)
    d, x, y, n = separate(a, b)
    if count == 1:
        found = single(d, x, y, n)
    else:
        found = clipped(d, x, y, n, flat(kind_a, A, -n), flat(kind_b, B, n), count)
    return rounded(found, radius_a, radius_b)


def separate(A: Patches, B: Patches) -> tuple[Array, Array, Array, Array]:
    """(distance, a, b, normal from B to A)."""
    lanes = _lanes(A, B)
    isolated = _isolated(A, B)
    bound = _bound(A, B)
    n_found, lane, own, at_isolated = _search(fixed(A), fixed(B), fixed(lanes), fixed(isolated), bound)
    chosen = jax.tree.map(lambda x: x[lane], lanes)
    n = _step(fixed(chosen), _onto(n_found, chosen.e), 1, live=chosen)
    if len(isolated):
        n = jnp.where(own, isolated[at_isolated], n)
    _, i, j = separation(fixed(A), fixed(B), fixed(n))
    a = A.c[i] - pushed(A.M[i], n)[1]
    b = B.c[j] + pushed(B.M[j], n)[1]
    d = dot(n, a - b)
    # which of the two points is the only one of its body: the other one is across from it
    sole_a, sole_b = ~own & (bound[lane] == 2), ~own & (bound[lane] == 1)
    if len(isolated):
        of_a = own & (at_isolated < len(A.normals))
        of_b = own & ~of_a & (at_isolated < len(A.normals) + len(B.normals))
        sole_a, sole_b = sole_a | of_b, sole_b | of_a
    opposite_a, opposite_b = a - d * n, b + d * n
    a, b = jnp.where(sole_b, opposite_b, a), jnp.where(sole_a, opposite_a, b)
    if len(A.e) and len(B.e):
        crossing = own & (at_isolated >= len(A.normals) + len(B.normals))
        k = jnp.maximum(at_isolated - len(A.normals) - len(B.normals), 0) // 2
        x, y = _crossing(A, B, k // len(B.e), k % len(B.e), n)
        a, b = jnp.where(crossing, x, a), jnp.where(crossing, y, b)
    return d, a, b, n


def _crossing(A: Patches, B: Patches, i: Array, j: Array, n: Array) -> tuple[Array, Array]:
    """Nearest points of two lines, each moved onto its body."""
    p, u, q, v = A.line_c[i], A.e[i], B.line_c[j], B.e[j]
    s, t, _ = line_parameters(p, u, q, v)
    return p + s * u - pushed(A.line_M[i], n)[1], q + t * v + pushed(B.line_M[j], n)[1]


def _pairs(A: Patches, B: Patches) -> list[tuple[np.ndarray, np.ndarray]]:
    """Indices (i, j) of patch and patch, line and patch, patch and line."""
    sizes = ((len(A.c), len(B.c)), (len(A.e), len(B.c)), (len(A.c), len(B.e)))
    grids = (np.indices(s).reshape(2, -1) for s in sizes)
    return [(i, j) for i, j in grids]


def _bound(A: Patches, B: Patches) -> Array:
    """Per lane 0, or whose line binds it: 1 for A, 2 for B."""
    return jnp.asarray(np.concatenate([np.full(len(i), k) for k, (i, _) in enumerate(_pairs(A, B))]))


def _lanes(A: Patches, B: Patches) -> Lane:
    (i, j), (k, m), (p, l) = _pairs(A, B)
    join = lambda *x: jnp.concatenate(x)  # noqa: E731
    return Lane(
        join(A.c[i] - B.c[j], A.line_c[k] - B.c[m], A.c[p] - B.line_c[l]),
        join(A.M[i], A.line_M[k], A.M[p]),
        join(B.M[j], B.M[m], B.line_M[l]),
        join(jnp.zeros((len(i), 3), A.c.dtype), A.e[k], B.e[l]),
    )


def _isolated(A: Patches, B: Patches) -> Array:
    """Directions that are normals of faces, or stand on two lines."""
    found = [-A.normals, B.normals]
    if len(A.e) and len(B.e):
        first = A.e[:, None] + 0 * B.e[None]
        n = unit(jnp.cross(first, B.e[None]), across(first)[0]).reshape(-1, 3)
        found.append(jnp.stack([n, -n], 1).reshape(-1, 3))
    return jnp.concatenate(found)


def _onto(n: Array, e: Array) -> Array:
    """n brought onto the circle about e, where there is one."""
    return unit(n - dot(n, e)[..., None] * e, across(unit(e, n))[0])


def _value(lane: Lane, n: Array) -> Array:
    return dot(n, lane.c) - pushed(lane.MA, n)[0] - pushed(lane.MB, n)[0]


def _step(lane: Lane, n: Array, steps: int, live: Lane | None = None) -> Array:
    """A Newton step uphill; with `live`, whose numbers carry gradients, the whole step at a maximum."""
    x = fixed(n)
    circle = dot(lane.e, lane.e)[..., None] > 0.5
    t, o = across(x)
    t = jnp.where(circle, jnp.cross(lane.e, x), t)
    o = jnp.where(circle, 0, o)
    source = lane if live is None else live
    uphill = source.c
    value = dot(x, lane.c)
    H = [jnp.zeros_like(value)] * 3
    for M, of in ((lane.MA, source.MA), (lane.MB, source.MB)):
        m, s = stretched(M, x)
        m = divide(m, s[..., None])
        uphill = uphill - pushed(of, n if live is not None else x)[1]
        value = value - s
        Mt, Mo = (jnp.sum(M * y[..., None, :], -1) for y in (t, o))
        for k, (y, z) in enumerate(((Mt, Mt), (Mt, Mo), (Mo, Mo))):
            H[k] = H[k] - divide(dot(y, z) - dot(m, y) * dot(m, z), s)
    base = n if live is not None else x
    along = t if live is None else jnp.where(circle, jnp.cross(live.e, n), t)  # circles turn with their lines
    g = jnp.stack([dot(along, uphill), dot(o, uphill)], -1)
    a, b, c = H[0] - value, H[1], jnp.where(circle[..., 0], -1, H[2] - value)
    if live is not None:  # at the maximum the gradient along n changes with n: - value (t · dn) is in H
        return _solved_live(base, t, o, g, a, b, c)
    # |H| of a symmetric 2 x 2 matrix: a direction uphill at any point, Newton's at a maximum
    det = jnp.abs(a * c - b * b)
    m = [a * a + b * b + det, b * (a + c), c * c + b * b + det]
    size = root(m[0] + m[2])
    low = 1e-9 * (jnp.abs(a) + jnp.abs(c)) + jnp.finfo(n.dtype).tiny ** 0.5
    a, b, c = (x / jnp.where(size > 0, size, 1) + extra for x, extra in zip(m, (low, 0.0, low)))
    move = _solve(a, b, c, g)
    far = root(dot(move, move))
    move = move * jnp.minimum(1, 0.5 / jnp.where(far > 0, far, 1))[..., None]
    best, top = x, _value(lane, x)
    for share in (1.0, 0.25, 0.05)[:steps]:
        trial = unit(x + share * (move[..., :1] * t + move[..., 1:] * o), x)
        now = _value(lane, trial)
        best = jnp.where((now > top)[..., None], trial, best)
        top = jnp.maximum(now, top)
    return best


def _solve(a: Array, b: Array, c: Array, g: Array) -> Array:
    det = a * c - b * b
    det = jnp.where(det != 0, det, 1)
    return jnp.stack([c * g[..., 0] - b * g[..., 1], a * g[..., 1] - b * g[..., 0]], -1) / det[..., None]


def _solved_live(n: Array, t: Array, o: Array, g: Array, a: Array, b: Array, c: Array) -> Array:
    """n - H⁻¹ g with H fixed: no step at a maximum but in its derivatives."""
    move = -_solve(a, b, c, g)
    limit = 1e-2  # beyond it this is no maximum, or one that is not determined
    size = root(fixed(dot(move, move)))
    move = jnp.where((size < limit)[..., None], move, 0)
    return unit(n + move[..., :1] * t + move[..., 1:] * o, n)


def _search(A: Patches, B: Patches, lanes: Lane, isolated: Array, bound: Array):
    """(direction, lane, whether an isolated direction is better, which)."""
    tol = slack(A.c, B.c, A.c - B.c.mean(0))
    up = jnp.zeros(3, tol.dtype).at[2].set(1)
    centre = unit(A.c.mean(0) - B.c.mean(0), up)
    starts = jnp.concatenate([isolated, centre[None], A.axes, B.axes])
    judge = jax.vmap(lambda n: separation(A, B, n)[0])
    first = judge(starts)
    if len(lanes.c) <= FEW:
        n = jnp.broadcast_to(starts[:, None], (len(starts), *lanes.c.shape))
    else:
        best = starts[jax.lax.top_k(first, 2)[1]]
        n = jnp.concatenate(
            [jnp.broadcast_to(best[:, None], (2, *lanes.c.shape)), _guess(A, B, centre)[None]]
        )
    n = _onto(n, lanes.e)
    n = jax.lax.scan(lambda n, _: (_step(lanes, n, 3), None), n, None, length=ITERATIONS)[0]
    s = jax.vmap(judge)(n)
    # among equals: faces before edges before the rest, and lines only where they are, not beyond their ends
    s = s + tol * jnp.where(bound > 0, jnp.where(jax.vmap(lambda x: _reach(A, B, x, tol))(n), 1, -4), 0)
    k = jnp.argmax(s)
    start, lane = jnp.unravel_index(k, s.shape)
    if not len(isolated):
        return n[start, lane], lane, jnp.asarray(False), jnp.asarray(0)
    alone = first[: len(isolated)]
    i = jnp.argmax(alone)
    return n[start, lane], lane, alone[i] + 2 * tol >= s[start, lane], i


def _guess(A: Patches, B: Patches, centre: Array) -> Array:
    """Per lane a direction that is likely among the normals of both patches."""
    (i, j), (k, m), (p, l) = _pairs(A, B)
    zero = jnp.zeros(3, centre.dtype)
    outs = [unit(x, zero) for x in (A.out, A.line_out, B.out, B.line_out)]
    pairs = [outs[2][j] - outs[0][i], outs[2][m] - outs[1][k], outs[3][l] - outs[0][p]]
    return unit(jnp.concatenate(pairs) + 0.3 * centre, centre)


def _reach(A: Patches, B: Patches, n: Array, tol: Array) -> Array:
    """Whether the point across from a lane's patch lies between the ends of its line; (lanes,)."""
    (i, _), (k, m), (p, l) = _pairs(A, B)
    free, on_a, on_b = jnp.split(n, [len(i), len(i) + len(k)])
    good = [jnp.ones(len(free), bool)]
    x = B.c[m] + pushed(B.M[m], on_a)[1]
    y = A.c[p] - pushed(A.M[p], on_b)[1]
    for point, body, line in ((x, A, k), (y, B, l)):
        at = dot(point - body.line_c[line], body.e[line])
        good.append((at >= body.ends[line, 0] - tol) & (at <= body.ends[line, 1] + tol))
    return jnp.concatenate(good)
