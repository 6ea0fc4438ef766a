"""The driver's half: begin a batch, decide it, carry the decision out.

`begin` runs in Spark's planner process before a batch's tasks, `decide` in its commit process after them. Between the two
only the tasks' results travel, so a task's result holds what `begin` found out.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek.client import Admin, NewTopic
from odradek.client.errors import PartialFailureError, TimedOutError
from odradek.client.groups.values import OffsetAndMetadata
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.spark.exactly_once.decision import (
    DECISIONS_PARTITIONS,
    DECISIONS_TOPIC,
    Decision,
    Namespace,
    Participant,
    decision_in,
    driver_id,
    group_of,
    participant_prefix,
)

log: Final = logging.getLogger("odradek.spark")

SWEEP_INTERVAL_S: Final = 10.0
"""How long a transaction that a lost attempt left open may hold back readers, at most."""
_OPEN: Final = ("Ongoing",)
_INCARNATION_BYTES: Final = 4
_DECISIONS: Final = [TopicPartition(DECISIONS_TOPIC, number) for number in range(DECISIONS_PARTITIONS)]


class BatchLostError(KafkaError):
    """A decided batch cannot be made visible any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTerms:
    """What a batch's tasks work under."""

    driver: TransactionIdentity
    namespace: Namespace
    decided: Decision | None
    """The decision before this batch."""


@dataclass(slots=True, kw_only=True)
class _DriverMemory:
    """What a driver's process remembers of a sink."""

    incarnation: str = field(default_factory=lambda: os.urandom(_INCARNATION_BYTES).hex())
    has_begun: bool = False
    decided: tuple[str, int] | None = None
    swept_at: float = 0.0
    has_topic: bool = False


_memories: Final[dict[tuple[str, str], _DriverMemory]] = {}


class SinkDriver:
    """One sink's, in one process. `failing_on_loss=False`: a batch that is lost is logged, and the query goes on."""

    def __init__(
        self,
        admin: Admin,
        sink_id: str,
        *,
        failing_on_loss: bool = True,
        clock: Callable[[], float] = time.monotonic,
        memory: _DriverMemory | None = None,
    ) -> None:
        self._admin = admin
        self._sink_id = sink_id
        self._group = group_of(sink_id)
        self._failing_on_loss = failing_on_loss
        self._clock = clock
        self._memory = memory or _DriverMemory()

    def begin(self) -> BatchTerms:
        """Shut out older drivers, finish what they decided, abort what they did not."""
        self._make_topic()
        driver = self._admin.fence_producers([driver_id(self._sink_id)])[driver_id(self._sink_id)]
        decided = self.decision()
        if decided is not None and not decided.is_ended:
            self._carry_out(decided)
        self._sweep_if_due(decided)
        namespace = Namespace(
            sink_id=self._sink_id,
            incarnation=self._memory.incarnation,
            side=0 if decided is None else 1 - decided.namespace.side,
        )
        return BatchTerms(driver=driver, namespace=namespace, decided=decided)

    def decide(
        self,
        terms: BatchTerms,
        query: str,
        batch: int,
        participants: Sequence[Participant],
        progress: Mapping[str, Mapping[TopicPartition, int]],
    ) -> None:
        """Make the batch part of the output; `progress` are offsets to commit with it, by group.

        ProducerFencedError: another driver uses the sink id. After any other error the decision may have been taken: the
        next `begin` finds out.
        """
        decision = Decision(
            query=query, batch=batch, namespace=terms.namespace, participants=tuple(participants)
        )
        self._admin.send_offsets_to_transaction(terms.driver, self._group, decision.to_offsets())
        for group, offsets in progress.items():
            positions = {tp: OffsetAndMetadata(offset=offset) for tp, offset in offsets.items()}
            self._admin.send_offsets_to_transaction(terms.driver, group, positions)
        self._admin.end_transactions([terms.driver], committed=True)
        self._carry_out(decision)

    def decision(self) -> Decision | None:
        """The sink's last decision."""
        committed = self._admin.list_group_offsets(self._group, _DECISIONS, require_stable=True)
        return decision_in(self._sink_id, committed)

    # -- inside

    def _carry_out(self, decision: Decision) -> None:
        identities = decision.identities()
        if identities:
            try:
                self._admin.end_transactions(identities, committed=True)
            except PartialFailureError as failure:
                self._settle_loss(decision, list(failure.errors.values()), len(identities))
            except KafkaError as error:
                self._settle_loss(decision, [error], len(identities))
        self._admin.alter_group_offsets(self._group, decision.end_mark())

    def _settle_loss(self, decision: Decision, errors: Sequence[Exception], count: int) -> None:
        """Raise what can be tried again as it is, and what cannot as BatchLostError."""
        for error in errors:
            if isinstance(error, TimedOutError) or not isinstance(error, KafkaError) or error.retriable:
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

    def _sweep_if_due(self, decided: Decision | None) -> None:
        """Abort open transactions of tasks that no decision will ever name."""
        memory = self._memory
        now = self._clock()
        last = None if decided is None else (decided.query, decided.batch)
        had_retries = decided is not None and any(each.attempt for each in decided.participants)
        is_due = not memory.has_begun or memory.decided == last or had_retries
        if is_due or now - memory.swept_at >= SWEEP_INTERVAL_S:
            mine = re.compile(re.escape(participant_prefix(self._sink_id)) + r"[0-9a-f]{8}-[01]-\d+\.\d+")
            strays = [
                str(each.transactional_id)
                for each in self._admin.list_transactions(states=_OPEN)
                if mine.fullmatch(str(each.transactional_id))
            ]
            if strays:
                log.info(
                    "sink %s: %d open transactions of lost tasks are aborted", self._sink_id, len(strays)
                )
                self._admin.fence_producers(strays)
            memory.swept_at = now
        memory.has_begun = True
        memory.decided = last

    def _make_topic(self) -> None:
        if not self._memory.has_topic:
            try:
                self._admin.create_topics([NewTopic(DECISIONS_TOPIC, DECISIONS_PARTITIONS)])
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            self._memory.has_topic = True


def memory_of(servers: str, sink_id: str) -> _DriverMemory:
    """What this process remembers of a sink."""
    return _memories.setdefault((servers, sink_id), _DriverMemory())
