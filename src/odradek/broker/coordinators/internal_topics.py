"""The topics of coordinators: how each is made, with how many partitions and copies.

An internal topic is made when its first coordinator is asked for, with the number of partitions in its
setting. From then on the topic itself determines the number: a key's shard never moves because a setting
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from odradek.cluster.image import ClusterImage, TopicImage
from odradek.cluster.planning import TopicSpec
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.telemetry import events

_log = events.get("broker")

_SEGMENT_BYTES_MIN: Final = 1 << 20


def segment_bytes(setting: int) -> str:
    """Returns an internal topic's `segment.bytes`: its broker setting, but at least a topic's minimum."""
    return str(max(setting, _SEGMENT_BYTES_MIN))


def batch_bytes_max(topic: str, config: BrokerConfig, image: ClusterImage) -> int:
    """Returns `max.message.bytes` of an internal topic: its own, or the broker's."""
    topic_image = image.topics.get(topic)
    own = None if topic_image is None else topic_image.configs.get("max.message.bytes")
    return config.log.max_message_bytes if own is None else int(own)


class TopicCreator(Protocol):
    async def create_topics(self, wanted: Sequence[TopicSpec]) -> list[TopicImage | KafkaError]:
        """Creates topics through the controller; returns one outcome for each, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """The properties of an internal topic; they come from the broker's settings when it is created."""

    name: str
    partition_count: Callable[[BrokerConfig], int]
    replication_factor: Callable[[BrokerConfig], int] = field(
        default=lambda config: config.topics.default_replication_factor
    )
    """See `_replicas`: with fewer brokers it may have fewer."""
    replication_factor_key: str = "default.replication.factor"
    min_in_sync: Callable[[BrokerConfig], int] | None = None
    """Its own `min.insync.replicas`; None: the broker's, as for any topic."""
    configs: Callable[[BrokerConfig], Mapping[str, str]] = field(
        default=lambda _: {"cleanup.policy": "compact"}
    )


async def create_internal_topic(
    topic: InternalTopic, config: BrokerConfig, broker_count: int, creator: TopicCreator
) -> None:
    """Creates the topic. Raises COORDINATOR_NOT_AVAILABLE when that fails."""
    replicas = _replicas(topic, config, broker_count)
    new = TopicSpec(
        name=topic.name,
        partition_count=topic.partition_count(config),
        replication_factor=replicas,
        configs=_configs(topic, config, replicas),
    )
    (outcome,) = await creator.create_topics([new])
    if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic.name} cannot be made: {outcome.message}"
        )


def _replicas(topic: InternalTopic, config: BrokerConfig, broker_count: int) -> int:
    """Returns the replication factor of the setting. A single broker uses one replica, since everything waits
    for the topic; a cluster with too few brokers does so, too, unless the setting was set: a broker may just
    be down, and the topic would never get its copies (COORDINATOR_NOT_AVAILABLE, as in Kafka)."""
    wanted = topic.replication_factor(config)
    is_set = topic.replication_factor_key in config.originals
    setting = f"{topic.replication_factor_key}={wanted}"
    if wanted > broker_count and is_set:
        if broker_count > 1:
            return wanted  # of those that are registered, some may be down; the controller knows
        _log.warning(
            "internal_topic_has_fewer_replicas",
            topic=topic.name,
            setting=setting,
            replicas=broker_count,
            reason="there are no more brokers",
        )
    return min(wanted, broker_count)


def _configs(topic: InternalTopic, config: BrokerConfig, replicas: int) -> Mapping[str, str]:
    """Returns the topic's settings. With fewer replicas than wanted, but at least two, one of them may still fail."""
    configs = topic.configs(config)
    if topic.min_in_sync is None:
        return configs
    wanted = min(topic.min_in_sync(config), replicas)
    if replicas < topic.replication_factor(config):
        wanted = min(wanted, max(replicas - 1, 1))
    return {**configs, "min.insync.replicas": str(wanted)}
