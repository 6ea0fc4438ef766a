"""Text to statements: `parse`. Statements end with a semicolon; the last one need not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from odradek.sql.errors import SqlError, nearest
from odradek.sql.language.commands import COMMANDS
from odradek.sql.language.definitions import DEFINITIONS
from odradek.sql.language.dialect import place, tokens_of
from odradek.sql.language.reading import StatementReader
from odradek.sql.language.statements import DefineVariable, Statement, UndefineVariable

_SKIPPED: Final = re.compile(
    r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|\$\$.*?\$\$|(;)", re.DOTALL
)
_VARIABLE: Final = re.compile(r"\$\{([^}\s]*)\}")
_BEGINNINGS: Final = {**DEFINITIONS, **COMMANDS}


def parse(text: str, variables: Mapping[str, str] | None = None) -> list[Statement]:
    """The statements of a text. `variables`: what `${name}` stands for; DEFINE and UNDEFINE in the text change that for what
    follows. None: they are replaced already, and what looks like one is part of a value. SqlError for the first that is wrong.
    """
    known = {name.upper(): value for name, value in (variables or {}).items()}
    statements: list[Statement] = []
    for start, written in _split(text):
        replaced = written if variables is None else _substituted(written, known, text, start)
        statement = _statement(_in_place(text, start, replaced))
        if statement is None:
            continue
        if isinstance(statement, DefineVariable):
            known[statement.name.upper()] = statement.value
        elif isinstance(statement, UndefineVariable):
            known.pop(statement.name.upper(), None)
        statements.append(statement)
    return statements


def parse_one(text: str, variables: Mapping[str, str] | None = None) -> Statement:
    """SqlError unless it is one statement."""
    statements = parse(text, variables)
    if len(statements) != 1:
        raise SqlError(f"one statement is needed, and there are {len(statements)}")
    return statements[0]


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Where each statement begins, and its text."""
    start = 0
    for match in _SKIPPED.finditer(text):
        if match[1]:
            yield start, text[start : match.start()]
            start = match.end()
    yield start, text[start:]


def _in_place(text: str, start: int, written: str) -> str:
    """The statement with as many lines and columns before it as it has in the whole text, so that positions are right."""
    before = text[:start]
    column = start - (before.rfind("\n") + 1)
    return "\n" * before.count("\n") + " " * column + written


def _substituted(written: str, known: Mapping[str, str], text: str, start: int) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1].upper()
        if name not in known:
            place_in_text = start + match.start()
            line_start = text.rfind("\n", 0, place_in_text) + 1
            raise SqlError(
                f"the variable {match[1]} is not defined",
                (text.count("\n", 0, place_in_text) + 1, place_in_text - line_start + 1),
                nearest(name, known) or f"Write DEFINE {match[1]} = '…'; before.",
            )
        return known[name]

    return _VARIABLE.sub(value, written)


def _statement(text: str) -> Statement | None:
    """None for nothing but blanks and comments."""
    tokens = tokens_of(text)
    if not tokens:
        return None
    reader = StatementReader(tokens, text)
    first = reader.word()
    read = _BEGINNINGS.get(first)
    if read is None:
        raise SqlError(
            f"{tokens[0].text!r} begins no statement",
            place(tokens[0]),
            nearest(first, _BEGINNINGS) or f"There are {', '.join(sorted(_BEGINNINGS))}.",
        )
    statement = read(reader, text)
    reader.end()
    return statement
