"""The controller's changes of topics: creation, more partitions, settings, deletion."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from odradek.cluster.availability import TopicRules, rules_of
from odradek.cluster.controller.changes import Changes
from odradek.cluster.controller.store import in_commits
from odradek.cluster.elections import eligible_after, renewed
from odradek.cluster.image import BrokerImage, TopicImage
from odradek.cluster.planning import ClusterDefaults, MorePartitions, TopicPlanner, TopicSpec
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.registry.port import Operation
from odradek.runtime.ports import Entropy
from odradek.telemetry import events

ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]
_APPLY_SECONDS: Final = 5.0
"""How long a new topic may take to be opened by the brokers that hold it, before it is reported as created
anyway."""
_log = events.get("cluster")


class TopicChanges:
    """The controller's changes of topics: creation, deletion, growth, settings. See `Controller` for what each does, and
    raises."""

    def __init__(
        self,
        changes: Changes,
        entropy: Entropy,
        defaults: ClusterDefaults,
        me: BrokerId,
        *,
        absent: Callable[[], Sequence[BrokerImage]],
        full: Callable[[], frozenset[BrokerId]],
    ) -> None:
        self._changes = changes
        self._entropy = entropy
        self._defaults = defaults
        self._me = me
        self._absent = absent
        self._full = full

    async def create(
        self, wanted: Sequence[TopicSpec], *, validate_only: bool
    ) -> list[TopicImage | KafkaError]:
        outcomes = await self._changes.applied(lambda: self._create(wanted, validate_only=validate_only))
        if not validate_only:
            await self._applied_by_holders(_topics_of(outcomes))
        return outcomes

    async def delete(self, wanted: Sequence[tuple[str, UUID | None]]) -> list[TopicImage | KafkaError]:
        return await self._changes.applied(lambda: self._delete(wanted))

    async def grow(
        self, wanted: Sequence[MorePartitions], *, validate_only: bool
    ) -> list[TopicImage | KafkaError]:
        outcomes = await self._changes.applied(lambda: self._grow(wanted, validate_only=validate_only))
        if not validate_only:
            await self._applied_by_holders(_topics_of(outcomes))
        return outcomes

    async def alter_configs(self, name: str, change: ConfigChange, *, validate_only: bool) -> TopicImage:
        return await self._changes.applied(
            lambda: self._alter_configs(name, change, validate_only=validate_only)
        )

    def known(self, name: str) -> TopicImage:
        """Raises UNKNOWN_TOPIC_OR_PARTITION when there is none."""
        topic = self._changes.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    async def _applied_by_holders(self, topics: Sequence[TopicImage]) -> None:
        holders = {
            broker: None for topic in topics for partition in topic.partitions for broker in partition.isr
        }
        holders.pop(self._me, None)
        if holders:
            version = self._changes.publication.applied.version
            await self._changes.publication.applied_by(
                holders,
                version,
                topic_ids=frozenset(topic.topic_id for topic in topics),
                timeout_s=_APPLY_SECONDS,
            )

    def _planner(self) -> TopicPlanner:
        chance = self._entropy.uniform()
        return TopicPlanner(
            self._changes.image,
            self._defaults,
            chance=chance,
            absent=self._absent(),
            full=self._full(),
        )

    async def _create(
        self, wanted: Sequence[TopicSpec], *, validate_only: bool
    ) -> list[TopicImage | KafkaError]:
        planner = self._planner()
        outcomes: list[TopicImage | KafkaError] = []
        for new in wanted:
            try:
                outcomes.append(planner.topic(new, self._entropy.uuid()))
            except KafkaError as error:
                outcomes.append(error.as_outcome())
        if validate_only or not planner.planned:
            return outcomes
        outcomes = await self._commit_planned(outcomes)
        for topic in _topics_of(outcomes):
            _log.info("topic_created", topic=topic.name, id=topic.topic_id, partitions=len(topic.partitions))
        return outcomes

    async def _commit_planned(self, outcomes: list[TopicImage | KafkaError]) -> list[TopicImage | KafkaError]:
        """Commits the topics among the outcomes; returns the outcomes with an error for each topic that was not committed."""
        try:
            await self._changes.commit_topics(_topics_of(outcomes))
        except KafkaError as error:
            # Of many topics, some may have been committed.
            present = self._changes.image.topics
            return [
                error.as_outcome()
                if isinstance(outcome, TopicImage) and present.get(outcome.name) is not outcome
                else outcome
                for outcome in outcomes
            ]
        return outcomes

    async def _delete(self, wanted: Sequence[tuple[str, UUID | None]]) -> list[TopicImage | KafkaError]:
        outcomes: dict[str, TopicImage | KafkaError] = {}
        doomed: list[tuple[TopicImage, Operation]] = []
        for name, topic_id in wanted:
            try:
                topic = self.known(name)
                if topic_id is not None and topic.topic_id != topic_id:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
            except KafkaError as error:
                outcomes[name] = error.as_outcome()
                continue
            outcomes[name] = topic
            doomed.append((topic, self._changes.store.without_topic(name)))
        for portion in in_commits(doomed):
            topics = [topic for topic, _ in portion]
            try:
                image = self._changes.image.without_topics([topic.name for topic in topics])
                await self._changes.commit([operation for _, operation in portion], image)
            except KafkaError as error:
                outcomes.update((topic.name, error.as_outcome()) for topic in topics)
                continue
            for topic in topics:
                _log.info("topic_deleted", topic=topic.name, id=topic.topic_id)
        return [outcomes[name] for name, _ in wanted]

    async def _grow(
        self, wanted: Sequence[MorePartitions], *, validate_only: bool
    ) -> list[TopicImage | KafkaError]:
        planner = self._planner()
        outcomes: list[TopicImage | KafkaError] = []
        before: dict[str, int] = {}
        for more in wanted:
            try:
                topic = self.known(more.name)
                outcomes.append(planner.growth(topic, more))
                before[topic.name] = len(topic.partitions)
            except KafkaError as error:
                outcomes.append(error.as_outcome())
        if validate_only or not planner.planned:
            return outcomes
        outcomes = await self._commit_planned(outcomes)
        for grown in _topics_of(outcomes):
            partition_count = len(grown.partitions)
            _log.info("partitions_added", topic=grown.name, before=before[grown.name], now=partition_count)
        return outcomes

    async def _alter_configs(self, name: str, change: ConfigChange, *, validate_only: bool) -> TopicImage:
        topic = self.known(name)
        configs = dict(change(topic.configs))
        self._defaults.check_configs(configs)
        altered = replace(topic, configs=configs)
        if not validate_only and configs != topic.configs:
            rules = rules_of(self._changes.image, altered, self._defaults.rules)
            altered = with_fewer_eligible(altered, rules)
            await self._changes.commit_topics([altered])
            _log.info("topic_configs_altered", topic=name, configs=json.dumps(configs, sort_keys=True))
        return altered


def _topics_of(outcomes: Sequence[TopicImage | KafkaError]) -> list[TopicImage]:
    return [outcome for outcome in outcomes if isinstance(outcome, TopicImage)]


def with_fewer_eligible(topic: TopicImage, rules: TopicRules) -> TopicImage:
    """Returns the topic under new rules: where the high watermark may move from now on, replicas out of sync are not eligible
    any more."""
    partitions = tuple(
        renewed(partition, replace(partition, eligible=eligible_after(partition, partition.isr, rules)))
        if partition.eligible
        else partition
        for partition in topic.partitions
    )
    return replace(topic, partitions=partitions)
