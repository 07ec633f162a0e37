"""`jaxrbd simulate`: a batch of states through time, on every core, without control."""

from __future__ import annotations

import sys as system
import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from jaxrbd.commands.models import open_model
from jaxrbd.commands.progress import Progress
from jaxrbd.devices import configure_cpu, spread
from jaxrbd.errors import ArgumentError

CHUNKS = 40  # redraws of the progress bar
LARGE = 100e6  # bytes of a file that nobody should find by accident


def run(args) -> int:
    for path, ending in ((args.save, ".npz"), (args.plot, ".png")):
        if path is not None and path.suffix != ending:
            raise ArgumentError(f"{path}: the file name does not end in {ending}. Rename it.")
        if path is not None and not path.parent.is_dir():
            raise ArgumentError(f"{path}: the folder {path.parent} does not exist. Create it first.")
    if args.plot:
        import matplotlib  # noqa: F401  fail before the work, not after it
    configure_cpu()
    jax.config.update("jax_enable_x64", args.precision == 64)
    sys, warnings = open_model(args.file, args.base, package_dirs=args.package_dir)
    for text in warnings:
        print(f"jaxrbd: warning: {text}", file=system.stderr)
    if sys.nv == 0:
        raise ArgumentError(f"{args.file}: nothing moves. Try --base free.")
    if args.save:
        announce(args, sys)
    make = {"semi-implicit": rbd.SemiImplicitEuler, "rk4": rbd.RK4}[args.integrator]
    state = initial_states(sys, args.batch, args.seed, args.spread, args.keyframe)
    keep = args.every if args.save or args.plot else 0
    result = simulate(sys, state, make(dt=args.dt), args.steps, keep, None if args.save else 8)
    seconds = result["seconds"]
    print(
        f"{sys.name}: {args.batch} states x {args.steps} steps in {seconds:.3g} s, "
        f"{si(args.batch * args.steps / seconds)} steps/s "
        f"(float{args.precision}, {args.integrator}, dt {args.dt:g} s, {result['devices']} devices; "
        f"compiled in {result['compile_seconds']:.1f} s)"
    )
    lost = int(np.sum(~np.isfinite(np.concatenate([result["q_end"], result["v_end"]], 1)).all(1)))
    if lost:
        advice = "Use a smaller --dt, --integrator rk4 or --precision 64."
        print(f"jaxrbd: warning: {lost} of {args.batch} states are not finite. {advice}", file=system.stderr)
    if keep:
        result["t"] = args.dt * np.arange(0, args.steps + 1, keep)
    if args.save:
        names = {"joint_names": np.array(sys.joint_names), "dt": args.dt, "model": np.array(sys.name)}
        np.savez(args.save, t=result["t"], q=result["q"], v=result["v"], **names)
        print(f"saved {args.save}: t {result['t'].shape}, q {result['q'].shape}, v {result['v'].shape}")
    if args.plot:
        from jaxrbd.commands.plots import plot_trajectory

        plot_trajectory(sys, result, args.plot)
        print(f"drew {args.plot}")
    return 1 if lost else 0


def announce(args, sys) -> None:
    """Say how large a large file will be, and go on only if that is wanted."""
    size = trajectory_bytes(sys, args.batch, args.steps, args.every)
    if size <= LARGE:
        return
    text = f"{args.save} will take {si(size)}B"
    fewer = args.every * int(np.ceil(size / LARGE))
    remedy = f"Pass --yes to write it, or store fewer steps: --every {fewer}."
    if args.yes:
        print(f"jaxrbd: {text}", file=system.stderr)
    elif not (system.stdin.isatty() and system.stderr.isatty()):
        raise ArgumentError(f"{text}. {remedy}")
    else:
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


def simulate(
    sys, state, integrator, steps: int, keep: int = 0, first: int | None = None, label: str = "simulating"
) -> dict:
    """Advance a batch by `steps`; with `keep` = k > 0 also collect every k-th time, the start included.

    `first` limits what is collected to so many states of the batch.

    Runs in chunks of equal length, so that one compilation serves all of them; surplus steps of the last
    chunk are masked out.
    """
    chunk = -(-steps // min(steps, CHUNKS))
    if keep:
        chunk = -(-chunk // keep) * keep
    u = control(sys)

    def advance(state, limit):
        def body(state, i):
            new = rbd.step(sys, state, u, integrator).value
            return jax.tree.map(lambda a, b: jnp.where(i < limit, a, b), new, state), None

        def frame(state, start):
            state, _ = jax.lax.scan(body, state, start + jnp.arange(keep or chunk))
            return state, (state if keep else None)

        return jax.lax.scan(frame, state, jnp.arange(0, chunk, keep or chunk))

    run, batch = spread(advance), len(state.q)
    started = time.perf_counter()
    state, _ = jax.block_until_ready(run(state, np.zeros(batch, np.int32)))  # compiles, advances by nothing
    compiled = time.perf_counter()
    frames = [jax.tree.map(lambda x: np.asarray(x)[:first, None], state)] if keep else []
    with Progress(steps, label) as bar:
        for start in range(0, steps, chunk):
            state, kept = jax.block_until_ready(run(state, np.full(batch, steps - start, np.int32)))
            if keep:
                frames.append(jax.tree.map(lambda x: np.asarray(x)[:first], kept))
            bar.advance(chunk)
    seconds = time.perf_counter() - compiled
    result = {"q_end": np.asarray(state.q), "v_end": np.asarray(state.v), "devices": jax.device_count()}
    result |= {"seconds": seconds, "compile_seconds": compiled - started}
    if keep:
        count = steps // keep + 1
        result["q"] = np.concatenate([f.q for f in frames], 1)[:, :count]
        result["v"] = np.concatenate([f.v for f in frames], 1)[:, :count]
    return result


def control(sys):
    """The control that means "nothing": that of the home keyframe where there is one, else zero."""
    if "home" in sys.keyframe_names:
        return sys.keyframe("home")[2]
    return jnp.zeros(sys.nu, sys.dtype)


def si(x: float) -> str:
    """1234567 -> "1.23 M"."""
    for factor, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if x >= factor:
            return f"{x / factor:.3g}{letter}"
    return f"{x:.3g}"
