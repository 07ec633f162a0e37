"""Wrong names: every message that refuses one offers the nearest that exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from jaxrbd.errors import ArgumentError

_SHOWN = 12  # names listed where none is near
_COMPARED = 2000  # comparing takes microseconds each, and a file may have any number of names


def find(names: tuple[str, ...], name: str, kind: str) -> int:
    """Index of a name, or an error that offers the nearest ones."""
    if name in names:
        return names.index(name)
    raise ArgumentError(f"there is no {kind} named {name!r}. {hint(name, names)}")


def check_name(where: str, kind: str, name: object, names: Iterable[str]) -> None:
    """Refuse an option that is none of `names`; `where` is the call that the message starts with."""
    names = tuple(names)
    if name not in names:
        raise ArgumentError(f"{where}: unknown {kind} {name!r}. {hint(name, names)}")


def hint(name: object, names: Iterable[str]) -> str:
    """A sentence that offers the names nearest to a wrong one, or lists what there is."""
    near, known = nearest(name, names), list(names)
    if near:
        return f"Did you mean {' or '.join(f'{n!r:.60}' for n in near)}?"
    if not known:
        return "There is none."
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return f"Known: {', '.join(f'{n!s:.60}' for n in known[:_SHOWN])}{more}."


def nearest(name: object, names: Iterable[str]) -> list[str]:
    """At most three of `names` that `name` could be a slip for: letters changed, case, or a part left out."""
    names, wrong = [str(n) for n in islice(names, _COMPARED)], str(name)[:100]
    found = difflib.get_close_matches(wrong, names, 3)
    if not found and wrong:
        small = wrong.lower()
        found = difflib.get_close_matches(small, {n.lower(): n for n in names}, 3)
        found = [n for n in names if n.lower() in found]
    if not found and len(wrong) > 2:
        found = [n for n in names if wrong.lower() in n.lower()]
    return found[:3]


def near_files(path: Path) -> str:
    """The hint for a file that does not exist: what its folder has, or that there is no such folder."""
    folder = path.parent
    try:
        present = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else None
    except OSError:
        present = []
    if present is None:
        return f"There is no folder {str(folder)!r}."
    near = nearest(path.name, present)
    return f"Did you mean {' or '.join(repr(str(folder / n)) for n in near)}?" if near else ""
