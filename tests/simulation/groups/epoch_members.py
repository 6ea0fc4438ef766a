"""What members of consumer groups and of streams groups have in common: both live in epochs that the coordinator gives out."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from tests.simulation.groups.members import GROUP

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.testing.sim.wire_client import WireClient

SESSION_MS: Final = 3_000
REBALANCE_MS: Final = 6_000
"""Longer than the session: a member that cannot hear that it must give back loses its session first."""
LATER: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
BEGIN_AGAIN: Final = frozenset(
    {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
)
OTHER_MEMBER: Final = frozenset({ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID})
FIRST_VERSION_BY_ID: Final = 10


async def commit_offset(
    client: WireClient,
    version: int,
    *,
    topic: str,
    topic_id: UUID,
    partition: int,
    offset: int,
    member_id: str,
    instance_id: str | None,
    member_epoch: int,
) -> ErrorCode:
    """Commits the offset of one partition, by the topic's name or id. Returns the answer's code."""
    by_id = version >= FIRST_VERSION_BY_ID
    asked = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=member_epoch,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name="" if by_id else topic,
                topic_id=topic_id if by_id else UUID(int=0),
                partitions=[asked],
            )
        ],
    )
    response = await client.call(request, version, OffsetCommitResponse)
    return ErrorCode.of(response.topics[0].partitions[0].error_code)
