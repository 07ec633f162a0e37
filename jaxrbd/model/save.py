"""Save a System to one file and load it back, bit for bit: data only, nothing in it is ever executed.

The file (`tensors.py`) holds the leaves, and the topology as JSON in its metadata. It is untrusted: every
field of the topology is checked before it is used.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError, FileError
from jaxrbd.model import tensors
from jaxrbd.model.describe import host_leaves
from jaxrbd.model.dtypes import resolve_dtype
from jaxrbd.model.leaves import leaf_shapes
from jaxrbd.model.system import SLIP_SPEED, System, Topology
from jaxrbd.model.topology_check import check_topology
from jaxrbd.typing import DTypeLike, StrPath

FORMAT, VERSION = "jaxrbd System", "1"
_CODES = ("F32", "F64")
_MAX_FILE = 2**30
_LATE = {
    "slip_speed": SLIP_SPEED,
    "linear_coefficients": 0.0,
    "linear_offset": 0.0,
}  # leaves that came after the first files: what these files mean


def save(sys: System, path: StrPath) -> None:
    """Write a System to `path`; `load_system` gives it back with the same bits, dtype and topology.

    The file appears whole or not at all. It names mesh files and does not contain them.
    """
    leaves = host_leaves(sys, "save")
    if sys.topology.functions:
        names = ", ".join(repr(f.name) for f in sys.topology.functions)
        raise ArgumentError(
            f"save: {sys.name!r} has relations written as functions ({names}), which no file can hold. Save "
            "the System without them, and add them with loop_function after load_system."
        )
    kinds = {leaf.dtype for leaf in leaves.values()}
    if len(kinds) != 1 or tensors.code_of(min(kinds)) not in _CODES:
        names = ", ".join(sorted(map(str, kinds)))
        raise ArgumentError(f"save: leaves are {names}, expected all float32 or all float64. Use sys.astype.")
    topology = {f.name: getattr(sys.topology, f.name) for f in fields(Topology)}
    pieces = tensors.pack(leaves, {"format": FORMAT, "version": VERSION, "topology": json.dumps(topology)})
    path = Path(path)
    if len(pieces[1]) > tensors.MAX_HEADER or sum(map(len, pieces)) > _MAX_FILE:
        raise FileError(str(path), f"the System takes more than {_MAX_FILE >> 20} MiB", "Split the model.")
    tensors.write(path, pieces)


def load_system(path: StrPath, *, dtype: DTypeLike | None = None) -> System:
    """Read a System that `save` wrote; a truncated, altered or foreign file is a FileError.

    `dtype` casts it; without one the file's is kept, and a float64 file needs JAX's x64 mode.
    """
    again = "Save the System again, or copy the file anew."
    file = tensors.Reader(path, FORMAT, VERSION, "a saved System", again, _MAX_FILE)
    topology = _topology(file)
    shapes = leaf_shapes(topology)
    late = {key: np.full(shapes[key], value) for key, value in _LATE.items() if key not in file.entries}
    if set(file.entries) | set(late) != set(shapes):
        odd = ", ".join(sorted((set(file.entries) | set(late)) ^ set(shapes))[:8])
        raise file.error(f"the leaves are not those of a System: {odd:.200}")
    codes = {str(e.get("dtype")) if isinstance(e, dict) else "" for e in file.entries.values()}
    if len(codes) != 1 or not codes <= set(_CODES):
        raise file.error(f"leaves of type {', '.join(sorted(codes)):.60}, expected all F32 or all F64")
    for key, entry in file.entries.items():
        if entry.get("shape") != list(shapes[key]):
            cause = f"shape {entry.get('shape')!r:.60}, expected {list(shapes[key])}"
            raise file.error(cause, item=f"leaf {key!r}")
    arrays = file.arrays("leaf") | late
    target = _target(file, codes.pop(), dtype)
    return System(topology=topology, **{key: jnp.asarray(x, target) for key, x in arrays.items()})


def _topology(file: tensors.Reader) -> Topology:
    try:
        values = json.loads(file.metadata["topology"])
    except (KeyError, TypeError, ValueError, RecursionError):
        raise file.error("the topology cannot be read") from None
    return check_topology(values, file.where)


def _target(file: tensors.Reader, code: str, dtype: DTypeLike | None) -> np.dtype:
    if dtype is None and code == "F64" and not jax.config.jax_enable_x64:
        remedy = 'Call jax.config.update("jax_enable_x64", True) first, or pass dtype="float32".'
        raise file.error("the System is float64, but JAX has it switched off", remedy)
    return resolve_dtype(tensors.DTYPES[code].newbyteorder("=") if dtype is None else dtype)
