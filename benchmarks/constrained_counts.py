"""Operations of constrained dynamics and damped Delassus inverses: [CABA] Figures 1, 3 and 5 from our code.

    python -m benchmarks.constrained_counts [--quick] [--out DIRECTORY] [--json FILE]

Counts come from the jaxpr (`opcount.py`), one state; loops are padded to the width of a row of links, and the
padding counts. Prints the growth with links and rows and draws one PNG per figure.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from benchmarks import report
from benchmarks.opcount import count_kernel
from jaxrbd.constraints import combine, connect, weld
from jaxrbd.constraints.delassus import inverse_kernel
from jaxrbd.constraints.dynamics import solver_kernel
from jaxrbd.constraints.method import Settings

SOLVERS = (rbd.ConstrainedABA, rbd.ProxPV, rbd.ProxLTLs, rbd.ProxLTL)
INVERSES = {
    "caba": "cABA-OSIM",
    "cabaf": "cABA-OSIMf",
    "pvf": "PV-OSIMf",
    "pvr": "PV-OSIMr",
    "ltl": "LTL-OSIM",
}
SOLE = [(0.1, 0.05, 0), (0.1, -0.05, 0), (-0.1, 0.05, 0), (-0.1, -0.05, 0)]


def dynamics_count(sys, con, solver, iterations: int) -> int:
    """Operations of one solve with a fixed number of iterations, everything included but the verdict."""
    zero = jnp.zeros(sys.nv, sys.dtype)
    numbers, form = jax.tree.flatten(solver(mu=jnp.asarray(1e6, sys.dtype), iterations=iterations))
    run = solver_kernel(form, Settings(iterations, fixed=True, judged=False), "implicit")
    lam = jnp.zeros(con.rows, sys.dtype)
    return count_kernel(run, sys, con, rbd.neutral(sys), zero, zero, None, lam, numbers)


def parts(sys, con, solver, iterations: int = 3) -> tuple[int, int]:
    """Operations of the factorisation (and all that is done once), and of the proximal iterations."""
    one, two = (dynamics_count(sys, con, solver, k) for k in (1, 2))
    return one - (two - one), iterations * (two - one)


def inverse_count(sys, con, algorithm: str) -> int:
    mu = jnp.asarray(1e6, sys.dtype)
    return count_kernel(inverse_kernel(algorithm), sys, con, rbd.neutral(sys), mu)


def cases(quick: bool = False):
    """Robots with constraints on hands (H) and feet (F), of three or six rows, as in [CABA]."""
    arm, dog, man = rbd.zoo.arm7(), rbd.zoo.quadruped(), rbd.zoo.humanoid()
    feet = [connect(dog, f"{leg}_foot") for leg in ("FL", "FR", "RL", "RR")]
    soles = [weld(man, f"{side}_sole") for side in ("left", "right")]
    palms = [weld(man, f"{side}_palm") for side in ("left", "right")]
    points = [connect(man, f"{side}_sole", offset=p) for side in ("left", "right") for p in SOLE]
    found = {
        "arm H3": (arm, connect(arm, "tool")),
        "arm H6": (arm, weld(arm, "tool")),
        "quadruped F3²": (dog, combine(*feet[:2])),
        "quadruped F3⁴": (dog, combine(*feet)),
        "humanoid F6²": (man, combine(*soles)),
        "humanoid F6²H6²": (man, combine(*soles, *palms)),
        "humanoid F3⁸": (man, combine(*points)),
    }
    return {k: found[k] for k in ("arm H6", "quadruped F3⁴", "humanoid F6²H6²")} if quick else found


def chain_with_weld(n: int):
    sys = rbd.zoo.chain(n)
    return sys, weld(sys, "tip")


def tree_with_points(depth: int):
    """A binary tree with a point held at the tip of every branch."""
    sys = rbd.zoo.binary_tree(depth)
    return sys, combine(*(connect(sys, name) for name in sys.frame_names if name.startswith("tip")))


def chain_with_points(n: int, points: int):
    """A chain with points held on its tip and on further links: m grows, n does not."""
    sys = rbd.zoo.chain(n)
    names = ["tip", *(f"link{k}" for k in range(2, n - 2, 2))]
    return sys, combine(*(connect(sys, name) for name in names[:points]))


def exponent(x, y) -> float:
    """Slope of log y over log x by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def scaling(quick: bool = False):
    """Counts for [CABA] Figure 3: {"chain" or "tree": (sizes, rows, {solver: counts})}."""
    out = {}
    links = (10, 30, 100) if quick else (10, 20, 30, 50, 70, 100)
    families = {
        "chain": (chain_with_weld, links),
        "tree": (tree_with_points, (2, 3, 4) if quick else (2, 3, 4, 5)),
    }
    for name, (make, sizes) in families.items():
        systems = [make(k) for k in sizes]
        counts = {s.__name__: [sum(parts(*x, s)) for x in systems] for s in SOLVERS}
        out[name] = ([sys.nv for sys, _ in systems], [con.rows for _, con in systems], counts)
    return out


def third_difference(n: int = 24, points=range(2, 7)) -> tuple[list[int], list[int]]:
    """Counts of cABA-OSIM with more and more rows on one chain, and their third differences in m."""
    counts = [inverse_count(*chain_with_points(n, k), "caba") for k in points]
    return counts, np.diff(counts, 3).tolist()


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.constrained_counts", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer robots and sizes")
    parser.add_argument("--out", type=Path, default=Path("."), help="directory of the PNGs")
    parser.add_argument(
        "--json", type=Path, help="file for rows {case, metric, ours, peer, peer_name, ratio}"
    )
    options = parser.parse_args(argv)
    rows, found = [], cases(options.quick)

    dynamics = {name: {s.__name__: parts(*case, s) for s in SOLVERS} for name, case in found.items()}
    print("operations, 3 iterations".ljust(26), *(s.__name__.rjust(15) for s in SOLVERS))
    for name, counts in dynamics.items():
        print(name.ljust(26), *(str(sum(x)).rjust(15) for x in counts.values()))
        rows += versus(name, "operations", {k: sum(x) for k, x in counts.items()}, "ProxLTL")
    inverses = {name: {a: inverse_count(*case, a) for a in INVERSES} for name, case in found.items()}
    print("\ndamped Delassus inverse".ljust(27), *(label.rjust(15) for label in INVERSES.values()))
    for name, counts in inverses.items():
        print(name.ljust(26), *(str(x).rjust(15) for x in counts.values()))
        rows += versus(name, "inverse operations", {INVERSES[k]: x for k, x in counts.items()}, "LTL-OSIM")
    growth = scaling(options.quick)
    print()
    for family, (sizes, m, counts) in growth.items():
        against = ("links", sizes) if family == "chain" else ("rows", m)
        for solver, y in counts.items():
            power = exponent(against[1], y)
            print(f"{family}: {solver} grows with the {power:.2f}th power of its {against[0]}")
            rows.append(row(family, f"exponent {solver}", power))
    counts, third = third_difference()
    print(f"cABA-OSIM, chain of 24 links, m = 6, 9, ...: {counts}; third differences {third}")
    rows.append(row("chain24", "third difference", max(map(abs, third))))
    draw(options.out, dynamics, inverses, growth)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    powers = {
        (family, solver): exponent(sizes if family == "chain" else m, y)
        for family, (sizes, m, counts) in growth.items()
        for solver, y in counts.items()
    }
    linear = all(powers[family, "ConstrainedABA"] <= 1.15 < powers[family, "ProxLTL"] for family in growth)
    return 0 if linear and not any(third) else 1


def row(case, metric, ours, peer=None, peer_name=None):
    ratio = None if peer is None else peer / ours
    return {
        "case": case,
        "metric": metric,
        "ours": ours,
        "peer": peer,
        "peer_name": peer_name,
        "ratio": ratio,
    }


def versus(case, metric, counts: dict, reference: str):
    peer = counts[reference]
    return [row(case, f"{metric} {k}", x, peer, reference) for k, x in counts.items() if k != reference]


def draw(out: Path, dynamics, inverses, growth) -> None:
    plt = report.headless_pyplot()
    out.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(1, len(dynamics), figsize=(2.6 * len(dynamics), 3.6), layout="constrained")
    for ax, (name, counts) in zip(axes, dynamics.items()):
        once, prox = np.array(list(counts.values())).T / 1e3
        ax.bar(list(counts), once, color="#4878a8", label="once")
        ax.bar(list(counts), prox, bottom=once, color="#e49444", label="three iterations")
        ax.set_title(name, fontsize=10)
        ax.tick_params(axis="x", rotation=70, labelsize=8)
    axes[0].set_ylabel("thousand operations")
    axes[0].legend(fontsize=7, loc="upper left")
    figure.savefig(out / "caba_figure1.png", dpi=130)

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    for ax, (family, (sizes, m, counts)) in zip(axes, growth.items()):
        for solver, y in counts.items():
            ax.loglog(sizes, y, marker="o", label=solver)
        title = "chain, one weld" if family == "chain" else "binary tree, points at all tips"
        ax.set(title=title, xlabel="links" if family == "chain" else f"links (rows: {m[0]} to {m[-1]})")
    axes[0].set_ylabel("operations")
    axes[0].legend(fontsize=8)
    figure.savefig(out / "caba_figure3.png", dpi=130)

    figure, axes = plt.subplots(1, len(inverses), figsize=(2.6 * len(inverses), 3.6), layout="constrained")
    for ax, (name, counts) in zip(axes, inverses.items()):
        ax.bar([INVERSES[k] for k in counts], np.array(list(counts.values())) / 1e3, color="#4878a8")
        ax.set_title(name, fontsize=10)
        ax.tick_params(axis="x", rotation=70, labelsize=8)
    axes[0].set_ylabel("thousand operations")
    figure.savefig(out / "caba_figure5.png", dpi=130)


if __name__ == "__main__":
    raise SystemExit(main())
