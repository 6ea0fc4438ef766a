"""Text that strangers choose, made safe for terminals and logs: names of groups, topics, clients and users, keys and values.

What is escaped: control characters (C0, DEL and C1, so also escape sequences, tabs and line ends), characters that change the
direction of text or end a line (Unicode's bidirectional controls, U+2028, U+2029), invisible ones (U+200B, U+FEFF, tags,
annotations), and lone surrogates. They are written as in Python and JSON: `\\n`, `\\x1b`, `\\u202e`.

All other characters stay, and so does a backslash: the text is for people, and is not read back. JSON keeps its meaning: an
escape there is JSON's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

_HIDDEN: Final = (
    "\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
_IN_A_LINE: Final = re.compile(f"[\x00-\x1f{_HIDDEN}]")
_IN_LINES: Final = re.compile(f"[\x00-\x09\x0b-\x1f{_HIDDEN}]")
_IN_JSON: Final = re.compile(f"[{_HIDDEN}]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BYTE_MAX: Final = 0xFF
_PLANE_MAX: Final = 0xFFFF


def safe_line(text: str) -> str:
    """Returns the text on one line, whatever it holds."""
    return _IN_A_LINE.sub(_escaped, text)


def safe_lines(text: str) -> str:
    """Returns the text with its line ends as they are; all else as `safe_line` has it. For texts of which each part is safe
    already."""
    return _IN_LINES.sub(_escaped, text)


def safe_json(
    value: object,
    *,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    default: Callable[[object], object] | None = None,
) -> str:
    """Returns JSON of the value, with letters as they are, and with JSON's escapes for unsafe characters. It has the same
    meaning."""
    content = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, default=default)
    return _IN_JSON.sub(_escaped_in_json, content)


def safe_bytes(content: bytes, *, keeping_lines: bool = False) -> bytes:
    """UTF-8 text made safe; bytes that are no text as `\\xff`."""
    text = content.decode("utf-8", "backslashreplace")
    return (safe_lines(text) if keeping_lines else safe_line(text)).encode()


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code <= _BYTE_MAX:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _PLANE_MAX else f"\\U{code:08x}"


def _escaped_in_json(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= _PLANE_MAX:
        return f"\\u{code:04x}"
    return json.dumps(match[0])[1:-1]
