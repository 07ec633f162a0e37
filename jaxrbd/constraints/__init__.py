"""Constraints between bodies, and dynamics under them ([CABA], [PROX])."""

from jaxrbd.constraints.caba import ConstrainedABA
from jaxrbd.constraints.classic import Classic
from jaxrbd.constraints.data import Constraints, combine
from jaxrbd.constraints.delassus import delassus_inverse, delassus_matrix
from jaxrbd.constraints.delassus_operator import (
    Delassus,
    DelassusMatrix,
    DelassusOperator,
    delassus_operator,
)
from jaxrbd.constraints.dense import Dense
from jaxrbd.constraints.dynamics import ConstrainedMotion, ProximalStats, constrained_dynamics
from jaxrbd.constraints.impulse import Impact, impulse_dynamics
from jaxrbd.constraints.inverse import ConsistencyStats, ConstrainedForces, constrained_inverse_dynamics
from jaxrbd.constraints.jacobian import (
    constraint_acceleration,
    constraint_error,
    constraint_jacobian,
    constraint_target,
    constraint_velocity,
)
from jaxrbd.constraints.joint_space import matrices
from jaxrbd.constraints.judged import judged
from jaxrbd.constraints.kinds import (
    connect,
    coupling,
    distance,
    function,
    hinge,
    hold,
    linear,
    of_model,
    point_on_plane,
    rolling,
    velocity_function,
    velocity_rows,
    weld,
)
from jaxrbd.constraints.kkt import KKTFactor, kkt_factor
from jaxrbd.constraints.places import constraint_places, constraint_wrenches
from jaxrbd.constraints.projection import Projected, Projection, ProjectionStats, project
from jaxrbd.constraints.prox_ltl import ProxLTL
from jaxrbd.constraints.prox_ltls import ProxLTLs
from jaxrbd.constraints.prox_pv import ProxPV
from jaxrbd.constraints.soft import Soft
from jaxrbd.constraints.solver import Proximal, Solver
from jaxrbd.constraints.springs import GroundSprings, ground_springs
from jaxrbd.constraints.task import Task, joint_forces
