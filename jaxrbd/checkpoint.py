"""Computations that survive a kill: any pytree in one file, and runs that are written piece by piece.

    rbd.checkpoint.save("policy.rbd", tree)
    tree = rbd.checkpoint.load("policy.rbd", like=tree)

    run = rbd.checkpoint.Run("runs/walk", start=(state, key), sys=sys, dt=1e-3)   # or goes on where it was
    for _ in range(run.count, 100):
        carry, path = hundred_steps(run.carry)                # jitted; the same program before and after
        run.add(carry, {"q": path.q, "v": path.v})

Files are data alone (`model/tensors.py`): no pickle, every array with its SHA-256, each file whole or absent.
A run is a folder: `run.rbd` (what it is, and its start), `system.rbd`, and `piece-000000.rbd` and so on, each
with what it found and everything needed to go on: states, random keys, a controller's memory. Every piece
names the checksum of the one before it. Numbers come back bit for bit; the computation goes on bit for bit
if it is the same program on the same kind of machine, with as many devices and the same version of JAX.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.errors import ArgumentError, FileError
from jaxrbd.model import tensors
from jaxrbd.model.save import load_system
from jaxrbd.model.save import save as save_system
from jaxrbd.model.system import System
from jaxrbd.typing import StrPath

VERSION = "1"
_LARGEST = 2**40


def save(path: StrPath, tree: Any) -> None:
    """Write a pytree of arrays, numbers and random keys to one file; it appears whole or not at all."""
    arrays, keys = _flatten("", tree)
    tensors.write(Path(path), tensors.pack(arrays, _about("tree", {"keys": keys})))


def load(path: StrPath, like: Any) -> Any:
    """The pytree that `save` wrote, with the structure, shapes and dtypes of `like`; they must agree."""
    file = _read(path, "tree", "a saved pytree", "Save it again, or copy the file anew.")
    return _unflatten(file, "", file.arrays(), _json(file, "about").get("keys", {}), like)


class Run:
    """A folder that a long computation writes to, piece by piece; opened again, it goes on where it stood.

    `start`: a pytree of arrays, numbers and random keys: all that the first piece needs; later `carry` is
    what the last piece ended with. Without `start`, an existing run is opened to be read.
    `sys`: the System, stored beside it. `dt`: seconds between the frames of its pieces. `time_axis`: the
    axis along which these frames follow each other. `notes`: anything JSON can hold. If there is a run
    already, `start` must be of its kind, and `sys`, `dt`, `time_axis` and `notes` equal to what it was begun
    with: another computation is refused.
    """

    def __init__(
        self,
        folder: StrPath,
        start: Any = None,
        *,
        sys: System | None = None,
        dt: float | None = None,
        time_axis: int = 0,
        notes: Mapping[str, Any] | None = None,
    ):
        self.folder = Path(folder)
        self._like, self._lock = start, None
        about = {"dt": dt, "time_axis": time_axis, "notes": json.loads(json.dumps(dict(notes or {})))}
        exists = (self.folder / "run.rbd").is_file()
        if start is None and not exists:
            cause = "there is no run in it" if self.folder.is_dir() else "there is no such run"
            raise FileError(str(folder), cause, "Pass the folder that Run or `jaxrbd simulate --save` wrote.")
        if not exists:
            self._begin(start, sys, about)
        if start is not None:
            self._lock = _locked(self.folder / "run.rbd")
        self._head = _read(self.folder / "run.rbd", "run", "a run", _AGAIN)
        self.about = _json(self._head, "about")
        if exists and start is not None:
            self._check(sys, about)
        self._pieces: list[Path] = []
        self._digest, self._last = _digest(self._head), self._head
        self._last_arrays = self._head.arrays()
        while (path := self._path(len(self._pieces))).is_file():
            self._follow(path)
        later = sorted(p.name for p in self.folder.glob("piece-*.rbd") if p not in self._pieces)
        if later:
            raise FileError(str(path), f"missing, but {later[0]} is there", "Copy the run anew.")

    # --- what it holds ---------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many pieces are written."""
        return len(self._pieces)

    @property
    def carry(self) -> Any:
        """What the last piece ended with, in the form of `start`."""
        if self._like is None:
            raise ArgumentError(f"Run({str(self.folder)!r}) was opened to be read. Pass start= to go on.")
        keys = _json(self._last, "about").get("keys", {})
        return _unflatten(self._last, "carry", self._last_arrays, keys, self._like)

    @property
    def notes(self) -> dict[str, Any]:
        return self.about["notes"]

    def system(self, dtype=None) -> System:
        """The System that was stored with it."""
        return load_system(self.folder / "system.rbd", dtype=dtype)

    def frames(self) -> dict[str, np.ndarray]:
        """What all pieces found, joined along time; every checksum is looked at."""
        parts: list[dict[str, np.ndarray]] = []
        for path in self._pieces:
            arrays = _read(path, "piece", "a piece of a run", _AGAIN).arrays()
            parts.append({k.removeprefix("frames/"): x for k, x in arrays.items() if k.startswith("frames/")})
        axis = self.about["time_axis"]
        return {key: np.concatenate([p[key] for p in parts], axis) for key in parts[0]} if parts else {}

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.count} pieces)"

    # --- going on --------------------------------------------------------------------------------------

    def add(self, carry: Any, frames: Mapping[str, Any] | None = None) -> None:
        """Write the next piece: where to go on from, and frames to keep, arrays by name.

        A piece that cannot be written (a full disk) is an error, and the run stays as it was.
        """
        if self._lock is None:
            raise ArgumentError(f"Run({str(self.folder)!r}) was opened to be read. Pass start= to go on.")
        arrays, keys = _flatten("carry", carry)
        _unflatten(self._head, "carry", arrays, keys, self._like)  # of the kind that it began with
        for key, x in (frames or {}).items():
            arrays[f"frames/{key}"] = _plain(f"frames[{key!r}]", x)
        about = _about("piece", {"keys": keys, "index": self.count, "previous": self._digest})
        path = self._path(self.count)
        tensors.write(path, tensors.pack(arrays, about))
        self._follow(path)

    def close(self) -> None:
        """Let another process go on with it."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside ----------------------------------------------------------------------------------------

    def _path(self, index: int) -> Path:
        return self.folder / f"piece-{index:06d}.rbd"

    def _begin(self, start: Any, sys: System | None, about: dict) -> None:
        arrays, keys = _flatten("carry", start)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            cause = f"cannot be made a folder ({error.strerror})"
            raise FileError(str(self.folder), cause, "Choose another name.") from None
        if any(self.folder.iterdir()):
            cause = "holds files, but no run"
            raise FileError(str(self.folder), cause, "Choose a folder that is empty or does not exist.")
        if sys is not None:
            save_system(sys, self.folder / "system.rbd")
        about = about | {"keys": keys, "system": self._system_digest()}
        tensors.write(self.folder / "run.rbd", tensors.pack(arrays, _about("run", about)))

    def _system_digest(self) -> str | None:
        file = self.folder / "system.rbd"
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None

    def _check(self, sys: System | None, about: dict) -> None:
        _unflatten(self._head, "carry", self._head.arrays(), self.about.get("keys", {}), self._like)
        for key, value in about.items():
            if self.about.get(key) != value:
                text = f"was begun with {key} = {self.about.get(key)!r:.200}, not {value!r:.200}"
                raise FileError(str(self.folder), text, "Choose another folder, or go on with the same.")
        if self._system_digest() != self.about.get("system"):
            raise FileError(str(self.folder / "system.rbd"), "missing or altered", _AGAIN)
        if sys is not None and self.about.get("system") is not None:
            stored = self.system(dtype=sys.dtype)
            same = jax.tree.structure(stored) == jax.tree.structure(sys) and all(
                np.array_equal(a, b, equal_nan=True)
                for a, b in zip(jax.tree.leaves(stored), jax.tree.leaves(sys))
            )
            if not same:
                raise FileError(str(self.folder), "was begun with another System", "Choose another folder.")

    def _follow(self, path: Path) -> None:
        """Read a piece, whole, and stand at its end."""
        file = _read(path, "piece", "a piece of a run", _AGAIN)
        about = _json(file, "about")
        if about.get("index") != len(self._pieces) or about.get("previous") != self._digest:
            raise file.error("it does not follow the piece before it", "Copy the whole run anew.")
        self._last_arrays = {k: x for k, x in file.arrays().items() if k.startswith("carry")}
        self._pieces.append(path)
        self._digest, self._last = _digest(file), file
        file.data = b""


_AGAIN = "Copy the run anew; or delete this piece and all later ones, and the run goes on before it."


def _about(kind: str, values: dict) -> dict[str, str]:
    return {"format": f"jaxrbd {kind}", "version": VERSION, "about": json.dumps(values)}


def _read(path: StrPath, kind: str, what: str, again: str) -> tensors.Reader:
    return tensors.Reader(path, f"jaxrbd {kind}", VERSION, what, again, _LARGEST)


def _json(file: tensors.Reader, key: str) -> dict:
    try:
        found = json.loads(file.metadata[key])
    except (KeyError, TypeError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise file.error("its header cannot be read")
    return found


def _digest(file: tensors.Reader) -> str:
    """Of the header, which holds the checksums of all the rest."""
    return hashlib.sha256(file.header).hexdigest()


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _flatten(prefix: str, tree: Any) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Leaves by name, and which of them are random keys, of which kind."""
    arrays: dict[str, np.ndarray] = {}
    keys: dict[str, str] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = prefix + jax.tree_util.keystr(path)
        if _is_key(leaf):
            keys[name], leaf = str(jax.random.key_impl(leaf)), jax.random.key_data(leaf)
        arrays[name] = _plain(name, leaf)
    return arrays, keys


def _plain(name: str, x: Any) -> np.ndarray:
    x = np.asarray(x)
    if tensors.code_of(x.dtype) is None:
        raise ArgumentError(f"{name or 'the tree'} is {x.dtype}, which cannot be stored: expected numbers.")
    return x


def _unflatten(file: tensors.Reader, prefix: str, arrays: dict, keys: dict, like: Any) -> Any:
    """A tree like `like` from arrays by name; what does not agree is an error that names it."""

    def leaf(path, wanted):
        name = prefix + jax.tree_util.keystr(path)
        if name not in arrays:
            raise file.error(
                f"there is no {name or 'array'!r} in it", "Pass a tree of the form that was saved."
            )
        x, kind = arrays[name], str(jax.random.key_impl(wanted)) if _is_key(wanted) else None
        if keys.get(name) != kind:
            cause = f"{name!r} is {keys.get(name) or 'no random key'}, expected {kind or 'no random key'}"
            raise file.error(cause, "Pass a tree of the form that was saved.")
        if kind is not None:
            return jax.random.wrap_key_data(jnp.asarray(x), impl=kind)
        if isinstance(wanted, (bool, int, float)):
            return type(wanted)(x.item()) if not x.shape else x
        if x.shape != wanted.shape or x.dtype != np.dtype(wanted.dtype):
            cause = f"{name!r} is {x.dtype}{list(x.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
            raise file.error(cause, "Pass a tree of the form that was saved.")
        return x.copy() if isinstance(wanted, np.ndarray) else jnp.asarray(x)

    tree = jax.tree_util.tree_map_with_path(leaf, like)
    names = {prefix + jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(like)}
    more = sorted(k for k in set(arrays) - names if not k.startswith("frames/"))
    if more:
        raise file.error(f"it holds more: {more[0]!r:.80}", "Pass a tree of the form that was saved.")
    return tree


def _locked(path: Path):
    """The file, open and locked against a second writer, where the system can do that."""
    file = open(path, "rb")  # noqa: SIM115  held as long as the run is
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return file
    except OSError:
        file.close()
        raise FileError(str(path), "another process writes to this run", "Wait for it, or stop it.") from None
    return file
