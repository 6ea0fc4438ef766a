"""The asynchronous admin client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from odradek.client import admin_requests as requests
from odradek.client.admin_calls import AdminCalls, Failures
from odradek.client.admin_types import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    LogDirDescription,
    NewTopic,
    TopicDescription,
)
from odradek.client.cluster import Cluster
from odradek.client.errors import ClientClosedError
from odradek.client.offsets import OffsetAndTimestamp, find_offsets
from odradek.client.options import AdminOptions
from odradek.client.settings import AdminSettings
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock, Entropy
from odradek.runtime.real_clock import SystemClock, SystemEntropy

NO_SUCH_RECORD = OffsetAndTimestamp(offset=-1)
"""Answer to a time after the last record."""


class AsyncAdmin:
    """Administers a cluster from one event loop.

    A call about one thing raises that thing's KafkaError; a call about several raises PartialFailureError, which says what
    became of each. Calls retry what is worth retrying for `timeout_s`, by default default.api.timeout.ms.
    """

    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[AdminOptions],
    ) -> None:
        checked = AdminSettings.of(bootstrap_servers, dict(settings))
        self._cluster = Cluster(checked, clock or SystemClock(), entropy or SystemEntropy())
        self._calls = AdminCalls(self._cluster)
        self._patience_s = checked.default_api_timeout_ms / 1000
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @classmethod
    def from_config(cls, config: Mapping[str, object], **more: Any) -> Self:
        """From a mapping with Kafka's names: `{"bootstrap.servers": "..."}`."""
        return cls(**AdminSettings.arguments(config), **more)

    async def start(self) -> None:
        """Begin to work on the running loop; other methods do so by themselves."""
        if self._closed:
            raise ClientClosedError("admin client")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._cluster.start()

    async def close(self) -> None:
        """Idempotent."""
        if not self._closed:
            self._closed = True
            await self._cluster.close()

    # -- topics

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, CreatedTopic]:
        """Create topics; a plain name gets the broker's defaults."""
        wanted = {topic.name: topic for topic in map(_new_topic, topics)}
        told: dict[str, CreatedTopic] = await self._each(
            "create_topics",
            wanted,
            timeout_s,
            lambda some, left_s: requests.create_topics(some, validate_only, left_s),
        )
        return told

    async def delete_topics(self, topics: Iterable[str], *, timeout_s: float | None = None) -> None:
        """Delete topics and all their records."""
        await self._each("delete_topics", dict.fromkeys(topics), timeout_s, requests.delete_topics)

    async def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """Raise the number of partitions of each topic to the given total."""
        await self._each(
            "create_partitions",
            totals,
            timeout_s,
            lambda some, left_s: requests.create_partitions(some, validate_only, left_s),
        )

    async def list_topics(self, *, internal: bool = False, timeout_s: float | None = None) -> list[str]:
        """Names of all topics, sorted; those that Kafka keeps for itself only with `internal`."""
        told = await self._one("list_topics", timeout_s, requests.describe_topics(None))
        return sorted(name for name, topic in told.results.items() if internal or not topic.internal)

    async def describe_topics(
        self, topics: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas."""
        names = list(dict.fromkeys(topics))
        told = await self._one("describe_topics", timeout_s, requests.describe_topics(names))
        return Failures("describe_topics", told.errors).raise_or(told.results)

    # -- settings

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        documentation: bool = False,
        timeout_s: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """All settings of each resource, by name."""
        told: dict[ConfigResource, dict[str, ConfigEntry]] = await self._each(
            "describe_configs",
            dict.fromkeys(resources),
            timeout_s,
            lambda some, _: requests.describe_configs(some, documentation),
            by=self._calls.by_config_owner,
        )
        return told

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Change the named settings and leave the others: a str sets, None goes back to the default."""
        await self._each(
            "alter_configs",
            changes,
            timeout_s,
            lambda some, _: requests.alter_configs(some, validate_only),
            by=self._calls.by_config_owner,
        )

    # -- records and offsets

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records below an offset (-1: all there are); returns where each partition now begins."""
        wanted = {TopicPartition(*tp): offset for tp, offset in before.items()}
        told: dict[TopicPartition, int] = await self._each(
            "delete_records", wanted, timeout_s, requests.delete_records, by=self._calls.by_leader
        )
        return told

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = 0, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets by time (milliseconds), or EARLIEST, LATEST, MAX_TIMESTAMP; offset -1 where no record is so new."""
        await self.start()
        limit_s = self._patience_s if timeout_s is None else timeout_s
        questions = {TopicPartition(*tp): timestamp for tp, timestamp in wanted.items()}
        answers = await find_offsets(self._cluster, questions, isolation=isolation, timeout_s=limit_s)
        found = {tp: answer or NO_SUCH_RECORD for tp, answer in answers.found.items()}
        return Failures("list_offsets", answers.errors).raise_or(found)

    # -- the cluster

    async def describe_cluster(self, *, timeout_s: float | None = None) -> ClusterDescription:
        """Brokers and controller."""
        await self.start()
        limit_s = self._patience_s if timeout_s is None else timeout_s
        return requests.cluster_of(await self._cluster.metadata.refresh(limit_s))

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, timeout_s: float | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """What each broker (all by default) holds, directory by directory."""
        await self.start()
        limit_s = self._patience_s if timeout_s is None else timeout_s
        if brokers is None:
            brokers = (await self._cluster.metadata.refresh(limit_s)).brokers
        told: dict[int, tuple[LogDirDescription, ...]] = await self._each(
            "describe_log_dirs",
            dict.fromkeys(brokers),
            timeout_s,
            requests.describe_log_dirs,
            by=self._calls.by_itself,
        )
        return told

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _each(
        self, what: str, wanted: Mapping[Any, Any], timeout_s: float | None, ask: Any, by: Any = None
    ) -> Any:
        await self.start()
        limit_s = self._patience_s if timeout_s is None else timeout_s
        return await self._calls.each(what, wanted, limit_s, ask, by or self._calls.by_controller)

    async def _one(self, what: str, timeout_s: float | None, exchange: Any) -> Any:
        await self.start()
        return await self._calls.one(what, self._patience_s if timeout_s is None else timeout_s, exchange)


def _new_topic(topic: NewTopic | str) -> NewTopic:
    return NewTopic(topic) if isinstance(topic, str) else topic
