"""jaxrbd: differentiable, batched rigid-body dynamics in JAX.

Functions take a System and plain arrays, unbatched; wrap them in `jax.vmap`, `jax.jit`, `jax.grad`.
"""

import typing as _typing

from jaxrbd import collision, constraints, contact, dual, joints
from jaxrbd.clusters import (
    attach,
    close_loops,
    cluster,
    combine,
    load,
    lock_joints,
    loop_function,
    projected_dynamics,
    reflected,
)
from jaxrbd.collision import distances
from jaxrbd.constraints import (
    Classic,
    ConstrainedABA,
    Dense,
    GroundSprings,
    Projection,
    ProxLTL,
    ProxLTLs,
    ProxPV,
    Soft,
    constrained_dynamics,
    constrained_inverse_dynamics,
    ground_springs,
    impulse_dynamics,
    project,
)
from jaxrbd.devices import configure_cpu, spread
from jaxrbd.errors import ArgumentError, FileError, ModelError, ModelWarning, RbdError, StateWarning
from jaxrbd.forces import actuator_force, passive_force
from jaxrbd.hosts import connect_hosts
from jaxrbd.ik import GaussNewton, inverse_kinematics
from jaxrbd.inertia import log_cholesky, with_log_cholesky
from jaxrbd.integrators import RK4, HardContact, SemiImplicitEuler, State, StepProblem
from jaxrbd.maximal import Maximal, maximal
from jaxrbd.model import zoo
from jaxrbd.model.builder import Builder
from jaxrbd.model.compile import build
from jaxrbd.model.convert import from_mujoco, from_pinocchio, to_mujoco, to_pinocchio
from jaxrbd.model.describe import describe, to_urdf
from jaxrbd.model.description import Description
from jaxrbd.model.load import read_description
from jaxrbd.model.save import load_system, save
from jaxrbd.model.system import System, pytree, static
from jaxrbd.simulate import linearize, rollout, step
from jaxrbd.solution import Result, Solution
from jaxrbd.tree.aba import forward_dynamics, mass_matrix_inverse, mass_matrix_solve
from jaxrbd.tree.check import check
from jaxrbd.tree.cholesky import mass_matrix_factor, solve_factor
from jaxrbd.tree.coriolis import coriolis_matrix
from jaxrbd.tree.crba import mass_matrix
from jaxrbd.tree.derivatives import forward_dynamics_derivatives, inverse_dynamics_derivatives
from jaxrbd.tree.frames import (
    forward_kinematics,
    frame_acceleration,
    frame_jacobian,
    frame_jacobian_dot_v,
    frame_pose,
    frame_poses,
    frame_velocity,
    wrench_at_frame,
)
from jaxrbd.tree.manifold import (
    difference,
    integrate,
    neutral,
    normalize,
    random_configuration,
    tangent_gradient,
)
from jaxrbd.tree.momentum import (
    center_of_mass,
    center_of_mass_jacobian,
    center_of_mass_velocity,
    centroidal_momentum,
    centroidal_momentum_matrix,
    energy,
    kinetic_energy,
    potential_energy,
    total_mass,
)
from jaxrbd.tree.opening import from_tree, loop_bias, loop_error, loop_jacobian, to_tree
from jaxrbd.tree.regressor import (
    inertial_parameters,
    joint_torque_regressor,
    kinetic_energy_regressor,
    potential_energy_regressor,
)
from jaxrbd.tree.rnea import bias_force, gravity_force, inverse_dynamics

__version__ = "0.1.0"

if _typing.TYPE_CHECKING:
    from jaxrbd import checkpoint, viewer


def __getattr__(name: str) -> _typing.Any:
    """`rbd.viewer` and `rbd.checkpoint` are imported when they are first used."""
    if name in ("checkpoint", "viewer"):
        from importlib import import_module

        return import_module(f"jaxrbd.{name}")
    raise AttributeError(f"module 'jaxrbd' has no attribute {name!r}")
