"""How exact float32 forward dynamics is, robot by robot:  python -m benchmarks.float32 [--quick].

For each robot of example-robot-data, with a free base: the worst ‖Δa‖/‖a‖ of 1000 random states, where the
reference is Pinocchio's ABA in float64 at the rounded q, v and tau. Beside ours stand MuJoCo's way (CRBA
about the centre of mass and LᵀDL) and the textbook's ABA in link frames, both in float32 (`textbook.py`).
Three draws:
  normal   v and tau standard normal, base within 1 m of the origin
  1 km     the same with the base moved 1 km away
  held     torques that produce accelerations of order one, as a controller would: large forces that cancel,
           so the rounding of the model itself already costs digits
`model` is exact arithmetic on a model rounded to float32: no algorithm can be expected to do better.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks import peers, textbook
from benchmarks.robots import Robot, States, all_urdfs, find_urdf, random_states, robot_folder

AIM = 1e-5
HELD_TO_IT = ("solo12", "panda", "go2", "g1_29dof_rev_1_0", "talos_full_v2")
DRAWS = {"normal": {"free_torques": True}, "1 km": {"free_torques": True, "offset": 1e3}, "held": {}}
METHODS = ("ours", "mujoco-style", "textbook", "model")


def worst_error(a: np.ndarray, reference: np.ndarray) -> float:
    """Largest relative error of any state; NaN anywhere is NaN."""
    return float(np.max(np.linalg.norm(a - reference, axis=1) / np.linalg.norm(reference, axis=1)))


def errors_of(robot: Robot, count: int, with_ours: bool = True) -> dict[str, dict[str, float]] | None:
    """Worst error by draw and method; None where forward dynamics does not exist (a massless moving part)."""
    single = textbook.Tree.of(robot, np.float32)
    rounded_model = textbook.Tree.of(robot, np.float64, model_dtype=np.float32)
    ours = our_float32(robot) if with_ours else None
    table = {}
    for draw, options in DRAWS.items():
        states = random_states(robot, count, seed=1, **options)
        reference = peers.Pinocchio(robot).evaluate("forward_dynamics", states)
        if not np.isfinite(reference).all():
            return None
        with np.errstate(all="ignore"):  # overflow on an ill-conditioned robot shows up as its error
            given = (states.q, states.v, states.tau)
            table[draw] = {
                "mujoco-style": worst_error(textbook.crba_cholesky(single, *given), reference),
                "textbook": worst_error(textbook.link_frame_aba(single, *given), reference),
                "model": worst_error(textbook.link_frame_aba(rounded_model, *given), reference),
            }
        if ours is not None:
            table[draw]["ours"] = worst_error(ours(states), reference)
    return table


def our_float32(robot: Robot):
    """Our forward dynamics of a batch, compiled once for all draws."""
    import jax
    import jax.numpy as jnp

    contender = peers.Ours(robot)
    task = "forward_dynamics"
    run = jax.jit(jax.vmap(contender.function(task)))

    def evaluate(states: States) -> np.ndarray:
        inputs = (jnp.asarray(x, jnp.float32) for x in contender.inputs(task, states))
        return contender.layout.back(task, states, run(*inputs))

    return evaluate


def label(path: Path) -> str:
    """The file's name, with its package where two files share it."""
    package = path.relative_to(robot_folder()).parts[0].removesuffix("_description")
    return f"{package}/{path.stem}" if sum(f.name == path.name for f in all_urdfs()) > 1 else path.stem


def plot(table: dict[str, dict], path: str):
    """Worst errors of all robots, sorted by ours, for the first and the last draw."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = sorted(table, key=lambda name: table[name]["normal"].get("ours", 0.0))
    figure, axes = plt.subplots(1, len(DRAWS), figsize=(14, 1.5 + 0.16 * len(names)), sharey=True)
    for axis, draw in zip(axes, DRAWS, strict=True):
        for method, marker in zip(METHODS, "os^|", strict=True):
            values = [table[name][draw].get(method, np.nan) for name in names]
            axis.semilogx(values, range(len(names)), marker, markersize=4, label=method)
        axis.set_title(draw)
        axis.axvline(AIM, color="black", linewidth=0.5)
        axis.grid(axis="x", alpha=0.3)
        axis.set_xlabel("worst relative error of float32 accelerations")
    axes[0].set_yticks(range(len(names)), names, fontsize=7)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.float32", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--quick", action="store_true", help="the five robots that we hold to 1e-5, 200 states"
    )
    parser.add_argument("--robots", nargs="+", help="only these")
    parser.add_argument("--states", type=int, help="random states per draw (1000; 200 with --quick)")
    parser.add_argument(
        "--json", metavar="FILE", help="store rows {case, metric, ours, peer, peer_name, ratio}"
    )
    parser.add_argument("--plot", metavar="FILE.png")
    parser.add_argument("--peers-only", action="store_true", help="leave our own library out")
    options = parser.parse_args(arguments)
    count = options.states or (200 if options.quick else 1000)
    chosen = options.robots or (HELD_TO_IT if options.quick else None)
    files = [find_urdf(name) for name in chosen] if chosen else all_urdfs()

    start, rows, table, missed = time.perf_counter(), [], {}, []
    methods = [m for m in METHODS if m != "ours" or not options.peers_only]
    print(f"worst of {count} states; columns per draw: {', '.join(methods)}")
    print(f"{'robot':34} {'nv':>3}  " + "  ".join(f"{draw:^{8 * len(methods)}}" for draw in DRAWS))
    for path in files:
        robot, name = Robot.read(path), label(path)
        errors = errors_of(robot, count, not options.peers_only)
        if errors is None:
            print(f"{name:34} {robot.nv:3}  singular mass matrix: no forward dynamics", flush=True)
            continue
        table[name] = errors
        cells = ["".join(f"{errors[draw][m]:8.0e}" for m in methods) for draw in DRAWS]
        print(f"{name:34} {robot.nv:3}  " + "  ".join(cells), flush=True)
        if options.peers_only:
            continue
        for draw, values in errors.items():
            rows += [
                {
                    "case": f"float32 {name} {draw}",
                    "metric": "worst relative error",
                    "ours": values["ours"],
                    "peer": values[method],
                    "peer_name": method,
                    "ratio": values[method] / values["ours"],
                }
                for method in METHODS[1:]
            ]
        if robot.name in HELD_TO_IT and not max(errors["normal"]["ours"], errors["1 km"]["ours"]) < AIM:
            missed.append(name)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if options.plot:
        plot(table, options.plot)
    print(f"{len(table)} robots in {time.perf_counter() - start:.0f} s")
    if missed:
        print(f"above {AIM:g}: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
