"""Samples: dual problems of the systems at random states, in the seven classes of [LOOPS] VII-C.

A sample is one time step of 2 ms in maximal coordinates. States are closed: the angles of a four-bar follow
from its crank's, by the intersection of two circles, and so do their rates. Contacts are corners of boxes
against a plane that is tilted and stands within 1 mm of every corner (stepping stones, so that any number
of bodies can touch): a plane against a set of points, no collision detection.

    independent joint angles    0.3 rad (1 sigma)        rates       1 rad/s
    base, if free               0.1 rad, 0.05 m          velocity    0.5 rad/s, 0.5 m/s
    torques                     0.5 m g 0.1 m of the driven body     friction    0.3 to 1
    gaps                        -1 to 1 mm               plane       0.1 rad from horizontal
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from benchmarks.loops_suite.systems import Mechanism
from jaxrbd import constraints as con
from jaxrbd.contact.contacts import contact_rows

DT, G = 2e-3, 9.81
SHARE = 0.2  # of errors and overlaps, taken back per step
CLASSES = (
    "independent joints",
    "redundant joints",
    "dense joints",
    "single contact",
    "sparse contacts",
    "dense contacts",
    "dense constraints",
)


@dataclass(frozen=True)
class Sample:
    """One dual problem: joints, then `count` contacts of dimension 3, in `slots` of them."""

    system: str
    kind: str
    joints: tuple[int, ...]
    D: np.ndarray
    v_f: np.ndarray
    mu: np.ndarray
    gap: np.ndarray
    bodies: int
    count: int
    rank: int  # of the Jacobian of the joints

    @property
    def slots(self) -> int:
        return len(self.mu)

    @property
    def joint_rows(self) -> int:
        return sum(self.joints)

    @property
    def rows(self) -> int:
        """Those of the problem, empty slots left out."""
        return self.joint_rows + 3 * self.count

    def densities(self) -> tuple[float, float, float]:
        """d_j, d_c, d_jlc; there are no limits."""
        n = 6 * self.bodies
        return self.joint_rows / n, 3 * self.count / n, self.rows / n

    def conditioning(self) -> tuple[int, float]:
        """Rank of D, and the ratio of its largest eigenvalue to its smallest that is not zero."""
        values = np.linalg.eigvalsh(self.D[: self.rows, : self.rows])
        if not len(values):
            return 0, 1.0
        live = values[values > 1e-11 * values[-1]]
        return len(live), float(live[-1] / live[0])


def classes_of(nb: int, joints: int, joint_rows: int, rank: int, contacts: int) -> set[str]:
    """Every class whose condition in VII-C is met. `rank` of the Jacobian of the joints alone."""
    found = set()
    if not contacts and joints:
        dense = joint_rows >= 6 * nb
        full = rank == joint_rows
        found.add("independent joints" if full else "dense joints" if dense else "redundant joints")
    if contacts == 1:
        found.add("single contact")
    if 2 <= contacts <= 2 * nb:
        found.add("sparse contacts")
    if contacts > 2 * nb:
        found.add("dense contacts")
    if contacts and joints and joint_rows + 3 * contacts > 6 * nb:
        found.add("dense constraints")
    return found


def wanted(m: Mechanism, most_rows: int) -> dict[str, int]:
    """How many contacts a sample of every class has; a class that a system cannot be in is left out.

    So are dense contacts where the problem would have more than `most_rows`.
    """
    nb, joints, rows = len(m.bodies), len(m.joints), m.counts().rows
    found = {"joints": 0} if joints else {}
    found |= {"single contact": 1, "sparse contacts": 2 if nb < 3 else 4}
    if joints:
        found["dense constraints"] = max(3, (6 * nb - rows) // 3 + 1)
    dense = 2 * nb + 2
    return found | ({"dense contacts": dense} if rows + 3 * dense <= most_rows else {})


def slots_of(m: Mechanism, count: int) -> list[tuple[int, np.ndarray]]:
    """(body, corner in its own frame): of the lowest bodies first, a corner of each, then another."""
    low = lambda k: m.bodies[k].centre[2] - m.bodies[k].half[2]  # noqa: E731
    order = sorted(range(1 if m.fixed else 0, len(m.bodies)), key=lambda k: (round(low(k), 6), k))
    every = [(k, m.corners(k)[r]) for r in range(8) for k in order]
    return every[:count]


# --- states ----------------------------------------------------------------------------------------------


def closed(bar, theta: float, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Angles and rates of coupler (to the crank) and rocker, about y, for those of the crank."""
    p = np.stack([bar.pivots[:, 2], bar.pivots[:, 0]], 1)  # angles about y turn z to x
    turn = lambda a: np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])  # noqa: E731
    cross = lambda u, v: u[0] * v[1] - u[1] * v[0]  # noqa: E731
    A0, A1, C1, C0 = p
    elbow = A0 + turn(theta) @ (A1 - A0)
    r1, r2, gap = np.linalg.norm(C1 - A1), np.linalg.norm(C1 - C0), C0 - elbow
    L = np.linalg.norm(gap)
    x = (L * L + r1 * r1 - r2 * r2) / (2 * L)
    y = np.sqrt(r1 * r1 - x * x)
    along = gap / L
    side = np.sign(cross(C0 - A1, C1 - A1))
    tip = elbow + x * along + side * y * np.array([-along[1], along[0]])
    angle = lambda u, v: np.arctan2(cross(u, v), u @ v)  # noqa: E731
    coupler, rocker = angle(C1 - A1, tip - elbow), angle(C1 - C0, tip - C0)
    ahead = lambda u: np.array([-u[1], u[0]])  # noqa: E731
    A = np.stack([ahead(tip - elbow), -ahead(tip - C0)], 1)
    spins = np.linalg.solve(A, -rate * ahead(elbow - A0))
    return np.array([coupler - theta, rocker]), np.array([spins[0] - rate, spins[1]])


def states(m: Mechanism, sys: rbd.System, count: int, rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps from q0, velocities, torques of the tree's coordinates, (count, nv) each."""
    d, v, tau = np.zeros((3, count, sys.nv))
    if not m.fixed:
        for k in range(len(m.bodies)):
            if all(j.child != k for j in m.tree):
                at = sys.v_index(f"{m.bodies[k].name} floats")
                if k == 0:
                    d[:, at] = rng.normal(size=(count, 6)) * [0.1, 0.1, 0.1, 0.05, 0.05, 0.05]
                    v[:, at] = 0.5 * rng.normal(size=(count, 6))
                else:  # welded to the base, whose frame turns about its own origin
                    arm = m.bodies[k].centre - m.bodies[0].centre
                    base = sys.v_index(f"{m.bodies[0].name} floats")
                    d[:, base] = 0
                    v[:, at] = v[:, base]
                    v[:, at][:, 3:] += np.cross(v[:, base][:, :3], arm)
    for j in m.tree:
        at = sys.v_index(j.name)
        n = at.stop - at.start
        d[:, at], v[:, at] = 0.3 * rng.normal(size=(count, n)), rng.normal(size=(count, n))
        push = 0.5 * m.bodies[j.child].mass * G * 0.1 * rng.normal(size=(count, n))
        tau[:, at] = push if j.name in m.actuated else 0
    for bar in m.bars:
        crank, coupler, rocker = (sys.v_index(m.tree[k].name) for k in (bar.crank, bar.coupler, bar.rocker))
        for s in range(count):
            angles, rates = closed(bar, d[s, crank.start], v[s, crank.start])
            for at, x, w in zip((coupler, rocker), angles, rates):
                # a spherical joint turns about y, the second of its three directions
                k = at.start + (1 if at.stop - at.start == 3 else 0)
                d[s, at], v[s, at] = 0, 0
                d[s, k], v[s, k] = x, w
    return d, v, tau


# --- problems --------------------------------------------------------------------------------------------


@dataclass
class Former:
    """D and v_f of one mechanism with so many contact slots, by the library, in one program."""

    m: Mechanism
    slots: int

    def __post_init__(self):
        self.sys = self.m.system()
        self.cut = rbd.maximal(self.sys)
        self.places = slots_of(self.m, self.slots)
        self.run = jax.jit(jax.vmap(self.one))

    @property
    def joints(self) -> tuple[int, ...]:
        rows = self.cut.constraints
        return () if rows is None else tuple(e.rows for e in rows.entries)

    def one(self, d, v, tau, normal, gap, mu):
        free, cut = self.cut.system, self.cut
        Q, V = cut.to_maximal(rbd.integrate(self.sys, self.sys.q0, d), v)
        a = rbd.forward_dynamics(free, Q, V, cut.forces(Q, tau))
        parts = [] if cut.constraints is None else [cut.constraints]
        if self.slots:
            names = [self.m.bodies[k].name for k, _ in self.places]
            poses = [rbd.frame_pose(free, Q, name) for name in names]
            points = jnp.stack([p + R @ x for (R, p), (_, x) in zip(poses, self.places)])
            found = rbd.contact.contacts(
                free, [(name, None) for name in names], points - gap[:, None] * normal,
                jnp.broadcast_to(normal, points.shape), gap, mu,
            )  # fmt: skip
            parts.append(contact_rows(free, Q, found))
        rows = con.combine(*parts)
        D = con.delassus_matrix(free, rows, Q, "efpa")
        v_f = DT * con.constraint_acceleration(free, rows, Q, V, a + V / DT)  # J (V + dt a) + dt J̇ V
        push = SHARE * jnp.minimum(gap, 0) / DT + jnp.maximum(gap, 0) / DT
        v_f = v_f.at[sum(self.joints) + 2 :: 3].add(push)
        return 0.5 * (D + D.T), v_f, Q, V

    def draw(self, count: int, seed: int = 0):
        """What `run` gives for `count` random states (D, v_f, Q, V), and their frictions and gaps."""
        rng = np.random.default_rng([seed, zlib.crc32(self.m.name.encode())])
        d, v, tau = states(self.m, self.sys, count, rng)
        normal = np.concatenate([0.1 * rng.normal(size=(count, 2)), np.ones((count, 1))], 1)
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
        gap = rng.uniform(-1e-3, 1e-3, size=(count, self.slots))
        mu = rng.uniform(0.3, 1, size=(count, self.slots))
        return [np.asarray(x) for x in self.run(d, v, tau, normal, gap, mu)], mu, gap

    def samples(self, groups: list[dict[str, int]], count: int, seed: int = 0) -> list[list[Sample]]:
        """`count` samples per class of every group {class: contacts}; a group's have equally many slots."""
        (D, v_f, _, _), mu, gap = self.draw(count, seed)
        return [
            [
                self.cut_out(kind, n, max(group.values()), D[s], v_f[s], mu[s], gap[s])
                for kind, n in group.items()
                for s in range(count)
            ]
            for group in groups
        ]

    def cut_out(self, kind: str, contacts: int, slots: int, D, v_f, mu, gap) -> Sample:
        """The first `contacts` of them, the other slots empty: zero rows, which stay open."""
        m, n = self.m, sum(self.joints)
        live, every = n + 3 * contacts, n + 3 * slots
        A, b = np.zeros((every, every)), np.zeros(every)
        A[:live, :live], b[:live] = D[:live, :live], v_f[:live]
        empty = np.arange(live, every)
        A[empty, empty] = np.mean(np.diag(D)[:live]) if live else 1.0
        nb, rank = len(m.bodies), rank_of(D[:n, :n])
        met = classes_of(nb, len(m.joints), n, rank, contacts)
        own = next(iter(met)) if kind == "joints" else kind
        if own not in met:
            raise AssertionError(f"{m.name} with {contacts} contacts is not a sample of {kind}")
        return Sample(m.name, own, self.joints, A, b, mu[:slots], gap[:slots], nb, contacts, rank)


def rank_of(D: np.ndarray) -> int:
    """Rank of J from D = J M^-1 Jᵀ, rows scaled to a mobility of one."""
    scale = 1 / np.sqrt(np.diag(D))
    values = np.linalg.eigvalsh(scale[:, None] * D * scale)
    return int(np.sum(values > 1e-11 * values[-1])) if len(values) else 0


def groups(m: Mechanism, most_rows: int) -> list[dict[str, int]]:
    """{class: contacts} of the samples that share a shape: large systems have one of many contacts, too."""
    targets = wanted(m, most_rows)
    if "dense contacts" not in targets or targets["dense contacts"] <= 10:
        return [targets]
    few = {k: n for k, n in targets.items() if n <= 4}
    return [few, {k: n for k, n in targets.items() if k not in few}]
