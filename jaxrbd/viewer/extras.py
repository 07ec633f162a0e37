"""What the viewer needs of the machine: packages, imported when they are used, and files to write to."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from jaxrbd.errors import ArgumentError, FileError
from jaxrbd.typing import StrPath


def need(module: str, what: str) -> ModuleType:
    """A module of the extra `viewer`, or an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        text = f"{what} needs {error.name}. Install it with: pip install 'jaxrbd[viewer]'"
        raise ArgumentError(text) from None


def output_file(file: StrPath, ending: str) -> Path:
    """A file that can be written to, of the right name: found out before the work, not after it."""
    file = Path(file)
    if file.suffix.lower() != ending:
        raise ArgumentError(f"{file}: the file name does not end in {ending}. Rename it.")
    if not file.parent.is_dir():
        raise FileError(str(file), f"the folder {file.parent} does not exist", "Create it first.")
    return file
