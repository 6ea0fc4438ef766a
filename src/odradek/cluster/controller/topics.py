"""The controller's changes of topics: they come, grow and go."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from odradek.cluster.availability import TopicRules, rules_of
from odradek.cluster.controller.changes import Changes
from odradek.cluster.elections import eligible_after, renewed
from odradek.cluster.image import BrokerImage, TopicImage
from odradek.cluster.planning import ClusterDefaults, MorePartitions, TopicPlanner, TopicSpec
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.runtime.ports import Entropy
from odradek.telemetry import events

ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]
_APPLY_SECONDS: Final = 5.0
"""How long a new topic may take to be opened by the brokers that hold it, before it is reported as created all the same."""
_log = events.get("cluster")


class TopicChanges:
    """See `Controller` for what each does, and raises."""

    def __init__(
        self,
        changes: Changes,
        entropy: Entropy,
        defaults: ClusterDefaults,
        me: BrokerId,
        *,
        absent: Callable[[], Sequence[BrokerImage]],
    ) -> None:
        self._changes = changes
        self._entropy = entropy
        self._defaults = defaults
        self._me = me
        self._absent = absent

    async def create(
        self, wanted: Sequence[TopicSpec], *, validate_only: bool
    ) -> list[TopicImage | KafkaError]:
        outcomes = await self._changes.applied(lambda: self._create(wanted, validate_only=validate_only))
        made = [] if validate_only else [outcome for outcome in outcomes if isinstance(outcome, TopicImage)]
        await self._applied_by_holders(made)
        return outcomes

    async def delete(self, name: str, topic_id: UUID | None) -> TopicImage:
        return await self._changes.applied(lambda: self._delete(name, topic_id))

    async def grow(self, more: MorePartitions, *, validate_only: bool) -> TopicImage:
        grown = await self._changes.applied(lambda: self._grow(more, validate_only=validate_only))
        if not validate_only:
            await self._applied_by_holders([grown])
        return grown

    async def alter_configs(self, name: str, change: ConfigChange, *, validate_only: bool) -> TopicImage:
        return await self._changes.applied(
            lambda: self._alter_configs(name, change, validate_only=validate_only)
        )

    def known(self, name: str) -> TopicImage:
        """UNKNOWN_TOPIC_OR_PARTITION when there is none."""
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
        return TopicPlanner(self._changes.image, self._defaults, chance=chance, absent=self._absent())

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
        planned = planner.planned.values()
        if validate_only or not planned:
            return outcomes
        try:
            await self._changes.commit_topics(planned)
        except KafkaError as error:
            # Of many topics, some may have been committed.
            present = self._changes.image.topics
            return [
                error.as_outcome()
                if isinstance(outcome, TopicImage) and present.get(outcome.name) is not outcome
                else outcome
                for outcome in outcomes
            ]
        for topic in planned:
            _log.info("topic_created", topic=topic.name, id=topic.topic_id, partitions=len(topic.partitions))
        return outcomes

    async def _delete(self, name: str, topic_id: UUID | None) -> TopicImage:
        topic = self.known(name)
        if topic_id is not None and topic.topic_id != topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        operation = self._changes.store.without_topic(name)
        await self._changes.commit([operation], self._changes.image.without_topic(name))
        _log.info("topic_deleted", topic=name, id=topic.topic_id)
        return topic

    async def _grow(self, more: MorePartitions, *, validate_only: bool) -> TopicImage:
        topic = self.known(more.name)
        planner = self._planner()
        grown = planner.growth(topic, more)
        if not validate_only:
            await self._changes.commit_topics([grown])
            _log.info("partitions_added", topic=topic.name, before=len(topic.partitions), now=more.total)
        return grown

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


def with_fewer_eligible(topic: TopicImage, rules: TopicRules) -> TopicImage:
    """Under new rules: where the high watermark may move from now on, replicas out of sync are not eligible any more."""
    partitions = tuple(
        renewed(partition, replace(partition, eligible=eligible_after(partition, partition.isr, rules)))
        if partition.eligible
        else partition
        for partition in topic.partitions
    )
    return replace(topic, partitions=partitions)
