"""The parts that offsets register with the machine: their record, and the round that expires them."""

from __future__ import annotations

from typing import Final

from odradek.groups.offsets.committing import simple_group
from odradek.groups.offsets.removing import cleanup_due
from odradek.groups.shard.formats import OFFSET_COMMIT_KEYS, read_offset_key, read_offset_value
from odradek.groups.shard.machine import CLEANUP, GroupMachine, KindParts
from odradek.shards import StoredRecord

_NO_PRODUCER: Final = -1


def _replay(machine: GroupMachine, record: StoredRecord) -> None:
    key = read_offset_key(record.key)
    partition_name = (key.topic, key.partition)
    if record.value is None:
        machine.offsets.delete(key.group, partition_name)
        return
    committed = read_offset_value(record.value, record.offset)
    simple_group(machine, key.group)
    if record.producer_id == _NO_PRODUCER:
        machine.offsets.put(key.group, partition_name, committed)
    else:
        machine.offsets.put_undecided(record.producer_id, key.group, partition_name, committed)


OFFSETS: Final = KindParts(
    replays=dict.fromkeys(OFFSET_COMMIT_KEYS, _replay), expires={CLEANUP.kind: cleanup_due}
)
