"""A record as a program's functions and tests see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odradek.model.public import public


@public("odradek.streams")
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """A record, as a processor or a test sees it.

    `key` and `value`: bare values as they are, fields as a dict, or None. `timestamp` is in milliseconds.
    """

    key: Any
    value: Any
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @classmethod
    def of(cls, row: Mapping[str, Any], *, bare_key: bool, bare_value: bool) -> StreamRecord:
        """Returns the record of a frame's row."""
        return cls(
            key=plain(row["__key"], "key" if bare_key else None),
            value=plain(row["__value"], "value" if bare_value else None),
            timestamp=row["__timestamp"],
            headers=tuple((header["key"], header["value"]) for header in row["__headers"] or ()),
        )


def plain(fields: Any, bare: str | None) -> Any:
    """Returns a struct as a program sees it: the value of the column `bare`, or the fields as they are."""
    return fields if bare is None or fields is None else fields[bare]
