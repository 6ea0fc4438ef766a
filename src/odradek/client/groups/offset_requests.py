"""OffsetCommit and OffsetFetch: their messages, and the readers of their answers. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from odradek.client.groups.member_bytes import by_topic
from odradek.client.groups.values import CommittedOffsets, GroupMetadata, OffsetAndMetadata
from odradek.model.errors import ErrorCode
from odradek.model.ids import NO_OFFSET, ZERO_UUID, TopicPartition
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

COMMIT_WITH_NAMES: Final = 9
FETCH_WITH_NAMES: Final = 9
"""The last versions that can be used when a topic's id is not known."""
_FIRST_FETCH_OF_GROUPS: Final = 8
_FIRST_FETCH_OF_STABLE: Final = 7

TopicIds = Mapping[str, UUID]
Errors = dict[TopicPartition, ErrorCode]


def commit_request(
    who: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata], ids: TopicIds
) -> OffsetCommitRequest:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for tp, committed in offsets.items():
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = OffsetCommitRequestTopic(name=tp.topic, partitions=[])
            if tp.topic in ids:
                topic = topics[tp.topic] = topic.replace(topic_id=ids[tp.topic])
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=who.group_id,
        generation_id_or_member_epoch=who.generation,
        member_id=who.member_id,
        group_instance_id=who.group_instance_id,
        topics=list(topics.values()),
    )


def commit_errors(response: OffsetCommitResponse, ids: TopicIds) -> Errors:
    """Returns the errors of the refused partitions."""
    names = {topic_id: name for name, topic_id in ids.items()}
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), partition.partition_index): ErrorCode.of(
            partition.error_code
        )
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code != ErrorCode.NONE
    }


def fetch_request(
    version: int,
    who: GroupMetadata,
    partitions: Iterable[TopicPartition] | None,
    ids: TopicIds,
    require_stable: bool,
) -> OffsetFetchRequest:
    """Builds an OffsetFetch request. `partitions` None: all that the group has committed."""
    grouped = None if partitions is None else by_topic(partitions)
    stable = require_stable and version >= _FIRST_FETCH_OF_STABLE
    if version < _FIRST_FETCH_OF_GROUPS:
        old = (
            None
            if grouped is None
            else [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in grouped.items()
            ]
        )
        return OffsetFetchRequest(group_id=who.group_id, topics=old, require_stable=stable)
    topics = None
    if grouped is not None:
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=indexes, **_id_of(name, ids))
            for name, indexes in grouped.items()
        ]
    group = OffsetFetchRequestGroup(
        group_id=who.group_id,
        member_id=who.member_id or None,
        member_epoch=who.generation,
        topics=topics,
    )
    return OffsetFetchRequest(groups=[group], require_stable=stable)


def read_fetched(
    response: OffsetFetchResponse, ids: TopicIds
) -> tuple[ErrorCode, CommittedOffsets, dict[TopicPartition, ErrorCode]]:
    """(error of the whole answer, offsets, errors of partitions)."""
    names = {topic_id: name for name, topic_id in ids.items()}
    code = ErrorCode.of(response.groups[0].error_code if response.groups else response.error_code)
    metadatas: CommittedOffsets = {}
    errors: Errors = {}
    if response.groups:
        places = [
            (
                TopicPartition(topic.name or names.get(topic.topic_id, ""), partition.partition_index),
                topic.topic_id,
                partition,
            )
            for topic in response.groups[0].topics
            for partition in topic.partitions
        ]
        rows = [
            (tp, e.error_code, e.committed_offset, e.metadata, e.committed_leader_epoch, topic_id)
            for tp, topic_id, e in places
        ]
    else:
        rows = [
            (
                TopicPartition(topic.name, partition.partition_index),
                partition.error_code,
                partition.committed_offset,
                partition.metadata,
                partition.committed_leader_epoch,
                ZERO_UUID,
            )
            for topic in response.topics
            for partition in topic.partitions
        ]
    for tp, error_code, offset, metadata, leader_epoch, topic_id in rows:
        if error_code != ErrorCode.NONE:
            errors[tp] = ErrorCode.of(error_code)
        elif offset == NO_OFFSET:
            metadatas[tp] = None
        else:
            metadatas[tp] = OffsetAndMetadata(offset, metadata or "", leader_epoch, topic_id)
    return code, metadatas, errors


def _id_of(name: str, ids: TopicIds) -> dict[str, UUID]:
    return {"topic_id": ids[name]} if name in ids else {}
