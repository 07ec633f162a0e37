"""Runs the solvers over samples and counts their verdicts against the reference.

A wrong verdict says `converged` or `stationary` of an acceleration that is off by more than TOLERANCE.
Problems that a precision cannot decide are counted apart: there any answer is right that is right at one of
the ranks the precision cannot tell apart, and so is `not_converged`. So are problems whose reference is in
doubt: rows that depend exactly and contradict each other, under weights of twelve decades.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import verdict_reference as reference
from verdict_cases import Mechanism, Samples

import jaxrbd as rbd

TOLERANCE = {"float64": 1e-6, "float32": 1e-2}
LEAVES = ("mass", "inertia", "armature")  # of the System; the others are of the constraints
SOLVERS = ("ConstrainedABA", "ProxPV", "ProxLTL", "ProxLTLs", "Dense", "Soft", "Classic")
COLUMNS = (
    "problems",
    "NaN",
    "NaN claimed",
    "converged",
    "stationary",
    "not converged",
    "... dependent",
    "undecidable",
    "... not converged",
    "wrong",
    "... undecidable",
    "worst feasible",
    "worst infeasible",
    "worst claimed",
)


@dataclass
class Tally:
    """Of one solver in one precision; `wrong` and `missed` keep what to look at."""

    counts: Counter = field(default_factory=Counter)
    worst: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COLUMNS[-3:], 0.0))
    wrong: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def row(self) -> dict[str, float]:
        return {c: self.worst[c] if c in self.worst else self.counts[c] for c in COLUMNS}

    def merge(self, other: Tally) -> None:
        self.counts.update(other.counts)
        for key, x in other.worst.items():
            self.worst[key] = max(self.worst[key], x)
        self.wrong += other.wrong
        self.missed += other.missed

    @property
    def not_converged_share(self) -> float:
        """Of the decidable problems."""
        decidable = self.counts["problems"] - self.counts["undecidable"]
        return self.counts["not converged"] / max(1, decidable)


def penalties(samples: Samples):
    """An explicit mu for `Soft`: ten times the mass, springs that float32 can tell from the bodies."""
    return 10 * samples.leaves["mass"].sum(1)


def run(m: Mechanism, samples: Samples, solver: str, dtype: str):
    """Accelerations (B, nv) in float64 and verdicts (B,)."""
    sys, con = m.sys.astype(dtype), m.con.astype(dtype)

    def one(q, v, tau, x, mu):
        method = rbd.Soft(mu=mu) if solver == "Soft" else getattr(rbd, solver)()
        changed = sys.replace(**{k: x[k] for k in LEAVES})
        rows = con.replace(**{k: y for k, y in x.items() if k not in LEAVES})
        s = rbd.constrained_dynamics(changed, q, v, tau, rows, method)
        return s.value.a, s.result

    s = samples.astype(dtype)
    as_jax = lambda x: jax.tree.map(lambda y: jnp.asarray(y, dtype), x)  # noqa: E731
    a, result = jax.jit(jax.vmap(one))(*as_jax((s.q, s.v, s.tau, s.leaves, penalties(s))))
    return np.asarray(a, np.float64), np.asarray(result)


def references(m: Mechanism, samples: Samples, dtype: str):
    """Problems as the precision poses them, and their answers."""
    s = samples.astype(dtype)
    sys, con = m.sys.astype(dtype), m.con.astype(dtype)
    eps = float(np.finfo(dtype).eps)
    found = reference.problems(sys, con, s.q, s.v, s.tau, **s.leaves)
    return [(p, reference.judged(p, eps)) for p in found]


def judge(m: Mechanism, samples: Samples, solver: str, dtype: str, known=None, answers=None) -> Tally:
    """Count one solver's verdicts on a batch; `known` from `references`, `answers` from `run`."""
    known = references(m, samples, dtype) if known is None else known
    a, result = run(m, samples, solver, dtype) if answers is None else answers
    mu = penalties(samples.astype(dtype)).astype(np.float64)
    tally, eps = Tally(), float(np.finfo(dtype).eps)
    n = tally.counts
    for k, (problem, answer) in enumerate(known):
        doubt = answer.doubt
        right, undecidable = answer.cuts, answer.undecidable or doubt > TOLERANCE[dtype]
        if solver == "Soft":
            right, stiffness = reference.penalty(problem, mu[k])
            right, undecidable, doubt = right[None], bool(stiffness * len(problem.c) * eps > 1), 0.0
        errors = [reference.error(a[k], x) for x in right]
        e = min(errors) if undecidable else errors[-1]
        nan = not np.isfinite(a[k]).all()
        claimed = bool(result[k] != rbd.Result.not_converged)
        wrong = claimed and not e <= max(TOLERANCE[dtype], doubt)
        n["problems"] += 1
        n["NaN"] += nan
        n["NaN claimed"] += nan and claimed
        n["undecidable"] += undecidable
        if wrong or not (claimed or undecidable):
            where = (
                f"{m.name}, sample {k} ({samples.kinds[k]}): error {e:.1e}, {_describe(problem, answer, eps)}"
            )
        if wrong:
            n["... undecidable" if undecidable else "wrong"] += 1
            says = rbd.Result(int(result[k])).name
            tally.wrong.append(f"{solver} {dtype} {says}{' (undecidable)' if undecidable else ''}: {where}")
        if undecidable:
            n["... not converged"] += not claimed
            continue
        if claimed:
            n["converged" if result[k] == rbd.Result.converged else "stationary"] += 1
            tally.worst["worst claimed"] = max(tally.worst["worst claimed"], e)
        else:
            n["not converged"] += 1
            n["... dependent"] += answer.dependent
            tally.missed.append(f"{solver} {dtype}: {where}")
        key = "worst feasible" if answer.feasible else "worst infeasible"
        tally.worst[key] = max(tally.worst[key], e)
    return tally


def _describe(problem: reference.Problem, answer: reference.Answer, eps: float) -> str:
    """What is known of a problem; "sensitivity": the error that rounding its numbers makes."""
    return (
        f"{'feasible' if answer.feasible else 'infeasible'}, {len(problem.c)} rows of rank {answer.rank}, "
        f"λ {answer.smallest:.0e}, weighted {answer.smallest_weighted:.0e}, "
        f"sensitivity {reference.sensitivity(problem, eps):.0e}"
    )


def table(tallies: dict[tuple[str, str], Tally]) -> str:
    """Solver × precision × COLUMNS, aligned."""
    lines = [["solver", "", *COLUMNS]]
    for (solver, dtype), tally in tallies.items():
        cells = [f"{x:.0e}" if c in tally.worst else str(x) for c, x in tally.row().items()]
        lines.append([solver, dtype, *cells])
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join(
        "  ".join(x.rjust(w) if k > 1 else x.ljust(w) for k, (x, w) in enumerate(zip(line, widths)))
        for line in lines
    )
