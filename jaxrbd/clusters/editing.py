"""Files and edits with clusters: `load` with its loops, and edits of the open trees, clustered again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from jaxrbd.clusters.cluster import cluster
from jaxrbd.errors import ArgumentError
from jaxrbd.model import edit
from jaxrbd.model import load as files
from jaxrbd.model.compile import build
from jaxrbd.model.description import Description
from jaxrbd.model.system import System, check_system
from jaxrbd.tree.opening import to_tree
from jaxrbd.typing import ArrayLike, DTypeLike, Numbers, StrPath

LOOPS = ("constraint", "cluster", "open")


def load(
    source: StrPath,
    *,
    base: str | None = None,
    package_dirs: StrPath | Iterable[StrPath] = (),
    dtype: DTypeLike | None = None,
    strict: bool = False,
    loops: str = "constraint",
) -> System:
    """A System from a URDF or MJCF file, or from its text.

    `base`: None keeps the root as written (URDF: fixed). "free" lets it float on a joint "root": a base
    that floats already stays (a floating joint on a massless root link is one); else trees that have a
    moving joint are freed, or, if none has, the only one with mass, but never an MJCF body without joints,
    which belongs to the ground. Of several bases, those that are added are called "root",
    `root_BODY`, .... "fixed" stops bases where the default pose has them.

    `package_dirs`: folders that hold the packages of "package://" names; meshes are looked up there, in the
    model's own folder and, for "package://NAME/...", in folders NAME above it, nowhere else. `strict`:
    refuse unphysical models instead of warning.

    `loops`, what becomes of loops, couplings and mimic joints. "constraint": every joint is a degree of
    freedom and the relations are data, which `jaxrbd.constraints.of_model` enforces; nothing does so in
    `forward_dynamics`, and a warning says it. "cluster": they hold exactly, as part of the state (`cluster`);
    v has the independent joints alone. "open": they are left out.
    """
    if loops not in LOOPS:
        raise ArgumentError(f"load: loops is {loops!r}, expected one of {', '.join(map(repr, LOOPS))}.")
    if loops == "constraint":
        return files.load(source, base=base, package_dirs=package_dirs, dtype=dtype, strict=strict)
    description = files.read_description(source, package_dirs=package_dirs)
    if loops == "open":
        description = _open(description)
    sys = build(description, base=base, dtype=dtype, strict=strict)
    return cluster(sys) if loops == "cluster" else sys


def _open(d: Description) -> Description:
    return d.replace(loops=(), linear=(), joints=tuple(replace(j, mimic=None) for j in d.joints))


def lock_joints(
    sys: System, joints: Mapping[str, Numbers] | Sequence[str], q: ArrayLike | None = None
) -> System:
    """The reduced model in which the named joints are fixed at given coordinates: v = a = 0 there.

    `joints` maps names to coordinates, or names them; then they are taken from the configuration `q`
    (default sys.q0). Links of locked joints stay reachable as frames. Actuators and mimics of locked joints
    are dropped with a warning, and so are loops between links that no longer move against each other; a
    coupling to a locked joint becomes one to its value. Keyframes lose the locked coordinates. Clusters are
    found anew.
    """
    if not check_system(sys, "lock_joints").topology.clusters:
        return edit.lock_joints(sys, joints, q)
    q = None if q is None else np.asarray(to_tree(sys, q))
    return cluster(edit.lock_joints(sys.tree, joints, q))


def attach(
    sys: System,
    other: System,
    frame: str | None,
    xyz: Numbers = (0.0, 0.0, 0.0),
    rpy: Numbers = (0.0, 0.0, 0.0),
    prefix: str = "",
) -> System:
    """`sys` with the world of `other` fixed to one of its frames (None: the ground), at xyz and rpy in it.

    A free root of `other` becomes a fixed joint that puts its link's frame there; any other root joint
    stays, and moves relative to the frame. `prefix` goes before all names of `other`. Gravity is that of
    `sys`; ground shapes of `other` are dropped. Keyframes of one name are joined; a model that lacks one
    contributes its q0. The springs at joint limits are chosen anew, for the inertia of the whole. If one of
    them has clusters, so has the result, and loops of the other become clusters, too.
    """
    found = edit.attach(_tree(sys), _tree(other), frame, xyz, rpy, prefix)
    return cluster(found) if _clustered(sys, other) else found


def combine(*systems: System, names: Sequence[str] | None = None) -> System:
    """Several models side by side in one System: a forest, coordinates in the order of the arguments.

    Names are prefixed with "<name>/" for each of `names` (an empty one: no prefix); by default these are
    the models' own names, numbered where they repeat. Equal ground shapes are kept once; keyframes of one
    name are joined, and a model that lacks one contributes its q0. If one has clusters, so has the result.
    """
    found = edit.combine(*map(_tree, systems), names=names)
    return cluster(found) if _clustered(*systems) else found


def _tree(sys):
    return sys.tree if isinstance(sys, System) else sys


def _clustered(*systems: System) -> bool:
    return any(s.topology.clusters for s in systems)
