"""What [GRBDA] compares its algorithms with: projection of the open tree, and reflected inertia."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError, ModelWarning
from jaxrbd.model.edit import lock_joints
from jaxrbd.model.system import System, check_system
from jaxrbd.tree.arguments import arguments, external, require_mass
from jaxrbd.tree.crba import mass_matrix
from jaxrbd.tree.mechanism import mechanism_of
from jaxrbd.tree.opening import loop_bias, loop_jacobian, opened, tree_of
from jaxrbd.tree.regressor import inertial_parameters
from jaxrbd.tree.rnea import inverse_dynamics
from jaxrbd.typing import Array, ArrayLike


def projected_dynamics(
    sys: System, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: ArrayLike | None = None
) -> Array:
    """forward_dynamics by projection: (Gᵀ M G) a = tau - Gᵀ (b + M g), with M and b of the open tree.

    [GRBDA] II-D. Exact, O(nv³): the recursion of `forward_dynamics` is the faster one in all but small
    models.
    """
    q, v, tau = arguments(sys, q=q, v=v, tau=tau)
    require_mass(sys, "projected_dynamics")
    f_ext = external(sys, f_ext, q.dtype)
    tree, q_t, v_t = opened(sys, q, v)
    G, g = loop_jacobian(sys, q), loop_bias(sys, q, v)
    M = mass_matrix(tree, q_t)
    load = inverse_dynamics(tree, q_t, v_t, g, f_ext)  # b + M g
    return jax.scipy.linalg.solve(G.T @ M @ G, tau - G.T @ load, assume_a="pos")


def reflected(sys: System) -> tuple[System, Array]:
    """The approximations that are common for geared motors: (System, H) without loops in the state.

    In the System explicit followers (rotors) are fixed to what they hang on, and their inertia about their
    axis, times the square of their ratio, is armature of the joints that lead them: the diagonal of reflected
    inertia ([GRBDA] II-C). H, (nv, nv), is that inertia with the terms between joints (the block form), so
    that inverse_dynamics(System without that armature) + H a is the better approximation. Gyroscopic terms
    and actuators on rotors are lost.
    """
    t = check_system(sys, "reflected").topology
    parents = set(t.parents)
    rotors = [b for b in t.dependent if b not in parents]
    if not rotors or len(rotors) != len(t.dependent) or mechanism_of(t).groups:
        raise ArgumentError(
            f"reflected: {sys.name!r} has loops that are not gears of childless rotors, so no inertia can be "
            "reflected. Use the System itself."
        )
    G = loop_jacobian(sys, sys.q0)
    rotor_dofs = np.array([t.v_starts[b] for b in rotors])
    spin = _spin_inertias(sys, rotors) + sys.armature[rotor_dofs]
    rows = G[rotor_dofs]
    H = rows.T @ (spin[:, None] * rows)
    names = [t.joint_names[b] for b in rotors]
    with warnings.catch_warnings():  # gears and actuators of the rotors go with them
        warnings.simplefilter("ignore", ModelWarning)
        links = lock_joints(sys.tree, names)
    return links.replace(armature=links.armature + jnp.diag(H)), H


def _spin_inertias(sys: System, bodies: list[int]) -> Array:
    """Inertia of childless bodies about their joints' axes."""
    parameters = inertial_parameters(tree_of(sys)).reshape(-1, 10)[np.array(bodies)]
    xx, xy, xz, yy, yz, zz = parameters[:, 4:].T
    a = sys.axis[np.array(bodies)]
    x, y, z = (a / jnp.linalg.norm(a, axis=1, keepdims=True)).T
    return xx * x * x + yy * y * y + zz * z * z + 2 * (xy * x * y + xz * x * z + yz * y * z)
