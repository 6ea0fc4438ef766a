"""The processing log of a server: a stream with the records that its queries leave out, and why."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.sql.running_server import sql_server

from odradek.client import Producer
from odradek.dead_letters.processing_log import ENTRIES_MAX
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.runtime.real_clock import SystemClock
from odradek.sql.server.properties import SERVER_SETTINGS, PropertyUse
from odradek.sql.server.topics.processing_log import ProcessingLogTerms, ServerProcessingLog
from odradek.testing import LocalBroker

CREATE = "CREATE STREAM s (k STRING KEY, a INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);"


def test_what_queries_leave_out_can_be_selected(tmp_path: Path) -> None:
    terms = ProcessingLogTerms(includes_rows=True)
    with LocalBroker() as broker:
        with sql_server(broker.address, "logged", tmp_path, processing_log=terms) as client:
            client.execute(CREATE)
            with Producer(broker.address) as producer:
                producer.send("s", b'{"a": 1}', key=b"x", timestamp_ms=5)
                producer.send("s", b"{oops", key=b"x", timestamp_ms=6)
                producer.send("s", b'{"a": 2}', key=b"x", timestamp_ms=-7)
                producer.send("s", b'{"a": 3}', key=b"x", timestamp_ms=0)
            with client.query("SELECT a FROM s;") as rows:
                assert [row for row in rows if row] == [[1], [3]]
            with client.query(
                "SELECT * FROM KSQL_PROCESSING_LOG EMIT CHANGES LIMIT 2;",
                properties={"auto.offset.reset": "earliest"},
            ) as entries:
                first, second = list(entries)
            names = [name for name, _ in entries.columns]
        assert names == ["LOGGER", "LEVEL", "TIME", "MESSAGE"]
        logger, level, _, message = first
        assert (logger, level) == ("processing.S_pull.deserializer", "ERROR")
        assert message["TYPE"] == 0
        error = message["DESERIALIZATIONERROR"]
        assert (error["topic"], error["partition"], error["offset"], error["TARGET"]) == ("s", 0, 1, "value")
        assert base64.b64decode(error["RECORDB64"]) == b"{oops"
        assert "JSON" in error["CAUSE"][0]
        assert second[3]["DESERIALIZATIONERROR"]["CAUSE"] == ["the timestamp: -7 is negative"]
        # a server that is started again finds topic and stream, and is content
        with sql_server(broker.address, "logged", tmp_path, processing_log=terms) as client:
            listed = client.execute("SHOW STREAMS;")[0]["streams"]
            assert [stream["name"] for stream in listed] == ["KSQL_PROCESSING_LOG", "S"]


def test_a_server_without_a_processing_log_topic_serves_nevertheless(tmp_path: Path) -> None:
    terms = ProcessingLogTerms(creates_topic=False, topic="nowhere")
    with (
        LocalBroker() as broker,
        sql_server(broker.address, "unlogged", tmp_path, processing_log=terms) as client,
    ):
        client.execute(CREATE)
        with Producer(broker.address) as producer:
            producer.send("s", b"{oops")
        with client.query("SELECT a FROM s;") as rows:
            assert list(rows) == []
        assert [stream["name"] for stream in client.execute("SHOW STREAMS;")[0]["streams"]] == ["S"]


class _Brokers:
    """Topics and a producer that keep what they are asked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.error = error

    async def ensure_topic(self, topic: str) -> None:
        pass

    async def sizes(self, topic: str) -> tuple[int, int]:
        return 1, 1

    async def send_and_wait(self, topic: str, value: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append(json.loads(value))


def bad_record(offset: int, topic: str = "t") -> Any:
    return SimpleNamespace(topic=topic, partition=0, offset=offset, key=None, value=b"x")


async def opened(brokers: Any) -> ServerProcessingLog:
    log = ServerProcessingLog(ProcessingLogTerms(topic="the-log"), "x", brokers, brokers, SystemClock())
    await log.start()
    return log


async def test_a_million_bad_rows_of_a_server_are_a_hundred_entries_and_a_count() -> None:
    brokers = _Brokers()
    log = await opened(brokers)
    for offset in range(ENTRIES_MAX + 9):
        log.note("q", bad_record(offset), "the value: no JSON")
    await log.close()
    assert len(brokers.sent) == ENTRIES_MAX + 1
    last = brokers.sent[-1]["message"]["recordProcessingError"]
    assert last["errorMessage"].startswith("9 more records were left out")


async def test_records_of_the_log_itself_are_not_noted_in_it() -> None:
    brokers = _Brokers()
    log = await opened(brokers)
    for offset in range(ENTRIES_MAX + 9):
        log.note("q", bad_record(offset, "the-log"), "the value: no JSON")
    await log.close()
    assert brokers.sent == []


async def test_entries_that_cannot_be_written_stop_nothing() -> None:
    brokers = _Brokers(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"))
    log = await opened(brokers)
    log.note("q", bad_record(1), "the value: no JSON")
    await asyncio.sleep(0)
    await log.close()
    brokers.error = None
    log.note("q", bad_record(2), "the value: no JSON")
    await log.close()
    assert [entry["message"]["deserializationError"]["offset"] for entry in brokers.sent] == [2]


def terms_of(**settings: str) -> ProcessingLogTerms:
    given = {f"ksql.logging.processing.{name.replace('_', '.')}": text for name, text in settings.items()}
    return ProcessingLogTerms.of(SERVER_SETTINGS.given(given, PropertyUse.START))


def test_the_settings_are_ksqldbs() -> None:
    terms = terms_of(rows_include="TRUE", topic_name="a")
    assert (terms.includes_rows, terms.topic, terms.creates_stream) == (True, "a", True)
    assert terms_of() == ProcessingLogTerms()
    assert terms_of(
        stream_auto_create="false", stream_name="s", topic_auto_create="false"
    ) == ProcessingLogTerms(stream="s", creates_stream=False, creates_topic=False)
    with pytest.raises(ConfigError, match=r"rows\.include is true or false, not 'maybe'"):
        terms_of(rows_include="maybe")
