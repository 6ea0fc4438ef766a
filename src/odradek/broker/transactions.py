"""The transaction coordinator in its place: its settings, its topic, and the partitions that it writes markers into."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from odradek.broker.coordinators import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    Coordinators,
    InternalTopic,
    segment_bytes,
)
from odradek.broker.features import TRANSACTION_VERSION, level_of
from odradek.broker.producer_ids import ProducerIds
from odradek.broker.replicas import Replicas
from odradek.cluster.image import ClusterImage
from odradek.config.broker import BrokerConfig
from odradek.config.internal_topics import TRANSACTIONS_COPIES
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock
from odradek.shards import Moment, Outcome
from odradek.transactions.machine import Terms
from odradek.transactions.markers import MarkerBatch
from odradek.transactions.service import Transactions, TransactionSettings
from odradek.transactions.state import TransactionVersion

_TRANSACTION_TOPIC: Final = InternalTopic(
    name=TRANSACTION_STATE,
    partition_count=lambda parts: parts.config.transaction_state_log_num_partitions,
    replication_factor=lambda parts: parts.config.transaction_state_log_replication_factor,
    replication_factor_key=TRANSACTIONS_COPIES,
    configs=lambda parts: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
        "segment.bytes": segment_bytes(parts.config.transaction_state_log_segment_bytes),
    },
)


def coordinate_transactions(
    coordinators: Coordinators,
    replicas: Replicas,
    producer_ids: ProducerIds,
    clock: Clock,
    *,
    config: Callable[[], BrokerConfig],
    image: Callable[[], ClusterImage],
) -> Transactions:
    """The coordinator of this broker's transactional ids; before the logs are opened."""
    transactions = Transactions(
        lambda: _settings(config(), image()),
        producer_ids.next,
        lambda group_id: TopicPartition(
            CONSUMER_OFFSETS, coordinators.shards(CONSUMER_OFFSETS).index_for(group_id)
        ),
    )
    shards = coordinators.add(_TRANSACTION_TOPIC, transactions.new_machine, clock)
    transactions.begin(
        shards,
        LocalMarkers(coordinators, replicas, clock, image),
        lambda index: replicas.leader(TRANSACTION_STATE, index).leader_epoch,
    )
    return transactions


def _settings(config: BrokerConfig, image: ClusterImage) -> TransactionSettings:
    return TransactionSettings(
        terms=Terms(
            id_expiration_ms=config.transactional_id_expiration_ms,
            timeout_check_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiration_check_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
            level=TransactionVersion(level_of(image, TRANSACTION_VERSION)),
        ),
        timeout_ms_max=config.transaction_max_timeout_ms,
        two_phase_commit=config.transaction_two_phase_commit_enable,
        verification=config.transaction_partition_verification_enable,
        retry_seconds=config.add_partitions_to_txn_retry_backoff_ms / 1000,
        retry_seconds_max=config.add_partitions_to_txn_retry_backoff_max_ms / 1000,
    )


class LocalMarkers:
    """`Markers` over the partitions of this broker."""

    def __init__(
        self,
        coordinators: Coordinators,
        replicas: Replicas,
        clock: Clock,
        image: Callable[[], ClusterImage],
    ) -> None:
        self._coordinators = coordinators
        self._replicas = replicas
        self._clock = clock
        self._image = image

    async def write(self, batch: MarkerBatch) -> dict[TopicPartition, ErrorCode]:
        outcomes = await asyncio.gather(*(self._write_one(batch, one) for one in batch.partitions))
        return dict(zip(batch.partitions, outcomes, strict=True))

    async def _write_one(self, batch: MarkerBatch, name: TopicPartition) -> ErrorCode:
        try:
            if name.topic == CONSUMER_OFFSETS and self._coordinators.has(CONSUMER_OFFSETS):
                await self._end_offsets(batch, name.partition)
            else:
                await self._end(batch, name)
        except KafkaError as error:
            return self._refined(error.code, name)
        return ErrorCode.NONE

    async def _end(self, batch: MarkerBatch, name: TopicPartition) -> None:
        partition = self._replicas.leader(*name)
        refusal = None
        try:
            last_offset = partition.append_marker(
                batch.producer_id,
                batch.producer_epoch,
                is_commit=batch.is_commit,
                coordinator_epoch=batch.coordinator_epoch,
                transaction_version=batch.version,
                now_ms=self._clock.wall_ms(),
            ).last_offset
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
                raise
            # The marker may be there already, and not be durable yet.
            refusal, last_offset = error, partition.log.end_offset - 1
        acknowledgement = partition.acknowledgement(last_offset) if last_offset >= 0 else None
        if acknowledgement is not None:
            await acknowledgement
        if refusal is not None:
            raise refusal

    async def _end_offsets(self, batch: MarkerBatch, index: int) -> None:
        shard = self._coordinators.shards(CONSUMER_OFFSETS).shard(index)
        try:
            await shard.append_marker(
                batch.producer_id,
                batch.producer_epoch,
                is_commit=batch.is_commit,
                coordinator_epoch=batch.coordinator_epoch,
                transaction_version=batch.version,
            )
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                await shard.execute(_nothing)  # the marker may be there already, and not be durable yet
            raise

    def _refined(self, code: ErrorCode, name: TopicPartition) -> ErrorCode:
        """Whether a partition exists is for the cluster's image to say: the log may just not be open."""
        topic = self._image().topics.get(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else code


def _nothing(_machine: object, _now: Moment) -> Outcome[None]:
    return Outcome(None)


def code_of(error: KafkaError, *, knows_fenced: bool) -> ErrorCode:
    """The code for a client; those before KIP-588 know INVALID_PRODUCER_EPOCH for PRODUCER_FENCED."""
    if error.code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
