"""XML from untrusted files: parsed by expat with everything dangerous refused.

Model files come from the internet, so document type declarations (the only door to entity bombs and
external entities), absurd sizes and absurd nesting are errors, not memory. Elements remember the line
they started on. Prefixes are left in the tags (`xacro:macro`): robot files often forget to declare them.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, NoReturn
from xml.parsers import expat

from jaxrbd.errors import ModelError
from jaxrbd.model.description import MAX_LINKS

MAX_BYTES = 64 * 2**20
MAX_ELEMENTS = 1_000_000
MAX_DEPTH = 256
_COUNTED = ("link", "joint", "body")  # at most MAX_LINKS of each

_NO_DTD = "Delete the <!DOCTYPE ...> declaration and write its entities out; model files need none."
_MALFORMED = "Correct the XML there; `xmllint --noout FILE` shows the surrounding text."


class Element(ET.Element):
    """An ElementTree element that knows the `line` of its start tag (counted from 1)."""

    line: int = 0

    def all(self, path: str) -> list[Element]:
        """`findall`, for a type checker: nothing but Elements stands in an Element."""
        return [element for element in self.iterfind(path) if isinstance(element, Element)]

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Element]: ...
        def iter(self, tag: str | None = None) -> Generator[Element, None, None]: ...
        def find(self, path: str, namespaces: dict[str, str] | None = None) -> Element | None: ...


def parse_xml(text: str | bytes, source: str = "<string>") -> Element:
    """The root element of an XML document, or a ModelError that names `source`, line and column."""
    if len(text) > MAX_BYTES:
        raise _too_large(source, f"{len(text)} bytes")
    stripped = text.lstrip()  # a declaration after the first newline of a Python string is forgiven
    skipped = text[: len(text) - len(stripped)]
    skipped_lines = skipped.count("\n") if isinstance(skipped, str) else skipped.count(b"\n")
    try:
        data = stripped.encode("utf-8") if isinstance(stripped, str) else bytes(stripped)
    except UnicodeEncodeError as error:
        raise ModelError(source, f"not valid text ({error.reason})", "Save the file as UTF-8.") from None
    if not data:
        raise ModelError(source, "empty file", "Expected XML whose root is <robot> or <mujoco>.")

    # the declared encoding describes bytes; a str has already been decoded
    parser = expat.ParserCreate("utf-8" if isinstance(stripped, str) else None)
    parser.buffer_text = True
    tree = _Tree(parser, source, skipped_lines)
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        where = f"{source}, line {error.lineno + skipped_lines}, column {error.offset + 1}"
        raise ModelError(where, f"malformed XML ({expat.ErrorString(error.code)})", _MALFORMED) from None
    except (LookupError, ValueError, UnicodeError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(source, f"unusable encoding ({error})", "Save the file as UTF-8.") from None
    assert tree.root is not None  # expat refuses a document without a root
    return tree.root


class _Tree:
    """Expat handlers that build the element tree within the limits above."""

    def __init__(self, parser: expat.XMLParserType, source: str, skipped_lines: int):
        self.parser, self.source, self.skipped_lines = parser, source, skipped_lines
        self.root: Element | None = None
        self.stack: list[Element] = []
        self.text: list[str] = []
        self.count = 0
        self.counts = dict.fromkeys(_COUNTED, 0)
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CharacterDataHandler = self.text.append
        parser.StartDoctypeDeclHandler = self.refuse_dtd
        parser.EntityDeclHandler = self.refuse_dtd
        parser.ExternalEntityRefHandler = self.refuse_dtd

    def line(self) -> int:
        return self.parser.CurrentLineNumber + self.skipped_lines

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if self.count > MAX_ELEMENTS:
            raise _too_large(self.source, f"more than {MAX_ELEMENTS} elements")
        if tag in self.counts:
            self.counts[tag] += 1
            if self.counts[tag] > MAX_LINKS:
                raise _too_large(self.source, f"more than {MAX_LINKS} elements <{tag}>")
        if len(self.stack) >= MAX_DEPTH:
            raise _too_large(f"{self.source}, line {self.line()}", f"elements nested deeper than {MAX_DEPTH}")
        self.flush_text()
        element = Element(tag, attributes)
        element.line = self.line()
        if self.stack:
            self.stack[-1].append(element)
        else:
            self.root = element
        self.stack.append(element)

    def end(self, tag: str) -> None:
        self.flush_text()
        self.stack.pop()

    def flush_text(self) -> None:
        if self.text:
            parent = self.stack[-1]
            if len(parent):
                parent[-1].tail = "".join(self.text)
            else:
                parent.text = "".join(self.text)
            self.text.clear()

    def refuse_dtd(self, *_: object) -> NoReturn:
        where = f"{self.source}, line {self.line()}"
        raise ModelError(where, "document type and entity declarations are refused", _NO_DTD)


def _too_large(where: str, size: str) -> ModelError:
    return ModelError(
        where, f"too large to be a robot ({size})", "Split the model or remove generated parts."
    )
