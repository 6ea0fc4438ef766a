"""The shard of `__share_group_state`: updates, snapshots, epochs, and what a restart needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar
from uuid import UUID

import pytest

from odradek.groups.share.partition import RecordState, StateBatch
from odradek.groups.share.state import ShareState, ShareStates, StateChange, StateSettings
from odradek.groups.share.state_formats import SNAPSHOT, UPDATE, SharePartitionKey
from odradek.model.errors import ErrorCode, KafkaError
from odradek.shards import Moment, NewRecord, Outcome, StoredRecord

T = TypeVar("T")
PARTITION_KEY = SharePartitionKey("g", UUID(int=7), 3)
OTHER = SharePartitionKey("g", UUID(int=8), 0)
DONE, GONE, FREE = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED, RecordState.AVAILABLE


class Log:
    """A machine, and the records that it is made from."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.settings = StateSettings(updates_per_snapshot=updates_per_snapshot, cold_interval_ms=1_000)
        self.machine = ShareStates(lambda: self.settings)
        self.records: list[NewRecord] = []
        self.wall_ms = 1_000_000

    @property
    def now(self) -> Moment:
        return Moment(self.wall_ms, self.wall_ms)

    def run(self, operation: Callable[[ShareStates, Moment], Outcome[T]]) -> T:
        return self.written(operation(self.machine, self.now))

    def written(self, outcome: Outcome[T]) -> T:
        for record in outcome.records:
            self.machine.replay(self._stored(len(self.records), record))
            self.records.append(record)
        return outcome.reply

    def _stored(self, offset: int, record: NewRecord) -> StoredRecord:
        return StoredRecord(record.key, record.value, offset, self.wall_ms)

    def restarted(self, from_offset: int = 0) -> ShareStates:
        machine = ShareStates(lambda: self.settings)
        for offset, record in enumerate(self.records):
            if offset >= from_offset:
                machine.replay(self._stored(offset, record))
        return machine

    def begin(self, offset: int, partition_key: SharePartitionKey = PARTITION_KEY) -> int:
        before = self.machine.find(self.now, partition_key=partition_key).reply
        epoch = 0 if before is None else before.state_epoch + 1
        self.run(
            partial(
                ShareStates.initialize, partition_key=partition_key, state_epoch=epoch, start_offset=offset
            )
        )
        return epoch

    def write(
        self,
        start: int,
        *batches: StateBatch,
        epoch: int = 0,
        partition_key: SharePartitionKey = PARTITION_KEY,
    ) -> None:
        self.run(
            partial(
                ShareStates.write, partition_key=partition_key, change=StateChange(epoch, 0, start, batches)
            )
        )

    def state(self, machine: ShareStates | None = None) -> ShareState | None:
        return (machine or self.machine).find(self.now, partition_key=PARTITION_KEY).reply


def test_a_restart_knows_what_updates_said() -> None:
    log = Log()
    log.begin(10)
    log.write(10, StateBatch(11, 14, DONE, 1))
    log.write(10, StateBatch(13, 13, FREE, 2), StateBatch(16, 16, GONE, 5))
    state = log.state()
    assert state is not None
    assert state.batches == (
        StateBatch(11, 12, DONE, 1),
        StateBatch(13, 13, FREE, 2),
        StateBatch(14, 14, DONE, 1),
        StateBatch(16, 16, GONE, 5),
    )
    assert state.complete_count == 4
    assert log.state(log.restarted()) == state
    assert [record.key[1] for record in log.records] == [SNAPSHOT, UPDATE, UPDATE]


def test_what_lies_below_the_start_is_forgotten() -> None:
    log = Log()
    log.begin(0)
    log.write(0, StateBatch(0, 9, DONE, 1))
    log.write(5)
    state = log.state()
    assert state is not None
    assert (state.start_offset, state.batches) == (5, (StateBatch(5, 9, DONE, 1),))


def test_a_snapshot_makes_what_was_written_before_superfluous() -> None:
    log = Log(updates_per_snapshot=3)
    log.begin(0)
    for offset in range(1, 6):
        log.write(0, StateBatch(offset, offset, DONE, 1))
    needed = log.run(ShareStates.needed_from)
    assert needed == 3
    assert log.state(log.restarted(from_offset=needed)) == log.state()


def test_a_writer_that_missed_a_new_beginning_is_fenced() -> None:
    log = Log()
    assert log.begin(0) == 0
    assert log.begin(40) == 1
    with pytest.raises(KafkaError) as refused:
        log.write(1)
    assert refused.value.code is ErrorCode.FENCED_STATE_EPOCH
    log.write(41, epoch=1)
    state = log.state(log.restarted())
    assert state is not None
    assert state.start_offset == 41


def test_what_is_deleted_is_gone_and_writes_to_it_are_fenced() -> None:
    log = Log()
    log.begin(0)
    log.begin(0, OTHER)
    log.run(partial(ShareStates.delete, partition_key=PARTITION_KEY))
    assert log.state() is None
    assert log.state(log.restarted()) is None
    with pytest.raises(KafkaError) as refused:
        log.write(1)
    assert refused.value.code is ErrorCode.FENCED_STATE_EPOCH
    assert log.run(partial(ShareStates.delete_topics, topic_ids=frozenset({OTHER.topic_id})))
    assert log.run(ShareStates.needed_from) is None


def test_what_no_one_writes_is_written_again_so_that_the_log_can_be_cut() -> None:
    log = Log()
    log.begin(0)
    log.write(0, StateBatch(1, 1, DONE, 1))
    log.begin(0, OTHER)
    log.wall_ms += 999
    log.written(log.machine.tick(log.now))
    assert len(log.records) == 3
    log.wall_ms += 1
    log.written(log.machine.tick(log.now))
    needed = log.run(ShareStates.needed_from)
    assert needed == 3
    before, after = log.state(), log.state(log.restarted(from_offset=needed))
    assert before is not None
    assert after is not None
    assert (after.start_offset, after.batches) == (0, before.batches) == (0, (StateBatch(1, 1, DONE, 1),))


def test_an_update_of_an_older_snapshot_says_nothing() -> None:
    log = Log()
    log.begin(0)
    log.write(7)
    late = log.records[-1]
    log.begin(3)
    log.machine.replay(StoredRecord(late.key, late.value, 9, 0))
    state = log.state()
    assert state is not None
    assert state.start_offset == 3


def test_a_count_of_what_is_done_has_a_limit() -> None:
    log = Log()
    epoch = log.begin(0)
    log.write(0, StateBatch(0, 2**40, DONE, 1), epoch=epoch)
    state = log.machine.find(log.now, partition_key=PARTITION_KEY).reply
    assert state is not None
    assert state.complete_count == 2**31 - 1
    assert log.restarted().find(log.now, partition_key=PARTITION_KEY).reply == state


@pytest.mark.parametrize(
    "batches",
    [
        [StateBatch(9, 0, DONE, 1)],
        [StateBatch(-5, 9, FREE, 1)],
        [StateBatch(0, 9, FREE, -1)],
        [StateBatch(5, 9, FREE, 1), StateBatch(9, 12, DONE, 1)],
    ],
    ids=["backwards", "before the log", "delivered less than never", "overlapping"],
)
def test_batches_that_cannot_be_are_refused(batches: list[StateBatch]) -> None:
    log = Log()
    epoch = log.begin(0)
    with pytest.raises(KafkaError) as refused:
        log.write(0, *batches, epoch=epoch)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("start_offset", [-2, -(2**63)])
def test_a_group_cannot_begin_at_an_offset_that_no_partition_has(start_offset: int) -> None:
    log = Log()
    with pytest.raises(KafkaError) as refused:
        log.begin(start_offset)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_more_batches_than_a_partition_can_have_records_in_flight_are_refused() -> None:
    log = Log()
    epoch = log.begin(0)
    batches = [StateBatch(number, number, DONE, 1) for number in range(10_001)]
    with pytest.raises(KafkaError) as refused:
        log.write(0, *batches, epoch=epoch)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    log.write(0, *batches[:-1], epoch=epoch)
    state = log.state()
    assert state is not None
    assert state.complete_count == 10_000
