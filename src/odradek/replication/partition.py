"""A partition that this broker leads: its log, its high watermark, and who waits for either.

The high watermark is the offset below which consumers may read and acks=all is acknowledged. With one replica it is what
the log has made durable (`flush.before.ack`, the default) or simply its end (the page-cache promise). It never goes back.
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
from odradek.storage.log import AppendResult, Log


class Watcher(Protocol):
    """Someone who waits for records: told of each move of the high watermark, with the bytes that became readable by it, and
    of the partition's end."""

    def advanced(self, partition: Partition, added_bytes: int) -> None: ...


class Flushing(Protocol):
    """What makes appended records durable; `Flusher` in this room."""

    def request(self, partition: Partition) -> None: ...


class Partition:
    """Used on the event loop only. `retire` it before its log is closed or deleted."""

    __slots__ = (
        "_acknowledgements",
        "_flushing",
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
        """Where read_committed consumers must stop. Without transactions it is the high watermark."""
        return self.high_watermark

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

    def append(self, batches: Sequence[tuple[BatchHeader, memoryview]], *, now_ms: int) -> AppendResult:
        """Append checked batches as the leader; durable or visible only once the high watermark is past them."""
        if self.retired is not None:
            raise self.retired
        result = self.log.append(batches, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if not result.duplicate:
            size_bytes = sum(header.size_bytes for header, _ in batches)
            self._unannounced.append((result.last_offset + 1, size_bytes))
        self._settle()
        return result

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

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def reconfigure(self, config: LogConfig) -> None:
        self.log.reconfigure(config)
        self._settle()

    def flush_if_due(self) -> None:
        """`flush.ms` may be over although nothing was appended since."""
        if self.retired is None and self.log.flush_due:
            self._flushing.request(self)

    def advance_epoch(self, leader_epoch: LeaderEpoch) -> None:
        self.leader_epoch = max(self.leader_epoch, leader_epoch)

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
        for watcher in list(self._watchers):
            try:
                watcher.advanced(self, added)
            except Exception as error:  # noqa: BLE001 - one reader's trouble is not the writers', nor other readers'
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"a watcher of {self.name} failed", "exception": error}
                )
