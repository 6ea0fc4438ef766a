"""The committed offsets of a shard, and those that transactions have yet to decide. Changed by replay alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from odradek.model.ids import ZERO_UUID


class CommittedOffset(NamedTuple):
    """A group's committed offset for a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """The expiry time that the client set (OffsetCommit up to version 4); -1: the broker's setting applies."""
    topic_id: UUID
    """The topic's id; zeros when it is unknown, as after a transaction's commit or in an older coordinator's record."""
    record_offset: int
    """The offset of its record: the end of a transaction does not undo later commits."""

    def is_of(self, topic_id: UUID | None) -> bool:
        """Returns whether it was committed for this topic id, or for an unknown one: a name may have been used again."""
        return topic_id in (None, ZERO_UUID, self.topic_id) or self.topic_id == ZERO_UUID


PartitionName = tuple[str, int]
"""(Topic, partition)."""


class OffsetTable:
    """The offsets of a shard by group, topic and partition. A group need not exist to have offsets."""

    __slots__ = ("_by_group", "_open", "_pending")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[PartitionName, CommittedOffset]] = {}
        self._pending: dict[int, dict[tuple[str, PartitionName], CommittedOffset]] = {}
        """The offsets that each producer's open transaction commits."""
        self._open: dict[str, dict[PartitionName, set[int]]] = {}
        """The producers whose open transactions commit something for a group's partition."""

    def of(self, group_id: str) -> dict[PartitionName, CommittedOffset]:
        """Returns all offsets of a group; do not change them."""
        return self._by_group.get(group_id, {})

    def get(self, group_id: str, partition_name: PartitionName) -> CommittedOffset | None:
        return self._by_group.get(group_id, {}).get(partition_name)

    def groups(self) -> Iterator[str]:
        """Yields the groups with offsets, decided or not."""
        yield from self._by_group
        yield from (group_id for group_id in self._open if group_id not in self._by_group)

    def is_undecided(self, group_id: str, partition_name: PartitionName) -> bool:
        return partition_name in self._open.get(group_id, {})

    def undecided(self, group_id: str) -> list[PartitionName]:
        return list(self._open.get(group_id, {}))

    # -- replay

    def put(self, group_id: str, partition_name: PartitionName, offset: CommittedOffset) -> None:
        self._by_group.setdefault(group_id, {})[partition_name] = offset

    def put_undecided(
        self, producer_id: int, group_id: str, partition_name: PartitionName, offset: CommittedOffset
    ) -> None:
        self._pending.setdefault(producer_id, {})[group_id, partition_name] = offset
        self._open.setdefault(group_id, {}).setdefault(partition_name, set()).add(producer_id)

    def delete(self, group_id: str, partition_name: PartitionName) -> None:
        """Deletes an offset. A tombstone also removes what transactions had pending before it."""
        offsets = self._by_group.get(group_id)
        if offsets is not None:
            offsets.pop(partition_name, None)
            if not offsets:
                del self._by_group[group_id]
        for producer_id in self._open.get(group_id, {}).get(partition_name, ()):
            self._pending.get(producer_id, {}).pop((group_id, partition_name), None)
        self._close(group_id, partition_name, None)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        for (group_id, partition_name), offset in self._pending.pop(producer_id, {}).items():
            self._close(group_id, partition_name, producer_id)
            present = self.get(group_id, partition_name)
            if is_commit and (present is None or present.record_offset < offset.record_offset):
                self.put(group_id, partition_name, offset)

    def _close(self, group_id: str, partition_name: PartitionName, producer_id: int | None) -> None:
        """Removes the partition from the producer's transaction (None: from everyone's)."""
        open_partitions = self._open.get(group_id)
        producers = open_partitions.get(partition_name) if open_partitions is not None else None
        if open_partitions is None or producers is None:
            return
        if producer_id is None:
            producers.clear()
        else:
            producers.discard(producer_id)
        if not producers:
            del open_partitions[partition_name]
            if not open_partitions:
                del self._open[group_id]
