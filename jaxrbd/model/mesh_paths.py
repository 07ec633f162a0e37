"""Where a mesh named in a model file may be found: inside the model's folder or a package folder.

"package://NAME/..." is also looked for in the folders called NAME above the model, because a model usually
lies inside its own package. Model files are untrusted, so a path that leaves those folders
(`../../etc/passwd`, an absolute path elsewhere, a symbolic link that points out) counts as missing and is
never opened or tested for; and the home folder, what lies above it and the top of the file system are no
packages, whatever their name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from urllib.parse import unquote


def package_folders(package_dirs: str | os.PathLike | Iterable[str | os.PathLike]) -> tuple[str, ...]:
    """`package_dirs` as absolute folders; a single path is as good as a list of one."""
    if isinstance(package_dirs, (str, os.PathLike)):
        package_dirs = (package_dirs,)
    return tuple(os.path.abspath(os.fspath(folder)) for folder in package_dirs)


def find_mesh(uri: str, folder: str | os.PathLike | None, package_dirs: tuple[str, ...]) -> str:
    """The file that `uri` names (package://NAME/REST, file://PATH or a path), or "" if there is none."""
    own = (os.path.abspath(os.fspath(folder)),) if folder is not None else ()
    roots = own + package_dirs
    allowed = roots + (around := _packages_around(uri, own))
    for root, candidate in _candidates(uri, roots + around):
        path = os.path.normpath(os.path.join(root, candidate))
        if not any(_inside(path, r) for r in allowed):
            continue
        real = os.path.realpath(path)
        if any(_inside(real, os.path.realpath(r)) for r in allowed) and os.path.isfile(real):
            return path
    return ""


def _packages_around(uri: str, own: tuple[str, ...]) -> tuple[str, ...]:
    """The folders above the model that are called like the package that `uri` names, nearest first."""
    scheme, separator, rest = uri.partition("://")
    if not own or not separator or scheme not in ("package", "model"):
        return ()
    name = unquote(rest).lstrip("/").partition("/")[0]
    home, found, folder = os.path.expanduser("~"), [], os.path.dirname(own[0])
    while os.path.dirname(os.path.dirname(folder)) != os.path.dirname(folder):  # below the top folders
        if os.path.basename(folder) == name and folder != home and not _inside(home, folder):
            found.append(folder)
        folder = os.path.dirname(folder)
    return tuple(found)


def _candidates(uri: str, roots: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(root, path relative to it or absolute), in order of preference."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        yield from ((root, uri) for root in roots)
    elif scheme == "file":
        yield from ((root, unquote(rest)) for root in roots)
    elif scheme in ("package", "model"):
        rest = unquote(rest).lstrip("/")
        package, _, inner = rest.partition("/")
        for root in roots:
            yield root, rest
            if os.path.basename(root) == package:  # the folder given is the package itself
                yield root, inner


def _inside(path: str, root: str) -> bool:
    return path.startswith(root.rstrip(os.sep) + os.sep)
