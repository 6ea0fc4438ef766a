"""Topics of streams and tables: made when a statement asks for it, deleted with DELETE TOPIC; where queries begin to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.client import NewTopic
from odradek.client.admin.aio import AsyncAdmin
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.sql.metastore.catalog import Source
from odradek.values.errors import SqlError
from odradek.values.times import moment_text

RESET: Final = "auto.offset.reset"
_EARLIEST, _LATEST, _MAX_TIMESTAMP = -2, -1, -3
_RATE_S: Final = 60
_FIRST_TIME_MS: Final = -62_135_596_800_000
_TIME_END_MS: Final = 253_402_300_800_000
"""The years 1 to 9999, in which a date can be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatistics:
    """The current statistics of a topic. `message_count` goes by offsets: it counts compacted records and ends of transactions.
    `recent_count`: records with a timestamp of the last minute. `last_message_ms`: the latest timestamp; None without one.
    """

    message_count: int
    recent_count: int
    last_message_ms: int | None

    @property
    def text(self) -> str:
        """The statistics as ksqlDB words them."""
        rate = self.recent_count / _RATE_S
        text = f"messages-per-sec: {rate:.2f} total-messages: {self.message_count}"
        last = self.last_message_ms
        if last is None:
            return text
        is_date = _FIRST_TIME_MS <= last < _TIME_END_MS
        return f"{text} last-message: {f'{moment_text(last)}Z' if is_date else last}"


@dataclass(frozen=True, slots=True)
class SourceTopics:
    """The topics of sources: created, deleted and measured.

    `settings`: of the admin client.
    """

    servers: str
    settings: ClientSettings = field(repr=False)

    def _admin(self) -> AsyncAdmin:
        return AsyncAdmin(self.servers, **self.settings)

    async def sizes(self, topic: str) -> tuple[int, int] | None:
        """Returns the numbers of partitions and replicas; None when there is no such topic."""
        async with self._admin() as admin:
            try:
                described = (await admin.describe_topics([topic]))[topic]
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return None
                raise
        return len(described.partitions), max(len(partition.replicas) for partition in described.partitions)

    async def statistics(self, topic: str, now_ms: int) -> TopicStatistics | None:
        """Returns a topic's statistics for DESCRIBE EXTENDED; None when there is no such topic."""
        async with self._admin() as admin:
            try:
                partitions = (await admin.describe_topics([topic]))[topic].topic_partitions
                starts = await admin.list_offsets(dict.fromkeys(partitions, _EARLIEST))
                recent = await admin.list_offsets(dict.fromkeys(partitions, now_ms - _RATE_S * 1000))
                newest = await admin.list_offsets(dict.fromkeys(partitions, _MAX_TIMESTAMP))
                ends = await admin.list_offsets(
                    dict.fromkeys(partitions, _LATEST)
                )  # last, so that no count is negative
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return None
                raise
        times = [newest[partition].timestamp_ms for partition in partitions if newest[partition].offset >= 0]
        return TopicStatistics(
            message_count=sum(ends[partition].offset - starts[partition].offset for partition in partitions),
            recent_count=sum(
                ends[partition].offset - recent[partition].offset
                for partition in partitions
                if recent[partition].offset >= 0
            ),
            last_message_ms=max(times, default=None),
        )

    async def listed(self) -> dict[str, list[int]]:
        """Returns the replicas of each partition, by topic; without internal topics."""
        async with self._admin() as admin:
            names = sorted(await admin.list_topics())
            described = await admin.describe_topics(names) if names else {}
        return {name: [len(partition.replicas) for partition in described[name].partitions] for name in names}

    async def check_declared(self, source: Source) -> None:
        """Checks for CREATE STREAM or TABLE that the topic exists, or that PARTITIONS is set. SqlError."""
        present = await self.sizes(source.topic)
        if present is None:
            if source.partitions is None:
                raise SqlError(
                    f"Kafka topic does not exist: {source.topic}",
                    hint="Write PARTITIONS=1 in the WITH clause to make it.",
                )
        elif source.partitions is not None and source.partitions != present[0]:
            raise SqlError(
                f"A Kafka topic with the name '{source.topic}' already exists, with different partition/replica"
                f" configuration than required. KSQL expects {source.partitions} partitions (topic has {present[0]})"
            )

    async def ensure_declared(self, source: Source) -> None:
        """Makes the topic of CREATE STREAM or TABLE if PARTITIONS is set, and the topic of its dead letters. Idempotent."""
        if source.partitions is not None:
            await self._make(source, source.partitions)
        if source.bad is not None:
            await self._create(NewTopic(source.bad, 1))

    async def ensure_topic(self, topic: str) -> None:
        """Makes a topic with one partition. Idempotent."""
        await self._create(NewTopic(topic, 1))

    async def ensure_sink(self, sink: Source, like: Source) -> None:
        """Makes a query's topic with as many partitions as the topic of `like`, unless WITH states another number."""
        if await self.sizes(sink.topic) is not None:
            return
        present = await self.sizes(like.topic)
        await self._make(sink, sink.partitions or (1 if present is None else present[0]))

    async def _make(self, source: Source, partitions: int) -> None:
        configs = {}
        if source.is_table:
            configs["cleanup.policy"] = "compact" if source.window is None else "compact,delete"
        configs |= dict(source.topic_settings)
        await self._create(NewTopic(source.topic, partitions, source.replicas or -1, configs=configs))

    async def _create(self, topic: NewTopic) -> None:
        async with self._admin() as admin:
            try:
                await admin.create_topics([topic])
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    async def delete(self, topic: str) -> None:
        """Deletes a topic. Idempotent."""
        async with self._admin() as admin:
            try:
                await admin.delete_topics([topic])
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise

    async def starting(
        self, sources: tuple[Source, ...], properties: Mapping[str, str]
    ) -> dict[str, dict[int, int]]:
        """Returns the ends of the topics that a query reads from their ends: streams, unless `auto.offset.reset` is earliest;
        tables only if it is latest, as with Kafka Streams.
        """
        reset = properties.get(RESET)
        latest = [
            source.topic for source in sources if reset == "latest" or (reset is None and not source.is_table)
        ]
        return await self.ends(sorted(set(latest)))

    async def ends(self, topics: list[str]) -> dict[str, dict[int, int]]:
        """Returns the offset that the next record gets, by topic and partition."""
        if not topics:
            return {}
        async with self._admin() as admin:
            described = await admin.describe_topics(topics)
            partitions = [partition for topic in described.values() for partition in topic.topic_partitions]
            ends = await admin.list_offsets(dict.fromkeys(partitions, _LATEST))
        by_topic: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        for partition, end in ends.items():
            by_topic[partition.topic][partition.partition] = end.offset
        return by_topic


def starting_options(starting: Mapping[str, Mapping[int, int]]) -> dict[str, str]:
    """Returns the option `startingOffsets` for each topic."""
    return {
        topic: json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})
        for topic, offsets in starting.items()
    }
