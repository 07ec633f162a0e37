"""CPU set-up and spreading a batch over devices.

XLA's CPU compiler by default fuses one output at a time and recomputes shared values for every output.
Its multi-output fusion pass, off by default, lets the recursions here run three to five times faster
and compile in half the time. XLA reads its flags once per process and the pass is young (jaxlib 0.10
aborts on some unrelated programs), so it is a choice: `configure_cpu` makes it.
"""

from __future__ import annotations

import os
import warnings

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from jaxrbd.errors import ArgumentError

_FUSION = "xla_cpu_use_multi_output_fusion"


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
    from jax._src import xla_bridge

    return xla_bridge.backends_are_initialized()


def configure_cpu(devices: int | None = None, fusion: bool = True) -> int:
    """Set JAX up for speed on CPU; call it before JAX computes anything.

    One XLA device per core (or as many as given), for `spread`; and, with `fusion`, XLA's multi-output
    fusion for the whole process. Returns the number of devices.
    """
    count = devices or os.cpu_count() or 1
    if _started():
        have = len(jax.devices())
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


def spread(f, devices=None):
    """Vectorise f over the leading axis of its arguments and share the batch among all devices.

    spread(f)(*args) equals jax.jit(jax.vmap(f))(*args). A batch that does not divide evenly is padded
    with its last state.
    """
    devices = list(devices) if devices is not None else jax.devices()
    n = len(devices)
    batched = jax.vmap(f)
    if n == 1:
        return jax.jit(batched)
    mesh = jax.sharding.Mesh(devices, ("batch",))
    spec = PartitionSpec("batch")
    mapped = jax.jit(jax.shard_map(batched, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    sharding = NamedSharding(mesh, spec)

    def run(*args):
        leaves = jax.tree.leaves(args)
        if not leaves or any(jnp.ndim(x) == 0 for x in leaves):
            raise ArgumentError("spread: every argument needs a leading batch axis.")
        size = leaves[0].shape[0]
        if any(x.shape[0] != size for x in leaves):
            raise ArgumentError(f"spread: batch sizes differ: {sorted({x.shape[0] for x in leaves})}.")
        pad = -size % n
        if pad:
            args = jax.tree.map(lambda x: jnp.concatenate([x, jnp.repeat(x[-1:], pad, 0)]), args)
        out = mapped(*jax.device_put(args, sharding))
        return jax.tree.map(lambda y: y[:size], out) if pad else out

    run.lower = lambda *args: mapped.lower(*jax.device_put(args, sharding))
    return run
