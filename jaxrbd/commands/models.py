"""The FILE argument: a URDF or MJCF file, or a model of the zoo such as `zoo:humanoid` or `zoo:chain:50`."""

from __future__ import annotations

import warnings
from pathlib import Path

import jaxrbd as rbd
from jaxrbd.errors import ArgumentError, ModelError, ModelWarning
from jaxrbd.model import zoo
from jaxrbd.model.names import near_files, nearest


def open_model(file: str, base: str | None = None, dtype=None, package_dirs=(), loops="constraint"):
    """Compile the model; returns (system, texts of the warnings it gave, each once)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ModelWarning)
        if file.startswith("zoo:"):
            sys = rbd.build(_from_zoo(file), base=base, dtype=dtype)
            sys = rbd.cluster(sys) if loops == "cluster" else sys
        else:
            path = Path(file)
            if not path.is_file():
                kind = "is a folder" if path.is_dir() else "does not exist"
                remedy = "" if path.is_dir() else near_files(path)
                if not remedy and nearest(file, zoo.DESCRIPTIONS):
                    remedy = f"Did you mean zoo:{nearest(file, zoo.DESCRIPTIONS)[0]}?"
                remedy = remedy or (
                    f"Give a URDF or MJCF file, or a model of the zoo: zoo:{', zoo:'.join(zoo.DESCRIPTIONS)}."
                )
                raise ModelError(file, f"the file {kind}", remedy)
            sys = rbd.load(path, base=base, dtype=dtype, package_dirs=package_dirs, loops=loops)
    return sys, list(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, ModelWarning)))


def _from_zoo(file: str):
    name, *numbers = file.removeprefix("zoo:").split(":")
    try:
        return zoo.describe(name, *(int(n) for n in numbers))
    except ValueError as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(
            f"{file}: {numbers} are not whole numbers. Write for instance zoo:chain:50."
        ) from error
