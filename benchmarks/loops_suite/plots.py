"""The picture: performance profiles of seconds per problem, of all samples and of every class."""

from __future__ import annotations

import numpy as np

from benchmarks import report
from benchmarks.loops_suite.measure import Record
from benchmarks.loops_suite.metrics import profile
from benchmarks.loops_suite.samples import CLASSES

FLOOR = 2e-4  # [s], below which a call's own overhead is what differs


def curves(records: list[Record], floor: float = FLOOR) -> tuple[list[str], np.ndarray, np.ndarray, int]:
    """Names, τ, ρ and the number of samples; cost is seconds, failure an NCP residual above the tolerance."""
    names = list(dict.fromkeys(r.solver for r in records))
    keys = list(dict.fromkeys((r.sample.system, r.sample.kind, r.number) for r in records))
    costs, solved = np.full((len(keys), len(names)), np.inf), np.zeros((len(keys), len(names)), bool)
    row, column = {k: i for i, k in enumerate(keys)}, {n: i for i, n in enumerate(names)}
    for r in records:
        at = row[r.sample.system, r.sample.kind, r.number], column[r.solver]
        costs[at], solved[at] = r.seconds, r.solved
    tau, rho = profile(costs, solved, floor)
    return names, tau, rho, len(keys)


def profiles(records: list[Record], path: str) -> None:
    plt = report.headless_pyplot()
    kinds = [None, *(c for c in CLASSES if any(r.sample.kind == c for r in records))]
    fig, axes = plt.subplots(2, 4, figsize=(13, 6), sharey=True)
    styles = ["-", "--", ":"]
    for ax, kind in zip(axes.flat, kinds):
        names, tau, rho, count = curves([r for r in records if kind in (None, r.sample.kind)])
        for k, name in enumerate(names):
            ax.step(
                np.append(tau, 1e4), np.append(rho[k], rho[k, -1]), styles[k % 3], where="post",
                color=f"C{k % 10}" if k < 10 else ("black", "gray")[k - 10], lw=1.2, label=name,
            )  # fmt: skip
        ax.set(xscale="log", xlim=(1, 1e3), ylim=(-0.02, 1.02), title=f"{kind or 'all'} ({count})")
        ax.grid(alpha=0.3)
    for ax in axes.flat[len(kinds) :]:
        ax.axis("off")
    for ax in axes[1]:
        ax.set_xlabel("times the fastest")
    for ax in axes[:, 0]:
        ax.set_ylabel("share of samples solved")
    fig.legend(*axes.flat[0].get_legend_handles_labels(), loc="lower center", ncol=6, fontsize=9)
    fig.tight_layout(rect=(0, 0.08, 1, 1))
    fig.savefig(path, dpi=70)
    plt.close(fig)
