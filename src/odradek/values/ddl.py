"""The DDL of columns, `id BIGINT, name STRING`, parsed as Spark's own parser reads it.

A program is written before a JVM runs, and Spark would not name the option or the argument that a text came from. So the
grammar is here once more: what Spark refuses is refused with a reason, and what it takes is cut into fields. Spark gets the
user's text; `type` is the same type in the model of `types.py`, for checks before a JVM runs.
`tests/spark/test_ddl.py` compares both parsers over generated texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn

from odradek.model.errors import ConfigError
from odradek.model.java_numbers import is_digits
from odradek.values.types import STRING, SqlType, array_of, decimal_of, map_of, struct_of_fields

_SPACE: Final = r"[ \t\n\f\r\u000b\u00a0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000]+"
_TOKEN: Final = re.compile(
    rf"(?P<blank>{_SPACE}|--(?:\\\n|[^\r\n])*)"
    r"|(?P<name>`(?:[^`]|``)*`)"
    r"|(?P<text>[rR]'[^']*'|[rR]\"[^\"]*\"|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")"
    r"|(?P<word>[A-Za-z0-9_]+)"
    r"|(?P<sign>[<>(),:!.])",
    re.DOTALL,
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_NUMBER: Final = re.compile(r"[0-9]+(?:[lsy]|(?:e[0-9]+)?(?:f|d|bd)?)", re.IGNORECASE)
"""Words that Spark takes for numbers, and not for names."""
_DECIMALS: Final = ("decimal", "dec", "numeric")
_PLAIN: Final[dict[str, SqlType | None]] = {
    **dict.fromkeys(("tinyint", "byte"), SqlType(kind="TINYINT")),
    **dict.fromkeys(("smallint", "short"), SqlType(kind="SMALLINT")),
    **dict.fromkeys(("int", "integer"), SqlType(kind="INTEGER")),
    **dict.fromkeys(("bigint", "long"), SqlType(kind="BIGINT")),
    **dict.fromkeys(("float", "real"), SqlType(kind="FLOAT")),
    **{name: SqlType(kind=name.upper()) for name in ("boolean", "double", "date")},
    **{name: SqlType(kind=name.upper()) for name in ("timestamp_ltz", "timestamp_ntz")},
    "binary": SqlType(kind="BYTES"),
    "void": SqlType(kind="NULL"),
    "variant": None,
}
"""Types that are one word."""
_INTERVALS: Final = {
    "year": ("month",),
    "month": (),
    "day": ("hour", "minute", "second"),
    "hour": ("minute", "second"),
    "minute": ("second",),
    "second": (),
}
_DIGITS_MAX: Final = 38
_TIME_DIGITS_MAX: Final = 9
_LENGTH_MAX: Final = (1 << 31) - 1
_DEPTH_MAX: Final = 64
_EXAMPLE: Final = "write fields such as 'id BIGINT, name STRING, tags ARRAY<STRING>'"


class DdlError(ValueError):
    """The error for a text that is not valid DDL, with the reason."""


class DdlField(NamedTuple):
    """One field.

    `kind`: the text of its type. `rest`: NOT NULL and COMMENT as they follow it; often empty. `type`: as in `Ddl`.
    """

    name: str
    kind: str
    rest: str
    type: SqlType | None

    @property
    def ddl(self) -> str:
        return f"{quoted(self.name)} {self.kind} {self.rest}".rstrip()


@dataclass(frozen=True, slots=True)
class Ddl:
    """A parsed DDL text.

    With `fields` None the text is one type, `kind`. `type`: the type, a STRUCT for fields, without NOT NULL and comments. None:
    it contains a type that only Spark has, such as INTERVAL, VARIANT or VARCHAR(7). A TIMESTAMP is a TIMESTAMP_LTZ, as Spark's
    default is.
    """

    fields: tuple[DdlField, ...] | None
    kind: str
    type: SqlType | None


class _Token(NamedTuple):
    kind: str
    text: str

    @property
    def shown(self) -> str:
        return repr(self.text) if self.text else "its end"


_END: Final = _Token("end", "")


def quoted(name: str) -> str:
    """Returns a name in backquotes."""
    return f"`{name.replace('`', '``')}`"


def parsed_ddl(text: str) -> Ddl:
    """A text as Spark reads it: fields, with or without colons, or one type. DdlError explains why it is neither."""
    tokens = list(_tokens(text))
    try:
        return _Parser(tokens).whole_fields()
    except DdlError as error:
        try:
            return _Parser(tokens).whole_type()
        except DdlError as other:
            is_type = len(tokens) > 1 and tokens[1].text in ("<", "(") and tokens[0].kind == "word"
            raise (other if is_type else error) from None


def struct_type(option: str, text: str) -> str:
    """The DDL of a struct of these fields; `text` may be the struct's own. ConfigError names the option and what is wrong."""
    try:
        ddl = parsed_ddl(text)
        if ddl.fields is None and not re.match(r"struct\b", ddl.kind, re.IGNORECASE):
            raise DdlError(f"field {ddl.kind} has no type")
    except DdlError as error:
        raise ConfigError(f"option {option}={text!r}: {error}; {_EXAMPLE}") from None
    if ddl.fields is None:
        return ddl.kind
    return f"STRUCT<{ddl.kind}>"


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        if text.startswith("/*", position) and not text.startswith("/*+", position):
            position = _comment_end(text, position)
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            wrong = text[position]
            if wrong in "'\"`":
                raise DdlError(f"the {wrong} that opens at {text[position : position + 20]!r} is not closed")
            raise DdlError(
                f"{wrong!r} is not allowed there; put names with such characters into `backquotes`"
            )
        position = match.end()
        kind = str(match.lastgroup)
        if kind != "blank":
            yield _Token(kind, match[0])


def _comment_end(text: str, position: int) -> int:
    """The end of a comment in brackets, which may hold others."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, position):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise DdlError("a comment /* is not closed")


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def whole_fields(self) -> Ddl:
        fields = self._fields()
        self._end()
        return Ddl(tuple(fields), self._since(0), _struct_type(fields))

    def whole_type(self) -> Ddl:
        kind = self._type("")
        self._end()
        return Ddl(None, self._since(0), kind)

    def _end(self) -> None:
        if self._peek() is not _END:
            self._refuse(f"it continues with {self._peek().shown} after its end")

    def _peek(self) -> _Token:
        return self._tokens[self._next] if self._next < len(self._tokens) else _END

    def _advance(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _since(self, start: int) -> str:
        """What was read, without comments."""
        return _joined(self._tokens[start : self._next])

    def _is_at(self, *words: str) -> bool:
        """Returns whether these are the next tokens, in any case."""
        tokens = self._tokens[self._next : self._next + len(words)]
        return [token.text.lower() for token in tokens] == list(words)

    def _accepts(self, *words: str) -> bool:
        accepted = self._is_at(*words)
        self._next += len(words) * accepted
        return accepted

    def _expect(self, wanted: str, where: str) -> None:
        token = self._advance()
        if token.text != wanted:
            self._refuse(f"{where} needs {wanted!r} before {token.shown}")

    def _fields(self) -> list[DdlField]:
        fields = [self._field()]
        while self._accepts(","):
            fields.append(self._field())
        return fields

    def _field(self) -> DdlField:
        token = self._advance()
        if token.kind not in ("word", "name"):
            self._refuse(f"a field's name is missing before {token.shown}")
        if token.kind == "word" and _NUMBER.fullmatch(token.text):
            self._refuse(f"{token.text} is a number and no name; put it into `backquotes`")
        self._accepts(":")
        start = self._next
        kind_type = self._type(f"field {token.text}")
        kind, start = self._since(start), self._next
        if not self._accepts("not", "null"):
            self._accepts("!", "null")
        self._comment(token.text)
        name = token.text[1:-1].replace("``", "`") if token.kind == "name" else token.text
        return DdlField(name, kind, self._since(start), kind_type)

    def _comment(self, name: str) -> None:
        if not self._accepts("comment"):
            return
        if self._peek().kind != "text":
            self._refuse(f"field {name}, COMMENT needs a text in quotes, not {self._peek().shown}")
        while self._peek().kind == "text":
            self._advance()

    def _type(self, where: str) -> SqlType | None:
        """Reads a type. Returns None for a type that only Spark has."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._refuse(f"it is nested more than {_DEPTH_MAX} deep")
        token = self._advance()
        kind = token.text.lower()
        if token.kind != "word":
            self._refuse(f"{where} has no type".strip())
        read = _READERS.get(kind)
        if read is None and kind not in _PLAIN:
            self._refuse(f"{where or 'it'} has the type {token.text}, which does not exist")
        if read is None and self._peek().text == "(":
            self._refuse(f"{where or 'it'} has the type {token.text}, which has no length")
        inner = f"{where}, {token.text}" if where else token.text
        sql_type = _PLAIN[kind] if read is None else read(self, inner)
        self._depth -= 1
        return sql_type

    def _struct(self, where: str) -> SqlType | None:
        self._expect("<", where)
        fields = self._fields() if self._peek().text != ">" else []
        self._expect(">", where)
        return _struct_type(fields)

    def _array(self, where: str) -> SqlType | None:
        self._expect("<", where)
        element = self._type(where.rpartition(", ")[0])
        self._expect(">", where)
        return None if element is None else array_of(element)

    def _map(self, where: str) -> SqlType | None:
        self._expect("<", where)
        key = self._type(where.rpartition(", ")[0])
        self._expect(",", where)
        value = self._type(where.rpartition(", ")[0])
        self._expect(">", where)
        return None if key is None or value is None else map_of(key, value)

    def _numbers(self, where: str, count_max: int) -> list[int]:
        """Returns the whole numbers in brackets, if there are brackets."""
        if not self._accepts("("):
            return []
        numbers = [self._number(where)]
        while len(numbers) < count_max and self._accepts(","):
            numbers.append(self._number(where))
        self._expect(")", where)
        return numbers

    def _number(self, where: str) -> int:
        token = self._advance()
        if not is_digits(token.text):
            self._refuse(f"{where} needs a whole number, not {token.shown}")
        if len(token.text) > len(str(_LENGTH_MAX)) or int(token.text) > _LENGTH_MAX:
            self._refuse(f"{where}: {token.text:.40} is too large")
        return int(token.text)

    def _decimal(self, where: str) -> SqlType | None:
        field, _, name = where.rpartition(", ")
        numbers = self._numbers(where, 2)
        digits, scale = (*numbers, 10, 0)[:2] if len(numbers) != 1 else (numbers[0], 0)
        if digits > _DIGITS_MAX or scale > digits:
            shown = ",".join(map(str, numbers))
            self._refuse(
                f"{field or 'it'} is {name.upper()}({shown}): at most {_DIGITS_MAX} digits, not more after the point"
            )
        return decimal_of(digits, scale) if digits else None

    def _string(self, where: str) -> SqlType | None:
        if self._peek().text == "(":
            self._refuse(f"{where} has no length: write VARCHAR(…)")
        return None if self._has_collation(where) else STRING

    def _characters(self, where: str) -> None:
        numbers = self._numbers(where, 1)
        if not numbers:
            self._refuse(f"{where} needs a length, such as (10)")
        self._has_collation(where)

    def _has_collation(self, where: str) -> bool:
        """Reads COLLATE and its name, and returns whether it was there."""
        if not self._accepts("collate"):
            return False
        while True:
            if self._advance().kind not in ("word", "name"):
                self._refuse(f"{where} COLLATE needs a name")
            if not self._accepts("."):
                return True

    def _timestamp(self, where: str) -> SqlType:
        if self._peek().text == "(":
            self._refuse(f"{where} has no number of digits")
        if self._accepts("without", "time", "zone"):
            return SqlType(kind="TIMESTAMP_NTZ")
        self._accepts("with", "local", "time", "zone")
        return SqlType(kind="TIMESTAMP_LTZ")

    def _time(self, where: str) -> None:
        numbers = self._numbers(where, 1)
        if numbers and numbers[0] > _TIME_DIGITS_MAX:
            self._refuse(f"{where} has at most {_TIME_DIGITS_MAX} digits after the second")
        self._accepts("without", "time", "zone")

    def _interval(self, where: str) -> None:
        start = self._peek().text.lower()
        if start not in _INTERVALS:
            return
        self._advance()
        if not self._is_at("to"):
            return
        self._advance()
        end = self._advance()
        if end.text.lower() not in _INTERVALS[start]:
            self._refuse(f"{where} {start.upper()} TO needs a smaller unit, not {end.shown}")

    def _geo(self, where: str) -> None:
        self._expect("(", where)
        if not self._accepts("any"):
            self._number(where)
        self._expect(")", where)

    def _refuse(self, reason: str) -> NoReturn:
        raise DdlError(reason)


_READERS: Final[dict[str, Callable[[_Parser, str], SqlType | None]]] = {
    "struct": _Parser._struct,
    "array": _Parser._array,
    "map": _Parser._map,
    "string": _Parser._string,
    "timestamp": _Parser._timestamp,
    "time": _Parser._time,
    "interval": _Parser._interval,
    "geometry": _Parser._geo,
    "geography": _Parser._geo,
    **dict.fromkeys(_DECIMALS, _Parser._decimal),
    **dict.fromkeys(("char", "character", "varchar"), _Parser._characters),
}


def _struct_type(fields: Sequence[DdlField]) -> SqlType | None:
    typed = [(field.name, field.type) for field in fields if field.type is not None]
    return struct_of_fields(typed) if len(typed) == len(fields) else None


def _joined(tokens: list[_Token]) -> str:
    """Returns the tokens as text, with blanks where words and names would run together."""
    parts: list[str] = []
    for before, token in zip([_END, *tokens], tokens, strict=False):
        is_tight = token.text in ("<", ">", "(", ")", ",", ":", ".") or before.text in (
            "<",
            "(",
            "",
            ".",
            "!",
        )
        parts.append(token.text if is_tight else f" {token.text}")
    return "".join(parts)
