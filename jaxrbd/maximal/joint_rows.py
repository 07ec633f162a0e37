"""Rows of joints between free bodies: the directions that they hold, and the rates that they leave.

All joints at once, as pure functions of the numbers of the original System, so that derivatives reach its
placements and axes. Frames are turned so that z is along the axis of a joint, or along that of a freedom.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, combine
from jaxrbd.constraints.kinds.frames import Frames
from jaxrbd.constraints.kinds.of_model import of_model
from jaxrbd.joints.rotations import quaternion_of
from jaxrbd.maximal.geometry import HELD, Placed, align, compose, placed
from jaxrbd.maximal.rows import Original, couplings, crosses, rate, threads
from jaxrbd.model.topology import Topology
from jaxrbd.typing import Array

# of every freedom: turning about z (2) or shifting along it (5), where z is this axis; rates of other types
# are functions of their own. A screw's is that of its angle: on the thread, what `from_maximal` gives.
FREE = {
    "revolute": ((2, "axis"),),
    "continuous": ((2, "axis"),),
    "prismatic": ((5, "axis"),),
    "screw": ((2, "axis"),),
    "cylindrical": ((2, "axis"), (5, "axis")),
    "planar": ((5, "axis2"), (5, "normal"), (2, "axis")),
}


def mechanism_rows(x: Original) -> Constraints | None:
    """What holds the bodies together: joints, threads and crosses, loops, couplings."""
    t = x.sys.topology
    parts = [held(x)] if any(HELD[kind] for kind in t.joint_types) else []
    parts += threads(x) + crosses(x)
    loops = x.free.topology
    if any(kind != "coupling" and on for kind, on in zip(loops.loop_kinds, loops.loop_active)):
        parts.append(of_model(x.free))
    parts += couplings(x)
    return combine(*parts) if parts else None


def held(x: Original) -> Constraints:
    """The directions that joints hold, between the frames of two links (or of one and the world)."""
    kinds = x.sys.joint_types
    joints = np.array([i for i, kind in enumerate(kinds) if HELD[kind]])
    axis, axis2 = x.sys.axis[joints], x.sys.axis2[joints]
    planar = np.array([kinds[i] == "planar" for i in joints])
    turn = jnp.where(planar[:, None, None], align(axis, axis2), align(axis))
    masks = [HELD[kinds[i]] for i in joints]
    names = [x.sys.joint_names[i] for i in joints]
    return _between(x, joints, names, masks, turn)


def owners(t: Topology) -> np.ndarray:
    """The joint of every freedom."""
    return np.repeat(np.arange(t.nb), np.diff(t.v_starts))


def one_by_one(t: Topology, dofs: Iterable[int]) -> tuple[int, ...]:
    """The order of freedoms in which `rates` takes them: those that are a direction of frames come first."""
    joints = owners(t)
    return tuple(sorted(dofs, key=lambda d: (t.joint_types[joints[d]] not in FREE, d)))


def rates(x: Original, dofs: Sequence[int], sign: Array) -> Constraints:
    """One row per freedom, in the order of `one_by_one`: sign times its rate."""
    t = x.sys.topology
    joints = owners(t)
    within = [d - t.v_starts[joints[d]] for d in dofs]
    plain = [d for d in dofs if t.joint_types[joints[d]] in FREE]
    parts = []
    if plain:
        i, k = joints[plain], sign[: len(plain)]
        found = [FREE[t.joint_types[j]][w] for w, j in zip(within, i)]
        axis, axis2 = x.sys.axis[i], x.sys.axis2[i]
        ways = {"axis": axis, "axis2": axis2, "normal": jnp.cross(axis, axis2)}
        z = jnp.stack([ways[word][n] for n, (_, word) in enumerate(found)])
        turn = align(z) * jnp.stack([jnp.ones_like(k), k, k], 1)[:, None, :]
        names = [f"{t.joint_names[j]} rate" for j in i]
        parts.append(_between(x, i, names, [(mask,) for mask, _ in found], turn))
    for n in range(len(plain), len(dofs)):
        parts.append(rate(x, int(joints[dofs[n]]), (within[n],), sign[n]))
    return combine(*parts)


def _between(x: Original, joints, names, masks, turn: Array) -> Constraints:
    """Rows between the links of joints' two sides, in the frames of the joints turned by `turn`."""
    n, dtype = len(joints), x.sys.dtype
    at: Placed = placed(x.sys, x.layout, joints)
    (R_a, p_a), (R_b, p_b) = (
        compose(*pose, turn, jnp.zeros((n, 3), dtype)) for pose in (at.behind(), at.front())
    )
    own = np.array([*x.free.topology.body_frames, -1])
    a, b = (own[np.array(side)[joints]].tolist() for side in (x.layout.children, x.layout.parents))
    m = sum(len(mask) for mask in masks)
    zeros = jnp.zeros(n, dtype)
    return Constraints(
        entries=tuple(Frames(*entry) for entry in zip(names, a, b, masks)),
        position_a=p_a,
        quaternion_a=quaternion_of(jnp.moveaxis(R_a, 0, -1), 0).T,
        position_b=p_b,
        quaternion_b=quaternion_of(jnp.moveaxis(R_b, 0, -1), 0).T,
        parameter=jnp.zeros((n, 5), dtype),
        coefficients=jnp.zeros(0, dtype),
        weight=jnp.ones(m, dtype),
        stiffness=zeros,
        damping=zeros,
        target=jnp.zeros(m, dtype),
        params=(None,) * n,
    )
