"""What was expected of the solvers, asked of the measured answers; each with the margin that was seen."""

from __future__ import annotations

import numpy as np

from benchmarks.loops_suite.measure import Record
from benchmarks.loops_suite.plots import curves
from benchmarks.loops_suite.solvers import ADAPTIVE, OURS
from benchmarks.loops_suite.systems import TABLE

NBGS = ("NBGS", OURS[0])
CONTACT = ("single contact", "sparse contacts", "dense contacts", "dense constraints")

# what held on the suite when it was last run, and its margin: `docs/pages/suite.md`
HELD = {
    "adaptive ADMM solves most, redundant joints": 0.0,
    "adaptive ADMM solves most, dense joints": 0.0,
    "adaptive ADMM solves most, mass ratios of 1e3 and more": 0.04,
    "solved CCPs that slide break the NCP's complementarity (not its dual residual)": 5e-3,
    "RAISIM's NCP residual is above RAISIM-DS's": 52.0,
}


def lost(checks: list[dict]) -> list[str]:
    """Orderings that held before and do not hold now."""
    return [c["what"] for c in checks if c["what"] in HELD and not c["holds"]]


def check(records: list[Record]) -> list[dict]:
    """[{what, holds, seen, margin}]; what cannot be asked of these records is left out."""
    main = [r for r in records if r.precision == "float64" and r.preconditioned]
    found = []
    for kind in ("single contact", "sparse contacts"):
        found += fastest([r for r in main if r.sample.kind == kind], kind)
    for kind in ("redundant joints", "dense joints", "dense contacts", "dense constraints"):
        found += first([r for r in main if r.sample.kind == kind], kind)
    heavy = [n for n, row in TABLE.items() if row.ratio >= 1e3]
    found += first([r for r in main if r.sample.system in heavy], "mass ratios of 1e3 and more")
    return found + relaxed(main) + bisected(main) + preconditioned(records)


def _said(what: str, holds: bool, margin: float, seen: str) -> list[dict]:
    return [{"what": what, "holds": bool(holds), "margin": float(margin), "seen": seen}]


def both_sides(records: list[Record], mine: tuple[str, ...]) -> bool:
    """Whether there are answers of these solvers and of others."""
    return len({r.solver in mine for r in records}) == 2


def fastest(records: list[Record], kind: str) -> list[dict]:
    """ρ(1) of NBGS, the better of both, less the largest of the others."""
    if not both_sides(records, NBGS):
        return []
    names, _, rho, _ = curves(records)
    share = dict(zip(names, rho[:, 0]))
    mine = max((n for n in names if n in NBGS), key=lambda n: share[n])
    other = max((n for n in names if n not in NBGS), key=lambda n: share[n])
    seen = f"{mine} is the fastest on {share[mine]:.0%}, {other} on {share[other]:.0%}"
    margin = share[mine] - share[other]
    return _said(f"NBGS is the fastest, {kind}", margin >= 0, margin, seen)


def first(records: list[Record], kind: str) -> list[dict]:
    """Share solved by the best adaptive ADMM, less that of the best of the others."""
    if not both_sides(records, ADAPTIVE):
        return []
    names = dict.fromkeys(r.solver for r in records)
    share = {n: np.mean([r.solved for r in records if r.solver == n]) for n in names}
    mine = max((n for n in names if n in ADAPTIVE), key=lambda n: share[n])
    other = max((n for n in names if n not in ADAPTIVE), key=lambda n: share[n])
    seen = f"{mine} solves {share[mine]:.0%}, {other} {share[other]:.0%}"
    margin = share[mine] - share[other]
    holds = margin >= 0 and share[mine] > 0
    return _said(f"adaptive ADMM solves most, {kind}", holds, margin, seen)


def relaxed(records: list[Record]) -> list[dict]:
    """Where a CCP was solved and contacts slide: complementarity of the NCP, beside its dual residual."""
    some = [r for r in records if r.solver.endswith("CCP") and r.converged and r.metrics.sliding > 1e-2]
    if not some:
        return []
    power = min(r.metrics.complementarity for r in some)
    dual = max(r.metrics.dual for r in some)
    seen = f"{len(some)} answers: r_ncp at least {power:.1e} J, r_dual at most {dual:.1e} m/s"
    what = "solved CCPs that slide break the NCP's complementarity (not its dual residual)"
    return _said(what, power > 0 and dual <= 2 * some[0].tolerance, power, seen)


def bisected(records: list[Record]) -> list[dict]:
    """NCP residual of RAISIM over that of RAISIM-DS, where contacts are closed and slide."""
    key = lambda r: (r.sample.system, r.sample.kind, r.number)  # noqa: E731
    plain = {key(r): r for r in records if r.solver == "RAISIM" and r.sample.kind in CONTACT}
    lifted = {key(r): r for r in records if r.solver == "RAISIM-DS"}
    pairs = [(r.metrics.ncp, lifted[k].metrics.ncp) for k, r in plain.items() if r.metrics.sliding > 1e-2]
    if not pairs:
        return []
    above = np.mean([a >= b * (1 - 1e-6) for a, b in pairs])
    ratio = np.median([a / max(b, 1e-16) for a, b in pairs])
    seen = f"at or above on {above:.0%} of {len(pairs)} sliding samples, median ratio {ratio:.3g}"
    return _said("RAISIM's NCP residual is above RAISIM-DS's", ratio >= 1, ratio - 1, seen)


def preconditioned(records: list[Record]) -> list[dict]:
    """Share solved with preconditioning less that without, the worst of the ADMMs."""
    plain = [r for r in records if not r.preconditioned]
    if not plain:
        return []
    keys = {(r.sample.system, r.sample.kind, r.number, r.solver) for r in plain}
    same = [
        r
        for r in records
        if r.precision == "float64"
        and r.preconditioned
        and (r.sample.system, r.sample.kind, r.number, r.solver) in keys
    ]
    share = lambda rs, n: np.mean([r.solved for r in rs if r.solver == n])  # noqa: E731
    change = {n: share(same, n) - share(plain, n) for n in dict.fromkeys(r.solver for r in plain)}
    seen = ", ".join(f"{n} {share(plain, n):.0%} -> {share(same, n):.0%}" for n in change)
    worst = min(change.values())
    return _said("preconditioning never lowers the share solved", worst >= 0, worst, seen)
