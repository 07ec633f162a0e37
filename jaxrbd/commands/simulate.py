"""`jaxrbd simulate`: a batch of states through time, on every core, without control."""

from __future__ import annotations

import sys as system
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from jaxrbd.commands.models import open_model
from jaxrbd.commands.progress import Progress, si
from jaxrbd.devices import configure_cpu, spread
from jaxrbd.errors import ArgumentError

CHUNKS = 40  # redraws of the progress bar
LARGE = 100e6  # bytes of a file that nobody should find by accident
PIECE = 64e6  # and of one piece of a run
SHOWN = 8  # states that are kept where none are stored
OPTIONS = ("batch", "steps", "dt", "precision", "integrator", "seed", "spread", "keyframe", "every")


def run(args) -> int:
    _check(args)
    configure_cpu()
    if args.resume:
        sys, job = _resumed(args)
    else:
        jax.config.update("jax_enable_x64", args.precision == 64)
        sys, warnings = open_model(args.file, args.base, package_dirs=args.package_dir, loops=args.loops)
        for text in warnings:
            print(f"jaxrbd: warning: {text}", file=system.stderr)
        if sys.nv == 0:
            raise ArgumentError(f"{args.file}: nothing moves. Try --base free.")
        job = Job(
            **{key: getattr(args, key) for key in OPTIONS}, devices=jax.device_count(), jax=jax.__version__
        )
    path = args.resume or args.save
    if args.save:
        announce(args, sys)
    watch = bool(args.plot or args.view or args.html)
    if path is not None and path.suffix != ".npz":
        result = into_run(sys, job, path, resume=bool(args.resume))
    else:
        keep = args.every if args.save or watch else 0
        first = None if args.save else _watched(args)
        result = simulate(sys, job.start(sys), job.made(), args.steps, keep, first)
    if result is None:
        print(f"{path} is complete: {job.batch} states x {job.steps} steps")
        result = {"seconds": 0.0}
    else:
        _report(sys, job, result)
    lost = 0
    if "q_end" in result:
        lost = int(np.sum(~np.isfinite(np.concatenate([result["q_end"], result["v_end"]], 1)).all(1)))
    if lost:
        advice = "Use a smaller --dt, --integrator rk4 or --precision 64."
        print(f"jaxrbd: warning: {lost} of {job.batch} states are not finite. {advice}", file=system.stderr)
    if watch and "q" not in result:
        result |= _frames(path)
    if "q" in result:
        result["t"] = job.dt * job.every * np.arange(result["q"].shape[1])
    if args.save and args.save.suffix == ".npz":
        names = {"joint_names": np.array(sys.joint_names), "dt": args.dt, "model": np.array(sys.name)}
        np.savez(args.save, t=result["t"], q=result["q"], v=result["v"], **names)
        print(f"saved {args.save}: t {result['t'].shape}, q {result['q'].shape}, v {result['v'].shape}")
    _look(args, sys, job, result)
    return 1 if lost else 0


class Job(NamedTuple):
    """What is simulated: kept with a run, so that it can go on."""

    batch: int
    steps: int
    dt: float
    precision: int
    integrator: str
    seed: int
    spread: float
    keyframe: str | None
    every: int
    devices: int
    jax: str

    def made(self):
        return {"semi-implicit": rbd.SemiImplicitEuler, "rk4": rbd.RK4}[self.integrator](dt=self.dt)

    def start(self, sys) -> rbd.State:
        return initial_states(sys, self.batch, self.seed, self.spread, self.keyframe)


def _check(args) -> None:
    if args.resume and (args.file or args.save):
        raise ArgumentError("--resume knows its model and its folder: leave FILE and --save out.")
    if not args.resume and not args.file:
        raise ArgumentError("which model? Give a URDF or MJCF file, zoo:NAME, or --resume RUN.")
    for path, ending in ((args.plot, ".png"), (args.html, ".html")):
        if path is not None and path.suffix != ending:
            raise ArgumentError(f"{path}: the file name does not end in {ending}. Rename it.")
    if args.save and args.save.suffix not in ("", ".npz"):
        text = "does not end in .npz, which makes one file, and a folder, written in pieces, has no ending"
        raise ArgumentError(f"{args.save}: the name {text}. Rename it.")
    for path in (args.save, args.plot, args.html):
        if path is not None and not path.parent.is_dir():
            raise ArgumentError(f"{path}: the folder {path.parent} does not exist. Create it first.")
    if args.save and args.save.suffix != ".npz" and args.save.exists():
        remedy = f"Go on with it by `jaxrbd simulate --resume {args.save}`, or choose another name."
        raise ArgumentError(f"{args.save} exists. {remedy}")
    if args.plot:
        import matplotlib  # noqa: F401  fail before the work, not after it
    if args.view or args.html:
        from jaxrbd.viewer.extras import need

        for package in ("viser", "trimesh"):
            need(package, "the viewer")


def _watched(args) -> int:
    return 64 if args.view or args.html else SHOWN


def _report(sys, job: Job, result: dict) -> None:
    seconds, steps = result["seconds"], result.get("steps", job.steps)
    print(
        f"{sys.name}: {job.batch} states x {steps} steps in {seconds:.3g} s, "
        f"{si(job.batch * steps / seconds)} steps/s "
        f"(float{job.precision}, {job.integrator}, dt {job.dt:g} s, {result['devices']} devices; "
        f"compiled in {result['compile_seconds']:.1f} s)"
    )


def _look(args, sys, job: Job, result: dict) -> None:
    """What is drawn of it."""
    if args.plot:
        from jaxrbd.commands.plots import plot_trajectory

        plot_trajectory(sys, result, args.plot)
        print(f"drew {args.plot}")
    if args.html:
        path = rbd.State(result["q"], result["v"])
        print(f"wrote {rbd.viewer.save_html(sys, path, args.html, dt=job.dt * job.every)}")
    if args.view:
        path = rbd.State(result["q"], result["v"])
        with rbd.viewer.show(sys, path, dt=job.dt * job.every) as viewer:
            print("press Ctrl-C to end")
            viewer.wait()


# --- runs that survive a kill ---------------------------------------------------------------------------


def _resumed(args) -> tuple[rbd.System, Job]:
    about = rbd.checkpoint.Run(args.resume)
    if about.notes.get("command") != "simulate":
        raise ArgumentError(
            f"{args.resume} was not begun by `jaxrbd simulate`: go on with the program that did."
        )
    job = Job(**about.notes["job"])
    jax.config.update("jax_enable_x64", job.precision == 64)
    if (job.devices, job.jax) != (jax.device_count(), jax.__version__):
        now = f"{jax.device_count()} and {jax.__version__}"
        text = f"begun on {job.devices} devices with jax {job.jax}, goes on with {now}: digits may differ"
        print(f"jaxrbd: warning: {args.resume}: {text}", file=system.stderr)
    return about.system(), job


def into_run(sys, job: Job, folder: Path, resume: bool = False) -> dict | None:
    """Simulate into a run, from where it stands; None if it was complete. Frames are in its pieces."""
    frame_bytes = trajectory_bytes(sys, job.batch, 0, 1)
    most = max(1, int(PIECE / frame_bytes)) * job.every
    chunk = chunk_of(job.steps, job.every, most)
    notes = {"command": "simulate", "job": job._asdict(), "chunk": chunk}
    state = job.start(sys)
    start = {"state": state, "step": 0}
    with rbd.checkpoint.Run(folder, start, sys=sys, dt=job.dt * job.every, time_axis=1, notes=notes) as out:
        held = out.carry
        if held["step"] >= job.steps:
            return None
        first = held["step"]
        for piece in advanced(sys, held["state"], job.made(), job.steps, job.every, None, chunk, first):
            frames = piece.frames
            if out.count == 0:
                frames = jax.tree.map(
                    lambda a, b: np.concatenate([np.asarray(a)[:, None], b], 1), state, frames
                )
            out.add({"state": piece.state, "step": piece.step}, {"q": frames.q, "v": frames.v})
        return piece.result | {"steps": job.steps - first}


def _frames(folder: Path) -> dict:
    found = rbd.checkpoint.Run(folder).frames()
    return {"q": found["q"], "v": found["v"]}


def announce(args, sys) -> None:
    """Say how large what is stored will be, and go on only if a large one is wanted."""
    size = trajectory_bytes(sys, args.batch, args.steps, args.every)
    text = f"{args.save} will take {si(size)}B"
    if size <= LARGE or args.yes:
        print(f"jaxrbd: {text}", file=system.stderr)
        return
    fewer = args.every * int(np.ceil(size / LARGE))
    remedy = f"Pass --yes to write it, or store fewer steps: --every {fewer}."
    if not (system.stdin.isatty() and system.stderr.isatty()):
        raise ArgumentError(f"{text}. {remedy}")
    print(f"jaxrbd: {text}. Go on? [y/N] ", end="", file=system.stderr, flush=True)
    if system.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ArgumentError(f"{args.save} was not written. {remedy}")


def trajectory_bytes(sys, batch: int, steps: int, every: int) -> int:
    """What t, q and v of every stored step take."""
    return (steps // every + 1) * (batch * (sys.nq + sys.nv) * sys.dtype.itemsize + 8)


def initial_states(sys, batch: int, seed: int, spread: float, keyframe: str | None = None):
    """The default pose (or a keyframe) with normally distributed velocities, (batch, nq) and (batch, nv)."""
    q, v, _ = sys.keyframe(keyframe) if keyframe else (sys.q0, jnp.zeros(sys.nv, sys.dtype), None)
    noise = jax.random.normal(jax.random.key(seed), (batch, sys.nv), sys.dtype)
    return rbd.State(jnp.broadcast_to(q, (batch, sys.nq)), v + jnp.asarray(spread, sys.dtype) * noise)


# --- the loop -------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """What a chunk of steps gave: the state at its end, steps done until then, states kept on the way."""

    state: rbd.State
    step: int
    frames: Any  # State of arrays (batch, kept, …), None if nothing is kept
    result: dict


def chunk_of(steps: int, keep: int, most: int | None = None) -> int:
    """Steps that are computed at once: one compilation serves all chunks of a run."""
    chunk = -(-steps // min(steps, CHUNKS))
    chunk = chunk if most is None else min(chunk, most)
    return -(-chunk // keep) * keep if keep else chunk


def advanced(
    sys,
    state,
    integrator,
    steps: int,
    keep: int,
    first: int | None,
    chunk: int,
    done: int = 0,
    label="simulating",
) -> Iterator[Piece]:
    """Advance a batch chunk by chunk from step `done` to `steps`; with `keep` = k > 0 keep every k-th state.

    `first` limits what is kept to so many states of the batch. Surplus steps of the last chunk are masked
    out, so that all chunks are one program.
    """
    u = control(sys)

    def advance(state, limit):
        def body(state, i):
            new = rbd.step(sys, state, u, integrator).value
            return jax.tree.map(lambda a, b: jnp.where(i < limit, a, b), new, state), None

        def frame(state, start):
            state, _ = jax.lax.scan(body, state, start + jnp.arange(keep or chunk))
            return state, (state if keep else None)

        return jax.lax.scan(frame, state, jnp.arange(0, chunk, keep or chunk))

    run: Callable = spread(advance)
    batch = len(state.q)
    started = time.perf_counter()
    jax.block_until_ready(run(state, np.zeros(batch, np.int32)))  # compiles, advances by nothing
    compiled = time.perf_counter()
    with Progress(steps, label, weight=batch, done=done) as bar:
        for start in range(done, steps, chunk):
            state, kept = jax.block_until_ready(run(state, np.full(batch, steps - start, np.int32)))
            count = min(chunk, steps - start) // keep if keep else 0
            kept = jax.tree.map(lambda x, n=count: np.asarray(x)[:first, :n], kept)
            times = {"seconds": time.perf_counter() - compiled, "compile_seconds": compiled - started}
            end = {"q_end": np.asarray(state.q), "v_end": np.asarray(state.v), "devices": jax.device_count()}
            yield Piece(state, min(start + chunk, steps), kept, end | times)
            bar.advance(chunk)


def simulate(
    sys, state, integrator, steps: int, keep: int = 0, first: int | None = None, label: str = "simulating"
) -> dict:
    """Advance a batch by `steps`; with `keep` = k > 0 also collect every k-th time, the start included."""
    frames = [jax.tree.map(lambda x: np.asarray(x)[:first, None], state)] if keep else []
    for piece in advanced(sys, state, integrator, steps, keep, first, chunk_of(steps, keep), 0, label):
        if keep:
            frames.append(piece.frames)
    result = piece.result
    if keep:
        result["q"] = np.concatenate([f.q for f in frames], 1)
        result["v"] = np.concatenate([f.v for f in frames], 1)
    return result


def control(sys):
    """The control that means "nothing": that of the home keyframe where there is one, else zero."""
    if "home" in sys.keyframe_names:
        return sys.keyframe("home")[2]
    return jnp.zeros(sys.nu, sys.dtype)
