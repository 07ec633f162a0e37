"""The command `jaxrbd`: info, view, simulate, replay, demo, bench.

A mistake of the user ends with one line `jaxrbd: error: …` on stderr and exit code 2, never a traceback.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from jaxrbd import __version__
from jaxrbd.errors import RbdError
from jaxrbd.model.names import nearest

FILE_HELP = "URDF or MJCF file, or a model of the zoo such as zoo:humanoid or zoo:chain:50"


class UsageError(Exception):
    """A command line that cannot be carried out."""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if choice and (near := nearest(choice[1], re.findall(r"[\w-]+", choice[2]))):
            message += f". Did you mean {near[0]!r}?"
        raise UsageError(f"{message} (see `{self.prog} --help`)")


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        args = _parser().parse_args(argv)
        return args.run(args)
    except (RbdError, UsageError) as error:
        return _fail(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader of our output, such as `head`, has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return _fail(f"{error.filename or 'file'}: {error.strerror or error}")
    except ModuleNotFoundError as error:
        extra = {"matplotlib": "plot", "mujoco": "mujoco", "viser": "viewer"}.get(error.name or "")
        if extra is None:
            raise
        return _fail(f"this needs {error.name}. Install it with: pip install 'jaxrbd[{extra}]'")
    except KeyboardInterrupt:
        print("jaxrbd: interrupted", file=sys.stderr)
        return 130


def _fail(message: str) -> int:
    print(f"jaxrbd: error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("jaxrbd", description="Rigid-body dynamics in JAX.")
    parser.add_argument("--version", action="version", version=f"jaxrbd {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="list the joints, bodies and limits of a model")
    _model_arguments(info)
    info.add_argument("--json", action="store_true", help="print JSON instead of a table")
    info.set_defaults(run=_info)

    view = commands.add_parser("view", help="look at a model in the browser, and pose it")
    _model_arguments(view)
    view.add_argument("--keyframe", metavar="NAME", help="begin there instead of at the default pose")
    view.add_argument("--png", type=Path, metavar="FILE.png", help="write a picture instead")
    _server_arguments(view)
    view.set_defaults(run=_view)

    simulate = commands.add_parser("simulate", help="simulate a batch of states of a model")
    _model_arguments(simulate, optional=True)
    simulate.add_argument("--batch", type=_count, default=1, metavar="N", help="how many states (1)")
    simulate.add_argument(
        "--steps", type=_count, default=1000, metavar="N", help="how many time steps (1000)"
    )
    simulate.add_argument("--dt", type=_positive, default=1e-3, metavar="SECONDS", help="time step (0.001)")
    simulate.add_argument("--precision", type=int, choices=(32, 64), default=32, help="bits of a number (32)")
    simulate.add_argument(
        "--integrator", choices=("semi-implicit", "rk4"), default="semi-implicit", help="(semi-implicit)"
    )
    simulate.add_argument("--seed", type=int, default=0, help="of the random initial velocities (0)")
    simulate.add_argument(
        "--spread", type=float, default=0.1, metavar="X", help="standard deviation of these velocities (0.1)"
    )
    simulate.add_argument("--keyframe", metavar="NAME", help="start there instead of at the default pose")
    simulate.add_argument(
        "--save",
        type=Path,
        metavar="RUN",
        help="store the trajectories: a folder, or one file if it ends in .npz",
    )
    simulate.add_argument(
        "--resume", type=Path, metavar="RUN", help="go on with a folder of --save that was interrupted"
    )
    simulate.add_argument("--every", type=_count, default=1, metavar="N", help="store every N-th step (1)")
    simulate.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="draw coordinates and energy over time"
    )
    simulate.add_argument("--view", action="store_true", help="play it in the browser afterwards")
    simulate.add_argument("--html", type=Path, metavar="FILE.html", help="write a replay that plays anywhere")
    simulate.add_argument("--yes", action="store_true", help="write files above 100 MB without asking")
    simulate.set_defaults(run=_simulate)

    replay = commands.add_parser("replay", help="play a stored run in the browser, or write it as a file")
    replay.add_argument("folder", type=Path, metavar="RUN", help="what `jaxrbd simulate --save` wrote")
    replay.add_argument("--model", metavar="FILE", help="of an .npz, which does not hold it")
    _how_to_read(replay)
    replay.add_argument("--html", type=Path, metavar="FILE.html", help="write a page that plays it anywhere")
    replay.add_argument("--gif", type=Path, metavar="FILE.gif", help="write a film")
    _server_arguments(replay)
    replay.set_defaults(run=_replay)

    demo = commands.add_parser("demo", help="simulate, optimise and check a robot arm, and draw it")
    demo.add_argument("--out", type=Path, default=Path("demo.png"), metavar="FILE.png", help="(demo.png)")
    demo.add_argument("--quick", action="store_true", help="small sizes, a few seconds less")
    demo.set_defaults(run=_demo)

    bench = commands.add_parser("bench", help="compare with peers (in a clone of the repository)")
    bench.add_argument("--gradients", action="store_true", help="measure derivatives instead")
    bench.add_argument("--quick", action="store_true", help="finish within a minute")
    bench.add_argument("--json", metavar="FILE", help="store the rows")
    bench.set_defaults(run=_bench)
    return parser


def _model_arguments(parser, optional: bool = False) -> None:
    parser.add_argument("file", metavar="FILE", help=FILE_HELP, nargs="?" if optional else None)
    _how_to_read(parser)


def _server_arguments(parser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="who may look: this machine alone (127.0.0.1)")
    parser.add_argument("--port", type=_count, help="of the page (the first free one)")


def _how_to_read(parser) -> None:
    parser.add_argument(
        "--base", choices=("free", "fixed"), help="let the root float, or weld it to the world (as written)"
    )
    parser.add_argument(
        "--loops",
        choices=("constraint", "cluster", "open"),
        default="constraint",
        help="loops and mimic joints: kept as data, part of the state, or left out (constraint)",
    )
    parser.add_argument(
        "--package-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="where package:// paths lead; repeatable",
    )


def _info(args) -> int:
    from jaxrbd.commands import info

    return info.run(args)


def _simulate(args) -> int:
    from jaxrbd.commands import simulate

    return simulate.run(args)


def _view(args) -> int:
    from jaxrbd.commands import view

    return view.run_view(args)


def _replay(args) -> int:
    from jaxrbd.commands import view

    return view.run_replay(args)


def _demo(args) -> int:
    from jaxrbd import demo

    return demo.run(args.out, quick=args.quick)


def _bench(args) -> int:
    root = Path(__file__).resolve().parents[1]
    if not (root / "benchmarks" / "speed.py").is_file():
        raise UsageError(
            "the benchmarks are not in the installed package. Clone the repository and run `make bench` there"
        )
    command = [sys.executable, "-m", "benchmarks.gradients" if args.gradients else "benchmarks.speed"]
    command += ["--quick"] * args.quick + (["--json", str(Path(args.json).resolve())] if args.json else [])
    return subprocess.run(command, cwd=root, check=False).returncode


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
