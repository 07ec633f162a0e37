"""The benchmark suite of [LOOPS]: thirteen systems, seven classes of samples, ten solvers and two of ours.

    python -m benchmarks.suite [--quick] [--json FILE] [--png FILE] [--parts NAME ...] [--systems NAME ...]

solvers          every solver on every sample in float64: metrics, verdicts, performance profiles, orderings
float32          the same with float32, systems up to the quadruped
preconditioning  the ADMMs with and without it, systems up to the quadruped
throughput       batch 4096, float32: problems/s on a quadruped, and beside MJX's step
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import jax
import numpy as np

import jaxrbd as rbd
from benchmarks import report
from benchmarks.loops_suite import orderings, plots, throughput
from benchmarks.loops_suite.measure import TOLERANCE, Record, judge, read, samples_of
from benchmarks.loops_suite.samples import CLASSES, Sample
from benchmarks.loops_suite.solvers import solvers
from benchmarks.loops_suite.systems import TABLE, does_not_close, mechanism

PARTS = ("solvers", "float32", "preconditioning", "throughput")
QUICK = ("Box-on-Plane", "Fourbar (free)")
MOST_ROWS = 200  # dense contacts only where a problem has no more
LARGE = 150  # rows of joints; beyond, one sample per class
SMALL = 60  # and up to so many, float32 and preconditioning
ITERATIONS, COUNT = 1000, 4


def main(arguments=None) -> None:
    chosen = options(arguments)
    rbd.configure_cpu(devices=1, fusion=False)
    start = time.perf_counter()
    print(report.machine(), flush=True)
    records: list[Record] = []
    samples: list[dict] = []
    for path in chosen.answers:
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
        records += [read(row) for row in stored["answers"]]
        samples += stored["samples"]
    if not chosen.answers and set(chosen.parts) - {"throughput"}:
        with jax.enable_x64(True):
            for name in chosen.systems:
                records += run_system(name, chosen)
                print(f"{name}: {len(records)} answers after {time.perf_counter() - start:.0f} s", flush=True)
    found = summary(records, samples or described(records), chosen) if records else {}
    if "throughput" in chosen.parts and not chosen.answers:
        found["throughput"] = throughput.run(quick=chosen.quick)
    if records and chosen.png:
        plots.profiles([r for r in records if r.precision == "float64" and r.preconditioned], chosen.png)
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    print(f"{len(records)} answers in {time.perf_counter() - start:.0f} s")
    if len({r.sample.system for r in records}) > len(TABLE) // 2:  # enough of the suite to be asked
        gone = orderings.lost(found["orderings"])
        if gone or found["wrong verdicts"]:
            sys.exit(f"{found['wrong verdicts']} wrong verdicts; orderings that held before: {gone}")


def options(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.suite",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="two systems, two samples, within a minute")
    parser.add_argument("--json", metavar="FILE", help="store every answer's metrics and the summary")
    parser.add_argument("--png", metavar="FILE", help="draw the performance profiles")
    parser.add_argument("--parts", nargs="+", choices=PARTS)
    parser.add_argument("--systems", nargs="+", choices=list(TABLE), default=None)
    parser.add_argument("--answers", nargs="+", metavar="FILE", default=[], help="of --json, solve nothing")
    parser.add_argument("--samples", type=int, help="of every system and class")
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    chosen.parts = chosen.parts or (["solvers"] if chosen.quick else list(PARTS))
    chosen.systems = chosen.systems or list(QUICK if chosen.quick else TABLE)
    chosen.samples = chosen.samples or (2 if chosen.quick else COUNT)
    return chosen


def run_system(name: str, chosen) -> list[Record]:
    records: list[Record] = []
    rows = TABLE[name].rows
    made = samples_of(name, 1 if rows > LARGE else chosen.samples, MOST_ROWS, chosen.seed)
    for k, group in enumerate(made):
        for precision, part in (("float64", "solvers"), ("float32", "float32")):
            if part in chosen.parts and (precision == "float64" or (k == 0 and rows <= SMALL)):
                for key, solver in solvers(TOLERANCE[precision], chosen.iterations).items():
                    records += judge(group, key, solver, precision)
        if "preconditioning" in chosen.parts and k == 0 and rows <= SMALL:
            for plain in (True, False):
                every = solvers(TOLERANCE["float64"], chosen.iterations, precondition=not plain)
                for key, solver in every.items():
                    if key.startswith("ADMM") and (plain or "solvers" not in chosen.parts):
                        records += judge(group, key, solver, preconditioned=not plain)
    return records


def summary(records: list[Record], samples: list[dict], chosen) -> dict:
    """Everything that goes into the JSON file, printed where a reader wants to see it."""
    wrong = sum(r.wrong for r in records)
    print(f"converged with a residual above the tolerance: {wrong} of {len(records)} answers")
    for precision in TOLERANCE:
        some = [r for r in records if r.precision == precision and r.preconditioned]
        if some:
            table(some, precision)
    checks = orderings.check(records)
    for check in checks:
        print(f"[{'as expected' if check['holds'] else 'NOT as expected'}] {check['what']}: {check['seen']}")
    return {
        "machine": report.machine(),
        "settings": {
            "tolerance": TOLERANCE, "iterations": chosen.iterations, "samples": chosen.samples,
            "seed": chosen.seed, "most_rows": MOST_ROWS,
        },
        "systems": {n: mechanism(n).counts()._asdict() | {"off the table": does_not_close(n)} for n in TABLE},
        "samples": samples,
        "wrong verdicts": wrong,
        "orderings": checks,
        "answers": [r.row() for r in records],
    }  # fmt: skip


def described(records: list[Record]) -> list[dict]:
    """The samples behind the records, once each."""
    main = [r for r in records if r.precision == "float64" and r.preconditioned]
    return [describe(*x) for x in {id(r.sample): (r.sample, r.number) for r in main}.values()]


def describe(s: Sample, number: int) -> dict:
    rank, condition = s.conditioning()
    return {
        "system": s.system, "class": s.kind, "sample": number, "rows": s.rows, "contacts": s.count,
        "densities": s.densities(), "rank of D": rank, "condition": condition,
    }  # fmt: skip


def table(records: list[Record], precision: str) -> None:
    """Share solved by class; medians of iterations and times of what was solved."""
    print(f"\n{precision}, NCP solved to {TOLERANCE[precision]:g} m/s, per cent of samples")
    kinds = [c for c in CLASSES if any(r.sample.kind == c for r in records)]
    print(f"{'':14s}" + "".join(f"{k:>20s}" for k in kinds) + f"{'all':>8s}{'iterations':>12s}{'ms':>9s}")
    for solver in dict.fromkeys(r.solver for r in records):
        mine = [r for r in records if r.solver == solver]
        share = lambda rs: 100 * np.mean([r.solved for r in rs])  # noqa: E731
        cells = "".join(f"{share([r for r in mine if r.sample.kind == k]):20.0f}" for k in kinds)
        good = [r for r in mine if r.solved]
        used, taken = (np.median([getattr(r, x) for r in good] or [0]) for x in ("iterations", "seconds"))
        print(f"{solver:14s}{cells}{share(mine):8.0f}{used:12.0f}{1e3 * taken:9.2f}")


if __name__ == "__main__":
    main()
