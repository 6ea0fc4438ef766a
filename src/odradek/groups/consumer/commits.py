"""Checks who may commit and fetch offsets of a consumer group: members in their epoch, and anyone while there are none.

A commit may be on its way when its member's epoch moves on. It counts if the member has the partition still, without a break
since the epoch that the commit names (KIP-1251): no one else can have read it in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from odradek.groups.consumer.member import ConsumerGroupMember
from odradek.groups.shard.kinds import CheckPartition, Committer
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID

_EPOCHS_SINCE_VERSION: Final = 9
"""The first version of OffsetCommit with an error code for a member's stale epoch."""


def check_commit(
    group_id: str,
    members: Mapping[str, ConsumerGroupMember],
    committer: Committer,
) -> CheckPartition | None:
    """Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION or UNSUPPORTED_VERSION; returns the check of each
    partition."""
    epoch = committer.generation
    if epoch < 0 and (not members or (committer.is_transactional and not committer.member_id)):
        return None
    member = members.get(committer.member_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"{committer.member_id!r} is not a member of group {group_id!r}"
        )
    speaks_epochs = committer.is_transactional or committer.knows_epochs
    if not member.is_classic and not speaks_epochs:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"members of the consumer protocol commit with OffsetCommit {_EPOCHS_SINCE_VERSION} or newer",
        )
    if epoch == member.epoch:
        return None
    if member.is_classic:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"member {member.member_id!r} is in generation {member.epoch}, the commit says {epoch}",
        )
    # TxnOffsetCommit before version 6 has no such code: producers would take it for fatal.
    code = ErrorCode.STALE_MEMBER_EPOCH if committer.knows_epochs else ErrorCode.ILLEGAL_GENERATION
    stale = KafkaError(
        code,
        f"member {member.member_id!r} of group {group_id!r} is in epoch {member.epoch}, the commit says {epoch}",
    )
    if epoch > member.epoch or epoch < 0:
        raise stale
    return _assigned_since(member, epoch, stale)


def _assigned_since(member: ConsumerGroupMember, epoch: int, stale: KafkaError) -> CheckPartition:
    def check(topic: str, topic_id: UUID, partition: int) -> None:
        assigned_epoch = (
            member.current.assigned.get(topic_id, {}).get(partition) if topic_id != ZERO_UUID else None
        )
        if assigned_epoch is None or assigned_epoch > epoch:
            raise stale

    return check


def check_fetch(
    group_id: str, members: Mapping[str, ConsumerGroupMember], member_id: str | None, epoch: int
) -> None:
    """Checks a fetch: one without a member id is always allowed, one of a member only in its epoch."""
    if not member_id and epoch < 0:
        return
    member = members.get(member_id or "")
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of group {group_id!r}")
    if epoch != member.epoch:
        code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
        raise KafkaError(code, f"member {member_id!r} is in epoch {member.epoch}, the request says {epoch}")
