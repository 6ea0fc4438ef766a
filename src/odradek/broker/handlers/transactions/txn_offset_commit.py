"""TxnOffsetCommit (28): commit a group's offsets as part of a transaction. Versions 0-6; topics by id from
version 6 on (KIP-1319).

They count once the transaction commits. Whether the producer's transaction includes the group's partition of
`__consumer_offsets` is asked of the transaction's coordinator: up to version 4 it must already, later it is added (KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from odradek.broker.handlers.group_requests import commit_in_time, commit_records, has_partition
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.image import CONSUMER_OFFSETS
from odradek.groups.offsets.committing import Commit, CommitRequest
from odradek.groups.shard.kinds import Committer, check_group_id
from odradek.groups.shard.offset_table import PartitionName
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.transactions.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.runtime.turns import Turn, slices
from odradek.shards import BatchProducer
from odradek.storage.producers.producer_state import ProducerState
from odradek.transactions.verification import VerificationQuestion

_SINCE_ABORTABLE: Final = 4
_SINCE_ADDED_BY_ITSELF: Final = 5
_SINCE_TOPIC_IDS: Final = 6


async def handle(
    broker: BrokerContext, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    turn = broker.turns.begin()
    commits: list[Commit] = []
    names: list[str | None] = []
    for topic in request.topics:
        await turn.step()
        name = _name(broker, topic, by_id=context.api_version >= _SINCE_TOPIC_IDS)
        names.append(name)
        for some in slices(topic.partitions) if name is not None else ():
            await turn.step()
            commits += _commits(broker, name or "", some)
    verdicts: dict[PartitionName, ErrorCode] = {}
    if commits:
        try:
            verdicts = await _commit(broker, turn, context.api_version, request, commits)
        except KafkaError as error:
            verdicts = dict.fromkeys((commit.partition_name for commit in commits), error.code)
    topics = []
    for topic, name in zip(request.topics, names, strict=True):
        partitions = await turn.map(partial(_answer, verdicts, name), topic.partitions)
        topics.append(
            TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        )
    return TxnOffsetCommitResponse(topics=topics)


def _name(broker: BrokerContext, topic: TxnOffsetCommitRequestTopic, *, by_id: bool) -> str | None:
    """Returns the topic's name; None for an id that the cluster does not have."""
    if not by_id:
        return topic.name
    image = broker.image.topics_by_id.get(topic.topic_id)
    return None if image is None else image.name


def _answer(
    verdicts: dict[PartitionName, ErrorCode], topic: str | None, requested: TxnOffsetCommitRequestPartition
) -> TxnOffsetCommitResponsePartition:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    code = verdicts.get((topic or "", requested.partition_index), unknown)
    return TxnOffsetCommitResponsePartition(partition_index=requested.partition_index, error_code=code)


def _commits(
    broker: BrokerContext, topic: str, requested: Sequence[TxnOffsetCommitRequestPartition]
) -> list[Commit]:
    """Returns the commits whose partition exists."""
    return [
        Commit(
            topic=topic,
            topic_id=broker.image.topics[topic].topic_id,
            partition=partition.partition_index,
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata,
        )
        for partition in requested
        if has_partition(broker, topic, partition.partition_index)
    ]


async def _commit(
    broker: BrokerContext, turn: Turn, version: int, request: TxnOffsetCommitRequest, commits: list[Commit]
) -> dict[PartitionName, ErrorCode]:
    check_group_id(request.group_id)
    committer = Committer(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        is_transactional=True,
        api_version=version,
    )
    requested = CommitRequest(
        group_id=request.group_id,
        committer=committer,
        commits=commits,
        producer=BatchProducer(request.producer_id, request.producer_epoch),
    )
    prepared = await commit_records(broker, turn, requested)
    await _admit(broker, version, request)
    # Nothing is awaited from here until the shard has appended: what was verified is still true.
    return await commit_in_time(broker, requested, prepared)


async def _admit(broker: BrokerContext, version: int, request: TxnOffsetCommitRequest) -> None:
    """Raise unless the offsets may be appended, now, as part of the producer's transaction.

    A marker that comes while the coordinator is asked voids its answer: the transaction that it spoke of may be over, and the
    offsets would begin one that no one ends.
    """
    log_name = TopicPartition(CONSUMER_OFFSETS, broker.groups.shards.index_for(request.group_id))
    broker.groups.shards.shard(
        log_name.partition
    )  # NOT_COORDINATOR makes the client look again; a missing partition does not
    partition = broker.replicas.leader(*log_name)
    before = partition.log.producers.get(request.producer_id)
    _check_epoch(before, request)
    if _is_under_way(before, request):
        return
    question = VerificationQuestion(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        adds=version >= _SINCE_ADDED_BY_ITSELF,
        partitions=frozenset({log_name}),
    )
    verdicts = await broker.verifier.verify(question)
    verdict = verdicts[log_name]
    if verdict is ErrorCode.TRANSACTION_ABORTABLE and version < _SINCE_ABORTABLE:
        verdict = ErrorCode.INVALID_TXN_STATE
    if verdict is ErrorCode.NETWORK_EXCEPTION:
        verdict = (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )  # older clients know this one, and come again at once
    if verdict is not ErrorCode.NONE:
        raise KafkaError(verdict)
    after = partition.log.producers.get(request.producer_id)
    _check_epoch(after, request)
    if after is not before and not _is_under_way(after, request):
        raise KafkaError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,  # every client comes again on this one
            f"a transaction of producer {request.producer_id} ended while its offsets were verified",
        )


def _check_epoch(state: ProducerState | None, request: TxnOffsetCommitRequest) -> None:
    if state is not None and request.producer_epoch < state.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {request.producer_id} is at epoch {state.epoch}, the request says {request.producer_epoch}",
        )


def _is_under_way(state: ProducerState | None, request: TxnOffsetCommitRequest) -> bool:
    return state is not None and state.transaction_first_offset >= 0 and state.epoch == request.producer_epoch


SERVED = ApiHandler(28, handle)
