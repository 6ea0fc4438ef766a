"""OffsetCommit and TxnOffsetCommit: who may commit, and the records that say so.

Topics were looked up before: what arrives here names partitions that exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.groups.classic.group import ClassicGroup
from odradek.groups.formats import OffsetCommitValue, offset_key, offset_value
from odradek.groups.kinds import CheckPartition, Committer, check_group_id_length
from odradek.groups.machine import GroupMachine
from odradek.groups.offsets.table import Place
from odradek.groups.step import Step
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID
from odradek.protocol.schema import INT64_MAX
from odradek.shards import BatchProducer, Moment, NewRecord, Outcome

_SINCE_GROUP_ID_NOT_FOUND: Final = 9
NO_RETENTION: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One partition to commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: UUID = ZERO_UUID

    @property
    def place(self) -> Place:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """What OffsetCommit and TxnOffsetCommit have in common."""

    group_id: str
    committer: Committer
    commits: Sequence[Commit]
    retention_ms: int = NO_RETENTION
    producer: BatchProducer | None = None


Verdicts = dict[Place, ErrorCode]


def commit(machine: GroupMachine, now: Moment, *, request: CommitRequest) -> Outcome[Verdicts]:
    """An error for each partition, NONE among them. Raises what is wrong with the whole request."""
    check_partition = _check(machine, request)
    step = Step(now)
    expires_ms = -1
    if request.retention_ms != NO_RETENTION:
        expires_ms = min(now.wall_ms + request.retention_ms, INT64_MAX)
    verdicts: Verdicts = {}
    for one in request.commits:
        verdicts[one.place] = _verdict(machine, one, request.committer, check_partition)
        if verdicts[one.place] is ErrorCode.NONE:
            step.records.append(_record(request.group_id, one, now.wall_ms, expires_ms))
    group = machine.groups.get(request.group_id)
    if group is not None and not request.committer.is_transactional:
        group.committed(request.committer, now)
    return Outcome(verdicts, records=step.records, producer=request.producer)


def _check(machine: GroupMachine, request: CommitRequest) -> CheckPartition | None:
    check_group_id_length(request.group_id)
    committer = request.committer
    group = machine.groups.get(request.group_id)
    if group is None:
        if committer.generation < 0:
            return None  # an administrator, or a consumer that assigns partitions to itself
        newer = committer.api_version >= _SINCE_GROUP_ID_NOT_FOUND and not committer.is_transactional
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION,
            f"there is no group {request.group_id!r}, and so no generation {committer.generation} of it",
        )
    try:
        return group.check_commit(committer)
    except KafkaError as error:
        if committer.is_transactional and error.code is ErrorCode.STALE_MEMBER_EPOCH:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
        raise


def _verdict(
    machine: GroupMachine, one: Commit, committer: Committer, check_partition: CheckPartition | None
) -> ErrorCode:
    """The metadata's limit is in characters, as in Kafka, whatever the setting's name says."""
    if one.metadata is not None and len(one.metadata) > machine.settings.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    if check_partition is not None:
        try:
            check_partition(one.topic, one.topic_id, one.partition)
        except KafkaError as error:
            if committer.is_transactional and error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
            raise
    return ErrorCode.NONE


def _record(group_id: str, one: Commit, now_ms: int, expires_ms: int) -> NewRecord:
    value = OffsetCommitValue(
        offset=one.offset,
        leader_epoch=one.leader_epoch,
        metadata=one.metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expires_ms,
        topic_id=one.topic_id,
    )
    return NewRecord(offset_key(group_id, one.topic, one.partition), offset_value(value))


def tombstone(group_id: str, place: Place) -> NewRecord:
    return NewRecord(offset_key(group_id, *place), None)


def simple_group(machine: GroupMachine, group_id: str) -> None:
    """Offsets make a group: one without members or type, until somebody joins."""
    if group_id not in machine.groups:
        machine.groups[group_id] = ClassicGroup(group_id, machine.deadlines)
