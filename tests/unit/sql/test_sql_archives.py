"""CREATE ARCHIVE and DROP ARCHIVE as changes of the catalog, and how archives are shown."""

from __future__ import annotations

import pytest

from odradek.archive.row_columns import Derived, ValueFormat
from odradek.sql.applying import apply
from odradek.sql.archives import query_archive
from odradek.sql.changes import ArchiveCreated, ArchiveDropped, QueryPaused, QueryStarted, QueryStopped
from odradek.sql.language import parse, parse_one
from odradek.sql.language.statements import CreateArchive, CreateAsSelect
from odradek.sql.metastore.catalog import SqlCatalog
from odradek.sql.queries.engine import QueryFailure
from odradek.sql.server.archives import described_archive
from odradek.sql.server.command_log.state import command_id
from odradek.sql.server.entities import QueryHealth, described_source, listed_query
from odradek.sql.shell.rendering import TextTable, rendered

SOURCES = (
    "CREATE STREAM s (id INT KEY, a STRING) WITH (KAFKA_TOPIC='s-topic', VALUE_FORMAT='JSON');"
    "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT) WITH (KAFKA_TOPIC='t-topic', VALUE_FORMAT='JSON');"
)


def catalog_of(text: str) -> SqlCatalog:
    catalog = SqlCatalog()
    for number, statement in enumerate(parse(SOURCES + text)):
        catalog = apply(catalog, statement, number).catalog
    return catalog


def test_an_archive_has_what_its_statement_says() -> None:
    catalog = catalog_of(
        "CREATE ARCHIVE a FROM s WITH (PATH='/lake/a', FORMAT='ICEBERG', VALUE='string', EVERY='90 SECONDS',"
        " FILE_BYTES='8MiB', SKIP_LOST=TRUE, PARTITION_BY='topic; day=coalesce(date(timestamp), current_date())');"
    )
    archive = catalog.archive("A")
    assert (archive.source.topic, str(archive.location), archive.table_format) == (
        "s-topic",
        "/lake/a",
        "iceberg",
    )
    assert (archive.every_ms, archive.file_bytes, archive.skips_lost) == (90_000, 8 << 20, True)
    assert (archive.with_columns, archive.columns.value) == (False, ValueFormat.STRING)
    assert archive.columns.key_as_string
    assert archive.columns.partition_by == (
        Derived(name="topic", expression="topic"),
        Derived(name="day", expression="coalesce(date(timestamp), current_date())"),
    )
    query = catalog.query(archive.query_id)
    assert (query.id, query.sources, query.fills_archive) == ("ARCHIVE_A_2", ("S",), True)


def test_a_table_may_be_archived_too() -> None:
    archive = catalog_of("CREATE ARCHIVE a FROM t WITH (PATH='s3://lake/a', REGION='eu-north-1');").archive(
        "A"
    )
    assert (archive.source.topic, archive.location.region, archive.table_format) == (
        "t-topic",
        "eu-north-1",
        None,
    )
    assert archive.with_columns


@pytest.mark.parametrize(
    ("select", "properties", "stream"),
    [
        ("SELECT id, 'it''s' AS b FROM s", "", "CREATE STREAM `A` AS SELECT id, 'it''s' AS b FROM s"),
        (
            "SELECT id, COUNT(*) AS n FROM s GROUP BY id",
            ", KAFKA_TOPIC='it''s', PARTITIONS=2, WRAP_SINGLE_VALUE=FALSE",
            "CREATE TABLE `A` WITH (KAFKA_TOPIC='it''s', PARTITIONS=2, WRAP_SINGLE_VALUE=false) AS"
            " SELECT id, COUNT(*) AS n FROM s GROUP BY id",
        ),
    ],
)
def test_an_archive_of_a_query_is_two_statements(select: str, properties: str, stream: str) -> None:
    written = parse_one(f"CREATE ARCHIVE a WITH (PATH='/lake/a'{properties}) AS {select}")
    assert isinstance(written, CreateArchive)
    catalog = catalog_of("")
    parts = query_archive(catalog, written)
    assert [part.text for part in parts] == [stream, "CREATE ARCHIVE `A` FROM `A` WITH (PATH='/lake/a')"]
    for part in parts:  # their texts are what a server reads again
        known = parse_one(part.text)
        assert isinstance(known, CreateAsSelect | CreateArchive)
        assert (type(known), known.name, known.properties) == (type(part), part.name, part.properties)
    applied = apply(catalog, written, 7)
    assert [change.query.id for change in applied.changes if isinstance(change, QueryStarted)] == [
        f"C{'TAS' if 'GROUP' in select else 'SAS'}_A_7"
    ]
    assert applied.catalog.archive("A").source == applied.catalog.source("A")


def test_a_query_of_an_archive_is_paused_ended_and_dropped_with_it() -> None:
    catalog = catalog_of("CREATE ARCHIVE a FROM s WITH (PATH='/lake/a');")
    (paused,) = apply(catalog, parse_one("PAUSE archive_a_2"), 3).changes
    assert isinstance(paused, QueryPaused)
    ended = apply(catalog, parse_one("TERMINATE ARCHIVE_A_2"), 3).catalog
    assert (list(ended.queries), list(ended.archives)) == ([], ["A"])
    assert apply(ended, parse_one("DROP STREAM s"), 4).catalog.archive("A").source.name == "S"
    dropped = apply(catalog, parse_one("DROP ARCHIVE a DELETE FILES"), 3)
    assert [type(change) for change in dropped.changes] == [QueryStopped, ArchiveDropped]
    assert (list(dropped.catalog.queries), list(dropped.catalog.archives)) == ([], [])
    assert dropped.message == "Archive `A` was dropped. Its files at /lake/a were deleted."
    again = apply(dropped.catalog, parse_one("DROP ARCHIVE IF EXISTS a"), 4)
    assert (again.changes, again.message) == ((), "Archive `A` does not exist.")


def test_an_archive_that_is_there_is_no_error_where_that_is_said() -> None:
    catalog = catalog_of("CREATE ARCHIVE a WITH (PATH='/lake/a') AS SELECT id, a FROM s;")
    for text in ("FROM s WITH (PATH='/lake/b')", "WITH (PATH='/lake/b') AS SELECT id FROM s"):
        applied = apply(catalog, parse_one(f"CREATE ARCHIVE IF NOT EXISTS a {text}"), 9)
        assert (applied.changes, applied.catalog) == ((), catalog)


def test_an_archive_that_has_the_name_of_a_stream_writes_nothing_to_it() -> None:
    catalog = catalog_of("CREATE ARCHIVE s FROM s WITH (PATH='/lake/s');")
    described = described_source(catalog, catalog.source("S"), {}, None)
    assert [query["id"] for query in described["readQueries"]] == ["ARCHIVE_S_2"]
    assert described["writeQueries"] == []
    listed = listed_query(catalog, catalog.query("ARCHIVE_S_2"), QueryHealth())
    assert (listed["sinks"], listed["sinkKafkaTopics"]) == (["S"], [])


def test_commands_of_archives_have_ids() -> None:
    texts = ("CREATE ARCHIVE a FROM s WITH (PATH='/a')", "DROP ARCHIVE a")
    assert [command_id(parse_one(text)) for text in texts] == ["archive/`A`/create", "archive/`A`/drop"]


def test_the_query_of_an_archive_is_explained() -> None:
    statement = parse_one("CREATE ARCHIVE a FROM s WITH (PATH='/lake/a', EVERY='1 MINUTE')")
    (created,) = apply(catalog_of(""), statement, 2).changes
    assert isinstance(created, ArchiveCreated)
    failure = QueryFailure(reason="it is full", at_ms=1_000)
    health = QueryHealth(state="ERROR", failure_count=2, failing_since_ms=1_000, failures=(failure,))
    described = described_archive(created.archive, "ARCHIVE_A_2", health)
    assert described["executionPlan"].splitlines() == [
        "write to archive A at /lake/a, delta, a batch at least every 60 s",
        "  native: columns of S, with topic, partition and offset",
        "    native: read topic s-topic from where the archive ends",
    ]
    shown = list(rendered({"@type": "queryDescription", "queryDescription": described}))
    assert "Failing              : 2 times since 1970-01-01 00:00:01Z" in shown
    assert "Problem              : 1970-01-01 00:00:01Z it is full" in shown


def test_archives_are_shown() -> None:
    archive = {
        "name": "A",
        "source": "S",
        "topic": "s-topic",
        "format": "delta",
        "path": "/lake/a",
        "queryId": "ARCHIVE_A_2",
        "state": "RUNNING",
    }
    (table,) = rendered({"@type": "archives", "archives": [archive]})
    assert isinstance(table, TextTable)
    assert table.rows == (("A", "S", "delta", "/lake/a", "ARCHIVE_A_2", "RUNNING"),)
    description = {
        **archive,
        "value": "COLUMNS",
        "partitionBy": ["day"],
        "problem": None,
        "extended": True,
        "rows": 1200,
        "files": 3,
        "bytes": 4567,
        "statement": "CREATE ARCHIVE …",
        "fields": [{"name": "ID", "schema": {"type": "INTEGER"}, "type": "KEY"}],
        "partitions": [{"partition": 0, "position": 1200, "end": 1201, "behind": 1}],
    }
    *lines, fields, partitions = rendered({"@type": "archiveDescription", "archiveDescription": description})
    assert "Holds                : 1,200 rows, 3 files, 4,567 bytes" in lines
    assert "Partitioned by       : day" in lines
    assert isinstance(fields, TextTable)
    assert fields.rows == (("ID", "INTEGER  (key)"),)
    assert isinstance(partitions, TextTable)
    assert partitions.rows == (("0", "1200", "1201", "1"),)
