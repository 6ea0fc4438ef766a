"""OffsetCommit (8): store how far a group has read. Versions 2-10; topics by id from version 10 on."""

from __future__ import annotations

import asyncio
from typing import Final

from odradek.broker.context import Circumstances, Parts, Served
from odradek.broker.group_requests import commit_then, has_partition
from odradek.groups.kinds import Committer
from odradek.groups.offsets.committing import Commit, CommitRequest
from odradek.groups.offsets.table import Place
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_SINCE_TOPIC_IDS: Final = 10


def handle(
    parts: Parts, circumstances: Circumstances, request: OffsetCommitRequest
) -> OffsetCommitResponse | asyncio.Future[OffsetCommitResponse]:
    by_id = circumstances.api_version >= _SINCE_TOPIC_IDS
    commits, names = [], []
    for topic in request.topics:
        name = _name(parts, topic, by_id=by_id)
        names.append(name)
        if name is not None:
            commits += _commits(parts, name, topic)
    if not commits:
        return _response(request, names, {})
    committer = Committer(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        api_version=circumstances.api_version,
    )
    asked = CommitRequest(
        group_id=request.group_id,
        committer=committer,
        commits=commits,
        retention_ms=request.retention_time_ms,
    )
    answered: asyncio.Future[OffsetCommitResponse] = asyncio.get_running_loop().create_future()

    def answer(verdicts: dict[Place, ErrorCode] | KafkaError) -> None:
        if isinstance(verdicts, KafkaError):
            verdicts = dict.fromkeys((one.place for one in commits), verdicts.code)
        if not answered.done():
            answered.set_result(_response(request, names, verdicts))

    commit_then(parts, asked, answer)
    return answered


def _response(
    request: OffsetCommitRequest, names: list[str | None], verdicts: dict[Place, ErrorCode]
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            _answer(topic, name, verdicts)
            for topic, name in zip(request.topics, names, strict=True)
            if topic.partitions
        ]
    )


def _name(parts: Parts, topic: OffsetCommitRequestTopic, *, by_id: bool) -> str | None:
    if not by_id:
        return topic.name
    image = parts.image.topics_by_id.get(topic.topic_id)
    return None if image is None else image.name


def _commits(parts: Parts, name: str, topic: OffsetCommitRequestTopic) -> list[Commit]:
    """Those whose partition exists."""
    image = parts.image.topics.get(name)
    if image is None:
        return []
    return [
        Commit(
            topic=name,
            topic_id=image.topic_id,
            partition=one.partition_index,
            offset=one.committed_offset,
            leader_epoch=one.committed_leader_epoch,
            metadata=one.committed_metadata,
        )
        for one in topic.partitions
        if has_partition(parts, name, one.partition_index)
    ]


def _answer(
    topic: OffsetCommitRequestTopic, name: str | None, verdicts: dict[Place, ErrorCode]
) -> OffsetCommitResponseTopic:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=one.partition_index,
                error_code=verdicts.get((name or "", one.partition_index), unknown),
            )
            for one in topic.partitions
        ],
    )


SERVED = Served(8, handle)
