"""Random mechanisms under random constraints, seeded, for the campaign about verdicts.

`mechanism(seed)` is a topology: 5 to 40 links on mixed joints, in one to three trees, with welds, points,
rods, hinges, couplings and velocity rows between bodies or with the world, some of them repeated. `samples`
gives problems on it in which only leaves and states vary, so that a solver compiles once per topology:
masses from 1e-6 to 1e6 kg, light fingers, weights from 1e-6 to 1e6, targets that agree or contradict each
other, postures near singular ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import verdict_reference as reference
from verdict_tree import tree

import jaxrbd as rbd
from jaxrbd import constraints as con

JOINTS = ("revolute", "continuous", "prismatic", "spherical", "universal", "cylindrical")
ODDS = (0.5, 0.15, 0.12, 0.08, 0.1, 0.05)
KINDS = (
    "ordinary",
    "weights",
    "scale",
    "fingers",
    "scale and weights",
    "straight",
    "agreeing",
    "contradicting",
    "payload",
    "fast",
)


@dataclass(frozen=True)
class Mechanism:
    name: str
    sys: rbd.System  # float64
    con: con.Constraints


@dataclass(frozen=True)
class Samples:
    """Problems on one mechanism: states and leaves with a batch axis, rounded to a precision."""

    q: np.ndarray
    v: np.ndarray
    tau: np.ndarray
    leaves: dict[str, np.ndarray]  # mass, inertia, armature; weight, target, damping of the rows
    kinds: tuple[str, ...]

    def astype(self, dtype) -> Samples:
        leaves = {k: x.astype(dtype) for k, x in self.leaves.items()}
        return Samples(*(x.astype(dtype) for x in (self.q, self.v, self.tau)), leaves, self.kinds)


def random_tree(rng: np.random.Generator, links: int, name: str) -> rbd.System:
    """One to three trees; a root is free or hangs on the world by any joint."""
    b = rbd.Builder(name)
    extent = 10 ** rng.uniform(-2, 1) if rng.random() < 0.3 else 1.0  # a watch, or a crane
    rotors = rng.random() < 0.3
    roots = int(rng.integers(1, min(3, links // 4 + 1) + 1))
    chainlike = rng.choice([0.3, 0.7, 0.95])
    for i in range(links):
        size = rng.uniform(0.05, 0.2, 3) * extent
        mass = 10 ** rng.uniform(-0.7, 0.7)
        # an inertia that a body can have: of a box of these sides
        inertia = mass / 3 * (np.sum(size**2) - size**2)
        b.body(f"b{i}", mass, com=rng.uniform(-0.1, 0.1, 3) * extent, inertia=inertia)
        parent = None if i < roots else f"b{i - 1 if rng.random() < chainlike else rng.integers(0, i)}"
        kind = "free" if parent is None and rng.random() < 0.5 else str(rng.choice(JOINTS, p=ODDS))
        place: dict = {}
        if kind != "free":
            place = {"xyz": rng.uniform(-0.3, 0.3, 3) * extent, "rpy": rng.uniform(-3, 3, 3)}
            place["armature"] = mass * extent**2 * 0.01 * rotors
        # axes along one of the coordinates half of the time, so that singular postures are not freaks
        if rng.random() < 0.5 and kind != "free":
            place["rpy"] = np.zeros(3)
        axis = np.eye(3)[rng.integers(0, 3)]
        if kind == "universal":
            place["axis2"] = np.roll(axis, 1)
        b.joint(f"j{i}", kind, parent, f"b{i}", axis=axis, **place)
    return b.build(dtype="float64")


def _freedoms(sys, body: int) -> int:
    """How many freedoms move a body."""
    t, count = sys.topology, 0
    while body >= 0:
        count += t.v_starts[body + 1] - t.v_starts[body]
        body = t.parents[body]
    return count


def random_constraint(rng: np.random.Generator, sys: rbd.System) -> con.Constraints:
    """Any kind, with the world or between two bodies."""
    n = len(sys.body_names)
    # far from the root rather than near, so that rows have freedoms to act on
    a = max(rng.integers(0, n, 3), key=lambda k: _freedoms(sys, k))
    b = int(rng.choice([k for k in range(n) if k != a])) if rng.random() < 0.5 else None
    frame, to = sys.body_names[a], None if b is None else sys.body_names[b]
    reach = float(np.max(np.abs(np.asarray(sys.joint_position)), initial=0.0)) or 0.3
    options: dict = {"offset": rng.uniform(-0.7, 0.7, 3) * reach}
    if rng.random() < 0.5:
        options["anchor"] = rng.uniform(-0.7, 0.7, 3) * reach
    scalar = [
        j for j, t in zip(sys.joint_names, sys.joint_types) if t in ("revolute", "continuous", "prismatic")
    ]
    kind = rng.choice(["connect", "weld", "hinge", "hold", "distance", "coupling", "velocity"])
    if kind == "coupling" and len(scalar) > 1:
        x, y = rng.choice(scalar, 2, replace=False)
        if rng.random() < 0.3:
            return con.coupling(sys, str(x), None)
        return con.coupling(
            sys, str(x), str(y), polynomial=(0.1, *rng.uniform(-1, 1, 2) * rng.choice([1, 10]))
        )
    if kind == "velocity":
        matrix = np.zeros((1, sys.nv))
        matrix[0, rng.choice(sys.nv, min(3, sys.nv), replace=False)] = rng.uniform(0.5, 2, min(3, sys.nv))
        matrix *= rng.choice([0.1, 1, 10])
        return con.velocity_rows(sys, matrix)
    if kind == "weld":
        return con.weld(sys, frame, to, **options)
    if kind == "hinge":
        return con.hinge(sys, frame, to, **options)
    if kind == "hold":
        count = int(rng.integers(1, 4))
        directions = rng.choice(["turn_x", "turn_y", "turn_z", "x", "y", "z"], count, replace=False)
        return con.hold(sys, frame, sorted(map(str, directions)), to, **options)
    if kind == "distance":
        return con.distance(sys, frame, to, length=reach, **options)
    return con.connect(sys, frame, to, **options)


@lru_cache
def mechanism(seed: int, links: int | None = None) -> Mechanism:
    rng = np.random.default_rng([20, seed])
    links = int(rng.integers(5, 41)) if links is None else links
    sys = random_tree(rng, links, f"random{seed}")
    parts: list[con.Constraints] = []
    most = max(3, min(24, sys.nv // rng.choice([1, 4])))  # rows, before repetitions
    while not parts or (sum(c.rows for c in parts) < most and rng.random() < 0.8):
        parts.append(random_constraint(rng, sys))
    if rng.random() < 0.35:
        parts += [parts[k] for k in rng.choice(len(parts), min(2, len(parts)), replace=False)]
    return Mechanism(f"{seed}: {links} links, {sum(c.rows for c in parts)} rows", sys, con.combine(*parts))


def _leaf_bodies(sys) -> np.ndarray:
    inner = set(sys.topology.parents)
    return np.array([sys.topology.frame_bodies[k] not in inner for k in range(sys.topology.link_count)])


def samples(m: Mechanism, count: int, seed: int = 0) -> Samples:
    """`count` problems, in turn of the KINDS."""
    rng = np.random.default_rng([21, seed])
    sys, c = m.sys, m.con
    kinds = tuple(KINDS[k % len(KINDS)] for k in range(count))
    is_ = lambda *names: np.array([k in names for k in kinds])  # noqa: E731
    q = random_configurations(
        sys, rng, count, np.where(is_("straight"), 10 ** rng.uniform(-3, -1, count), 1.5)
    )
    v = rng.normal(size=(count, sys.nv)) * rng.choice([0.0, 0.3, 2.0], (count, 1))
    v = np.where(is_("fast")[:, None], 30 * rng.normal(size=v.shape), v)
    scale = np.where(is_("scale", "scale and weights"), 10 ** rng.uniform(-6, 6, count), 1.0)
    each = 10 ** rng.uniform(-0.5, 0.5, (count, len(sys.mass))) * scale[:, None]
    light = np.where(is_("fingers")[:, None] & _leaf_bodies(sys), 10 ** rng.uniform(-4, -2, (count, 1)), 1.0)
    heavy = np.where(is_("payload")[:, None] & _leaf_bodies(sys), 10 ** rng.uniform(1, 3, (count, 1)), 1.0)
    mass = np.asarray(sys.mass) * each * light * heavy
    inertia = np.asarray(sys.inertia) * (each * light * heavy)[:, :, None]
    decades = np.where(is_("weights", "scale and weights"), 6.0, np.where(is_("contradicting"), 1.0, 0.0))
    weight = 10 ** (decades[:, None] * rng.uniform(-1, 1, (count, len(c.entries))))
    each_row = np.repeat(np.arange(len(c.entries)), [e.rows for e in c.entries])
    target = rng.normal(size=(count, c.rows)) * rng.choice([0.0, 1.0, 10.0], (count, 1))
    damping = rng.choice([0.0, 20.0], (count, len(c.entries)))
    armature = np.asarray(sys.armature) * scale[:, None]
    leaves = {"mass": mass, "inertia": inertia, "armature": armature}
    x = tree(sys, q, v, leaves)
    tau = x.b * rng.uniform(0, 1, (count, 1)) + np.einsum("bii->bi", x.M) * rng.normal(size=v.shape) * 3
    J, rate, bias = reference.rows(sys, c, x.motion, q, v)
    # rows that depend on each other agree where the target is that of some motion
    a = rng.normal(size=v.shape) * 3
    agreeing = np.einsum("bij,bj->bi", J, a) + bias + damping[:, each_row] * rate
    target = np.where((is_("agreeing", "fingers", "scale", "payload"))[:, None], agreeing, target)
    target = np.where(is_("contradicting")[:, None], 10 * rng.normal(size=target.shape), target)
    return Samples(
        q, v, tau, leaves | {"weight": weight[:, each_row], "target": target, "damping": damping}, kinds
    )


def random_configurations(sys, rng, count, spread) -> np.ndarray:
    """Joints within ±spread (count,) of zero; quaternions turned as far from the identity."""
    q = rng.uniform(-1, 1, (count, sys.nq)) * spread[:, None]
    t = sys.topology
    for i, kind in enumerate(t.joint_types):
        start = t.q_starts[i]
        if kind in ("spherical", "free"):
            four = q[:, start + (3 if kind == "free" else 0) : t.q_starts[i + 1]]
            four[:, 0] = 1.0
            four /= np.linalg.norm(four, axis=1, keepdims=True)
        elif kind in ("prismatic", "cylindrical"):
            q[:, t.q_starts[i + 1] - 1] *= 0.2
    return q
