"""The asynchronous admin client: topics, settings, records, the cluster. Groups and transactions have files of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.client.admin import quotas, requests, transactions
from odradek.client.admin.aio_groups import GroupAdministration
from odradek.client.admin.aio_reassignments import ReassignmentAdministration
from odradek.client.admin.aio_transactions import TransactionAdministration
from odradek.client.admin.calls import AlreadyDone, Failures
from odradek.client.admin.quotas import QuotaChanges, QuotaEntity
from odradek.client.admin.transaction_descriptions import (
    FeatureDescription,
)
from odradek.client.admin.types import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    LogDirDescription,
    NewTopic,
    ResourceType,
    TopicDescription,
)
from odradek.client.consumer.offset_lookup import OffsetAndTimestamp, find_offsets
from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition

_CREATED = AlreadyDone(code=ErrorCode.TOPIC_ALREADY_EXISTS, result=lambda name: CreatedTopic(name=name))
_DELETED = AlreadyDone(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, result=lambda name: None)

NO_SUCH_RECORD = OffsetAndTimestamp(offset=-1)
"""Answer to a time after the last record."""


class AsyncAdmin(GroupAdministration, TransactionAdministration, ReassignmentAdministration):
    """Administers a cluster from one event loop.

    A call about one thing raises that thing's KafkaError; a call about several raises PartialFailureError, which says what
    became of each. Calls retry what is worth retrying for `timeout_s`, by default default.api.timeout.ms.
    """

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
            already=None if validate_only else _CREATED,
        )
        return told

    async def delete_topics(self, topics: Iterable[str], *, timeout_s: float | None = None) -> None:
        """Delete topics and all their records."""
        await self._each(
            "delete_topics", dict.fromkeys(topics), timeout_s, requests.delete_topics, already=_DELETED
        )

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

    # -- elections, features

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition], *, unclean: bool = False, timeout_s: float | None = None
    ) -> dict[TopicPartition, bool]:
        """Give leadership back to preferred replicas (or, `unclean`, to any); False where it was so already."""
        wanted = dict.fromkeys(TopicPartition(*tp) for tp in partitions)
        told: dict[TopicPartition, bool] = await self._each(
            "elect_leaders",
            wanted,
            timeout_s,
            lambda some, left_s: transactions.elect_leaders(some, unclean, left_s),
        )
        return told

    async def describe_features(self, *, timeout_s: float | None = None) -> dict[str, FeatureDescription]:
        """The features that brokers know, and the levels that the cluster has agreed on."""
        told = await self._one("describe_features", timeout_s, transactions.describe_features())
        return dict(told.results)

    async def update_features(
        self, levels: Mapping[str, int], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """Raise or lower finalized levels; they change together or not at all."""
        current = {name: each.finalized for name, each in (await self.describe_features()).items()}
        limit_s = self._patience_s if timeout_s is None else timeout_s
        exchange = transactions.update_features(levels, current, validate_only, limit_s)
        told = await self._one("update_features", timeout_s, exchange)
        Failures("update_features", told.errors).raise_or(told.results)

    # -- quotas, settings, directories

    async def describe_quotas(
        self, entity: QuotaEntity | None = None, *, timeout_s: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The limits of an entity, and of those that name more than it does; of everybody without one."""
        exchange = quotas.describe_quotas(entity or QuotaEntity())
        return dict((await self._one("describe_quotas", timeout_s, exchange)).results)

    async def alter_quotas(
        self, changes: QuotaChanges, *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """Set limits by Kafka's names, and remove those that are None; the others stay."""
        told = await self._one("alter_quotas", timeout_s, quotas.alter_quotas(changes, validate_only))
        Failures("alter_quotas", told.errors).raise_or(told.results)

    async def list_config_resources(
        self, kinds: Iterable[ResourceType] = (), *, timeout_s: float | None = None
    ) -> list[ConfigResource]:
        """What has settings; groups and subscriptions to metrics, if they have some of their own."""
        exchange = quotas.list_config_resources(list(kinds))
        return list((await self._one("list_config_resources", timeout_s, exchange)).results)

    async def move_replicas(
        self, broker: int, paths: Mapping[TopicPartition, str], *, timeout_s: float | None = None
    ) -> None:
        """Begin to move partitions between data directories of a broker; `describe_log_dirs` shows how far they are."""
        told = await self._each(
            "move_replicas",
            {broker: paths},
            timeout_s,
            lambda some, _: quotas.move_replicas(some[broker]).whole(broker),
            by=self._calls.by_itself,
        )
        Failures("move_replicas", told[broker].errors).raise_or(told[broker].results)


def _new_topic(topic: NewTopic | str) -> NewTopic:
    return NewTopic(topic) if isinstance(topic, str) else topic
