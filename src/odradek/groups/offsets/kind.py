"""The parts that offsets register with the machine: their record, and the round that expires them."""

from __future__ import annotations

from typing import Final

from odradek.groups.formats import OFFSET_COMMIT_KEYS, OffsetCommitValue, read, read_offset_key
from odradek.groups.machine import CLEANUP, GroupMachine, KindParts
from odradek.groups.offsets.committing import simple_group
from odradek.groups.offsets.removing import cleanup_due
from odradek.groups.offsets.table import CommittedOffset
from odradek.shards import StoredRecord

_NO_PRODUCER: Final = -1


def _replay(machine: GroupMachine, record: StoredRecord) -> None:
    key = read_offset_key(record.key)
    place = (key.topic, key.partition)
    if record.value is None:
        machine.offsets.delete(key.group, place)
        return
    value = read(OffsetCommitValue, record.value)
    committed = CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        expire_timestamp_ms=value.expire_timestamp,
        topic_id=value.topic_id,
        record_offset=record.offset,
    )
    simple_group(machine, key.group)
    if record.producer_id == _NO_PRODUCER:
        machine.offsets.put(key.group, place, committed)
    else:
        machine.offsets.put_undecided(record.producer_id, key.group, place, committed)


OFFSETS: Final = KindParts(
    replays=dict.fromkeys(OFFSET_COMMIT_KEYS, _replay), expires={CLEANUP.kind: cleanup_due}
)
