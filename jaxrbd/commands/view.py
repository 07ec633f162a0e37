"""`jaxrbd view` and `jaxrbd replay`: a model, or a run that was stored, in the browser."""

from __future__ import annotations

import sys as system

import jax
import numpy as np

import jaxrbd as rbd
from jaxrbd.commands.models import open_model
from jaxrbd.errors import ArgumentError
from jaxrbd.model.names import near_files


def run_view(args) -> int:
    sys, warnings = open_model(args.file, args.base, package_dirs=args.package_dir, loops=args.loops)
    for text in warnings:
        print(f"jaxrbd: warning: {text}", file=system.stderr)
    if args.png:
        print(f"drew {rbd.viewer.save_png(sys, args.png)}")
        return 0
    q = sys.keyframe(args.keyframe)[0] if args.keyframe else None
    return _serve(lambda: rbd.viewer.show(sys, q=q, host=args.host, port=args.port))


def run_replay(args) -> int:
    sys, path, dt = _stored(args)
    if args.html:
        print(f"wrote {rbd.viewer.save_html(sys, path, args.html, dt=dt)}")
    if args.gif:
        print(f"wrote {rbd.viewer.save_gif(sys, path, args.gif, dt=dt)}")
    if args.html or args.gif:
        return 0
    return _serve(lambda: rbd.viewer.show(sys, path, dt=dt, host=args.host, port=args.port))


def _stored(args):
    """(System, path, seconds between its states) of a run or an .npz of `jaxrbd simulate --save`."""
    if args.folder.suffix != ".npz":
        if not args.folder.exists():
            near = near_files(args.folder)
            raise ArgumentError(f"{args.folder}: there is no such run. {near or 'Make one with --save.'}")
        run = rbd.checkpoint.Run(args.folder)
        if run.notes.get("job", {}).get("precision") == 64:
            jax.config.update("jax_enable_x64", True)
        return run.system(), run, run.about["dt"] or 1e-3
    if args.model is None:
        raise ArgumentError(
            f"{args.folder} does not hold its model. Name it: jaxrbd replay {args.folder} --model FILE."
        )
    sys, _ = open_model(args.model, args.base, package_dirs=args.package_dir, loops=args.loops)
    try:
        with np.load(args.folder, allow_pickle=False) as data:
            t, q, v = (data[key] for key in ("t", "q", "v"))
    except (OSError, ValueError, KeyError) as error:
        raise ArgumentError(f"{args.folder} cannot be read as a trajectory ({str(error)[:120]}).") from None
    return sys, rbd.State(q, v), float(t[1] - t[0]) if len(t) > 1 else 1e-3


def _serve(show) -> int:
    with show() as viewer:
        print("press Ctrl-C to end", flush=True)
        viewer.wait()
    return 0
