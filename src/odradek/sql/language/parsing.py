"""Text to statements: `parse`. Statements end with a semicolon; the last one need not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.sql.language.commands import COMMANDS
from odradek.sql.language.definitions import DEFINITIONS
from odradek.sql.language.dialect import check_nesting, token_position, tokens_of, too_deep
from odradek.sql.language.reading import StatementReader
from odradek.sql.language.statements import DefineVariable, Statement, UndefineVariable
from odradek.values.errors import Position, SqlError, nearest

_MARK: Final = re.compile(r"['\"`;]|--|/\*|\$\$")
_ENDS: Final = {"--": "\n", "/*": "*/"}
"""Other marks end with themselves."""
_TEXT_CHARS_MAX: Final = 4 << 20
"""A text has no more characters than this once its variables are replaced."""
_VARIABLE: Final = re.compile(r"\$\{([^}\s]*)\}")
_BEGINNINGS: Final = {**DEFINITIONS, **COMMANDS}


def parse(text: str, variables: Mapping[str, str] | None = None) -> list[Statement]:
    """Returns the statements of a text. `variables`: the values of `${name}`; DEFINE and UNDEFINE in the text change them
    for what follows. None: they are replaced already, and what looks like one is part of a value. Raises SqlError for the
    first statement that is wrong."""
    known = {name.upper(): value for name, value in (variables or {}).items()}
    statements: list[Statement] = []
    text_position = _TextPosition()
    left = _TEXT_CHARS_MAX
    for written in _split(text):
        replaced = written if variables is None else _substituted(written, known, text_position, left)
        left -= len(replaced)
        statement = _statement(replaced, text_position)
        text_position = text_position.after(written)
        if statement is None:
            continue
        if isinstance(statement, DefineVariable):
            known[statement.name.upper()] = statement.value
        elif isinstance(statement, UndefineVariable):
            known.pop(statement.name.upper(), None)
        statements.append(statement)
    return statements


def parse_one(text: str, variables: Mapping[str, str] | None = None) -> Statement:
    """Parses a statement. SqlError unless the text is exactly one."""
    statements = parse(text, variables)
    if len(statements) != 1:
        raise SqlError(f"one statement is needed, and there are {len(statements)}")
    return statements[0]


def _split(text: str) -> Iterator[str]:
    """Yields the text of each statement. Every character is looked at once, whatever is opened and does not end."""
    start = index = 0
    while (match := _MARK.search(text, index)) is not None:
        index = match.end()
        if match[0] == ";":
            yield text[start : match.start()]
            start = index
            continue
        ending = _ENDS.get(match[0], match[0])
        end = text.find(ending, index)
        if end < 0:
            break  # the tokenizer reports what is open
        index = end + len(ending)
    yield text[start:]


@dataclass(frozen=True, slots=True)
class _TextPosition:
    """The place of a statement in the whole text: the lines before it, and the columns before it in its first line."""

    lines: int = 0
    columns: int = 0

    def after(self, statement: str) -> _TextPosition:
        """Returns the place after a statement and its semicolon."""
        lines = statement.count("\n")
        if lines == 0:
            return _TextPosition(self.lines, self.columns + len(statement) + 1)
        return _TextPosition(self.lines + lines, len(statement) - statement.rfind("\n"))

    def moved(self, line: int, column: int) -> Position:
        """Returns a position in the statement as one in the whole text."""
        return Position(line + self.lines, column + (self.columns if line == 1 else 0))


def _substituted(written: str, known: Mapping[str, str], where: _TextPosition, chars_max: int) -> str:
    """Substitutes variables. `chars_max` is the longest result."""
    grown = len(written)

    def position(match: re.Match[str]) -> Position:
        before = written[: match.start()]
        return where.moved(before.count("\n") + 1, match.start() - before.rfind("\n"))

    def value(match: re.Match[str]) -> str:
        nonlocal grown
        name = match[1].upper()
        if name not in known:
            raise SqlError(
                f"the variable {match[1]} is not defined",
                position(match),
                nearest(name, known) or f"Write DEFINE {match[1]} = '…'; before.",
            )
        grown += len(known[name])
        if grown > chars_max:
            raise SqlError(
                f"the text has more than {_TEXT_CHARS_MAX} characters with its variables", position(match)
            )
        return known[name]

    return _VARIABLE.sub(value, written)


def _statement(text: str, where: _TextPosition) -> Statement | None:
    """Parses a statement; returns None for blanks and comments alone."""
    try:
        tokens = tokens_of(text)
    except SqlError as error:
        text_position = None if error.position is None else where.moved(*error.position)
        raise SqlError(error.message, text_position, error.hint) from None
    if not tokens:
        return None
    for token in tokens:
        token.col += where.columns if token.line == 1 else 0
        token.line += where.lines
    check_nesting(tokens)
    reader = StatementReader(tokens, text)
    first = reader.word()
    read = _BEGINNINGS.get(first)
    if read is None:
        raise SqlError(
            f"{tokens[0].text!r} begins no statement",
            token_position(tokens[0]),
            nearest(first, _BEGINNINGS) or f"There are {', '.join(sorted(_BEGINNINGS))}.",
        )
    try:
        statement = read(reader, text)
    except RecursionError:
        raise too_deep(token_position(tokens[0])) from None
    reader.end()
    return statement
