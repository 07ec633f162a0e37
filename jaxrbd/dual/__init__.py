"""Dual problems of contact, loops, limits and dry friction, and their solvers ([LOOPS]). No robot in here."""

from jaxrbd.dual.admm import ADMM
from jaxrbd.dual.blocks import Blocks
from jaxrbd.dual.operator import Operator
from jaxrbd.dual.penalties import Balanced, Fixed, Linear, Penalty, Spectral
from jaxrbd.dual.problem import Problem, problem
from jaxrbd.dual.reduced import Reduced
from jaxrbd.dual.residuals import Mode, Residuals
from jaxrbd.dual.solve import DualStats, Impulses, solve
from jaxrbd.dual.solver import Solver
from jaxrbd.dual.splitting import NBGS, PGS, RAISIM

__all__ = [
    "ADMM",
    "NBGS",
    "PGS",
    "RAISIM",
    "Balanced",
    "Blocks",
    "DualStats",
    "Fixed",
    "Impulses",
    "Linear",
    "Mode",
    "Operator",
    "Penalty",
    "Problem",
    "Reduced",
    "Residuals",
    "Solver",
    "Spectral",
    "problem",
    "solve",
]
