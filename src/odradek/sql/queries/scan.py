"""Queries that one consumer answers: push queries over a stream or a table's changes, pull queries over a stream, PRINT.

They see committed records only. A record that cannot be read is left out and logged, as with ksqlDB.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.client.admin.aio import AsyncAdmin
from odradek.client.consumer.aio import AsyncConsumer
from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.model.aliases import ClientSettings
from odradek.model.ids import TopicPartition
from odradek.sql.language.queries import Query
from odradek.sql.language.statements import PrintTopic
from odradek.sql.queries.answer import COMPLETED, LIMIT_REACHED, AnswerColumn, QueryAnswer
from odradek.sql.queries.source_rows import LocalSelection, SourceRows
from odradek.telemetry import events
from odradek.values.formats.format_info import WindowInfo
from odradek.values.formats.row_codec import UnreadableRecord
from odradek.values.rows import Row, SqlValue
from odradek.values.times import moment_text

_log = events.get("sql")
_POLL_S: Final = 1.0
_POLL_RECORDS_MAX: Final = 2_000


def by_time(records: Sequence[ConsumerRecord]) -> list[ConsumerRecord]:
    """Merges partitions by time. Each keeps the order of its offsets, whatever its timestamps are: a record comes with the
    latest timestamp that its partition has had."""
    latest: dict[int, int] = {}
    times = []
    for record in records:
        time_ms = max(latest.get(record.partition, record.timestamp_ms), record.timestamp_ms)
        latest[record.partition] = time_ms
        times.append(time_ms)
    return [records[index] for index in sorted(range(len(records)), key=times.__getitem__)]


@dataclass(slots=True)
class TopicReading:
    """A consumer on all partitions of a topic. `ends`: where to stop; None: never."""

    consumer: AsyncConsumer
    ends: Mapping[TopicPartition, int] | None

    @classmethod
    async def begin(
        cls, servers: str, settings: ClientSettings, topic: str, *, earliest: bool, to_end: bool
    ) -> TopicReading:
        """Begins to read. KafkaError UNKNOWN_TOPIC_OR_PARTITION when there is no such topic."""
        async with AsyncAdmin(servers, **settings) as admin:
            partitions = (await admin.describe_topics([topic]))[topic].topic_partitions
            ends = await admin.list_offsets(dict.fromkeys(partitions, -1), isolation=1)
            starts = await admin.list_offsets(dict.fromkeys(partitions, -2)) if earliest else ends
        consumer = AsyncConsumer(
            servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            **settings,
        )
        await consumer.start()
        try:
            await consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, starts[partition].offset)
        except BaseException:
            await consumer.close()
            raise
        last = {partition: offset.offset for partition, offset in ends.items()}
        return cls(consumer, last if to_end else None)

    async def records(self) -> AsyncGenerator[list[ConsumerRecord]]:
        """Yields records as they come; an empty list when nothing came for a second. A reading to the end yields them by
        time."""
        while self.ends is None or not await self.has_read(self.ends):
            records = await self.consumer.poll(_POLL_S, _POLL_RECORDS_MAX)
            if self.ends is not None:
                ends = self.ends
                records = [
                    record
                    for record in records
                    if record.offset < ends[TopicPartition(record.topic, record.partition)]
                ]
            yield by_time(records)

    async def has_read(self, ends: Mapping[TopicPartition, int]) -> bool:
        for partition, end in ends.items():
            if end > 0 and await self.consumer.position(partition) < end:
                return False
        return True


async def scanned(
    servers: str,
    settings: ClientSettings,
    query: Query,
    rows: SourceRows,
    chosen: LocalSelection,
    *,
    query_id: str | None,
    earliest: bool,
    leave_out: Callable[[ConsumerRecord, str], None] = lambda record, reason: None,
) -> QueryAnswer:
    """Answers a push query (`query.emit`), or reads all of a stream as it is now. `leave_out` is called with records that
    are no rows, and why."""
    reading = await TopicReading.begin(
        servers, settings, rows.source.topic, earliest=earliest, to_end=query.emit is None
    )

    left = query.limit

    async def batches() -> AsyncIterator[list[list[SqlValue]]]:
        nonlocal left
        if left == 0:
            return
        async for records in reading.records():
            batch: list[list[SqlValue]] = []
            await rows.learn([(record.key, record.value) for record in records])
            for record in records:
                row = _row(rows, record, leave_out)
                if row is None or not chosen.passes(row):
                    continue
                batch.append(chosen.shown(row))
                if left is not None:
                    left -= 1
                    if left == 0:
                        yield batch
                        return
            yield batch

    return QueryAnswer(
        query_id=query_id,
        columns=chosen.columns,
        rows=batches(),
        close=reading.consumer.close,
        ending=lambda: LIMIT_REACHED if left == 0 else COMPLETED,
    )


def _row(
    rows: SourceRows, record: ConsumerRecord, leave_out: Callable[[ConsumerRecord, str], None]
) -> Row | None:
    """Returns the row of a record. None if it is left out: it cannot be read, or its time is negative."""
    coordinates = {
        "ROWTIME": record.timestamp_ms,
        "ROWPARTITION": record.partition,
        "ROWOFFSET": record.offset,
    }
    try:
        row = rows.row(record.key, record.value, coordinates)
        if row is None:
            return None
        timestamp_ms = row["ROWTIME"]
        assert isinstance(timestamp_ms, int | float), timestamp_ms
        if timestamp_ms >= 0:
            return row
        raise UnreadableRecord(f"the timestamp: {timestamp_ms} is negative")
    except UnreadableRecord as error:
        leave_out(record, str(error))
        _log.warning(
            "sql_record_unreadable",
            source=rows.source.name,
            partition=f"{record.topic}-{record.partition}",
            offset=record.offset,
            reason=str(error),
        )
        return None


async def printed(
    servers: str,
    settings: ClientSettings,
    statement: PrintTopic,
    query_id: str,
    window: WindowInfo | None = None,
) -> QueryAnswer:
    """Prints records of any kind as text, for PRINT. `window`: the source's window; keys are then [key@start/end]."""
    reading = await TopicReading.begin(
        servers, settings, statement.topic, earliest=statement.from_beginning, to_end=False
    )

    left = statement.limit

    async def batches() -> AsyncIterator[list[list[SqlValue]]]:
        nonlocal left
        seen = 0
        if left == 0:
            return
        async for records in reading.records():
            batch: list[list[SqlValue]] = []
            for record in records:
                seen += 1
                if (seen - 1) % max(1, statement.interval):
                    continue
                batch.append(
                    [
                        f"{moment_text(record.timestamp_ms)}Z",
                        _printed_key(record.key, window),
                        _printed_bytes(record.value),
                        record.partition,
                    ]
                )
                if left is not None:
                    left -= 1
                    if left == 0:
                        yield batch
                        return
            yield batch

    names = (("ROWTIME", "STRING"), ("KEY", "STRING"), ("VALUE", "STRING"), ("PARTITION", "INTEGER"))
    return QueryAnswer(
        query_id=query_id,
        columns=tuple(AnswerColumn(name=name, type=kind) for name, kind in names),
        rows=batches(),
        close=reading.consumer.close,
        ending=lambda: LIMIT_REACHED if left == 0 else COMPLETED,
    )


def _printed_key(data: bytes | None, window: WindowInfo | None) -> str | None:
    size_bytes = 0 if window is None else 16 if window.size_ms is None else 8
    if data is None or window is None or len(data) < size_bytes:
        return _printed_bytes(data)
    start_ms = int.from_bytes(data[-8:], "big")
    end_ms = int.from_bytes(data[-16:-8], "big") if window.size_ms is None else start_ms + window.size_ms
    return f"[{_printed_bytes(data[:-size_bytes])}@{start_ms}/{end_ms}]"


def _printed_bytes(data: bytes | None) -> str | None:
    """Prints bytes: text as it is; an integer of Java's serializers as a number; anything else as hexadecimal digits."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and text.isprintable():
        return text
    if text is not None:
        try:
            json.loads(text)
            return text
        except (ValueError, RecursionError):
            pass
    if len(data) in (4, 8):
        return str(int.from_bytes(data, "big", signed=True))
    return "0x" + data.hex()
