"""OffsetFetch (9): how far groups have read. Versions 1-10; several groups from version 8 on, topics by id from 10 on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from odradek.broker.handlers.group_requests import OFFSETS_AT_ONCE
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.groups.offsets.fetching import FetchedOffset
from odradek.groups.shard.offset_table import PartitionName
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID
from odradek.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.runtime.turns import Turn, slices

_SINCE_GROUP_ERROR: Final = 2
_SINCE_GROUPS: Final = 8
_SINCE_TOPIC_IDS: Final = 10


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic that was asked for, or found; without a name when its id is unknown."""

    name: str | None
    topic_id: UUID
    partitions: Sequence[int]


async def handle(
    broker: BrokerContext, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    version = context.api_version
    if version < _SINCE_GROUPS:
        return await _one_group(broker, request, version)
    turn = broker.turns.begin()
    by_id = version >= _SINCE_TOPIC_IDS
    groups = []
    for group in {group.group_id: group for group in request.groups}.values():
        await turn.step()
        groups.append(await _group(broker, turn, group, by_id=by_id, stable=request.require_stable))
    return OffsetFetchResponse(groups=groups)


async def _fetched(
    broker: BrokerContext,
    turn: Turn,
    group_id: str,
    wanted: dict[PartitionName, UUID] | None,
    *,
    member_id: str | None = None,
    member_epoch: int = -1,
    require_stable: bool,
) -> dict[PartitionName, FetchedOffset]:
    """Many a few at a time: each slice is of one moment."""
    fetch = partial(
        broker.groups.fetch,
        group_id,
        member_id=member_id,
        member_epoch=member_epoch,
        require_stable=require_stable,
    )
    if wanted is None or len(wanted) <= OFFSETS_AT_ONCE:
        return await fetch(wanted)
    fetched_offsets: dict[PartitionName, FetchedOffset] = {}
    for some in slices(list(wanted.items()), OFFSETS_AT_ONCE):
        await turn.step()
        fetched_offsets |= await fetch(dict(some))
    return fetched_offsets


async def _group(
    broker: BrokerContext, turn: Turn, group: OffsetFetchRequestGroup, *, by_id: bool, stable: bool
) -> OffsetFetchResponseGroup:
    asked = (
        None if group.topics is None else [_requested(broker, topic, by_id=by_id) for topic in group.topics]
    )
    wanted = None if asked is None else _wanted(asked)
    try:
        fetched_offsets = await _fetched(
            broker,
            turn,
            group.group_id,
            wanted,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            require_stable=stable,
        )
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    topics = _found(broker, fetched_offsets, by_id=by_id) if asked is None else asked
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name="" if by_id else topic.name or "",
                topic_id=topic.topic_id if by_id else ZERO_UUID,
                partitions=await turn.map(partial(_partition, topic, fetched_offsets), topic.partitions),
            )
            for topic in topics
        ],
    )


def _requested(broker: BrokerContext, topic: OffsetFetchRequestTopics, *, by_id: bool) -> _Topic:
    if by_id:
        image = broker.image.topics_by_id.get(topic.topic_id)
        return _Topic(None if image is None else image.name, topic.topic_id, topic.partition_indexes)
    return _Topic(topic.name, ZERO_UUID, topic.partition_indexes)


def _wanted(topics: list[_Topic]) -> dict[PartitionName, UUID]:
    return {
        (topic.name, index): topic.topic_id
        for topic in topics
        if topic.name is not None
        for index in topic.partitions
    }


def _found(
    broker: BrokerContext, fetched: dict[PartitionName, FetchedOffset], *, by_id: bool
) -> list[_Topic]:
    """Returns all of a group's offsets. Offsets of deleted topics have no topic id."""
    by_name: dict[str, list[int]] = {}
    for name, index in sorted(fetched):
        by_name.setdefault(name, []).append(index)
    topics = []
    for name, indexes in by_name.items():
        image = broker.image.topics.get(name)
        if image is not None or not by_id:
            topics.append(_Topic(name, ZERO_UUID if image is None else image.topic_id, indexes))
    return topics


def _partition(
    topic: _Topic, fetched: dict[PartitionName, FetchedOffset], index: int
) -> OffsetFetchResponsePartitions:
    if topic.name is None:
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=-1,
            metadata="",
            error_code=ErrorCode.UNKNOWN_TOPIC_ID,
        )
    offset = fetched[topic.name, index]
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error,
    )


async def _one_group(broker: BrokerContext, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    """Answers a request up to version 7, which is about one group. Version 1 has no field for an error except in the
    partitions."""
    topics = (
        None
        if request.topics is None
        else [_Topic(topic.name, ZERO_UUID, topic.partition_indexes) for topic in request.topics]
    )
    code = ErrorCode.NONE
    turn = broker.turns.begin()
    try:
        fetched_offsets = await _fetched(
            broker,
            turn,
            request.group_id,
            None if topics is None else _wanted(topics),
            require_stable=request.require_stable,
        )
    except KafkaError as error:
        code = error.code
        refused = FetchedOffset(error=code)
        fetched_offsets = dict.fromkeys(_wanted(topics or []), refused)
    named = _found(broker, fetched_offsets, by_id=False) if topics is None else topics
    return OffsetFetchResponse(
        error_code=code if version >= _SINCE_GROUP_ERROR else ErrorCode.NONE,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name or "",
                partitions=await turn.map(partial(_old_partition, topic, fetched_offsets), topic.partitions),
            )
            for topic in named
        ],
    )


def _old_partition(
    topic: _Topic, fetched: dict[PartitionName, FetchedOffset], index: int
) -> OffsetFetchResponsePartition:
    offset = fetched[topic.name or "", index]
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error,
    )


SERVED = ApiHandler(9, handle)
