"""What the benchmark programs have in common: options, rows printed as soon as they are known, the end."""

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from benchmarks.harness import Arena

ROBOTS = ("solo12", "talos_full_v2")
BATCH = 4096


@dataclass
class Rows:
    """Rows {case, metric, ours, peer, peer_name, ratio}, each printed when it comes; ratio > 1: we win."""

    rows: list[dict] = field(default_factory=list)
    start: float = field(default_factory=time.perf_counter)

    def introduce(self):
        print(machine())
        load = os.getloadavg()[0]
        if load > 0.5:
            print(f"warning: load average {load:.1f}: something else computes, figures will be off")
        print(f"{'case':54} {'metric':14} {'ours':>11} {'peer':>11}  {'peer_name':38} {'ratio':>7}")

    def add(self, case: str, metric: str, ours: float, peer: float, name: str, more_is_better=True, aims=()):
        ratio = ours / peer if more_is_better else peer / ours
        row = {"case": case, "metric": metric, "ours": ours, "peer": peer, "peer_name": name, "ratio": ratio}
        self.rows.append(row)
        verdicts = ", ".join(f"{aim:.3g}: {'met' if ratio >= aim else 'MISSED'}" for aim in aims)
        verdict = f"  (aim {verdicts})" if verdicts else ""
        print(f"{case:54} {metric:14} {ours:11.4g} {peer:11.4g}  {name:38} {ratio:7.2f}{verdict}", flush=True)

    def finish(self, arena: Arena, path: str | None):
        """Say what failed, store the rows if a path is given, and count them."""
        for failure in arena.failures:
            print(f"left out: {failure.splitlines()[0]}", file=sys.stderr)
        if path:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(self.rows, file, indent=1)
        print(f"{len(self.rows)} rows in {time.perf_counter() - self.start:.0f} s")


def options(name: str, doc: str, cases, quick: str, check: str, plot: str, arguments=None):
    """The command line of `python -m benchmarks.NAME`, read; `quick`, `check`, `plot` say what these do."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=doc.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"{quick}, within a minute")
    parser.add_argument("--check", action="store_true", help=f"only {check}")
    parser.add_argument("--json", metavar="FILE", help="store the rows")
    parser.add_argument("--plot", metavar="FILE.png", help=f"draw {plot}")
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), help="URDFs of example-robot-data")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--cases", nargs="+", default=cases, choices=cases)
    parser.add_argument("--rounds", type=int, help="how often the contenders take turns")
    return parser.parse_args(arguments)


def arena(chosen) -> Arena:
    """Where the contenders meet; a quick run gives them fewer and shorter turns."""
    return Arena(rounds=chosen.rounds or (2 if chosen.quick else 6), seconds=0.15 if chosen.quick else 1.0)


def machine() -> str:
    names = ("jax", "mujoco", "mujoco-mjx", "frax", "pin")
    versions = []
    for name in names:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"{name} missing")
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((x.split(":")[1].strip() for x in file if x.startswith("model name")), model)
    except OSError:
        model = platform.machine()
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, {', '.join(versions)}"


def headless_pyplot():
    """matplotlib.pyplot that only writes files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
