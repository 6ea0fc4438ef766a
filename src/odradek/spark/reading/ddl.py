"""The fields that a user writes for JSON values, checked before Spark's JVM parses them: it would not name the option.

What is refused here Spark would refuse, too, or JSON has nothing for. Whatever may follow a type (NOT NULL, COMMENT, COLLATE)
is left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NoReturn

from odradek.model.errors import ConfigError

_TOKEN: Final = re.compile(
    r"\s+|--[^\n]*|/\*.*?\*/|(?P<token>`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[<>(),:])",
    re.DOTALL,
)
_DECIMALS: Final = ("decimal", "dec", "numeric")
_SIMPLE_TYPES: Final = frozenset(
    {
        *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"),
        *("float", "real", "double", *_DECIMALS),
        *("string", "char", "character", "varchar", "binary", "void", "variant"),
        *("date", "time", "timestamp", "timestamp_ltz", "timestamp_ntz", "interval"),
    }
)
_DIGITS_MAX: Final = 38
_DEPTH_MAX: Final = 64
_EXAMPLE: Final = "write fields such as 'id BIGINT, name STRING, tags ARRAY<STRING>'"


def struct_type(option: str, text: str) -> str:
    """The DDL of a struct of these fields; `text` may be the struct's own. ConfigError names the option and what is wrong."""
    checked = _FieldText(option, text)
    return text.strip() if checked.is_struct else f"STRUCT<{text.strip()}>"


class _FieldText:
    """Read from left to right, one token at a time."""

    def __init__(self, option: str, text: str) -> None:
        self._option = option
        self._text = text
        self._tokens = list(self._split())
        self._next = 0
        self.is_struct = [token.lower() for token in self._tokens[:2]] == ["struct", "<"]
        if self.is_struct:
            self._type("", 0)
        else:
            self._fields(1)
        if self._peek():
            self._refuse(f"it goes on with {self._peek()!r} after its end")

    def _split(self) -> Iterator[str]:
        position = 0
        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None:
                self._refuse(
                    f"{self._text[position]!r} cannot stand there; put names with such characters into `backquotes`"
                )
            position = match.end()
            if match["token"]:
                yield match["token"]

    def _peek(self) -> str:
        """The next token; empty at the end."""
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _advance(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _expect(self, wanted: str, where: str) -> None:
        token = self._advance()
        if token != wanted:
            self._refuse(f"{where} needs {wanted!r} where {_named(token)} stands")

    def _fields(self, depth: int) -> None:
        while True:
            name = self._advance()
            if not name or name in "<>(),:":
                self._refuse(f"a field's name is missing where {_named(name)} stands")
            if self._peek() == ":":
                self._advance()
            self._type(f"field {name}", depth)
            self._skip_rest()
            if self._peek() != ",":
                return
            self._advance()

    def _type(self, where: str, depth: int) -> None:
        if depth > _DEPTH_MAX:
            self._refuse(f"it is nested more than {_DEPTH_MAX} deep")
        token = self._advance()
        kind = token.lower()
        if kind == "struct":
            self._expect("<", f"{where} STRUCT".strip())
            if self._peek() != ">":
                self._fields(depth + 1)
            self._expect(">", f"{where} STRUCT".strip())
        elif kind in ("array", "map"):
            self._expect("<", f"{where}, {token}")
            self._type(where, depth + 1)
            if kind == "map":
                self._expect(",", f"{where}, {token}")
                self._type(where, depth + 1)
            self._expect(">", f"{where}, {token}")
        elif kind in _SIMPLE_TYPES:
            self._arguments(where, kind)
        elif not token or token in "<>(),:":
            self._refuse(f"{where} has no type")
        else:
            self._refuse(f"{where} has the type {token}, which does not exist")

    def _arguments(self, where: str, kind: str) -> None:
        if self._peek() != "(":
            return
        self._advance()
        given: list[str] = []
        while self._peek() not in ("", ")"):
            given.append(self._advance())
        self._expect(")", f"{where}, {kind.upper()}")
        numbers = [int(token) for token in given if token.isascii() and token.isdigit()]
        if kind in _DECIMALS and (
            not numbers or numbers[0] > _DIGITS_MAX or (len(numbers) > 1 and numbers[1] > numbers[0])
        ):
            self._refuse(
                f"{where} is {kind.upper()}({''.join(given)}): at most {_DIGITS_MAX} digits, not more behind the point"
            )

    def _skip_rest(self) -> None:
        """What follows a type: words and texts."""
        while self._peek() and self._peek() not in "<>(),:":
            self._advance()

    def _refuse(self, reason: str) -> NoReturn:
        raise ConfigError(f"option {self._option}={self._text!r}: {reason}; {_EXAMPLE}")


def _named(token: str) -> str:
    return repr(token) if token else "its end"
