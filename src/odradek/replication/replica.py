"""A replica whatever its role: its log and its marks, who may ask it for what, and who waits."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from uuid import UUID

from odradek.cluster.image import NO_LEADER, PartitionImage
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, ErrorContent, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from odradek.replication.acknowledgements import Acknowledgements
from odradek.replication.arrivals import Arrivals
from odradek.replication.in_sync import FollowerState, InSync
from odradek.replication.membership import Flushing, ReplicationContext
from odradek.replication.readers import AppendWatcher, Readers, Watcher
from odradek.storage.log.log import Log


class Replica(ABC):
    """What leading and following have in common; see `partition.py`."""

    __slots__ = (
        "_acknowledgements",
        "_arrivals",
        "_cut",
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

    name: TopicPartition
    topic_id: UUID
    log: Log
    leader_epoch: LeaderEpoch
    """Of the role; before the first, of the image that the partition was opened by."""
    is_leader: bool
    state: PartitionImage | None
    """What the controller last said."""
    retired: ErrorContent | None
    high_watermark: Offset
    _member: ReplicationContext | None
    _flushing: Flushing
    _acknowledgements: Acknowledgements
    _arrivals: Arrivals | None
    """Of the topics whose coordinators ask how old their records are."""
    _durable: Acknowledgements
    _cut: list[asyncio.Future[None]]
    """Who waits for the files to follow a truncation."""
    _low_watermark: Acknowledgements
    _in_sync: InSync | None
    """Of a leader that has followers."""
    _epoch_start_offset: int
    _leader_high_watermark: int
    """Of a follower: what its leader said last."""
    _leader_start_offset: int
    _readers: Readers

    @abstractmethod
    def flush_if_due(self) -> None:
        """The log may ask for a flush although nothing was appended."""

    @abstractmethod
    def _settle(self) -> None:
        """Move the high watermark as far as it may go now, and ask for a flush where one is due."""

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
    def is_durable(self) -> bool:
        """Whether nothing in the log is beyond `durable_offset`, and its files have followed every truncation."""
        return self.durable_offset >= self.log.end_offset and not self.log.awaits_truncation

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

    def age_s(self, offset: int) -> float | None:
        """How long ago the record was fetched from an earlier leader, at least; None when that is not known."""
        if self._arrivals is None:
            return None
        return self._arrivals.age_s(offset, asyncio.get_running_loop().time())

    def ongoing_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction; None when it has none here."""
        state = self.log.producers.get(producer_id)
        return None if state is None or state.transaction_first_offset < 0 else state.transaction_first_offset

    # -- who may ask

    def check_leads(self) -> None:
        """What ended the partition, or NOT_LEADER_OR_FOLLOWER, unless this broker leads it."""
        if self.retired is not None:
            raise self.retired.error()
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

    def _not_leader(self, leader: BrokerId) -> KafkaError:
        where = "nobody leads it now" if leader == NO_LEADER else f"broker {leader} leads it"
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.name}: {where}")

    # -- waiting for records

    def watch(self, watcher: Watcher, *, committed_only: bool = False) -> None:
        self._readers.watch(watcher, committed_only=committed_only)

    def watch_end(self, watcher: AppendWatcher) -> None:
        """For followers: be told of appends as they happen, and of the high watermark."""
        self._readers.watch_end(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._readers.unwatch(watcher)

    def when_durable(self) -> asyncio.Future[None] | None:
        """None when everything in the log is durable, else a future for the moment when all that is in it now is."""
        if self.retired is not None:
            raise self.retired.error()
        end_offset = self.log.end_offset
        return None if self.durable_offset >= end_offset else self._durable.wait(end_offset - 1)

    def when_cut(self) -> asyncio.Future[None] | None:
        """None when the files of the log have followed every truncation, so that it takes appends; else a future for that
        moment. It ends with an error together with the role."""
        if self.retired is not None:
            raise self.retired.error()
        if not self.log.awaits_truncation:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cut.append(future)
        return future

    def _files_followed(self) -> None:
        waiting, self._cut = self._cut, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _send_away(self, refusal: ErrorContent) -> None:
        """Nobody who waits is answered by what happens from now on, under another leader epoch or none."""
        self._acknowledgements.refuse(refusal)
        self._durable.refuse(refusal)
        waiting, self._cut = self._cut, []
        for future in waiting:
            if not future.done():
                future.set_exception(refusal.error())
        self._low_watermark.refuse(refusal)
        self._readers.end()

    def _note_transaction(self, producer_id: int, first_offset: int) -> None:
        if self.ongoing_transaction(producer_id) == first_offset:
            self._readers.transaction_began(first_offset)
