"""The role of a leader: it maintains the ISR, takes appends, and deletes records.

A role lasts for one leader epoch. It may be kept: when it has ended, everything that it did is refused, with what ended it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, NoReturn, Protocol
from uuid import UUID

from odradek.cluster.image import PartitionImage
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, ErrorContent, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from odradek.records import BatchHeader
from odradek.records.batch import TRANSACTIONAL_BIT
from odradek.replication.acknowledgements import Acknowledgements
from odradek.replication.in_sync import FollowerState, InSync, IsrAnswer, IsrProposal
from odradek.replication.replica import Replica
from odradek.storage.log.log import AppendResult
from odradek.storage.producers.producer_state import Marker
from odradek.storage.producers.verification import Guard
from odradek.telemetry import events

_log = events.get("replication")
_PASSING: Final = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR})
"""Codes for a batch that cannot be written now and may be in a moment. Unanswered questions to coordinators end so, too."""
_NO_FOLLOWERS: Final[Mapping[BrokerId, FollowerState]] = {}


class IsrProposals(Protocol):
    """Sends proposals to the controller; its answer goes to `LeaderRole.isr_answered`."""

    def propose(self, leader: LeaderRole, proposal: IsrProposal) -> None: ...


class IsrCounts:
    """Changes of the in-sync replicas of partitions that this broker leads, as Kafka's ReplicaManager counts them."""

    __slots__ = ("expands", "failed_updates", "shrinks")

    def __init__(self) -> None:
        self.shrinks = self.expands = self.failed_updates = 0

    def changed(self, before: Sequence[BrokerId], after: Sequence[BrokerId]) -> None:
        """Counts a change that the controller confirmed, of one leadership."""
        if before is not after:
            self.shrinks += not set(before).issubset(after)
            self.expands += not set(after).issubset(before)


class ReplicationContext(NamedTuple):
    """The settings and services of a broker in a cluster, which all of its partitions share."""

    broker_id: BrokerId
    lag_s_max: float
    """`replica.lag.time.max.ms`, in seconds."""
    proposals: IsrProposals
    counts: IsrCounts | None = None


class LeaderRole:
    """One leadership of a partition. Without a `member` the partition is alone, for good."""

    __slots__ = (
        "_acknowledgements",
        "_end",
        "_epoch_start_offset",
        "_in_sync",
        "_low_watermark",
        "_member",
        "_replica",
        "leader_epoch",
        "state",
    )

    is_leader: ClassVar[bool] = True

    def __init__(
        self, replica: Replica, leader_epoch: LeaderEpoch, member: ReplicationContext | None = None
    ) -> None:
        self._replica = replica
        self._member = member
        self._end: ErrorContent | None = None
        """The error that ended the leadership."""
        self._acknowledgements = Acknowledgements()
        self._low_watermark = Acknowledgements()
        self._in_sync: InSync | None = None
        """There is one when the partition has followers."""
        self._epoch_start_offset: Final[int] = replica.log.end_offset
        self.leader_epoch: Final = leader_epoch
        self.state: PartitionImage | None = None
        """The partition's state in the controller's last message."""

    @property
    def name(self) -> TopicPartition:
        return self._replica.name

    @property
    def topic_id(self) -> UUID:
        return self._replica.topic_id

    @property
    def _config(self) -> LogConfig:
        return self._replica.log.config

    # -- which role it is

    def leader(self) -> LeaderRole:
        if self._end is not None:
            raise self._end.error()
        return self

    def follower(self) -> NoReturn:
        self.leader()
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is led by this broker now")

    def check_serves(self) -> None:
        self.leader()

    @property
    def has_ended(self) -> bool:
        return self._end is not None

    def goes_on_leading(self, state: PartitionImage, brokers: Mapping[BrokerId, int], now: float) -> bool:
        """Takes over the state if it is of this leadership; returns whether it is."""
        if state.leader_epoch != self.leader_epoch:
            return False
        self.learn(state, brokers, now)
        self.isr_changed()
        return True

    def goes_on_following(self, state: PartitionImage) -> bool:
        return False

    def seal(self, reason: ErrorContent) -> None:
        """Refuses everything from now on. Waiters keep waiting until `end`."""
        self._end = reason

    def log_closed(self) -> None:
        """Acknowledges records of a log that was closed with everything durable, where nothing else is needed."""
        replica = self._replica
        if self._in_sync is None:
            replica.high_watermark = Offset(max(replica.high_watermark, replica.log.end_offset))
            self._acknowledgements.reached(replica.high_watermark)

    def end(self, reason: ErrorContent) -> None:
        self._end = reason
        self._acknowledgements.refuse(reason)
        self._low_watermark.refuse(reason)

    # -- the ISR

    def learn(self, state: PartitionImage, brokers: Mapping[BrokerId, int], now: float) -> None:
        """Takes over the controller's state of this leadership; call `isr_changed` next. For `brokers` see `Partition.lead`."""
        self.state = state
        member = self._member
        if member is None or state.replicas == (member.broker_id,):
            self._in_sync = None
        elif self._in_sync is not None:
            before = self._in_sync.state.isr
            self._in_sync.update(state, brokers, now)
            self._count_isr(before)
        else:
            self._in_sync = InSync(
                member.broker_id,
                state,
                brokers,
                epoch_start_offset=self._epoch_start_offset,
                lag_s_max=member.lag_s_max,
                now=now,
            )

    def _count_isr(self, before: Sequence[BrokerId]) -> None:
        if self._member is not None and self._member.counts is not None and self._in_sync is not None:
            self._member.counts.changed(before, self._in_sync.state.isr)

    @property
    def in_sync_count(self) -> int:
        """How many replicas the controller confirmed to be in sync, as far as this leader knows."""
        return 1 if self._in_sync is None else len(self._in_sync.state.isr)

    @property
    def followers(self) -> Mapping[BrokerId, FollowerState]:
        return _NO_FOLLOWERS if self._in_sync is None else self._in_sync.followers

    @property
    def awaits_earlier_records(self) -> bool:
        return self._in_sync is not None and self._replica.high_watermark < self._epoch_start_offset

    def check_in_sync(self) -> None:
        """Raises NOT_ENOUGH_REPLICAS unless acks=all can keep what `min.insync.replicas` promises."""
        if self._in_sync is not None and not self._in_sync.is_enough(self._config.min_insync_replicas):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.name} has {self.in_sync_count} replica(s) in sync, {self._wanted_in_sync()}",
            )

    def _wanted_in_sync(self) -> str:
        wanted = self._config.min_insync_replicas
        more = "" if self.in_sync_count < wanted else " here, and more at the controller"
        return f"min.insync.replicas is {wanted}{more}"

    def check_follower(self, follower: BrokerId, broker_epoch: int, *, knows_epoch: bool) -> None:
        """Returns whether the broker may read what only followers may: it has a replica, and is the known incarnation.

        `knows_epoch`: it named our leader epoch. Then we may not know yet that it got a replica: UNKNOWN_LEADER_EPOCH.
        """
        in_sync = self._in_sync
        if in_sync is None or follower not in in_sync.followers:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(
                code, f"broker {follower} has no replica of {self.name}, as far as its leader knows"
            )
        in_sync.check_follower(follower, broker_epoch)

    def follower_fetched(
        self,
        follower: BrokerId,
        broker_epoch: int,
        fetch_offset: int,
        now: float,
        *,
        start_offset: int = -1,
    ) -> None:
        """Notes that the follower has everything below `fetch_offset` on disk, as in our log; its own log begins at
        `start_offset`.

        NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE: see `InSync.fetched`.
        """
        self.leader()
        in_sync = self._in_sync
        if in_sync is None:
            self.check_follower(follower, broker_epoch, knows_epoch=False)
            return
        in_sync.fetched(
            follower,
            broker_epoch=broker_epoch,
            fetch_offset=fetch_offset,
            start_offset=start_offset,
            end_offset=self._replica.log.end_offset,
            now=now,
        )
        proposal = in_sync.isr_expand_proposal(follower, self._replica.high_watermark)
        if proposal is not None:
            self._propose(proposal)
        self.advance_high_watermark()
        if self._low_watermark:
            self._low_watermark.reached(in_sync.low_watermark(self._replica.log.start_offset) + 1)

    def check_in_sync_replicas(self, now: float) -> None:
        """Shrinks the ISR: proposes to remove followers that lag. Call it several times within `replica.lag.time.max.ms`."""
        if self._end is not None or self._in_sync is None:
            return
        proposal = self._in_sync.isr_shrink_proposal(end_offset=self._replica.log.end_offset, now=now)
        if proposal is not None:
            self._propose(proposal)
        self.advance_high_watermark()  # nothing waits any more for one that was about to join, and then fell silent
        self._propose_joiners()
        if self._low_watermark:
            self._low_watermark.reached(self.low_watermark + 1)

    def _propose_joiners(self) -> None:
        """Proposes followers that were ready during another proposal, or were refused: they may not fetch again soon."""
        in_sync = self._in_sync
        if in_sync is None or in_sync.proposal is not None:
            return
        proposal = in_sync.late_expand_proposal(
            self._replica.high_watermark, end_offset=self._replica.log.end_offset
        )
        if proposal is not None:
            self._propose(proposal)

    def _propose(self, proposal: IsrProposal) -> None:
        assert self._member is not None
        _log.info(
            "isr_proposed",
            partition=self.name,
            isr=[broker for broker, _ in proposal.isr],
            leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch,
        )
        self._member.proposals.propose(self, proposal)

    def wants(self, proposal: IsrProposal) -> bool:
        """Returns whether the proposal must still be sent to the controller."""
        return self._end is None and self._in_sync is not None and self._in_sync.proposal is proposal

    def isr_answered(self, proposal: IsrProposal, reply: IsrAnswer | KafkaError) -> None:
        """Applies the controller's answer to a proposal. Late answers, for another role or state, change nothing."""
        in_sync = self._in_sync
        if in_sync is None:
            return
        before = in_sync.state.isr
        if self._end is not None or not in_sync.answered(proposal, reply):
            return
        self._count_isr(before)
        if isinstance(reply, KafkaError):
            if self._member is not None and self._member.counts is not None:
                self._member.counts.failed_updates += 1
            _log.warning("isr_refused", partition=self.name, reason=reply.message, code=reply.code.name)
        else:
            _log.info(
                "isr_changed",
                partition=self.name,
                isr=list(reply.isr),
                partition_epoch=reply.partition_epoch,
            )
        self.state = in_sync.state
        self.isr_changed()

    def isr_changed(self) -> None:
        """Answers waiters for the ISR: it, or the set of followers that may join it, may have changed."""
        self.advance_high_watermark()
        in_sync = self._in_sync
        wanted = self._config.min_insync_replicas
        if self._acknowledgements and in_sync is not None and not in_sync.is_enough(wanted):
            self._acknowledgements.refuse(
                ErrorContent(
                    code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                    message=f"{self.name} was written, but only {self.in_sync_count} replica(s) are in sync now; "
                    f"{self._wanted_in_sync()}",
                )
            )
        if self._low_watermark:
            self._low_watermark.reached(self.low_watermark + 1)
        self._propose_joiners()

    def advance_high_watermark(self) -> None:
        """Advances the high watermark as far as it may go now, and requests a flush where one is due."""
        replica = self._replica
        reachable = replica.make_durable()
        if self._in_sync is not None:
            reachable = self._in_sync.next_high_watermark(
                replica.high_watermark,
                durable_offset=reachable,
                end_offset=replica.log.end_offset,
                min_in_sync=self._config.min_insync_replicas,
            )
        if reachable > replica.high_watermark:
            replica.high_watermark = Offset(reachable)
            if self._acknowledgements:
                self._acknowledgements.reached(reachable)
            replica.readers.high_watermark_moved()

    # -- appending

    def begin_verification(self, header: BatchHeader, *, bumps_epoch: bool, now_ms: int) -> Guard | None:
        """Returns the guard for a client's transactional batch, None when it needs none; see `Producers.begin_verification`."""
        self.leader()
        producers = self._replica.log.producers
        return producers.begin_verification(header, bumps_epoch=bumps_epoch, now_ms=now_ms)

    def check_writable(self) -> None:
        """Raises the errors of `append` that do not depend on the batches: KAFKA_STORAGE_ERROR, not the leader, or gone."""
        self.leader()
        self._replica.log.check_writable()

    def append(
        self, batches: Sequence[tuple[BatchHeader, memoryview]], *, now_ms: int, guard: Guard | None = None
    ) -> AppendResult:
        """Appends checked batches as the leader; durable or visible only once the high watermark is past them.

        `guard` comes with a client's transactional batches: see `begin_verification`, and `UNVERIFIED` where it gave none.
        """
        self.leader()
        replica = self._replica
        appended = replica.log.append(batches, leader_epoch=self.leader_epoch, now_ms=now_ms, guard=guard)
        if not appended.duplicate:
            if batches[0][0].attributes & TRANSACTIONAL_BIT:
                replica.note_transaction(batches[0][0].producer_id, appended.first_offset)
            next_offset = appended.first_offset
            for header, batch in batches:  # one by one: the high watermark may stop between them
                next_offset += header.last_offset_delta + 1
                replica.readers.appended(next_offset, len(batch))
        self.advance_high_watermark()
        return appended

    def judged(self, refusal: KafkaError, now: float) -> KafkaError:
        """Returns the error for a producer whose batch was refused.

        A gap in its sequence may be ours alone: it sent more after a batch that was refused for a passing
        reason, or another leader was elected, and we do not know yet. A producer that learns of a gap begins
        again under another epoch, and librdkafka then writes again what other partitions have already. So in
        doubt it must try again: NOT_LEADER_OR_FOLLOWER.
        """
        if self._in_sync is None:
            return refusal
        if refusal.code in _PASSING:
            self._in_sync.refused(now)
        if refusal.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or self._in_sync.believes_gaps(now):
            return refusal
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{refusal.message}; but an earlier batch was refused, or {self.name} has another leader by now: try again",
        )

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> AppendResult:
        """Appends the control batch that ends the producer's transaction, if it has one here; see `acknowledgement`.

        INVALID_PRODUCER_EPOCH, or TRANSACTION_COORDINATOR_FENCED for the marker of an older coordinator; nothing is appended
        then. `transaction_version`: from 2 on the coordinator raised the epoch first, so an equal one is of a late marker.
        """
        self.leader()
        replica, log = self._replica, self._replica.log
        marker = Marker(producer_id, producer_epoch, coordinator_epoch, is_commit, now_ms)
        size_bytes = log.size_bytes
        appended = log.append_marker(
            marker, transaction_version=transaction_version, leader_epoch=self.leader_epoch, now_ms=now_ms
        )
        replica.readers.appended(appended.last_offset + 1, log.size_bytes - size_bytes)
        self.advance_high_watermark()
        return appended

    def acknowledgement(self, last_offset: int) -> asyncio.Future[None] | None:
        """Returns None when the record at `last_offset` is already below the high watermark, else a future for that moment.

        The future ends with NOT_LEADER_OR_FOLLOWER with the leadership, and with NOT_ENOUGH_REPLICAS_AFTER_APPEND when too few
        replicas stay in sync.
        """
        self.leader()
        if self._replica.high_watermark > last_offset:
            return None
        return self._acknowledgements.wait(last_offset)

    def when_own_records_are_readable(self) -> asyncio.Future[None] | None:
        if self._end is not None or self.in_sync_count > 1:
            return None
        return self._replica.when_durable()

    # -- deleting

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of all live replicas: no live replica has records below it."""
        start_offset = self._replica.log.start_offset
        return start_offset if self._in_sync is None else self._in_sync.low_watermark(start_offset)

    def delete_records(self, offset: int) -> asyncio.Future[None] | None:
        """Makes records below `offset` unreadable here from now on; returns None when all followers did, too, else a future for
        that moment. OFFSET_OUT_OF_RANGE above the high watermark."""
        self.leader()
        replica, log = self._replica, self._replica.log
        if not 0 <= offset <= replica.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete up to {offset}: {self.name} is readable up to {replica.high_watermark}",
            )
        started_at = log.start_offset
        log.delete_records(offset)
        replica.flush_if_due()
        has_followed = self.low_watermark >= offset
        if log.start_offset > started_at or not has_followed:
            replica.readers.start_moved()
        return None if has_followed else self._low_watermark.wait(offset)
