"""The ten solvers of [LOOPS] Table I and two of ours, with one tolerance and one limit of iterations."""

from __future__ import annotations

from jaxrbd import dual

TEN = (
    "PGS-CCP",
    "PGS-NCP",
    "NBGS",
    "RAISIM",
    "RAISIM-DS",
    "RAISIM-DS-ES",
    "ADMM-CCP",
    "ADMM-NCP-FP",
    "ADMM-NCP-LA",
    "ADMM-NCP-SA",
)
OURS = ("NBGS exact", "ADMM balanced")
ADAPTIVE = ("ADMM-NCP-LA", "ADMM-NCP-SA", "ADMM balanced")
SPLITTING = (*TEN[:6], OURS[0])


def solvers(tolerance: float, iterations: int, precondition: bool = True) -> dict[str, dual.Solver]:
    """The document's, in its order, then ours; ADMM as printed, without Newton steps at its end.

    `precondition`: of the ADMMs.
    """
    stop = {"tolerance": tolerance, "iterations": iterations}
    admm = {**stop, "precondition": precondition, "polish": 0}
    return {
        "PGS-CCP": dual.PGS(law="ccp", **stop),
        "PGS-NCP": dual.PGS(**stop),
        "NBGS": dual.NBGS(local_law="dissipation", **stop),
        "RAISIM": dual.RAISIM(**stop),
        "RAISIM-DS": dual.RAISIM(de_saxce=True, **stop),
        "RAISIM-DS-ES": dual.RAISIM(de_saxce=True, early_stopping=1e-6, **stop),
        "ADMM-CCP": dual.ADMM(law="ccp", penalty=dual.Fixed(), **admm),
        "ADMM-NCP-FP": dual.ADMM(penalty=dual.Fixed(), **admm),
        "ADMM-NCP-LA": dual.ADMM(penalty=dual.Linear(), **admm),
        "ADMM-NCP-SA": dual.ADMM(penalty=dual.Spectral(), **admm),
        "NBGS exact": dual.NBGS(**stop),
        "ADMM balanced": dual.ADMM(penalty=dual.Balanced(), **admm),
    }
