"""Partitions that wait, and until when: a record that is not due delays the later records of its partition
only."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.model.ids import TopicPartition
from odradek.retry.routing import ReceivedRecord

POLL_MS_MAX = 1_000


class WaitingPartitions:
    """Partitions that are paused, and the attempts at the record that each of them waits for."""

    def __init__(self) -> None:
        self._until_ms: dict[TopicPartition, int] = {}
        self._attempts: dict[TopicPartition, tuple[int, int]] = {}

    def hold(self, place: TopicPartition, until_ms: int) -> None:
        """Pause it until then."""
        self._until_ms[place] = until_ms

    def hold_for_retry(self, received: ReceivedRecord, until_ms: int) -> None:
        """Lets the partition wait for another attempt at its next record."""
        self._attempts[received.place] = (received.offset, received.attempt)
        self._until_ms[received.place] = until_ms

    def attempt_at(self, place: TopicPartition, offset: int) -> int:
        """Returns the number of the next attempt at a record: 1, unless the partition waited for it."""
        of_offset, attempt = self._attempts.get(place, (-1, 0))
        return attempt + 1 if of_offset == offset else 1

    def done(self, place: TopicPartition) -> None:
        """Notes that the record which the partition waited for is handled, or sent on."""
        self._attempts.pop(place, None)

    def due(self, now_ms: int) -> list[TopicPartition]:
        """Returns the partitions to resume now, and removes them."""
        due = [place for place, until_ms in self._until_ms.items() if until_ms <= now_ms]
        for place in due:
            del self._until_ms[place]
        return due

    def poll_ms(self, now_ms: int) -> int:
        """Returns the longest time to wait for records: until the next one is due."""
        waits = (until_ms - now_ms for until_ms in self._until_ms.values())
        return max(0, min([POLL_MS_MAX, *waits]))

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """Forgets partitions that belong to another member now, or are read again from another place."""
        for place in places:
            self._until_ms.pop(place, None)
            self._attempts.pop(place, None)
