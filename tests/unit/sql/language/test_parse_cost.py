"""The cost of a text grows with its length, whatever is repeated in it; what nests has a bound, and an error that says so."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from typing import Any, Final

import pytest

from odradek.sql.analysis.expressions import ExpressionCompiler
from odradek.sql.analysis.scope import NameScope, ScopedColumn
from odradek.sql.language import parsing
from odradek.sql.language.dialect import LEVELS_MAX, NESTING_MAX
from odradek.sql.language.parsing import parse
from odradek.sql.language.statements import SelectStatement
from odradek.sql.metastore.catalog import Catalog
from odradek.sql.queries.expressions import LocalScope, NeedsSpark
from odradek.values.errors import SqlError
from odradek.values.types import BOOLEAN, DOUBLE, INTEGER

WHERE: Final = "SELECT * FROM s WHERE "
REPEATED: Final = {
    "a statement": ("SHOW STREAMS;", ""),
    "a statement with lines": ("SHOW\n\nSTREAMS;\n", ""),
    "an insert": ("INSERT INTO s VALUES ('a', 1);", ""),
    "a variable": ("DEFINE a = 'b';", ""),
    "an opened comment": ("/*", ""),
    "a comment": ("/* x */", "SHOW STREAMS;"),
    "a line comment": ("-- x\n", "SHOW STREAMS;"),
    "a quote": ("'", ""),
    "a name in quotes": ("`a` ", ""),
    "dollars": ("$$", ""),
    "a semicolon": (";", ""),
    "an IN list": (WHERE + "n IN (1", ",1", ");"),
    "ORs": (WHERE + "n = 1", " OR n = 1", ";"),
    "ANDs": (WHERE + "n = 1", " AND n = 1", ";"),
    "subqueries": (WHERE + "n = 1", " AND n IN (SELECT m FROM t)", ";"),
    "columns": ("SELECT a", ", a", " FROM s EMIT CHANGES;"),
    "arguments": (WHERE + "F(1", ", 1", ") = 1;"),
    "elements": ("INSERT INTO s VALUES (ARRAY[1", ", 1", "]);"),
    "fields": ("CREATE STREAM s (a INT", ", a INT", ") WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');"),
    "a struct's fields": (
        "CREATE STREAM s (a STRUCT<b INT",
        ", b INT",
        ">) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');",
    ),
    "branches": (WHERE + "CASE WHEN n = 1 THEN 1", " WHEN n = 1 THEN 1", " END = 1;"),
}


def _text(kind: str, count: int) -> str:
    parts = REPEATED[kind]
    before, repeated, after = parts if len(parts) == 3 else ("", *parts)
    return before + repeated * count + after


def _calls(text: str) -> int:
    """Functions, of Python and of C, that are called while the text is parsed and its condition compiled."""
    count = 0

    def counted(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(counted)
    try:
        with suppress(SqlError):
            for statement in parse(text, {}):
                if isinstance(statement, SelectStatement) and statement.query.where is not None:
                    with suppress(NeedsSpark):
                        LocalScope({"N": INTEGER}).compiled(statement.query.where)
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize("kind", REPEATED)
def test_twice_as_much_costs_twice_as_much(kind: str) -> None:
    parse("SHOW STREAMS;", {})
    once, twice = _calls(_text(kind, 50)), _calls(_text(kind, 100))
    assert twice <= 2.2 * once + 100


class _CountedText(str):
    """A text that counts the characters that are copied out of it."""

    __slots__ = ()
    copied = 0

    def __getitem__(self, key: Any) -> str:
        made = str.__getitem__(self, key)
        type(self).copied += len(made)
        return made


@pytest.mark.parametrize("kind", REPEATED)
def test_the_text_is_copied_once_at_most(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenized = 0
    tokens_of = parsing.tokens_of

    def counted(text: str) -> Any:
        nonlocal tokenized
        tokenized += len(text)
        return tokens_of(text)

    monkeypatch.setattr(parsing, "tokens_of", counted)
    monkeypatch.setattr(_CountedText, "copied", 0)
    text = _CountedText(_text(kind, 300))
    with suppress(SqlError):
        parse(text, {})
    assert tokenized <= len(text)
    assert _CountedText.copied <= len(text)


NESTED: Final = {
    "brackets": ("(", "1", ")"),
    "calls": ("F(", "1", ")"),
    "arrays": ("ARRAY[", "1", "]"),
    "indexes": ("m[", "1", "]"),
    "CASE": ("CASE WHEN true THEN ", "1", " ELSE 1 END"),
    "NOT": ("NOT ", "true", ""),
    "minus": ("-(", "1", ")"),
    "signs": ("- ", "1", ""),
    "casts": ("CAST(", "1", " AS INT)"),
    "sums": ("1 + ", "1", ""),
    "quotients": ("1e0 / (", "1e0", ")"),
    "BETWEEN": ("(", "true", ") BETWEEN false AND true"),
    "operands": ("CASE ", "1", " WHEN 1 THEN 1 END"),
    "members": ("(", "true", ") IN (true, false)"),
    "subqueries": ("n IN (SELECT n FROM s WHERE ", "true", ")"),
}


@pytest.mark.parametrize("kind", NESTED)
def test_deep_nesting_is_refused_in_one_line(kind: str) -> None:
    before, inside, after = NESTED[kind]
    for count in (200, 1_000):
        with pytest.raises(SqlError, match="nest too deeply"):
            parse(WHERE + before * count + inside + after * count + ";", {})


@pytest.mark.parametrize("kind", NESTED)
def test_nesting_within_the_bound_is_compiled_or_refused_in_one_line(kind: str) -> None:
    """Some operators write an operand twice: their text must not grow without end, nor must the work."""
    before, inside, after = NESTED[kind]
    columns = {"N": INTEGER, "D": DOUBLE}
    scope = NameScope(
        columns=tuple(
            ScopedColumn(source="S", name=name, type=of, text=name) for name, of in columns.items()
        ),
        sources=("S",),
    )
    (statement,) = parse(WHERE + before * (NESTING_MAX - 4) + inside + after * (NESTING_MAX - 4) + ";", {})
    assert isinstance(statement, SelectStatement)
    where = statement.query.where
    assert where is not None
    with suppress(SqlError):
        assert len(ExpressionCompiler(scope=scope, catalog=Catalog()).typed(where).text) < 8 << 20
    with suppress(SqlError, NeedsSpark):
        LocalScope(columns).compiled(where).of({"N": 1, "D": 1.0})


def test_chains_of_any_length_are_one_level() -> None:
    text = WHERE + " OR ".join(["n = 1"] * 5_000) + " AND n = 2" * 5_000 + ";"
    (statement,) = parse(text, {})
    assert isinstance(statement, SelectStatement)
    assert statement.query.where is not None
    local = LocalScope({"N": INTEGER}).compiled(statement.query.where)
    assert local.type == BOOLEAN
    assert local.of({"N": 1}) is True
    assert LEVELS_MAX < 5_000


def test_variables_do_not_let_a_text_grow_without_end() -> None:
    with pytest.raises(SqlError, match="characters with its variables"):
        parse("INSERT INTO s VALUES ('${a}${a}'); " * 5, {"a": "x" * 1_000_000})


def test_positions_count_from_the_beginning_of_the_whole_text() -> None:
    for text, position in (
        ("SHOW STREAMS; SHOW\nSTREAMS; NONSENSE a;", (2, 10)),
        ("SHOW STREAMS; SELECT 'a", (1, 22)),
        ("SHOW STREAMS;\n SHOW STREAMS; SHOW ${a};", (2, 21)),
        ("/* ; */ SHOW STREAMS; SELECT * FRM s;", (1, 32)),
    ):
        with pytest.raises(SqlError) as caught:
            parse(text, {})
        assert caught.value.position == position
