"""Set-up of CPUs and hosts, and spreading a batch over devices.

XLA's CPU compiler by default fuses one output at a time and recomputes shared values for every output.
Its multi-output fusion pass, off by default, lets the recursions here run three to five times faster
and compile in half the time. XLA reads its flags once per process and the pass is young (jaxlib 0.10
aborts on some unrelated programs), so it is a choice: `configure_cpu` makes it.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from jaxrbd.errors import ArgumentError, RbdError

_FUSION = "xla_cpu_use_multi_output_fusion"
_SHARED, _BATCHED = PartitionSpec(), PartitionSpec("batch")


def _enable_fusion() -> None:
    """Append multi-output fusion to XLA_FLAGS, keeping whatever extra options are there."""
    flags = os.environ.get("XLA_FLAGS", "")
    if _FUSION in flags:
        return
    if "--xla_backend_extra_options=" in flags:
        head, _, tail = flags.partition("--xla_backend_extra_options=")
        os.environ["XLA_FLAGS"] = f"{head}--xla_backend_extra_options={_FUSION}=true,{tail}"
    else:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_extra_options={_FUSION}=true".strip()


def _started() -> bool:
    """Whether JAX has made its devices: from then on it refuses to change their number."""
    count = jax.config.jax_num_cpu_devices
    try:
        jax.config.update("jax_num_cpu_devices", count + 1)
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", count)
    return False


def configure_cpu(devices: int | None = None, fusion: bool = True) -> int:
    """Set JAX up for speed on CPU; call it before JAX computes anything.

    One XLA device per core (or as many as given), for `spread`; and, with `fusion`, XLA's multi-output
    fusion for the whole process. Returns the number of devices.
    """
    count = devices or os.cpu_count() or 1
    if _started():
        have = jax.local_device_count()
        if have != count:
            warnings.warn(
                f"configure_cpu({count}): JAX has started with {have} device(s) and keeps them. "
                "Call configure_cpu right after importing jaxrbd, before any computation.",
                stacklevel=2,
            )
        return have
    if fusion:
        _enable_fusion()
    # XLA's thread pool must outnumber the devices, or LAPACK calls inside a sharded program wait for ever
    os.environ.setdefault("NPROC", str(2 * count))
    jax.config.update("jax_num_cpu_devices", count)
    return count


def connect_hosts(
    address: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    timeout: float = 120.0,
) -> None:
    """Join the processes of a program that runs on several hosts; call it before JAX computes anything.

    Every process runs the same program and passes the same `address` ("host:port" of process 0, any free
    port there), the same number of `processes`, and its own number `process`. `jax.devices()` are then the
    devices of all of them, and `spread` uses them all. A process that is missing after `timeout` seconds,
    or that disagrees, is an error in every process.

    Without arguments JAX asks the launcher (Slurm, Open MPI, Kubernetes, Cloud TPU) for all three. Then,
    and once connected, jaxlib ends a process that misses another one instead of raising an error.
    """
    if _started() or jax.distributed.is_initialized():
        raise ArgumentError(
            "connect_hosts: JAX has started. Call connect_hosts once, before any computation."
        )
    given = (address, processes, process)
    if given == (None, None, None):
        try:
            jax.distributed.initialize(initialization_timeout=math.ceil(timeout))
        except (ValueError, TypeError, RuntimeError) as error:
            remedy = "Pass address, processes and process."
            raise ArgumentError(
                f"connect_hosts: no launcher told JAX where it is ({error}) {remedy}"
            ) from error
        return
    host, _, port = str(address).rpartition(":")
    if (
        not (isinstance(processes, int) and isinstance(process, int) and 0 <= process < processes)
        or not host
        or not port.isdigit()
    ):
        raise ArgumentError(
            f"connect_hosts: found address {address!r}, process {process!r} of {processes!r}, expected "
            "'host:port' and integers 0 <= process < processes. Pass all three, or none under a launcher "
            "that knows them."
        )
    # jaxlib aborts when a process is missing or the port is taken, so call the roll first
    if process == 0:
        _call_roll(int(port), processes, timeout)
    else:
        _answer_roll(host.strip("[]"), int(port), processes, process, timeout)
    jax.distributed.initialize(*given, initialization_timeout=max(60, math.ceil(timeout)))


def _call_roll(port: int, processes: int, timeout: float) -> None:
    """Process 0 waits for the others to report and sends each the verdict: "go", or what is wrong."""
    end = time.monotonic() + timeout
    ipv6 = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    try:
        server = socket.create_server(("", port), family=family, dualstack_ipv6=ipv6)
    except OSError as error:
        raise RbdError(
            f"connect_hosts: cannot listen on port {port} ({error}). Choose a free port."
        ) from error
    reports: list[tuple[str, socket.socket]] = []
    with server:
        while len(reports) < processes - 1 and (left := end - time.monotonic()) > 0:
            server.settimeout(left)
            try:
                peer = server.accept()[0]
                peer.settimeout(min(left, 5))
                greeting, _, report = peer.makefile().readline(64).partition(" ")
            except (OSError, ValueError):  # nobody came, or a stranger
                continue
            if greeting == "jaxrbd":
                reports.append((report.strip(), peer))
    found = sorted(report for report, _ in reports)
    good = found == sorted(f"{i} of {processes}" for i in range(1, processes))
    wrong = (
        f"connect_hosts: process 0 expected all of 1 to {processes - 1} of {processes} within {timeout:g} s, "
        f"found {', '.join(found) or 'none'}. Start each with the same address, its own number, "
        "or raise timeout."
    )
    for _, peer in reports:
        with contextlib.suppress(OSError), peer:
            peer.sendall(f"jaxrbd {'go' if good else wrong}\n".encode())
    if not good:
        raise RbdError(wrong)


def _answer_roll(host: str, port: int, processes: int, process: int, timeout: float) -> None:
    """Report to process 0 and wait for its verdict."""
    end = time.monotonic() + timeout
    cause = ""
    while (left := end - time.monotonic()) > 0:
        try:
            with socket.create_connection((host, port), timeout=left) as peer:
                peer.sendall(f"jaxrbd {process} of {processes}\n".encode())
                peer.settimeout(left + 5)  # process 0 may wait as long, and knows more
                greeting, _, verdict = peer.makefile().readline().strip().partition(" ")
            if greeting == "jaxrbd" and verdict == "go":
                return
            if greeting == "jaxrbd":
                raise RbdError(verdict)
            cause = "another program answers"
        except (OSError, ValueError) as error:
            cause = str(error)
        time.sleep(0.1)
    raise RbdError(
        f"connect_hosts: process {process} found no process 0 at {host}:{port} within {timeout:g} s "
        f"({cause}). Check that process 0 runs, its address and the firewall, or raise timeout."
    )


def spread(
    f: Callable[..., Any],
    devices: Sequence[jax.Device] | None = None,
    *,
    in_axes: int | Sequence[Any] = 0,
    pad: bool = True,
) -> Callable[..., Any]:
    """Vectorise f over the leading axis of its arguments and share the batch among all devices.

    spread(f)(*args) equals jax.jit(jax.vmap(f, in_axes))(*args). `in_axes` is 0, or a tuple with 0 (batched)
    or None (shared by the batch, such as a System) per argument; or, as in vmap, a tree of those in place of
    an argument: `many.in_axes` for a System with some leaves batched. A batch that does not divide evenly
    is padded with its last state; with pad=False it is an error. `jax.grad` works through it.

    After `connect_hosts` each process passes its own part of the batch and gets the results of that part. All
    make the same calls, outside jit, with equally many states per device and the same shared arguments.
    The gradient for a shared argument is that of the sum of all processes' losses, in every process.
    """
    devices = list(jax.devices() if devices is None else devices)
    local = [d for d in devices if d.process_index == jax.process_index()]
    owners = {d.process_index for d in devices}
    if not local or len(owners) not in (1, jax.process_count()):
        raise ArgumentError(
            f"spread: found devices of processes {sorted(owners)}, expected those of this process or of all. "
            "Pass jax.local_devices() or jax.devices()."
        )
    axes = jax.tree.leaves(in_axes, is_leaf=_is_none)
    known = all(axis is None or (np.ndim(axis) == 0 and axis == 0) for axis in axes)
    if not (known and any(axis is not None for axis in axes)) or not isinstance(in_axes, (int, tuple, list)):
        raise ArgumentError(
            f"spread: found in_axes {in_axes!r:.200}, expected 0 or a tuple with 0 (batched, at least one), "
            "None (shared) or a tree of these per argument. Bring a batch axis forward with jnp.moveaxis."
        )

    flags: dict = {}  # of every tree of arguments that came: which leaves are batched

    def split(args):
        """The arguments twice: with None for every batched leaf, and with None for every shared one."""
        if not args or (not isinstance(in_axes, int) and len(args) != len(in_axes)):
            expected = "some" if isinstance(in_axes, int) else f"{len(in_axes)} as in in_axes"
            raise ArgumentError(
                f"spread: found {len(args)} arguments, expected {expected}. Pass them in order."
            )
        leaves, tree = jax.tree.flatten(args)
        if tree not in flags:
            flags[tree] = _where_batched(in_axes, args)
        batched = flags[tree]
        parts = ([x if part == b else None for x, b in zip(leaves, batched)] for part in (False, True))
        return tuple(tree.unflatten(part) for part in parts)

    def join(shared, batched):
        return jax.tree.map(lambda x, y: y if x is None else x, shared, batched, is_leaf=_is_none)

    mesh, home = Mesh(devices, ("batch",)), Mesh(local, ("batch",))
    mapped = jax.shard_map(
        jax.vmap(lambda shared, batched: f(*join(shared, batched)), (None, 0)),
        mesh=mesh,
        in_specs=(_SHARED, _BATCHED),
        out_specs=_BATCHED,
        check_vma=False,
    )
    program = jax.jit(mapped) if len(owners) == 1 else _over_processes(jax.jit(mapped), mesh, home)

    placed: dict = {}  # what the batch shares, such as a System, is copied to the devices once

    def remember(shared):
        def one(x):
            if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
                return _place(x, home, _SHARED)
            key = id(x)
            known = placed.get(key)
            if known is None or known[0]() is not x:
                known = weakref.ref(x, lambda _: placed.pop(key, None)), _place(x, home, _SHARED)
                placed[key] = known
            return known[1]

        return jax.tree.map(one, shared)

    def prepare(args):
        """The arguments, padded and placed on this process's devices, and the size of the batch."""
        shared, batched = split(args)
        size = _batch_size(batched)
        extra = -size % len(local)
        if extra and not pad:
            raise ArgumentError(
                f"spread: found a batch of {size}, expected a multiple of the {len(local)} devices. "
                "Change its size, or let pad=True repeat the last state."
            )
        if extra:
            batched = jax.tree.map(lambda x: jnp.concatenate([x, jnp.repeat(x[-1:], extra, 0)]), batched)
        return (remember(shared), _place(batched, home, _BATCHED)), size

    def run(*args):
        ready, size = prepare(args)
        out = program(*ready)
        return jax.tree.map(lambda y: y[:size], out) if size % len(local) else out

    if len(owners) == 1:
        whole = jax.jit(lambda *each: mapped(*split(each)))
        vars(run)["lower"] = lambda *args: whole.lower(*join(*prepare(args)[0]))
    return run


def _is_none(x) -> bool:
    return x is None


def _where_batched(in_axes, args) -> list[bool]:
    """For every leaf of the arguments whether it is batched; `in_axes` is a prefix of their tree."""
    found: list[bool] = []
    axes = [in_axes] * len(args) if isinstance(in_axes, int) else in_axes
    for i, (axis, arg) in enumerate(zip(axes, args)):
        try:
            jax.tree.map(
                lambda a, part: found.extend([a is not None] * len(jax.tree.leaves(part))),
                axis,
                arg,
                is_leaf=_is_none,
            )
        except (ValueError, TypeError) as error:
            raise ArgumentError(
                f"spread: in_axes of argument {i} does not fit it ({error!s:.200}). Give 0 or None for the "
                "whole argument or for parts of it; sys.in_axes for a batched System."
            ) from None
    return found


def _place(tree, mesh, spec):
    """Arrays on the devices of a mesh; those that are there already stay."""
    target = NamedSharding(mesh, spec) if mesh.size > 1 else SingleDeviceSharding(mesh.devices.item())

    def one(x):
        known = isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
        return x if known and x.sharding == target else jax.device_put(x, target)

    return jax.tree.map(one, tree)


def _batch_size(batched: tuple) -> int:
    """The common length of the leading axes of the batched leaves."""
    shapes = {(i, np.shape(x)[:1]) for i, arg in enumerate(batched) for x in jax.tree.leaves(arg)}
    sizes = {shape for _, shape in shapes}
    if len(sizes) != 1 or () in sizes or (0,) in sizes:
        found = ", ".join(f"{n[0] if n else 'a scalar'} (argument {i})" for i, n in sorted(shapes))
        raise ArgumentError(
            f"spread: found leading axes of {found or 'nothing'}, expected one size of at least 1. Give "
            "batched arguments the same leading axis; mark those that the batch shares with None in in_axes."
        )
    return sizes.pop()[0]


def _over_processes(mapped, mesh, home):
    """`mapped`, a program on the mesh of all processes, for arrays on this process's own mesh, `home`."""
    checked: list[np.ndarray] = []

    def exchange(tree, source, target, spec):
        """The same shards as arrays on the other mesh: a part of the global ones, or all of our own."""

        def one(x):
            if isinstance(x, jax.core.Tracer):
                raise ArgumentError(
                    "spread: found a tracer, expected arrays after connect_hosts. Put jit into f."
                )
            shape = x.shape if spec == _SHARED else (x.shape[0] * target.size // source.size, *x.shape[1:])
            if x.dtype == jax.dtypes.float0:  # the cotangent of an integer
                return np.zeros(shape, x.dtype)
            x = _place(x, home, spec) if source is home else x
            shards = [shard.data for shard in x.addressable_shards]
            return jax.make_array_from_single_device_arrays(shape, NamedSharding(target, spec), shards)

        return jax.tree.map(one, tree)

    def enter(shared, batched):
        ready = exchange(shared, home, mesh, _SHARED), exchange(batched, home, mesh, _BATCHED)
        if not checked:  # in the first call of every process
            share = np.array(jax.tree.leaves(batched)[0].shape[0] // home.size)
            shares = sorted(set(multihost_utils.process_allgather(share).tolist()))
            if len(shares) > 1:
                raise ArgumentError(
                    f"spread: found {shares} states per device, expected the same in all processes. "
                    "Divide the batch among the processes in proportion to their devices."
                )
            checked.append(share)
        return ready

    @jax.custom_vjp
    def program(shared, batched):
        return exchange(mapped(*enter(shared, batched)), mesh, home, _BATCHED)

    def forward(shared, batched):
        out, pull = jax.vjp(mapped, *enter(shared, batched))
        return exchange(out, mesh, home, _BATCHED), pull

    def backward(pull, cotangent):
        shared, batched = pull(exchange(cotangent, home, mesh, _BATCHED))
        return exchange(shared, mesh, home, _SHARED), exchange(batched, mesh, home, _BATCHED)

    program.defvjp(forward, backward)
    return program
