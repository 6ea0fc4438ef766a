"""One replica of a partition on this broker: its log, its role, its high watermark, and who waits for any of them.

The high watermark is the offset below which consumers may read and acks=all is acknowledged. A leader finds it out: it is what
is durable on every in-sync replica, its own included (`in_sync.py`; durable is flushed, or with `flush.before.ack=false` merely
appended, which is the page-cache promise). A follower is told it, and goes by it as far as it has the records durably itself.
It never goes back, but when the log is cut below it. Below it, or at it, is the last stable offset: where readers of committed
records stop, before the oldest transaction that is not over. It moves only when the high watermark does.

A role lasts for one leader epoch. Whoever waits for something of it, an acknowledgement or records, is sent away when it ends:
nothing that happens under a later epoch, nor a flush that was begun under an earlier one, answers them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from odradek.cluster.image import NO_LEADER, PartitionImage
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from odradek.records import BatchHeader
from odradek.records.batch import TRANSACTIONAL_BIT
from odradek.replication.acknowledgements import Acknowledgements
from odradek.replication.in_sync import FollowerState, InSync, IsrAnswer, IsrProposal
from odradek.replication.readers import AppendWatcher, Readers, Watcher
from odradek.storage.log import AppendResult, EpochEnd, Log
from odradek.storage.producers import Marker
from odradek.storage.verification import Guard
from odradek.telemetry import events

__all__ = ["AppendWatcher", "Flushing", "IsrProposals", "Membership", "Partition", "Watcher"]

_log = events.get("replication")


class Flushing(Protocol):
    """What makes appended records durable; `Flusher` in this room."""

    def request(self, partition: Partition) -> None: ...


class IsrProposals(Protocol):
    """What asks the controller; the answer comes to `Partition.isr_answered`."""

    def propose(self, partition: Partition, proposal: IsrProposal) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """This broker as a member of a cluster, which all of its partitions share."""

    broker_id: BrokerId
    lag_s_max: float
    """`replica.lag.time.max.ms`, in seconds."""
    proposals: IsrProposals


class Partition:
    """Used on the event loop only. `retire` it before its log is closed or deleted.

    With a `member` it serves nobody until `lead` or `follow` said what it is; without one it leads alone, for good.
    `high_watermark` is the one that was checkpointed; what is known of it is bounded by what the log holds.
    """

    __slots__ = (
        "_acknowledgements",
        "_durable",
        "_epoch_start_offset",
        "_flushing",
        "_in_sync",
        "_leader_high_watermark",
        "_leader_start_offset",
        "_low_watermark",
        "_member",
        "_readers",
        "high_watermark",
        "is_leader",
        "leader_epoch",
        "log",
        "name",
        "retired",
        "state",
        "topic_id",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: UUID,
        log: Log,
        leader_epoch: LeaderEpoch,
        flushing: Flushing,
        *,
        member: Membership | None = None,
        high_watermark: int | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        """Of the role; before the first, of the image that the partition was opened by."""
        self.is_leader = member is None
        self.state: PartitionImage | None = None
        """What the controller last said."""
        self.retired: KafkaError | None = None
        self._member = member
        self._flushing = flushing
        self._acknowledgements = Acknowledgements()
        self._durable = Acknowledgements()
        self._low_watermark = Acknowledgements()
        self._in_sync: InSync | None = None
        """Of a leader that has followers."""
        self._epoch_start_offset = log.end_offset
        self._leader_high_watermark = 0
        """Of a follower: what its leader said last."""
        self._leader_start_offset = 0
        self.high_watermark: Offset = Offset(log.start_offset)
        self._readers = Readers(self)
        if member is None:
            self.high_watermark = Offset(self.durable_offset)
            if self.high_watermark < log.end_offset:
                flushing.request(self)
        elif high_watermark is not None:
            self.high_watermark = Offset(min(max(high_watermark, log.start_offset), log.end_offset))

    # -- what it is

    @property
    def config(self) -> LogConfig:
        return self.log.config

    @property
    def start_offset(self) -> Offset:
        return Offset(self.log.start_offset)

    @property
    def durable_offset(self) -> int:
        """Everything below it survives a crash; with `flush.before.ack=false` that of the process alone."""
        return self.log.flushed_offset if self.log.config.flush_before_ack else self.log.end_offset

    @property
    def last_epoch(self) -> int:
        """The newest leader epoch that the log knows; -1 when it knows none. One that wrote nothing here counts, too: a leader
        that does not have it says so, and then it is cut off (KAFKA-10706)."""
        return self.log.latest_epoch

    @property
    def last_stable_offset(self) -> Offset:
        """Where read_committed consumers must stop. Without open transactions it is the high watermark."""
        return Offset(self.log.last_stable_offset(self.high_watermark))

    @property
    def in_sync_count(self) -> int:
        """How many replicas the controller confirmed to be in sync, as far as a leader knows."""
        return 1 if self._in_sync is None else len(self._in_sync.state.isr)

    @property
    def followers(self) -> Mapping[BrokerId, FollowerState]:
        """What a leader knows of its followers."""
        return {} if self._in_sync is None else self._in_sync.followers

    @property
    def awaits_earlier_records(self) -> bool:
        """Whether a leader does not know yet that what it was elected with is committed (KIP-207): the high watermark that it
        knows may be behind the one that its predecessor had shown."""
        return self.high_watermark < self._epoch_start_offset and self._in_sync is not None

    def ongoing_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction; None when it has none here."""
        state = self.log.producers.get(producer_id)
        return None if state is None or state.transaction_first_offset < 0 else state.transaction_first_offset

    # -- roles

    def lead(self, state: PartitionImage, brokers: Mapping[BrokerId, int], now: float) -> None:
        """Become the leader, or stay it with another ISR or other replicas. What is older than the known state is ignored.

        `brokers` are the epochs of the brokers that live and are not leaving; when these change, this is called with the same
        state again, or the mapping is one that follows the changes.
        """
        if self.retired is not None or self._is_older(state):
            return
        is_new = not self.is_leader or state.leader_epoch != self.leader_epoch
        if is_new:
            self._begin_role(state, leads=True)
            self.log.begin_epoch(state.leader_epoch)
            self._epoch_start_offset = self.log.end_offset
        self.state = state
        if self._has_followers(state):
            self._know_followers(state, brokers, now)
        else:
            self._in_sync = None
        if is_new:
            self._send_away(self._not_leader(state.leader))
        self._isr_changed()

    def _has_followers(self, state: PartitionImage) -> bool:
        return self._member is not None and state.replicas != (self._member.broker_id,)

    def _know_followers(self, state: PartitionImage, brokers: Mapping[BrokerId, int], now: float) -> None:
        if self._in_sync is not None:
            self._in_sync.update(state, brokers, now)
            return
        assert self._member is not None
        self._in_sync = InSync(
            self._member.broker_id,
            state,
            brokers,
            epoch_start_offset=self._epoch_start_offset,
            lag_s_max=self._member.lag_s_max,
            now=now,
        )

    def follow(self, state: PartitionImage) -> None:
        """Become a follower, or stay one; of nobody, while there is no leader. Older states are ignored."""
        if self.retired is not None or self._is_older(state):
            return
        is_new = self.is_leader or self.state is None or state.leader_epoch != self.leader_epoch
        if is_new:
            self._begin_role(state, leads=False)
        self.state = state
        if is_new:
            self._send_away(self._not_leader(state.leader))

    def _is_older(self, state: PartitionImage) -> bool:
        known = self.state
        if known is not None:
            return (state.leader_epoch, state.partition_epoch) < (known.leader_epoch, known.partition_epoch)
        if state.leader_epoch >= self.log.latest_epoch:
            return False
        _log.error(
            "state_older_than_log",
            partition=self.name,
            leader_epoch=state.leader_epoch,
            latest_epoch=self.log.latest_epoch,
        )
        return True

    def _begin_role(self, state: PartitionImage, *, leads: bool) -> None:
        """What was known under the last leader epoch says nothing about this one."""
        self.is_leader = leads
        self.leader_epoch = state.leader_epoch
        self._in_sync = None
        self._leader_high_watermark = self._leader_start_offset = 0

    def _send_away(self, error: KafkaError) -> None:
        """Nobody who waits is answered by what happens from now on, under another leader epoch or none."""
        self._acknowledgements.refuse(error)
        self._durable.refuse(error)
        self._low_watermark.refuse(error)
        self._readers.end()

    def _not_leader(self, leader: BrokerId) -> KafkaError:
        where = "nobody leads it now" if leader == NO_LEADER else f"broker {leader} leads it"
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.name}: {where}")

    def check_leads(self) -> None:
        """What ended the partition, or NOT_LEADER_OR_FOLLOWER, unless this broker leads it."""
        if self.retired is not None:
            raise self.retired
        if not self.is_leader:
            raise self._not_leader(NO_LEADER if self.state is None else self.state.leader)

    def check_has_role(self) -> None:
        """What ended the partition, or NOT_LEADER_OR_FOLLOWER, unless this broker leads or follows it."""
        if self.retired is not None or (self.state is None and not self.is_leader):
            self.check_leads()

    def check_leader_epoch(self, expected: int) -> None:
        """FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH unless the client's epoch is ours; -1 is 'not known' (KIP-320)."""
        if expected in (-1, self.leader_epoch):
            return
        code = (
            ErrorCode.FENCED_LEADER_EPOCH if expected < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
        raise KafkaError(
            code, f"{self.name} is at leader epoch {self.leader_epoch}, the request says {expected}"
        )

    # -- leading: the ISR

    def check_in_sync(self) -> None:
        """NOT_ENOUGH_REPLICAS unless acks=all can keep what `min.insync.replicas` promises."""
        if self._in_sync is not None and not self._in_sync.is_enough(self.config.min_insync_replicas):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.name} has {self.in_sync_count} replica(s) in sync, "
                f"min.insync.replicas is {self.config.min_insync_replicas}",
            )

    def check_follower(self, follower: BrokerId, broker_epoch: int, *, knows_epoch: bool) -> None:
        """Whether the broker may read what only followers may: it has a replica, and is the incarnation that is known.

        `knows_epoch`: it named our leader epoch. Then we may not know yet that it got a replica: UNKNOWN_LEADER_EPOCH.
        """
        if follower not in self.followers:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(
                code, f"broker {follower} has no replica of {self.name}, as far as its leader knows"
            )
        assert self._in_sync is not None
        self._in_sync.check_follower(follower, broker_epoch)

    def follower_fetched(
        self,
        follower: BrokerId,
        broker_epoch: int,
        fetch_offset: int,
        now: float,
        *,
        start_offset: int = -1,
    ) -> None:
        """The follower has everything below `fetch_offset` on disk, as our log has it; its own log begins at `start_offset`.

        NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE: see `InSync.fetched`.
        """
        self.check_leads()
        in_sync = self._in_sync
        if in_sync is None:
            self.check_follower(follower, broker_epoch, knows_epoch=False)
            return
        in_sync.fetched(
            follower,
            broker_epoch=broker_epoch,
            fetch_offset=fetch_offset,
            start_offset=start_offset,
            end_offset=self.log.end_offset,
            now=now,
        )
        proposal = in_sync.expansion(follower, self.high_watermark)
        if proposal is not None:
            self._propose(proposal)
        self._settle()
        if self._low_watermark:
            self._low_watermark.reached(in_sync.low_watermark(self.log.start_offset) + 1)

    def check_in_sync_replicas(self, now: float) -> None:
        """Propose to remove those who lag; to be called several times within `replica.lag.time.max.ms`."""
        if self.retired is not None or self._in_sync is None:
            return
        proposal = self._in_sync.shrinkage(end_offset=self.log.end_offset, now=now)
        if proposal is not None:
            self._propose(proposal)
        self._settle()  # nobody waits any more for one that was about to join, and then fell silent
        self._look_for_joiners()
        if self._low_watermark:
            self._low_watermark.reached(self.low_watermark + 1)

    def _look_for_joiners(self) -> None:
        """Who was ready while another proposal was under way, or was refused, may not fetch again soon."""
        in_sync = self._in_sync
        if in_sync is None or in_sync.proposal is not None:
            return
        proposal = in_sync.late_expansion(self.high_watermark, end_offset=self.log.end_offset)
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
        """Whether the proposal is still to be brought to the controller."""
        return self.retired is None and self._in_sync is not None and self._in_sync.proposal is proposal

    def isr_answered(self, proposal: IsrProposal, answer: IsrAnswer | KafkaError) -> None:
        """What the controller said to a proposal. Late answers, of another role or state, change nothing."""
        in_sync = self._in_sync
        if self.retired is not None or in_sync is None or not in_sync.answered(proposal, answer):
            return
        if isinstance(answer, KafkaError):
            _log.warning("isr_refused", partition=self.name, reason=answer.message, code=answer.code.name)
        else:
            _log.info(
                "isr_changed",
                partition=self.name,
                isr=list(answer.isr),
                partition_epoch=answer.partition_epoch,
            )
        self.state = in_sync.state
        self._isr_changed()

    def _isr_changed(self) -> None:
        self._settle()
        in_sync = self._in_sync
        wanted = self.config.min_insync_replicas
        if self._acknowledgements and in_sync is not None and not in_sync.is_enough(wanted):
            self._acknowledgements.refuse(
                KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                    f"{self.name} was written, but only {self.in_sync_count} replica(s) are in sync now; "
                    f"min.insync.replicas is {wanted}",
                )
            )
        if self._low_watermark:
            self._low_watermark.reached(self.low_watermark + 1)
        self._look_for_joiners()

    # -- leading: appending

    def begin_verification(self, header: BatchHeader, *, bumps_epoch: bool, now_ms: int) -> Guard | None:
        """See `Producers.begin_verification`: the guard for a client's transactional batch, None when it needs none."""
        self.check_leads()
        return self.log.producers.begin_verification(header, bumps_epoch=bumps_epoch, now_ms=now_ms)

    def check_writable(self) -> None:
        """Raise what `append` would raise whatever it is given: KAFKA_STORAGE_ERROR, that others lead, or that it is gone."""
        self.check_leads()
        self.log.check_writable()

    def append(
        self, batches: Sequence[tuple[BatchHeader, memoryview]], *, now_ms: int, guard: Guard | None = None
    ) -> AppendResult:
        """Append checked batches as the leader; durable or visible only once the high watermark is past them.

        `guard` comes with a client's transactional batches: see `begin_verification`, and `UNVERIFIED` where it gave none.
        """
        self.check_leads()
        result = self.log.append(batches, leader_epoch=self.leader_epoch, now_ms=now_ms, guard=guard)
        if not result.duplicate:
            if batches[0][0].attributes & TRANSACTIONAL_BIT:
                self._note_transaction(batches[0][0].producer_id, result.first_offset)
            self._readers.appended(result.last_offset + 1, sum(header.size_bytes for header, _ in batches))
        self._settle()
        return result

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
        """Append the control batch that ends the producer's transaction, if it has one here; see `acknowledgement`.

        INVALID_PRODUCER_EPOCH, or TRANSACTION_COORDINATOR_FENCED for the marker of an older coordinator; nothing is appended
        then. `transaction_version`: from 2 on the coordinator raised the epoch first, so an equal one is of a late marker.
        """
        self.check_leads()
        marker = Marker(producer_id, producer_epoch, coordinator_epoch, is_commit, now_ms)
        size_bytes = self.log.size_bytes
        result = self.log.append_marker(
            marker, transaction_version=transaction_version, leader_epoch=self.leader_epoch, now_ms=now_ms
        )
        self._readers.appended(result.last_offset + 1, self.log.size_bytes - size_bytes)
        self._settle()
        return result

    def _note_transaction(self, producer_id: int, first_offset: int) -> None:
        if self.ongoing_transaction(producer_id) == first_offset:
            self._readers.transaction_began(first_offset)

    def acknowledgement(self, last_offset: int) -> asyncio.Future[None] | None:
        """None when the record at `last_offset` is already below the high watermark, else a future for that moment.

        The future ends with NOT_LEADER_OR_FOLLOWER with the leadership, and with NOT_ENOUGH_REPLICAS_AFTER_APPEND when too few
        replicas stay in sync.
        """
        self.check_leads()
        if self.high_watermark > last_offset:
            return None
        return self._acknowledgements.wait(last_offset)

    # -- leading: deleting

    @property
    def low_watermark(self) -> int:
        """Nobody who lives and has a replica has records below it any more."""
        start_offset = self.log.start_offset
        return start_offset if self._in_sync is None else self._in_sync.low_watermark(start_offset)

    def delete_records(self, offset: int) -> asyncio.Future[None] | None:
        """Nothing below `offset` may be read here from now on; None when that is so on all followers, too, else a future for
        that moment. OFFSET_OUT_OF_RANGE above the high watermark."""
        self.check_leads()
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete up to {offset}: {self.name} is readable up to {self.high_watermark}",
            )
        self.log.delete_records(offset)
        if self.low_watermark >= offset:
            return None
        self._readers.start_moved()
        return self._low_watermark.wait(offset)

    # -- following

    def append_fetched(self, batches: Sequence[tuple[BatchHeader, memoryview]], *, now_ms: int) -> None:
        """Append what was fetched from the leader, as it is there, its CRCs being checked. Raises as `append_as_follower`."""
        self._check_follows()
        size_bytes = self.log.size_bytes
        self.log.append_as_follower(batches, now_ms=now_ms)
        for header, _ in batches:
            if header.attributes & TRANSACTIONAL_BIT:
                self._note_transaction(header.producer_id, header.base_offset)
        self._readers.appended(self.log.end_offset, self.log.size_bytes - size_bytes)
        self._settle()

    def learned(self, high_watermark: int, start_offset: int) -> None:
        """What the leader said with its records. It counts as far as our own log goes, now and as that grows; nothing of it may
        come from an answer by which this log has yet to be cut."""
        self._check_follows()
        self._leader_high_watermark = high_watermark
        self._leader_start_offset = start_offset
        self._settle()

    def truncate(self, diverging: EpochEnd) -> None:
        """Cut the log to where it parts from the leader's: for the last epoch that we fetched in, the leader has `diverging` as
        the newest epoch that is not newer, and where it ended (KIP-101, KIP-279, KIP-595)."""
        self._check_follows()
        ours = self.log.epoch_end_offset(diverging.epoch)
        offset = min(diverging.end_offset, self.log.end_offset)
        if ours.end_offset >= 0:
            offset = min(offset, ours.end_offset)
        _log.info(
            "log_truncated",
            partition=self.name,
            offset=offset,
            end_offset=self.log.end_offset,
            high_watermark=self.high_watermark,
            leader_epoch=self.leader_epoch,
        )
        if offset < self.log.start_offset:
            self._cut(lambda: self.log.restart_at(max(offset, 0)))
        else:
            self._cut(lambda: self.log.truncate_to(offset))

    def restart_at(self, offset: int) -> None:
        """Drop everything and begin at `offset`: the leader's log begins beyond our end."""
        self._check_follows()
        _log.info("log_restarted", partition=self.name, offset=offset, end_offset=self.log.end_offset)
        self._cut(lambda: self.log.restart_at(offset))

    def _cut(self, work: Callable[[], None]) -> None:
        work()
        log = self.log
        self._leader_high_watermark = self._leader_start_offset = 0
        # Never below the start, or it would be out of range when this replica is elected.
        self.high_watermark = Offset(max(min(self.high_watermark, log.end_offset), log.start_offset))
        self._readers.forget_bytes()
        self._readers.end()
        self._settle()

    def _check_follows(self) -> None:
        if self.retired is not None:
            raise self.retired
        if self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is led by this broker now")

    def when_durable(self) -> asyncio.Future[None] | None:
        """None when everything in the log is durable, else a future for the moment when all that is in it now is."""
        if self.retired is not None:
            raise self.retired
        end_offset = self.log.end_offset
        return None if self.durable_offset >= end_offset else self._durable.wait(end_offset - 1)

    # -- waiting for records

    def watch(self, watcher: Watcher, *, committed_only: bool = False) -> None:
        self._readers.watch(watcher, committed_only=committed_only)

    def watch_end(self, watcher: AppendWatcher) -> None:
        """For followers: be told of appends as they happen, and of the high watermark."""
        self._readers.watch_end(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._readers.unwatch(watcher)

    # -- life

    def reconfigure(self, config: LogConfig) -> None:
        self.log.reconfigure(config)
        self._settle()

    def flush_if_due(self) -> None:
        """`flush.ms` may be over although nothing was appended since."""
        if self.retired is None and self.log.flush_due:
            self._flushing.request(self)

    def flushed(self) -> None:
        """The log's `flushed_offset` moved."""
        self._settle()

    def seal(self, error: KafkaError) -> None:
        """Take no more appends: the log is about to be closed, to be opened elsewhere. Who waits goes on waiting until
        `release`."""
        self.retired = error

    def release(self) -> None:
        """A sealed log was closed with everything durable: if that is all it takes, acknowledge it. Readers come again, and
        find a successor."""
        assert self.retired is not None
        if self.is_leader and self._in_sync is None:
            self.high_watermark = Offset(max(self.high_watermark, self.log.end_offset))
            self._acknowledgements.reached(self.high_watermark)
        self._send_away(self.retired)

    def retire(self, error: KafkaError) -> None:
        """The partition is gone or failed: everyone who waits gets `error`, and so does everyone who comes later."""
        self.retired = error
        self._send_away(error)

    def _settle(self) -> None:
        """Move the high watermark as far as it may go now, and ask for a flush where one is due."""
        log = self.log
        if log.config.flush_before_ack:
            reachable = log.flushed_offset
            if log.end_offset > reachable:
                self._flushing.request(self)
        else:
            reachable = log.end_offset
            if log.flush_due:
                self._flushing.request(self)
        if self._durable:
            self._durable.reached(reachable)
        if not self.is_leader:
            self._settle_follower(reachable)
            return
        if self._in_sync is not None:
            reachable = self._in_sync.high_watermark(
                self.high_watermark,
                durable_offset=reachable,
                end_offset=log.end_offset,
                min_in_sync=log.config.min_insync_replicas,
            )
        if reachable > self.high_watermark:
            self.high_watermark = Offset(reachable)
            if self._acknowledgements:
                self._acknowledgements.reached(reachable)
            self._readers.high_watermark_moved()

    def _settle_follower(self, durable_offset: int) -> None:
        high_watermark = min(self._leader_high_watermark, durable_offset)
        moved = high_watermark > self.high_watermark
        if moved:
            self.high_watermark = Offset(high_watermark)
        if self._leader_start_offset > self.log.start_offset:
            self.log.delete_records(min(self._leader_start_offset, self.high_watermark))
        if moved:
            self._readers.high_watermark_moved()
