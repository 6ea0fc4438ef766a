"""What a share consumer has of the group's records: those that wait for `poll`, those with the user, and decisions about them.

Shared by two sides under the lock of `news`: the user's thread receives records and decides; the loop adds what was acquired,
sends decisions, and notes their outcome. A record is in one of these places:

    chunks ──poll──▶ in hand ──acknowledge──▶ decided ──poll, commit──▶ outgoing ──request──▶ under way ──▶ settled
      ▲ again, if the decision was to renew its lock ◀─────────────────────────────────────────────────────────┘

With implicit acknowledgement `poll` and `commit` decide for the records in hand: they are accepted. A session that ends takes
everything with it that came by it: the broker has released those records, and decisions about them are refused here.

No I/O and no clock: times are arguments. Methods marked *locked* are called with the lock held; the others take it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.client.consumer.news import SharedNews
from odradek.client.network.errors import IllegalStateError
from odradek.client.share.acknowledgements import (
    AcknowledgedOffsets,
    AcknowledgementGroup,
    CommitWaiter,
    span_of,
)
from odradek.client.share.acquired_chunk import AcquiredChunk, DeliveredRange, OffsetSpan
from odradek.client.share.share_record import SharePartitionId, ShareRecord, ShareSource
from odradek.model.errors import ErrorCode, ErrorValue, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.acknowledge_types import AcknowledgeType
from odradek.telemetry import events

_log = events.get("client")

_AT_ONCE: Final = float("-inf")
RecordId = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(slots=True, kw_only=True)
class HeldRecord:
    """A record that the user has."""

    record: ShareRecord[Any, Any]
    source: ShareSource
    partition: SharePartitionId
    decision: AcknowledgeType | None = None


class Deliveries:
    """The records that a share consumer has of its group, and the decisions about them."""

    def __init__(self, *, is_explicit: bool) -> None:
        self.news: Final = SharedNews()
        self.lock: Final = self.news.lock
        self._is_explicit = is_explicit
        self._chunks: deque[AcquiredChunk] = deque()
        self._held: dict[RecordId, HeldRecord] = {}
        self._renewed: deque[HeldRecord] = deque()
        """Records whose locks began again; the next poll returns them."""
        self._outgoing: dict[ShareSource, dict[SharePartitionId, AcknowledgementGroup]] = {}
        self._under_way: dict[int, AcknowledgementGroup] = {}
        """Groups in requests, by identity."""
        self._ended: dict[int, int] = {}
        """The incarnation of the present session with each broker; those before it have ended."""
        self.outgoing_since: float | None = None
        """The time at which the oldest outgoing acknowledgement was decided; None without one."""
        self.keeps_outcomes = False
        """Whether the user has a callback for outcomes."""
        self._outcomes: list[AcknowledgedOffsets] = []
        self._failure: ErrorValue[Exception] | None = None
        self._problem: ErrorValue[KafkaError] | None = None
        """What the next poll raises."""
        self.is_woken = False
        """Whether a poll that waits, or the next one, must end at once."""

    # -- the user's side: records

    @property
    def failure(self) -> Exception | None:
        """The error after which nothing can be read; None before. A new exception each time."""
        return self._failure.exception() if self._failure is not None else None

    def fail(self, failure: Exception) -> None:
        """Stops all reading; `poll` raises `failure` from now on."""
        with self.lock:
            if self._failure is None:
                self._failure = ErrorValue.of(failure)
            self.news.publish()

    def report(self, problem: KafkaError) -> None:
        """Has the next `poll`, or the one that waits, raise the problem."""
        with self.lock:
            self._problem = ErrorValue.of(problem)
            self.news.publish()

    def check(self) -> None:
        """*locked.* Raises the failure, or the problem, once."""
        if self._failure is not None:
            raise self._failure.exception()
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem.exception()

    def begin_poll(self, now: float) -> bool:
        """Ends the user's time with the records of earlier polls. IllegalStateError if some are explicitly undecided.

        Returns whether the loop must see to it that acknowledgements are sent in time."""
        with self.lock:
            undecided = [held for held in self._held.values() if held.decision is None]
            if undecided and self._is_explicit:
                first, count = undecided[0], len(undecided)
                raise IllegalStateError(
                    f"{count} {'record was' if count == 1 else 'records were'} not acknowledged, the first at offset"
                    f" {first.record.offset} of {first.partition}: with share.acknowledgement.mode=explicit,"
                    " acknowledge() all before the next poll"
                )
            had_outgoing = self.outgoing_since is not None
            self._let_go(now)
            return self.outgoing_since is not None and not had_outgoing

    def begin_commit(self, now: float) -> CommitWaiter:
        """Ends the user's time with decided records (implicitly: with all). All decisions are sent at once; the waiter waits
        for the outcome of each."""
        with self.lock:
            self._let_go(now)
            if self.outgoing_since is not None:
                self.outgoing_since = _AT_ONCE
            groups = [group for groups in self._outgoing.values() for group in groups.values()]
            return CommitWaiter([*groups, *self._under_way.values()])

    def has_records(self, now: float) -> bool:
        """*locked.* Whether `poll` can return something now. Chunks whose locks have ended are dropped."""
        return self.has_chunks(now) or bool(self._renewed)

    def has_chunks(self, now: float) -> bool:
        """*locked.* Whether records are buffered that the user has not had yet."""
        self._drop_expired(now)
        return bool(self._chunks)

    @property
    def renewed_count(self) -> int:
        """The number of records whose locks began again, and that the user does not have yet. From any thread."""
        return len(self._renewed)

    def renewed(self, record_count_max: int) -> list[ShareRecord[Any, Any]]:
        """Returns records whose locks began again: the user has them once more."""
        with self.lock:
            count = min(record_count_max, len(self._renewed))
            again = [self._renewed.popleft() for _ in range(count)]
            for held in again:
                self._held[_id_of(held.record)] = held
            return [held.record for held in again]

    def chunks(self) -> tuple[AcquiredChunk, ...]:
        """Returns what is buffered, in the order of its arrival."""
        with self.lock:
            return tuple(self._chunks)

    def hand_out(
        self, records: Iterable[tuple[AcquiredChunk, Sequence[ShareRecord[Any, Any]]]], now: float
    ) -> None:
        """Notes records that the user has now, and what of their chunks holds no record."""
        with self.lock:
            for chunk, delivered in records:
                for record in delivered:
                    self._held[_id_of(record)] = HeldRecord(
                        record=record, source=chunk.source, partition=chunk.partition
                    )
                self._void(chunk, now)
            self._chunks = deque(chunk for chunk in self._chunks if not chunk.is_empty)

    def release_unread(self, chunk: AcquiredChunk, offset: int, now: float) -> None:
        """Releases a record that the user's deserializer refused."""
        with self.lock:
            group = self._group(chunk.source, chunk.partition, now)
            group.types[offset] = AcknowledgeType.RELEASE
            self._settle_if_ended(group)

    def release_ranges(
        self, source: ShareSource, partition: SharePartitionId, ranges: Iterable[DeliveredRange], now: float
    ) -> None:
        """Releases records that cannot be read at all."""
        with self.lock:
            group = self._group(source, partition, now)
            for first, last, _ in ranges:
                group.spans.append(span_of(OffsetSpan(first, last), AcknowledgeType.RELEASE))
            self._settle_if_ended(group)

    def wakeup(self) -> None:
        """Ends a poll that waits, or the next one."""
        with self.lock:
            self.is_woken = True
            self.news.publish()

    # -- the user's side: decisions

    def acknowledge(self, record_id: RecordId, kind: AcknowledgeType) -> None:
        """Decides about a record. IllegalStateError unless the user has it."""
        if not self._is_explicit:
            raise IllegalStateError(
                "records are acknowledged by the next poll or commit: set share.acknowledgement.mode=explicit to decide about"
                " each"
            )
        if kind is AcknowledgeType.GAP:
            raise ValueError("GAP is the client's own: accept, release, reject or renew a record")
        with self.lock:
            held = self._held.get(record_id) or self._returned_early(record_id)
            if held is None:
                topic, partition, offset = record_id
                raise IllegalStateError(
                    f"offset {offset} of {topic}-{partition} is not in hand: it was not returned by the last poll, or its"
                    " acknowledgement is on its way"
                )
            held.decision = kind

    def end_decisions(self, now: float) -> None:
        """Sends what was decided, and gives up the rest: the user has nothing any more."""
        with self.lock:
            for record_id in [key for key, held in self._held.items() if held.decision is None]:
                del self._held[record_id]
            self._let_go(now)
            self._renewed.clear()

    def drain_outcomes(self) -> list[AcknowledgedOffsets]:
        """Returns the outcomes since the last call, for the user's callback."""
        with self.lock:
            outcomes, self._outcomes = self._outcomes, []
            return outcomes

    # -- the loop's side

    def add(self, chunk: AcquiredChunk) -> None:
        with self.lock:
            if self._is_current(chunk.source):
                self._chunks.append(chunk)
                self.news.publish()

    def has_outgoing(self, source: ShareSource) -> bool:
        with self.lock:
            return source in self._outgoing

    def sources_with_acknowledgements(self) -> Mapping[ShareSource, bool]:
        """Returns the sessions that have acknowledgements to send; True where some renew locks."""
        with self.lock:
            return {
                source: any(group.renews for group in groups.values())
                for source, groups in self._outgoing.items()
                if groups
            }

    def drain_outgoing(
        self, source: ShareSource, may_carry: Callable[[AcknowledgementGroup], bool] = lambda _: True
    ) -> list[AcknowledgementGroup]:
        """Returns the session's outgoing groups, for one request; call `settle` for each."""
        with self.lock:
            groups = self._outgoing.get(source, {})
            carried = [group for group in groups.values() if may_carry(group)]
            for group in carried:
                del groups[group.partition]
                self._under_way[id(group)] = group
            if not groups:
                self._outgoing.pop(source, None)
            if not self._outgoing:
                self.outgoing_since = None
            return carried

    def settle(self, group: AcknowledgementGroup, error: KafkaError | None) -> None:
        """Notes the broker's answer about a group, or that there is none."""
        with self.lock:
            self._settle(group, error)
            self.news.publish()

    def session_ended(self, source: ShareSource, reason: KafkaError) -> None:
        """The broker has released everything that was acquired in this session."""
        with self.lock:
            self._ended[source.broker] = source.incarnation + 1
            self._chunks = deque(chunk for chunk in self._chunks if self._is_current(chunk.source))
            self._renewed = deque(held for held in self._renewed if self._is_current(held.source))
            for group in self._outgoing.pop(source, {}).values():
                self._settle(group, reason if group.needs_session else None)
            if not self._outgoing:
                self.outgoing_since = None
            self.news.publish()

    # -- inside; *locked*

    def _void(self, chunk: AcquiredChunk, now: float) -> None:
        """Acknowledges what a chunk holds no readable record for."""
        gaps, chunk.gaps = chunk.gaps, []
        unreadable, chunk.unreadable = chunk.unreadable, []
        if gaps or unreadable:
            group = self._group(chunk.source, chunk.partition, now)
            group.spans += [span_of(offsets, AcknowledgeType.GAP) for offsets in gaps]
            group.spans += [span_of(offsets, AcknowledgeType.RELEASE) for offsets in unreadable]
            self._settle_if_ended(group)

    def _is_current(self, source: ShareSource) -> bool:
        return source.incarnation >= self._ended.get(source.broker, 0)

    def _let_go(self, now: float) -> None:
        """Decided records leave the user's hands; in implicit mode all are accepted."""
        for record_id, held in list(self._held.items()):
            kind = held.decision
            if kind is None:
                if self._is_explicit:
                    continue
                kind = AcknowledgeType.ACCEPT
            del self._held[record_id]
            group = self._group(held.source, held.partition, now)
            group.types[held.record.offset] = kind
            if kind is AcknowledgeType.RENEW:
                group.renewed[held.record.offset] = held.record
        for source in list(self._outgoing):
            for group in list(self._outgoing[source].values()):
                self._settle_if_ended(group)

    def _group(self, source: ShareSource, partition: SharePartitionId, now: float) -> AcknowledgementGroup:
        groups = self._outgoing.setdefault(source, {})
        group = groups.get(partition)
        if group is None:
            group = groups[partition] = AcknowledgementGroup(source=source, partition=partition)
        if self.outgoing_since is None:
            self.outgoing_since = now
        return group

    def _returned_early(self, record_id: RecordId) -> HeldRecord | None:
        """Puts a record whose lock began again into the user's hands, without a poll."""
        for held in self._renewed:
            if _id_of(held.record) == record_id:
                self._renewed.remove(held)
                self._held[record_id] = held
                return held
        return None

    def _settle_if_ended(self, group: AcknowledgementGroup) -> None:
        """Refuses decisions about records of a session that is over."""
        if self._is_current(group.source):
            return
        groups = self._outgoing.get(group.source, {})
        groups.pop(group.partition, None)
        if not groups:
            self._outgoing.pop(group.source, None)
        if not self._outgoing:
            self.outgoing_since = None
        self._settle(group, session_over(group.source) if group.needs_session else None)

    def _settle(self, group: AcknowledgementGroup, error: KafkaError | None) -> None:
        self._under_way.pop(id(group), None)
        if error is None and self._is_current(group.source):
            for record in group.renewed.values():
                self._renewed.append(
                    HeldRecord(record=record, source=group.source, partition=group.partition)
                )
        outcome = group.outcome(error)
        for waiter in group.waiters:
            waiter.settled(outcome)
        if not group.types:
            return
        if self.keeps_outcomes:
            self._outcomes.append(outcome)
        elif error is not None and not group.waiters:
            _log.warning(
                "acknowledgements_refused",
                partition=group.partition,
                records=len(group.types),
                code=error.code.name,
                reason=error.message,
            )

    def _drop_expired(self, now: float) -> None:
        """Drops chunks whose locks have ended: their records are free for other members, and were never returned."""
        expired = [chunk for chunk in self._chunks if chunk.deadline <= now]
        if expired:
            self._chunks = deque(chunk for chunk in self._chunks if chunk.deadline > now)
            _log.warning(
                "acquired_records_expired",
                partitions=", ".join(sorted({str(chunk.partition) for chunk in expired})),
                advice="records were acquired and not polled in time: lower max.poll.records, set"
                " share.acquire.mode=record_limit, or raise the group's share.record.lock.duration.ms",
            )


def session_over(source: ShareSource) -> KafkaError:
    return KafkaError(
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        f"the share session with broker {source.broker} ended before the acknowledgements reached it: the broker has released"
        " the records, and they are delivered again",
    )


def _id_of(record: ShareRecord[Any, Any]) -> RecordId:
    return (record.topic, record.partition, record.offset)


def record_id_of(record: ShareRecord[Any, Any] | tuple[TopicPartition, int]) -> RecordId:
    """Returns the id of a record, or of a partition and an offset."""
    if isinstance(record, ShareRecord):
        return _id_of(record)
    (topic, partition), offset = record
    return (topic, partition, offset)
