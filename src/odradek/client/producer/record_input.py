"""Converts the arguments of `send` to the bytes of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.runtime.ports import Buffer

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

S = TypeVar("S")
Serializer = Callable[[S], Buffer | str | None]
"""Text becomes UTF-8. It is not called for None, as in Java."""
HeaderInput = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


class TracedHeaders(tuple[tuple[str, bytes | None], ...]):
    """Headers that have the context of a span: the record is being sent within it."""

    __slots__ = ()


def to_bytes(value: object, serializer: Serializer[Any] | None, what: str) -> Buffer | None:
    """Returns `value` for the wire: through the serializer if there is one; otherwise bytes as they are, text as UTF-8. None
    stays None, which deletes the key of a compacted topic: no serializer is called for it."""
    if value is None:
        return None
    if serializer is not None:
        value = serializer(value)
    if value is None or isinstance(value, bytes | bytearray | memoryview):
        return value
    if isinstance(value, str):
        return value.encode()
    hint = (
        f"{what}_serializer returned"
        if serializer is not None
        else f"no {what}_serializer is set, and the {what} is"
    )
    raise TypeError(f"a record's {what} must be bytes, str or None: {hint} {type(value).__name__}")


def to_headers(headers: HeaderInput) -> tuple[tuple[str, bytes | None], ...]:
    """Headers as pairs, in order; text values as UTF-8."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked = []
    for name, content in pairs:
        if not isinstance(name, str):
            raise TypeError(f"a header's name must be str, not {type(name).__name__}")
        checked.append((name, content.encode() if isinstance(content, str) else content))
    return tuple(checked)
