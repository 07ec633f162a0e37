"""The thirteen systems of [LOOPS] Table II: the public ones as they are known, characters as stand-ins.

Bodies are boxes, parallel to the world's axes in the reference pose. A mechanism is a tree of joints from its
base, the joints that close loops, and for a fixed one a unary joint that welds the base to the world; rows
are counted as the document does, in maximal coordinates: revolute 5, spherical 3, fixed 6.

Stand-ins come from a seeded generator: limbs of revolute joints, and four-bars on them, planar (four
revolute joints, three redundant rows) or spatial (crank and rocker revolute, coupler on two spherical ones).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

import jaxrbd as rbd
from jaxrbd.model.description import Pose

ROWS = {"revolute": 5, "spherical": 3, "fixed": 6}
FREEDOMS = {"revolute": 1, "spherical": 3, "fixed": 0}


class Counts(NamedTuple):
    """A line of Table II, as printed or of a mechanism of ours."""

    base: str
    bodies: int
    joints: int
    dofs: int
    passive: int
    actuated: int
    rows: int
    ratio: float


TABLE = {
    "Box-on-Plane": Counts("free", 1, 0, 6, 0, 0, 0, 1.0),
    "Boxes-Fixed": Counts("free", 2, 1, 6, 0, 0, 6, 1000.0),
    "Nunchuk": Counts("free", 3, 2, 12, 6, 0, 6, 1.0),
    "Fourbar (fixed)": Counts("fixed", 4, 5, 1, 0, 1, 26, 1.0),
    "Fourbar (free)": Counts("free", 4, 4, 7, 5, 1, 20, 1.0),
    "Arm7D": Counts("fixed", 8, 7, 7, 0, 7, 41, 19.54),
    "Quadruped": Counts("free", 13, 12, 18, 6, 12, 60, 29.07),
    "BDX": Counts("free", 15, 14, 14, 6, 14, 70, 42.49),
    "LIMA": Counts("free", 21, 20, 26, 6, 20, 100, 321.39),
    "Misha": Counts("fixed", 22, 24, 23, 0, 23, 121, 90.67),
    "Walker": Counts("free", 31, 36, 42, 18, 24, 180, 99.55),
    "Gazelle": Counts("fixed", 38, 45, 60, 38, 22, 214, 1012.54),
    "IronMan": Counts("fixed", 54, 67, 100, 80, 20, 304, 25544.44),
}


class Body(NamedTuple):
    name: str
    mass: float
    half: np.ndarray  # of the box, (3,)
    centre: np.ndarray  # in the reference pose


class Joint(NamedTuple):
    """Between bodies by number; `parent` -1 is the world. `point` and `axis` are of the reference pose."""

    name: str
    kind: str
    parent: int
    child: int
    point: np.ndarray
    axis: np.ndarray


class Bar(NamedTuple):
    """A four-bar in a plane across y: pivots of crank, coupler, coupler's far end, rocker; joints by number
    among those of the tree."""

    pivots: np.ndarray  # (4, 3)
    crank: int
    coupler: int
    rocker: int


@dataclass
class Mechanism:
    """Bodies (the first is the base), joints of the tree, joints that close loops, four-bars among them."""

    name: str
    fixed: bool = False
    bodies: list[Body] = field(default_factory=list)
    tree: list[Joint] = field(default_factory=list)
    closing: list[Joint] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    actuated: list[str] = field(default_factory=list)  # revolute joints

    @property
    def joints(self) -> list[Joint]:
        return self.tree + self.closing

    def counts(self) -> Counts:
        """Total DoFs as Table II has them: of the joints, and six of a free base."""
        free = sum(FREEDOMS[j.kind] for j in self.joints)
        base = 0 if self.fixed else 6
        mass = [b.mass for b in self.bodies]
        rows = sum(ROWS[j.kind] for j in self.joints)
        n, nj, driven = len(self.bodies), len(self.joints), len(self.actuated)
        kind = "fixed" if self.fixed else "free"
        return Counts(kind, n, nj, free + base, free + base - driven, driven, rows, max(mass) / min(mass))

    def origin(self, k: int) -> np.ndarray:
        """Where a body's own frame is in the reference pose: at its joint of the tree, else at its centre."""
        points = [j.point for j in self.tree if j.child == k]
        return points[0] if points else self.bodies[k].centre

    def corners(self, k: int) -> np.ndarray:
        """(8, 3) of a body's box in its own frame, the lowest first."""
        b = self.bodies[k]
        signs = np.array([[x, y, z] for z in (-1, 1) for x in (-1, 1) for y in (-1, 1)])
        return b.centre - self.origin(k) + signs * b.half

    def system(self, dtype: str = "float64") -> rbd.System:
        """The tree with loops declared; `rbd.maximal` makes free bodies and rows of it."""
        b = rbd.Builder(self.name)
        for k, body in enumerate(self.bodies):
            x, y, z = body.half**2
            inertia = body.mass / 3 * np.diag([y + z, x + z, x + y])
            b.body(body.name, mass=body.mass, com=body.centre - self.origin(k), inertia=inertia)
        moved = {j.child for j in self.tree}
        for k, body in enumerate(self.bodies):
            if k not in moved:
                b.joint(f"{body.name} floats", "free", None, body.name, xyz=body.centre)
        for j in self.tree:
            more = {"axis": j.axis} if j.kind == "revolute" else {}
            at = j.point - self.origin(j.parent)
            b.joint(j.name, j.kind, self.bodies[j.parent].name, self.bodies[j.child].name, xyz=at, **more)
        for j in self.closing:
            kind = {"revolute": "hinge", "spherical": "connect", "fixed": "weld"}[j.kind]
            turn = np.eye(3) if j.kind != "revolute" else _z_along(j.axis)
            mine = Pose(turn, j.point - self.origin(j.child))
            ground = j.parent < 0
            theirs = Pose(turn, j.point if ground else j.point - self.origin(j.parent))
            other = None if ground else self.bodies[j.parent].name
            b.loop(j.name, kind, self.bodies[j.child].name, other, mine, theirs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rbd.ModelWarning)
            return b.build(dtype=dtype)


def _z_along(axis: np.ndarray) -> np.ndarray:
    across = np.cross(axis, np.eye(3)[np.argmin(np.abs(axis))])
    across = across / np.linalg.norm(across)
    return np.stack([across, np.cross(axis, across), axis], 1)


# --- construction ---------------------------------------------------------------------------------------

Y = np.array([0.0, 1.0, 0.0])


def _add(m: Mechanism, name: str, mass: float, half, centre) -> int:
    m.bodies.append(Body(name, mass, np.asarray(half, float), np.asarray(centre, float)))
    return len(m.bodies) - 1


def _join(m: Mechanism, kind: str, parent: int, child: int, point, axis=Y, closes: bool = False) -> int:
    mine = m.closing if closes else m.tree
    front = "the world" if parent < 0 else m.bodies[parent].name
    name = f"{front} to {m.bodies[child].name}"
    mine.append(Joint(name, kind, parent, child, np.asarray(point, float), np.asarray(axis, float)))
    return len(mine) - 1


def _ground(m: Mechanism) -> None:
    """The unary joint that holds the base."""
    m.fixed = True
    _join(m, "fixed", -1, 0, m.bodies[0].centre, closes=True)


def _four_bar(m: Mechanism, parent: int, at, size: float, masses, kind: str = "revolute", rng=None) -> None:
    """Crank, coupler and rocker on a body, in a plane across y; `kind` of the coupler's two joints."""
    corners = np.array([[0, 0, 0], [-0.1, 0, -0.6], [0.9, 0, -0.9], [1.0, 0, 0]])
    if rng is not None:
        corners = corners + 0.05 * rng.normal(size=(4, 3)) * [1, 0, 1]
    p = np.asarray(at, float) + size * corners
    links = []
    for word, (a, b), mass in zip(("crank", "coupler", "rocker"), ((0, 1), (1, 2), (3, 2)), masses):
        half = 0.5 * np.abs(p[b] - p[a]) + 0.05 * size
        links.append(_add(m, f"{word} {len(m.bars)}", mass, half, 0.5 * (p[a] + p[b])))
    crank, coupler, rocker = links
    first = _join(m, "revolute", parent, crank, p[0])
    second = _join(m, kind, crank, coupler, p[1])
    third = _join(m, "revolute", parent, rocker, p[3])
    _join(m, kind, rocker, coupler, p[2], closes=True)
    m.bars.append(Bar(p, first, second, third))


def box_on_plane() -> Mechanism:
    m = Mechanism("Box-on-Plane")
    _add(m, "box", 1.0, [0.1] * 3, [0, 0, 0.1])
    return m


def boxes_fixed() -> Mechanism:
    """The heavy one on top."""
    m = Mechanism("Boxes-Fixed")
    _add(m, "bottom", 1.0, [0.1] * 3, [0, 0, 0.1])
    top = _add(m, "top", 1000.0, [0.1] * 3, [0, 0, 0.3])
    _join(m, "fixed", 0, top, [0, 0, 0.2], closes=True)
    return m


def nunchuk() -> Mechanism:
    """Two rods and a link between them, on spherical joints."""
    m = Mechanism("Nunchuk")
    _add(m, "link", 1.0, [0.05, 0.02, 0.02], [0, 0, 0.05])
    for word, side in (("left", -1), ("right", 1)):
        rod = _add(m, word, 1.0, [0.25, 0.05, 0.05], [side * 0.3, 0, 0.05])
        _join(m, "spherical", 0, rod, [side * 0.05, 0, 0.05])
    return m


def fourbar(fixed: bool) -> Mechanism:
    m = Mechanism(f"Fourbar ({'fixed' if fixed else 'free'})")
    _add(m, "frame", 1.0, [0.25, 0.02, 0.02], [0.25, 0, 0.5])
    _four_bar(m, 0, [0, 0, 0.5], 0.5, (1.0, 1.0, 1.0))
    m.actuated = [m.tree[0].name]
    if fixed:
        _ground(m)
    return m


def character(
    name: str, limbs: tuple[int, ...], bars: tuple[str, ...] = (), fixed: bool = False, seed: int = 0
) -> Mechanism:
    """A stand-in: limbs of so many links each on a base, then four-bars on bodies chosen at random.

    Masses are drawn evenly in their logarithm between 5 kg, the base, and 5 kg / mass ratio, one link.
    """
    row, rng = TABLE[name], np.random.default_rng(seed)
    n = 1 + sum(limbs) + 3 * len(bars)
    mass = 5.0 * row.ratio ** -rng.uniform(0, 1, size=n)
    mass[0], mass[rng.integers(1, n)] = 5.0, 5.0 / row.ratio
    m = Mechanism(name)
    _add(m, "base", mass[0], [0.25, 0.15, 0.08], [0, 0, 1.0])
    axes = np.eye(3)
    for k, links in enumerate(limbs):
        side = np.array([0.2 * (-1) ** k, 0.15 * (-1) ** (k // 2), -0.08])
        at, parent = m.bodies[0].centre + side, 0
        for i in range(links):
            length = rng.uniform(0.08, 0.2)
            link = _add(
                m,
                f"limb {k} link {i}",
                mass[len(m.bodies)],
                [0.03, 0.03, length / 2],
                at - [0, 0, length / 2],
            )
            _join(m, "revolute", parent, link, at, axes[(i + k) % 2] if rng.uniform() < 0.7 else axes[2])
            at, parent = at - [0, 0, length], link
    seats = rng.integers(0, len(m.bodies), size=len(bars))
    for kind, seat in zip(bars, seats):
        shift = rng.uniform(-0.05, 0.05, size=3) + [0, 0.05, 0]
        first = len(m.bodies)
        _four_bar(m, seat, m.bodies[seat].centre + shift, 0.1, mass[first : first + 3], kind, rng)
    if fixed:
        _ground(m)
    roles = [m.tree[: sum(limbs)], [m.tree[b.crank] for b in m.bars], [m.tree[b.rocker] for b in m.bars]]
    roles += [[m.tree[b.coupler] for b in m.bars], m.closing]
    driven = [j.name for role in roles for j in role if j.kind == "revolute"]
    m.actuated = driven[: row.actuated]
    return m


PLANAR, SPATIAL = ("revolute",), ("spherical",)
MAKERS = {
    "Box-on-Plane": box_on_plane,
    "Boxes-Fixed": boxes_fixed,
    "Nunchuk": nunchuk,
    "Fourbar (fixed)": lambda: fourbar(True),
    "Fourbar (free)": lambda: fourbar(False),
    "Arm7D": lambda: character("Arm7D", (7,), fixed=True, seed=1),
    "Quadruped": lambda: character("Quadruped", (3, 3, 3, 3), seed=2),
    "BDX": lambda: character("BDX", (5, 5, 4), seed=3),
    "LIMA": lambda: character("LIMA", (5, 5, 5, 5), seed=4),
    "Misha": lambda: character("Misha", (5, 5, 5), 2 * PLANAR, fixed=True, seed=5),
    "Walker": lambda: character("Walker", (3, 3, 3, 3), 6 * PLANAR, seed=6),
    "Gazelle": lambda: character("Gazelle", (4, 4, 4, 4), 4 * PLANAR + 3 * SPATIAL, fixed=True, seed=7),
    "IronMan": lambda: character("IronMan", (5, 5, 4), 5 * PLANAR + 8 * SPATIAL, fixed=True, seed=8),
}


def mechanism(name: str) -> Mechanism:
    return MAKERS[name]()


def does_not_close(name: str) -> str:
    """Which numbers of a line of Table II the stand-in does not share, and hence cannot."""
    ours, table = mechanism(name).counts(), TABLE[name]
    off = [f"{k} {getattr(table, k)}, here {getattr(ours, k)}" for k in Counts._fields[:-1]
           if getattr(ours, k) != getattr(table, k)]  # fmt: skip
    return "; ".join(off)
