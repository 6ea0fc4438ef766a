"""OffsetCommit (8): store how far a group has read. Versions 2-10; topics by id from version 10 on."""

from __future__ import annotations

from functools import partial
from typing import Final
from uuid import UUID

from odradek.broker.handlers.group_requests import (
    OFFSETS_AT_ONCE,
    AnswerTicket,
    Verdicts,
    commit_for,
    commit_in_time,
    commit_records,
    commit_then,
    has_partition,
    refused_commits,
)
from odradek.broker.requests.context import (
    ApiHandler,
    BrokerContext,
    Encode,
    HeldResponse,
    RequestContext,
)
from odradek.groups.offsets.committing import Commit, CommitRequest
from odradek.groups.shard.kinds import Committer
from odradek.groups.shard.offset_table import PartitionName
from odradek.model.errors import ErrorCode, KafkaError
from odradek.net.connection import Connection
from odradek.net.replies import Chunks, HeldReply
from odradek.protocol import RequestHeader
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.small_commits import SmallCommit, encode_committed, read_small_commit
from odradek.runtime.prompt import PromptFuture
from odradek.runtime.turns import slices

_SINCE_TOPIC_IDS: Final = 10


def handle(
    broker: BrokerContext, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | PromptFuture[OffsetCommitResponse] | HeldResponse:
    by_id = context.api_version >= _SINCE_TOPIC_IDS
    if len(request.topics) + sum(len(topic.partitions) for topic in request.topics) > OFFSETS_AT_ONCE:
        return HeldResponse(_commit_many(broker, context, request, by_id=by_id))
    commits, names = [], []
    for topic in request.topics:
        name = _name(broker, topic, by_id=by_id)
        names.append(name)
        if name is not None:
            commits += _commits(broker, name, topic)
    if not commits:
        return _response(request, names, {})
    requested = _commit_request(context, request, commits)
    answered: PromptFuture[OffsetCommitResponse] = PromptFuture()

    def answer(verdicts: dict[PartitionName, ErrorCode] | KafkaError) -> None:
        if isinstance(verdicts, KafkaError):
            verdicts = dict.fromkeys((commit.partition_name for commit in commits), verdicts.code)
        if not answered.done():
            answered.set_result(_response(request, names, verdicts))

    commit_then(broker, requested, answer)
    return answered


def handle_small(
    broker: BrokerContext,
    connection: Connection,
    header: RequestHeader,
    frame: memoryview,
    position: int,
    encode: Encode,
) -> PromptFuture[Chunks | None] | None:
    """Serves a commit for a few partitions of one topic, all of which exist. Returns None, with nothing done, for any other."""
    asked = read_small_commit(frame, position, header.api_version)
    if asked is None:
        return None
    image = broker.image
    topic = (
        image.topics_by_id.get(asked.topic)
        if isinstance(asked.topic, UUID)
        else image.topics.get(asked.topic)
    )
    if topic is None:
        return None
    name, topic_id, count = topic.name, topic.topic_id, len(topic.partitions)
    commits = []
    for index, offset, leader_epoch, metadata in asked.offsets:
        if not 0 <= index < count:
            return None
        # Here and below: half the price of `Commit(...)`, which is a function of Python.
        commits.append(tuple.__new__(Commit, (name, index, offset, leader_epoch, metadata, topic_id)))
    member = (asked.member_id, asked.instance_id, asked.generation, False, header.api_version)
    committer = tuple.__new__(Committer, member)
    requested = tuple.__new__(CommitRequest, (asked.group_id, committer, commits, asked.retention_ms, None))

    def encoded(verdicts: Verdicts) -> Chunks | HeldReply:
        if any(verdicts.values()):
            return encode(_small_refusal(asked, name, verdicts))
        indexes = [offset[0] for offset in asked.offsets]
        return [encode_committed(header.api_version, header.correlation_id, asked.topic, indexes)]

    answered = AnswerTicket(encoded, partial(refused_commits, requested))
    commit_for(broker, requested, answered)
    return answered


def _small_refusal(asked: SmallCommit, name: str, verdicts: Verdicts) -> OffsetCommitResponse:
    partitions = [OffsetCommitRequestPartition(partition_index=offset.partition) for offset in asked.offsets]
    topic = OffsetCommitRequestTopic(partitions=partitions)
    topic = topic.replace(topic_id=asked.topic) if isinstance(asked.topic, UUID) else topic.replace(name=name)
    return OffsetCommitResponse(topics=[_answer(topic, name, verdicts)])


def _commit_request(
    context: RequestContext, request: OffsetCommitRequest, commits: list[Commit]
) -> CommitRequest:
    committer = Committer(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        api_version=context.api_version,
    )
    return CommitRequest(
        group_id=request.group_id,
        committer=committer,
        commits=commits,
        retention_ms=request.retention_time_ms,
    )


async def _commit_many(
    broker: BrokerContext, context: RequestContext, request: OffsetCommitRequest, *, by_id: bool
) -> OffsetCommitResponse:
    """Looked up, encoded and answered in turns; written as one batch, as a small commit is."""
    turn = broker.turns.begin()
    commits: list[Commit] = []
    names = []
    for topic in request.topics:
        await turn.step()
        name = _name(broker, topic, by_id=by_id)
        names.append(name)
        if name is not None:
            for some in slices(topic.partitions):
                await turn.step()
                commits += _commits(broker, name, topic.replace(partitions=list(some)))
    verdicts: dict[PartitionName, ErrorCode] = {}
    if commits:
        requested = _commit_request(context, request, commits)
        try:
            verdicts = await commit_in_time(broker, requested, await commit_records(broker, turn, requested))
        except KafkaError as error:
            verdicts = dict.fromkeys((commit.partition_name for commit in commits), error.code)
    response = OffsetCommitResponse(topics=[])
    for topic, name in zip(request.topics, names, strict=True):
        if topic.partitions:
            partitions = await turn.map(partial(_verdict, verdicts, name), topic.partitions)
            response.topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
    return response


def _response(
    request: OffsetCommitRequest, names: list[str | None], verdicts: dict[PartitionName, ErrorCode]
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            _answer(topic, name, verdicts)
            for topic, name in zip(request.topics, names, strict=True)
            if topic.partitions
        ]
    )


def _name(broker: BrokerContext, topic: OffsetCommitRequestTopic, *, by_id: bool) -> str | None:
    if not by_id:
        return topic.name
    image = broker.image.topics_by_id.get(topic.topic_id)
    return None if image is None else image.name


def _commits(broker: BrokerContext, name: str, topic: OffsetCommitRequestTopic) -> list[Commit]:
    """Returns the commits whose partition exists."""
    image = broker.image.topics.get(name)
    if image is None:
        return []
    return [
        Commit(
            topic=name,
            topic_id=image.topic_id,
            partition=partition.partition_index,
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata,
        )
        for partition in topic.partitions
        if has_partition(broker, name, partition.partition_index)
    ]


def _answer(
    topic: OffsetCommitRequestTopic, name: str | None, verdicts: dict[PartitionName, ErrorCode]
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_verdict(verdicts, name, partition) for partition in topic.partitions],
    )


def _verdict(
    verdicts: dict[PartitionName, ErrorCode], name: str | None, requested: OffsetCommitRequestPartition
) -> OffsetCommitResponsePartition:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetCommitResponsePartition(
        partition_index=requested.partition_index,
        error_code=verdicts.get((name or "", requested.partition_index), unknown),
    )


SERVED = ApiHandler(8, handle, short=handle_small)
