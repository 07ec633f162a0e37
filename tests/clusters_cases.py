"""Mechanisms with loops for the tests of clusters: name -> open tree with its relations as data."""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from jaxrbd.model.description import Mimic, Pose

HINGED = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])  # z along the y axis of links


def place(x, y, z) -> Pose:
    return Pose(HINGED, np.array([x, y, z], float))


def start(name: str, free: bool) -> tuple[rbd.Builder, str | None]:
    b = rbd.Builder(name)
    if not free:
        return b, None
    b.body("base", 5.0, shapes=[b.box(0.3, 0.2, 0.1)])
    b.joint("root", "free", None, "base")
    return b, "base"


def geared(free: bool = False, n: int = 3, grounded: bool = False):
    """Links with rotors on the body before, about skew axes; mimics with offsets."""
    b, above = start("geared", free)
    if grounded:  # one tree, as a URDF wants it
        b.body("base", 5.0, shapes=[b.box(0.3, 0.2, 0.1)])
        above = "base"
    rng = np.random.default_rng(0)
    for i in range(n):
        b.body(f"l{i}", 1 + rng.uniform(), shapes=[b.box(0.1, 0.2, 0.4)])
        b.body(f"r{i}", 0.3, shapes=[b.box(0.1, 0.08, 0.04)])
        at = (0.1, 0.05, -0.4) if above else (0, 0, 0)
        b.joint(f"j{i}", "revolute", above, f"l{i}", at, axis=rng.normal(size=3), armature=0.01)
        mimic = Mimic(f"j{i}", 6.0 + i, 0.3)
        axis = rng.normal(size=3)
        b.joint(
            f"m{i}", "revolute", above, f"r{i}", (0.02, 0.05, -0.1), axis=axis, armature=1e-3, mimic=mimic
        )
        above = f"l{i}"
    return b


def belts(free: bool = False, pairs: int = 2):
    """Pairs of links whose motors sit on the body before: the second belt runs past the first joint."""
    b, above = start("belts", free)
    y = (0, 1, 0)
    for i in range(pairs):
        for name, mass in (("k", 1.0), ("a", 0.7), ("rk", 0.2), ("ra", 0.2)):
            b.body(f"{name}{i}", mass, shapes=[b.box(0.1, 0.05, 0.3)])
        at = (0, 0, -0.3) if above else (0, 0, 0)
        b.joint(f"jk{i}", "revolute", above, f"k{i}", at, axis=y, armature=0.01)
        b.joint(f"ja{i}", "revolute", f"k{i}", f"a{i}", (0, 0, -0.3), axis=y)
        b.joint(f"jrk{i}", "revolute", above, f"rk{i}", (0, 0.1, 0), axis=y, armature=1e-3)
        b.joint(f"jra{i}", "revolute", above, f"ra{i}", (0, -0.1, 0), axis=y)
        b.gear(f"knee{i}", {f"jrk{i}": 1, f"jk{i}": -6})
        b.gear(f"ankle{i}", {f"jra{i}": 1, f"jk{i}": -6, f"ja{i}": -5})
        above = f"a{i}"
    return b


def four_bars(free: bool = False, n: int = 2, kind: str = "connect", mount: str = "coupler"):
    """Planar four-bars in series, on each other's coupler or rocker, which then closes virtually."""
    b, above = start("four_bars", free)
    y = (0, 1, 0)
    for i in range(n):
        for name, mass in (("crank", 0.5), ("coupler", 0.8), ("rocker", 0.6)):
            b.body(f"{name}{i}", mass, shapes=[b.capsule_between(0.02, (0, 0, 0), (0.3, 0, 0.02))])
        shift = 0.0 if i == 0 else 0.3
        b.joint(f"a{i}", "revolute", above, f"crank{i}", (shift, 0, 0), axis=y, armature=0.01)
        b.joint(f"b{i}", "revolute", f"crank{i}", f"coupler{i}", (0, 0, 0.2), axis=y)
        b.joint(f"c{i}", "revolute", above, f"rocker{i}", (shift + 0.25, 0, 0), axis=y, armature=0.02)
        b.loop(f"loop{i}", kind, f"coupler{i}", f"rocker{i}", place(0.3, 0, 0), place(0, 0, 0.25))
        above = f"{mount}{i}"
    return b


def mixed(free: bool = True):
    """A four-bar with a geared rotor on its crank (one cluster), another one on it, and a ball joint
    behind.
    """
    b = four_bars(free, 2, "hinge")
    above = "base" if free else None
    b.body("rotor", 0.1, shapes=[b.box(0.1, 0.05, 0.03)])
    mimic = Mimic("a0", 7.0, 0.1)
    b.joint("jr", "revolute", above, "rotor", (0, 0.1, 0.1), axis=(0, 1, 0), armature=1e-3, mimic=mimic)
    b.body("tip", 0.3, shapes=[b.box(0.1, 0.1, 0.1)])
    b.joint("ball", "spherical", "coupler1", "tip", (0, 0.1, 0.1))
    return b


def spatial(free: bool = False):
    """Crank, rod on a ball joint, rocker about a skew axis: the rod can spin idly."""
    b, above = start("spatial", free)
    for name in ("crank", "rod", "rocker"):
        b.body(name, 0.5, shapes=[b.capsule_between(0.02, (0, 0, 0), (0.3, 0, 0.1))])
    b.joint("a", "revolute", above, "crank", axis=(0, 1, 0))
    b.joint("s", "spherical", "crank", "rod", (0, 0.02, 0.1))
    b.joint("c", "revolute", above, "rocker", (0.4, 0.1, 0), axis=(1, 0.5, 0))
    b.loop("l", "connect", "rod", "rocker", place(0.4, 0, 0), place(0, 0, 0.2))
    return b


def slider(free: bool = False):
    """A slider-crank whose rod is massless: a distance between crank and slider; and a polynomial cam."""
    b, above = start("slider", free)
    b.body("crank", 0.5, shapes=[b.capsule_between(0.02, (0, 0, 0), (0, 0, 0.2))])
    b.body("slide", 0.8, shapes=[b.box(0.1, 0.1, 0.1)])
    b.body("cam", 0.4, shapes=[b.box(0.05, 0.1, 0.2)])
    b.joint("a", "revolute", above, "crank", axis=(0, 1, 0))
    b.joint("s", "prismatic", above, "slide", (0.3, 0, 0), axis=(1, 0, 0))
    b.joint("c", "revolute", "crank", "cam", (0, 0.1, 0.1), axis=(0, 1, 0))
    b.loop("rod", "distance", "crank", "slide", place(0, 0, 0.2), place(0, 0, 0), coefficients=(0.4,))
    b.loop("curve", "coupling", "c", "a", coefficients=(0.1, 0.5, 0.2, -0.1))
    return b


def differential(free: bool = False):
    """Two rotors act together on two joints, which are the ones to lead: a simultaneous linear system."""
    b, above = start("differential", free)
    for name, mass in (("roll", 0.6), ("pitch", 1.2), ("r1", 0.2), ("r2", 0.2)):
        b.body(name, mass, shapes=[b.box(0.1, 0.2, 0.15)])
    b.joint("jr1", "revolute", above, "r1", (0, 0.1, 0), axis=(0, 1, 0), armature=1e-3)
    b.joint("jr2", "revolute", above, "r2", (0, -0.1, 0), axis=(0, 1, 0), armature=1e-3)
    b.joint("jroll", "revolute", above, "roll", axis=(1, 0, 0))
    b.joint("jpitch", "revolute", "roll", "pitch", (0, 0, -0.05), axis=(0, 1, 0))
    b.gear("sum", {"jpitch": 2, "jr1": -0.2, "jr2": -0.2})
    b.gear("difference", {"jroll": 2, "jr1": -0.2, "jr2": 0.2})
    return b


CASES = {
    "geared": lambda: geared(),
    "geared, free": lambda: geared(True),
    "belts": lambda: belts(),
    "belts, free": lambda: belts(True),
    "four-bars on couplers": lambda: four_bars(),
    "four-bars on rockers, free": lambda: four_bars(True, mount="rocker"),
    "four-bar by a hinge, free": lambda: four_bars(True, 1, "hinge"),
    "mixed": lambda: mixed(),
    "spatial": lambda: spatial(),
    "slider": lambda: slider(),
    "differential, free": lambda: differential(True),
}


@cache
def tree(name: str) -> rbd.System:
    return CASES[name]().build(dtype="float64")


@cache
def clustered(name: str) -> rbd.System:
    return rbd.cluster(tree(name))


def states(sys: rbd.System, count: int, seed: int = 0):
    """Closed configurations around q0, velocities, forces, wrenches: (q, v, tau, f_ext), NumPy.

    Found on the host, by walking from q0 with loops closed at every step.
    """
    from jaxrbd.clusters.closing import HostCluster
    from jaxrbd.tree.mechanism import clusters_of, coordinates

    rng = np.random.default_rng(seed)
    t = sys.topology
    open_sys = sys.tree
    q0 = np.asarray(open_sys.q0, float)
    found = []
    while len(found) < count:
        q = q0.copy()
        for c in clusters_of(t):
            host = HostCluster(open_sys, c.bodies, [*c.implicit, *(r for r, _ in c.explicit)])
            for _ in range(20):
                new, error = host.close(host.move(q, 0.4 * rng.normal(size=len(host.dofs))))
                if error < 1e-12:
                    q = new
                    break
        inside = {d for c in clusters_of(t) for d in c.dofs}
        index = coordinates(t)
        for d in range(t.v_starts[-1]):
            if d not in inside and index[d] < len(q):
                q[index[d]] += 0.4 * rng.normal()
        for kind, at in zip(t.joint_types, t.q_starts):
            if kind == "free":
                q[at : at + 3] += rng.normal(size=3)
                at += 3
            if kind in ("free", "spherical") and not (kind == "spherical" and _in_cluster(t, at)):
                turn = q[at : at + 4] + 0.5 * rng.normal(size=4)
                q[at : at + 4] = turn / np.linalg.norm(turn)
        found.append(q[list(t.kept_q)])
    v, tau = rng.normal(size=(2, count, sys.nv))
    return (*map(jnp.asarray, (np.array(found), v, tau, rng.normal(size=(count, sys.nb, 6)))),)


def _in_cluster(t, at: int) -> bool:
    body = t.q_starts.index(at) if at in t.q_starts else -1
    return any(body in c for c in t.clusters)
