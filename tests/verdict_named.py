"""Small mechanisms on which verdicts lied, with the samples that showed it: name -> (mechanism, samples).

Only leaves and states vary within one, so that a solver compiles it once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import loops
import numpy as np
import robots
from verdict_cases import Mechanism, Samples, random_configurations

import jaxrbd as rbd
from jaxrbd import constraints as con


def vary(m: Mechanism, q, v=0.0, tau=0.0, kind="", scale=1.0, **leaves) -> Samples:
    """Samples with a leading axis where one is given, the mechanism's own numbers elsewhere.

    `scale`: of mass, inertia and armature alike, one per sample or one for all.
    """
    shapes = {"q": (m.sys.nq,), "v": (m.sys.nv,), "tau": (m.sys.nv,)}
    own = {k: np.asarray(getattr(m.sys, k), float) for k in ("mass", "inertia", "armature")}
    own |= {k: np.asarray(getattr(m.con, k), float) for k in ("weight", "target", "damping")}
    q = np.atleast_2d(np.asarray(q, float))
    sizes = [len(q), np.size(scale), *(len(np.atleast_1d(x)) for x in leaves.values())]
    count = max(sizes)
    spread = lambda x, shape: np.array(np.broadcast_to(x, (count, *shape)), float)  # noqa: E731
    full = {}
    for key, x in own.items():
        x = np.asarray(leaves.get(key, x), float)
        if key in ("mass", "inertia", "armature"):
            x = spread(x, own[key].shape) * np.reshape(scale, (-1,) + (1,) * own[key].ndim)
        elif key == "weight" and key in leaves:
            x = x.reshape(-1, 1) if x.ndim == 1 else x  # one number per sample: of all constraints
            if x.shape[1] == len(m.con.entries):
                x = np.repeat(x, [e.rows for e in m.con.entries], 1)
        full[key] = spread(x, own[key].shape)
    states = (spread(x, shapes[key]) for key, x in (("q", q), ("v", v), ("tau", tau)))
    return Samples(*states, full, (kind,) * count)


def merge(*parts: Samples) -> Samples:
    join = lambda name: np.concatenate([getattr(s, name) for s in parts])  # noqa: E731
    leaves = {k: np.concatenate([s.leaves[k] for s in parts]) for k in parts[0].leaves}
    kinds = sum((s.kinds for s in parts), ())
    return Samples(join("q"), join("v"), join("tau"), leaves, kinds)


def two_links():
    """Nearly straight, the tip to follow (1, 1), which takes large forces, at masses of twelve decades."""
    b = rbd.Builder("two_links")
    for name in ("upper", "lower"):
        b.body(name, 1.0, shapes=[b.capsule_between(0.01, (0, 0, 0), (0, 0, -1))])
    b.joint("shoulder", "revolute", None, "upper", axis=(0, 1, 0))
    b.joint("elbow", "revolute", "upper", "lower", (0, 0, -1), axis=(0, 1, 0))
    b.frame("tip", "lower", (0, 0, -1))
    sys = b.build(dtype="float64")
    m = Mechanism("two links", sys, con.hold(sys, "tip", ["x", "z"], target=[1, 1]))
    bend = lambda x: [[0.3, x]]  # noqa: E731
    return m, merge(
        *(vary(m, bend(x), kind=f"angle {x:g}") for x in (1e-4, 1e-3, 2e-3, 1e-2, 0.5)),
        *(
            vary(m, bend(x), scale=s, weight=[w], kind=f"angle {x:g}, masses × {s:g}, weight {w:g}")
            for x in (1e-3, 2e-3, 0.5)
            for s, w in ((1e6, 1.0), (1.0, 1e-6), (1e6, 1e-6), (1e-6, 1.0), (1e-6, 1e6), (1.0, 1e6))
        ),
    )


def free_pair():
    """A free body with one hinged child, 1 kg each, whose end is connected to the world under any weight."""
    b = rbd.Builder("free_pair")
    for name in ("base", "child"):
        b.body(name, 1.0, shapes=[b.box(0.3, 0.2, 0.1)])
    b.joint("root", "free", None, "base")
    b.joint("hinge", "revolute", "base", "child", (0.2, 0, 0), axis=(0, 1, 0))
    b.frame("end", "child", (0.2, 0, 0))
    sys = b.build(dtype="float64")
    m = Mechanism("free pair", sys, con.connect(sys, "end"))
    q = [[0.1, 0.2, 0.5, 0.9, 0.1, -0.2, 0.3, 0.7]]
    v = [0.1, -0.2, 0.3, 0.5, 0.1, -0.4, 1.0]
    weights = [10.0**k for k in range(-6, 7)]
    return m, merge(
        *(vary(m, q, v, weight=[w], kind=f"weight {w:g}") for w in weights),
        *(vary(m, q, v, scale=10.0**k, kind=f"masses × 1e{k}") for k in (-6, -3, 3, 6)),
    )


def light_chain():
    """A free chain of three bodies of 1e-6 kg, held at both ends: penalties far above the inertias."""
    b = rbd.Builder("light_chain")
    for name in ("base", "child", "end"):
        b.body(name, 1e-6, shapes=[b.box(0.3, 0.2, 0.1)])
    b.joint("root", "free", None, "base")
    b.joint("first", "revolute", "base", "child", (0.2, 0, 0), axis=(0, 1, 0))
    b.joint("second", "revolute", "child", "end", (0.2, 0, 0), axis=(0, 0, 1))
    sys = b.build(dtype="float64")
    m = Mechanism(
        "light chain", sys, con.combine(con.connect(sys, "end", offset=(0.2, 0, 0)), con.connect(sys, "base"))
    )
    rng = np.random.default_rng(0)
    q = random_configurations(sys, rng, 12, np.full(12, 1.5))
    v = 0.3 * rng.normal(size=(12, sys.nv))
    return m, merge(
        *(vary(m, q, v, weight=np.full(12, w), kind=f"weight {w:g}") for w in (1e-3, 1.0, 100.0)),
        vary(m, q, 0.0, scale=1e12, kind="masses × 1e12"),
    )


def repeated_rod():
    """A distance between two bodies, twice, under weights of 2 to 10: eleven rows of rank 10."""
    b = rbd.Builder("repeated_rod")
    for i, mass in enumerate((0.65, 2.2, 1.9, 0.43, 2.3)):
        b.body(f"b{i}", mass, shapes=[b.box(0.3, 0.2, 0.1)])
    b.joint("j0", "free", None, "b0")
    b.joint("j1", "spherical", "b0", "b1", (-0.01, 0.06, 0.2))
    b.joint("j2", "revolute", "b1", "b2", (0.1, 0.2, 0.05), axis=(0, 1, 0))
    b.joint("j3", "spherical", "b2", "b3", (0.2, -0.02, -0.03))
    b.joint("j4", "revolute", "b1", "b4", (-0.04, 0.2, 0.04), axis=(0, 1, 0))
    sys = b.build(dtype="float64")
    places = {"b4": (-0.045, -0.17, -0.17), "b3": (0.19, -0.12, 0.15), "b1": (-0.01, -0.15, 0.16)}
    held = [con.connect(sys, body, offset=x) for body, x in places.items()]
    rod = con.distance(sys, "b0", "b2", length=0.5, offset=(0.15, 0.12, -0.07))
    m = Mechanism("repeated rod", sys, con.combine(*held, rod, rod))
    rng = np.random.default_rng(7)
    q = random_configurations(sys, rng, 32, np.full(32, 1.5))
    tau, weight = rng.normal(size=(32, sys.nv)), rng.uniform(2, 10, (32, 5))
    target = np.zeros((32, 11))
    target[:, 9:] = rng.normal(size=(32, 2))
    return m, merge(
        vary(m, q, 0.0, tau, weight=weight, kind="agreeing"),
        vary(m, q, 0.0, tau, weight=weight, target=target, kind="contradicting"),
    )


def arm():
    """The zoo's 7-DoF arm with its tool welded, at 40 random states."""
    sys = rbd.zoo.arm7().astype("float64")
    m = Mechanism("arm7, tool welded", sys, con.weld(sys, "tool"))
    q, v, _, tau, _ = robots.random_states(sys, 40)
    return m, vary(m, q, v, tau, kind="random state")


def dependent():
    """Rows that depend on each other on a chain of four: a weld of rank 4, and a point twice."""
    sys = rbd.zoo.chain(4).astype("float64")
    tip = sys.body_names[-1]
    m = Mechanism("dependent rows", sys, con.combine(con.weld(sys, tip), con.connect(sys, tip)))
    q, v, _, tau, _ = robots.random_states(sys, 24)
    rng = np.random.default_rng(3)
    return m, merge(
        vary(m, q[:8], v[:8], tau[:8], kind="contradicting"),
        vary(m, q[8:16], 0.0, tau[8:16], kind="agreeing"),
        vary(m, q[16:], v[16:], tau[16:], target=rng.normal(size=(8, 9)), kind="targets"),
    )


def sliders():
    """Two slides and a weld: the rows that turn are zero, so what they ask for is out of reach."""
    b = rbd.Builder("sliders")
    for i, axis in enumerate(((1, 0, 0), (0, 0.6, 0.8))):
        b.body(f"b{i}", 1.0, shapes=[b.box(0.3, 0.2, 0.1)])
        b.joint(f"j{i}", "prismatic", f"b{i - 1}" if i else None, f"b{i}", (0.1, 0, 0.2), axis=axis)
    sys = b.build(dtype="float64")
    m = Mechanism("sliders", sys, con.weld(sys, "b1"))
    rng = np.random.default_rng(2)
    q, tau, target = rng.normal(size=(8, 2)), rng.normal(size=(8, 2)), rng.normal(size=(8, 6))
    reachable = target * (0, 0, 0, 1, 0, 0)
    return m, merge(
        vary(m, q, 0.0, tau, target=target, kind="out of reach"),
        vary(m, q, 0.0, tau, target=reachable, kind="within reach"),
        vary(m, q, 0.0, tau, kind="at rest"),
    )


def pivot():
    """A child connected to its parent where their hinge is: rows of rounding alone, beside a real point."""
    b = rbd.Builder("pivot")
    for i in range(3):
        b.body(f"b{i}", 1.0, shapes=[b.capsule_between(0.05, (0, 0, 0), (0.4, 0, 0))])
        place = {"xyz": (0.37, 0.11, 0.23) if i else (0, 0, 0), "rpy": (0.3 * i, 0.2, 0.1)}
        b.joint(f"j{i}", "revolute", f"b{i - 1}" if i else None, f"b{i}", axis=(0, 0.6, 0.8), **place)
    sys = b.build(dtype="float64")
    idle = con.connect(sys, "b2", "b1", anchor=(0.37, 0.11, 0.23))
    m = Mechanism("pivot", sys, con.combine(con.hold(sys, "b2", ["x", "z"], offset=(0.4, 0, 0)), idle))
    rng = np.random.default_rng(3)
    q, v, tau = rng.normal(size=(3, 12, 3))
    target = rng.normal(size=(12, 5))
    return m, merge(
        vary(m, q, v, tau, target=target * (1, 1, 0, 0, 0), kind="at rest"),
        vary(m, q, v, tau, target=target, kind="out of reach"),
        *(vary(m, q, v, tau, weight=np.tile((1.0, w), (12, 1)), kind=f"weight {w:g}") for w in (1e-6, 1e6)),
    )


def patch():
    """A foot on eight points, 24 rows of rank 6, under a leg; also as heavy as a ship, and weighted."""
    b = rbd.Builder("patch")
    b.body("foot", 1.0, shapes=[b.box(0.2, 0.1, 0.05)])
    b.body("shank", 2.0, shapes=[b.capsule_between(0.05, (0, 0, 0), (0, 0, 0.4))])
    b.joint("root", "free", None, "foot")
    b.joint("ankle", "universal", "foot", "shank", (0, 0, 0.05), axis=(1, 0, 0), axis2=(0, 1, 0))
    sys = b.build(dtype="float64")
    corners = [(x, y, z) for x in (-0.1, 0.1) for y in (-0.05, 0.05) for z in (-0.025, 0.025)]
    m = Mechanism("patch", sys, con.combine(*(con.connect(sys, "foot", offset=c) for c in corners)))
    rng = np.random.default_rng(4)
    q = random_configurations(sys, rng, 12, np.ones(12))
    v, tau = rng.normal(size=(2, 12, sys.nv))
    resting = v * (np.arange(sys.nv) >= 6)  # the foot stands, the shank moves
    weight = 10.0 ** rng.uniform(-3, 3, (12, 8))
    return m, merge(
        vary(m, q, resting, tau, kind="standing"),
        vary(m, q, resting, tau, weight=weight, kind="standing, weights"),
        vary(m, q, v, tau, weight=weight, kind="moving, weights"),
        vary(m, q, v, 1e6 * tau, scale=1e6, kind="moving, masses × 1e6"),
    )


def closed_loop(name: str):
    """A mechanism of `loops` where its loops are closed, at twelve velocities and three scales of mass."""
    sys, rows, q = loops.MECHANISMS[name]()
    m = Mechanism(name, sys.astype("float64"), rows.astype("float64"))
    rng = np.random.default_rng(6)
    v, tau = rng.normal(size=(2, 12, sys.nv))
    still = {"q": np.tile(q, (12, 1)), "v": 0.0}
    return m, merge(
        *(vary(m, **still, tau=s * tau, scale=s, kind=f"closed, masses × {s:g}") for s in (1e-4, 1.0, 1e4)),
        vary(m, np.tile(q, (12, 1)), 0.3 * v, tau, kind="moving against its loops"),
    )


NAMED: dict[str, Callable[[], tuple[Mechanism, Samples]]] = {
    "two links": two_links,
    "free pair": free_pair,
    "light chain": light_chain,
    "repeated rod": repeated_rod,
    "sliders": sliders,
    "pivot": pivot,
    "patch": patch,
    "arm7": arm,
    "dependent rows": dependent,
    **{name: partial(closed_loop, name) for name in loops.MECHANISMS},
}
# where each was found; the other solvers take them with --all-robots
FOUND = (
    ("two links", "ProxLTL", "float64"),
    ("two links", "ProxPV", "float32"),
    ("free pair", "ConstrainedABA", "float32"),
    ("light chain", "ProxLTLs", "float64"),
    ("repeated rod", "ConstrainedABA", "float32"),
    ("pivot", "Classic", "float64"),
    ("cassie_leg", "Classic", "float32"),
    ("arm7", "Dense", "float32"),
)


@cache
def named(name: str) -> tuple[Mechanism, Samples]:
    return NAMED[name]()
