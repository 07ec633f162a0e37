"""All solvers on all samples: answers, metrics, times, verdicts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.loops_suite.metrics import Metrics, metrics
from benchmarks.loops_suite.samples import Former, Sample, groups
from benchmarks.loops_suite.systems import mechanism
from jaxrbd import dual

TOLERANCE = {"float64": 1e-4, "float32": 1e-4}  # [m/s]


@dataclass(frozen=True)
class Record:
    """One answer of one solver to one sample."""

    sample: Sample
    number: int  # of the sample
    solver: str
    precision: str
    preconditioned: bool
    tolerance: float
    metrics: Metrics
    own: float  # scaled natural map of the solver's model, measured here
    iterations: int
    seconds: float
    converged: bool  # what the library says

    @property
    def solved(self) -> bool:
        """The NCP, to the tolerance."""
        return self.metrics.ncp <= self.tolerance

    @property
    def wrong(self) -> bool:
        """Said to be converged, and is not: one unit of rounding is granted."""
        slack = 1e-6 if self.precision == "float64" else 1e-2
        return self.converged and not self.own <= self.tolerance * (1 + slack)

    def row(self) -> dict[str, Any]:
        s, m = self.sample, self.metrics
        values = {k: v for k, v in m._asdict().items() if k != "rows"}
        return {
            "system": s.system, "class": s.kind, "sample": self.number, "solver": self.solver,
            "precision": self.precision, "preconditioned": self.preconditioned, "rows": s.rows,
            "contacts": s.count, **values, "argmax": m.rows, "iterations": self.iterations,
            "seconds": self.seconds, "converged": self.converged, "solved": self.solved, "wrong": self.wrong,
        }  # fmt: skip


def read(row: dict[str, Any]) -> Record:
    """A record from its `row`, with no more of its sample than names and counts."""
    none = np.zeros(0)
    sample = Sample(
        row["system"], row["class"], (), np.zeros((0, 0)), none, none, none, 0, row["contacts"], 0
    )  # fmt: skip
    found = Metrics(**{k: row[k] for k in Metrics._fields if k != "rows"}, rows=row["argmax"])
    own = found.ccp if row["solver"].endswith("CCP") else found.ncp
    return Record(
        sample, row["sample"], row["solver"], row["precision"], row["preconditioned"],
        TOLERANCE[row["precision"]], found, own, row["iterations"], row["seconds"], row["converged"],
    )  # fmt: skip


def samples_of(name: str, count: int, most_rows: int, seed: int = 0) -> list[list[Sample]]:
    """Groups of samples of one shape each."""
    m = mechanism(name)
    found = groups(m, most_rows)
    return Former(m, max(max(g.values()) for g in found)).samples(found, count, seed)


def answers(
    group: list[Sample], solver: dual.Solver, precision: str, repeats: int = 2
) -> list[tuple[np.ndarray, int, bool, float]]:
    """λ, iterations, verdict and the best time of each sample, solved one by one without a batch."""
    first, dtype = group[0], jnp.dtype(precision)
    shape = {"joints": first.joints, "contacts": (3,) * first.slots}

    def one(D, v_f, mu):
        found = dual.solve(dual.problem(D, v_f, mu if len(mu) else None, **shape), solver)
        return found.value.lam, found.stats.iterations, found.converged

    run: Any = jax.jit(one)
    done = []
    for k, s in enumerate(group):
        inputs = [jnp.asarray(x, dtype) for x in (s.D, s.v_f, s.mu)]
        best, found = np.inf, None
        if k == 0:
            run = run.lower(*inputs).compile()
        for _ in range(repeats):
            start = time.perf_counter()
            found = jax.block_until_ready(run(*inputs))
            best = min(best, time.perf_counter() - start)
            if best > 0.2:  # long enough for the clock
                break
        lam, used, good = (np.asarray(x) for x in found)
        done.append((lam, int(used), bool(good), best))
    return done


def rounded(s: Sample, precision: str) -> Sample:
    """The problem that a solver in this precision was given, in float64."""
    if precision == "float64":
        return s
    low = lambda x: x.astype(precision).astype(float)  # noqa: E731
    return Sample(**{**s.__dict__, "D": low(s.D), "v_f": low(s.v_f), "mu": low(s.mu)})


def judge(
    group: list[Sample],
    name: str,
    solver: dual.Solver,
    precision: str = "float64",
    preconditioned: bool = True,
) -> list[Record]:
    found = []
    for k, (s, (lam, used, good, seconds)) in enumerate(zip(group, answers(group, solver, precision))):
        m = metrics(rounded(s, precision), lam)
        own = m.ncp if solver.model == "ncp" else m.ccp
        limit = float(solver.tolerance or 0)
        found.append(
            Record(s, k, name, precision, preconditioned, limit, m, own, used, seconds, good)
        )  # fmt: skip
    return found
