"""Partitions of fetch sessions in which nothing happens: they are watched from one fetch to the next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from odradek.model.ids import Offset
from odradek.replication.partition import Partition

_Key = TypeVar("_Key", contravariant=True)
PartitionKeyT = TypeVar("PartitionKeyT")


class WaitingFollowerFetch(Protocol):
    """A follower's fetch that waits for news (`broker/fetch/delayed_fetch.py`)."""

    def watch_again(self, partition: Partition, offset: Offset, /) -> None:
        """Watches a partition that rested; the follower knows the high watermark `offset`."""

    def appended(self, partition: Partition, added_bytes: int, /) -> None: ...

    def advanced(self, partition: Partition, added_bytes: int, /) -> None: ...

    def ended(self, partition: Partition, /) -> None: ...


class IdleSession(Protocol[_Key]):
    """The parts of a fetch session that resting partitions need."""

    def rest(self, key: _Key, stop: Callable[[], None], /) -> None: ...

    def wake(self, key: _Key, /) -> None: ...


class UnchangedPartitions(Generic[PartitionKeyT]):
    """The partitions of a follower's session in which nothing happened since they were read to their end.

    They are not looked at, and a fetch that waits need not begin to watch each of them: this does, from one fetch to the next,
    and wakes those in which something happens. So a fetch costs what is new, however many partitions are followed.
    """

    __slots__ = ("_known_marks", "_session", "waiting")

    def __init__(self, session: IdleSession[PartitionKeyT]) -> None:
        self._session = session
        self._known_marks: dict[Partition, tuple[PartitionKeyT, Offset]] = {}
        self.waiting: WaitingFollowerFetch | None = None
        """The session's fetch, while it waits."""

    def rest(self, partition: Partition, key: PartitionKeyT) -> None:
        """Lets a partition rest in the session: the follower knows everything about it, until something changes."""
        self._known_marks[partition] = (key, partition.high_watermark)
        partition.watch_end(self)
        self._session.rest(key, partial(self._forget, partition))

    def _forget(self, partition: Partition) -> None:
        del self._known_marks[partition]
        partition.unwatch(self)

    def appended(self, partition: Partition, added_bytes: int) -> None:
        key, high_watermark = self._known_marks[partition]
        self._session.wake(key)
        if self.waiting is not None:
            self.waiting.watch_again(partition, high_watermark)
            self.waiting.appended(partition, added_bytes)

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        key, known_high_watermark = self._known_marks[partition]
        if partition.high_watermark > known_high_watermark:
            self._session.wake(key)
            if self.waiting is not None:
                self.waiting.watch_again(partition, known_high_watermark)
                self.waiting.advanced(partition, added_bytes)

    def ended(self, partition: Partition) -> None:
        self._session.wake(self._known_marks[partition][0])
        if self.waiting is not None:
            self.waiting.ended(partition)
