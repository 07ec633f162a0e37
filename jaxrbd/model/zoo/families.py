"""Families of any size for scaling studies and tests: chains, balanced binary trees, random trees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxrbd.errors import ArgumentError
from jaxrbd.model.builder import Builder
from jaxrbd.model.description import Description
from jaxrbd.typing import Numbers

LINK_LENGTH, LINK_RADIUS, LINK_MASS = 0.2, 0.03, 0.6  # an aluminium tube with a small motor

# every type that may stand anywhere in a tree; free joints stand only at roots
TREE_JOINTS = (
    "revolute",
    "continuous",
    "prismatic",
    "screw",
    "cylindrical",
    "universal",
    "planar",
    "spherical",
)


def chain(n: int = 10, joint: str = "revolute", base: str = "fixed") -> Description:
    """n equal links hanging from the world, axes alternating between y and x, so that it moves in space.

    `base="free"` adds a free joint "root" to the first link. The frame "tip" is at the far end.
    """
    _at_least_one("chain", n)
    b = Builder(f"chain{n}")
    for i in range(n):
        _link(b, f"link{i}")
    for i in range(n):
        parent = None if i == 0 else f"link{i - 1}"
        xyz = (0, 0, 0 if i == 0 else -LINK_LENGTH)
        if i == 0 and base == "free":
            b.joint("root", "free", None, "link0")
        else:
            _joint(b, f"joint{i}", joint, parent, f"link{i}", xyz, even=i % 2 == 0)
    b.frame("tip", f"link{n - 1}", (0, 0, -LINK_LENGTH))
    return b.description()


def binary_tree(depth: int = 3, links_per_branch: int = 3, joint: str = "revolute") -> Description:
    """Balanced binary tree: branches of `links_per_branch` links, each splitting into two, `depth` levels.

    [CABA] VIII-B with three links per branch; (2^depth - 1) branches. Every leaf has a frame "tip0", "tip1"…
    """
    _at_least_one("binary_tree: depth", depth)
    _at_least_one("binary_tree: links_per_branch", links_per_branch)
    b = Builder(f"binary_tree{depth}")
    for branch in range(2**depth - 1):  # heap order: the branches below k are 2k + 1 and 2k + 2
        for i in range(links_per_branch):
            name = f"link{branch}_{i}"
            _link(b, name)
            parent, drop, roll = None, 0.0, 0.0
            if i:
                parent, drop = f"link{branch}_{i - 1}", LINK_LENGTH
            elif branch:
                parent, drop = f"link{(branch - 1) // 2}_{links_per_branch - 1}", LINK_LENGTH
                roll = 0.5 if branch % 2 else -0.5
            even = i % 2 == 0
            _joint(b, f"joint{branch}_{i}", joint, parent, name, (0, 0, -drop), even, (roll, 0, 0))
    for leaf in range(2 ** (depth - 1)):
        branch = 2 ** (depth - 1) - 1 + leaf
        b.frame(f"tip{leaf}", f"link{branch}_{links_per_branch - 1}", (0, 0, -LINK_LENGTH))
    return b.description()


def random_tree(
    n: int = 10,
    seed: int = 0,
    joint_types: Sequence[str] = TREE_JOINTS,
    base: str = "fixed",
    trees: int = 1,
    branching: float = 0.5,
    damping: bool = False,
) -> Description:
    """n links on random parents with random joints, placements and solid inertias; the same for one seed.

    `branching` 0 gives chains, 1 parents drawn evenly from all links before. With `base="free"` the root
    of each of the `trees` is a free joint. Joints have random armature, and random damping if asked for.
    """
    _at_least_one("random_tree", n)
    if not 1 <= trees <= n:
        raise ArgumentError(f"random_tree: {trees} trees of {n} links. Give 1 <= trees <= n.")
    rng = np.random.default_rng(seed)
    b = Builder(f"random_tree{n}_{seed}")
    members: list[list[int]] = [[] for _ in range(trees)]
    for i in range(n):
        x, y, z = rng.uniform(0.05, 0.3, 3)
        solid = b.box(x, y, z, xyz=rng.uniform(-0.1, 0.1, 3), rpy=rng.uniform(-np.pi, np.pi, 3))
        b.body(f"link{i}", float(rng.uniform(0.3, 3.0)), shapes=[solid])
        tree = i if i < trees else int(rng.integers(trees))
        kind = str(rng.choice(list(joint_types)))
        axis, other = rng.normal(size=3), rng.normal(size=3)
        nv = 6 if (root := not members[tree]) and base == "free" else None
        xyz = rng.uniform(-0.4, 0.4, 3) + (0 if not root else (1.5 * tree, 0, 0))
        rpy = rng.uniform(-np.pi, np.pi, 3)
        armature, friction = float(rng.uniform(0.0, 0.05)), float(rng.uniform(0.05, 0.5))
        if nv == 6:
            b.joint("root" if trees == 1 else f"root{tree}", "free", None, f"link{i}")
        else:
            parent = None
            if not root:
                even = rng.random() < branching
                parent = f"link{rng.choice(members[tree]) if even else members[tree][-1]}"
            b.joint(
                f"joint{i}",
                kind,
                parent,
                f"link{i}",
                xyz,
                rpy,
                axis=axis,
                axis2=np.cross(axis, other) if kind == "universal" else None,
                pitch=float(rng.uniform(-0.2, 0.2)) if kind == "screw" else 0.0,
                armature=armature,
                damping=friction if damping else 0.0,
            )
        members[tree].append(i)
    b.frame("tip", f"link{n - 1}", rng.uniform(-0.2, 0.2, 3), rng.uniform(-np.pi, np.pi, 3))
    return b.description()


def _link(b: Builder, name: str) -> None:
    b.body(name, LINK_MASS, shapes=[b.capsule_between(LINK_RADIUS, (0, 0, 0), (0, 0, -LINK_LENGTH))])


def _joint(
    b: Builder,
    name: str,
    type: str,
    parent: str | None,
    child: str,
    xyz: Numbers,
    even: bool,
    rpy: Numbers = (0, 0, 0),
) -> None:
    axis, other = ((0, 1, 0), (1, 0, 0)) if even else ((1, 0, 0), (0, 1, 0))
    axis2 = other if type in ("universal", "planar") else None
    pitch = 0.05 if type == "screw" else 0.0
    b.joint(name, type, parent, child, xyz, rpy, axis=axis, axis2=axis2, pitch=pitch)


def _at_least_one(what: str, n: int) -> None:
    if n < 1:
        raise ArgumentError(f"{what}: {n} is less than 1. Give a positive count.")
