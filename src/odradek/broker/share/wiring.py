"""The wiring of share groups' state: its topic, its machine, and the service of their partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.broker.coordinators.group_settings import SettingsByGroup
from odradek.broker.coordinators.internal_topics import InternalTopic, segment_bytes
from odradek.broker.coordinators.runtime import CoordinatorParts, CoordinatorRuntime
from odradek.broker.produce.own_records import OwnRecords
from odradek.broker.replicas.replica_manager import ReplicaManager
from odradek.broker.share.dead_letters import DeadLetterTopics
from odradek.broker.share.partitions import SharePartitions
from odradek.cluster.image import SHARE_GROUP_STATE, ClusterImage
from odradek.config.broker import BrokerConfig
from odradek.config.coordinator import SHARES_COPIES
from odradek.groups.share.settings import ShareSettings
from odradek.groups.share.state import ShareStates, StateSettings
from odradek.runtime.ports import Runtime


def add_shares(
    coordinators: CoordinatorRuntime,
    replicas: ReplicaManager,
    runtime: Runtime,
    config: Callable[[], BrokerConfig],
    image: Callable[[], ClusterImage],
) -> CoordinatorParts[ShareStates, SharePartitions]:
    """Returns the parts that coordinate share groups. Call it before the logs are opened: shards load as logs open."""
    topic = InternalTopic(
        name=SHARE_GROUP_STATE,
        partition_count=lambda config: config.share_coordinator.state_topic_num_partitions,
        replication_factor=lambda config: config.share_coordinator.state_topic_replication_factor,
        replication_factor_key=SHARES_COPIES,
        min_in_sync=lambda config: config.share_coordinator.state_topic_min_isr,
        configs=_topic_configs,
    )
    shards = coordinators.new_shards(
        topic, lambda _: ShareStates(lambda: _state_settings(config())), runtime.clock
    )
    settings = SettingsByGroup(config, image, ShareSettings.of)
    letters = OwnRecords(
        replicas, runtime.clock, lambda: coordinators.send_to_peer, what="dead letters", timeout_s=5.0
    )
    dead_letters = DeadLetterTopics(letters, image, config, runtime.clock, runtime.offload)
    shares = SharePartitions(
        coordinators, replicas, shards, settings, runtime.clock, runtime.offload, dead_letters
    )
    return CoordinatorParts(topic, shards, shares)


def _state_settings(config: BrokerConfig) -> StateSettings:
    return StateSettings(
        updates_per_snapshot=config.share_coordinator.snapshot_update_records_per_snapshot,
        cold_interval_ms=config.share_coordinator.cold_partition_snapshot_interval_ms,
    )


def _topic_configs(config: BrokerConfig) -> Mapping[str, str]:
    """Returns the topic's settings. It is not compacted: an update needs those before it. The service deletes old records."""
    return {
        "cleanup.policy": "delete",
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "segment.bytes": segment_bytes(config.share_coordinator.state_topic_segment_bytes),
    }
