"""One replica of a partition on this broker: its log, its role, its high watermark, and the waiters for any of them.

The high watermark is the offset below which consumers may read and acks=all is acknowledged. A leader finds it out: it is
what is durable on every in-sync replica, its own included (`in_sync.py`; durable is flushed, or with `flush.before.ack=false`
merely appended, which is the page-cache promise). A follower learns it from its leader, and uses it as far as it has the
records durably itself. It never goes back, but when the log is cut below it. Below it, or at it, is the last stable offset:
where readers of committed records stop, before the oldest transaction that is not over. It moves only when the high watermark
does.

A role (`leader_role.py`, `follower_role.py`) lasts for one leader epoch. A waiter for something of it, an acknowledgement
or records, is sent away when it ends: nothing that happens under a later epoch, nor a flush that was begun under an earlier
one, answers them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol
from uuid import UUID

from odradek.cluster.image import PartitionImage
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, ErrorContent, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from odradek.replication.acknowledgements import FlushEnd
from odradek.replication.follower_role import FollowerRole
from odradek.replication.leader_role import IsrProposals, LeaderRole, ReplicationContext
from odradek.replication.readers import AppendWatcher, Readers, Watcher
from odradek.replication.replica import Replica
from odradek.runtime.weak_calls import WeakCall
from odradek.storage.log.log import Log
from odradek.telemetry import events

__all__ = ["AppendWatcher", "Flushing", "IsrProposals", "Partition", "ReplicationContext", "Watcher"]

_log = events.get("replication")
_TRY_AGAIN_S: Final = 1.0
"""Seconds until the next try to truncate the files, after there was no space for it."""


class Flushing(Protocol):
    """Makes appended records durable; `Flusher` in this room."""

    def request(self, partition: Partition) -> None: ...


class Partition:
    """A replica of a partition: its log, its role and its high watermark. `retire` it before its log is closed or deleted.
    Used on the event loop only.

    With a `member` it serves no one until `lead` or `follow` sets its role; without one it leads alone, for good.
    `high_watermark` is the checkpointed one; it is bounded by what the log holds."""

    __slots__ = (
        "__weakref__",
        "_member",
        "_replica",
        "_role",
        "flush_end",
        "log",
        "name",
        "retired",
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
        member: ReplicationContext | None = None,
        high_watermark: int | None = None,
    ) -> None:
        self.name: Final = name
        self.topic_id: Final = topic_id
        self.log: Final = log
        self.retired: ErrorContent | None = None
        self.flush_end: Final = FlushEnd()
        self._member = member
        self._replica = replica = Replica(
            name, topic_id, log, Readers(self), WeakCall(flushing.request, self)
        )
        self._role: LeaderRole | FollowerRole
        if member is None:
            self._role = LeaderRole(replica, leader_epoch)
            replica.high_watermark = Offset(replica.durable_offset)
            if replica.high_watermark < log.end_offset:
                flushing.request(self)
        else:
            self._role = FollowerRole(replica, leader_epoch)
            if high_watermark is not None:
                replica.high_watermark = Offset(min(max(high_watermark, log.start_offset), log.end_offset))

    # -- what it is

    @property
    def config(self) -> LogConfig:
        return self.log.config

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The leader epoch of the role; before the first role, of the image by which the partition was opened."""
        return self._role.leader_epoch

    @property
    def state(self) -> PartitionImage | None:
        """The partition's state in the controller's last message."""
        return self._role.state

    @property
    def high_watermark(self) -> Offset:
        return self._replica.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """The offset at which read_committed consumers must stop. Without open transactions it is the high watermark."""
        return self._replica.last_stable_offset

    @property
    def start_offset(self) -> Offset:
        return Offset(self.log.start_offset)

    @property
    def durable_offset(self) -> int:
        """Everything below it survives a crash; with `flush.before.ack=false` only a crash of the process."""
        return self._replica.durable_offset

    @property
    def is_durable(self) -> bool:
        """True if nothing in the log is beyond `durable_offset`, and its files have followed every truncation."""
        return self.durable_offset >= self.log.end_offset and not self.log.awaits_truncation

    @property
    def last_epoch(self) -> int:
        """The newest leader epoch that the log knows; -1 when it knows none. An epoch that wrote nothing here
        counts, too: a leader that does not have it reports that, and then it is cut off (KAFKA-10706)."""
        return self.log.latest_epoch

    @property
    def awaits_earlier_records(self) -> bool:
        """True if a leader does not know yet that what it was elected with is committed (KIP-207): the high
        watermark that it knows may be lower than the one that its predecessor had shown."""
        return self._role.awaits_earlier_records

    def age_s(self, offset: int) -> float | None:
        """Returns the least time since the record was fetched from an earlier leader; None when that is unknown."""
        arrivals = self._replica.arrivals
        return None if arrivals is None else arrivals.age_s(offset, asyncio.get_running_loop().time())

    def ongoing_transaction(self, producer_id: int) -> int | None:
        """Returns the first offset of the producer's open transaction; None when it has none here."""
        return self._replica.ongoing_transaction(producer_id)

    # -- its role

    @property
    def is_leader(self) -> bool:
        return self._role.is_leader

    def leader(self) -> LeaderRole:
        """Returns the leader role; else raises the error that ended the partition, or NOT_LEADER_OR_FOLLOWER."""
        return self._role.leader()

    def follower(self) -> FollowerRole:
        """Returns the follower role; else raises the error that ended the partition, or NOT_LEADER_OR_FOLLOWER."""
        return self._role.follower()

    def check_leads(self) -> None:
        self._role.leader()

    def check_has_role(self) -> None:
        """Raises the error that ended the partition, or NOT_LEADER_OR_FOLLOWER, unless this broker leads or follows it."""
        self._role.check_serves()

    def check_leader_epoch(self, expected: int) -> None:
        """Raises FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH unless the client's epoch is ours; -1 is 'not known' (KIP-320)."""
        if expected in (-1, self.leader_epoch):
            return
        code = (
            ErrorCode.FENCED_LEADER_EPOCH if expected < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
        raise KafkaError(
            code, f"{self.name} is at leader epoch {self.leader_epoch}, the request says {expected}"
        )

    def lead(self, state: PartitionImage, brokers: Mapping[BrokerId, int], now: float) -> None:
        """Becomes the leader, or stays it with another ISR or other replicas. Older states are ignored.

        `brokers` are the epochs of the brokers that live and are not leaving; when these change, this is called with the same
        state again, or the mapping is one that follows the changes.
        """
        if self.retired is not None or self._is_older(state):
            return
        if self._role.goes_on_leading(state, brokers, now):
            return
        self._complete_restart()
        self.log.begin_epoch(state.leader_epoch)
        role = LeaderRole(self._replica, state.leader_epoch, self._member)
        role.learn(state, brokers, now)
        self._begin_role(role, state)
        role.isr_changed()

    def follow(self, state: PartitionImage) -> None:
        """Becomes a follower, or stays one; of no one, while there is no leader. Older states are ignored."""
        if self.retired is not None or self._is_older(state):
            return
        if self._role.goes_on_following(state):
            return
        self._complete_restart()
        self._begin_role(FollowerRole(self._replica, state.leader_epoch, state), state)

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

    def _complete_restart(self) -> None:
        """Restarts an empty log at its start offset: the batch with which it should begin did not come."""
        if self.log.end_offset < self.log.start_offset:
            self.log.restart_at(self.log.start_offset)
            self.flush_if_due()

    def _begin_role(self, role: LeaderRole | FollowerRole, state: PartitionImage) -> None:
        """Replaces the role: knowledge of the last leader epoch does not apply to the new one."""
        ended, self._role = self._role, role
        self._end(ended, ErrorContent.of(self._replica.not_leader(state.leader)))

    def _end(self, role: LeaderRole | FollowerRole, reason: ErrorContent) -> None:
        role.end(reason)
        self._replica.end_role(reason)

    # -- waiting

    def watch(self, watcher: Watcher[Partition], *, committed_only: bool = False) -> None:
        self._replica.readers.watch(watcher, committed_only=committed_only)

    def watch_end(self, watcher: AppendWatcher[Partition]) -> None:
        """Registers a follower's watcher, which is called for appends as they happen and for the high watermark."""
        self._replica.readers.watch_end(watcher)

    def unwatch(self, watcher: Watcher[Partition]) -> None:
        self._replica.readers.unwatch(watcher)

    def when_durable(self) -> asyncio.Future[None] | None:
        """Returns None when everything in the log is durable, else a future for the moment when all that is in it now is."""
        if self.retired is not None:
            raise self.retired.error()
        return self._replica.when_durable()

    def when_cut(self) -> asyncio.Future[None] | None:
        """Returns None when the files of the log have followed every truncation, so that it takes appends; else a future
        for that moment. It ends with an error together with the role."""
        if self.retired is not None:
            raise self.retired.error()
        return self._replica.when_truncated()

    def when_own_records_are_readable(self) -> asyncio.Future[None] | None:
        """Returns a future for the moment when this leader's disk no longer keeps anything that is in the log now from its
        readers.

        None when it does not, or when followers in sync decide, too: then Kafka's leader does not show it at once either.
        """
        return self._role.when_own_records_are_readable()

    # -- life

    def check_in_sync_replicas(self, now: float) -> None:
        """Proposes to shrink the ISR where followers lag; see `LeaderRole.check_in_sync_replicas`. A follower has none to
        check."""
        self._role.check_in_sync_replicas(now)

    def reconfigure(self, config: LogConfig) -> None:
        self.log.reconfigure(config)
        self._role.advance_high_watermark()

    def flush_if_due(self) -> None:
        """Flushes if `flush.ms` is over, or the start has moved, although nothing was appended since."""
        if self.retired is None:
            self._replica.flush_if_due()

    def flush(self) -> None:
        """Makes appended records durable, whether or not anyone waits for it."""
        if self.retired is None:
            self._replica.flush()

    def flushed(self) -> None:
        """Continues after the log's `flushed_offset` moved, or its files followed a truncation."""
        if self.log.awaits_truncation:  # no space, no descriptors, or another truncation meanwhile
            asyncio.get_running_loop().call_later(_TRY_AGAIN_S, self._check_truncation)
        else:
            self._replica.files_followed()
        self._role.advance_high_watermark()

    def _check_truncation(self) -> None:
        if self.retired is not None:
            return
        if self.log.awaits_truncation:
            self.flush_if_due()
        else:
            self.flushed()

    def seal(self, error: KafkaError) -> None:
        """Accepts no more appends: the log is about to be closed, to be opened elsewhere. Waiters keep waiting until
        `release`."""
        self.retired = ErrorContent.of(error)
        self._role.seal(self.retired)

    def release(self) -> None:
        """Acknowledges records of a sealed log that was closed with everything durable, if nothing else is needed. Readers
        come again, and find a successor."""
        assert self.retired is not None
        self._role.log_closed()
        self._end(self._role, self.retired)

    def retire(self, error: KafkaError) -> None:
        """Refuses all waiters, and all later ones, with `error`: the partition was deleted or failed."""
        self.retired = ErrorContent.of(error)
        self._end(self._role, self.retired)
