"""A format of records that has a schema of its own, as programs of streams take it."""

from __future__ import annotations

from typing import Protocol


class SchemaFormat(Protocol):
    """A format that has a schema of its own. `ddl`: the type of a value, or fields. `is_record`: it has fields."""

    name: str
    ddl: str

    @property
    def is_record(self) -> bool: ...
    def decode(self, data: bytes) -> object:
        """Decodes bytes. ValueError for other data. Dicts for records; times may be datetimes or microseconds."""

    def encode(self, value: object) -> bytes | None:
        """Encodes a value; None: the record has none. ValueError for a value that does not fit."""
