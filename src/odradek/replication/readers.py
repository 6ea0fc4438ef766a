"""Waiters for a partition's records, and how many bytes each move of its marks brings them.

There are three marks: the log's end, which followers wait for, the high watermark, and the last stable offset below it. Bytes
are counted from when the partition was opened: appended, below the high watermark, and known to be stable.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from odradek.model.ids import Offset, TopicPartition


class Readable(Protocol):
    """A `Partition` as its watchers see it."""

    @property
    def name(self) -> TopicPartition: ...
    @property
    def high_watermark(self) -> Offset: ...
    @property
    def last_stable_offset(self) -> Offset: ...


ReadableT = TypeVar("ReadableT", bound=Readable, contravariant=True)


class Watcher(Protocol[ReadableT]):
    """A waiter for records. A waiter for committed records is called only when the last stable offset moves."""

    def advanced(self, partition: ReadableT, added_bytes: int) -> None:
        """Called when the high watermark moved and `added_bytes` more bytes became readable."""

    def ended(self, partition: ReadableT) -> None:
        """Called when the partition was deleted, failed, or has another role or leader epoch: ask again to
        find out."""


class AppendWatcher(Watcher[ReadableT], Protocol[ReadableT]):
    """A follower's fetch, which is called for appends and for the high watermark, too."""

    def appended(self, partition: ReadableT, added_bytes: int) -> None:
        """Called when `added_bytes` bytes were appended."""


PartitionT = TypeVar("PartitionT", bound=Readable)


class Readers(Generic[PartitionT]):
    """The watchers of one partition, and the bytes between its marks."""

    __slots__ = (
        "_appended_bytes",
        "_bytes_before",
        "_committed",
        "_partition_ref",
        "_readable_bytes",
        "_replicas",
        "_stable_bytes",
        "_unannounced",
        "_watchers",
    )

    def __init__(self, partition: PartitionT) -> None:
        self._partition_ref = weakref.ref(partition)  # it holds these readers
        self._watchers: dict[Watcher[PartitionT], None] = {}
        self._committed: dict[Watcher[PartitionT], None] = {}
        self._replicas: dict[AppendWatcher[PartitionT], None] = {}
        self.forget_bytes()

    def _partition(self) -> PartitionT:
        partition = self._partition_ref()
        assert partition is not None, "a partition outlives what happens to it"
        return partition

    def forget_bytes(self) -> None:
        """Forgets the counted bytes after the log was cut: they may not be there any more. No one watches."""
        self._unannounced: deque[tuple[int, int]] = deque()
        """(Next offset, bytes) of each append that no one may read yet."""
        self._appended_bytes = 0
        self._readable_bytes = 0
        self._stable_bytes = 0
        self._bytes_before: dict[int, int] = {}
        """How many were appended before each transaction that began, by its first offset, ascending."""

    # -- watching

    def watch(self, watcher: Watcher[PartitionT], *, committed_only: bool) -> None:
        if not committed_only:
            self._watchers[watcher] = None
            return
        if not self._committed:
            self._stable_bytes = self._bytes_that_are_stable()
        self._committed[watcher] = None

    def watch_end(self, watcher: AppendWatcher[PartitionT]) -> None:
        self._replicas[watcher] = None

    def unwatch(self, watcher: Watcher[PartitionT]) -> None:
        self._watchers.pop(watcher, None)
        self._committed.pop(watcher, None)
        self._replicas.pop(watcher, None)  # type: ignore[call-overload]

    # -- what happened

    def transaction_began(self, first_offset: int) -> None:
        """Notes the first offset of a transaction, before `appended` counts its first batch."""
        self._bytes_before[first_offset] = self._appended_bytes

    def appended(self, next_offset: int, size_bytes: int) -> None:
        self._appended_bytes += size_bytes
        self._unannounced.append((next_offset, size_bytes))
        if self._replicas:
            for watcher in list(self._replicas):
                try:
                    watcher.appended(self._partition(), size_bytes)
                except Exception as error:  # noqa: BLE001 - as in `_notify`
                    self._failed(error)

    def high_watermark_moved(self) -> None:
        added = 0
        unannounced = self._unannounced
        high_watermark = self._partition().high_watermark
        while unannounced and unannounced[0][0] <= high_watermark:
            added += unannounced.popleft()[1]
        self._readable_bytes += added
        if self._watchers:
            self._notify(self._watchers, added)
        if self._replicas:
            self._notify(self._replicas, added)
        if self._bytes_before:
            self._forget_ended()
        if self._committed:
            stable_bytes = self._bytes_that_are_stable()
            added = stable_bytes - self._stable_bytes
            self._stable_bytes = stable_bytes
            if added:
                self._notify(self._committed, added)

    def end(self) -> None:
        """Calls `ended` of all watchers. They unwatch, or watch again."""
        for watchers in (self._watchers, self._replicas, self._committed):
            for watcher in list(watchers):
                try:
                    watcher.ended(self._partition())
                except Exception as error:  # noqa: BLE001 - as in `_notify`
                    self._failed(error)

    def start_moved(self) -> None:
        """Handles a new start of the log. Followers are called at once, because a request waits until they
        have followed; consumers, because the records that they wait for may be deleted: with read_committed
        they may wait for an open transaction below the new start.
        """
        self.end()

    def _bytes_that_are_stable(self) -> int:
        stable_offset = self._partition().last_stable_offset
        if stable_offset == self._partition().high_watermark:
            return self._readable_bytes
        return self._bytes_before.get(stable_offset, self._stable_bytes)

    def _forget_ended(self) -> None:
        stable_offset = self._partition().last_stable_offset
        while (first := next(iter(self._bytes_before), stable_offset)) < stable_offset:
            del self._bytes_before[first]

    def _notify(self, watchers: Iterable[Watcher[PartitionT]], added_bytes: int) -> None:
        for watcher in list(watchers):
            try:
                watcher.advanced(self._partition(), added_bytes)
            except Exception as error:  # noqa: BLE001 - one reader's trouble is not the writers', nor other readers'
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"a watcher of {self._partition().name} failed", "exception": error}
        )
