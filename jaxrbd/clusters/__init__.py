"""Kinematic loops as part of a System's state ([GRBDA]): graph, choice of joints, closing."""

from jaxrbd.clusters.baselines import projected_dynamics, reflected
from jaxrbd.clusters.closed import LoopStats, close_loops
from jaxrbd.clusters.cluster import cluster
from jaxrbd.clusters.editing import attach, combine, load, lock_joints
from jaxrbd.clusters.functions import loop_function

__all__ = [
    "LoopStats",
    "attach",
    "close_loops",
    "cluster",
    "combine",
    "load",
    "lock_joints",
    "loop_function",
    "projected_dynamics",
    "reflected",
]
