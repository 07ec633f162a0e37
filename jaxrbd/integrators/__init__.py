"""Time integrators: small frozen objects with `dt` and `step(problem, state)`; see `contract`."""

from jaxrbd.integrators.contract import Integrator, State, StepProblem
from jaxrbd.integrators.drift import FROM_DRIFT, StepStats
from jaxrbd.integrators.explicit import RK4, SemiImplicitEuler
from jaxrbd.integrators.hard import HardContact

__all__ = [
    "FROM_DRIFT",
    "RK4",
    "HardContact",
    "Integrator",
    "SemiImplicitEuler",
    "State",
    "StepProblem",
    "StepStats",
]
