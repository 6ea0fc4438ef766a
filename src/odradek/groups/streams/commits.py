"""Checks who may commit and fetch offsets of a streams group: members in their epoch, and anyone while there are none.

A commit may be on its way when its member's epoch moves on. It counts if the member has the active task still, without a break
since the epoch that the commit names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from odradek.groups.modern.membership import unknown_member
from odradek.groups.shard.kinds import CheckPartition, Committer
from odradek.groups.streams.member import StreamsMember
from odradek.groups.streams.tasks import TaskId
from odradek.model.errors import ErrorCode, KafkaError

_EPOCHS_SINCE_VERSION: Final = 9
"""The first version of OffsetCommit with an error code for a member's stale epoch."""


def check_commit(
    group_id: str,
    members: Mapping[str, StreamsMember],
    subtopologies: Mapping[str, str],
    committer: Committer,
) -> CheckPartition | None:
    """Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH or UNSUPPORTED_VERSION; returns the check of each partition.
    `subtopologies` has the subtopology that reads each topic."""
    epoch = committer.generation
    if epoch < 0 and (not members or (committer.is_transactional and not committer.member_id)):
        return None
    member = members.get(committer.member_id)
    if member is None:
        raise unknown_member(group_id, committer.member_id)
    if not committer.is_transactional and committer.api_version < _EPOCHS_SINCE_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"OffsetCommit version {_EPOCHS_SINCE_VERSION} or above must be used by members using the streams group protocol",
        )
    if epoch == member.epoch:
        return None
    stale = KafkaError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"member {member.member_id!r} of group {group_id!r} is in epoch {member.epoch}, the commit says {epoch}",
    )
    if epoch > member.epoch or epoch < 0:
        raise stale

    def check(topic: str, topic_id: UUID, partition: int) -> None:
        subtopology = subtopologies.get(topic)
        since = None if subtopology is None else member.current.epoch_of(TaskId(subtopology, partition))
        if since is None or since > epoch:
            raise stale

    return check


def check_fetch(
    group_id: str, members: Mapping[str, StreamsMember], member_id: str | None, epoch: int
) -> None:
    """Checks a fetch: one without a member id is always allowed, one of a member only in its epoch."""
    if not member_id and epoch < 0:
        return
    member = members.get(member_id or "")
    if member is None:
        raise unknown_member(group_id, member_id or "")
    if epoch != member.epoch:
        raise KafkaError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"member {member_id!r} is in epoch {member.epoch}, the request says {epoch}",
        )
