"""One shard: a machine, its log, and the rule that nothing leaves before what it shows is durable.

An operation decides on the state that includes everything appended so far, whether or not that is durable yet, and its reply is
held until everything appended so far is. So replies are as if each operation had run alone, and no reply shows what a crash can
undo. If the log refuses an append, or loses what it took, soft state may be ahead of the log: the machine is thrown away and
made again from what the log holds. That is the same code as a restart, and as a move to another broker.

What is written in one turn of the event loop is replayed at once and appended together, at the turn's end (`turn.py`). While
the log is being flushed the turn lasts until the end of the flush: what is written meanwhile needs the next one.
What is written in the name of a producer, and what ends its transaction, is appended before anything else can happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, TypeVar

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import (
    BatchBuilder,
    BatchHeader,
    ControlKind,
    decode_batch,
    read_control,
    split_batches,
)
from odradek.runtime.ports import Clock
from odradek.runtime.prompt import PromptFuture
from odradek.shards.held import (
    HeldOutcome,
    WaitingRequest,
    WaitingTicket,
    refuse_request,
    release_when,
    unavailable,
)
from odradek.shards.log import ShardLog
from odradek.shards.machine import ShardMachine, StoredRecord
from odradek.shards.outcome import BatchProducer, Moment, NewRecord, Outcome, Ticket
from odradek.shards.turn import OutcomeOrder
from odradek.telemetry import events

_log = events.caused_by_peers("shards")

_LOAD_BYTES: Final = 1024 * 1024
_REPLAYS_A_TURN: Final = 2_000
"""How many records are replayed before other tasks get the event loop."""
_RELOAD_SECONDS: Final = 1.0
_TICK_AGAIN_SECONDS: Final = 1.0
_TURN_SECONDS_MAX: Final = 0.01
"""The longest time for which records wait for the end of a flush before they are appended. A slow disk loses
no time by it, and the wait for one without progress is bounded from then on."""
PATIENCE_SECONDS: Final = 30.0
"""How long a reply may be held unless another limit is set: as long as most clients wait for one."""

M = TypeVar("M", bound=ShardMachine)
T = TypeVar("T")
R = TypeVar("R")
Operation = Callable[[M, Moment], Outcome[T]]


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class Shard(Generic[M]):
    """A replicated state machine on one partition of an internal topic. It loads from the moment it is made; `close` it when
    others lead the partition. Used on the event loop only."""

    def __init__(
        self,
        log: ShardLog,
        make_machine: Callable[[], M],
        clock: Clock,
        patience_seconds: Callable[[], float] = lambda: PATIENCE_SECONDS,
    ) -> None:
        self._shard_log = log
        self._make_machine = make_machine
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._machine = make_machine()
        self.state = ShardState.LOADING
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._tick_refused = False
        self._last_offset = log.end_offset - 1
        """The offset of the machine's last record, whether it is in the log yet or in `_turn`."""
        self._turn: OutcomeOrder | None = None
        self._loading = asyncio.get_running_loop().create_task(self._load(delay_seconds=0.0))

    @property
    def batch_bytes_max(self) -> int:
        """The most bytes of one outcome's records together, headers included."""
        return self._shard_log.batch_bytes_max

    @property
    def leader_epoch(self) -> int:
        """The leader epoch in which this broker coordinates."""
        return self._shard_log.leader_epoch

    def doubt(self, reason: KafkaError) -> None:
        """Refuses the waiters and loads the log again, because another broker seems to coordinate."""
        self._restart(reason)

    def execute(self, operation: Operation[M, T]) -> PromptFuture[T]:
        """Runs `operation(machine, now)`; returns its reply once it may be shown.

        The operation may refuse by raising a KafkaError, having changed nothing. Raises COORDINATOR_LOAD_IN_PROGRESS,
        NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE (the log cannot be written, lost what it had, or is not durable in time), and
        RECORD_LIST_TOO_LARGE
        when the records are larger than `batch_bytes_max`: an operation that changes soft state checks that first.
        """
        waiting: WaitingTicket[T] = WaitingTicket()
        self.execute_for(operation, waiting)
        return waiting

    def execute_for(self, operation: Operation[M, T], waiting: WaitingRequest[T]) -> None:
        """Does what `execute` does, for a request of the caller."""
        self._hold(self._decided(operation), waiting)

    def execute_deferred(self, operation: Callable[[M, Moment, Ticket[R]], Outcome[None]]) -> PromptFuture[R]:
        """Runs an operation whose response comes with its outcome, or with a later one's, for the ticket that
        it gets. Raises as `execute`; the response raises what refuses the outcome, and what ends the machine
        that keeps the ticket."""
        ticket: WaitingTicket[R] = WaitingTicket()
        self.begin(lambda machine, now: operation(machine, now, ticket))
        return ticket

    def begin(self, operation: Operation[M, None]) -> None:
        """Runs an operation whose response comes, as in `execute_deferred`, for a ticket that it holds already."""
        outcome = self._decided(operation)
        if outcome.answers or outcome.records:  # else the machine keeps the ticket, and nothing leaves now
            self._hold(outcome)

    def _decided(self, operation: Operation[M, T]) -> Outcome[T]:
        """Returns the outcome, whose records are written, though perhaps not durable."""
        if self._turn is None or self.state is not ShardState.ACTIVE:
            self._check_active()  # a turn begins with an operation that was checked
        now = self._now()
        outcome = operation(self._machine, now)
        if outcome.records:
            self._write(outcome, now)
        self._arm()
        return outcome

    async def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        """Ends the producer's transaction here; returns once the marker is durable. Raises as `execute` and the log do."""
        self._check_active()
        self._end_turn()
        self._check_active()
        now = self._now()
        self._last_offset = self._shard_log.append_marker(
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
            now_ms=now.wall_ms,
        )
        self._machine.replay_marker(producer_id, producer_epoch, is_commit=is_commit)
        self._arm()
        waiting: WaitingTicket[None] = WaitingTicket()
        self._hold(Outcome(None), waiting)
        await waiting

    def close(self) -> None:
        """Others coordinate from now on: waiters get the error that makes them look for the others. Idempotent."""
        if self.state is not ShardState.CLOSED:
            self.state = ShardState.CLOSED
            self._loading.cancel()
            self._forget(KafkaError(ErrorCode.NOT_COORDINATOR, f"{self._name} is coordinated elsewhere now"))

    # -- one operation

    @property
    def _name(self) -> str:
        return self._shard_log.name

    def _now(self) -> Moment:
        clock = self._clock
        return tuple.__new__(Moment, (clock.wall_ms(), int(clock.monotonic() * 1000)))

    def _check_active(self) -> None:
        if self.state is ShardState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._name} is being loaded")
        if self.state is ShardState.CLOSED:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self._name} is coordinated elsewhere")
        try:
            self._shard_log.check_writable()
        except KafkaError as error:
            raise unavailable(error) from error

    def _write(self, outcome: Outcome[object], now: Moment) -> None:
        if outcome.producer is None and self._in_this_turn(outcome, now):
            self._last_offset += len(outcome.records)
            self._replay_written(outcome, now)
        else:
            self._write_alone(outcome, now)

    def _in_this_turn(self, outcome: Outcome[object], now: Moment) -> bool:
        """Returns whether the records join other operations' in a turn; records that are too many for any
        turn do not."""
        if self._turn is not None and self._turn.try_append(outcome.records, now.wall_ms):
            return True
        turn = OutcomeOrder(self.batch_bytes_max)
        if not turn.try_append(outcome.records, now.wall_ms):
            return False
        self._end_turn_before(outcome)
        self._turn = turn
        loop, end = asyncio.get_running_loop(), partial(self._end_turn, turn)
        if self._shard_log.call_after_flush(end):
            loop.call_later(_TURN_SECONDS_MAX, end)
        else:
            loop.call_soon(end)
        return True

    def _end_turn_before(self, outcome: Outcome[object]) -> None:
        """Appends the earlier records of the turn; if that fails, gives up `outcome`, which was decided on them, and raises."""
        self._end_turn()
        if self.state is not ShardState.ACTIVE:
            lost = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._name} could not be written")
            self._give_up(outcome, lost)
            raise lost

    def _write_alone(self, outcome: Outcome[object], now: Moment) -> None:
        batch = _batch(outcome.records, outcome.producer, now.wall_ms)
        if len(batch) > self.batch_bytes_max:
            too_large = KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the change of {self._name} takes {len(batch)} bytes, max.message.bytes is {self.batch_bytes_max}",
            )
            if outcome.answers:  # their waiters wait no longer, as far as the machine knows
                self._give_up(outcome, too_large)
            raise too_large
        self._end_turn_before(outcome)
        try:
            self._last_offset = self._shard_log.append(batch, now_ms=now.wall_ms)
        except KafkaError as error:
            self._give_up(outcome, error)
            raise unavailable(error) from error
        self._replay_written(outcome, now)

    def _end_turn(self, turn: OutcomeOrder | None = None) -> None:
        """Appends the turn's records, if it has not ended yet. Without a `turn` it ends early, for its caller's records."""
        ending = self._turn
        if ending is None or (turn is not None and turn is not ending):
            return
        self._turn = None
        try:
            last_offset = self._shard_log.append(ending.build(), now_ms=self._clock.wall_ms())
            if last_offset != self._last_offset:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"{self._name} ends at {last_offset}, and not at {self._last_offset}: others write there",
                )
            committed = self._shard_log.committed(last_offset)
        except Exception as error:  # noqa: BLE001 - the root of a callback: waiters must learn of any end
            if not isinstance(error, KafkaError):
                _log.exception("shard_not_written", shard=self._name)
                error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._name}: {error!r}")
            self._restart(error)  # first: refused callers may ask again at once
            for held_outcome in ending.waiting:
                held_outcome.refuse(error)
            return
        if committed is not None:
            self._release_when(committed, ending.waiting)
        elif turn is not None:
            _release(ending.waiting)
        else:  # the caller is in the middle of an operation, and answered clients may ask again at once
            asyncio.get_running_loop().call_soon(_release, ending.waiting)

    def _release_when(self, committed: asyncio.Future[None], waiting: Sequence[HeldOutcome]) -> None:
        release_when(
            committed,
            waiting,
            name=self._name,
            patience_seconds=self._patience_seconds(),
            lost=self._restart,
        )

    def _replay_written(self, outcome: Outcome[object], now: Moment) -> None:
        producer_id, producer_epoch = outcome.producer or _NO_PRODUCER
        offset, now_ms = self._last_offset - len(outcome.records), now.wall_ms
        replay = self._machine.replay
        try:
            for key, value in outcome.records:
                offset += 1
                # Half the price of `StoredRecord(...)`, which is a function of Python.
                stored = (key, value, offset, now_ms, producer_id, producer_epoch, None)
                replay(tuple.__new__(StoredRecord, stored))
        except Exception as error:
            self._give_up(
                outcome, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._name}: {error!r}")
            )
            raise

    def _give_up(self, outcome: Outcome[object], reason: KafkaError) -> None:
        """Begins again without soft state, which is ahead of the log, and refuses the requests that waited for answers."""
        self._restart(reason)
        for reply in outcome.answers:
            refuse_request(reply.ticket, unavailable(reason))

    def _hold(self, outcome: Outcome[object], waiting: WaitingRequest[Any] | None = None) -> None:
        """Releases reply and answers, once everything that they may show is durable."""
        held_outcome = HeldOutcome(outcome, waiting)
        if self._turn is not None:
            self._turn.waiting.append(held_outcome)
            return
        try:
            committed = self._shard_log.committed(self._last_offset) if self._last_offset >= 0 else None
        except KafkaError as error:
            held_outcome.refuse(error)
            return
        if committed is None:
            held_outcome.release()
        else:
            self._release_when(committed, [held_outcome])

    # -- time

    def _arm(self) -> None:
        """Sets the one timer to the machine's next deadline."""
        deadline_ms = self._machine.next_deadline_ms()
        if deadline_ms is None or self.state is not ShardState.ACTIVE:
            self._disarm()
            return
        if self._timer is not None:
            if self._timer_ms == deadline_ms:
                return
            self._timer.cancel()
        seconds = max(deadline_ms / 1000 - self._clock.monotonic(), 0.0)
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        now = self._now()
        if self.state is not ShardState.ACTIVE:
            return
        if now.monotonic_ms < self._timer_ms:  # the loop's clock is coarser than ours, or ran ahead
            self._arm_again(max((self._timer_ms - now.monotonic_ms) / 1000, 0.001))
            return
        try:
            self._check_active()
        except KafkaError as error:
            if not self._tick_refused:
                _log.warning("shard_tick_refused", shard=self._name, reason=error.message)
            self._tick_refused = True
            self._arm_again(_TICK_AGAIN_SECONDS)
            return
        self._tick_refused = False
        try:
            outcome = self._machine.tick(now)
            if outcome.records:
                self._write(outcome, now)
        except KafkaError as error:  # what was due is done, as far as the machine knows
            self._restart(error)
            return
        except Exception as error:  # noqa: BLE001 - the root of a timer: without a restart it would be the last
            _log.exception("shard_tick_failed", shard=self._name)
            self._restart(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._name}: {error!r}"))
            return
        self._arm()
        if outcome.answers or outcome.records:
            self._hold(outcome)

    def _arm_again(self, seconds: float) -> None:
        if self.state is ShardState.ACTIVE:
            self._disarm()
            self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    # -- loading

    def _restart(self, reason: KafkaError) -> None:
        """Begins again from the log: the machine and its log may differ."""
        if self.state is not ShardState.ACTIVE:
            return
        _log.warning("shard_reloads", shard=self._name, reason=reason.message)
        self.state = ShardState.LOADING
        self._forget(unavailable(reason))
        self._loading = asyncio.get_running_loop().create_task(self._load(delay_seconds=_RELOAD_SECONDS))

    def _forget(self, error: KafkaError) -> None:
        self._disarm()
        turn, self._turn = self._turn, None
        for held_outcome in turn.waiting if turn is not None else ():
            held_outcome.refuse(error)
        waiting = self._machine.resigned()
        self._machine = self._make_machine()
        for ticket in waiting:
            refuse_request(ticket, error)

    async def _load(self, *, delay_seconds: float) -> None:
        """Replays the log into the machine; errors are reported, and it is tried again."""
        while self.state is ShardState.LOADING:
            await asyncio.sleep(delay_seconds)
            machine = self._make_machine()
            try:
                replayed = await self._replay(machine)
                machine.loaded(self._now())
            except KafkaError as error:
                _log.warning("shard_not_loaded", shard=self._name, reason=error.message)
            except Exception:  # noqa: BLE001 - the root of a task: a record no one can read must not end it in silence
                _log.exception("shard_not_loaded", shard=self._name)
            else:
                self._begin(machine, replayed)
                return
            delay_seconds = _RELOAD_SECONDS

    def _begin(self, machine: M, replayed: int) -> None:
        self._machine = machine
        self._last_offset = self._shard_log.end_offset - 1
        self.state = ShardState.ACTIVE
        if replayed:
            _log.info("shard_loaded", shard=self._name, records=replayed)
        self._arm()

    async def _replay(self, machine: M) -> int:
        log, offset, replayed, rest = self._shard_log, self._shard_log.start_offset, 0, _REPLAYS_A_TURN
        while True:
            while offset < log.end_offset:
                await log.bring(offset, _LOAD_BYTES)
                data, offset = log.read(offset, _LOAD_BYTES)
                if not data:  # compaction left nothing from here to the end (KAFKA-9065)
                    break
                for header, batch in split_batches(data):
                    _replay_batch(machine, header, batch, log.age_ms(header.next_offset - 1))
                    replayed += header.record_count
                    if replayed >= rest:
                        rest = replayed + _REPLAYS_A_TURN
                        await asyncio.sleep(0)
            committed = log.committed(log.end_offset - 1) if log.end_offset else None
            if committed is None:
                return replayed
            await committed  # nothing that a crash could undo may be shown


def _release(waiting: Sequence[HeldOutcome]) -> None:
    for held_outcome in waiting:
        held_outcome.release()


_NO_PRODUCER: Final = BatchProducer(-1, -1)


def _replay_batch(machine: ShardMachine, header: BatchHeader, batch: memoryview, age_ms: int | None) -> None:
    if header.is_control:
        # A marker without its record: compaction took all of its transaction.
        kind = read_control(batch).kind if header.record_count else None
        if kind is not None:
            machine.replay_marker(
                header.producer_id, header.producer_epoch, is_commit=kind is ControlKind.COMMIT
            )
        return
    producer = (header.producer_id, header.producer_epoch) if header.is_transactional else _NO_PRODUCER
    for record in decode_batch(batch, header):
        machine.replay(
            StoredRecord(record.key or b"", record.value, record.offset, record.timestamp, *producer, age_ms)
        )


def _batch(records: Sequence[NewRecord], producer: BatchProducer | None, now_ms: int) -> bytearray:
    builder = BatchBuilder()
    for key, value in records:
        builder.append(now_ms, key, value, ())
    if producer is None:
        return builder.build()
    return builder.build(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transactional=True,
    )
