"""Bytes of strangers as lines that a page can show: JSON, text, or hexadecimal, each with a limit. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.console.records.filtering import NO_JSON, json_of

SHORT_CHARACTERS: Final = 240
VIEW_BYTES_MAX: Final = 64 << 10
"""A view has no more bytes or characters than this; the rest is there as a download."""
FREQUENT_MAX: Final = 3
FREQUENT_SHARE: Final = 0.2
"""A key that this share of the records has is frequent: it makes its partition hot."""
FREQUENT_OF_MIN: Final = 20
_HEX_BYTES_MAX: Final = 4 << 10
_HEX_WIDTH: Final = 16
_JSON_VIEW_BYTES_MAX: Final = 1 << 20
_FIRST_PRINTABLE, _BEHIND_PRINTABLE = 32, 127


class ContentView(NamedTuple):
    """How bytes are shown."""

    kind: str
    """`none`, `empty`, `json`, `text` or `hex`."""
    lines: tuple[str, ...]
    size_bytes: int
    is_cut: bool


def short_text(content: bytes | None) -> str | None:
    """Returns the beginning of the bytes on one line; None for no bytes at all."""
    if content is None:
        return None
    text = _text_of(content[: 4 * SHORT_CHARACTERS], is_cut=len(content) > 4 * SHORT_CHARACTERS)
    if text is None:
        return content[:48].hex(" ") + (" …" if len(content) > 48 else "")
    line = " ".join(text[: SHORT_CHARACTERS + 1].split()) if "\n" in text else text
    return line if len(line) <= SHORT_CHARACTERS else f"{line[:SHORT_CHARACTERS]}…"


def frequent_keys(keys: Sequence[bytes | None]) -> list[tuple[bytes, float]]:
    """Returns the keys that many of these records have, with their shares, the most frequent first; none of few records."""
    if len(keys) < FREQUENT_OF_MIN:
        return []
    counts = Counter(key for key in keys if key is not None).most_common(FREQUENT_MAX)
    return [(key, count / len(keys)) for key, count in counts if count >= FREQUENT_SHARE * len(keys)]


def content_view(content: bytes | None) -> ContentView:
    """Returns the bytes as JSON in lines if they are JSON, else as text if they are text, else in hexadecimal."""
    if content is None:
        return ContentView("none", (), 0, False)
    if not content:
        return ContentView("empty", (), 0, False)
    if len(content) <= _JSON_VIEW_BYTES_MAX and content.lstrip()[:1] in (b"{", b"["):
        document = json_of(content)
        if document is not NO_JSON:
            text, is_cut = _pretty(document)
            if text:
                return ContentView("json", tuple(text.split("\n")), len(content), is_cut)
    is_cut = len(content) > VIEW_BYTES_MAX
    known = _text_of(content[:VIEW_BYTES_MAX], is_cut=is_cut)
    if known is not None:
        return ContentView("text", tuple(known.replace("\r\n", "\n").split("\n")), len(content), is_cut)
    return ContentView(
        "hex", hex_lines(content[:_HEX_BYTES_MAX]), len(content), len(content) > _HEX_BYTES_MAX
    )


def hex_lines(content: bytes) -> tuple[str, ...]:
    """Returns offset, bytes and ASCII, 16 bytes a line."""
    lines = []
    for start in range(0, len(content), _HEX_WIDTH):
        part = content[start : start + _HEX_WIDTH]
        text = "".join(chr(byte) if _FIRST_PRINTABLE <= byte < _BEHIND_PRINTABLE else "." for byte in part)
        lines.append(f"{start:06x}  {part.hex(' '):<47}  {text}")
    return tuple(lines)


def _pretty(document: object) -> tuple[str, bool]:
    """Returns indented JSON up to the limit: deep nesting would multiply a small value by its depth."""
    pieces, length = [], 0
    try:
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(document):
            pieces.append(piece)
            length += len(piece)
            if length > VIEW_BYTES_MAX:
                return "".join(pieces)[:VIEW_BYTES_MAX], True
    except (ValueError, RecursionError):
        return "", False
    return "".join(pieces), False


def _text_of(content: bytes, *, is_cut: bool) -> str | None:
    """Returns the text that the bytes are; None for bytes that are none, or that have control characters."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        if not is_cut or len(content) - error.start > 3:
            return None
        text = content[: error.start].decode()
    return None if any(character < " " and character not in "\n\r\t" for character in text) else text
