"""OffsetCommit and TxnOffsetCommit: who may commit, and the records of commits.

Topics were looked up before: what arrives here names partitions that exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from odradek.groups.classic.group import ClassicGroup
from odradek.groups.shard.formats import offset_key, offset_value
from odradek.groups.shard.kinds import CheckPartition, Committer, Group, check_group_id_length
from odradek.groups.shard.machine import GroupMachine
from odradek.groups.shard.offset_table import PartitionName
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID
from odradek.protocol.schema import INT64_MAX
from odradek.shards import BatchProducer, Moment, NewRecord, Outcome

NO_RETENTION: Final = -1


class Commit(NamedTuple):
    """One partition to commit. Like `CommitRequest` a named tuple: commits are the most frequent thing that coordinators do,
    and a frozen dataclass takes three times as long to make."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: UUID = ZERO_UUID

    @property
    def partition_name(self) -> PartitionName:
        return self.topic, self.partition


class CommitRequest(NamedTuple):
    """The common parts of OffsetCommit and TxnOffsetCommit."""

    group_id: str
    committer: Committer
    commits: Sequence[Commit]
    retention_ms: int = NO_RETENTION
    producer: BatchProducer | None = None


Verdicts = dict[PartitionName, ErrorCode]
_NONE: Final = ErrorCode.NONE
"""Read once: a look at a member of an enumeration is a function of Python."""


class CommitRecords:
    """The records of a commit if its group admits the committer. They depend on no state, so they can be made ahead, in
    turns."""

    __slots__ = ("records", "verdicts")

    def __init__(self) -> None:
        self.verdicts: Final[Verdicts] = {}
        self.records: Final[list[NewRecord]] = []

    def add(self, request: CommitRequest, commit: Commit, now_ms: int, metadata_length_max: int) -> None:
        """Adds an offset. The metadata's limit is in characters, as in Kafka, whatever the setting's name."""
        partition_name = (commit.topic, commit.partition)
        if commit.metadata is not None and len(commit.metadata) > metadata_length_max:
            self.verdicts[partition_name] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            return
        expires_ms = -1
        if request.retention_ms != NO_RETENTION:
            expires_ms = min(now_ms + request.retention_ms, INT64_MAX)
        self.verdicts[partition_name] = _NONE
        self.records.append(_record(request.group_id, commit, now_ms, expires_ms))


def commit(
    machine: GroupMachine, now: Moment, *, request: CommitRequest, prepared: CommitRecords | None = None
) -> Outcome[Verdicts]:
    """Returns an error for each partition, NONE among them. Raises what is wrong with the whole request.

    All records are one batch: a crash keeps the whole commit or nothing of it. RECORD_LIST_TOO_LARGE when they do not fit.
    """
    committer = request.committer
    group = machine.groups.get(request.group_id)
    check_partition = _check(group, request)
    if prepared is None:
        prepared = CommitRecords()
        now_ms, metadata_length_max = now.wall_ms, machine.settings.offset_metadata_max_bytes
        for entry in request.commits:
            prepared.add(request, entry, now_ms, metadata_length_max)
    elif not machine.may_fit(prepared.records):
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{len(prepared.records)} offsets do not fit into one batch: commit fewer at once",
        )
    if check_partition is not None:
        _check_partitions(request, prepared.verdicts, check_partition)
    if group is not None and not committer.is_transactional:
        group.committed(committer, now)
    return Outcome(prepared.verdicts, prepared.records, (), request.producer)


def _check_partitions(request: CommitRequest, verdicts: Verdicts, check_partition: CheckPartition) -> None:
    for entry in request.commits:
        if verdicts[entry.partition_name] is not _NONE:
            continue
        try:
            check_partition(entry.topic, entry.topic_id, entry.partition)
        except KafkaError as error:
            if _is_unknown_code(request.committer, error):
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
            raise


def _check(group: Group | None, request: CommitRequest) -> CheckPartition | None:
    check_group_id_length(request.group_id)
    committer = request.committer
    if group is None:
        if committer.generation < 0:
            return None  # an administrator, or a consumer that assigns partitions to itself
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND if committer.knows_epochs else ErrorCode.ILLEGAL_GENERATION,
            f"there is no group {request.group_id!r}, and so no generation {committer.generation} of it",
        )
    try:
        return group.check_commit(committer)
    except KafkaError as error:
        if _is_unknown_code(committer, error):
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
        raise


def _is_unknown_code(committer: Committer, error: KafkaError) -> bool:
    """Tells whether a producer that commits in an older version would take the error for fatal."""
    stale = error.code is ErrorCode.STALE_MEMBER_EPOCH
    return stale and committer.is_transactional and not committer.knows_epochs


def _record(group_id: str, entry: Commit, now_ms: int, expires_ms: int) -> NewRecord:
    value = offset_value(
        offset=entry.offset,
        leader_epoch=entry.leader_epoch,
        metadata=entry.metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expires_ms,
        topic_id=entry.topic_id,
    )
    return NewRecord(offset_key(group_id, entry.topic, entry.partition), value)


def tombstone(group_id: str, partition_name: PartitionName) -> NewRecord:
    return NewRecord(offset_key(group_id, *partition_name), None)


def simple_group(machine: GroupMachine, group_id: str) -> None:
    """Offsets make a group: one without members or type, until someone joins."""
    if group_id not in machine.groups:
        machine.groups[group_id] = ClassicGroup(group_id, machine.deadlines)
