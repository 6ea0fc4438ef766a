"""The driver's half of the sink: begin a batch, commit its decision, carry the decision out. It fences zombie drivers.

`begin` runs in Spark's planner process before a batch's tasks, `decide` in its commit process after them. The SQL server runs
both on threads of one process (`engine/write_drivers.py`); elsewhere only the tasks' results travel between the two. So a
task's result holds what `begin` found out.

**Why a transaction may be aborted.** Nothing but the fence orders two drivers, and a process may be suspended between any two
lines. So open transactions are listed first; then the driver is fenced, by which all who could decide them are shut out; then
the last decision is read and carried out; and only then what was listed is aborted, by its very producer id and epoch. What a
newer driver's tasks write meanwhile has other ones.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek.client import Admin, NewTopic
from odradek.client.admin.ensured_topics import ensure_topic
from odradek.client.groups.values import OffsetsToCommit, as_committable
from odradek.client.transactions.error_actions import ProducerFencedError
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.spark.exactly_once.committed import CommittedTransactions, ProducerAndEpoch
from odradek.spark.exactly_once.decision import (
    DECISIONS_PARTITIONS,
    DECISIONS_TOPIC,
    Decision,
    Participant,
    decision_in,
    driver_id,
)
from odradek.spark.exactly_once.open_transactions import GONE, abort, failures, open_transactions
from odradek.spark.exactly_once.task import BatchName
from odradek.spark.options.sink_ids import group_of

log: Final = logging.getLogger("odradek.spark")

SWEEP_INTERVAL_S: Final = 10.0
"""The longest time that a transaction left open by a lost attempt may delay readers while batches come."""
SWEEP_PATIENCE_S: Final = 5.0
"""How long a sweep waits for a broker that does not answer, before it is put off."""
FIRST_SWEEP_PATIENCE_S: Final = 30.0
"""How long the first sweep waits: by then a dead broker has left the cluster, and others have taken over. Without new
input there may be no later sweep.
"""
_GOES_ON_WITHIN_S: Final = 600.0
"""The longest pause without a fence. After it a batch fences first: brokers may have forgotten the transactional id."""
_TIMEOUT_SHARE: Final = 0.9
"""The share of the transactions' time-out that a batch may take: a batch that took longer is not decided."""
_DECISIONS: Final = [TopicPartition(DECISIONS_TOPIC, number) for number in range(DECISIONS_PARTITIONS)]


class BatchLostError(KafkaError):
    """A decided batch cannot be made visible any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTerms:
    """The identity and the decision on which a batch's tasks depend."""

    driver: TransactionIdentity
    side: int
    decided: Decision | None
    """The decision before this batch."""
    begun_at: float
    """The time when the batch began, in seconds of the driver machine's monotonic clock."""
    committed: frozenset[ProducerAndEpoch] = frozenset()
    """Transactions of this decision and of some before it, which are known to be committed."""


@dataclass(slots=True, kw_only=True)
class DriverMemory:
    """The state of a sink in a driver's process."""

    has_swept: bool = False
    decided: tuple[int, int] | None = None
    swept_at: float = 0.0
    has_topic: bool = False
    begun: tuple[TransactionIdentity, float] | None = None
    """The batch that this process began last, and when: who is to decide it."""
    committed: CommittedTransactions = field(default_factory=CommittedTransactions)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while this process begins a batch of the sink, or decides one. A query that was stopped may still do so as its
    successor begins: the successor fences after it.
    """


_memories: Final[dict[tuple[str, str], DriverMemory]] = {}


class SinkDriver:
    """The driver's half of an exactly-once sink, one for each sink and process. With `failing_on_loss=False`, a batch that
    is lost is logged, and the query continues.

    `transaction_timeout_s` is the timeout of the tasks' transactions. `later` receives work that nothing waits for; without it,
    that work is done at once."""

    def __init__(
        self,
        admin: Admin,
        sink_id: str,
        *,
        transaction_timeout_s: float,
        failing_on_loss: bool = True,
        clock: Callable[[], float] = time.monotonic,
        memory: DriverMemory | None = None,
        later: Callable[[Callable[[Admin], None]], None] | None = None,
    ) -> None:
        self._admin = admin
        self._sink_id = sink_id
        self._group = group_of(sink_id)
        self._transaction_timeout_s = transaction_timeout_s
        self._failing_on_loss = failing_on_loss
        self._clock = clock
        self._memory = memory or DriverMemory()
        self._later = later

    def begin(self, *, fence_again: bool = False) -> BatchTerms:
        """Fences older drivers, commits what they decided, and aborts what they did not.

        `fence_again`: another process may have fenced since this one's last batch, and decided nothing.
        """
        if fence_again:
            self._memory.begun = None
        self._make_topic()
        driver, decided = self._go_on() or self._shut_out_others()
        if self._is_sweep_due(decided):
            timeout_s = SWEEP_PATIENCE_S if self._memory.has_swept else FIRST_SWEEP_PATIENCE_S
            driver, decided = self._sweep(timeout_s) or (driver, decided)
        begun_at = self._clock()
        self._memory.begun = driver, begun_at
        return BatchTerms(
            driver=driver,
            side=0 if decided is None else 1 - decided.side,
            decided=decided,
            begun_at=begun_at,
            committed=self._memory.committed.transactions(),
        )

    def decide(
        self,
        terms: BatchTerms,
        name: BatchName,
        participants: Sequence[Participant],
        progress: Mapping[str, OffsetsToCommit],
        input_fingerprint: str | None = None,
    ) -> None:
        """Commits the decision: the batch is part of the output.

        `progress` are offsets to commit with it, by group. Offsets of topics that were deleted meanwhile are left out.

        ProducerFencedError: another driver uses the sink id. ConfigError: the batch cannot be decided. After any other
        error the decision may have been taken: the next `begin` finds out.
        """
        self._check_age(terms, name)
        decision = Decision(
            sink_id=self._sink_id,
            query=name.query,
            batch=name.batch,
            is_keyed=name.is_keyed,
            side=terms.side,
            driver=(terms.driver.producer_id, terms.driver.producer_epoch),
            participants=tuple(participants),
            input_fingerprint=input_fingerprint,
        )
        try:
            committed = {self._group: decision.to_offsets()}
            for group, offsets in progress.items():
                committed[group] = {**committed.get(group, {}), **as_committable(offsets)}
            for group, offsets_and_metadata in committed.items():
                self._admin.send_offsets_to_transaction(terms.driver, group, offsets_and_metadata)
            self._admin.end_transactions([terms.driver], committed=True)
        except KafkaError as error:
            if error.code not in GONE:
                raise
            raise ProducerFencedError(
                error.code,
                f"another query uses sink {self._sink_id!r} since batch {name.batch} of query {name.query} began, and this one"
                " must stop: a sinkId is for one query at a time",
            ) from None
        self.carry_out(decision)

    def sweep(self) -> None:
        """Aborts what lost attempts left open, now: it holds back readers of what has been decided."""
        try:
            self._sweep()
        except KafkaError as error:
            log.warning("sink %s: transactions of lost tasks may be open: %s", self._sink_id, error)

    def retire(self) -> Decision | None:
        """Ends all open transactions of the sink: commits what was decided, aborts the rest. A driver that is alive must stop.

        BatchLostError as in `begin`, after the rest was aborted.
        """
        transactions = open_transactions(self._admin, self._sink_id)
        try:
            _, decided = self._shut_out_others()
        except BatchLostError:
            abort(self._admin, transactions)
            raise
        abort(self._admin, transactions)
        return decided

    # -- inside

    def _go_on(self) -> tuple[TransactionIdentity, Decision | None] | None:
        """Begins without a new fence, where the batch that this process began last was decided in its name, and no other
        process has fenced since.

        Spark may plan the batches of a query in several processes. One of them may have begun a batch that it did not decide,
        such as one that failed, or one that was in the output already. If a newer driver shuts this one out from now on, this
        batch cannot be decided. Each identity is given to one batch: the end of a transaction is the end of its epoch
        (KIP-890).
        """
        begun, self._memory.begun = self._memory.begun, None
        if begun is None or self._clock() - begun[1] > _GOES_ON_WITHIN_S:
            return None
        last, _ = begun
        following = self._admin.identity_after_commit(last)
        if following is None or not self._is_current(following):
            return None
        decided = last_decision(self._admin, self._sink_id)
        if decided is None or decided.driver != (last.producer_id, last.producer_epoch):
            return None
        self._finish(decided)
        return following, decided

    def _is_current(self, identity: TransactionIdentity) -> bool:
        """Tells whether the coordinator has no newer identity. When it does not answer, a fence is as good, and safe."""
        name = identity.transactional_id
        try:
            described = self._admin.describe_transactions([name])[name]
        except KafkaError as error:
            log.info("sink %s: its driver is fenced, as it cannot be described: %s", self._sink_id, error)
            return False
        return (described.producer_id, described.producer_epoch) == (
            identity.producer_id,
            identity.producer_epoch,
        )

    def _shut_out_others(self) -> tuple[TransactionIdentity, Decision | None]:
        """Fences other drivers, so that none can decide any more, and carries out the last decision."""
        name = driver_id(self._sink_id)
        driver = self._admin.fence_producers([name])[name]
        decided = last_decision(self._admin, self._sink_id)
        if decided is not None:
            self._finish(decided)
        return driver, decided

    def _finish(self, decided: Decision) -> None:
        if decided.is_ended:
            self._memory.committed.note(decided)
        else:
            self.carry_out(decided)

    def _check_age(self, terms: BatchTerms, name: BatchName) -> None:
        """Raises ConfigError for a transaction that has timed out: it must not be decided, since its rows would be lost."""
        age_s = self._clock() - terms.begun_at
        if age_s > _TIMEOUT_SHARE * self._transaction_timeout_s:
            raise ConfigError(
                f"batch {name.batch} of query {name.query} took {age_s:.0f} s, and its transactions time out after"
                f" {self._transaction_timeout_s:.0f} s: nothing of it was committed. Set kafka.transaction.timeout.ms higher"
                " (brokers allow transaction.max.timeout.ms), or maxOffsetsPerTrigger lower"
            )

    def carry_out(self, decision: Decision) -> None:
        """Commits a decision's transactions, and notes that. Without the note the next `begin` commits them again."""
        identities = decision.identities()
        errors = []
        if identities:
            errors = failures(lambda: self._admin.end_transactions(identities, committed=True))
        if errors:
            self._settle_loss(decision, errors, len(identities))
        else:
            self._memory.committed.note(decision)
        group, end_mark = self._group, decision.end_mark()

        def note(admin: Admin) -> None:
            admin.alter_group_offsets(group, end_mark)

        if self._later is None:
            note(self._admin)
        else:
            self._later(note)

    def _settle_loss(self, decision: Decision, errors: Sequence[KafkaError], count: int) -> None:
        """Raises BatchLostError for lost transactions; errors that can be retried, or have other reasons, as they are."""
        for error in errors:
            if error.code not in GONE:
                raise error
        first = errors[0]
        lost = BatchLostError(
            ErrorCode.TRANSACTION_ABORTABLE,
            f"batch {decision.batch} of query {decision.query} was decided for sink {self._sink_id!r}, but"
            f" {len(errors)} of its {count} transactions cannot be committed any more ({first}): it took longer than"
            " kafka.transaction.timeout.ms from writing it to committing it. Its rows are missing in the output;"
            " write them again by hand, then set failOnDataLoss=false once to go on",
        )
        if self._failing_on_loss:
            raise lost
        log.error("%s", lost.message)

    def _is_sweep_due(self, decided: Decision | None) -> bool:
        """Tells whether to sweep: at first, when the previous batch was not decided, and every SWEEP_INTERVAL_S."""
        memory = self._memory
        last = None if decided is None else decided.driver
        is_due = not memory.has_swept or memory.decided == last
        memory.decided = last
        return is_due or self._clock() - memory.swept_at >= SWEEP_INTERVAL_S

    def _sweep(
        self, timeout_s: float = SWEEP_PATIENCE_S
    ) -> tuple[TransactionIdentity, Decision | None] | None:
        """Aborts what no decision will ever name. When there is any, the driver has a new identity.

        A sweep may fail, and be made later: only the patience of readers depends on it.
        """
        deadline = self._clock() + timeout_s
        while True:
            try:
                transactions = open_transactions(self._admin, self._sink_id, timeout_s=SWEEP_PATIENCE_S)
                break
            except KafkaError as error:
                log.warning("sink %s: transactions of lost tasks cannot be listed: %s", self._sink_id, error)
                if self._clock() >= deadline:
                    return None
        shut_out = None
        if transactions:
            log.info(
                "sink %s: %d open transactions of lost tasks are aborted", self._sink_id, len(transactions)
            )
            shut_out = self._shut_out_others()
            try:
                abort(self._admin, transactions, timeout_s=SWEEP_PATIENCE_S)
            except KafkaError as error:
                log.warning("sink %s: transactions of lost tasks stay open: %s", self._sink_id, error)
                return shut_out
        self._memory.has_swept = True
        self._memory.swept_at = self._clock()
        return shut_out

    def _make_topic(self) -> None:
        if not self._memory.has_topic:
            ensure_topic(self._admin, NewTopic(DECISIONS_TOPIC, DECISIONS_PARTITIONS))
            self._memory.has_topic = True


def last_decision(admin: Admin, sink_id: str, *, require_stable: bool = True) -> Decision | None:
    """Returns the last decision of a sink. With `require_stable` it waits for a decision that is being committed."""
    committed = admin.list_group_offsets(group_of(sink_id), _DECISIONS, require_stable=require_stable)
    return decision_in(sink_id, committed)


def memory_of(servers: str, sink_id: str) -> DriverMemory:
    """Returns the memory of a sink in this process."""
    return _memories.setdefault((servers, sink_id), DriverMemory())
