"""Who keeps what share groups did in partitions: a shard of `__share_group_state`, on this broker or on another (KIP-932).

Everything goes to the broker that leads the shard's partition by this broker's image: by a call if that is this one, else by a
request. Writes of one partition arrive in the order in which they were begun; one that fails is not tried again, for its
successors may have failed, too: whoever wrote it reads again.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.broker.coordinators.runtime import CoordinatorRuntime
from odradek.cluster.image import SHARE_GROUP_STATE
from odradek.groups.share.state import UNKNOWN_OFFSET, ShareState, ShareStates, StateChange, Summary
from odradek.groups.share.state_formats import SharePlace
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.model.lazy import lazy
from odradek.shards import Moment, Outcome, Shards

if TYPE_CHECKING:
    from odradek.broker.share import remote_state
    from odradek.broker.share.remote_state import RemoteShareState
else:
    remote_state = lazy("odradek.broker.share.remote_state")

T = TypeVar("T")
_TRIES: Final = 100
_TRY_AGAIN_SECONDS: Final = 0.05
_PASSES: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


def shard_key(place: SharePlace) -> str:
    """By which Kafka chooses the partition of `__share_group_state`; the same that FindCoordinator is asked for."""
    topic_id = base64.urlsafe_b64encode(place.topic_id.bytes).decode().rstrip("=")
    return f"{place.group_id}:{topic_id}:{place.partition}"


UNREAD: Final = Summary(0, -1, UNKNOWN_OFFSET, 0)


class SharePersister:
    """Used on the event loop only. `check_open` raises once the broker stops."""

    def __init__(
        self, coordinators: CoordinatorRuntime, shards: Shards[ShareStates], check_open: Callable[[], None]
    ) -> None:
        self._coordinators = coordinators
        self._shards = shards
        self._check_open = check_open
        self._remote: RemoteShareState | None = None
        coordinators.on_close(self._close)

    def write(self, place: SharePlace, change: StateChange) -> asyncio.Future[None]:
        """Begun at once. FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH; the shard's errors and NETWORK_EXCEPTION, after which the
        change may be kept or not."""
        keeper = self._keeper(place)
        if keeper is not None:
            return self._asked().write(keeper, place, change)
        return self._here(place, partial(ShareStates.write, place=place, change=change))

    async def read(self, place: SharePlace, leader_epoch: int) -> ShareState | None:
        """What is known, for the partition's leader of that epoch; earlier ones cannot write any more. FENCED_LEADER_EPOCH."""
        return await self._patiently(
            place,
            partial(ShareStates.read, place=place, leader_epoch=leader_epoch),
            lambda keeper: self._asked().read(keeper, place, leader_epoch),
        )

    async def initialize(self, place: SharePlace, state_epoch: int, start_offset: int) -> None:
        """Begin there in a new epoch. FENCED_STATE_EPOCH."""
        await self._patiently(
            place,
            partial(ShareStates.initialize, place=place, state_epoch=state_epoch, start_offset=start_offset),
            lambda keeper: self._asked().initialize(keeper, place, state_epoch, start_offset),
        )

    async def delete(self, place: SharePlace) -> None:
        await self._patiently(
            place,
            partial(ShareStates.delete, place=place),
            lambda keeper: self._asked().delete(keeper, place),
        )

    async def summary(self, place: SharePlace) -> Summary:
        """For those who look on: it fences nobody."""
        return await self._patiently(
            place, partial(summarized, place=place), lambda keeper: self._asked().summary(keeper, place)
        )

    # -- where it is kept

    def _keeper(self, place: SharePlace) -> BrokerId | None:
        """The other broker; None when it is this one. COORDINATOR_NOT_AVAILABLE."""
        _, keeper = self._coordinators.coordinator_of(SHARE_GROUP_STATE, shard_key(place))
        return None if keeper == self._coordinators.here else keeper

    def _here(
        self, place: SharePlace, operation: Callable[[ShareStates, Moment], Outcome[T]]
    ) -> asyncio.Future[T]:
        return self._shards.for_key(shard_key(place)).execute(operation)

    async def _patiently(
        self,
        place: SharePlace,
        operation: Callable[[ShareStates, Moment], Outcome[T]],
        elsewhere: Callable[[BrokerId], Awaitable[T]],
    ) -> T:
        """On the shard of the place, waiting for it to be made, led and loaded."""
        await self._coordinators.ensure_topic(SHARE_GROUP_STATE)
        for _ in range(_TRIES):
            self._check_open()
            try:
                keeper = self._keeper(place)
                return await (self._here(place, operation) if keeper is None else elsewhere(keeper))
            except KafkaError as error:
                if error.code not in _PASSES:
                    raise
                refused = error
            await asyncio.sleep(_TRY_AGAIN_SECONDS)
        raise refused

    def _asked(self) -> remote_state.RemoteShareState:
        if self._remote is None:
            self._remote = remote_state.RemoteShareState(lambda: self._coordinators.ask_peer)
        return self._remote

    def _close(self) -> None:
        if self._remote is not None:
            self._remote.close()


def summarized(machine: ShareStates, now: Moment, *, place: SharePlace) -> Outcome[Summary]:
    state = machine.find(now, place=place).reply
    if state is None:
        return Outcome(UNREAD)
    return Outcome(Summary(state.state_epoch, state.leader_epoch, state.start_offset, state.complete_count))
