"""A partition that this broker leads: its log, its high watermark, and who waits for either.

The high watermark is the offset below which consumers may read and acks=all is acknowledged. With one replica it is what
the log has made durable (`flush.before.ack`, the default) or simply its end (the page-cache promise). It never goes back.
Below it, or at it, is the last stable offset: where readers of committed records stop, before the oldest transaction that is
not over. It never goes back either, and moves only when the high watermark does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import LeaderEpoch, Offset, TopicPartition
from odradek.records import BatchHeader
from odradek.records.batch import TRANSACTIONAL_BIT
from odradek.storage.log import AppendResult, Log
from odradek.storage.producers import Marker
from odradek.storage.verification import Guard


class Watcher(Protocol):
    """Someone who waits for records: told of each move of the high watermark, with the bytes that became readable by it, and
    of the partition's end. One who waits for committed records is told of the last stable offset's moves instead."""

    def advanced(self, partition: Partition, added_bytes: int) -> None: ...


class Flushing(Protocol):
    """What makes appended records durable; `Flusher` in this room."""

    def request(self, partition: Partition) -> None: ...


class Partition:
    """Used on the event loop only. `retire` it before its log is closed or deleted."""

    __slots__ = (
        "_acknowledgements",
        "_appended_bytes",
        "_bytes_before",
        "_committed_watchers",
        "_flushing",
        "_readable_bytes",
        "_stable_bytes",
        "_unannounced",
        "_watchers",
        "high_watermark",
        "in_sync_count",
        "leader_epoch",
        "log",
        "name",
        "retired",
        "topic_id",
    )

    def __init__(
        self, name: TopicPartition, topic_id: UUID, log: Log, leader_epoch: LeaderEpoch, flushing: Flushing
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.in_sync_count = 1  # this replica: there are no others yet
        self.high_watermark: Offset = Offset(
            log.flushed_offset if log.config.flush_before_ack else log.end_offset
        )
        self.retired: KafkaError | None = None
        self._flushing = flushing
        self._unannounced: deque[tuple[int, int]] = deque()
        """(Next offset, bytes) of each append that nobody may read yet."""
        self._acknowledgements: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._watchers: dict[Watcher, None] = {}
        self._committed_watchers: dict[Watcher, None] = {}
        self._appended_bytes = 0
        """Since the partition was opened, like those below: appended, below the high watermark, and told to be stable."""
        self._readable_bytes = 0
        self._stable_bytes = 0
        self._bytes_before: dict[int, int] = {}
        """How many were appended before each transaction that began, by its first offset, ascending."""
        if self.high_watermark < log.end_offset:
            flushing.request(self)

    @property
    def config(self) -> LogConfig:
        return self.log.config

    @property
    def start_offset(self) -> Offset:
        return Offset(self.log.start_offset)

    @property
    def last_stable_offset(self) -> Offset:
        """Where read_committed consumers must stop. Without open transactions it is the high watermark."""
        return Offset(self.log.last_stable_offset(self.high_watermark))

    def ongoing_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction; None when it has none here."""
        state = self.log.producers.get(producer_id)
        return None if state is None or state.transaction_first_offset < 0 else state.transaction_first_offset

    def begin_verification(self, header: BatchHeader, *, bumps_epoch: bool, now_ms: int) -> Guard | None:
        """See `Producers.begin_verification`: the guard for a client's transactional batch, None when it needs none."""
        if self.retired is not None:
            raise self.retired
        return self.log.producers.begin_verification(header, bumps_epoch=bumps_epoch, now_ms=now_ms)

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

    def check_in_sync(self) -> None:
        """NOT_ENOUGH_REPLICAS unless acks=all can keep what `min.insync.replicas` promises."""
        wanted = self.log.config.min_insync_replicas
        if wanted > self.in_sync_count:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.name} has {self.in_sync_count} replica(s) in sync, min.insync.replicas is {wanted}",
            )

    def check_writable(self) -> None:
        """Raise what `append` would raise whatever it is given: KAFKA_STORAGE_ERROR, or that the partition is gone."""
        if self.retired is not None:
            raise self.retired
        self.log.check_writable()

    def append(
        self, batches: Sequence[tuple[BatchHeader, memoryview]], *, now_ms: int, guard: Guard | None = None
    ) -> AppendResult:
        """Append checked batches as the leader; durable or visible only once the high watermark is past them.

        `guard` comes with a client's transactional batches: see `begin_verification`, and `UNVERIFIED` where it gave none.
        """
        if self.retired is not None:
            raise self.retired
        result = self.log.append(batches, leader_epoch=self.leader_epoch, now_ms=now_ms, guard=guard)
        if not result.duplicate:
            if batches[0][0].attributes & TRANSACTIONAL_BIT:
                self._note_transaction(batches[0][0].producer_id, result.first_offset)
            size_bytes = sum(header.size_bytes for header, _ in batches)
            self._appended_bytes += size_bytes
            self._unannounced.append((result.last_offset + 1, size_bytes))
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
        if self.retired is not None:
            raise self.retired
        marker = Marker(producer_id, producer_epoch, coordinator_epoch, is_commit, now_ms)
        size_bytes = self.log.size_bytes
        result = self.log.append_marker(
            marker, transaction_version=transaction_version, leader_epoch=self.leader_epoch, now_ms=now_ms
        )
        size_bytes = self.log.size_bytes - size_bytes
        self._appended_bytes += size_bytes
        self._unannounced.append((result.last_offset + 1, size_bytes))
        self._settle()
        return result

    def _note_transaction(self, producer_id: int, first_offset: int) -> None:
        if self.ongoing_transaction(producer_id) == first_offset:
            self._bytes_before[first_offset] = self._appended_bytes

    def flushed(self) -> None:
        """The log's `flushed_offset` moved."""
        self._settle()

    def acknowledgement(self, last_offset: int) -> asyncio.Future[None] | None:
        """None when the record at `last_offset` is already below the high watermark, else a future for that moment."""
        if self.retired is not None:
            raise self.retired
        if self.high_watermark > last_offset:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._acknowledgements and self._acknowledgements[-1][0] > last_offset:
            # A duplicate of an earlier, still unflushed batch: keep the queue in order.
            waiting = [*self._acknowledgements, (last_offset, future)]
            self._acknowledgements = deque(sorted(waiting, key=lambda entry: entry[0]))
        else:
            self._acknowledgements.append((last_offset, future))
        return future

    def watch(self, watcher: Watcher, *, committed_only: bool = False) -> None:
        if not committed_only:
            self._watchers[watcher] = None
            return
        if not self._committed_watchers:
            self._stable_bytes = self._bytes_that_are_stable()
        self._committed_watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)
        self._committed_watchers.pop(watcher, None)

    def reconfigure(self, config: LogConfig) -> None:
        self.log.reconfigure(config)
        self._settle()

    def flush_if_due(self) -> None:
        """`flush.ms` may be over although nothing was appended since."""
        if self.retired is None and self.log.flush_due:
            self._flushing.request(self)

    def advance_epoch(self, leader_epoch: LeaderEpoch) -> None:
        self.leader_epoch = max(self.leader_epoch, leader_epoch)

    def seal(self, error: KafkaError) -> None:
        """Take no more appends: the log is about to be closed, to be opened elsewhere. Who waits goes on waiting until
        `release`."""
        self.retired = error

    def release(self) -> None:
        """A sealed log was closed with everything durable: acknowledge it all. Readers come again, and find a successor."""
        self.high_watermark = Offset(max(self.high_watermark, self.log.end_offset))
        for _, future in self._acknowledgements:
            if not future.done():
                future.set_result(None)
        self._acknowledgements.clear()
        self._announce()

    def retire(self, error: KafkaError) -> None:
        """The partition is gone or failed: everyone who waits gets `error`, and so does everyone who comes later."""
        self.retired = error
        for _, future in self._acknowledgements:
            if not future.done():
                future.set_exception(error)
        self._acknowledgements.clear()
        self._announce()

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
        if reachable > self.high_watermark:
            self.high_watermark = Offset(reachable)
            while self._acknowledgements and self._acknowledgements[0][0] < reachable:
                _, future = self._acknowledgements.popleft()
                if not future.done():
                    future.set_result(None)
            self._announce()

    def _announce(self) -> None:
        added = 0
        unannounced = self._unannounced
        while unannounced and unannounced[0][0] <= self.high_watermark:
            added += unannounced.popleft()[1]
        self._readable_bytes += added
        if self._watchers:
            self._tell(self._watchers, added)
        if self._bytes_before:
            self._forget_ended()
        if self._committed_watchers:
            stable_bytes = self._bytes_that_are_stable()
            added = stable_bytes - self._stable_bytes
            self._stable_bytes = stable_bytes
            if added or self.retired is not None:
                self._tell(self._committed_watchers, added)

    def _bytes_that_are_stable(self) -> int:
        stable_offset = self.last_stable_offset
        if stable_offset == self.high_watermark:
            return self._readable_bytes
        return self._bytes_before.get(stable_offset, self._stable_bytes)

    def _forget_ended(self) -> None:
        stable_offset = self.last_stable_offset
        while (first := next(iter(self._bytes_before), stable_offset)) < stable_offset:
            del self._bytes_before[first]

    def _tell(self, watchers: dict[Watcher, None], added_bytes: int) -> None:
        for watcher in list(watchers):
            try:
                watcher.advanced(self, added_bytes)
            except Exception as error:  # noqa: BLE001 - one reader's trouble is not the writers', nor other readers'
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"a watcher of {self.name} failed", "exception": error}
                )
