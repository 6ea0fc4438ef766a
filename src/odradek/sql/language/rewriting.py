"""Completes the texts of statements: a CREATE gets the columns and the id of its schema, and names and properties stay as they
are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from sqlglot import Token

from odradek.sql.language.dialect import tokens_of
from odradek.sql.language.parsing import parse_one
from odradek.sql.language.statements import CreateSource, Properties, PropertyValue, Statement
from odradek.values.errors import SqlError

T = TypeVar("T", bound=Statement)
_DEFAULT_FORMAT: Final = "ksql.persistence.default.format."


def with_columns(text: str, columns: Sequence[str]) -> str:
    """Adds columns after the present ones. `columns`: as they are written, such as ``ID` INTEGER KEY`."""
    tokens = tokens_of(text)
    after_name = _after_name(tokens)
    listed = ", ".join(columns)
    if after_name < len(tokens) and tokens[after_name].text == "(":
        end = tokens[_closing(tokens, after_name)].start
        return f"{text[:end]}, {listed}{text[end:]}"
    index = tokens[after_name - 1].end + 1
    return f"{text[:index]} ({listed}){text[index:]}"


def with_default_formats(statement: T, properties: Mapping[str, str]) -> T | CreateSource:
    """Returns a CREATE whose WITH names no format, with the formats of the properties `ksql.persistence.default.format.…`."""
    if not isinstance(statement, CreateSource):
        return statement
    written = {name for name, _ in statement.properties}
    has_key = any(column.role in ("key", "primary key") for column in statement.columns)
    formats = {
        f"{part.upper()}_FORMAT": properties[f"{_DEFAULT_FORMAT}{part}"]
        for part in (("key", "value") if has_key else ("value",))
        if properties.get(f"{_DEFAULT_FORMAT}{part}")
        and written.isdisjoint(("FORMAT", f"{part.upper()}_FORMAT"))
    }
    if not formats:
        return statement
    complete = parse_one(with_properties(statement.text, formats))
    assert isinstance(complete, CreateSource)
    return complete


def with_properties(text: str, properties: Mapping[str, int | str]) -> str:
    """Adds `properties` to the WITH clause."""
    if not properties:
        return text
    listed = ", ".join(f"{name}={_constant(value)}" for name, value in properties.items())
    tokens = tokens_of(text)
    index = _after_name(tokens)
    if index < len(tokens) and tokens[index].text == "(":
        index = _closing(tokens, index) + 1
    if index < len(tokens) and tokens[index].text.upper() == "WITH":
        closing = _closing(tokens, index + 1)
        comma = "" if closing == index + 2 else ", "
        end = tokens[closing].start
        return f"{text[:end]}{comma}{listed}{text[end:]}"
    end = tokens[index - 1].end + 1
    return f"{text[:end]} WITH ({listed}){text[end:]}"


def _after_name(tokens: Sequence[Token]) -> int:
    """Returns the place of what follows CREATE … STREAM name, or TABLE name."""
    for index, token in enumerate(tokens):
        if token.text.upper() in ("STREAM", "TABLE"):
            has_condition = [part.text.upper() for part in tokens[index + 1 : index + 4]] == [
                "IF",
                "NOT",
                "EXISTS",
            ]
            return index + (5 if has_condition else 2)
    raise SqlError("only CREATE STREAM and CREATE TABLE have columns and properties")


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[index].text, 0)
        if depth == 0:
            return index
    raise SqlError("a bracket is opened and does not end")


def quoted(name: str) -> str:
    """Returns a name in quotes, which keep its case."""
    return "`" + name.replace("`", "``") + "`"


def with_clause(properties: Properties) -> str:
    """Returns a WITH clause with a space before it; an empty text where there are no properties."""
    if not properties:
        return ""
    written = (f"{name}={_constant(value)}" for name, value in properties)
    return f" WITH ({', '.join(written)})"


def _constant(value: PropertyValue) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else str(value)
