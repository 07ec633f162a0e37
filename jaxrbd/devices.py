"""Set-up of CPUs, and spreading a batch over devices.

XLA's CPU compiler by default fuses one output at a time and recomputes shared values for every output.
Its multi-output fusion pass, off by default, lets the recursions here run three to five times faster
and compile in half the time. XLA reads its flags once per process and the pass is young (jaxlib 0.10
aborts on some unrelated programs), so it is a choice: `configure_cpu` makes it.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from jaxrbd.errors import ArgumentError

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


def started() -> bool:
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
    if started():
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

    mesh, home = Mesh(devices, ("batch",)), Mesh(local, ("batch",))
    known_trees: dict[Any, _Divided] = {}  # lists of leaves pass through jit sooner than a System does
    placed: dict = {}  # what the batch shares, such as a System, is copied to the devices once

    def divided(args, tree) -> _Divided:
        if not args or (not isinstance(in_axes, int) and len(args) != len(in_axes)):
            expected = "some" if isinstance(in_axes, int) else f"{len(in_axes)} as in in_axes"
            raise ArgumentError(
                f"spread: found {len(args)} arguments, expected {expected}. Pass them in order."
            )
        batched = _where_batched(in_axes, args)

        def one(shared, own):
            parts = iter(shared), iter(own)
            return f(*tree.unflatten([next(parts[b]) for b in batched]))

        mapped = jax.shard_map(
            jax.vmap(one, (None, 0)),
            mesh=mesh,
            in_specs=(_SHARED, _BATCHED),
            out_specs=_BATCHED,
            check_vma=False,
        )
        program = jax.jit(mapped) if len(owners) == 1 else _over_processes(jax.jit(mapped), mesh, home)
        return _Divided(batched, [i for i, arg in enumerate(args) for _ in jax.tree.leaves(arg)], program)

    def remember(x):
        if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
            return _place(x, home, _SHARED)
        key = id(x)
        known = placed.get(key)
        if known is None or known[0]() is not x:
            known = weakref.ref(x, lambda _: placed.pop(key, None)), _place(x, home, _SHARED)
            placed[key] = known
        return known[1]

    def prepare(args):
        """The leaves, padded and placed on this process's devices; how they are divided; the batch size."""
        leaves, tree = jax.tree.flatten(args)
        how = known_trees.get(tree)
        if how is None:
            how = known_trees[tree] = divided(args, tree)
        shared, own = how.parts(leaves)
        size = _batch_size(own, how)
        extra = -size % len(local)
        if extra and not pad:
            raise ArgumentError(
                f"spread: found a batch of {size}, expected a multiple of the {len(local)} devices. "
                "Change its size, or let pad=True repeat the last state."
            )
        if extra:
            own = [jnp.concatenate([x, jnp.repeat(x[-1:], extra, 0)]) for x in own]
        return [remember(x) for x in shared], _place(own, home, _BATCHED), how, size

    def run(*args):
        shared, own, how, size = prepare(args)
        out = how.program(shared, own)
        return jax.tree.map(lambda y: y[:size], out) if size % len(local) else out

    def lower(*args):
        shared, own, how, _ = prepare(args)
        parts = iter(shared), iter(own)
        ready = jax.tree.structure(args).unflatten([next(parts[b]) for b in how.batched])
        return jax.jit(lambda *each: how.program(*how.parts(jax.tree.leaves(each)))).lower(*ready)

    if len(owners) == 1:
        vars(run)["lower"] = lower
    return run


class _Divided(NamedTuple):
    """Of one tree of arguments: which leaves are batched, whose they are, and what runs on the two lists."""

    batched: list[bool]
    argument: list[int]
    program: Callable[..., Any]

    def parts(self, leaves):
        """Those that the batch shares, and those that it has of its own."""
        pairs = list(zip(leaves, self.batched))
        return [x for x, b in pairs if not b], [x for x, b in pairs if b]


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


def _batch_size(own: list, how: _Divided) -> int:
    """The common length of the leading axes of the batched leaves."""
    sizes = {np.shape(x)[:1] for x in own}
    if len(sizes) != 1 or () in sizes or (0,) in sizes:
        arguments = [i for i, b in zip(how.argument, how.batched) if b]
        shapes = sorted({(i, np.shape(x)[:1]) for i, x in zip(arguments, own)})
        found = ", ".join(f"{n[0] if n else 'a scalar'} (argument {i})" for i, n in shapes)
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
