"""The machine of one partition of `__transaction_state`: its log, its clock, and the work that it hands out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.shards import Moment, Outcome, StoredRecord, Ticket
from odradek.transactions.formats import decode_value, encode_key
from odradek.transactions.machine import TransactionMachine, TransactionTerms
from odradek.transactions.state import TIMEOUT_NEVER, ProducerIdentity, TransactionState, TransactionVersion
from odradek.transactions.work import Work

BUMPING, CLASSIC = TransactionVersion.EPOCH_FOR_EACH, TransactionVersion.CLASSIC
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
DAY_MS = 86_400_000


class Log:
    """A machine and its log, without a shard: what is decided is replayed at once, as a shard does."""

    def __init__(self) -> None:
        self.terms = TransactionTerms(
            id_expiration_ms=7 * DAY_MS, timeout_check_ms=10_000, expiration_check_ms=3_600_000, level=BUMPING
        )
        self.records: list[StoredRecord] = []
        self.wall_ms = 1_700_000_000_000
        self.monotonic_ms = 50_000
        self.ids = iter(range(1000, 2000))
        self.machine = self._loaded()

    @property
    def now(self) -> Moment:
        return Moment(self.wall_ms, self.monotonic_ms)

    def _loaded(self) -> TransactionMachine:
        machine = TransactionMachine(lambda: self.terms)
        for record in self.records:
            machine.replay(record)
        machine.loaded(self.now)
        return machine

    def restart(self) -> None:
        self.machine = self._loaded()

    def write(self, outcome: Outcome[Any]) -> Any:
        for key, value in outcome.records:
            record = StoredRecord(key, value, len(self.records), self.wall_ms)
            self.records.append(record)
            self.machine.replay(record)
        return outcome.reply

    def run(self, operation: Callable[[TransactionMachine], Outcome[Any]]) -> Any:
        return self.write(operation(self.machine))

    def pass_time(self, ms: int) -> None:
        self.wall_ms += ms
        self.monotonic_ms += ms

    def tick(self) -> Outcome[None]:
        """What the shard does when the deadline is there; nothing before."""
        deadline = self.machine.next_deadline_ms()
        if deadline is None or deadline > self.monotonic_ms:
            return Outcome(None)
        outcome = self.machine.tick(self.now)
        self.write(outcome)
        return outcome

    def work(self) -> Work | None:
        """What a worker is handed now."""
        self.machine.wait_for_work(Ticket[Work]())
        answers = self.tick().answers
        assert len(answers) <= 1
        if not answers:
            return None
        work = answers[0].response
        assert isinstance(work, Work)
        return work

    # -- clients

    def init(self, name: str = "a", timeout_ms: int = 60_000) -> Any:
        return self.run(
            lambda machine: machine.init_producer(
                name, timeout_ms=timeout_ms, expected=None, fresh_producer_id=next(self.ids), now=self.now
            )
        )

    def add(self, who: ProducerIdentity, *partitions: TopicPartition, name: str = "a") -> None:
        self.run(
            lambda machine: machine.add_partitions(
                name, who, frozenset(partitions), client_version=BUMPING, now=self.now
            )
        )

    def end(self, who: ProducerIdentity, *, commit: bool = True, name: str = "a") -> Any:
        return self.run(
            lambda machine: machine.end(
                name, who, commit=commit, client_version=BUMPING, fresh_producer_id=None, now=self.now
            )
        )

    def state(self, name: str = "a") -> Any:
        return self.machine.find(name).reply


@pytest.fixture
async def log() -> Log:
    return Log()


async def test_a_transaction_goes_through_its_states(log: Log) -> None:
    who = log.init()
    assert who == ProducerIdentity(producer_id=1000, producer_epoch=0)
    log.add(who, P0)
    assert log.state().state is TransactionState.ONGOING
    after = log.end(who)
    assert after == ProducerIdentity(producer_id=1000, producer_epoch=1)
    work = log.work()
    assert work is not None
    (prepared,) = work.prepared
    assert prepared.transaction.partitions == {P0}
    log.run(lambda machine: machine.complete(prepared, log.now))
    assert log.state().state is TransactionState.COMPLETE_COMMIT
    assert log.state().identity == after


async def test_work_waits_for_a_worker_and_goes_to_one_only(log: Log) -> None:
    who = log.init()
    log.add(who, P0)
    log.end(who)
    assert log.machine.next_deadline_ms() != 0
    assert log.tick().answers == ()
    assert log.work() is not None
    assert log.work() is None
    log.machine.wait_for_work(ticket := Ticket[Work]())
    assert list(log.machine.resigned()) == [ticket]
    assert list(log.machine.resigned()) == []


async def test_after_a_restart_decisions_are_handed_out_again(log: Log) -> None:
    who = log.init()
    log.add(who, P0, P1)
    log.end(who, commit=False)
    first = log.work()
    log.restart()
    assert log.work() == first
    assert first is not None
    log.run(lambda machine: machine.complete(first.prepared[0], log.now))
    log.restart()
    assert log.work() is None


async def test_a_worker_that_finished_an_older_transaction_does_not_complete_the_next(log: Log) -> None:
    who = log.init()
    done = []
    for _ in range(2):  # in the same millisecond, with the same partitions, by a client that keeps its epoch
        log.add(who, P0)
        log.run(
            lambda machine: machine.end(
                "a", who, commit=True, client_version=CLASSIC, fresh_producer_id=None, now=log.now
            )
        )
        work = log.work()
        assert work is not None
        done.append(work.prepared[0])
        if len(done) == 1:
            log.run(lambda machine: machine.complete(done[0], log.now))
    assert done[0].transaction.partitions == done[1].transaction.partitions
    log.run(lambda machine: machine.complete(done[0], log.now))
    assert log.state().state is TransactionState.PREPARE_COMMIT


async def test_a_transaction_that_takes_too_long_is_handed_out_and_aborted(log: Log) -> None:
    who = log.init(timeout_ms=15_000)
    log.add(who, P0)
    for _ in range(2):
        log.pass_time(10_000)
        work = log.work()
    assert work is not None
    (overdue,) = work.overdue
    log.run(lambda machine: machine.abort_overdue(overdue, fresh_producer_id=None, now=log.now))
    assert log.state().state is TransactionState.PREPARE_ABORT
    assert log.state().producer_epoch == 1


async def test_many_that_take_too_long_are_handed_out_some_at_a_time(log: Log) -> None:
    names = [f"p{number}" for number in range(501)]
    for name in names:
        log.add(log.init(name, timeout_ms=5_000), P0, name=name)
    log.pass_time(10_000)
    first, second = log.work(), log.work()
    assert first is not None
    assert second is not None
    assert [len(work.overdue) for work in (first, second)] == [500, 1]
    assert {overdue.transactional_id for overdue in first.overdue + second.overdue} == set(names)


async def test_what_ended_meanwhile_is_not_aborted(log: Log) -> None:
    who = log.init(timeout_ms=5_000)
    log.add(who, P0)
    log.pass_time(10_000)
    work = log.work()
    assert work is not None
    after = log.end(who)
    prepared = log.work()
    assert prepared is not None
    log.run(lambda machine: machine.complete(prepared.prepared[0], log.now))
    log.add(after, P0)
    log.run(lambda machine: machine.abort_overdue(work.overdue[0], fresh_producer_id=None, now=log.now))
    assert log.state().state is TransactionState.ONGOING


async def test_the_next_transaction_of_the_same_epoch_has_its_own_time(log: Log) -> None:
    who = log.init(timeout_ms=5_000)
    log.add(who, P0)
    log.pass_time(10_000)
    work = log.work()
    assert work is not None
    log.run(
        lambda machine: machine.end(
            "a", who, commit=True, client_version=CLASSIC, fresh_producer_id=None, now=log.now
        )
    )
    prepared = log.work()
    assert prepared is not None
    log.run(lambda machine: machine.complete(prepared.prepared[0], log.now))
    log.add(who, P1)
    log.run(lambda machine: machine.abort_overdue(work.overdue[0], fresh_producer_id=None, now=log.now))
    assert log.state().state is TransactionState.ONGOING


async def test_a_clock_that_is_set_ends_no_transaction(log: Log) -> None:
    who = log.init(timeout_ms=15_000)
    log.add(who, P0)
    log.wall_ms += DAY_MS
    log.pass_time(10_000)
    assert log.work() is None
    log.wall_ms -= 2 * DAY_MS
    log.pass_time(10_000)
    assert log.work() is not None, "and keeps none alive"


async def test_after_a_restart_a_transaction_is_as_old_as_it_was(log: Log) -> None:
    who = log.init(timeout_ms=15_000)
    log.add(who, P0)
    log.pass_time(8_000)
    log.monotonic_ms = 3  # another machine, or another boot
    log.restart()
    log.pass_time(10_000)
    work = log.work()
    assert work is not None
    assert work.overdue


async def test_a_transaction_decided_from_outside_never_times_out(log: Log) -> None:
    who = log.init(timeout_ms=TIMEOUT_NEVER)
    log.add(who, P0)
    log.pass_time(2**31)
    assert log.work() is None


def test_an_id_that_no_one_uses_is_forgotten_and_one_in_use_is_not(log: Log) -> None:
    log.init("idle")
    busy = log.init("busy")
    log.add(busy, P0, name="busy")
    log.pass_time(6 * DAY_MS)
    log.init("young")
    log.pass_time(DAY_MS)
    log.tick()
    assert log.records[-1].key == encode_key("idle")
    assert log.records[-1].value is None
    assert [name for name, _ in sorted(log.machine.entries().reply)] == ["busy", "young"]
    log.restart()
    assert [name for name, _ in sorted(log.machine.entries().reply)] == ["busy", "young"]


def test_many_ids_are_forgotten_in_bounded_parts(log: Log) -> None:
    for number in range(1200):
        log.ids = iter([number])
        log.init(f"id-{number}")
    log.pass_time(8 * DAY_MS)
    parts = []
    while log.machine.next_deadline_ms() is not None:
        before = len(log.records)
        log.tick()
        parts.append(len(log.records) - before)
    assert sum(parts) == 1200
    assert max(parts) <= 500


def test_nothing_to_do_asks_for_no_clock(log: Log) -> None:
    assert log.machine.next_deadline_ms() is None


def test_a_record_that_cannot_be_read_is_skipped(log: Log) -> None:
    log.init()
    for key, value in ((b"\x00\x00\x00\x09", b""), (b"\x00\x09x", b"y"), (encode_key("b"), b"\x00\x01\x02")):
        log.machine.replay(StoredRecord(key, value, 77, 0))
    assert [name for name, _ in sorted(log.machine.entries().reply)] == ["a"]


@pytest.mark.parametrize("late_ms", range(-2, 3))
@pytest.mark.parametrize("commit_first", [True, False])
async def test_a_timeout_that_races_a_commit_leaves_one_outcome(
    log: Log, late_ms: int, commit_first: bool
) -> None:
    who = log.init(timeout_ms=15_000)
    log.add(who, P0)
    log.pass_time(10_000)
    log.work()
    log.pass_time(10_000 + late_ms)
    work = log.work()
    overdue = work.overdue if work is not None else ()

    def abort() -> None:
        for overdue_transaction in overdue:
            log.run(
                lambda machine, entry=overdue_transaction: machine.abort_overdue(
                    entry, fresh_producer_id=None, now=log.now
                )
            )

    def commit() -> bool:
        try:
            log.end(who)
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
            return False
        return True

    if commit_first:
        assert commit()
        abort()
    else:
        abort()
        assert commit() == (not overdue)
    outcomes = [decode_value(record.value or b"") for record in log.records]
    decided = [outcome.state for outcome in outcomes if outcome is not None and outcome.state.is_prepared]
    assert decided == [
        TransactionState.PREPARE_ABORT if overdue and not commit_first else TransactionState.PREPARE_COMMIT
    ]
    assert bool(overdue) == (late_ms >= 0)


async def test_a_transaction_that_could_not_be_ended_takes_no_more_partitions(log: Log) -> None:
    who = log.init()
    log.terms = replace(log.terms, batch_bytes_max=2_000)
    taken: list[TopicPartition] = []

    def take_all() -> None:
        for index in range(1_000):
            log.add(who, TopicPartition("topic", index))
            taken.append(TopicPartition("topic", index))

    with pytest.raises(KafkaError) as refused:
        take_all()
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert len(taken) > 100
    log.end(who)
    weight = max(len(record.key) + len(record.value or b"") for record in log.records)
    assert weight + 150 < 2_000, "the record of the decision fits a batch, too"
