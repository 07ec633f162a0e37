"""What an answer is judged by, in plain NumPy from D, v_f and λ alone: nothing is taken from the solvers.

[LOOPS] VII-D, Eqs. 173 to 176, in L∞ with the row where each is largest; of the NCP, whatever the solver's
model, and the scaled natural maps of both models, by which *converged* is judged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.loops_suite.samples import DT, Sample


class Metrics(NamedTuple):
    """Values, then the rows where they are largest; `penetration` to first order in the step."""

    penetration: float  # of rows after the step [m, rad], Eq. 173 without its scale
    dual: float  # Eq. 174
    complementarity: float  # Eq. 175
    natural: float  # Eq. 176
    ncp: float  # scaled natural maps [m/s]
    ccp: float
    sliding: float  # the fastest sliding of a closed contact [m/s]
    rows: dict[str, int]


def into_cone(x: np.ndarray, mu: float) -> np.ndarray:
    t, n = np.linalg.norm(x[:2]), x[2]
    if mu * t <= -n:
        return np.zeros(3)
    if t <= mu * n:
        return x
    height = (mu * t + n) / (mu * mu + 1)
    return np.array([*(mu * height * x[:2] / t), height])


def projected(sample: Sample, x: np.ndarray) -> np.ndarray:
    found, first = x.copy(), sample.joint_rows
    for k, mu in enumerate(sample.mu):
        at = slice(first + 3 * k, first + 3 * k + 3)
        found[at] = into_cone(x[at], mu)
    return found


def metrics(sample: Sample, lam: np.ndarray) -> Metrics:
    """Of an answer λ, in float64 whatever it was computed in."""
    lam, n = np.asarray(lam, float), sample.joint_rows
    v = sample.D @ lam + sample.v_f
    lifted, d = v.copy(), np.empty_like(v)
    mobility, at = np.diag(sample.D), 0
    for size in sample.joints:
        d[at : at + size] = mobility[at : at + size].max()
        at += size
    dual, power = np.zeros_like(v), np.zeros_like(v)
    dual[:n] = v[:n]
    depth = np.zeros_like(v)
    depth[:n] = DT * v[:n]
    sliding = 0.0
    for k, mu in enumerate(sample.mu):
        at, normal = slice(n + 3 * k, n + 3 * k + 3), n + 3 * k + 2
        d[at] = mobility[at].max()
        speed = np.linalg.norm(v[at][:2])
        lifted[normal] += mu * speed
        # v - P_K*(v) is what is left of -v in the polar cone: -P_K(-v)
        dual[at] = -into_cone(-lifted[at], mu)
        power[normal] = lam[at] @ lifted[at]
        depth[normal] = min(0.0, sample.gap[k] + DT * v[normal]) if k < sample.count else 0.0
        if lam[normal] > 1e-9:
            sliding = max(sliding, speed)
    maps = {
        "natural": lam - projected(sample, lam - lifted),
        "ncp": d * (lam - projected(sample, lam - lifted / d)),
        "ccp": d * (lam - projected(sample, lam - v / d)),
    }
    every = {"penetration": depth, "dual": dual, "complementarity": power, **maps}
    worst = {k: float(np.abs(x).max(initial=0)) for k, x in every.items()}
    where = {k: int(np.abs(x).argmax()) if len(x) else 0 for k, x in every.items()}
    return Metrics(**worst, sliding=sliding, rows=where)


# --- performance profiles --------------------------------------------------------------------------------


def profile(costs: np.ndarray, solved: np.ndarray, floor: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Dolan and Moré: τ, and ρ (solvers, len(τ)), the share of problems solved within τ times the best.

    `costs`, `solved` are (problems, solvers); a problem that nobody solves counts against everybody. Costs
    below `floor` are drawn towards it after Dingle and Higham, cost -> floor / 2 (1 + cost / floor), so
    that differences which do not matter give no ratios that do.
    """
    costs = np.asarray(costs, float)
    if floor > 0:
        costs = np.where(costs < floor, 0.5 * (floor + costs), costs)
    costs = np.where(solved, costs, np.inf)
    best = costs.min(1, keepdims=True)
    ratios = np.where(np.isfinite(costs), costs / np.where(np.isfinite(best), best, 1), np.inf)
    tau = np.unique(np.concatenate([[1.0], ratios[np.isfinite(ratios)]]))
    return tau, np.stack([(ratios <= t).mean(0) for t in tau], 1)
