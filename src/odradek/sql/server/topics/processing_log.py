"""The processing log of a server: its topic, its stream, and the entries of queries that the server answers itself.

Queries with Spark write their entries from Spark's tasks (`odradek.spark.dead_letters.left_out`).
"""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.client.producer.aio import AsyncProducer
from odradek.config.options import GivenOptions
from odradek.dead_letters.processing_log import (
    ENTRIES_MAX,
    ROWS_INCLUDE,
    STREAM_AUTO_CREATE,
    STREAM_COLUMNS,
    STREAM_NAME,
    TOPIC_AUTO_CREATE,
    TOPIC_NAME,
    ProcessingLog,
)
from odradek.model.errors import OdradekError
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock
from odradek.sql.language.rewriting import quoted
from odradek.sql.metastore.catalog import Catalog
from odradek.sql.server.topics.source_topics import SourceTopics
from odradek.telemetry import events

_log = events.get("sql")
_EVERY_S: Final = 1.0
STREAM_DEFAULT: Final = "KSQL_PROCESSING_LOG"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingLogTerms:
    """The settings of the processing log.

    `topic`: None means the service id and `_ksql_processing_log`.
    """

    topic: str | None = None
    creates_topic: bool = True
    stream: str = STREAM_DEFAULT
    creates_stream: bool = True
    includes_rows: bool = False

    @classmethod
    def of(cls, settings: GivenOptions) -> Self:
        """Reads ksqlDB's settings among the server's settings."""
        return cls(
            topic=settings.text(TOPIC_NAME) or None,
            creates_topic=settings.flag(TOPIC_AUTO_CREATE),
            stream=settings.text(STREAM_NAME) or STREAM_DEFAULT,
            creates_stream=settings.flag(STREAM_AUTO_CREATE),
            includes_rows=settings.flag(ROWS_INCLUDE),
        )


class ServerProcessingLog:
    """The processing log, as the server writes it.

    `start` before queries do. `terms` None: there is none, and all calls do nothing.
    """

    def __init__(
        self,
        terms: ProcessingLogTerms | None,
        service_id: str,
        topics: SourceTopics,
        producer: AsyncProducer,
        clock: Clock | None = None,
    ) -> None:
        self._terms = terms
        self._topics = topics
        self._producer = producer
        self._clock = clock or SystemClock()
        self.topic: Final = "" if terms is None else terms.topic or f"{service_id}_ksql_processing_log"
        self.is_open = False
        """The topic is there; known after `start`."""
        self._waiting: deque[bytes] = deque()
        self._beyond: dict[str, int] = {}
        """Records without an entry, by query."""
        self._sending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Makes the topic, if it is set to. Without a topic the log is off, and the server logs why."""
        if self._terms is None:
            return
        try:
            if self._terms.creates_topic:
                await self._topics.ensure_topic(self.topic)
            self.is_open = await self._topics.sizes(self.topic) is not None
            reason = "there is no such topic"
        except OdradekError as error:
            reason = str(error)
        if not self.is_open:
            _log.warning("sql_processing_log_off", topic=self.topic, reason=reason)

    def stream_statement(self, catalog: Catalog) -> str | None:
        """Returns the statement that makes the stream; None where it is there, or is not to be made."""
        terms = self._terms
        if terms is None or not terms.creates_stream or not self.is_open or terms.stream in catalog.sources:
            return None
        return (
            f"CREATE STREAM IF NOT EXISTS {quoted(terms.stream)} ({STREAM_COLUMNS})"
            f" WITH (KAFKA_TOPIC='{self.topic.replace(chr(39), chr(39) * 2)}', VALUE_FORMAT='JSON')"
        )

    def of(self, query_id: str) -> ProcessingLog | None:
        """Returns the log to which a query writes its entries; None: it writes none."""
        if self._terms is None or not self.is_open:
            return None
        includes_rows = self._terms.includes_rows
        return ProcessingLog(topic=self.topic, logger=f"processing.{query_id}", includes_rows=includes_rows)

    def note(self, query_id: str, record: ConsumerRecord, reason: str) -> None:
        """Notes that a query of the server's own leaves out a record. It does not wait: entries beyond a bound are counted."""
        where = self.of(query_id)
        if where is None:
            return
        if len(self._waiting) >= ENTRIES_MAX:
            self._beyond[query_id] = self._beyond.get(query_id, 0) + (record.topic != self.topic)
            return
        origin = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "key": _text(record.key),
            "value": _text(record.value),
        }
        failure = {"origin": origin, "message": reason, "stage": "scan"}
        entry = where.entry(failure, self._clock.wall_ms())
        if entry is not None:
            self._waiting.append(entry)
            if self._sending is None:
                self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        """Sends what waits, once a second at most."""
        while self._waiting:
            await self._send_waiting()
            await asyncio.sleep(_EVERY_S)
        self._sending = None

    async def _send_waiting(self) -> None:
        entries, count_waiting = list(self._waiting), len(self._waiting)
        for query_id, count in self._beyond.items():
            where = self.of(query_id)
            if where is not None and count:
                entries.append(where.more(count, self._clock.wall_ms()))
        self._beyond.clear()
        try:
            await asyncio.gather(*(self._producer.send_and_wait(self.topic, entry) for entry in entries))
        except OdradekError as error:
            _log.warning("sql_processing_log_lost", topic=self.topic, entries=len(entries), reason=str(error))
        for _ in range(count_waiting):
            self._waiting.popleft()

    async def close(self) -> None:
        """Sends what waits. Idempotent."""
        if self._sending is not None:
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending
            self._sending = None
        if self._waiting:
            await self._send_waiting()


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
