"""[CABA] Figure 4 with our solvers:  python -m benchmarks.convergence [--states N] [--plot FILE.png].

Talos with both feet and a hand welded and both elbows held as points, 24 rows of rank 23, mu = 1e6, ten
iterations, float64, random states. With velocities projected on J v = 0 the rows are feasible: the residual
falls to rounding, and the accelerations are those of a dense solve. Without, they contradict each other and
the accelerations are those of least squares. Exits with 1 if one of these is not so, or if the solvers that
refine (ConstrainedABA, ProxLTLs) do not end lower than the others, as the paper finds.
"""

import argparse
import sys

import numpy as np

from benchmarks import report
from benchmarks.contacts import SOLVERS
from benchmarks.robots import Robot, find_urdf, random_states

REFINING = ("ConstrainedABA", "ProxLTLs")
LEAST_SQUARES = 1e-6  # median distance from the least-squares accelerations where rows contradict each other


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convergence", description=__doc__)
    parser.add_argument("--states", type=int, default=1000)
    parser.add_argument("--plot", metavar="FILE.png")
    chosen = parser.parse_args(arguments)
    import jax

    jax.config.update("jax_enable_x64", True)
    import jaxrbd as rbd
    from jaxrbd.constraints import combine, connect, weld

    print(report.machine())
    robot = Robot.read(find_urdf("talos_full_v2"))
    sys_ = rbd.load(robot.urdf, base="free").astype("float64")
    welds = ("leg_left_6_link", "leg_right_6_link", "arm_left_7_link")
    elbows = ("arm_left_4_link", "arm_right_4_link")
    held = combine(*(weld(sys_, f) for f in welds), *(connect(sys_, f) for f in elbows))
    states = random_states(robot, chosen.states, free_torques=True)
    q, v, tau = states.q, states.v, states.tau
    project = jax.jit(jax.vmap(lambda q, v: rbd.impulse_dynamics(sys_, q, v, held, solver=rbd.Dense())))
    feasible = project(q, v).value.v
    dense = jax.jit(jax.vmap(lambda *s: rbd.constrained_dynamics(sys_, *s, held, rbd.Dense())))
    exact = dense(q, feasible, tau).value.a
    least_squares = dense(q, v, tau).value.a
    scale = lambda a: np.abs(np.asarray(a)).max(1)  # noqa: E731
    histories, good = {}, True
    for name in SOLVERS:
        solver = getattr(rbd, name)(mu=1e6, iterations=10)
        run = jax.jit(jax.vmap(lambda *s, x=solver: rbd.constrained_dynamics(sys_, *s, held, x)))
        found, infeasible = run(q, feasible, tau), run(q, v, tau)
        history = np.asarray(found.stats.history)
        histories[name] = history
        error = scale(found.value.a - exact) / scale(exact)
        apart = scale(infeasible.value.a - least_squares) / scale(least_squares)
        median = np.median(history[:, 2])
        good &= bool(median < 1e-10 and error.max() < 1e-9 and np.median(apart) < LEAST_SQUARES)
        print(
            f"{name:16} residual after 3: median {median:.1e}, at the end: median "
            f"{np.median(history[:, -1]):.1e}; acceleration error median {np.median(error):.1e}, worst "
            f"{error.max():.1e}; infeasible, from least squares: median {np.median(apart):.1e}, worst "
            f"{apart.max():.1e}",
            flush=True,
        )
    ends = {name: np.median(history[:, -1]) for name, history in histories.items()}
    lower = max(ends[s] for s in REFINING) < min(x for s, x in ends.items() if s not in REFINING)
    print("those that refine end lower:", "yes" if lower else "NO", "; limits met:", "yes" if good else "NO")
    if chosen.plot:
        draw(histories, chosen.plot)
    return 0 if good and lower else 1


def draw(histories, path: str):
    plt = report.headless_pyplot()
    figure, axes = plt.subplots(1, len(histories), figsize=(14, 4), sharey=True, layout="constrained")
    for ax, (name, history) in zip(axes, histories.items()):
        ax.boxplot(list(np.maximum(history, 1e-17).T), whis=(0, 100))
        ax.set(title=name, yscale="log", xlabel="iteration")
    axes[0].set_ylabel("largest |J a + J̇v - a*|  [m/s², rad/s²]")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
