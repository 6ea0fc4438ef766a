"""ASSERT: what must hold of topics, schemas, sources and records. A script stops where it does not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final

from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.sql.applying import check_source
from odradek.sql.language import statements as language
from odradek.sql.language.with_properties import WITH, property_value
from odradek.sql.metastore.catalog import Source
from odradek.sql.queries.expressions import NeedsSpark, constant
from odradek.sql.queries.scan import TopicReading
from odradek.sql.queries.source_rows import SourceRows
from odradek.sql.server.entities import Entity, entity
from odradek.sql.server.parts import ServerParts
from odradek.sql.server.refusals import ASSERT_FAILED, RestRefusal
from odradek.values.errors import SqlError, nearest
from odradek.values.formats.row_codec import UnreadableRecord
from odradek.values.rows import Row, SqlValue
from odradek.values.types import BIGINT, SqlType

_ASSERT_S: Final = 1.0
_LOOK_S: Final = 0.1
_SHOWN_MAX: Final = 3


class Assertions:
    """Runs ASSERT statements. Each method returns an entity, or refuses with ASSERT_FAILED when its time is over."""

    def __init__(self, parts: ServerParts) -> None:
        self._parts = parts

    async def source(self, statement: language.AssertSource) -> Entity:
        problem = check_source(self._parts.catalog, statement)
        if problem is not None:
            raise RestRefusal(ASSERT_FAILED, problem, statement=statement.text)
        return entity(f"assert_{statement.kind}", statement.text + ";", name=statement.name)

    async def schema(self, statement: language.AssertSchema) -> Entity:
        """Waits until it holds, or the time is over."""
        left_s = _ASSERT_S if statement.timeout_ms is None else statement.timeout_ms / 1000
        subject, schema_id = statement.subject, statement.schema_id
        while await self._parts.schemas.is_registered(subject, schema_id, statement) != statement.exists:
            if left_s <= 0:
                observed = "does not exist" if statement.exists else "exists"
                named = " with ".join(
                    [
                        *([] if subject is None else [f"subject name {subject}"]),
                        *([] if schema_id is None else [f"id {schema_id}"]),
                    ]
                )
                raise RestRefusal(ASSERT_FAILED, f"Schema with {named} {observed}.", statement=statement.text)
            await asyncio.sleep(_LOOK_S)
            left_s -= _LOOK_S
        return entity(
            "assert_schema", statement.text + ";", subject=subject, id=schema_id, exists=statement.exists
        )

    async def topic(self, statement: language.AssertTopic) -> Entity:
        """Waits until it holds, or the time is over."""
        left_s = _ASSERT_S if statement.timeout_ms is None else statement.timeout_ms / 1000
        wanted = dict(statement.properties)
        while True:
            sizes = await self._parts.topics.sizes(statement.topic)
            if (sizes is not None) == statement.exists:
                break
            if left_s <= 0:
                observed = "does not exist" if statement.exists else "exists"
                raise RestRefusal(
                    ASSERT_FAILED, f"Topic {statement.topic} {observed}.", statement=statement.text
                )
            await asyncio.sleep(_LOOK_S)
            left_s -= _LOOK_S
        for name, actual in zip(("PARTITIONS", "REPLICAS"), sizes or (), strict=False):
            if name in wanted and property_value(WITH, name, wanted[name], statement.position) != actual:
                raise RestRefusal(
                    ASSERT_FAILED,
                    f"Mismatched configuration for topic {statement.topic}: For config {name.lower()}, expected"
                    f" {wanted[name]} got {actual}.",
                    statement=statement.text,
                )
        return entity(
            "assert_topic", statement.text + ";", topicName=statement.topic, exists=statement.exists
        )

    async def values(self, statement: language.AssertValues) -> Entity:
        """A record of a source has these values; of ASSERT NULL VALUES: this key, and no value. SqlError.

        As in ksqlDB's testing tool, a column that is not named is null, and only a ROWTIME that is named is compared.
        """
        source = self._parts.catalog.source(statement.source, statement.position)
        try:
            rows = SourceRows.of(source)
        except NeedsSpark:
            raise SqlError(
                f"ASSERT VALUES does not read {source.name}, which has headers, or a timestamp of text",
                statement.position,
                "Write CREATE STREAM … AS SELECT of the other columns, and assert that.",
            ) from None
        expected = _expected(source, statement)
        left_s = _ASSERT_S if statement.timeout_ms is None else statement.timeout_ms / 1000
        wanted = _WantedRecord(rows, expected, is_tombstone=statement.tombstone)
        reading = await self._parts.reading(source.topic)
        try:
            is_there = await wanted.is_in(reading, left_s)
        finally:
            await reading.consumer.close()
        if not is_there:
            raise RestRefusal(ASSERT_FAILED, wanted.problem(), statement=statement.text)
        kind = "assert_null_values" if statement.tombstone else "assert_values"
        return entity(kind, statement.text + ";", name=source.name)


def _expected(source: Source, statement: language.AssertValues) -> Row:
    """Returns the expected record. SqlError for columns and values that it cannot have."""
    kinds: dict[str, SqlType] = {column.name: column.type for column in source.columns}
    bounds = () if source.window is None else ("WINDOWSTART", "WINDOWEND")
    keys = (*(column.name for column in source.key), *bounds)
    all_columns = keys if statement.tombstone else (*keys, *(column.name for column in source.value))
    names = statement.columns or all_columns
    if len(names) != len(statement.values):
        raise SqlError(
            f"ASSERT needs a value for each column: {', '.join(names)}. There are {len(statement.values)} values",
            statement.position,
        )
    row: dict[str, SqlValue] = dict.fromkeys(all_columns)
    for name, value in zip(names, statement.values, strict=True):
        if name not in all_columns and name != "ROWTIME":
            if statement.tombstone and name in kinds:
                raise SqlError(
                    f"ASSERT NULL VALUES has key columns only, and `{name}` is a value", statement.position
                )
            raise SqlError(
                f"Column name `{name}` does not exist.", statement.position, nearest(name, all_columns)
            )
        row[name] = constant(value, kinds.get(name, BIGINT))
    return row


class _WantedRecord:
    """Looks for a record. `seen`: the last ones that were others."""

    def __init__(self, rows: SourceRows, expected: Row, *, is_tombstone: bool) -> None:
        self._rows = rows
        self._expected = expected
        self._is_tombstone = is_tombstone
        self._seen: deque[str] = deque(maxlen=_SHOWN_MAX)

    async def is_in(self, reading: TopicReading, left_s: float) -> bool:
        """Tells whether the expected record is among the present records, or those that come within `left_s`."""
        ends, reading.ends = reading.ends or {}, None
        batches = reading.records()
        try:
            while not await reading.has_read(ends):
                if await self._is_among(await anext(batches)):
                    return True
            async with asyncio.timeout(left_s):
                async for records in batches:
                    if await self._is_among(records):
                        return True
        except TimeoutError:
            return False
        finally:
            await batches.aclose()
        return False

    async def _is_among(self, records: list[ConsumerRecord]) -> bool:
        await self._rows.learn([(record.key, record.value) for record in records])
        return any(self._is_it(record) for record in records)

    def _is_it(self, record: ConsumerRecord) -> bool:
        coordinates = {"ROWTIME": record.timestamp_ms}
        try:
            if self._is_tombstone:
                row = None if record.value is not None else self._rows.key_row(record.key, coordinates)
            else:
                row = self._rows.row(record.key, record.value, coordinates)
        except UnreadableRecord as error:
            self._seen.append(f"offset {record.offset}, which cannot be read: {error}")
            return False
        if row is None:
            self._seen.append("a record without a value" if record.value is None else "a record with a value")
            return False
        row = {name: row.get(name) for name in self._expected}
        self._seen.append(_shown(row))
        return row == self._expected

    def problem(self) -> str:
        source = self._rows.source.name
        what = "tombstone" if self._is_tombstone else "record"
        last = "It has no records." if not self._seen else f"The last ones: {'; '.join(self._seen)}."
        return f"{source} has no such {what}. Expected {_shown(self._expected)}. {last}"


def _shown(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {'NULL' if value is None else repr(value)}" for name, value in row.items())
