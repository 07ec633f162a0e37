"""Named arrays in one file, data only, every one with its checksum; nothing in it is ever executed.

The file is a valid safetensors file: eight bytes with the length of a JSON header, the header, then the
arrays as raw little-endian numbers. The header's metadata holds the format's name, the SHA-256 of every array
and one of the header itself. A file is untrusted: sizes are checked before anything is read. Checksums show
damage; they do not show who wrote the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jaxrbd.errors import FileError
from jaxrbd.typing import StrPath

DTYPES: dict[str, np.dtype] = {
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "F16": np.dtype("<f2"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "U64": np.dtype("<u8"),
    "BOOL": np.dtype("?"),
}
MAX_HEADER = 64 * 2**20
_NO_DIGEST = "0" * 64


def code_of(dtype: np.dtype) -> str | None:
    """The name of a dtype in the file, None if it has none."""
    return next((code for code, known in DTYPES.items() if known.newbyteorder("=") == dtype), None)


def pack(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> list[bytes]:
    """The pieces of a file, header first; every dtype is one that `code_of` knows."""
    entries: dict[str, Any] = {}
    metadata, blobs, at = dict(metadata), [], 0
    for key, array in arrays.items():
        code = code_of(array.dtype)
        assert code is not None, array.dtype
        blob = np.ascontiguousarray(array, DTYPES[code]).tobytes()
        entries[key] = {"dtype": code, "shape": list(array.shape), "data_offsets": [at, at + len(blob)]}
        metadata[f"sha256 {key}"] = hashlib.sha256(blob).hexdigest()
        blobs.append(blob)
        at += len(blob)
    header = _header(entries, metadata | {"sha256": _NO_DIGEST})
    header = _header(entries, metadata | {"sha256": hashlib.sha256(header).hexdigest()})
    return [struct.pack("<Q", len(header)), header, *blobs]


def _header(entries: dict, metadata: dict) -> bytes:
    text = json.dumps({"__metadata__": metadata} | entries, separators=(",", ":")).encode("ascii")
    return text + b" " * (-len(text) % 8)  # numbers start at a multiple of eight, as readers like it


def write(path: Path, pieces: Iterable[bytes]) -> None:
    """Through a neighbouring file and a rename, so that no reader meets half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())  # a full disk is found out before the old file is gone
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        remedy = "Choose a folder that exists and may be written to."
        if error.errno in (28, 122):  # no space, quota
            remedy = "Make room, then try again: what was written before is whole."
        raise FileError(str(path), f"cannot be written ({error.strerror})", remedy) from None


class Reader:
    """A file of the named format: metadata checked, arrays checked when they are asked for.

    `what` is what a user would call it ("a saved System"), `again` how to get a good one.
    """

    def __init__(self, path: StrPath, format: str, version: str, what: str, again: str, largest: int):
        self.where, self.what, self.again = str(path), what, again
        try:
            size = os.path.getsize(path)
            if not os.path.isfile(path):
                raise self.error("this is not a file", f"Pass the file of {what}.")
            if size > largest:
                raise self.error(f"larger than {largest >> 20} MiB", f"This is not {what}.")
            content = Path(path).read_bytes()
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror})", "Check the path.") from None
        self.header, self.data = self._split(content)
        self.entries, self.metadata = self._parse(format, version)

    def error(self, cause: str, remedy: str | None = None, item: str = "") -> FileError:
        where = f"{self.where}, {item}" if item else self.where
        return FileError(where, cause, self.again if remedy is None else remedy)

    def _split(self, content: bytes) -> tuple[bytes, bytes]:
        foreign = self.error(f"this is not {self.what}", f"Pass the file of {self.what}.")
        if len(content) < 10 or content[8:9] != b"{":
            raise foreign
        (length,) = struct.unpack("<Q", content[:8])
        if length > MAX_HEADER:
            raise foreign
        if 8 + length > len(content):
            raise self.error(f"truncated: the header needs {length} bytes, {len(content) - 8} are there")
        return content[8 : 8 + length], content[8 + length :]

    def _parse(self, format: str, version: str) -> tuple[dict, dict]:
        try:
            entries = json.loads(self.header)
        except (ValueError, RecursionError):
            raise self.error("the header is not JSON") from None
        metadata = entries.pop("__metadata__", None) if isinstance(entries, dict) else None
        if not isinstance(metadata, dict) or metadata.get("format") != format:
            raise self.error(f"this is not {self.what}", f"Pass the file of {self.what}.")
        if metadata.get("version") != version:
            cause = f"format version {metadata.get('version')!r:.40}, this jaxrbd reads {version}"
            raise self.error(cause, "Write it anew with this version of jaxrbd, or update jaxrbd.")
        digest = metadata.get("sha256")
        if not isinstance(digest, str) or len(digest) != 64 or not digest.isascii():
            raise self.error("the header has no checksum")
        blank = self.header.replace(digest.encode(), _NO_DIGEST.encode())
        if hashlib.sha256(blank).hexdigest() != digest:
            raise self.error("the header was altered: its checksum differs")
        return entries, metadata

    def arrays(self, word: str = "array") -> dict[str, np.ndarray]:
        """All of them, in the order of the file, which they fill without gaps."""
        found, at = {}, 0
        for key, entry in self.entries.items():
            found[key], at = self._array(key, entry, at, f"{word} {key!r:.80}")
        if at != len(self.data):
            raise self.error(f"{len(self.data)} bytes of numbers where {at} belong")
        return found

    def _array(self, key: str, entry: Any, at: int, item: str) -> tuple[np.ndarray, int]:
        dtype = DTYPES.get(str(entry.get("dtype"))) if isinstance(entry, dict) else None
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if dtype is None or not isinstance(shape, list) or not _is_shape(shape):
            raise self.error("its type or shape cannot be read", item=item)
        end = at + math.prod(shape) * dtype.itemsize
        if entry.get("data_offsets") != [at, end]:
            raise self.error("it does not stand where it should", item=item)
        if end > len(self.data):
            raise self.error("truncated", item=item)
        blob = self.data[at:end]
        if hashlib.sha256(blob).hexdigest() != self.metadata.get(f"sha256 {key}"):
            raise self.error("its numbers were altered: the checksum differs", item=item)
        return np.frombuffer(blob, dtype).reshape(shape), end


def _is_shape(shape: list) -> bool:
    return len(shape) <= 32 and all(type(n) is int and n >= 0 for n in shape)
