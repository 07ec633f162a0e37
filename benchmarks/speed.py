"""How fast we are beside MJX, frax, Pinocchio and MuJoCo C:  python -m benchmarks.speed [--quick | --check].

Prints and stores rows {case, metric, ours, peer, peer_name, ratio}; ratio > 1 means that we are better.
Every contender runs in its own process with the settings that suit it best, in turns with the others. All
robots have a free base. The JAX libraries compute in float32, Pinocchio and MuJoCo C in float64, which is
all they have. Nothing else should run meanwhile.
"""

import os
import sys
import time

import numpy as np

from benchmarks import report
from benchmarks.check import same_robots
from benchmarks.harness import Arena, Contender, Result, best_of

CASES = ("dynamics", "step", "latency", "compile", "scaling", "devices")
QUICK_SECONDS = 45.0  # no case starts later than this, so that the last one ends within a minute
FRAX_ENV = (  # what the README of frax recommends for CPUs
    (
        "XLA_FLAGS",
        "--xla_cpu_multi_thread_eigen=false --xla_cpu_scheduler_type=CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    ),
    ("OPENBLAS_NUM_THREADS", "1"),
)
# With one device per core, LAPACK calls of large batches wait for a free thread of XLA's pool (JAX 0.10.2).
# When every thread runs a device already they wait for ever. More threads than devices prevent it.
SPREAD_ENV = (("NPROC", str(2 * (os.cpu_count() or 1))),)
OURS = Contender("jaxrbd", "configure_cpu()", spread=True, fusion=True)  # one setting for every row
ONE_DEVICE = Contender("jaxrbd", "one device", spread=True, fusion=True, devices=1)
MJX = (  # not with multi-output fusion: jaxlib 0.10.2 aborts on compiling MJX with it
    Contender("mjx", "as installed"),
    Contender("mjx", "one device per core", spread=True, env=SPREAD_ENV),
)
FRAX = (
    Contender("frax", "as installed"),
    Contender("frax", "its own flags", env=FRAX_ENV),
    Contender("frax", "one device per core", spread=True, env=SPREAD_ENV),
    Contender("frax", "one device per core, fusion", spread=True, fusion=True, env=SPREAD_ENV),
)
PINOCCHIO = (Contender("pinocchio", "parallel"), Contender("pinocchio", "a process per core", processes=True))
MUJOCO = (Contender("mujoco", "rollout, all threads"),)
EVERYONE = (OURS, ONE_DEVICE, *MJX, *FRAX, *PINOCCHIO, *MUJOCO)
QUICK = (OURS, MJX[0], *FRAX[1:3], *PINOCCHIO, *MUJOCO)
AIMS = {  # what we hold ourselves to, by metric and peer
    ("forward_dynamics", "mjx"): (5.0,),
    ("forward_dynamics", "frax"): (3.0,),
    ("inverse_dynamics", "frax"): (3.0,),
    ("mass_matrix", "frax"): (3.0,),
    ("step", "mujoco"): (1.0,),
    ("latency", "frax"): (1.0,),
    ("compile", "mjx"): (2.0,),
}


class Table(report.Rows):
    """Rows of races: one against each peer's best settings."""

    def throughput(self, case: str, task: str, results: list[Result]):
        """Rows in states per second, or steps per second, against each peer's best settings."""
        ours = best_of(results, "jaxrbd")
        for name in dict.fromkeys(r.contender.name for r in results if r.contender.name != "jaxrbd"):
            peer = best_of(results, name)
            unit = "steps/s" if task == "step" else "states/s"
            if ours is None:
                self.alone(case, unit, 1 / peer.seconds, peer)
                continue
            aims = AIMS.get((task, name), ())
            self.add(case, unit, 1 / ours.seconds, 1 / peer.seconds, peer.contender.label, aims=aims)

    def seconds(self, case: str, metric: str, what: str, key: str, results: list[Result], scale: float = 1.0):
        """Rows in seconds times `scale` (latency or compile time), where less is better."""
        ours = best_of(results, "jaxrbd", key)
        for name in dict.fromkeys(r.contender.name for r in results if r.contender.name != "jaxrbd"):
            peer = best_of(results, name, key)
            value = getattr(peer, key) * scale
            if not np.isfinite(value):
                continue
            if ours is None:
                self.alone(case, metric, value, peer)
                continue
            aims = AIMS.get((what, name), ())
            self.add(case, metric, getattr(ours, key) * scale, value, peer.contender.label, False, aims)

    def alone(self, case: str, metric: str, value: float, peer: Result):
        """Print what a peer achieved where we failed."""
        print(f"{case:54} {metric:14} {'-':>11} {value:11.4g}  {peer.contender.label}", flush=True)


def dynamics(arena: Arena, table: Table, task: str, robot: str, batch: int, quick: bool):
    """Forward dynamics, inverse dynamics or mass matrix of a batch; the quick run reports compiling too."""
    mjx, frax, pinocchio = (MJX[:1], FRAX[2:3], PINOCCHIO[:1]) if quick else (MJX, FRAX, PINOCCHIO)
    contenders = {
        "forward_dynamics": (OURS, *mjx, *frax, *pinocchio),
        "inverse_dynamics": (OURS, *frax, *pinocchio),
        "mass_matrix": (OURS, *frax, PINOCCHIO[1]),
    }[task]
    results = arena.compete(contenders, task, robot, batch)
    case = f"{task} {robot} batch {batch}"
    table.throughput(case, task, results)
    if quick and task == "forward_dynamics":
        table.seconds(case, "compile s", "compile", "compile", results)


def stepping(arena: Arena, table: Table, robot: str, batch: int, quick: bool):
    """Semi-implicit Euler steps, many to a call. MJX compiles slowly and is left out of the quick run."""
    steps = 10 if quick else 25
    contenders = (OURS, *MUJOCO, *(() if quick else MJX))
    results = arena.compete(contenders, "step", robot, batch, steps=steps)
    table.throughput(f"step {robot} batch {batch}, {steps} a call", "step", results)


def latency(arena: Arena, table: Table, robot: str, quick: bool):
    """One state, jitted, input on the device: microseconds until the answer is there."""
    contenders = (OURS, FRAX[1]) if quick else (OURS, *FRAX, *MJX, PINOCCHIO[0])
    results = arena.compete(contenders, "forward_dynamics", robot, 0)
    table.seconds(f"forward_dynamics {robot} batch 1", "latency us", "latency", "seconds", results, 1e6)


def compiling(arena: Arena, table: Table, robot: str, batch: int):
    """Tracing and compiling forward dynamics from nothing, in seconds, best of three in turns."""
    contenders = (OURS, MJX[0], FRAX[0])
    results = arena.compete(contenders, "forward_dynamics", robot, batch, recompile=2, timed=False)
    case = f"forward_dynamics {robot} {f'batch {batch}' if batch else 'unbatched'}"
    table.seconds(case, "compile s", "compile", "compile", results)


def scaling(arena: Arena, table: Table, quick: bool):
    """Forward dynamics of chains, batch 1024: run time per state grows linearly, compile time hardly."""
    lengths = (10, 100, 200) if quick else (10, 20, 50, 100, 150, 200)
    run, compile_time = {}, {}
    for links in lengths:
        results = arena.compete(
            (OURS,), "forward_dynamics", f"chain{links}", 1024, recompile=0 if quick else 2
        )
        if not results:
            return
        run[links], compile_time[links] = results[0].seconds * 1e6, results[0].compile
    for links in lengths[1:]:
        case = f"forward_dynamics chain of {links} batch 1024"
        table.add(case, "run us", run[links], run[10] * links / 10, "linear from 10 links", False)
    exponent = np.polyfit(np.log(list(run)), np.log(list(run.values())), 1)[0]
    table.add(
        "chains of 10 to 200 batch 1024", "exponent", float(exponent), 1.15, "limit", False, aims=(1.0,)
    )
    growth = compile_time[100] / compile_time[10]
    table.add("compile, chain of 100 over chain of 10", "quotient", growth, 1.5, "limit", False, aims=(1.0,))


def devices(arena: Arena, table: Table, robot: str, batch: int):
    """The batch shared among one device per core, against one device, which may use all threads too."""
    case = f"forward_dynamics {robot} batch {batch}, a device per core"
    results = arena.compete((OURS, ONE_DEVICE), "forward_dynamics", robot, batch)
    if len(results) == 2:
        ours, one = (1 / r.seconds for r in results)
        table.add(case, "states/s", ours, one, ONE_DEVICE.label, aims=(1.1,))


def schedule(names, robots, batch: int, quick: bool):
    """The cases to run as (name, call) pairs; a quick run has the most telling first, as time may run out."""
    tasks = ("forward_dynamics", "inverse_dynamics", "mass_matrix")
    pairs = [(task, robot) for robot in robots for task in tasks]
    cases = [("dynamics", lambda *to, t=t, r=r: dynamics(*to, t, r, batch, quick)) for t, r in pairs]
    cases += [("step", lambda *to, r=r: stepping(*to, r, batch, quick)) for r in robots]
    cases += [("latency", lambda *to, r=r: latency(*to, r, quick)) for r in robots]
    if not quick:
        cases += [("compile", lambda *to, r=r, b=b: compiling(*to, r, b)) for r in robots for b in (batch, 0)]
        cases += [("devices", lambda *to, r=r: devices(*to, r, batch)) for r in robots]
    cases += [("scaling", lambda *to: scaling(*to, quick))]
    if quick:
        order = ("step", "dynamics", "scaling", "latency")
        first = [case for case, (task, _) in zip(cases, pairs, strict=False) if task == "forward_dynamics"]
        rest = sorted((c for c in cases if c not in first), key=lambda c: order.index(c[0]))
        cases = first + rest
    return [case for case in cases if case[0] in names]


def plot(rows: list[dict], path: str):
    """Ratios as bars on a logarithmic axis, one colour per peer; the line at 1 is a draw."""
    plt = report.headless_pyplot()
    bars = [r for r in rows if r["peer_name"] not in ("limit", "linear from 10 links")]
    chains = [r for r in rows if r["peer_name"] == "linear from 10 links"]
    size, widths = ((14, 1.5 + 0.25 * len(bars)), [2, 1]) if chains else ((9, 1.5 + 0.25 * len(bars)), [1])
    figure, axes = plt.subplots(1, len(widths), figsize=size, squeeze=False, width_ratios=widths)
    peers = list(dict.fromkeys(r["peer_name"].split(" ")[0] for r in bars))
    left = axes[0, 0]
    for i, row in enumerate(bars):
        peer = row["peer_name"].split(" ")[0]
        left.barh(i, row["ratio"] - 1, left=1, color=f"C{peers.index(peer)}")
        left.text(row["ratio"], i, f" {row['ratio']:.2g}× {peer}", va="center", fontsize=7)
    left.set_yticks(range(len(bars)), [f"{r['case']}, {r['metric']}" for r in bars], fontsize=7)
    left.invert_yaxis()
    left.set_xscale("log")
    left.axvline(1, color="black", linewidth=1)
    left.margins(x=0.15)
    left.set_xlabel("times better than the peer (right of 1: we win)")
    if chains:
        right = axes[0, 1]
        links = [int(r["case"].split("chain of ")[1].split(" ")[0]) for r in chains]
        right.loglog(links, [r["ours"] for r in chains], "o-", label="measured")
        right.loglog(links, [r["peer"] for r in chains], "--", label="linear from 10 links")
        right.set_xticks(links, links)
        right.minorticks_off()
        right.set_xlabel("links of a chain")
        right.set_ylabel("forward dynamics, µs per state, batch 1024")
        right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main(arguments=None) -> int:
    options = report.options(
        "speed",
        __doc__,
        CASES,
        quick="fewer contenders and repetitions",
        check="verify that all contenders have the same robot",
        plot="the ratios",
        arguments=arguments,
    )
    if options.check:
        return 0 if same_robots(options.robots) else 1

    table, quick = Table(), options.quick
    table.introduce()
    with report.arena(options) as arena:
        arena.start(QUICK if quick else EVERYONE)
        cases = schedule(options.cases, options.robots, options.batch, quick)
        for i, (_, run) in enumerate(cases):
            if quick and time.perf_counter() - table.start > QUICK_SECONDS:
                print(f"{len(cases) - i} of {len(cases)} cases left for the full run: out of time")
                break
            run(arena, table)
    table.finish(arena, options.json)
    if options.plot:
        plot(table.rows, options.plot)
    return 1 if arena.failures else 0


if __name__ == "__main__":
    sys.exit(main())
