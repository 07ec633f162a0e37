"""Joints that can move without moving any mass: where the mass matrix M = sum Jᵀ I J + armature is singular.

M v = 0 asks every body with a regular inertia to stand still. So the tree falls apart at such bodies, and
only what hangs together through bodies without one (massless links, point masses, rods) is looked at, with
the regular bodies next to it: a few joints in a robot of hundreds. Each part's M is set up at random poses,
its diagonal scaled to one (fingers of grams and hulls of 1e6 kg are both fine), and its null space names
the joints to blame.
"""

from __future__ import annotations

import numpy as np

from jaxrbd.joints import TYPES
from jaxrbd.model.description import Pose
from jaxrbd.model.rigid_tree import RigidTree, joint_motion, per_dof

NULL = 1e-12  # eigenvalues of the scaled M below this are zero: displacements of a millionth
NOISE = 1e-14  # of the inertia about a joint's origin: what rounding leaves of a mass on its axis
ROUNDING = 1e-14  # of a position
REGULAR = 1e-9  # least principal moment of a regular inertia, of the largest
GYRATION_FLOOR = 1e-6  # metres; an inertia below mass * floor² is the rounding noise of a point mass
MAX_PART = 400  # degrees of freedom; larger parts (long chains of point masses) are not looked at
POSES = 3

WEIGHTLESS = "links that move without mass"
TWISTING = "links that turn without rotational inertia"
CANCELLING = "joints whose motions can cancel without moving any mass"


def idle_joints(tree: RigidTree) -> list[tuple[str, int]]:
    """(cause, index of the joint) for every joint that takes part in a motion which meets no inertia."""
    mass, com, inertia = tree.inertias()
    moments, axes = np.linalg.eigh(inertia)
    regular = (mass > 0.0) & (moments[:, 0] > REGULAR * moments[:, 2])
    regular &= moments[:, 2] > GYRATION_FLOOR**2 * mass
    heavy = (mass > 0.0) | (moments != 0.0).any(1)  # some inertia in the subtree
    for i in reversed(range(len(mass))):
        if tree.parents[i] >= 0:
            heavy[tree.parents[i]] |= heavy[i]

    found = [
        (WEIGHTLESS, i)
        for i, joint in enumerate(tree.joints)
        if not heavy[i] and not np.all(per_dof(joint, "armature") > 0.0)
    ]
    roots = np.sqrt(np.maximum(moments, 0.0))[:, :, None] * axes.transpose(0, 2, 1)  # rootᵀ root = inertia
    for part in _parts(tree.parents, heavy, regular):
        if sum(TYPES[tree.joints[i].type].nv for i in part) <= MAX_PART:
            found += _idle_in(tree, part, np.sqrt(mass), com, roots)
    return sorted(found, key=lambda item: item[1])


def _parts(parents: list[int], heavy: np.ndarray, regular: np.ndarray) -> list[list[int]]:
    """Bodies without a regular inertia that hang together, and the regular ones on top of them."""
    part_of: dict[int, list[int]] = {}
    parts: list[list[int]] = []
    for i, parent in enumerate(parents):
        below = part_of.get(parent) if parent >= 0 and not regular[parent] else None
        if not heavy[i] or (regular[i] and below is None):
            continue
        if below is None:
            parts.append(below := [])
        below.append(i)
        part_of[i] = below
    return parts


def _idle_in(
    tree: RigidTree, part: list[int], root_mass: np.ndarray, com: np.ndarray, roots: np.ndarray
) -> list[tuple[str, int]]:
    rng = np.random.default_rng(0)
    nulls = []
    for _ in range(POSES):  # an unlucky pose may be singular, so the best of a few counts
        nulls.append(_null_space(*_mass_matrix(tree, part, root_mass, com, roots, rng)))
        if nulls[-1].shape[1] == 0:
            return []
    null = min(nulls, key=lambda columns: columns.shape[1])
    owner = np.repeat(part, [TYPES[tree.joints[i].type].nv for i in part])
    overlap = np.abs(null @ null.T) > 1e-5  # which freedoms move together
    found = []
    for i in part:
        together = set(owner[overlap[owner == i].any(0)].tolist())
        if together:
            found.append((CANCELLING if len(together) > 1 else TWISTING, i))
    return found


def _mass_matrix(
    tree: RigidTree,
    part: list[int],
    root_mass: np.ndarray,
    com: np.ndarray,
    roots: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """M of a part at a random pose, its root held, and the noise of its diagonal."""
    slices, n = {}, 0
    for i in part:
        size = TYPES[tree.joints[i].type].nv
        slices[i] = slice(n, n + size)
        n += size
    frames: dict[int, Pose] = {}
    twists: dict[int, np.ndarray] = {}  # columns, about the part's origin
    factor, armature, noise = [], np.zeros(n), np.zeros(n)
    origins = np.zeros((n, 3))
    for i in part:
        joint, parent = tree.joints[i], tree.parents[i]
        before = frames[parent] @ tree.placements[i] if parent in frames else Pose()
        after, S = joint_motion(joint, TYPES[joint.type].random(rng), before)
        J = twists[parent].copy() if parent in twists else np.zeros((6, n))
        J[:, slices[i]] = S
        frames[i], twists[i] = after, J
        armature[slices[i]] = per_dof(joint, "armature")
        origins[slices[i]] = after.p
        centre = after.R @ com[i] + after.p
        x, y, z = centre
        factor.append(root_mass[i] * (J[3:] - np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]) @ J[:3]))
        factor.append(roots[i] @ after.R.T @ J[:3])
        turned = J[:3].any(0)
        arm = np.sum((centre - origins) ** 2, axis=1)
        blur = ROUNDING**2 * np.sum(centre**2 + origins**2, axis=1)  # of both positions
        noise += turned * (root_mass[i] ** 2 * (NOISE * arm + blur) + NOISE * np.sum(roots[i] ** 2))
    A = np.concatenate(factor)
    return A.T @ A + np.diag(np.maximum(armature, 0.0)), noise


def _null_space(M: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Orthonormal columns (in scaled velocities) that M maps to zero."""
    diagonal = np.diag(M)
    moved = diagonal > noise
    scale = np.where(moved, 1.0 / np.sqrt(np.where(moved, diagonal, 1.0)), 0.0)
    values, vectors = np.linalg.eigh(scale[:, None] * M * scale)
    return vectors[:, values < NULL]
