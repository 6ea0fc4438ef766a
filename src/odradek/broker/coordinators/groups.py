"""The wiring of groups: their topic, their kinds, and the dependencies of their machines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from odradek.broker.coordinators.group_settings import SettingsByGroup
from odradek.broker.coordinators.internal_topics import InternalTopic, batch_bytes_max, segment_bytes
from odradek.broker.coordinators.runtime import CoordinatorParts, CoordinatorRuntime
from odradek.broker.coordinators.target_worker import TargetWorker
from odradek.cluster.image import CONSUMER_OFFSETS, ClusterImage
from odradek.config.broker import BrokerConfig
from odradek.config.coordinator import OFFSETS_COPIES
from odradek.groups.classic.kind import CLASSIC
from odradek.groups.consumer.kind import ConsumerGroups
from odradek.groups.consumer.settings import ConsumerGroupSettings
from odradek.groups.offsets.kind import OFFSETS
from odradek.groups.service import GroupService
from odradek.groups.shard.machine import GroupDependencies, GroupMachine, KindParts
from odradek.groups.shard.settings import GroupSettings
from odradek.groups.share.kind import ShareGroups
from odradek.groups.share.settings import ShareSettings
from odradek.groups.streams.kind import StreamsGroups
from odradek.groups.streams.settings import StreamsSettings
from odradek.runtime.ports import Runtime

KINDS: Final[tuple[KindParts, ...]] = (CLASSIC, OFFSETS)


class ImageTopics:
    """The topics of the cluster's current image, as group machines read them: implements `groups.machine.Topics`."""

    __slots__ = ("_image",)

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image

    def topic_id(self, name: str) -> UUID | None:
        topic = self._image().topics.get(name)
        return None if topic is None else topic.topic_id

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self._image().topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def partition_count(self, name: str) -> int:
        topic = self._image().topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def names(self) -> Collection[str]:
        return self._image().topics

    @property
    def version(self) -> int:
        return self._image().version


def add_groups(
    coordinators: CoordinatorRuntime,
    runtime: Runtime,
    config: Callable[[], BrokerConfig],
    image: Callable[[], ClusterImage],
) -> CoordinatorParts[GroupMachine, GroupService]:
    """Returns the parts that coordinate groups. Call it before the logs are opened: shards load as logs open."""
    worker = TargetWorker(runtime.offload, lambda group_id: shards.for_key(group_id))
    coordinators.on_close(worker.close)
    dependencies = GroupDependencies(
        settings=_SettingsCache(config).settings,
        topics=ImageTopics(image),
        new_uuid=runtime.entropy.uuid,
        batch_bytes_max=lambda: batch_bytes_max(CONSUMER_OFFSETS, config(), image()),
        large_targets=worker,
    )
    topic = InternalTopic(
        name=CONSUMER_OFFSETS,
        partition_count=lambda config: config.offsets.topic_num_partitions,
        replication_factor=lambda config: config.offsets.topic_replication_factor,
        replication_factor_key=OFFSETS_COPIES,
        configs=_topic_configs,
    )
    consumer = ConsumerGroups(SettingsByGroup(config, image, ConsumerGroupSettings.of))
    share = ShareGroups(SettingsByGroup(config, image, ShareSettings.of))
    streams = StreamsGroups(SettingsByGroup(config, image, StreamsSettings.of))
    kinds = (*KINDS, consumer.parts(), share.parts(), streams.parts())
    make = partial(_machine, dependencies, kinds)
    shards = coordinators.new_shards(
        topic,
        make,
        runtime.clock,
        patience_seconds=lambda: config().offsets.commit_timeout_ms / 1000,
    )
    service = GroupService(shards, runtime.offload, consumer=consumer, share=share, streams=streams)
    return CoordinatorParts(topic, shards, service)


def _machine(dependencies: GroupDependencies, kinds: tuple[KindParts, ...], index: int) -> GroupMachine:
    return GroupMachine(dependencies, kinds)


def _topic_configs(config: BrokerConfig) -> Mapping[str, str]:
    return {
        "cleanup.policy": "compact",
        "segment.bytes": segment_bytes(config.offsets.topic_segment_bytes),
    }


class _SettingsCache:
    """The settings of groups, made once for each broker configuration."""

    __slots__ = ("_config", "_config_used", "_settings")

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config
        self._config_used: BrokerConfig | None = None
        self._settings = GroupSettings()

    def settings(self) -> GroupSettings:
        config = self._config()
        if config is not self._config_used:
            self._config_used, self._settings = config, GroupSettings.of(config)
        return self._settings
