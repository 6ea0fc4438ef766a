"""A view's reader of its topic: committed records of all partitions, from given positions on, on an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.client.admin.aio import AsyncAdmin
from odradek.client.admin.types import ConfigResource
from odradek.client.consumer.completed_fetch import FetchedChunk
from odradek.client.consumer.core import ConsumerCore
from odradek.client.consumer.offset_lookup import list_epoch_ends
from odradek.client.consumer.subscription_state import EARLIEST, LATEST
from odradek.client.consumer.waiting import LoopWaiting
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.errors import ClientClosedError
from odradek.client.settings.settings import AdminSettings, ConsumerSettings
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.records.columns import Columns
from odradek.runtime.ports import Clock, Entropy

DEFAULTS: Final[ClientSettings] = {
    "isolation_level": "read_committed",
    "auto_offset_reset": "none",
    "allow_auto_create_topics": False,
    "max_partition_fetch_bytes": 4 << 20,
    "fetch_max_bytes": 16 << 20,
    "prefetch_max_bytes": 32 << 20,
    "metadata_max_age_ms": 30_000,
}
"""Offsets outside the log are for the view to judge. Partitions that are added are found within `metadata_max_age_ms`."""
ROWS_MAX: Final = 50_000
"""The rows in one write."""
_DEFAULT_TOMBSTONES_KEPT_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """The start and the end of each partition's log."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]
    """Last stable offsets."""


class Changelog:
    """One topic of one cluster. `post` runs work on the loop, from any thread."""

    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        topic: str,
        *,
        settings: ClientSettings,
        clock: Clock | None,
        entropy: Entropy | None,
        post: Callable[[Callable[[], object]], None],
    ) -> None:
        """Raises ConfigError for a setting that a view cannot have."""
        if settings.get("group_id"):
            raise ConfigError("a view reads all partitions of its topic: it takes no group_id")
        arguments = {**DEFAULTS, **settings}
        if arguments["isolation_level"] != "read_committed" or arguments["auto_offset_reset"] != "none":
            raise ConfigError(
                "a view reads committed records from the beginning: leave isolation_level and auto_offset_reset out"
            )
        self.topic: Final = topic
        self._servers = bootstrap_servers
        self._admin_settings = {
            key: value for key, value in arguments.items() if key in AdminSettings.settings
        }
        core = self._core = ConsumerCore(
            ConsumerSettings.of(bootstrap_servers, arguments),
            key_deserializer=None,
            value_deserializer=None,
            clock=clock,
            entropy=entropy,
            wake=lambda: post(core.fetcher.turn_soon),
        )
        self.clock: Final = core.clock
        self._waiting = LoopWaiting(core.assignment.news, core.clock)
        self._noted: dict[TopicPartition, int] = {}
        """The position of each partition that the view knows of."""

    def start(self) -> None:
        self._core.start()

    async def close(self) -> None:
        await self._core.finish(ClientClosedError("view"))

    # -- the topic

    async def partitions(self) -> tuple[int, ...]:
        """Returns the topic's partitions. Raises UNKNOWN_TOPIC_OR_PARTITION when there is no such topic."""
        image = await self._core.cluster.metadata.topic(self.topic, self._core.api_timeout_s)
        return tuple(range(len(image.partitions)))

    def known_partitions(self) -> int:
        """Returns the number of partitions in the last metadata; 0 while the topic is not known."""
        known = self._core.cluster.image.topics.get(self.topic)
        return 0 if known is None else len(known.partitions)

    def topic_id(self) -> UUID:
        """Returns the id of the topic that is read now; zero while it is not known."""
        return self._core.cluster.image.topic_id(self.topic)

    def topic_error(self) -> ErrorCode | None:
        """Returns the topic's error in the last metadata; None without one."""
        return self._core.cluster.image.topic_errors.get(self.topic)

    async def log_ends(self, partitions: Iterable[int]) -> LogEnds:
        """Returns the starts and ends of the logs. Raises the first error."""
        topic_partitions = [TopicPartition(self.topic, partition) for partition in partitions]
        starts = await self._core.offsets(dict.fromkeys(topic_partitions, EARLIEST), None)
        return LogEnds(
            starts={tp.partition: 0 if offset is None else offset.offset for tp, offset in starts.items()},
            ends=await self.ends(tp.partition for tp in topic_partitions),
        )

    async def ends(self, partitions: Iterable[int], timeout_s: float | None = None) -> dict[int, int]:
        """Returns the last stable offset of each partition."""
        topic_partitions = [TopicPartition(self.topic, partition) for partition in partitions]
        ends = await self._core.offsets(dict.fromkeys(topic_partitions, LATEST), timeout_s)
        return {tp.partition: 0 if offset is None else offset.offset for tp, offset in ends.items()}

    async def epoch_ends(self, epochs: Mapping[int, int]) -> dict[int, int]:
        """Returns the end offsets of these leader epochs in the leaders' logs, by partition; -1 for an epoch that the leader
        does not have.

        Partitions whose leader does not have the API (before Kafka 0.11) are left out.
        """
        if not epochs:
            return {}
        question = _EpochQuestion(self._core.cluster, self.topic, epochs)
        await self._core.cluster.retrying(
            "looking up leader epochs", self._core.api_timeout_s, question.attempt
        )
        return question.ends

    async def tombstone_retention_ms(self) -> int | None:
        """Returns delete.retention.ms of the topic, None where it is not compacted; Kafka's default where that may not be
        asked."""
        resource = ConfigResource.topic(self.topic)
        try:
            async with AsyncAdmin(self._servers, **self._admin_settings) as admin:
                entries = (await admin.describe_configs([resource]))[resource]
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return _DEFAULT_TOMBSTONES_KEPT_MS
        if "compact" not in (entries["cleanup.policy"].value or ""):
            return None
        return int(entries["delete.retention.ms"].value or _DEFAULT_TOMBSTONES_KEPT_MS)

    # -- reading

    def read_from(self, positions: Mapping[int, tuple[int, int]]) -> None:
        """Go on at these (offset, leader epoch of what was read before it), and read no other partitions."""
        offsets = {TopicPartition(self.topic, partition): offset for partition, offset in positions.items()}
        fresh = self._core.assign(offsets)
        for tp, (offset, leader_epoch) in offsets.items():
            self._core.seek(tp, offset, leader_epoch=leader_epoch)
        self._noted = {tp: offset for tp, (offset, _) in offsets.items()}
        self._core.want(fresh)

    def read_also(self, starts: Mapping[int, int]) -> None:
        """Reads more partitions, from their starts."""
        offsets = {TopicPartition(self.topic, partition): offset for partition, offset in starts.items()}
        self._core.want(self._core.assign([*self._noted, *offsets]))
        for tp, offset in offsets.items():
            self._core.seek(tp, offset)
        self._noted |= offsets

    async def next_chunk(self, timeout_s: float) -> FetchedChunk | None:
        """Returns the next chunk; None when time is up, or a position moved without a record. Raises errors of the fetch."""
        event = await self._waiting.until(self._next, timeout_s)
        return event if isinstance(event, FetchedChunk) else None

    def columns_of(self, chunk: FetchedChunk) -> Columns | None:
        """Returns the records of the chunk: about ROWS_MAX. May be called on another thread."""
        return self._core.collect_columns(chunk, ROWS_MAX)

    def positions(self) -> dict[int, int]:
        """Returns the next offset of each partition: records that were taken, markers and aborted records are before it."""
        return {tp.partition: offset for tp, offset in self._core.positions().items()}

    def note(self, positions: Mapping[int, int]) -> None:
        """The view knows of these."""
        self._noted |= {
            TopicPartition(self.topic, partition): offset for partition, offset in positions.items()
        }

    def _next(self) -> object:
        """*locked.*"""
        event = self._core.next_event()
        if event is not None:
            return event
        noted = self._noted
        for tp, state in self._core.assignment.states.items():
            if state.position is not None and state.position != noted.get(tp):
                return True
        return None


class _EpochQuestion:
    """A question to each leader, asked again where the leader moved."""

    def __init__(self, cluster: ClusterClient, topic: str, epochs: Mapping[int, int]) -> None:
        self._cluster = cluster
        self._open = {TopicPartition(topic, partition): epoch for partition, epoch in epochs.items()}
        self.ends: dict[int, int] = {}

    async def attempt(self, left_s: float) -> None:
        """Raises a retriable error while one of them is not answered for."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for tp, epoch in self._open.items():
            leader = self._cluster.image.leader(tp)
            if leader is None:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader at present")
            by_leader.setdefault(leader, {})[tp] = epoch
        for leader, asked in by_leader.items():
            try:
                ends, errors = await list_epoch_ends(self._cluster, leader, asked, timeout_s=left_s)
            except KafkaError as error:
                if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                    raise
                ends, errors = {}, {}
                for tp in asked:
                    del self._open[tp]
            for tp, end in ends.items():
                self.ends[tp.partition] = end.end_offset
                del self._open[tp]
            for problem in errors.values():
                raise problem
