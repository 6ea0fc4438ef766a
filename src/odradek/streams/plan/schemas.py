"""What a topic's keys and values hold, as DDL: one bare type (`BIGINT`), or fields (`id BIGINT, name STRING`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from odradek.model.errors import ConfigError

FORMATS: Final = ("json", "kafka", "csv")
_OPENING, _CLOSING = "<(", ">)"


class SchemaFormat(Protocol):
    """A format that has a schema of its own. `ddl`: the type of a value, or fields. `is_record`: it has fields."""

    name: str
    ddl: str

    @property
    def is_record(self) -> bool: ...
    def decode(self, data: bytes) -> Any:
        """ValueError for other data. Dicts for records; times may be datetimes or microseconds."""

    def encode(self, value: Any) -> bytes | None:
        """None: the record has none. ValueError for a value that does not fit."""


Format: TypeAlias = str | SchemaFormat
"""One of FORMATS, or one with a schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSchema:
    """`fields`: (name, type) as the user wrote them. `bare`: one value without a name; its column is called `key` or
    `value`.
    """

    fields: tuple[tuple[str, str], ...]
    bare: bool
    format: Format = "json"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.fields)

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{name}` {kind}" for name, kind in self.fields)

    @property
    def text(self) -> str:
        """For people: a bare type, or the fields."""
        return self.fields[0][1] if self.bare else ", ".join(f"{name} {kind}" for name, kind in self.fields)


def checked_format(form: Format, role: str) -> Format:
    """ConfigError for an unknown one."""
    if isinstance(form, str) and form not in FORMATS:
        raise ConfigError(
            f"{role}_format {form!r} does not exist; there are {', '.join(FORMATS)}, and Avro(…) and Protobuf(…) with a file"
        )
    return form


def declared(text: str | None, role: str, form: Format = "json") -> DeclaredSchema:
    """Understand DDL. `role` is key or value: the name of a bare column. A format with a schema needs no text.

    ConfigError for what is no DDL, an unknown format, and a schema that is there twice.
    """
    checked_format(form, role)
    if isinstance(form, str):
        return _declared("BINARY" if text is None else text, role, form)
    if text is not None:
        raise ConfigError(f"{role}={text!r} and the schema of {form.name}: give one of them")
    return _declared(form.ddl, role, form)


def _declared(text: str, role: str, form: Format) -> DeclaredSchema:
    parts = [part.strip() for part in _parts(text)]
    if not all(parts):
        raise ConfigError(
            f"{role}={text!r} is no schema: write a type, or fields such as 'id BIGINT, name STRING'"
        )
    if len(parts) == 1 and _name_end(parts[0]) is None:
        return DeclaredSchema(fields=((role, parts[0]),), bare=True, format=form)
    fields = []
    for part in parts:
        end = _name_end(part)
        if end is None:
            raise ConfigError(f"{role}={text!r}: {part!r} has no type; write NAME TYPE")
        fields.append((part[:end].strip("`"), part[end:].strip()))
    names = [name.lower() for name, _ in fields]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{role}={text!r} has the column {name} twice")
        if name.startswith("__"):
            raise ConfigError(f"{role}={text!r}: names that begin with __ are not for columns")
    bare = role == "key" and len(fields) == 1
    return DeclaredSchema(fields=tuple(fields), bare=bare, format=form)


def _parts(text: str) -> Iterator[str]:
    """Split at the commas that stand outside brackets."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def _name_end(part: str) -> int | None:
    """Where the name ends and its type begins; None when there is only a type."""
    if part.startswith("`"):
        end = part.find("`", 1)
        return None if end < 0 or not part[end + 1 :].strip() else end + 1
    for place, letter in enumerate(part):
        if letter in _OPENING:
            return None
        if letter.isspace():
            return place
    return None
