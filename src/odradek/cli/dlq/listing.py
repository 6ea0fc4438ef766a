"""Dead letters as tables, as text and as JSON. No I/O: letters in, rows and lines out."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

from odradek.cli.moments import time_text
from odradek.dead_letters.grouping import LetterGroup
from odradek.dead_letters.headers import Origin
from odradek.dead_letters.letter import DeadLetter
from odradek.model.aliases import Json

LIST_COLUMNS: Final = ("topic", "origin", "error", "letters", "redriven", "oldest", "newest")
_SHOWN_BYTES_MAX: Final = 2_000
_HEX_WIDTH: Final = 16


def group_row(group: LetterGroup) -> tuple[object, ...]:
    """Returns the row of a group of letters, in the order of LIST_COLUMNS."""
    return (
        group.topic,
        group.origin,
        group.error,
        group.letter_count,
        group.redriven_count,
        None if group.oldest_ms is None else time_text(group.oldest_ms),
        None if group.newest_ms is None else time_text(group.newest_ms),
    )


def letter_json(letter: DeadLetter, is_redriven: bool) -> dict[str, Json]:
    """Returns all of a letter; bytes that are no text are base64, in fields with other names."""
    origin, failure, by = letter.origin, letter.failure, letter.by
    document: dict[str, Json] = {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "failed_at": letter.failed_at_ms,
        "origin": None if origin is None else _origin_json(origin),
        "error": failure.exception,
        "message": failure.message,
        "stage": failure.stage or None,
        "stacktrace": failure.stacktrace or None,
        "group": by.group,
        "delivery_count": by.delivery_count,
        "query": by.query,
        "batch": by.batch,
        "redriven": is_redriven,
        "redrive_count": letter.redrive_count,
        "dialect": letter.dialect,
    }
    _put(document, "key", letter.key)
    _put(document, "value", letter.value)
    headers: list[Json] = []
    for name, value in letter.own_headers:
        header: dict[str, Json] = {"name": name}
        _put(header, "value", value)
        headers.append(header)
    return {**document, "headers": headers}


def letter_lines(letter: DeadLetter, is_redriven: bool, *, with_stacktrace: bool) -> Iterator[str]:
    """Yields the lines of one letter for a person."""
    failure, by = letter.failure, letter.by
    yield f"{letter.place}  {time_text(letter.failed_at_ms)}{'  sent back' if is_redriven else ''}"
    if letter.origin is not None:
        yield f"  origin   {letter.origin}  {time_text(letter.origin.timestamp_ms)}".rstrip()
    else:
        yield "  origin   its headers do not say"
    yield f"  error    {failure.exception}: {_one_line(failure.message)}"
    if failure.stage:
        yield f"  stage    {failure.stage}"
    if by.group is not None:
        count = f", delivery {by.delivery_count}" if by.delivery_count is not None else ""
        yield f"  group    {by.group}{count}"
    if by.query is not None:
        yield f"  query    {by.query}{f', batch {by.batch}' if by.batch is not None else ''}"
    if letter.redrive_count:
        yield f"  redrives {letter.redrive_count}"
    if letter.key is not None:
        yield from _content("key", letter.key)
    for name, value in letter.own_headers:
        yield from _content(f"header {name}", value)
    yield from _content("value", letter.value)
    if with_stacktrace and failure.stacktrace:
        yield "  stack trace"
        yield from (f"    {line}" for line in failure.stacktrace.splitlines())


def _origin_json(origin: Origin) -> dict[str, Json]:
    return {
        "topic": origin.topic,
        "partition": origin.partition,
        "offset": origin.offset,
        "timestamp": origin.timestamp_ms if origin.timestamp_ms >= 0 else None,
    }


def _put(fields: dict[str, Json], name: str, content: bytes | None) -> None:
    if content is None:
        fields[name] = None
        return
    try:
        fields[name] = content.decode()
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = base64.b64encode(content).decode()


def _content(name: str, content: bytes | None) -> Iterator[str]:
    """Text as it is where all of it can be shown; bytes in hexadecimal and as ASCII otherwise."""
    label = f"  {name:<8} "
    if content is None:
        yield f"{label}null"
        return
    shown = content[:_SHOWN_BYTES_MAX]
    rest = f"  ... and {len(content) - len(shown):,} bytes more" if len(content) > len(shown) else ""
    text = _printable(content)
    if text is not None:
        lines = text[:_SHOWN_BYTES_MAX].splitlines() or [""]
        yield label + lines[0]
        yield from (f"{' ' * len(label)}{line}" for line in lines[1:])
    else:
        yield f"{label}{len(content):,} bytes"
        for start in range(0, len(shown), _HEX_WIDTH):
            part = shown[start : start + _HEX_WIDTH]
            ascii_text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
            yield f"    {start:06x}  {part.hex(' '):<47}  {ascii_text}"
    if rest:
        yield rest


def _printable(content: bytes) -> str | None:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if all(character.isprintable() or character in "\n\t" for character in text) else None


def _one_line(text: str) -> str:
    return " ".join(text.split())
