"""Text to statements: what each statement of the language becomes, and what is said about a wrong one."""

from __future__ import annotations

import pytest

from odradek.sql.language import parse, parse_one
from odradek.sql.language.queries import JoinRelation, SelectStar
from odradek.sql.language.statements import (
    AlterQuery,
    AlterSource,
    AlterSwap,
    AlterSystem,
    AssertSchema,
    AssertSource,
    AssertTopic,
    AssertValues,
    CreateArchive,
    CreateAsSelect,
    CreateFunction,
    CreateSource,
    CreateType,
    DefineVariable,
    Describe,
    DescribeAll,
    DescribeArchive,
    DescribeFunction,
    DropArchive,
    DropFunction,
    DropSource,
    DropType,
    Explain,
    InsertIntoSelect,
    InsertValues,
    PrintTopic,
    QueryControl,
    RunScript,
    SelectStatement,
    SetProperty,
    Show,
    Spool,
    UndefineVariable,
    UnsetProperty,
)
from odradek.sql.queries.builds import PlannedText
from odradek.sql.server.command_log.commands import SqlCommand
from odradek.sql.server.command_log.state import ServiceState
from odradek.values.errors import SqlError

EACH = [
    (
        "CREATE STREAM s (a INT) WITH (kafka_topic='s', value_format='JSON')",
        CreateSource,
        {"kind": "stream", "name": "S"},
    ),
    (
        "create or replace table `t` (a INT PRIMARY KEY) WITH (format='JSON')",
        CreateSource,
        {"name": "t", "or_replace": True},
    ),
    ("CREATE SOURCE TABLE t (a INT PRIMARY KEY) WITH (format='JSON')", CreateSource, {"read_only": True}),
    ("CREATE STREAM IF NOT EXISTS s (a INT) WITH (partitions=3)", CreateSource, {"if_not_exists": True}),
    ("CREATE STREAM s WITH (partitions=1) AS SELECT * FROM t", CreateAsSelect, {"kind": "stream"}),
    ("CREATE TABLE s AS SELECT a, COUNT(*) FROM t GROUP BY a", CreateAsSelect, {"kind": "table"}),
    ("INSERT INTO s SELECT * FROM t", InsertIntoSelect, {"target": "S"}),
    (
        "INSERT INTO s WITH (query_id='q') SELECT * FROM t",
        InsertIntoSelect,
        {"properties": (("QUERY_ID", "q"),)},
    ),
    ("INSERT INTO s (a, `b`) VALUES (1, 'x')", InsertValues, {"columns": ("A", "b")}),
    ("INSERT INTO s VALUES (-1, NULL, TRUE)", InsertValues, {"columns": ()}),
    ("SELECT * FROM t", SelectStatement, {}),
    ("DROP STREAM s", DropSource, {"kind": "stream", "delete_topic": False}),
    ("DROP TABLE IF EXISTS s DELETE TOPIC", DropSource, {"if_exists": True, "delete_topic": True}),
    ("DROP TYPE t", DropType, {"name": "T"}),
    ("DROP FUNCTION IF EXISTS f", DropFunction, {"if_exists": True}),
    ("ALTER STREAM s ADD COLUMN a INT, ADD b STRING", AlterSource, {"name": "S"}),
    (
        "ALTER STREAM s AS SELECT a FROM t",
        AlterQuery,
        {"kind": "stream", "name": "S", "properties": (), "query_text": "SELECT a FROM t"},
    ),
    (
        "ALTER TABLE s WITH (MODE='carry') AS SELECT a FROM t",
        AlterQuery,
        {"properties": (("MODE", "carry"),)},
    ),
    ("ALTER TABLE s SWAP", AlterSwap, {"kind": "table", "name": "S"}),
    ("EXPLAIN ALTER STREAM s AS SELECT a FROM t", Explain, {"query_id": None}),
    ("ALTER SYSTEM 'a' = 'b'", AlterSystem, {"name": "a", "value": "b"}),
    ("CREATE TYPE t AS STRUCT<a INT>", CreateType, {"name": "T"}),
    (
        "CREATE FUNCTION f(a INT) RETURNS INT AS $$ return a; $$",
        CreateFunction,
        {"kind": "scalar", "code": " return a; "},
    ),
    (
        "CREATE OR REPLACE AGGREGATE FUNCTION f(a INT) RETURNS INT LANGUAGE PYTHON AS $$x$$",
        CreateFunction,
        {"kind": "aggregate"},
    ),
    ("CREATE TABLE FUNCTION f() RETURNS INT AS $$x$$", CreateFunction, {"kind": "table", "parameters": ()}),
    (
        "CREATE ARCHIVE a FROM s WITH (PATH='/a', EVERY='1 MINUTE')",
        CreateArchive,
        {"name": "A", "source": "S", "query": None, "properties": (("PATH", "/a"), ("EVERY", "1 MINUTE"))},
    ),
    (
        "CREATE ARCHIVE IF NOT EXISTS a WITH (PATH='/a') AS SELECT 'AS', b FROM s WHERE b > 1",
        CreateArchive,
        {"source": None, "query_text": "SELECT 'AS', b FROM s WHERE b > 1", "if_not_exists": True},
    ),
    ("DROP ARCHIVE a", DropArchive, {"name": "A", "if_exists": False, "delete_files": False}),
    ("DROP ARCHIVE IF EXISTS `a` DELETE FILES", DropArchive, {"name": "a", "delete_files": True}),
    ("DESCRIBE ARCHIVE `a`", DescribeArchive, {"name": "a", "extended": False}),
    ("DESCRIBE ARCHIVE a EXTENDED", DescribeArchive, {"name": "A", "extended": True}),
    ("DESCRIBE archive EXTENDED", Describe, {"name": "ARCHIVE", "extended": True}),
    ("DESCRIBE archive", Describe, {"name": "ARCHIVE"}),
    ("TERMINATE CSAS_S_1", QueryControl, {"action": "terminate", "query_id": "CSAS_S_1"}),
    ("PAUSE ALL", QueryControl, {"action": "pause", "query_id": None}),
    ("RESUME my-query-1", QueryControl, {"query_id": "my-query-1"}),
    ("DESCRIBE s", Describe, {"name": "S", "extended": False}),
    ("DESCRIBE s EXTENDED", Describe, {"extended": True}),
    ("DESCRIBE FUNCTION len", DescribeFunction, {"name": "LEN"}),
    ("DESCRIBE STREAMS EXTENDED", DescribeAll, {"kind": "stream", "extended": True}),
    ("DESCRIBE TABLES", DescribeAll, {"kind": "table"}),
    ("EXPLAIN CSAS_S_1", Explain, {"query_id": "CSAS_S_1", "statement": None}),
    ("EXPLAIN SELECT * FROM s EMIT CHANGES", Explain, {"query_id": None}),
    *[
        (f"{word} {what}", Show, {"what": what.lower()})
        for word in ("SHOW", "LIST")
        for what in (
            "STREAMS",
            "TABLES",
            "TOPICS",
            "QUERIES",
            "ARCHIVES",
            "FUNCTIONS",
            "TYPES",
            "PROPERTIES",
            "VARIABLES",
            "CONNECTORS",
            "CONNECTOR PLUGINS",
        )
    ],
    ("SHOW STREAMS EXTENDED", Show, {"extended": True}),
    ("SHOW ALL TOPICS", Show, {"include_hidden": True}),
    (
        "PRINT 'a-topic' FROM BEGINNING INTERVAL 3 LIMIT 2",
        PrintTopic,
        {"topic": "a-topic", "from_beginning": True, "interval": 3, "limit": 2},
    ),
    ("PRINT my.Topic-1", PrintTopic, {"topic": "my.Topic-1", "limit": None}),
    ("SET 'auto.offset.reset' = 'earliest'", SetProperty, {"name": "auto.offset.reset", "value": "earliest"}),
    ("UNSET 'auto.offset.reset'", UnsetProperty, {"name": "auto.offset.reset"}),
    ("DEFINE a = 'b'", DefineVariable, {"name": "A", "value": "b"}),
    ("UNDEFINE a", UndefineVariable, {"name": "A"}),
    ("RUN SCRIPT '/a/b.sql'", RunScript, {"path": "/a/b.sql"}),
    ("SPOOL 'a.log'", Spool, {"path": "a.log"}),
    ("SPOOL OFF", Spool, {"path": None}),
    (
        "ASSERT TOPIC a WITH (PARTITIONS=3) TIMEOUT 10 SECONDS",
        AssertTopic,
        {"exists": True, "timeout_ms": 10_000},
    ),
    ("ASSERT NOT EXISTS TOPIC a", AssertTopic, {"exists": False, "timeout_ms": None}),
    ("ASSERT SCHEMA SUBJECT a-value ID 3", AssertSchema, {"subject": "a-value", "schema_id": 3}),
    ("ASSERT STREAM s (a INT KEY) WITH (kafka_topic='x')", AssertSource, {"kind": "stream"}),
    ("ASSERT VALUES s (a) VALUES (1)", AssertValues, {"tombstone": False}),
    ("ASSERT NULL VALUES s (a) KEY (1)", AssertValues, {"tombstone": True}),
]


@pytest.mark.parametrize(("text", "kind", "fields"), EACH, ids=[text for text, _, _ in EACH])
def test_a_statement_is_read(text: str, kind: type, fields: dict[str, object]) -> None:
    statement = parse_one(f"  {text} ; ")
    assert type(statement) is kind
    assert {name: getattr(statement, name) for name in fields} == fields
    assert statement.text == text


def test_columns_have_types_and_roles() -> None:
    statement = parse_one(
        "CREATE STREAM s (a INT KEY, `b` ARRAY<STRUCT<x INT, `y` STRING>>, h BYTES HEADER('q'), d DECIMAL(4, 2)) WITH (a=1)"
    )
    assert isinstance(statement, CreateSource)
    assert [(column.name, column.role, column.header) for column in statement.columns] == [
        ("A", "key", None),
        ("b", "value", None),
        ("H", "headers", "q"),
        ("D", "value", None),
    ]
    assert statement.columns[1].type == "ARRAY < STRUCT < x INT , `y` STRING > >"


def test_a_query_has_its_clauses() -> None:
    statement = parse_one(
        "SELECT a.*, b->*, *, c AS d, e f FROM x a LEFT OUTER JOIN y WITHIN (1 HOUR, 2 DAYS) GRACE PERIOD 3 MINUTES"
        " ON a.k = y.k WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 5 SECONDS, RETENTION 1 DAY, GRACE PERIOD 0 SECONDS)"
        " WHERE c > 1 GROUP BY (c, d) HAVING COUNT(*) > 1 EMIT FINAL LIMIT 3"
    )
    assert isinstance(statement, SelectStatement)
    query, relation = statement.query, statement.query.relation
    assert isinstance(relation, JoinRelation)
    assert (relation.kind, relation.within and relation.within.grace_ms) == ("left", 180_000)
    assert query.window is not None
    assert (query.window.size_ms, query.window.advance_ms, query.window.grace_ms) == (10_000, 5_000, 0)
    assert len(query.group_by) == 2
    assert (query.emit, query.limit) == ("final", 3)
    stars = [part for part in query.select if isinstance(part, SelectStar)]
    assert [star.source for star in stars] == ["A", None, None]
    assert [getattr(part, "alias", None) for part in query.select[3:]] == ["D", "F"]


EXPRESSIONS = {
    "a + b*2": '"A" + "B" * 2',
    "a->b->`c`": '"A"."B"."c"',
    "MAP('a' := 1)": "MAP('a' := 1)",
    "STRUCT(x := 1)": 'STRUCT("X" := 1)',
    "ARRAY[1, 2][-1]": "ARRAY(1, 2)[-1]",
    "REDUCE(m, 0, (s, k) => s + k)": 'REDUCE("M", 0, ("S", "K") -> "S" + "K")',
    "FILTER(x, y => y > 3)": 'FILTER("X", "Y" -> "Y" > 3)',
    "a IS NOT NULL": 'NOT "A" IS NULL',
    "a NOT IN (1, 2)": 'NOT "A" IN (1, 2)',
    "a IS DISTINCT FROM b": '"A" IS DISTINCT FROM "B"',
    "date": '"DATE"',
    "COUNT(DISTINCT x)": 'COUNT(DISTINCT "X")',
    "a LIKE 'x%' ESCAPE '!'": "\"A\" LIKE 'x%' ESCAPE '!'",
    "left(a, 1)": 'LEFT("A", 1)',
    "'it''s'": "'it''s'",
    '"aB"': '"aB"',
}


@pytest.mark.parametrize(("written", "read"), EXPRESSIONS.items())
def test_an_expression_is_a_tree(written: str, read: str) -> None:
    statement = parse_one(f"SELECT {written} FROM s")
    assert isinstance(statement, SelectStatement)
    (selected,) = statement.query.select
    assert not isinstance(selected, SelectStar)
    assert selected.expression.sql() == read


def test_several_statements_have_their_places() -> None:
    statements = parse("-- first; comment\nSHOW STREAMS;\n /* x; */ SHOW TABLES; SELECT ';' FROM s")
    assert [statement.position for statement in statements] == [(2, 1), (3, 11), (3, 24)]


def test_variables_are_replaced() -> None:
    (defined, selected, _) = parse(
        "DEFINE x = 'abc'; SELECT ${X}, '${y}' FROM s; UNDEFINE x;", {"y": "given"}
    )
    assert isinstance(defined, DefineVariable)
    assert selected.text == "SELECT abc, 'given' FROM s"


def test_a_value_that_looks_like_a_variable_is_not_replaced_again() -> None:
    (selected,) = parse("SELECT '${y}' FROM s", {"y": "${z}"})
    assert selected.text == "SELECT '${z}' FROM s"
    state = ServiceState()
    for offset, text in enumerate(
        (
            "CREATE STREAM s (word STRING) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON')",
            "CREATE STREAM t AS SELECT word FROM s WHERE word = '${z}'",
        )
    ):
        assert state.replay(offset, SqlCommand(command_id=str(offset), statement=text)) is not None
    planned = PlannedText.of(state.catalog, selected.text)
    assert "T" in planned.catalog().sources


WRONG = [
    ("SELEC * FROM x", (1, 1), "Did you mean SELECT?"),
    ("CREATE STREM x (a INT)", (1, 8), "Did you mean STREAM?"),
    ("SELECT a FROM", (1, 14), "the name of a stream or table"),
    ("SELECT a, FROM b", (1, 11), "an expression is needed"),
    ("SELECT a +\n  FROM b", (1, 10), "something is missing"),
    ("SELECT a FROM b WHERE", (1, 22), "an expression"),
    ("SELECT a FROM b WHERE a b", (1, 25), ""),
    ("SHOW STREEMS", (1, 6), "Did you mean STREAMS?"),
    ("SELECT 'a FROM b", (1, 8), "does not end"),
    ("SELECT ${x} FROM b", (1, 8), "the variable x is not defined"),
    ("SELECT * FROM a, b", (1, 16), "need a join"),
    ("SELECT * FROM a JOIN b", (1, 23), "ON is needed"),
    ("SELECT a FROM b ORDER BY c", (1, 17), "ORDER BY"),
    ("SELECT DISTINCT a FROM b", (1, 8), "GROUP BY"),
    ("CREATE SINK CONNECTOR x", (1, 1), "connectors"),
    ("SELECT a FROM b WINDOW TUMBLING (1 HOUR)", (1, 34), "SIZE"),
    ("SELECT a FROM b WINDOW HOPPING (SIZE 1 HOUR)", (1, 17), "ADVANCE BY"),
    ("SELECT a FROM b WINDOW SESSION (0 SECONDS)", (1, 17), "the gap of a session is longer than 0"),
    ("SELECT a FROM b WINDOW TUMBLING (SIZE 0 DAYS)", (1, 17), "the size of a window is longer than 0"),
    (
        "SELECT a FROM b WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 0 DAYS)",
        (1, 17),
        "advance by 1 to 3600000 ms",
    ),
    ("SELECT a FROM b WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 1 DAY)", (1, 17), "not by 86400000 ms"),
    ("SELECT a FROM b WINDOW TUMBLING (SIZE 1 FORTNIGHT)", (1, 41), "DAYS"),
    ("INSERT INTO a VALUES (1), (2)", (1, 25), "one row"),
    ("CREATE STREAM a (x INT) AS SELECT 1 FROM b", (1, 18), "no list of columns"),
    ("CREATE OR REPLACE ARCHIVE a FROM s", (1, 1), "continues where the files end"),
    ("CREATE ARCHIVE a", (1, 17), "FROM is needed"),
    ("CREATE ARCHIVE a WITH (PATH='/a')", (1, 34), "AS SELECT is needed"),
    ("SELECT CAST(a INT) FROM b", None, "CAST"),
    ("SELECT foo(a FROM b", None, "Expecting )"),
]


@pytest.mark.parametrize(("text", "position", "said"), WRONG, ids=[text for text, _, _ in WRONG])
def test_a_wrong_statement_says_where_and_what(
    text: str, position: tuple[int, int] | None, said: str
) -> None:
    with pytest.raises(SqlError) as refused:
        parse(text, {})
    assert refused.value.position is not None
    if position is not None:
        assert refused.value.position == position
    assert said in refused.value.text(text)
    assert "^" in refused.value.text(text)
