"""A shard over a log in memory that can refuse, lose and delay."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit.waiting import PATIENCE_S

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import ControlKind, assign, control_batch, decode_batch, read_header
from odradek.runtime.real_clock import SystemClock
from odradek.shards import (
    BatchProducer,
    DeferredReply,
    Moment,
    NewRecord,
    Outcome,
    Shard,
    Shards,
    StoredRecord,
    Ticket,
    java_hash,
)
from odradek.shards.held import WaitingTicket
from odradek.shards.shard import ShardState


class MemoryLog:
    """Batches in a list; durable at once, or when `sync` says so."""

    def __init__(self, *, durable: bool = True) -> None:
        self.name = "log-0"
        self.leader_epoch = 0
        self.start_offset = 0
        self.end_offset = 0
        self.batch_bytes_max = 100_000
        self.refusal: KafkaError | None = None
        self.unwritable: KafkaError | None = None
        self.age: int | None = None
        self._durable = durable
        self.batches: list[tuple[int, bytes]] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def age_ms(self, offset: int) -> int | None:
        return self.age

    def check_writable(self) -> None:
        if self.unwritable:
            raise self.unwritable

    def call_after_flush(self, call: Callable[[], None]) -> bool:
        return False

    def append(self, batch: bytearray, *, now_ms: int) -> int:
        if self.refusal:
            raise self.refusal
        assign(memoryview(batch), self.end_offset, 0)
        self.batches.append((self.end_offset, bytes(batch)))
        self.end_offset += read_header(batch).last_offset_delta + 1
        return self.end_offset - 1

    def append_marker(self, producer_id: int, producer_epoch: int, *, now_ms: int, **end: Any) -> int:
        kind = ControlKind.COMMIT if end["is_commit"] else ControlKind.ABORT
        batch = control_batch(
            kind,
            producer_id,
            producer_epoch,
            coordinator_epoch=end["coordinator_epoch"],
            timestamp=now_ms,
        )
        return self.append(batch, now_ms=now_ms)

    def committed(self, last_offset: int) -> asyncio.Future[None] | None:
        if self._durable:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((last_offset, future))
        return future

    async def bring(self, offset: int, max_bytes: int) -> None:
        """All of it is in memory."""

    def read(self, offset: int, max_bytes: int) -> tuple[bytes, int]:
        for first, batch in self.batches:
            if first >= offset:
                return batch, first + read_header(batch).last_offset_delta + 1
        return b"", offset

    def sync(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            future.set_result(None)

    def lose(self, error: KafkaError) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            future.set_exception(error)


class Words:
    """A machine: a list of words, of which transactional ones count when their transaction commits."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.pending: dict[int, list[str]] = {}
        self.soft = 0
        self.waiting: list[Ticket[str]] = []
        self.deadline: int | None = None
        self.ticks = 0

    def replay(self, record: StoredRecord) -> None:
        word = record.key.decode()
        if record.producer_id >= 0:
            self.pending.setdefault(record.producer_id, []).append(word)
        else:
            self.words.append(word)

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        words = self.pending.pop(producer_id, [])
        if is_commit:
            self.words += words

    def loaded(self, now: Moment) -> None:
        pass

    def next_deadline_ms(self) -> int | None:
        return self.deadline

    def tick(self, now: Moment) -> Outcome[None]:
        self.ticks += 1
        self.deadline = None
        answers = [DeferredReply(ticket, "late") for ticket in self.waiting]
        self.waiting = []
        return Outcome(None, [NewRecord(b"tick", b"")], answers)

    def resigned(self) -> list[Ticket[str]]:
        return self.waiting


def say(*words: str, **more: Any) -> Any:
    def operation(machine: Words, now: Moment) -> Outcome[list[str]]:
        machine.soft += 1
        return Outcome([*machine.words, *words], [NewRecord(word.encode(), b"") for word in words], **more)

    return operation


def listen(machine: Words, now: Moment) -> Outcome[list[str]]:
    return Outcome(list(machine.words))


async def ready(
    log: MemoryLog, *, patience_seconds: float = 30.0, machine: type[Words] = Words
) -> Shard[Words]:
    shard = Shard(log, machine, SystemClock(), lambda: patience_seconds)
    for _ in range(10):
        await asyncio.sleep(0)
        log.sync()
    return shard


async def test_a_reply_that_a_log_at_a_standstill_holds_is_refused_after_a_while_and_what_was_written_counts() -> (
    None
):
    log = MemoryLog(durable=False)
    shard = await ready(log, patience_seconds=0.0)
    ticket = response = WaitingTicket[str]()

    for refused in (
        shard.execute(say("a", answers=[DeferredReply(ticket, "later")])),
        shard.execute(listen),
        response,
    ):
        with pytest.raises(KafkaError, match="not durable within 0 s") as raised:
            await refused
        assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    assert shard.state is ShardState.ACTIVE
    heard = shard.execute(listen)
    log.sync()
    assert await heard == ["a"]


async def test_a_reply_that_was_refused_for_its_lateness_is_not_answered_again() -> None:
    log = MemoryLog(durable=False)
    shard = await ready(log, patience_seconds=0.0)
    late = shard.execute(say("a"))
    with pytest.raises(KafkaError):
        await late

    log.sync()
    await asyncio.sleep(0)

    assert late.exception() is not None


async def test_a_shard_that_loads_says_so() -> None:
    shard = Shard(MemoryLog(), Words, SystemClock())
    with pytest.raises(KafkaError) as refused:
        await shard.execute(listen)
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    shard.close()


async def test_what_was_written_is_there_after_a_restart() -> None:
    log = MemoryLog()
    first = await ready(log)
    await first.execute(say("one", "two"))
    await first.execute(say("three"))
    first.close()
    assert await (await ready(log)).execute(listen) == ["one", "two", "three"]


async def test_what_is_loaded_says_how_old_it_is_and_what_was_just_written_does_not() -> None:
    ages: list[int | None] = []

    class Ageing(Words):
        def replay(self, record: StoredRecord) -> None:
            ages.append(record.age_ms)
            super().replay(record)

    log = MemoryLog()
    await (await ready(log)).execute(say("one"))
    log.age = 7
    shard = await ready(log, machine=Ageing)
    await shard.execute(say("two"))
    assert ages == [7, None]


async def test_a_log_whose_last_offsets_were_compacted_away_is_loaded() -> None:
    log = MemoryLog()
    shard = await ready(log)
    await shard.execute(say("kept"))
    log.end_offset += 5
    assert await (await ready(log)).execute(listen) == await shard.execute(listen)


async def test_a_reply_waits_until_what_it_shows_is_durable_even_when_it_only_reads() -> None:
    log = MemoryLog(durable=False)
    shard = await ready(log)
    said = asyncio.ensure_future(shard.execute(say("one")))
    heard = asyncio.ensure_future(shard.execute(listen))
    await asyncio.sleep(0)
    assert not said.done()
    assert not heard.done()
    log.sync()
    assert await heard == ["one"]
    assert await said == ["one"]


async def test_an_operation_sees_those_before_it_though_they_are_not_durable_yet() -> None:
    log = MemoryLog(durable=False)
    shard = await ready(log)
    both = [asyncio.ensure_future(shard.execute(say(word))) for word in ("one", "two")]
    await asyncio.sleep(0)
    log.sync()
    assert await both[1] == ["one", "two"]


async def test_a_refused_operation_leaves_no_trace() -> None:
    log = MemoryLog()
    shard = await ready(log)

    def refuse(machine: Words, now: Moment) -> Outcome[None]:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "who are you?")

    with pytest.raises(KafkaError, match="who are you"):
        await shard.execute(refuse)
    assert await shard.execute(listen) == []
    assert log.end_offset == 0


async def test_when_the_log_refuses_waiting_requests_are_refused_and_the_machine_is_made_again() -> None:
    log = MemoryLog()
    shard = await ready(log)
    ticket = response = WaitingTicket[str]()

    def wait(machine: Words, now: Moment) -> Outcome[None]:
        machine.waiting.append(ticket)
        return Outcome(None)

    await shard.execute(say("kept"))
    await shard.execute(wait)
    log.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")
    with pytest.raises(KafkaError) as refused:
        await shard.execute(say("lost"))
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError, match="the disk is gone"):
        await response
    with pytest.raises(KafkaError) as loading:
        await shard.execute(listen)
    assert loading.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    shard.close()


async def test_a_log_that_loses_what_it_took_takes_the_reply_and_the_state_with_it() -> None:
    log = MemoryLog(durable=False)
    shard = await ready(log)
    ticket = response = WaitingTicket[str]()
    said = asyncio.ensure_future(shard.execute(say("one", answers=[DeferredReply(ticket, "never")])))
    await asyncio.sleep(0)
    log.lose(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "others lead"))
    with pytest.raises(KafkaError) as lost:
        await said
    assert lost.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError):
        await response
    shard.close()


async def test_a_log_that_cannot_be_written_refuses_before_the_operation_runs() -> None:
    log = MemoryLog()
    shard = await ready(log)
    log.unwritable = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    with pytest.raises(KafkaError, match="the disk is full"):
        await shard.execute(say("one"))
    log.unwritable = None
    assert await shard.execute(lambda machine, now: Outcome(machine.soft)) == 0


async def test_a_change_that_is_too_large_is_refused() -> None:
    log = MemoryLog()
    shard = await ready(log)
    with pytest.raises(KafkaError) as refused:
        await shard.execute(say("x" * log.batch_bytes_max))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.end_offset == 0


@pytest.mark.parametrize("is_commit", [True, False])
async def test_transactional_records_count_when_their_marker_says_so_now_and_after_a_restart(
    is_commit: bool,
) -> None:
    log = MemoryLog()
    shard = await ready(log)
    await shard.execute(say("hidden", producer=BatchProducer(7, 0)))
    assert await shard.execute(listen) == []
    await shard.append_marker(7, 0, is_commit=is_commit, coordinator_epoch=0, transaction_version=2)
    expected = ["hidden"] if is_commit else []
    assert await shard.execute(listen) == expected
    shard.close()
    assert await (await ready(log)).execute(listen) == expected


async def test_the_machine_hears_when_its_deadline_comes() -> None:
    shard = await ready(MemoryLog())
    ticket = response = WaitingTicket[str]()

    def wait(machine: Words, now: Moment) -> Outcome[None]:
        machine.waiting.append(ticket)
        machine.deadline = now.monotonic_ms + 5
        return Outcome(None)

    await shard.execute(wait)
    async with asyncio.timeout(PATIENCE_S):
        assert await response == "late"
    assert await shard.execute(listen) == ["tick"]
    shard.close()


async def test_a_closed_shard_refuses_those_who_wait_and_those_who_come() -> None:
    shard = await ready(MemoryLog())
    ticket = response = WaitingTicket[str]()

    def wait(machine: Words, now: Moment) -> Outcome[None]:
        machine.waiting.append(ticket)
        return Outcome(None)

    await shard.execute(wait)
    shard.close()
    shard.close()
    with pytest.raises(KafkaError) as waited:
        await response
    with pytest.raises(KafkaError) as came:
        await shard.execute(listen)
    assert waited.value.code is came.value.code is ErrorCode.NOT_COORDINATOR


async def test_keys_have_the_partitions_that_kafka_gives_them() -> None:
    """Java: "".hashCode(), "a".hashCode(), a surrogate pair, and the one string whose hash has no absolute value."""
    assert [java_hash(text) for text in ("", "a", "my-group", "\U0001f600")] == [0, 97, -1906497762, 1772899]
    assert java_hash("polygenelubricants") == -(2**31)
    shards = Shards("t", lambda: 50, lambda _: Words(), SystemClock())
    assert [shards.index_for(key) for key in ("my-group", "polygenelubricants")] == [12, 0]
    with pytest.raises(KafkaError) as refused:
        shards.for_key("my-group")
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


async def test_an_answer_whose_records_are_too_large_or_cannot_be_replayed_is_a_refusal() -> None:
    for word in ("x" * 100_000, "unreadable"):
        log = MemoryLog()
        shard = Shard(log, Picky, SystemClock())
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)
        ticket = response = WaitingTicket[str]()
        with pytest.raises((KafkaError, ZeroDivisionError)):
            await shard.execute(say(word, answers=[DeferredReply(ticket, "never")]))
        with pytest.raises(KafkaError) as refused:
            await response
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(KafkaError, match="being loaded"):
            await shard.execute(listen)
        shard.close()


@pytest.mark.parametrize("trouble", ["too large", "a mistake of ours"])
async def test_a_tick_that_fails_is_not_the_last(trouble: str) -> None:
    log = MemoryLog()
    shard = Shard(log, Failing, SystemClock())
    await asyncio.sleep(0.0)
    await asyncio.sleep(0.0)
    ticket = response = WaitingTicket[str]()

    def wait(machine: Failing, now: Moment) -> Outcome[None]:
        machine.waiting.append(ticket)
        machine.trouble = trouble
        machine.deadline = now.monotonic_ms
        return Outcome(None)

    await shard.execute(wait)
    with pytest.raises(KafkaError) as refused:
        async with asyncio.timeout(PATIENCE_S):
            await response
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError, match="being loaded"):
        await shard.execute(listen)
    shard.close()


class Picky(Words):
    def replay(self, record: StoredRecord) -> None:
        if record.key == b"unreadable":
            raise ZeroDivisionError
        super().replay(record)


class Failing(Words):
    trouble = ""

    def tick(self, now: Moment) -> Outcome[None]:
        outcome = super().tick(now)
        if self.trouble == "too large":
            return Outcome(None, [NewRecord(bytes(200_000), b"")], outcome.answers)
        self.waiting = [reply.ticket for reply in outcome.answers]
        raise ZeroDivisionError


# -- what is written in one turn of the loop


async def test_what_is_written_in_one_turn_is_one_batch_and_each_keeps_its_reply() -> None:
    log = MemoryLog()
    shard = await ready(log)
    said = [shard.execute(say(word)) for word in ("one", "two", "three")]
    assert log.end_offset == 0
    assert [len(await reply) for reply in said] == [1, 2, 3]
    assert (len(log.batches), log.end_offset) == (1, 3)
    assert await (await ready(log)).execute(listen) == ["one", "two", "three"]


async def test_a_batch_that_is_full_is_followed_by_another() -> None:
    log = MemoryLog()
    shard = await ready(log)
    large = "x" * (log.batch_bytes_max // 2)
    said = [shard.execute(say(large)) for _ in range(3)]
    await asyncio.gather(*said)
    assert len(log.batches) == 3
    assert all(len(batch) <= log.batch_bytes_max for _, batch in log.batches)


async def test_a_turn_that_the_log_refuses_takes_all_that_was_decided_in_it() -> None:
    log = MemoryLog()
    shard = await ready(log)
    ticket = response = WaitingTicket[str]()
    said = [
        shard.execute(say("one", answers=[DeferredReply(ticket, "never")])),
        shard.execute(say("two")),
        shard.execute(listen),
    ]
    log.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")
    for reply in [*said, response]:
        with pytest.raises(KafkaError, match="the disk is gone"):
            await reply
    shard.close()


async def test_a_shard_that_is_closed_writes_nothing_of_its_last_turn() -> None:
    log = MemoryLog()
    shard = await ready(log)
    said = shard.execute(say("one"))
    shard.close()
    with pytest.raises(KafkaError) as refused:
        await said
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    await asyncio.sleep(0)
    assert log.end_offset == 0


async def test_what_a_producer_writes_follows_what_was_decided_before_it() -> None:
    log = MemoryLog()
    shard = await ready(log)
    first = shard.execute(say("one"))
    second = shard.execute(say("two", producer=BatchProducer(7, 0)))
    assert log.end_offset == 2, "at once: nothing may come between what was verified and the append"
    ended = shard.append_marker(7, 0, is_commit=True, coordinator_epoch=0, transaction_version=2)
    third = shard.execute(say("three"))
    await asyncio.gather(first, second, ended, third)
    assert await shard.execute(listen) == ["one", "three", "two"]
    assert await (await ready(log)).execute(listen) == ["one", "three", "two"]


async def test_an_outcome_whose_turn_was_lost_before_it_counts_for_nothing() -> None:
    log = MemoryLog()
    shard = await ready(log)
    ticket = response = WaitingTicket[str]()
    first = shard.execute(say("one"))
    log.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")
    with pytest.raises(KafkaError):
        await shard.execute(
            say("two", producer=BatchProducer(7, 0), answers=[DeferredReply(ticket, "never")])
        )
    for reply in (first, response):
        with pytest.raises(KafkaError):
            await reply
    shard.close()


async def test_a_log_that_others_write_is_loaded_again() -> None:
    log = MemoryLog()
    shard = await ready(log)
    said = shard.execute(say("one"))
    log.end_offset += 1
    with pytest.raises(KafkaError, match="others write there"):
        await said
    assert shard.state.value == "loading"
    shard.close()


@pytest.mark.parametrize("durable", [True, False])
async def test_who_is_answered_may_ask_again_at_once_and_no_record_is_lost(*, durable: bool) -> None:
    """A full turn is written in the middle of an operation: those in it are answered when the operation is over."""
    log = MemoryLog(durable=durable)
    shard = await ready(log)
    large = "x" * (log.batch_bytes_max // 2)
    again: list[Any] = []
    shard.execute(say("a" + large)).add_done_callback(lambda _: again.append(shard.execute(say("again"))))
    others = [shard.execute(say("b" + large)), shard.execute(say("c"))]
    while not again:
        await asyncio.sleep(0)
        log.sync()
    await asyncio.sleep(0)
    log.sync()
    await asyncio.gather(*others, *again)
    records = [record for _, batch in log.batches for record in decode_batch(batch, read_header(batch))]
    words = [(record.key or b"")[:5].rstrip(b"x").decode() for record in records]
    assert words == ["a", "b", "c", "again"]


async def test_who_is_refused_because_the_log_lost_its_record_finds_the_shard_loading() -> None:
    log = MemoryLog(durable=False)
    shard = await ready(log)
    again: list[KafkaError] = []

    def ask_again(_: object) -> None:
        try:
            shard.execute(listen)
        except KafkaError as error:
            again.append(error)

    said = shard.execute(say("lost"))
    said.add_done_callback(ask_again)
    await asyncio.sleep(0)
    log.lose(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads"))
    with pytest.raises(KafkaError):
        await said
    assert [error.code for error in again] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    shard.close()
