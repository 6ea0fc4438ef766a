"""What the machine does about many deadlines at once."""

from enum import Enum

from tests.unit.groups.group_bench import GroupBench

from odradek.groups.shard.deadlines import DeadlineKey
from odradek.groups.shard.machine import GroupMachine, KindParts
from odradek.groups.shard.step import GroupStep
from odradek.shards import NewRecord

BATCH_BYTES_MAX = 200_000


class Timer(Enum):
    LOUD = "loud"


def test_what_many_deadlines_write_comes_in_batches_that_fit() -> None:
    heard = []

    def expire(machine: GroupMachine, due: DeadlineKey, step: GroupStep) -> None:
        heard.append(due.group_id)
        step.records.append(NewRecord(b"\x7f\xff" + bytes(30_000), None))

    bench = GroupBench(
        kinds=[KindParts(replays={0x7FFF: lambda machine, record: None}, expires={Timer.LOUD: expire})],
        batch_bytes_max=BATCH_BYTES_MAX,
    )
    names = [f"g{number}" for number in range(30)]
    for name in names:
        bench.machine.deadlines.set(DeadlineKey(Timer.LOUD, name), 1_000)
    bench.advance(2_000)
    assert heard == names
    assert max(sum(len(record.key) for record in batch) for batch in bench.batches) < BATCH_BYTES_MAX
