"""The error statistics of DESCRIBE EXTENDED: records that queries leave out, by topic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.kit.waiting import eventually
from tests.sql.case_server import case_server
from tests.unit.sql.running_server import sql_server

from odradek.client import Producer
from odradek.dead_letters.processing_log import ProcessingLog
from odradek.sql.applying import apply
from odradek.sql.language import parse
from odradek.sql.metastore.catalog import SqlCatalog
from odradek.sql.queries.engine import QueryFailure
from odradek.sql.rest_client import RestClient
from odradek.sql.server.topics.error_statistics import ErrorCounts, TopicErrors
from odradek.sql.server.topics.processing_log import ProcessingLogTerms
from odradek.sql.shell.rendering import rendered
from odradek.testing import LocalBroker

SOURCES = (
    "CREATE STREAM s (k STRING KEY, a INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');"
    "CREATE STREAM t (k STRING KEY, a INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');"
    "CREATE STREAM o AS SELECT * FROM s;"
    "CREATE STREAM p AS SELECT s.k, s.a FROM s JOIN t WITHIN 1 SECOND ON s.k = t.k;"
)
NOW_MS = 1_700_000_000_000
LOG = ProcessingLog(topic="log", logger="processing.CSAS_O_2")
FAILED = "consumer-failed-messages"


def catalog() -> SqlCatalog:
    known = SqlCatalog()
    for number, statement in enumerate(parse(SOURCES)):
        known = apply(known, statement, number).catalog
    return known


def entry(topic: str, message: str = "the value: no JSON", log: ProcessingLog = LOG) -> bytes:
    origin = {"topic": topic, "partition": 0, "offset": 7, "key": None, "value": None}
    content = log.entry({"origin": origin, "message": message, "stage": "scan"}, NOW_MS)
    assert content is not None
    return content


def counted(*entries: bytes | None, at_ms: int = NOW_MS) -> ErrorCounts:
    counts = ErrorCounts()
    counts.note(catalog(), [(content, at_ms) for content in entries], NOW_MS)
    return counts


def test_entries_are_counted_by_the_topic_of_their_record() -> None:
    counts = counted(entry("s"), entry("s", "it cannot be computed"), entry("t"))
    assert (counts.of("s").count, counts.of("t").count, counts.of("O").count) == (2, 1, 0)
    assert counts.of("s").last_ms == NOW_MS


def test_records_without_an_entry_of_their_own_count_for_the_topic_that_the_query_reads() -> None:
    of_join = ProcessingLog(topic="log", logger="processing.CSAS_P_3")
    counts = counted(entry("s"), LOG.more(900, NOW_MS), of_join.more(70, NOW_MS))
    assert counts.of("s").count == 901  # the join reads two topics, and its entry does not say which
    assert counts.of("t").count == 0


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{",
        b"[" * 100_000,
        b"[]",
        b"null",
        b'{"logger": 1, "message": {}}',
        json.dumps({"logger": "processing.q.more", "message": {"deserializationError": "s"}}).encode(),
        entry("s").replace(b'"topic": "s"', b'"topic": ["s"]'),
        entry("s").replace(b'"topic": "s"', b'"topic": ""'),
        LOG.more(10**30, NOW_MS),
    ],
)
def test_what_is_no_entry_does_not_count(content: bytes | None) -> None:
    assert counted(content, entry("s")).of("s").count == 1


def test_foreign_topics_and_those_that_were_dropped_are_not_kept() -> None:
    counts = counted(*(entry(f"foreign-{number}") for number in range(50)), entry("s"), entry("t"))
    assert [counts.of(topic).count for topic in ("foreign-7", "s", "t")] == [0, 1, 1]
    counts.keep({"t"})
    assert [counts.of(topic).count for topic in ("s", "t")] == [0, 1]


def test_the_text_is_that_of_ksqldb() -> None:
    assert TopicErrors().text(NOW_MS) == ""
    assert TopicErrors().entities("h:1", NOW_MS) == []
    errors = TopicErrors()
    errors.add(90, NOW_MS - 30_000)
    assert errors.text(NOW_MS) == (
        "consumer-failed-messages:        90 consumer-failed-messages-per-sec:      1.50 "
        "     last-failed: 2023-11-14T22:12:50.000Z"
    )
    errors.add(30, NOW_MS)
    assert errors.entities("h:1", NOW_MS) == [
        {"host": "h:1", "name": FAILED, "value": 120.0, "timestamp": NOW_MS},
        {"host": "h:1", "name": f"{FAILED}-per-sec", "value": 2.0, "timestamp": NOW_MS},
    ]
    assert errors.per_second(NOW_MS + 60_000) == 0


def test_times_of_the_future_are_now() -> None:
    errors = counted(entry("s"), at_ms=NOW_MS + 10**9).of("s")
    assert errors.last_ms == NOW_MS


CREATE = (
    "CREATE STREAM s (k STRING KEY, a INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);"
    "CREATE STREAM u (k STRING KEY, a INT) WITH (KAFKA_TOPIC='u', VALUE_FORMAT='JSON', PARTITIONS=1);"
)


def statistics_of(client: RestClient, name: str) -> tuple[str, dict[str, float]]:
    described = client.execute(f"DESCRIBE {name} EXTENDED;")[0]["sourceDescription"]
    values = {stat["name"]: stat["value"] for stat in described["clusterErrorStats"]}
    hosts = {stat["host"] for stat in described["clusterErrorStats"]}
    assert hosts == ({client.url.partition("://")[2]} if values else set())
    return described["errorStats"], values


def test_describe_extended_has_the_records_that_were_left_out(tmp_path: Path) -> None:
    terms = ProcessingLogTerms()
    with LocalBroker() as broker:
        with sql_server(broker.address, "failed", tmp_path, processing_log=terms) as client:
            client.execute(CREATE)
            assert statistics_of(client, "s") == ("", {})
            with Producer(broker.address) as producer:
                for value in (b'{"a": 1}', b"{oops", b"{oh", b'{"a": 2}'):
                    producer.send("s", value, key=b"x")
                producer.send("default", b"not JSON")
                producer.send_and_wait("failed_ksql_processing_log", b"not ours")
            with client.query("SELECT a FROM s;") as rows:
                assert [row for row in rows if row] == [[1], [2]]
            text, values = wait_for_count(client, "s", 2)
            assert f"{FAILED}:         2 " in text
            assert values[f"{FAILED}-per-sec"] > 0
            assert statistics_of(client, "u") == ("", {})
            assert client.execute("DESCRIBE s;")[0]["sourceDescription"]["errorStats"] == ""
        with sql_server(broker.address, "failed", tmp_path, processing_log=terms) as client:
            assert statistics_of(client, "s") == ("", {})  # they count from the start of the server


def test_a_server_without_a_processing_log_has_no_statistics(tmp_path: Path) -> None:
    with LocalBroker() as broker, sql_server(broker.address, "unlogged", tmp_path) as client:
        client.execute(CREATE)
        assert statistics_of(client, "s") == ("", {})


def test_show_queries_extended_has_the_plan_and_the_last_errors_of_each(tmp_path: Path) -> None:
    with LocalBroker() as broker, case_server(broker.address, tmp_path, runs_queries=False) as server:
        client = server.client
        client.execute(
            CREATE + "CREATE STREAM o AS SELECT k, a + 1 AS b FROM s; INSERT INTO u SELECT * FROM s;"
        )
        (failing_id, other_id) = server.sql.catalog.queries
        failing = server.sql.engine.wanted[failing_id]
        failing.state, failing.failure_count, failing.failing_since_ms = "ERROR", 2, NOW_MS
        failing.failures.append(QueryFailure(reason="the topic s is gone", at_ms=NOW_MS))
        (described,) = client.execute("SHOW QUERIES EXTENDED;")
        (explained,) = client.execute(f"EXPLAIN {failing_id};")
    assert described["@type"] == "query_descriptions"
    first, other = described["queryDescriptions"]
    assert first == explained["queryDescription"]
    assert (first["id"], first["sources"], first["sinks"]) == (failing_id, ["S"], ["O"])
    assert first["queryErrors"] == [
        {"timestamp": NOW_MS, "errorMessage": "the topic s is gone", "type": "UNKNOWN"}
    ]
    assert (first["state"], first["ksqlHostQueryStatus"]) == ("ERROR", {server.sql.address: "ERROR"})
    assert "read stream S" in first["executionPlan"]
    assert (other["id"], other["state"], other["queryErrors"]) == (other_id, "RUNNING", [])
    shown = "\n".join(map(str, rendered(described)))
    assert "the topic s is gone" in shown
    assert other_id in shown


def wait_for_count(client: RestClient, name: str, count: int) -> tuple[str, dict[str, float]]:
    """The server writes entries once a second."""
    return eventually(
        lambda: statistics_of(client, name),
        f"{count} errors of {name}",
        holds=lambda statistics: statistics[1].get(FAILED, 0) >= count,
        every_s=0.1,
    )
