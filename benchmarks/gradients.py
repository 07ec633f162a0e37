"""What derivatives cost, in time, compiling and memory:  python -m benchmarks.gradients [--quick | --check].

Prints and stores rows {case, metric, ours, peer, peer_name, ratio}; ratio > 1 means that we are better. The
peer is often our own forward pass, and the ratio then says how much of its speed is left. A derivative by q
alone never counts: every one is by q, v and tau (or a), and products come with the value. Robots have a
free base; throughputs are of a batch of 4096 in float32 unless the row says otherwise. At the end stands a
table for a README. Nothing else should run meanwhile.
"""

import sys
import time
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from benchmarks import report
from benchmarks.check import same_derivatives
from benchmarks.harness import Arena, Contender, Entry, Result, Worker
from benchmarks.speed import MJX, OURS, PINOCCHIO, SPREAD_ENV

CASES = ("throughput", "links", "steps", "jacfwd", "step")
OURS64 = Contender("jaxrbd", "float64", spread=True, fusion=True, double=True)
PLAIN = Contender("jaxrbd", "jacfwd, fusion", spread=True, fusion=True)
PLAIN_SAFE = Contender("jaxrbd", "jacfwd", spread=True)  # should XLA abort on it with fusion
MJX64 = Contender("mjx", "float64", env=SPREAD_ENV, double=True)
FORWARD, INVERSE = "forward_dynamics", "inverse_dynamics"
JVP, VJP, JACOBIANS = (f"{way} {FORWARD}" for way in ("jvp", "vjp", "jacobians"))
SHORT = (FORWARD, JVP, VJP, JACOBIANS)
TASKS = (*SHORT, INVERSE, f"vjp {INVERSE}", f"jacobians {INVERSE}", "step", "vjp step")
CHECKED = {  # what is compared with Pinocchio, and how far it may be off
    OURS64: ((JVP, VJP, JACOBIANS, f"vjp {INVERSE}", f"jacobians {INVERSE}", "vjp step"), 1e-6),
    OURS: ((JVP, VJP, JACOBIANS, f"vjp {INVERSE}", f"jacobians {INVERSE}", "vjp step"), 1e-3),
    PLAIN: ((f"jacfwd {FORWARD}",), 1e-3),
    MJX64: (("vjp step",), 1e-3),  # it moves the base otherwise, which differs by the order of the time step
}
PLAIN_BATCHES = (32, 256)  # jacfwd leaves the cache early, so the better one counts
MJX_BATCH = 512  # its gradients are slow enough for the clock
LINKS, QUICK_LINKS = (10, 25, 50, 100, 200), (10, 200)
STEPS, QUICK_STEPS = (64, 256, 1024, 4096), (64, 1024)
LINKS_BATCH, STEPS_BATCH, ONE_CHUNK = 256, 16, 32
KEEPERS = {  # ways of remembering a rollout: label and options
    "path": ("path", {}),
    "path sqrt": ('path, checkpoint="sqrt"', {"checkpoint": "sqrt"}),
    "last": ("last state", {"keep": "last"}),
    "sqrt": ('last state, checkpoint="sqrt"', {"keep": "last", "checkpoint": "sqrt"}),
}
AIMS = {JVP: (0.4,), VJP: (0.25, 0.33)}  # share of the forward pass: what we must keep, what we want to
PINOCCHIO_AIM, JACFWD_AIM, MJX_AIM = 1.0, 10.0, 10.0
NEEDED = {  # who takes part in which case
    "throughput": (OURS, OURS64, PINOCCHIO[1]),
    "links": (OURS,),
    "steps": (OURS,),
    "jacfwd": (OURS, PLAIN, PLAIN_SAFE),
    "step": (OURS, *MJX),
}
QUICK_SECONDS = 52.0  # when the last case should end, going by the time that the first one took
COSTS = {"throughput": 1.0, "links": 0.4, "steps": 0.7}  # time that cases of a quick run take
COMPILE_LIMIT, LINKS_LIMIT, STEPS_LIMIT = 4.0, 1.15, 0.6


@dataclass
class Findings(report.Rows):
    """Rows, and what the table and the plot need beyond them."""

    rates: dict[tuple[str, str], float] = field(default_factory=dict)  # (robot, task): states/s
    compile: dict[tuple[str, str], float] = field(default_factory=dict)  # (robot, task): seconds
    reverse: dict[str, float] = field(default_factory=dict)  # robot: bytes per step and state
    links: dict[int, int] = field(default_factory=dict)  # links: bytes
    steps: dict[str, dict[int, int]] = field(default_factory=dict)  # way of keeping: {steps: bytes}


def throughput(arena: Arena, found: Findings, robot: str, batch: int, quick: bool):
    """Our derivatives beside our forward pass, Jacobians beside Pinocchio's, and compile times."""
    entries = [Entry(OURS, task, batch) for task in (SHORT if quick else TASKS)]
    entries += [] if quick else [Entry(OURS64, task, batch) for task in (FORWARD, JACOBIANS)]
    entries += [Entry(PINOCCHIO[1], JACOBIANS, batch)]
    results = arena.race(entries, robot)
    rate = {(r.contender, r.task): 1 / r.seconds for r in results}
    found.rates |= {(robot, task): x for (contender, task), x in rate.items() if contender is OURS}

    for contender, bits in ((OURS, "float32"), (OURS64, "float64")):
        for task in TASKS:
            way, _, base = task.rpartition(" ")
            forward = rate.get((contender, base))
            if not way or forward is None or (contender, task) not in rate:
                continue
            case = f"{task} {robot}" + ("" if contender is OURS else f" {bits}")
            aims = AIMS.get(task, ()) if contender is OURS else ()
            found.add(case, "states/s", rate[contender, task], forward, f"our {base}, {bits}", aims=aims)
    peer = rate.get((PINOCCHIO[1], JACOBIANS))
    for contender, bits in ((OURS, ""), (OURS64, " float64")):
        ours, label = rate.get((contender, JACOBIANS)), PINOCCHIO[1].label
        if peer is not None and ours is not None:
            aims = (PINOCCHIO_AIM,) if contender is OURS else ()
            found.add(f"{JACOBIANS} {robot}{bits}", "states/s", ours, peer, label, aims=aims)
    compiling(arena, found, robot, batch, quick, results)


def compiling(arena: Arena, found: Findings, robot: str, batch: int, quick: bool, results: list[Result]):
    """Tracing and compiling from nothing, best of three in turns (the quick run: once, on preparing)."""
    if not quick:
        results += arena.race([Entry(OURS, task, batch) for task in SHORT], robot, recompile=1, rounds=0)
    for task in SHORT:
        seconds = [r.compile for r in results if r.contender is OURS and r.task == task]
        if seconds:
            found.compile[robot, task] = min(seconds)
    forward = found.compile.get((robot, FORWARD))
    for task in SHORT[1:]:
        seconds = found.compile.get((robot, task))
        if seconds is not None and forward is not None:
            aims = (1 / COMPILE_LIMIT,) if task == VJP else ()
            found.add(f"{task} {robot}", "compile s", seconds, forward, f"our {FORWARD}", False, aims)


def jacfwd(arena: Arena, found: Findings, robot: str, batch: int):
    """Full Jacobians beside jax.jacfwd through the recursion, at the batch that suits it better."""
    for contender in (PLAIN, PLAIN_SAFE):
        plain = [Entry(contender, f"jacfwd {FORWARD}", n) for n in PLAIN_BATCHES]
        results = arena.race([Entry(OURS, JACOBIANS, batch), *plain], robot, rounds=min(arena.rounds, 3))
        if any(r.contender is contender for r in results):
            break
    against(found, f"{JACOBIANS} {robot}", results, "jax.jacfwd of the recursion", JACFWD_AIM)


def stepping(arena: Arena, found: Findings, robot: str, batch: int):
    """Cotangents of a semi-implicit step without contacts beside those of MJX."""
    entries = [Entry(OURS, "vjp step", batch), *(Entry(peer, "vjp step", MJX_BATCH) for peer in MJX)]
    results = arena.race(entries, robot, rounds=min(arena.rounds, 3))
    against(found, f"vjp step {robot}", results, None, MJX_AIM)


def against(found: Findings, case: str, results: list[Result], name: str | None, aim: float):
    """A row of ours against the best of all others."""
    ours = min((r for r in results if r.contender is OURS), key=lambda r: r.seconds, default=None)
    peer = min((r for r in results if r.contender is not OURS), key=lambda r: r.seconds, default=None)
    if ours is None or peer is None:
        return
    name = f"{name or peer.contender.label}, batch {peer.entry.batch}"
    found.add(case, "states/s", 1 / ours.seconds, 1 / peer.seconds, name, aims=(aim,))


def exponent(sizes: dict[int, float]) -> float:
    """Slope of the fitted line in a doubly logarithmic plot."""
    return float(np.polyfit(np.log(list(sizes)), np.log(list(sizes.values())), 1)[0])


def temporaries(arena: Arena, program: str, robot: str, batch: int, **more) -> int | None:
    what = f"memory of {program}, {robot}"
    request = {"program": program, "robot": robot, "batch": batch, **more}
    return (arena.ask(OURS, what, op="memory", **request) or {}).get("bytes")


def links(arena: Arena, found: Findings, quick: bool):
    """Temporaries of the VJP of forward dynamics of chains, batch 256, which should grow with the links."""
    lengths = QUICK_LINKS if quick else LINKS
    first = None
    for n in lengths:
        size = temporaries(arena, "vjp", f"chain{n}", LINKS_BATCH)
        if size is None:
            return
        found.links[n] = size
        per_state, first = size / LINKS_BATCH, first or size / n
        case = f"{VJP} chain of {n} batch {LINKS_BATCH}"
        found.add(case, "bytes", size, first * n, f"linear from {lengths[0]} links", False)
        if not quick:
            alone = (temporaries(arena, "vjp", f"chain{n}", ONE_CHUNK) or size) / ONE_CHUNK
            if abs(alone / per_state - 1) > 0.1:  # the batch is cut into chunks that share their memory
                name = f"batch {ONE_CHUNK}, one chunk"
                found.add(case, "bytes a state", per_state, alone, name, False)
    case = f"{VJP} chains of {lengths[0]} to {lengths[-1]}"
    found.add(case, "exponent", exponent(found.links), LINKS_LIMIT, "limit", False, (1.0,))


def steps(arena: Arena, found: Findings, robots, quick: bool):
    """Temporaries of the gradient of a rollout of the zoo's arm, batch 16, which should grow with √T."""
    for way in ("sqrt",) if quick else KEEPERS:
        label, options = KEEPERS[way]
        sizes = found.steps.setdefault(way, {})
        for count in QUICK_STEPS if quick else STEPS:
            size = temporaries(arena, "rollout", "arm7", STEPS_BATCH, steps=count, **options)
            if size is None:
                return
            sizes[count] = size
            case = f"gradient of {count} steps arm7 batch {STEPS_BATCH}"
            if way != "path" and not quick:
                found.add(case, "bytes", size, found.steps["path"][count], f"path; ours: {label}", False)
        case = f"gradient of {min(sizes)} to {max(sizes)} steps, {label}"
        limit, aims = (STEPS_LIMIT, (1.0,)) if way == "sqrt" else (1.0, ())
        found.add(case, "exponent", exponent(sizes), limit, "limit" if aims else "linear", False, aims)
    if quick:
        return
    found.reverse["arm7"] = per_step(found.steps["last"])
    for robot in robots:
        ask = partial(temporaries, arena, "rollout", robot, STEPS_BATCH, keep="last")
        sizes = {count: ask(steps=count) for count in STEPS[:2]}
        if None not in sizes.values():
            found.reverse[robot] = per_step(sizes)
    for robot, size in found.reverse.items():
        state = state_bytes(robot)
        found.add(f"rollout {robot}, reverse", "bytes a step", size, state, "one state (q, v)", False)


def per_step(sizes: dict[int, int]) -> float:
    """Bytes that one more step of one state needs."""
    a, b = min(sizes), max(sizes)
    return (sizes[b] - sizes[a]) / (b - a) / STEPS_BATCH


def state_bytes(robot: str) -> int:
    """Size of (q, v) in float32."""
    if robot == "arm7":
        return 4 * (7 + 7)
    from benchmarks.robots import Robot, find_urdf

    return 4 * (2 * Robot.read(find_urdf(robot)).nv + 1)


def schedule(names, robots, batch: int, quick: bool):
    """The cases to run as (name, call) pairs, the most telling first, as a quick run may be out of time."""
    cases = [("throughput", lambda *to, r=r: throughput(*to, r, batch, quick)) for r in robots]
    cases += [("links", lambda *to: links(*to, quick)), ("steps", lambda *to: steps(*to, robots, quick))]
    if not quick:  # these take a minute to compile
        cases += [("jacfwd", lambda *to, r=r: jacfwd(*to, r, batch)) for r in robots]
        cases += [("step", lambda *to, r=r: stepping(*to, r, batch)) for r in robots]
    return [case for case in cases if case[0] in names]


def run_all(cases, arena: Arena, found: Findings, until: float) -> int:
    """Run the cases that will probably end in time, going by those before; returns how many were left out."""
    unit, left = 0.0, 0
    for name, run in cases:
        start = time.perf_counter()
        if start + COSTS.get(name, 1.0) * unit > until:
            left += 1
            continue
        run(arena, found)
        unit = max(unit, (time.perf_counter() - start) / COSTS.get(name, 1.0))
    return left


def markdown(found: Findings, robots) -> str:
    """The table for a README: throughput, compile seconds and memory of reverse mode."""
    head = [
        "",
        *robots,
        f"compile s ({' / '.join(robots)})",
        f"bytes per step in reverse ({' / '.join(robots)})",
    ]
    lines = [head, ["---"] * len(head)]
    names = ("forward dynamics", "JVP", "VJP", "full Jacobian")
    for name, task in zip(names, SHORT):
        cells = [name]
        for robot in robots:
            rate, forward = found.rates.get((robot, task)), found.rates.get((robot, FORWARD))
            share = f" ({rate / forward:.2f})" if rate and forward and task != FORWARD else ""
            cells.append(f"{si(rate)}/s{share}" if rate else "–")
        seconds = [found.compile.get((robot, task)) for robot in robots]
        cells.append(" / ".join("–" if s is None else f"{s:.1f}" for s in seconds))
        sizes = [found.reverse.get(robot) for robot in robots] if task == VJP else []
        cells.append(" / ".join("–" if s is None else f"{s:,.0f}" for s in sizes) or "–")
        lines.append(cells)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def si(x: float) -> str:
    """Three digits with a prefix: 1.51 M."""
    for factor, prefix in ((1e6, " M"), (1e3, " k")):
        if x >= factor:
            return f"{x / factor:.3g}{prefix}"
    return f"{x:.3g} "


def plot(found: Findings, path: str):
    """Memory of gradients against links and against steps, doubly logarithmic, with slopes to compare."""
    plt = report.headless_pyplot()
    from matplotlib import ticker

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8))
    left.set(xlabel="links of a chain", ylabel=f"temporaries, MB, batch {LINKS_BATCH}")
    left.set_title("VJP of forward dynamics")
    right.set(xlabel="steps T", ylabel=f"temporaries, MB, batch {STEPS_BATCH}")
    right.set_title("gradient of a rollout, arm with 7 joints")
    curves = [(left, "measured", found.links, 1.0, "linear")]
    for way, sizes in found.steps.items():
        curves.append((right, KEEPERS[way][0], sizes, 0.5 if way == "sqrt" else None, "√T"))
    for axis, label, sizes, slope, name in curves:
        if len(sizes) < 2:
            continue
        x, y = np.array(list(sizes)), np.array(list(sizes.values())) / 1e6
        axis.loglog(x, y, "o-", label=f"{label}, exponent {exponent(sizes):.2f}")
        if slope is not None:
            axis.loglog(x, y[0] * (x / x[0]) ** slope, "--", color="grey", label=name)
        axis.set_xticks(x, x)
        axis.legend(fontsize=8)
    for axis in (left, right):
        if not axis.lines:
            axis.set(xscale="log", yscale="log")
        axis.minorticks_off()
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main(arguments=None) -> int:
    options = report.options(
        "gradients",
        __doc__,
        CASES,
        quick="the most telling part",
        check="compare all derivatives with Pinocchio's Jacobians",
        plot="memory against links and steps",
        arguments=arguments,
    )
    Worker.patience = 1200.0  # compiling MJX's gradient of a large robot takes minutes
    if options.check:
        return 0 if same_derivatives(options.robots, CHECKED) else 1

    found, quick = Findings(), options.quick
    found.introduce()
    with report.arena(options) as arena:
        cases = schedule(options.cases, options.robots, options.batch, quick)
        needed = dict.fromkeys(c for name, _ in cases for c in NEEDED[name] if not quick or c is not OURS64)
        arena.start(needed)
        left = run_all(cases, arena, found, found.start + QUICK_SECONDS if quick else float("inf"))
        if left:
            print(f"{left} of {len(cases)} cases left for the full run: out of time")
    found.finish(arena, options.json)
    if options.plot:
        plot(found, options.plot)
    print(f"\n{markdown(found, options.robots)}")
    return 1 if arena.failures else 0


if __name__ == "__main__":
    sys.exit(main())
