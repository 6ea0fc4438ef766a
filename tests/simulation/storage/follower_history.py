"""What a leader's log has, batch by batch, and what a follower's log may be after it copied from it: the plain meaning.

The leader is a list of batches, outside of every host. It changes its mind as leaders do that are elected one after the other:
its end is cut, and goes on under a new epoch. A follower's log is, at any time, what it received; after a crash it is a part
of that from the beginning on, no shorter than what it had said is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from odradek.records import BatchBuilder, BatchHeader, ControlKind, control_batch, read_control, read_header
from odradek.records.batch import write_header
from odradek.storage.log.log import Log
from odradek.testing.sim.failures import ViolationError

_BATCHES_KEPT: Final = 5
_PLAIN, _IDEMPOTENT, _TRANSACTIONAL = 0, 1, 2


class Copied(NamedTuple):
    """A batch as it travels."""

    base_offset: int
    next_offset: int
    epoch: int
    content: bytes

    @classmethod
    def of(cls, batch: bytes | bytearray) -> Copied:
        header = read_header(batch)
        return cls(header.base_offset, header.next_offset, header.partition_leader_epoch, bytes(batch))

    def to_send(self) -> tuple[BatchHeader, memoryview]:
        content = bytearray(self.content)
        return read_header(content), memoryview(content)


@dataclass(slots=True, kw_only=True)
class LeaderHistory:
    """The log of the leader."""

    rng: Random
    padding_bytes: tuple[int, ...]
    leaves_gaps: bool
    """Compaction took offsets between batches."""
    epoch: int = 0
    start_offset: int = 0
    end_offset: int = 0
    batches: list[Copied] = field(default_factory=list)
    count: int = 0

    def append(self) -> None:
        """One batch more, of any kind."""
        if self.leaves_gaps and self.rng.random() < 0.2:
            self.end_offset += self.rng.randint(1, 5)
        kind = self.rng.choice((_PLAIN, _IDEMPOTENT, _TRANSACTIONAL, _TRANSACTIONAL))
        states = Producers.after(self.batches).states
        if kind == _TRANSACTIONAL:
            self._put(self._of_transaction(20 + self.rng.randrange(2), states))
        else:
            self._put(self._records(7 + self.rng.randrange(2) if kind else -1, states))

    def _of_transaction(self, producer_id: int, states: dict[int, Producer]) -> bytearray:
        state = states.get(producer_id, Producer())
        if state.transaction_first < 0 or self.rng.random() < 0.5:
            return self._records(producer_id, states, is_transactional=True)
        kind = self.rng.choice((ControlKind.COMMIT, ControlKind.ABORT))
        epoch = state.epoch + self.rng.choice((0, 1))
        return control_batch(kind, producer_id, epoch, coordinator_epoch=0, timestamp=1000 + self.count)

    def _records(
        self, producer_id: int, states: dict[int, Producer], *, is_transactional: bool = False
    ) -> bytearray:
        builder = BatchBuilder()
        for _ in range(self.rng.randint(1, 3)):
            self.count += 1
            padding = self.rng.randbytes(self.rng.choice(self.padding_bytes))
            time = 1000 + self.count + self.rng.randint(-5, 5)
            builder.append(time, b"key", b"%d/" % self.count + padding, ())
        if producer_id < 0:
            return builder.build()
        state = states.get(producer_id, Producer(epoch=0))
        sequence = state.batches[-1][1] + 1 if state.batches else 0
        return builder.build(
            producer_id=producer_id,
            producer_epoch=max(state.epoch, 0),
            base_sequence=sequence,
            transactional=is_transactional,
        )

    def _put(self, batch: bytearray) -> None:
        placed = read_header(batch)._replace(base_offset=self.end_offset, partition_leader_epoch=self.epoch)
        write_header(batch, placed)
        self.batches.append(Copied.of(batch))
        self.end_offset = self.batches[-1].next_offset

    def change(self, offset: int) -> None:
        """Another leads, who had nothing from `offset` on."""
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]
        self.end_offset = self.batches[-1].next_offset if self.batches else self.start_offset
        self.epoch += self.rng.choice((1, 1, 2))

    def begin_at(self, offset: int) -> None:
        """No one may read below `offset` any more. The batch that holds it stays whole."""
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))
        self.batches = [batch for batch in self.batches if batch.next_offset > self.start_offset]

    def fetch(self, offset: int) -> list[Copied]:
        """Some of what follows `offset`."""
        later_batches = [batch for batch in self.batches if batch.next_offset > offset]
        return later_batches[: self.rng.choice((1, 3, 20))]

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` that is known here, and where it ends; (-1, -1) without any."""
        known = [batch for batch in self.batches if batch.epoch <= epoch]
        is_last = len(known) == len(self.batches)
        return (known[-1].epoch, self.end_offset if is_last else known[-1].next_offset) if known else (-1, -1)


@dataclass(slots=True)
class Producer:
    """What a log must know of one producer."""

    epoch: int = -1
    batches: tuple[tuple[int, int, int], ...] = ()
    """(First sequence, last sequence, last offset), the newest last."""
    transaction_first: int = -1


@dataclass(slots=True)
class Producers:
    """What follows from batches about those who wrote them."""

    states: dict[int, Producer] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """(Offset of the marker, producer id, first offset)."""

    @classmethod
    def after(cls, batches: Sequence[Copied]) -> Producers:
        self = cls()
        for batch in batches:
            header = read_header(batch.content)
            if header.producer_id >= 0:
                self._take(header, batch)
        return self

    def _take(self, header: BatchHeader, copied: Copied) -> None:
        state = self.states.setdefault(header.producer_id, Producer())
        if header.producer_epoch != state.epoch:
            state.batches = ()
        state.epoch = header.producer_epoch
        if not header.is_control:
            batch = (header.base_sequence, header.last_sequence, header.last_offset)
            state.batches = (*state.batches, batch)[-_BATCHES_KEPT:]
            if header.is_transactional and state.transaction_first < 0:
                state.transaction_first = header.base_offset
            return
        is_abort = read_control(copied.content).kind is ControlKind.ABORT
        if is_abort and state.transaction_first >= 0:
            self.aborted.append((header.base_offset, header.producer_id, state.transaction_first))
        state.transaction_first = -1


@dataclass(frozen=True, slots=True)
class Version:
    """What a follower's log may turn out to be: a part of `batches` from the beginning on, of `durable_offset` at least."""

    batches: tuple[Copied, ...]
    """Since the log last began again, those that were deleted at its start included."""
    begin_offset: int
    durable_offset: int
    high_watermark: int

    def __str__(self) -> str:
        places = [(batch.base_offset, batch.epoch) for batch in self.batches]
        return f"{places} from {self.begin_offset}, durable below {self.durable_offset}"

    def holds(self, results: Sequence[Copied], end_offset: int) -> bool:
        """Whether the log may hold this and end there."""
        kept = [batch for batch in self.batches if batch.next_offset <= end_offset]
        ends = kept[-1].next_offset if kept else self.begin_offset
        is_tail = list(results) == kept[len(kept) - len(results) :]
        return end_offset == ends and end_offset >= self.durable_offset and is_tail


def check_log(log: Log, results: Sequence[Copied], version: Version) -> None:
    """All that a log knows beside its batches follows from them."""
    batches = [batch for batch in version.batches if batch.next_offset <= log.end_offset]
    for copied in results:
        epoch = log.epoch_of(max(copied.base_offset, log.start_offset))
        if epoch != copied.epoch:
            raise ViolationError(f"offset {copied.base_offset} is of epoch {copied.epoch}, not {epoch}")
    if results and log.latest_epoch != results[-1].epoch:
        raise ViolationError(f"the log is at epoch {log.latest_epoch}, its last batch at {results[-1].epoch}")
    expected = Producers.after(batches)
    states = {
        state.producer_id: Producer(
            state.epoch,
            tuple((batch.first_sequence, batch.last_sequence, batch.last_offset) for batch in state.batches),
            state.transaction_first_offset,
        )
        for state in log.producers
    }
    if states != expected.states:
        raise ViolationError(f"the producers are {states}, they should be {expected.states}")
    _check_aborted(log, results, expected)
    opened = [state.transaction_first for state in expected.states.values() if state.transaction_first >= 0]
    stable = max(min([*opened, log.end_offset]), log.start_offset)
    if log.last_stable_offset(log.end_offset) != stable:
        raise ViolationError(f"stable up to {log.last_stable_offset(log.end_offset)}, not {stable}")


def _check_aborted(log: Log, results: Sequence[Copied], expected: Producers) -> None:
    """Where the beginning of a transaction was deleted a log need not know it any more, nor one that was deleted as a whole."""
    aborted = log.aborted_transactions(log.start_offset, log.end_offset)
    headers = [read_header(copied.content) for copied in results]
    open_answers = list(aborted)
    for marker, pid, first in expected.aborted:
        records = [h.base_offset for h in headers if h.producer_id == pid and first <= h.base_offset < marker]
        known = bool(open_answers) and open_answers[0][0] == pid and first <= open_answers[0][1] <= marker
        if known and open_answers[0][1] <= min(records, default=marker):
            open_answers.pop(0)
        elif records and marker >= log.start_offset:
            raise ViolationError(f"aborted: {aborted}, not {expected.aborted}")
    if open_answers:
        raise ViolationError(f"aborted: {aborted}, not {expected.aborted}")
