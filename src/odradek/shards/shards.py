"""All shards of one internal topic that this broker coordinates, and which of them a key belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, Generic, TypeVar

from odradek.model.errors import ErrorCode, KafkaError
from odradek.runtime.ports import Clock
from odradek.shards.log import ShardLog
from odradek.shards.machine import ShardMachine
from odradek.shards.outcome import Moment, Outcome
from odradek.shards.shard import PATIENCE_SECONDS, Operation, Shard

M = TypeVar("M", bound=ShardMachine)
T = TypeVar("T")


class Shards(Generic[M]):
    """The shards of one internal topic that this broker coordinates. Used on the event loop only.

    `count` returns how many partitions the topic has, or will have once it exists; `patience_seconds`, how long a reply may
    be held until what it shows is durable."""

    def __init__(
        self,
        topic: str,
        count: Callable[[], int],
        make_machine: Callable[[int], M],
        clock: Clock,
        patience_seconds: Callable[[], float] = lambda: PATIENCE_SECONDS,
    ) -> None:
        self.topic: Final = topic
        self._count = count
        self._make_machine = make_machine
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._shards: dict[int, Shard[M]] = {}

    def __iter__(self) -> Iterator[tuple[int, Shard[M]]]:
        """Yields (partition, shard) of those that are coordinated here, by partition."""
        return iter(sorted(self._shards.items()))

    def index_for(self, key: str) -> int:
        """Returns the partition that holds a group's, or a transactional id's, records: Kafka's own choice."""
        return partition_of(key, self._count())

    def for_key(self, key: str) -> Shard[M]:
        """Returns a shard. Raises NOT_COORDINATOR unless this broker coordinates the key."""
        index = partition_of(key, self._count())
        return self._shards.get(index) or self.shard(index)

    def shard(self, index: int) -> Shard[M]:
        """Returns a shard. Raises NOT_COORDINATOR unless this broker coordinates the partition."""
        shard = self._shards.get(index)
        if shard is None:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"this broker does not coordinate {self.topic}-{index}"
            )
        return shard

    def elected(self, index: int, log: ShardLog) -> None:
        """Loads a partition that this broker leads from now on."""
        self.resigned(index)
        self._shards[index] = Shard(
            log, lambda: self._make_machine(index), self._clock, self._patience_seconds
        )

    def resigned(self, index: int) -> None:
        """Closes the shard of a partition that this broker does not lead any more."""
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.close()

    def close(self) -> None:
        for index in list(self._shards):
            self.resigned(index)

    async def append_marker(
        self,
        index: int,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        """Ends a producer's transaction on one of the topic's partitions; see `Shard.append_marker`."""
        await self.shard(index).append_marker(
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )


def partition_of(key: str, count: int) -> int:
    """Returns the one of `count` partitions that holds the key's records."""
    if len(key) > _REMEMBERED_LENGTH_MAX:
        return _absolute(java_hash(key)) % count
    return _remembered_hash(key) % count


def java_hash(text: str) -> int:
    """Returns Java's `String.hashCode`: over UTF-16 code units, 32 bits, signed. Clients need not know it, but tools do, and
    the log of an old cluster can be read only by the same choice of partition."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        value = (value * 31 + units[position] * 256 + units[position + 1]) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value


def _absolute(value: int) -> int:
    """Returns Kafka's `Utils.abs`: the smallest 32-bit integer, which has no positive twin, becomes 0."""
    return 0 if value == -(1 << 31) else abs(value)


_REMEMBERED_LENGTH_MAX: Final = 512
_remembered_hash = lru_cache(4096)(lambda key: _absolute(java_hash(key)))
"""The members of a group, and its commits, ask for the same key again and again."""


def decided(shard: Shard[M], operation: Operation[M, T]) -> T:
    """Returns the reply of an operation at once, for the broker's own use: it may not be shown, for nothing is durable yet.

    For callers that must not wait for other brokers. Raises as `Shard.execute`; a write that fails later is not reported.
    """
    replies: list[T] = []

    def noted(machine: M, now: Moment) -> Outcome[T]:
        outcome = operation(machine, now)
        replies.append(outcome.reply)
        return outcome

    shard.execute(noted)
    return replies[0]
