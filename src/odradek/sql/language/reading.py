"""Reads a statement word by word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from sqlglot import Token, TokenType, exp

from odradek.model.java_numbers import is_digits
from odradek.sql.language.dialect import expression_of, token_position, written
from odradek.values.errors import Position, SqlError, nearest

T = TypeVar("T")
_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
_ENDS_NAME: Final = ("", ",", "(", ")", "=")
_LENGTH_MS_MAX: Final = 2**63 - 1
_UNITS_MS: Final = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
}
_NAMES: Final = frozenset({TokenType.IDENTIFIER, TokenType.VAR})


class StatementReader:
    """A statement's tokens and a place among them. What is refused is a SqlError with a position."""

    def __init__(self, tokens: Sequence[Token], text: str, start: int = 0) -> None:
        """`start` is the index of the first token to read."""
        self._tokens = tokens
        self._text = text
        self._next = start

    @property
    def at_end(self) -> bool:
        return self._next >= len(self._tokens)

    @property
    def index(self) -> int:
        return self._next

    def position(self) -> Position:
        """Returns the position of the next word, or of the end."""
        if self.at_end:
            last = self._tokens[-1]
            return Position(last.line, last.col + 1)
        return token_position(self._tokens[self._next])

    def text_from(self, start: int) -> str:
        """Returns the text from the token `start` to the one before the next."""
        if start >= self._next:
            return ""
        return self._text[self._tokens[start].start : self._tokens[self._next - 1].end + 1]

    def rest(self) -> str:
        return self._text[self._tokens[self._next].start : self._tokens[-1].end + 1]

    def word(self, ahead: int = 0) -> str:
        """Returns a word in upper case; an empty text at the end, for strings and for quoted names."""
        if self._next + ahead >= len(self._tokens):
            return ""
        token = self._tokens[self._next + ahead]
        return "" if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING) else token.text.upper()

    def follows(self, *words: str) -> bool:
        return all(self.word(ahead) == expected for ahead, expected in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Skips these words if they follow; tells whether they did."""
        if not self.follows(*words):
            return False
        self._next += len(words)
        return True

    def expect(self, *words: str) -> None:
        for expected in words:
            if not self.accept(expected):
                raise self.unexpected(expected)

    def choose(self, *words: str) -> str:
        """Reads one of these words."""
        for expected in words:
            if self.accept(expected):
                return expected
        raise self.unexpected(*words)

    def unexpected(self, *expected: str) -> SqlError:
        wanted = " or ".join(expected)
        if self.at_end:
            return SqlError(f"the statement ends too early: {wanted} is needed", self.position())
        shown = self._tokens[self._next].text
        return SqlError(
            f"unexpected {shown!r}: {wanted} is needed here", self.position(), nearest(shown, expected)
        )

    def end(self) -> None:
        if not self.at_end:
            raise self.unexpected("the end of the statement")

    def name(self, what: str = "a name") -> str:
        """Reads a name and returns it in upper case, unless it is in quotes."""
        if self.at_end or not _is_name(self._tokens[self._next]):
            raise self.unexpected(what)
        token = self._tokens[self._next]
        self._next += 1
        return token.text if token.token_type == TokenType.IDENTIFIER else token.text.upper()

    def name_as_written(self, what: str) -> str:
        """Reads a name and returns it as written: names of topics and of queries keep their case."""
        if not self.at_end and self._tokens[self._next].token_type == TokenType.STRING:
            return self.string(what)
        start = self._next
        self.name(what)
        while not self.at_end and self.word() not in _ENDS_NAME:
            if self._tokens[self._next].start != self._tokens[self._next - 1].end + 1:
                break
            self._next += 1
        return self.text_from(start).strip('`"')

    def string(self, what: str = "a text in single quotes") -> str:
        if self.at_end or self._tokens[self._next].token_type != TokenType.STRING:
            raise self.unexpected(what)
        self._next += 1
        return self._tokens[self._next - 1].text

    def follows_string(self) -> bool:
        return not self.at_end and self._tokens[self._next].token_type == TokenType.STRING

    def follows_name(self) -> bool:
        return not self.at_end and _is_name(self._tokens[self._next])

    def code(self) -> str:
        """Reads the text between $$ and $$."""
        if self.at_end or self._tokens[self._next].token_type != TokenType.RAW_STRING:
            raise self.unexpected("code between $$ and $$")
        self._next += 1
        return self._tokens[self._next - 1].text

    def whole(self, what: str = "a whole number") -> int:
        if self.at_end or not is_digits(self._tokens[self._next].text):
            raise self.unexpected(what)
        self._next += 1
        return int(self._tokens[self._next - 1].text)

    def duration_ms(self) -> int:
        """Reads a time such as `10 SECONDS`; returns milliseconds."""
        where = self.position()
        number = self.whole("a length of time, such as 10 SECONDS")
        unit = self.word().removesuffix("S")
        if unit not in _UNITS_MS:
            raise self.unexpected("DAYS, HOURS, MINUTES, SECONDS or MILLISECONDS")
        self._next += 1
        if number * _UNITS_MS[unit] > _LENGTH_MS_MAX:
            raise SqlError(
                f"{number} {unit}S are too long: a time has at most 64 bits of milliseconds", where
            )
        return number * _UNITS_MS[unit]

    def until(self, ends_here: Callable[[StatementReader], bool]) -> list[Token]:
        """Reads the tokens up to a place outside brackets where `ends_here`, or up to a bracket that was opened before."""
        start, depth = self._next, 0
        while not self.at_end:
            if depth == 0 and ends_here(self):
                break
            text = self._tokens[self._next].text if self.word() else ""
            if text in _CLOSING and depth == 0:
                break
            depth += (text in _OPENING) - (text in _CLOSING)
            self._next += 1
        return list(self._tokens[start : self._next])

    def expression(
        self,
        ends_here: Callable[[StatementReader], bool],
        prepare: Callable[[list[Token]], list[Token]] = list,
    ) -> exp.Expr:
        """Reads a non-empty expression up to the place where `ends_here`. `prepare` returns other tokens in place of these."""
        where = self.position()
        tokens = self.until(ends_here)
        if not tokens:
            raise (
                self.unexpected("an expression")
                if self.at_end
                else SqlError("an expression is needed here", where)
            )
        tree = expression_of(prepare(tokens), self._text)
        if isinstance(tree, exp.Alias):
            raise SqlError(
                f"{tree.alias!r} is not allowed here: only SELECT gives names to expressions",
                token_position(tokens[-1]),
            )
        return tree

    def listed(self, read: Callable[[], T]) -> tuple[T, ...]:
        """Reads one or several values, with commas between them."""
        read_values = [read()]
        while self.accept(","):
            read_values.append(read())
        return tuple(read_values)

    def in_brackets(self, read: Callable[[], T]) -> tuple[T, ...]:
        """Reads `( … , … )`, not empty."""
        self.expect("(")
        read_values = self.listed(read)
        self.expect(")")
        return read_values

    def type_text(self) -> str:
        """Reads a type as it is written, up to a comma, the end of brackets, or a word that belongs to a column."""
        depth, start = 0, self._next
        while not self.at_end:
            word = self.word()
            if depth == 0 and (
                word in (",", ")", "KEY", "PRIMARY", "HEADERS", "HEADER", "RETURNS") or word == ""
            ):
                break
            if depth == 0 and word in ("LANGUAGE", "AS"):
                break
            depth += (word in ("(", "<")) - (word in (")", ">"))
            self._next += 1
        if start == self._next:
            raise self.unexpected("a type")
        return written(self._tokens[start : self._next])


def _is_name(token: Token) -> bool:
    if token.token_type in _NAMES:
        return True
    return token.text.isidentifier() and token.token_type not in (TokenType.STRING, TokenType.RAW_STRING)
