"""Constrained dynamics beside Pinocchio and MJX:  python -m benchmarks.constrained [--quick | --check].

Prints and stores rows {case, metric, ours, peer, peer_name, ratio}; ratio > 1 means that we are better. Every
solver makes three proximal iterations. Pinocchio runs `constraintDynamics` (mu = 1e-6, at most three
iterations) in a process per core; MJX solves the same constraints as equalities, with one Newton
iteration. Then come the damped Delassus inverses, how run time grows on chains and trees, and tables like
[CABA] Tables II and III: times relative to LTL, ours and the paper's. Nothing else should run meanwhile.
"""

import sys

import numpy as np

from benchmarks import contacts, report
from benchmarks.gradients import OURS64
from benchmarks.harness import Arena, Entry
from benchmarks.speed import MJX, OURS, PINOCCHIO

PUBLISHED = {  # [CABA] Table II, µs; the arm is beside its iiwa, the humanoid with hands beside its Atlas
    ("arm7", "H6"): dict(zip(contacts.SOLVERS, (1.02, 1.33, 1.0, 2.0))),
    ("solo12", "F3x2"): dict(zip(contacts.SOLVERS, (1.81, 2.11, 2.06, 3.08))),
    ("solo12", "F3x4"): dict(zip(contacts.SOLVERS, (2.25, 2.84, 2.27, 4.06))),
    ("talos_full_v2", "F6x2"): dict(zip(contacts.SOLVERS, (5.02, 6.27, 7.14, 10.2))),
    ("talos_full_v2", "F6x2H6x2"): dict(zip(contacts.SOLVERS, (6.21, 8.84, 7.57, 14.5))),
    ("hands", "F6x2T3x10"): dict(zip(contacts.SOLVERS, (11.7, 20.8, 15.0, 36.8))),
}
PUBLISHED_INVERSES = {  # [CABA] Table III, µs: cABA-OSIMf, cABA-OSIM, LTL with inversion
    ("solo12", "F3x2"): {"cabaf": 1.57, "caba": 1.68, "ltl": 1.57},
    ("solo12", "F3x4"): {"cabaf": 1.94, "caba": 2.28, "ltl": 2.48},
    ("talos_full_v2", "F6x2"): {"cabaf": 4.05, "caba": 4.21, "ltl": 6.42},
    ("talos_full_v2", "F6x2H6x2"): {"cabaf": 4.57, "caba": 4.95, "ltl": 10.9},
}
CASES = ("solvers", "inverses", "scaling")
MJX_BATCH, SCALING_BATCH = 1024, 1024
CHAINS, TREES = (10, 20, 30, 50, 70, 100), (3, 4, 5, 6)
EXPONENT = 1.15
MAIN = {"solo12": "F3x4", "talos_full_v2": "F6x2"}
PINOCCHIO_AIM, MJX_AIM, VJP_AIM = 1.0, 5.0, 0.2


def race(
    arena: Arena, found: report.Rows, robot: str, case: str, batch: int, quick: bool
) -> dict[str, float]:
    """All solvers on one case, and peers if it is a URDF; seconds per state of every solver."""
    task = {s: f"constrained:{s}:{case}" for s in contacts.SOLVERS}
    first = task["ConstrainedABA"]
    entries = [Entry(OURS, t, batch) for t in task.values()]
    if robot in contacts.CASES:
        entries.append(Entry(PINOCCHIO[1], first, batch))
    if case == MAIN.get(robot) and not quick:
        entries += [Entry(OURS64, first, batch), Entry(OURS, f"vjp {first}", batch)]
        entries += [Entry(peer, first, MJX_BATCH) for peer in MJX]
    results = {(r.contender, r.task): r.seconds for r in arena.race(entries, robot)}
    seconds = {s: results[OURS, t] for s, t in task.items() if (OURS, t) in results}
    if not seconds:
        return {}
    best = min(seconds, key=lambda s: seconds[s])
    name = f"constrained dynamics {robot} {case}"
    aims = (PINOCCHIO_AIM,) if case == MAIN.get(robot) else ()
    if (PINOCCHIO[1], first) in results:
        peer = 1 / results[PINOCCHIO[1], first]
        found.add(f"{name} {best}", "states/s", 1 / seconds[best], peer, PINOCCHIO[1].label, aims=aims)
        if (OURS64, first) in results:
            ours = 1 / results[OURS64, first]
            found.add(f"{name} ConstrainedABA float64", "states/s", ours, peer, PINOCCHIO[1].label)
    mjx = [(results[p, first], p.label) for p in MJX if (p, first) in results]
    if mjx:
        peer, label = min(mjx)
        found.add(f"{name} {best}", "states/s", 1 / seconds[best], 1 / peer, label, aims=(MJX_AIM,))
    vjp = results.get((OURS, f"vjp {first}"))
    if vjp is not None:
        forward = 1 / seconds["ConstrainedABA"]
        found.add(f"vjp {name}", "states/s", 1 / vjp, forward, "our forward solve", aims=(VJP_AIM,))
    if {"ProxLTL", "ConstrainedABA"} <= set(seconds):
        ours, peer = 1 / seconds["ConstrainedABA"], 1 / seconds["ProxLTL"]
        aims = (1.0,) if robot in ("talos_full_v2", "hands") else ()
        found.add(f"{name} ConstrainedABA", "states/s", ours, peer, "our ProxLTL", aims=aims)
    return seconds


def inverses(arena: Arena, robot: str, case: str, batch: int) -> dict[str, float]:
    """Seconds per state of every damped Delassus inverse, all ours: no peer gives it for batches."""
    results = arena.race([Entry(OURS, f"inverse:{a}:{case}", batch) for a in contacts.INVERSES], robot)
    return {r.task.split(":")[1]: r.seconds for r in results}


def scaling(arena: Arena, found: report.Rows):
    """Run time over links of a chain with its tip welded, and over rows at the tips of binary trees.

    Links of a tree grow faster than its rows, so that time linear in both has an exponent of 1.06 in the rows
    of these trees: links and rows together are fitted, too.
    """
    import jaxrbd as rbd

    trees = [rbd.zoo.binary_tree(k) for k in TREES]
    rows = [3 * sum(f.startswith("tip") for f in tree.frame_names) for tree in trees]
    both = [tree.nv + m for tree, m in zip(trees, rows)]
    families = {
        "chain": ([f"chain{k}" for k in CHAINS], {"links": CHAINS}),
        "tree": ([f"tree{k}" for k in TREES], {"rows": rows, "links and rows": both}),
    }
    for family, (robots, measures) in families.items():
        seconds = {}
        for solver in ("ConstrainedABA", "ProxLTL"):
            entry = Entry(OURS, f"constrained:{solver}:tips", SCALING_BATCH)
            times = [r.seconds for robot in robots for r in arena.race([entry], robot)]
            if len(times) < len(robots):
                continue
            seconds[solver] = times
            for what, sizes in measures.items():
                power = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
                aims = (1.0,) if solver == "ConstrainedABA" else ()
                case = f"{family}, {what} {sizes[0]} to {sizes[-1]}, {solver}"
                found.add(case, "exponent", power, EXPONENT, "limit", False, aims=aims)
        if len(seconds) == 2:
            ours, peer = (1 / seconds[s][-1] for s in ("ConstrainedABA", "ProxLTL"))
            found.add(f"{robots[-1]} ConstrainedABA", "states/s", ours, peer, "our ProxLTL", aims=(1.0,))


def table(title: str, names, times: dict[tuple[str, str], dict[str, float]], published, reference: str):
    """Times relative to the reference: ours, and in brackets those of the paper."""
    print(f"\n{title:44}" + "".join(f"{s:>22}" for s in names))
    for key, seconds in times.items():
        cells = []
        for name in names:
            mine = seconds.get(name, np.nan) / seconds.get(reference, np.nan)
            theirs = published[key].get(name)
            paper = f"({theirs / published[key][reference]:.2f})" if theirs else "(-)"
            cells.append(f"{mine:.2f}   {paper:6}")
        print(f"{' '.join(key):44}" + "".join(f"{c:>22}" for c in cells))


def draw(path: str, times: dict[tuple[str, str], dict[str, float]]):
    """Bars per case: time of every solver over that of ProxLTL, ours in blue, the paper's in grey."""
    plt = report.headless_pyplot()
    figure, axes = plt.subplots(1, len(times), figsize=(3 * len(times), 3.4), sharey=True, squeeze=False)
    for ax, (key, seconds) in zip(axes[0], times.items()):
        paper, place = PUBLISHED[key], np.arange(len(contacts.SOLVERS))
        mine = [seconds.get(s, np.nan) / seconds.get("ProxLTL", np.nan) for s in contacts.SOLVERS]
        theirs = [paper[s] / paper["ProxLTL"] for s in contacts.SOLVERS]
        ax.bar(place - 0.2, mine, 0.4, color="#4878a8", label="ours, batched")
        ax.bar(place + 0.2, theirs, 0.4, color="#b0b0b0", label="[CABA] Table II")
        ax.set_xticks(place, contacts.SOLVERS, rotation=60, fontsize=8)
        ax.set_title(" ".join(key), fontsize=10)
    axes[0][0].set_ylabel("time / ProxLTL")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def check(robots) -> bool:
    """Our solvers in float64 and Pinocchio agree; velocities obey the constraints, so conventions do too."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from benchmarks.peers import Ours, Pinocchio
    from benchmarks.robots import Robot, States, find_urdf, random_states

    good = True
    for name in robots:
        robot = Robot.read(find_urdf(name))
        states = random_states(robot, 8)
        still = States(states.q, np.zeros_like(states.v), states.a, states.tau)
        mine, peer = Ours(robot), Pinocchio(robot)
        system = mine.system.astype("float64")
        for case in contacts.CASES[name]:
            reference = np.array(peer.loop(f"constrained:ConstrainedABA:{case}", still)())
            reference = peer.layout.back("forward_dynamics", still, reference)
            for solver in contacts.SOLVERS:
                f = contacts.ours(system, f"constrained:{solver}:{case}")
                ours = jax.jit(jax.vmap(f))(*mine.inputs("forward_dynamics", still))
                ours = mine.layout.back("forward_dynamics", still, np.asarray(ours))
                error = np.abs(ours - reference).max() / np.abs(reference).max()
                good &= bool(error < 1e-6)
                print(f"{name} {case} {solver}: {error:.1e}", flush=True)
    return good


def main(arguments=None) -> int:
    chosen = report.options(
        "constrained",
        __doc__,
        CASES,
        quick="the main cases, without MJX",
        check="compare our solvers with Pinocchio's",
        plot="the times of the solvers relative to ProxLTL, ours and the paper's",
        arguments=arguments,
    )
    if chosen.check:
        return 0 if check(chosen.robots) else 1
    found, times, inverse_times = report.Rows(), {}, {}
    found.introduce()
    cases = chosen.cases if not chosen.quick else ["solvers"]
    with report.arena(chosen) as arena:
        arena.start([OURS, PINOCCHIO[1], *([] if chosen.quick else [OURS64, *MJX])])
        for robot in chosen.robots:
            for case in [MAIN[robot]] if chosen.quick else contacts.CASES[robot]:
                if "solvers" in cases:
                    times[robot, case] = race(arena, found, robot, case, chosen.batch, chosen.quick)
                if "inverses" in cases:
                    inverse_times[robot, case] = inverses(arena, robot, case, chosen.batch)
        for robot, zoo in contacts.ZOO_CASES.items():
            if "solvers" in cases and not chosen.quick:
                for case in zoo:
                    times[robot, case] = race(arena, found, robot, case, chosen.batch, False)
        if "scaling" in cases:
            scaling(arena, found)
        if times:
            if chosen.plot:
                draw(chosen.plot, times)
            table("time / ProxLTL (ours, [CABA] Table II)", contacts.SOLVERS, times, PUBLISHED, "ProxLTL")
        if inverse_times:
            title = "time / LTL (ours, [CABA] Table III)"
            table(title, contacts.INVERSES, inverse_times, PUBLISHED_INVERSES, "ltl")
        found.finish(arena, chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
