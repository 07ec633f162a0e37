"""Save a System to one file and load it back, bit for bit: data only, nothing in it is ever executed.

The file is a valid safetensors file: eight bytes with the length of a JSON header, the header, then the
leaves as raw little-endian numbers. The header's metadata holds the topology, the SHA-256 of every leaf and
one of the header itself. A file is untrusted: sizes are checked before anything is read, and every field
of the topology before it is used. Checksums show damage; they do not show who wrote the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import fields
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError, ModelError
from jaxrbd.model.describe import host_leaves
from jaxrbd.model.dtypes import resolve_dtype
from jaxrbd.model.leaves import leaf_shapes
from jaxrbd.model.system import SLIP_SPEED, System, Topology
from jaxrbd.model.topology_check import check_topology
from jaxrbd.typing import DTypeLike, StrPath

FORMAT, VERSION = "jaxrbd System", "1"
_DTYPES: dict[str, np.dtype] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
_MAX_HEADER, _MAX_FILE = 64 * 2**20, 2**30
_LATE = {"slip_speed": SLIP_SPEED}  # leaves that came after the first files: what these files mean
_NO_DIGEST = "0" * 64
_AGAIN = "Save the System again, or copy the file anew."


def save(sys: System, path: StrPath) -> None:
    """Write a System to `path`; `load_system` gives it back with the same bits, dtype and topology.

    The file appears whole or not at all. It names mesh files and does not contain them.
    """
    leaves = host_leaves(sys, "save")
    kinds = {leaf.dtype for leaf in leaves.values()}
    code = next((code for code, dtype in _DTYPES.items() if kinds == {dtype.newbyteorder("=")}), None)
    if code is None:
        names = ", ".join(sorted(map(str, kinds)))
        raise ArgumentError(f"save: leaves are {names}, expected all float32 or all float64. Use sys.astype.")
    entries, metadata, at = {}, {}, 0
    blobs = {key: np.ascontiguousarray(leaf, _DTYPES[code]).tobytes() for key, leaf in leaves.items()}
    for key, blob in blobs.items():
        span = [at, at + len(blob)]
        entries[key] = {"dtype": code, "shape": list(leaves[key].shape), "data_offsets": span}
        metadata[f"sha256 {key}"] = hashlib.sha256(blob).hexdigest()
        at += len(blob)
    topology = {f.name: getattr(sys.topology, f.name) for f in fields(Topology)}
    metadata |= {"format": FORMAT, "version": VERSION, "topology": json.dumps(topology)}
    header = _header(entries, metadata | {"sha256": _NO_DIGEST})
    header = _header(entries, metadata | {"sha256": hashlib.sha256(header).hexdigest()})
    path = Path(path)
    if len(header) > _MAX_HEADER or 8 + len(header) + at > _MAX_FILE:
        raise ModelError(str(path), f"the System takes more than {_MAX_FILE >> 20} MiB", "Split the model.")
    _write(path, b"".join([struct.pack("<Q", len(header)), header, *blobs.values()]))


def load_system(path: StrPath, *, dtype: DTypeLike | None = None) -> System:
    """Read a System that `save` wrote; a truncated, altered or foreign file is a ModelError.

    `dtype` casts it; without one the file's is kept, and a float64 file needs JAX's x64 mode.
    """
    return _Reader(path).system(dtype)


class _Reader:
    def __init__(self, path: StrPath):
        self.where = str(path)
        try:
            size = os.path.getsize(path)
            if not os.path.isfile(path):
                raise self.error("this is not a file", "Pass the file that save wrote.")
            if size > _MAX_FILE:
                raise self.error(f"larger than {_MAX_FILE >> 20} MiB", "This is not a saved System.")
            content = Path(path).read_bytes()
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror})", "Check the path.") from None
        self.header, self.data = self.split(content)
        self.entries = self.parse()

    def error(self, cause: str, remedy: str = _AGAIN, item: str = "") -> ModelError:
        return ModelError(f"{self.where}, {item}" if item else self.where, cause, remedy)

    def split(self, content: bytes) -> tuple[bytes, bytes]:
        foreign = self.error(
            "this is not a saved System", "Pass a file that save wrote; for models use load."
        )
        if len(content) < 10 or content[8:9] != b"{":
            raise foreign
        (length,) = struct.unpack("<Q", content[:8])
        if length > _MAX_HEADER:
            raise foreign
        if 8 + length > len(content):
            raise self.error(f"truncated: the header needs {length} bytes, {len(content) - 8} are there")
        return content[8 : 8 + length], content[8 + length :]

    def parse(self) -> dict:
        try:
            entries = json.loads(self.header)
        except (ValueError, RecursionError):
            raise self.error("the header is not JSON") from None
        metadata = entries.pop("__metadata__", None) if isinstance(entries, dict) else None
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
            raise self.error("this is not a saved System", "Pass a file that save wrote.")
        if metadata.get("version") != VERSION:
            cause = f"format version {metadata.get('version')!r:.40}, this jaxrbd reads {VERSION}"
            raise self.error(cause, "Save the System with this version of jaxrbd, or update jaxrbd.")
        digest = metadata.get("sha256")
        if not isinstance(digest, str) or len(digest) != 64 or not digest.isascii():
            raise self.error("the header has no checksum")
        blank = self.header.replace(digest.encode(), _NO_DIGEST.encode())
        if hashlib.sha256(blank).hexdigest() != digest:
            raise self.error("the header was altered: its checksum differs")
        self.metadata = metadata
        return entries

    def topology(self) -> Topology:
        try:
            values = json.loads(self.metadata["topology"])
        except (KeyError, TypeError, ValueError, RecursionError):
            raise self.error("the topology cannot be read") from None
        return check_topology(values, self.where)

    def system(self, dtype: DTypeLike | None) -> System:
        topology = self.topology()
        shapes = leaf_shapes(topology)
        late = {key: np.full(shapes[key], value) for key, value in _LATE.items() if key not in self.entries}
        if set(self.entries) | set(late) != set(shapes):
            odd = ", ".join(sorted((set(self.entries) | set(late)) ^ set(shapes))[:8])
            raise self.error(f"the leaves are not those of a System: {odd:.200}")
        code = self.code()
        arrays, at = {}, 0
        for key in self.entries:
            arrays[key], at = self.leaf(key, shapes[key], code, at)
        if at != len(self.data):
            raise self.error(f"{len(self.data)} bytes of numbers where {at} belong")
        target = self.target(code, dtype)
        return System(
            topology=topology, **{key: jnp.asarray(x, target) for key, x in (arrays | late).items()}
        )

    def code(self) -> str:
        codes = {str(e.get("dtype")) if isinstance(e, dict) else "" for e in self.entries.values()}
        if len(codes) != 1 or not codes <= set(_DTYPES):
            raise self.error(f"leaves of type {', '.join(sorted(codes)):.60}, expected all F32 or all F64")
        return codes.pop()

    def leaf(self, key: str, shape: tuple[int, ...], code: str, at: int) -> tuple[np.ndarray, int]:
        entry, item = self.entries[key], f"leaf {key!r}"
        if entry.get("shape") != list(shape):
            raise self.error(f"shape {entry.get('shape')!r:.60}, expected {list(shape)}", item=item)
        end = at + int(np.prod(shape, dtype=object)) * _DTYPES[code].itemsize
        if entry.get("data_offsets") != [at, end]:
            raise self.error("it does not stand where it should", item=item)
        if end > len(self.data):
            raise self.error("truncated", item=item)
        blob = self.data[at:end]
        if hashlib.sha256(blob).hexdigest() != self.metadata.get(f"sha256 {key}"):
            raise self.error("its numbers were altered: the checksum differs", item=item)
        return np.frombuffer(blob, _DTYPES[code]).reshape(shape), end

    def target(self, code: str, dtype: DTypeLike | None) -> np.dtype:
        if dtype is None and code == "F64" and not jax.config.jax_enable_x64:
            remedy = 'Call jax.config.update("jax_enable_x64", True) first, or pass dtype="float32".'
            raise self.error("the System is float64, but JAX has it switched off", remedy)
        return resolve_dtype(_DTYPES[code].newbyteorder("=") if dtype is None else dtype)


def _header(entries: dict, metadata: dict) -> bytes:
    text = json.dumps({"__metadata__": metadata} | entries, separators=(",", ":")).encode("ascii")
    return text + b" " * (-len(text) % 8)  # numbers start at a multiple of eight, as readers like it


def _write(path: Path, content: bytes) -> None:
    """Through a neighbouring file and a rename, so that no reader meets half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        cause = f"cannot be written ({error.strerror})"
        raise ModelError(str(path), cause, "Choose a folder that exists and may be written to.") from None
