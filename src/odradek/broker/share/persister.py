"""The persister of share groups' state: it is in a shard of `__share_group_state`, on this broker or another (KIP-932).

Everything goes to the broker that leads the shard's partition by this broker's image. Writes of one partition arrive in the
order in which they were begun; one that fails is not tried again, for its successors may have failed, too: the writer
reads again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.broker.coordinators.local_or_remote import LocalOrRemote
from odradek.broker.coordinators.runtime import CoordinatorRuntime
from odradek.broker.share.state_store import LocalShareState, ShareStateStore, shard_key
from odradek.cluster.image import SHARE_GROUP_STATE
from odradek.groups.share.state import ShareState, ShareStates, StateChange, Summary
from odradek.groups.share.state_formats import SharePartitionKey
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.lazy import lazy
from odradek.shards import Shards

if TYPE_CHECKING:
    from odradek.broker.share import remote_state
else:
    remote_state = lazy("odradek.broker.share.remote_state")

T = TypeVar("T")
_WAIT_SECONDS: Final = 5.0
"""No try begins later: one that asks another broker may last for ten seconds itself."""
_TRY_AGAIN_SECONDS: Final = 0.05
_PASSES: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class SharePersister:
    """A `ShareStateStore` over all brokers. Used on the event loop only. `check_open` raises once the broker stops."""

    def __init__(
        self, coordinators: CoordinatorRuntime, shards: Shards[ShareStates], check_open: Callable[[], None]
    ) -> None:
        self._coordinators = coordinators
        self._check_open = check_open
        local = LocalShareState(shards)
        self._stores = LocalOrRemote[ShareStateStore](
            lambda: coordinators.here,
            lambda: local,
            lambda: remote_state.RemoteShareState(lambda: coordinators.send_to_peer),
        )
        coordinators.on_close(self._stores.close)

    def write(self, partition_key: SharePartitionKey, change: StateChange) -> asyncio.Future[None]:
        return self._store_of(partition_key).write(partition_key, change)

    async def read(self, partition_key: SharePartitionKey, leader_epoch: int) -> ShareState | None:
        return await self._until_timeout(partition_key, lambda store: store.read(partition_key, leader_epoch))

    async def initialize(self, partition_key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Raises UNKNOWN_TOPIC_OR_PARTITION only after a while: another broker gets a new topic a little later."""
        await self._until_timeout(
            partition_key,
            lambda store: store.initialize(partition_key, state_epoch, start_offset),
            passes=_PASSES | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        )

    async def delete(self, partition_key: SharePartitionKey) -> None:
        await self._until_timeout(partition_key, lambda store: store.delete(partition_key))

    async def summary(self, partition_key: SharePartitionKey) -> Summary:
        return await self._until_timeout(partition_key, lambda store: store.summary(partition_key))

    def _store_of(self, partition_key: SharePartitionKey) -> ShareStateStore:
        """Returns the store of the partition. Raises COORDINATOR_NOT_AVAILABLE."""
        _, broker = self._coordinators.coordinator_of(SHARE_GROUP_STATE, shard_key(partition_key))
        return self._stores.at(broker)

    async def _until_timeout(
        self,
        partition_key: SharePartitionKey,
        work: Callable[[ShareStateStore], Awaitable[T]],
        passes: frozenset[ErrorCode] = _PASSES,
    ) -> T:
        """Runs `work` on the store of the partition, waiting until its shard is created, led and loaded."""
        await self._coordinators.ensure_topic(SHARE_GROUP_STATE)
        ends = asyncio.get_running_loop().time() + _WAIT_SECONDS
        while True:
            self._check_open()
            try:
                return await work(self._store_of(partition_key))
            except KafkaError as error:
                if error.code not in passes:
                    raise
                if asyncio.get_running_loop().time() >= ends:
                    raise
            await asyncio.sleep(_TRY_AGAIN_SECONDS)
