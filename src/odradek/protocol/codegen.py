"""The common parts of `encoder.py` and `decoder.py`: a writer of source text, and the fields of a version."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import CodeType
from typing import NamedTuple

from odradek.protocol.schema import ArrayKind, Field, Kind, Struct, StructKind


class Place(NamedTuple):
    """The place in the message that a line of compiled source handles; used only when that line raises."""

    path: str
    """`topics[{i1}].name`: names in braces are local variables that hold an index."""
    offset: int = 0
    """Bytes from the variable `p`."""
    size: int = 0
    check: tuple[str, str] | None = None
    """(struct format, expression): what an encoder packs here."""


class Writer:
    """Lines of Python, the constants they refer to, and the place in the message that each line is about."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.places: list[tuple[Place, ...]] = []
        self.scope: dict[str, object] = {}
        self._names: dict[object, str] = {}
        self._counter = count(1)
        self._depth = 0
        self._path: list[str] = []

    def line(self, text: str, places: tuple[Place, ...] = ()) -> None:
        self.lines.append("    " * self._depth + text)
        self.places.append(places or (Place(self.path),))

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Writes an opening line, and indents the lines that are written inside the block."""
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def at(self, step: str) -> Iterator[None]:
        """Writes code for the part of the message that `step` (`.name` or `[{i}]`) leads to."""
        self._path.append(step)
        yield
        self._path.pop()

    @property
    def path(self) -> str:
        return "".join(self._path).lstrip(".")

    def fresh(self, stem: str) -> str:
        """Returns a local name that nothing else uses."""
        return f"{stem}{next(self._counter)}"

    def constant(self, stem: str, key: object, value: object) -> str:
        """Returns the global name of a value; the same name for the same key."""
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"{stem}_{len(self._names)}"
            self.scope[name] = value
        return name

    def compile(self, title: str) -> object:
        """Returns the function `codec` that the lines define; its source goes where tracebacks and debuggers look."""
        source = "\n".join(self.lines) + "\n"
        linecache.cache[title] = (len(source), None, source.splitlines(keepends=True), title)
        code: CodeType = compile(source, title, "exec")
        exec(code, self.scope)  # our own text, made from declarations alone
        return self.scope["codec"]


class Shape(NamedTuple):
    """The fields of a struct, sorted by what they are in one version."""

    plain: list[Field]
    tagged: list[Field]
    absent: list[Field]


def shape_of(cls: type[Struct], version: int) -> Shape:
    plain, tagged, absent = [], [], []
    for field in cls.FIELDS:
        if version not in field.versions:
            absent.append(field)
        elif version in field.tagged:
            tagged.append(field)
        else:
            plain.append(field)
    return Shape(plain, sorted(tagged, key=lambda field: field.tag or 0), absent)


def size_min(kind: Kind[object], version: int, flexible: bool) -> int:
    """Returns the fewest bytes that a value of `kind` takes: a bound on how many elements a count may claim."""
    if kind.size:
        return kind.size
    if isinstance(kind, StructKind):
        plain = shape_of(kind.cls, version).plain
        return flexible + sum(
            1  # a nullable struct may be one byte
            if isinstance(field.kind, StructKind) and version in field.nullable
            else size_min(field.kind, version, flexible)
            for field in plain
        )
    if flexible:
        return 1
    return 2 if kind.name == "string" else 4


def holds_records(cls: type[Struct], version: int) -> bool:
    """Returns whether values of this struct point into the received buffer, which then must not be copied."""
    for field in cls.FIELDS:
        kind = field.kind
        while isinstance(kind, ArrayKind):
            kind = kind.element
        if version in field.versions and (
            kind.name == "records" or (isinstance(kind, StructKind) and holds_records(kind.cls, version))
        ):
            return True
    return False
