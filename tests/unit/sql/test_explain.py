"""EXPLAIN: the operators of a query, what each of them keeps, and which one is refused."""

from __future__ import annotations

import pytest

from odradek.pipelines.carrying import sink_id as program_sink_id
from odradek.pipelines.outlining import outline_of_streams
from odradek.sql.applying import apply
from odradek.sql.language import parse, parse_one
from odradek.sql.metastore.catalog import SqlCatalog
from odradek.sql.planning import Plan, explain, explained_plan, sink_id
from odradek.sql.queries.channel import StartArchive, StartQuery
from odradek.sql.queries.engine import SupervisedQuery
from odradek.sql.server.entities import QueryHealth, described_plan
from odradek.streams import Streams
from odradek.values.errors import SqlError

SOURCES = """
CREATE STREAM s (id INT KEY, a STRING, n INT) WITH (KAFKA_TOPIC='s-topic', VALUE_FORMAT='JSON');
CREATE TABLE t (id INT PRIMARY KEY, b STRING) WITH (KAFKA_TOPIC='t-topic', VALUE_FORMAT='JSON');
CREATE TABLE w (id INT PRIMARY KEY, m INT)
  WITH (KAFKA_TOPIC='w-topic', VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOUR', RETENTION_MS=5);
"""


def explained(written: str) -> Plan:
    catalog = SqlCatalog()
    for number, statement in enumerate(parse(SOURCES)):
        catalog = apply(catalog, statement, number).catalog
    return explained_plan(catalog, parse_one(written))


def fields(written: str) -> list[tuple[str, bool]]:
    """The names that a client sees, and whether each is of the key."""
    described = described_plan(explained(written), "", written, None)
    return [(field["name"], field.get("type") == "KEY") for field in described["fields"]]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("SELECT a, COUNT(*) AS c FROM s GROUP BY a EMIT CHANGES;", [("A", True), ("C", False)]),
        ("SELECT COUNT(*) AS c, a AS x FROM s GROUP BY a EMIT CHANGES;", [("C", False), ("X", True)]),
        ("SELECT COUNT(*) AS c FROM s GROUP BY a EMIT CHANGES;", [("C", False)]),
        ("SELECT n, id FROM s EMIT CHANGES;", [("N", False), ("ID", True)]),
        ("CREATE TABLE x AS SELECT COUNT(*) AS c, a FROM s GROUP BY a;", [("A", True), ("C", False)]),
    ],
)
def test_each_column_is_listed_once(written: str, shown: list[tuple[str, bool]]) -> None:
    assert fields(written) == shown


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (
            "CREATE TABLE x AS SELECT w.id, m, b FROM w LEFT JOIN t ON w.id = t.id;",
            [
                "write to topic X, key KAFKA, value JSON",
                "  native: select M, B",
                "    stateful: left join of windowed table and table by a part of its key, windows held 5 ms after their end",
                "      native: read table W from topic w-topic",
                "      stateful: read table T from topic t-topic",
            ],
        ),
        (
            "CREATE TABLE x AS SELECT w.id, b FROM w JOIN t ON w.m = t.id;",
            [
                "write to topic X, key KAFKA, value JSON",
                "  native: select B",
                "    stateful: inner join of windowed table and table by another column",
                "      stateful: read table W from topic w-topic",
                "      stateful: read table T from topic t-topic",
            ],
        ),
        (
            "SELECT b, COUNT(*) AS c FROM t GROUP BY b EMIT CHANGES;",
            [
                "native: select B, C",
                "  stateful: aggregate COUNT by B",
                "    native: select G_0, NOTHING_",
                "      stateful: read table T from topic t-topic",
            ],
        ),
        (
            "SELECT s.id, b FROM s JOIN t ON s.id = t.id PARTITION BY b EMIT CHANGES;",
            [
                "native: select S_ID, B",
                '  native: partition by "B"',
                "    stateful: inner join of stream and table",
                "      native: read stream S from topic s-topic",
                "      native: read table T from topic t-topic",
            ],
        ),
    ],
)
def test_operators_are_native_or_stateful(written: str, lines: list[str]) -> None:
    assert explain(explained(written)).splitlines() == lines


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (
            "CREATE STREAM x AS SELECT s.id, m FROM s JOIN w ON s.id = w.id WHERE n > 1;",
            [
                "refused: join: a record of S is in no window, so that it has none in common with W."
                " GROUP S BY its key in the same WINDOW, and join the two tables.",
                "  native: read stream S from topic s-topic",
                "  native: read table W from topic w-topic",
            ],
        ),
        (
            "CREATE TABLE x AS SELECT id, COUNT(*) AS c FROM w WHERE id IN (SELECT id FROM t) GROUP BY id;",
            [
                "refused: aggregate: GROUP BY on windowed sources is not supported. Select AS_VALUE(key) AS … and WINDOWSTART"
                " AS … where the windows are made, declare their topic again as a stream whose key is BYTES, without"
                " WINDOW_TYPE, and group that.",
                "  stateful: inner join of windowed table and table by a part of its key, windows held 5 ms after their end",
                "    native: read table W from topic w-topic",
                "    native: select ID_1",
                "      stateful: read table T from topic t-topic",
            ],
        ),
        (
            "CREATE TABLE x AS SELECT y.id, y.z FROM (SELECT id, n + 1 AS z FROM s) y;",
            [
                "refused: write: Invalid result type. Your SELECT query produces a STREAM. Please use CREATE STREAM AS"
                " SELECT statement instead of CREATE TABLE. Write CREATE STREAM X AS …, or GROUP BY",
                "  native: select Z",
                "    native: select ID_0, Z_0",
                "      native: read stream S from topic s-topic",
            ],
        ),
    ],
)
def test_the_operator_that_is_refused_says_what_to_write(written: str, lines: list[str]) -> None:
    with pytest.raises(SqlError) as refused:
        explained(written)
    assert str(refused.value.hint).splitlines() == lines


def test_a_source_that_is_not_there_is_an_error_alone() -> None:
    with pytest.raises(SqlError) as refused:
        explained("SELECT * FROM absent EMIT CHANGES;")
    assert "refused" not in str(refused.value)


@pytest.mark.parametrize(
    "written",
    [
        "CREATE STREAM x AS SELECT id, a FROM s;",
        "CREATE STREAM x WITH (TIMESTAMP='m') AS SELECT id, CAST(n AS BIGINT) AS m FROM s;",
        "CREATE TABLE x AS SELECT a, COUNT(*) AS c FROM s GROUP BY a;",
        "CREATE TABLE x AS SELECT a, MAX(n) AS m FROM s WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY a;",
        "CREATE STREAM x AS SELECT s.id AS id, s.a, t.b FROM s JOIN t ON s.id = t.id;",
    ],
)
def test_the_group_of_a_query_is_that_of_its_program(written: str) -> None:
    """The group is named without a program, so that a server lists queries without Spark's modules: both must agree."""
    app = Streams("sql.tests.Q_1")
    explained(written).build(app)
    (output,) = outline_of_streams(app.program).outputs
    assert sink_id("sql.tests.Q_1") == program_sink_id(outline_of_streams(app.program), output)


def test_a_query_that_runs_shows_its_group() -> None:
    order = StartQuery(
        query_id="Q_1", name="sql.tests.Q_1", build=lambda app: None, servers="", options={}, checkpoint=""
    )
    health = QueryHealth.of(SupervisedQuery(order=order))
    described = described_plan(explained("CREATE STREAM x AS SELECT id, a FROM s;"), "Q_1", "", health)
    assert described["consumerGroupId"] == "__odradek_sink.sql.tests.Q_1.to-1"
    archive = StartArchive(query_id="A_1", start=lambda spark, checkpoint: None)
    assert "consumerGroupId" not in QueryHealth.of(SupervisedQuery(order=archive)).members
