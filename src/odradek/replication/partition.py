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
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from odradek.cluster.image import INTERNAL_TOPICS, PartitionImage
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorContent, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from odradek.replication.acknowledgements import Acknowledgements
from odradek.replication.arrivals import Arrivals
from odradek.replication.follower import FollowingReplica
from odradek.replication.in_sync import InSync, IsrProposal
from odradek.replication.leading import LeadingReplica
from odradek.replication.membership import Flushing, IsrProposals, ReplicationContext
from odradek.replication.readers import AppendWatcher, Readers, Watcher
from odradek.storage.log.log import Log
from odradek.telemetry import events

__all__ = ["AppendWatcher", "Flushing", "IsrProposals", "Partition", "ReplicationContext", "Watcher"]

_log = events.get("replication")
_TRY_AGAIN_S: Final = 1.0
"""Until the files are to follow a truncation once more, for which there was no space."""


class Partition(LeadingReplica, FollowingReplica):
    """Used on the event loop only. `retire` it before its log is closed or deleted.

    With a `member` it serves nobody until `lead` or `follow` said what it is; without one it leads alone, for good.
    `high_watermark` is the one that was checkpointed; what is known of it is bounded by what the log holds.
    """

    __slots__ = ()

    def __init__(
        self,
        name: TopicPartition,
        topic_id: UUID,
        log: Log,
        leader_epoch: LeaderEpoch,
        flushing: Flushing,
        *,
        member: ReplicationContext | None = None,
        high_watermark: int | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_leader = member is None
        self.state: PartitionImage | None = None
        self.retired: ErrorContent | None = None
        self._member = member
        self._flushing = flushing
        self._acknowledgements = Acknowledgements()
        self._arrivals = Arrivals() if name.topic in INTERNAL_TOPICS else None
        self._durable = Acknowledgements()
        self._cut = []
        self._low_watermark = Acknowledgements()
        self._in_sync: InSync | None = None
        self._epoch_start_offset = log.end_offset
        self._leader_high_watermark = 0
        self._leader_start_offset = 0
        self.high_watermark: Offset = Offset(log.start_offset)
        self._readers = Readers(self)
        if member is None:
            self.high_watermark = Offset(self.durable_offset)
            if self.high_watermark < log.end_offset:
                flushing.request(self)
        elif high_watermark is not None:
            self.high_watermark = Offset(min(max(high_watermark, log.start_offset), log.end_offset))

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
            self._send_away(ErrorContent.of(self._not_leader(state.leader)))
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
            self._send_away(ErrorContent.of(self._not_leader(state.leader)))

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
        if self.log.end_offset < self.log.start_offset:
            self.log.restart_at(self.log.start_offset)  # the batch that it was to begin with did not come
            self.flush_if_due()
        self.is_leader = leads
        self.leader_epoch = state.leader_epoch
        self._in_sync = None
        self._leader_high_watermark = self._leader_start_offset = 0

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

    # -- life

    def reconfigure(self, config: LogConfig) -> None:
        self.log.reconfigure(config)
        self._settle()

    def flush_if_due(self) -> None:
        """`flush.ms` may be over, or the start have moved, although nothing was appended since."""
        if self.retired is None and self.log.flush_due:
            self._flushing.request(self)

    def flushed(self) -> None:
        """The log's `flushed_offset` moved, or its files followed a truncation."""
        if self.log.awaits_truncation:  # no space, no descriptors, or another truncation meanwhile
            asyncio.get_running_loop().call_later(_TRY_AGAIN_S, self._look_at_truncation)
        elif self._cut:
            self._files_followed()
        self._settle()

    def _look_at_truncation(self) -> None:
        if self.retired is not None:
            return
        if self.log.awaits_truncation:
            self.flush_if_due()
        else:
            self.flushed()

    def seal(self, error: KafkaError) -> None:
        """Take no more appends: the log is about to be closed, to be opened elsewhere. Who waits goes on waiting until
        `release`."""
        self.retired = ErrorContent.of(error)

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
        self.retired = ErrorContent.of(error)
        self._send_away(self.retired)

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
