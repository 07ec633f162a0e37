"""Numbers, names and poses from URDF attributes, each with an error that says where it stands."""

from __future__ import annotations

import math
import re

import numpy as np

from jaxrbd.errors import ModelError, short
from jaxrbd.joints.matrices import matrix_from_rpy
from jaxrbd.model.description import Pose
from jaxrbd.model.xml_safe import Element

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Reader:
    """Reads attributes; `owner` is the named link, joint or material that a message points to."""

    def __init__(self, source: str):
        self.source = source

    def at(self, owner: Element, element: Element | None = None, file: bool = True) -> str:
        """Like: robot.urdf, joint "knee" (line 12)."""
        line = (owner if element is None else element).line
        place = f'{owner.tag} "{short(owner.get("name", ""))}" (line {line})'
        return f"{self.source}, {place}" if file else place

    def attribute(self, owner: Element, element: Element, key: str) -> str:
        value = element.get(key)
        if value is None or not value.strip():
            raise ModelError(self.at(owner, element), f'<{element.tag}> has no "{key}"', f'Add {key}="...".')
        return value

    def name(self, owner: Element) -> str:
        return self.attribute(owner, owner, "name")

    def vector(
        self,
        owner: Element,
        element: Element,
        key: str,
        default: np.ndarray | None = None,
        sizes: tuple[int, ...] = (3,),
    ) -> np.ndarray:
        """Numbers separated by spaces, as many as one of `sizes`; required where there is no default."""
        if element.get(key) is None and default is not None:
            return default
        written = self.attribute(owner, element, key)
        words = written.split()
        if len(words) not in sizes:
            expected = " or ".join(str(size) for size in sizes)
            cause = f'<{element.tag} {key}="{short(written)}"> has {len(words)} numbers'
            raise ModelError(self.at(owner, element), cause, f"Expected {expected}, separated by spaces.")
        return np.array([self._float(owner, element, key, word) for word in words])

    def number(self, owner: Element, element: Element, key: str, default: float | None = None) -> float:
        if element.get(key) is None and default is not None:
            return default
        return float(self.vector(owner, element, key, sizes=(1,))[0])

    def numbers(
        self, owner: Element, element: Element, key: str, count: int, default: float
    ) -> float | tuple[float, ...]:
        """One number, or (our extension) `count` of them as a tuple."""
        values = self.vector(
            owner, element, key, np.array([default]), sizes=(1, count) if count > 1 else (1,)
        )
        return float(values[0]) if len(values) == 1 else tuple(values.tolist())

    def pose(self, owner: Element, element: Element) -> Pose:
        """The <origin> of `element`; identity where it is absent."""
        origin = element.find("origin")
        if origin is None:
            return Pose()
        xyz = self.vector(owner, origin, "xyz", np.zeros(3))
        return Pose(matrix_from_rpy(self.vector(owner, origin, "rpy", np.zeros(3))), xyz)

    def _float(self, owner: Element, element: Element, key: str, word: str) -> float:
        value = float(word) if _NUMBER.fullmatch(word) else math.nan
        if math.isfinite(value):
            return value
        cause = (
            f'<{element.tag} {key}="{short(element.get(key, ""))}">: "{short(word)}" is not a finite number'
        )
        remedy = "Write a decimal number such as 0.5 or -1e-3; for no limit leave the attribute out."
        raise ModelError(self.at(owner, element), cause, remedy)
