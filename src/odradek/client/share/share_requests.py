"""The messages of share sessions: ShareFetch and ShareAcknowledge from what a session and its acknowledgements need. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from odradek.client.settings.settings import ShareConsumerSettings
from odradek.client.share.acknowledgements import AcknowledgementGroup
from odradek.client.share.share_record import SharePartitionId
from odradek.client.share.share_session import ShareSessionRequest
from odradek.protocol.messages.share.share_acknowledge import (
    AcknowledgementBatch as LoneBatch,
)
from odradek.protocol.messages.share.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek.protocol.messages.share.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)

RENEWAL_VERSION: Final = 2
"""The first version of ShareAcknowledge that renews locks."""
ACQUIRE_MODES: Final = {"batch_optimized": 0, "record_limit": 1}


def fetch_request(
    settings: ShareConsumerSettings,
    member_id: str,
    planned: ShareSessionRequest,
    groups: Sequence[AcknowledgementGroup],
    *,
    record_count_max: int,
) -> ShareFetchRequest:
    """Returns a ShareFetch that changes the session's partitions, and carries acknowledgements of some that it reads."""
    batches = {
        group.partition: [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in group.ranges()
        ]
        for group in groups
    }
    topics: dict[UUID, FetchTopic] = {}
    for partition in dict.fromkeys([*planned.added, *batches]):
        topic = topics.setdefault(partition.topic_id, FetchTopic(topic_id=partition.topic_id, partitions=[]))
        topic.partitions.append(
            FetchPartition(
                partition_index=partition.partition,
                acknowledgement_batches=batches.get(partition, []),
            )
        )
    return ShareFetchRequest(
        group_id=settings.group_id,
        member_id=member_id,
        share_session_epoch=planned.epoch,
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        max_records=record_count_max,
        batch_size=record_count_max,
        share_acquire_mode=ACQUIRE_MODES[settings.share_acquire_mode],
        topics=list(topics.values()),
        forgotten_topics_data=_forgotten(planned.forgotten),
    )


def acknowledge_request(
    group_id: str, member_id: str, epoch: int, groups: Iterable[AcknowledgementGroup]
) -> ShareAcknowledgeRequest:
    """Returns a ShareAcknowledge with all of these groups; it renews locks if any of them does."""
    chosen = list(groups)
    topics: dict[UUID, AcknowledgeTopic] = {}
    for group in chosen:
        topic_id = group.partition.topic_id
        topic = topics.setdefault(topic_id, AcknowledgeTopic(topic_id=topic_id, partitions=[]))
        topic.partitions.append(
            AcknowledgePartition(
                partition_index=group.partition.partition,
                acknowledgement_batches=[
                    LoneBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                    for first, last, types in group.ranges()
                ],
            )
        )
    return ShareAcknowledgeRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        is_renew_ack=any(group.renews for group in chosen),
        topics=list(topics.values()),
    )


def _forgotten(partitions: Iterable[SharePartitionId]) -> list[ForgottenTopic]:
    topics: dict[UUID, ForgottenTopic] = {}
    for partition in partitions:
        topic = topics.setdefault(
            partition.topic_id, ForgottenTopic(topic_id=partition.topic_id, partitions=[])
        )
        topic.partitions.append(partition.partition)
    return list(topics.values())
