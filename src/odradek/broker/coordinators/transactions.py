"""The transaction coordinator in its place: its settings, its topic, and what it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.broker.cluster.features import TRANSACTION_VERSION, level_of
from odradek.broker.coordinators.internal_topics import InternalTopic, batch_bytes_max, segment_bytes
from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.broker.coordinators.runtime import CoordinatorKind, CoordinatorParts, CoordinatorRuntime
from odradek.broker.coordinators.transaction_markers import ClusterMarkers, LocalMarkers
from odradek.broker.replicas.replica_manager import ReplicaManager
from odradek.cluster.image import CONSUMER_OFFSETS, TRANSACTION_STATE, ClusterImage
from odradek.config.broker import BrokerConfig
from odradek.config.coordinator import TRANSACTIONS_COPIES
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock
from odradek.transactions.machine import TransactionMachine, TransactionTerms
from odradek.transactions.service import TransactionCoordinator, TransactionSettings
from odradek.transactions.state import TransactionVersion

if TYPE_CHECKING:
    from odradek.groups.service import GroupService
    from odradek.groups.shard.machine import GroupMachine

__all__ = ["LocalMarkers", "code_of", "coordinate_transactions"]

TRANSACTION_TOPIC: Final = InternalTopic(
    name=TRANSACTION_STATE,
    partition_count=lambda config: config.transaction.state_log_num_partitions,
    replication_factor=lambda config: config.transaction.state_log_replication_factor,
    replication_factor_key=TRANSACTIONS_COPIES,
    min_in_sync=lambda config: config.transaction.state_log_min_isr,
    configs=lambda config: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
        "segment.bytes": segment_bytes(config.transaction.state_log_segment_bytes),
    },
)


def coordinate_transactions(
    coordinators: CoordinatorRuntime,
    groups: CoordinatorKind[GroupMachine, GroupService],
    replicas: ReplicaManager,
    producer_ids: ProducerIds,
    clock: Clock,
    *,
    config: Callable[[], BrokerConfig],
    image: Callable[[], ClusterImage],
) -> CoordinatorParts[TransactionMachine, TransactionCoordinator]:
    """The coordinator of this broker's transactional ids; before the logs are opened. `image` holds all that is led here."""
    transactions = TransactionCoordinator(
        lambda: _settings(config(), image()),
        producer_ids.next,
        lambda group_id: TopicPartition(CONSUMER_OFFSETS, groups.shards.index_for(group_id)),
    )
    shards = coordinators.new_shards(TRANSACTION_TOPIC, transactions.new_machine, clock)
    markers = ClusterMarkers(
        LocalMarkers(groups, replicas, clock, image),
        lambda: coordinators.here,
        image,
        lambda: coordinators.send_to_peer,
    )
    coordinators.on_close(markers.close)
    transactions.begin(shards, markers)
    return CoordinatorParts(TRANSACTION_TOPIC, shards, transactions)


def _settings(config: BrokerConfig, image: ClusterImage) -> TransactionSettings:
    return TransactionSettings(
        terms=TransactionTerms(
            id_expiration_ms=config.transaction.transactional_id_expiration_ms,
            timeout_check_ms=config.transaction.abort_timed_out_transaction_cleanup_interval_ms,
            expiration_check_ms=config.transaction.remove_expired_transaction_cleanup_interval_ms,
            level=TransactionVersion(level_of(image, TRANSACTION_VERSION)),
            batch_bytes_max=batch_bytes_max(TRANSACTION_STATE, config, image),
        ),
        timeout_ms_max=config.transaction.max_timeout_ms,
        two_phase_commit=config.transaction.two_phase_commit_enable,
        retry_seconds=config.transaction.add_partitions_to_txn_retry_backoff_ms / 1000,
        retry_seconds_max=config.transaction.add_partitions_to_txn_retry_backoff_max_ms / 1000,
    )


def code_of(error: KafkaError, *, knows_fenced: bool) -> ErrorCode:
    """Returns the code for a client; those before KIP-588 know INVALID_PRODUCER_EPOCH for PRODUCER_FENCED."""
    if error.code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
