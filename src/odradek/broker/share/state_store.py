"""The store of share groups' progress in partitions (KIP-932): the port, and its adapter over the shards of this broker.

The adapter for other brokers is RemoteShareState in `remote_state.py`. `persister.py` knows which broker keeps what.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from odradek.groups.share.state import UNKNOWN_OFFSET, ShareState, ShareStates, StateChange, Summary
from odradek.groups.share.state_formats import SharePartitionKey
from odradek.shards import Moment, Outcome, Shards

T = TypeVar("T")
UNREAD: Final = Summary(0, -1, UNKNOWN_OFFSET, 0)


class ShareStateStore(Protocol):
    """The store of share groups' progress. Its methods raise the errors of the shard, at once or when they are awaited."""

    def write(self, partition_key: SharePartitionKey, change: StateChange) -> asyncio.Future[None]:
        """Begun at once, so that writes of one partition keep their order. FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH; after other
        errors the change may be kept or not."""

    def read(self, partition_key: SharePartitionKey, leader_epoch: int) -> Awaitable[ShareState | None]:
        """Reads the state for the partition's leader of that epoch; earlier ones cannot write any more. Raises
        FENCED_LEADER_EPOCH."""

    def initialize(
        self, partition_key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> Awaitable[None]:
        """Begin there in a new epoch. FENCED_STATE_EPOCH."""

    def delete(self, partition_key: SharePartitionKey) -> Awaitable[None]: ...

    def summary(self, partition_key: SharePartitionKey) -> Awaitable[Summary]:
        """Returns the state for observers: it fences no one."""


class LocalShareState:
    """A `ShareStateStore`; NOT_COORDINATOR for a partition whose shard this broker does not lead."""

    def __init__(self, shards: Shards[ShareStates]) -> None:
        self._shards = shards

    def write(self, partition_key: SharePartitionKey, change: StateChange) -> asyncio.Future[None]:
        return self._execute(
            partition_key, partial(ShareStates.write, partition_key=partition_key, change=change)
        )

    def read(self, partition_key: SharePartitionKey, leader_epoch: int) -> asyncio.Future[ShareState | None]:
        return self._execute(
            partition_key, partial(ShareStates.read, partition_key=partition_key, leader_epoch=leader_epoch)
        )

    def initialize(
        self, partition_key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> asyncio.Future[None]:
        operation = partial(
            ShareStates.initialize,
            partition_key=partition_key,
            state_epoch=state_epoch,
            start_offset=start_offset,
        )
        return self._execute(partition_key, operation)

    def delete(self, partition_key: SharePartitionKey) -> asyncio.Future[None]:
        return self._execute(partition_key, partial(ShareStates.delete, partition_key=partition_key))

    def summary(self, partition_key: SharePartitionKey) -> asyncio.Future[Summary]:
        return self._execute(partition_key, partial(_summarized, partition_key=partition_key))

    def _execute(
        self, partition_key: SharePartitionKey, operation: Callable[[ShareStates, Moment], Outcome[T]]
    ) -> asyncio.Future[T]:
        return self._shards.for_key(shard_key(partition_key)).execute(operation).as_future()


def shard_key(partition_key: SharePartitionKey) -> str:
    """Returns the key by which Kafka chooses the partition of `__share_group_state`; FindCoordinator takes the same key."""
    topic_id = base64.urlsafe_b64encode(partition_key.topic_id.bytes).decode().rstrip("=")
    return f"{partition_key.group_id}:{topic_id}:{partition_key.partition}"


def _summarized(machine: ShareStates, now: Moment, *, partition_key: SharePartitionKey) -> Outcome[Summary]:
    state = machine.find(now, partition_key=partition_key).reply
    if state is None:
        return Outcome(UNREAD)
    return Outcome(Summary(state.state_epoch, state.leader_epoch, state.start_offset, state.complete_count))
