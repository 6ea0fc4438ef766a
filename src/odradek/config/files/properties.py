"""Java's .properties format, as `java.util.Properties.load` reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from odradek.model.errors import ConfigError

_BLANK: Final = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """The values by key (the last one wins, as in Java), and the keys that were written more than once."""

    values: dict[str, str]
    repeated: tuple[str, ...]


def parse_properties(text: str) -> Properties:
    """Raises ConfigError, with the line's number, for an escape `\\u` without four hexadecimal digits."""
    values: dict[str, str] = {}
    repeated: dict[str, None] = {}
    for number, line in _logical_lines(text):
        raw_key, raw_value = _split(line)
        key = _unescape(raw_key, number)
        if key in values:
            repeated[key] = None
        values[key] = _unescape(raw_value, number)
    return Properties(values=values, repeated=tuple(repeated))


def format_properties(values: dict[str, str]) -> str:
    """Returns a file that reads back as `values`."""
    lines = (f"{_escape(key, in_key=True)}={_escape(value, in_key=False)}\n" for key, value in values.items())
    return "".join(lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that hold a property, continued ones joined, each with the number of its first line."""
    joined: list[str] = []
    first = 0
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = natural.lstrip(_BLANK)
        if not joined:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            if joined or line != "\\":  # a backslash alone begins nothing that could go on
                joined.append(line[:-1])
            continue
        joined.append(line)
        yield first, "".join(joined)
        joined = []
    if joined:
        yield first, "".join(joined)


def _split(line: str) -> tuple[str, str]:
    """Splits a line at the first `=`, `:` or blank that no backslash precedes."""
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    match = _SEPARATOR.match(line, min(position, len(line)))
    assert match is not None
    return line[: match.start()], line[match.end() :]


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    characters: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            character = text[position]
            position += 1
            if character == "u":
                character = _unicode(text[position : position + 4], number)
                position += 4
            else:
                character = _CONTROL.get(character, character)
        elif character == "\\":
            break
        characters.append(character)
    return _join_surrogates("".join(characters))


def _unicode(digits: str, number: int) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
        raise ConfigError(f"line {number}: \\u{digits} is not allowed: expected four hexadecimal digits")
    return chr(int(digits, 16))


def _join_surrogates(text: str) -> str:
    """Characters beyond U+FFFF are written as two escapes; a lone half becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, in_key: bool) -> str:
    characters: list[str] = []
    for position, character in enumerate(text):
        if character in "\\\t\n\r\f":
            name = next((name for name, control in _CONTROL.items() if control == character), character)
            characters.append("\\" + name)
        elif (in_key and character in "=:#! ") or (character == " " and position == 0):
            characters.append("\\" + character)
        else:
            characters.append(character)
    return "".join(characters)
