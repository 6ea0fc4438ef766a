"""The transactional ids of one partition of `__transaction_state`, as a shard's machine.

An operation decides (`decisions.py`) and names the record; `replay` alone changes the state. There is also
soft state, which a restart rebuilds: since when transactions run, by the monotonic clock; the last epochs;
the waiters for work.

**Work.** Markers are written by the service. Its worker leaves a ticket (`wait_for_work`). A tick answers it with the
transactions whose end has been decided, and the shard releases answers only when what they show is durable: so no marker can be
written before the decision is on disk. After a restart the decisions that were replayed are handed out in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.errors import MalformedMessage
from odradek.shards import DeferredReply, Moment, NewRecord, Outcome, StoredRecord, Ticket
from odradek.telemetry import events
from odradek.transactions import decisions
from odradek.transactions.formats import decode_key, decode_value, encode_key, encode_value
from odradek.transactions.state import (
    MAY_FOLLOW,
    NO_EPOCH,
    TIMEOUT_NEVER,
    ProducerIdentity,
    Transaction,
    TransactionState,
    TransactionVersion,
)
from odradek.transactions.work import Overdue, Prepared, Work

_log = events.caused_by_peers("transactions")
_HANDED_OUT_MAX: Final = 500
_EXPIRED_AT_ONCE_MAX: Final = 500
_EXPIRED_BYTES_MAX: Final = 256 * 1024
_PREPARED_BYTES_MORE: Final = 256
"""Room for the batch around a record, and for the bytes that a decision's record has in addition to the
record of an open transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTerms:
    """The settings that the machine uses."""

    id_expiration_ms: int
    timeout_check_ms: int
    """How often the machine checks for transactions that have timed out, and for ids that have expired."""
    expiration_check_ms: int
    level: TransactionVersion
    """The cluster's `transaction.version`."""
    batch_bytes_max: int = 2**31 - 1
    """The most bytes of a batch of `__transaction_state`."""


class TransactionMachine:
    """A `shards.Machine`."""

    def __init__(self, terms: Callable[[], TransactionTerms]) -> None:
        self._terms = terms
        self._transactions: dict[str, Transaction] = {}
        self._idle: dict[str, None] = {}
        """Ids without a transaction, the one that changed longest ago first."""
        self._decided: dict[str, int] = {}
        """Ids whose transaction waits for its markers, and the offset of the decision."""
        self._unclaimed: dict[str, None] = {}
        """Decided ids that were not handed to the worker yet."""
        # What follows is soft.
        self._begun_ms: dict[str, int] = {}
        """The begin of each transaction under way, by the monotonic clock, so that a clock that is set ends none."""
        self._last_epochs: dict[str, int] = {}
        self._overdue: dict[str, Overdue] = {}
        self._worker: Ticket[Work] | None = None
        self._timeout_check_at_ms = 0
        self._expiration_check_at_ms = 0

    # -- the log

    def replay(self, record: StoredRecord) -> None:
        try:
            transactional_id = decode_key(record.key)
            state = decode_value(record.value) if record.value is not None else None
        except MalformedMessage as error:
            _log.error("record_unreadable", offset=record.offset, reason=error.message)
            return
        if transactional_id is None or (state is None and record.value is not None):
            _log.warning("record_of_unknown_version", offset=record.offset)
            return
        self._put(transactional_id, state, record.offset)

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """Does nothing: no transaction ever writes here."""

    def _put(self, transactional_id: str, state: Transaction | None, offset: int) -> None:
        self._idle.pop(transactional_id, None)
        self._decided.pop(transactional_id, None)
        self._unclaimed.pop(transactional_id, None)
        if state is None:
            self._transactions.pop(transactional_id, None)
            self._last_epochs.pop(transactional_id, None)
            self._begun_ms.pop(transactional_id, None)
            return
        self._transactions[transactional_id] = state
        if state.state.is_idle:
            self._idle[transactional_id] = None
        elif state.state.is_prepared:
            self._decided[transactional_id] = offset
            self._unclaimed[transactional_id] = None
        if state.state is not TransactionState.ONGOING:
            self._begun_ms.pop(transactional_id, None)

    def loaded(self, now: Moment) -> None:
        terms = self._terms()
        self._timeout_check_at_ms = now.monotonic_ms + terms.timeout_check_ms
        self._expiration_check_at_ms = now.monotonic_ms + terms.expiration_check_ms
        for transactional_id, transaction in self._transactions.items():
            if transaction.state is TransactionState.ONGOING:
                age_ms = max(now.wall_ms - transaction.started_ms, 0)
                self._begun_ms[transactional_id] = now.monotonic_ms - age_ms

    # -- time and work

    def next_deadline_ms(self) -> int | None:
        if self._worker is not None and (self._unclaimed or self._overdue):
            return 0
        deadlines = []
        if self._begun_ms:
            deadlines.append(self._timeout_check_at_ms)
        if self._idle:
            deadlines.append(self._expiration_check_at_ms)
        return min(deadlines, default=None)

    def tick(self, now: Moment) -> Outcome[None]:
        if self._begun_ms and now.monotonic_ms >= self._timeout_check_at_ms:
            self._timeout_check_at_ms = now.monotonic_ms + self._terms().timeout_check_ms
            self._find_overdue(now)
        records: list[NewRecord] = []
        if self._idle and now.monotonic_ms >= self._expiration_check_at_ms:
            records = self._expired(now)
            if not records:
                self._expiration_check_at_ms = now.monotonic_ms + self._terms().expiration_check_ms
        return Outcome(None, records, self._handed_out())

    def resigned(self) -> Sequence[Ticket[Work]]:
        waiting = [self._worker] if self._worker is not None else []
        self._worker = None
        return waiting

    def wait_for_work(self, ticket: Ticket[Work]) -> Outcome[None]:
        """Answers the ticket with a `Work` as soon as there is some. The worker waits with one ticket at a time."""
        self._worker = ticket
        return Outcome(None)

    def _handed_out(self) -> Sequence[DeferredReply[Work]]:
        if self._worker is None or not (self._unclaimed or self._overdue):
            return ()
        ids = list(islice(self._unclaimed, _HANDED_OUT_MAX))
        work = Work(
            prepared=tuple(self.prepared(producer) for producer in ids),
            overdue=tuple(islice(self._overdue.values(), _HANDED_OUT_MAX)),
        )
        for producer in ids:
            del self._unclaimed[producer]
        for overdue in work.overdue:
            del self._overdue[overdue.transactional_id]
        ticket, self._worker = self._worker, None
        return (DeferredReply(ticket, work),)

    @property
    def decided(self) -> frozenset[str]:
        """Ids whose transaction waits for its markers."""
        return frozenset(self._decided)

    @property
    def unclaimed(self) -> frozenset[str]:
        """Decided ids that no worker has yet."""
        return frozenset(self._unclaimed)

    def prepared(self, transactional_id: str) -> Prepared:
        """Returns a decided transaction, for the worker that writes its markers."""
        return Prepared(
            transactional_id=transactional_id,
            transaction=self._transactions[transactional_id],
            offset=self._decided[transactional_id],
        )

    def _find_overdue(self, now: Moment) -> None:
        for transactional_id, begun_ms in list(self._begun_ms.items()):
            transaction = self._transactions.get(transactional_id)
            if transaction is None or transaction.state is not TransactionState.ONGOING:
                del self._begun_ms[transactional_id]  # it never began: its record was refused
            elif (
                transaction.timeout_ms != TIMEOUT_NEVER
                and begun_ms + transaction.timeout_ms < now.monotonic_ms
            ):
                self._overdue[transactional_id] = Overdue(
                    transactional_id=transactional_id, identity=transaction.identity
                )

    def _expired(self, now: Moment) -> list[NewRecord]:
        """Tombstones for some of the ids that no one has used for long enough; the rest has its turn at the next tick."""
        expiration_ms = self._terms().id_expiration_ms
        records: list[NewRecord] = []
        weight_bytes = 0
        for transactional_id in self._idle:
            if self._transactions[transactional_id].updated_ms + expiration_ms > now.wall_ms:
                break
            key = encode_key(transactional_id)
            weight_bytes += len(key)
            if records and (len(records) >= _EXPIRED_AT_ONCE_MAX or weight_bytes > _EXPIRED_BYTES_MAX):
                break
            records.append(NewRecord(key, None))
        return records

    # -- operations

    def init_producer(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        fresh_producer_id: int | None,
        now: Moment,
    ) -> Outcome[ProducerIdentity | None]:
        """Replies with the producer's new identity; None if a transaction is under way, which is aborted first: it must ask
        again.

        Raises as `decisions.init_producer` does, and ProducerIdRequired.
        """
        current = self._transactions.get(transactional_id)
        if current is not None:
            decisions.check_expected(current, expected)
        if current is not None and current.state is TransactionState.ONGOING:
            change = decisions.fence(
                current, level=self._level, fresh_producer_id=fresh_producer_id, now_ms=now.wall_ms
            )
            return Outcome(None, self._changed(transactional_id, change))
        change = decisions.init_producer(
            current,
            self._last_epochs.get(transactional_id, NO_EPOCH),
            timeout_ms=timeout_ms,
            expected=expected,
            fresh_producer_id=fresh_producer_id,
            now_ms=now.wall_ms,
        )
        return Outcome(change.transaction.identity, self._changed(transactional_id, change))

    def add_partitions(
        self,
        transactional_id: str,
        who: ProducerIdentity,
        partitions: AbstractSet[TopicPartition],
        *,
        client_version: TransactionVersion,
        now: Moment,
    ) -> Outcome[None]:
        current = self._transactions.get(transactional_id)
        following = decisions.add_partitions(
            current, who, partitions, client_version=client_version, now_ms=now.wall_ms
        )
        if following is None:
            return Outcome(None)
        record = self.record(transactional_id, following)
        self._check_fits(transactional_id, record)
        if current is None or current.state is not TransactionState.ONGOING:
            self._begun_ms[transactional_id] = now.monotonic_ms
        return Outcome(None, [record])

    def _check_fits(self, transactional_id: str, record: NewRecord) -> None:
        """Checks the size: a transaction that just fitted a batch could not be ended, as the record of that is a little
        larger."""
        weight_bytes = len(record.key) + len(record.value or b"") + _PREPARED_BYTES_MORE
        if weight_bytes > self._terms().batch_bytes_max:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the partitions of transaction {transactional_id!r} take {weight_bytes} bytes, more than "
                "max.message.bytes of __transaction_state",
            )

    def verify_partitions(
        self, transactional_id: str, who: ProducerIdentity, partitions: AbstractSet[TopicPartition]
    ) -> Outcome[dict[TopicPartition, ErrorCode]]:
        current = self._transactions.get(transactional_id)
        return Outcome(decisions.verify_partitions(current, who, partitions))

    def end(
        self,
        transactional_id: str,
        who: ProducerIdentity,
        *,
        commit: bool,
        client_version: TransactionVersion,
        fresh_producer_id: int | None,
        now: Moment,
    ) -> Outcome[ProducerIdentity]:
        """Commits or aborts; the reply is the producer's identity from then on."""
        current = self._transactions.get(transactional_id)
        if not client_version.bumps_epochs:
            prepared = decisions.end_classic(current, who, commit=commit, now_ms=now.wall_ms)
            return Outcome(who, [self.record(transactional_id, prepared)] if prepared is not None else ())
        change = decisions.end_with_new_epoch(
            current, who, commit=commit, fresh_producer_id=fresh_producer_id, now_ms=now.wall_ms
        )
        if change is None:
            assert current is not None
            return Outcome(current.identity)
        return Outcome(decisions.identity_after(change.transaction), self._changed(transactional_id, change))

    def abort_overdue(self, overdue: Overdue, *, fresh_producer_id: int | None, now: Moment) -> Outcome[None]:
        """Aborts a transaction that timed out, unless it ended meanwhile."""
        current = self._transactions.get(overdue.transactional_id)
        if (
            current is None
            or current.state is not TransactionState.ONGOING
            or current.identity != overdue.identity
            or overdue.transactional_id not in self._begun_ms
            or self._begun_ms[overdue.transactional_id] + current.timeout_ms >= now.monotonic_ms
        ):
            return Outcome(None)
        change = decisions.fence(
            current, level=self._level, fresh_producer_id=fresh_producer_id, now_ms=now.wall_ms
        )
        _log.info(
            "transaction_timed_out",
            transactional_id=overdue.transactional_id,
            producer_id=current.producer_id,
            timeout_ms=current.timeout_ms,
        )
        return Outcome(None, self._changed(overdue.transactional_id, change))

    def complete(self, prepared: Prepared, now: Moment) -> Outcome[None]:
        """Completes a transaction all of whose markers are durable. Does nothing if it is not the one that waits for them."""
        if self._decided.get(prepared.transactional_id) != prepared.offset:
            return Outcome(None)
        complete = decisions.completed(prepared.transaction, now_ms=now.wall_ms)
        return Outcome(None, [self.record(prepared.transactional_id, complete)])

    # -- looking

    def find(self, transactional_id: str) -> Outcome[Transaction | None]:
        return Outcome(self._transactions.get(transactional_id))

    def entries(self) -> Outcome[list[tuple[str, Transaction]]]:
        """Returns all transactions, as they are now, in no order."""
        return Outcome(list(self._transactions.items()))

    # -- records

    @property
    def _level(self) -> TransactionVersion:
        return self._terms().level

    def _changed(self, transactional_id: str, change: decisions.TransactionChange) -> list[NewRecord]:
        self._last_epochs[transactional_id] = change.last_epoch
        return [self.record(transactional_id, change.transaction)]

    def record(self, transactional_id: str, following: Transaction) -> NewRecord:
        """Returns the record of the state that follows, which must be one that may follow."""
        current = self._transactions.get(transactional_id)
        before = TransactionState.EMPTY if current is None else current.state
        assert before in MAY_FOLLOW[following.state], f"{before.title} may not become {following.state.title}"
        return NewRecord(encode_key(transactional_id), encode_value(following, self._level))
