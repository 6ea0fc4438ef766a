"""The state of share groups that another broker keeps: requests 83 to 87 (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from odradek.broker.cluster.peer_requests import RequestBatcher, SendToPeer
from odradek.broker.share.state_store import ShareStateStore
from odradek.groups.share.state import UNKNOWN_OFFSET, ShareState, StateChange, Summary
from odradek.groups.share.state_formats import SharePartitionKey, unlisted
from odradek.model.errors import ErrorCode, ErrorContent, KafkaError, OdradekError
from odradek.model.ids import BrokerId
from odradek.protocol import Message
from odradek.protocol.messages.share import delete_share_group_state as deleting
from odradek.protocol.messages.share import initialize_share_group_state as initializing
from odradek.protocol.messages.share import read_share_group_state as reading
from odradek.protocol.messages.share import read_share_group_state_summary as summing
from odradek.protocol.messages.share import write_share_group_state as writing

_INITIALIZE: Final = 83
_READ: Final = 84
_WRITE: Final = 85
_DELETE: Final = 86
_SUMMARY: Final = 87
_LANE: Final = "share state"
_RESPONSE_SECONDS_MAX: Final = 10.0


class _Change(NamedTuple):
    partition_key: SharePartitionKey
    change: StateChange


class RemoteShareState:
    """The adapter of `ShareStateStore` for other brokers. Used on the event loop only."""

    def __init__(self, ask: Callable[[], SendToPeer]) -> None:
        self.send_to_peer: Final = ask
        self._writes: RequestBatcher[_Change, ErrorContent | None] = RequestBatcher(
            lambda keeper, changes: _CoordinatorState(keeper, self).send(changes),
            key=lambda change: change.partition_key,
            under_way_max=1,
        )
        self._last: dict[SharePartitionKey, asyncio.Future[ErrorContent | None]] = {}
        """The last write of each partition that is under way: what is read must include it."""

    def at(self, broker: BrokerId) -> ShareStateStore:
        return _CoordinatorState(broker, self)

    def close(self) -> None:
        self._writes.close()

    def write(self, keeper: BrokerId, change: _Change) -> asyncio.Future[ErrorContent | None]:
        """Writes changes in order; those that come while a request is under way share the next one."""
        answered = self._last[change.partition_key] = self._writes.submit(keeper, change)
        answered.add_done_callback(lambda done: self._forget(change.partition_key, done))
        return answered

    def _forget(
        self, partition_key: SharePartitionKey, answered: asyncio.Future[ErrorContent | None]
    ) -> None:
        if self._last.get(partition_key) is answered:
            del self._last[partition_key]

    async def written(self, partition_key: SharePartitionKey) -> None:
        """Returns when all writes of the partition are answered."""
        if (last := self._last.get(partition_key)) is not None:
            await asyncio.shield(last)  # its result tells whether it failed


class _CoordinatorState(NamedTuple):
    """The share-group state that one other broker keeps. Its methods raise what that broker refuses, and NETWORK_EXCEPTION
    when it cannot be asked."""

    keeper: BrokerId
    remote: RemoteShareState

    def write(self, partition_key: SharePartitionKey, change: StateChange) -> asyncio.Future[None]:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answered = self.remote.write(self.keeper, _Change(partition_key, change))
        answered.add_done_callback(lambda done: _settle(stored, done))
        return stored

    async def read(self, partition_key: SharePartitionKey, leader_epoch: int) -> ShareState | None:
        await self.remote.written(partition_key)
        request = reading.ReadShareGroupStateRequest(
            group_id=partition_key.group_id,
            topics=[
                reading.ReadStateData(
                    topic_id=partition_key.topic_id,
                    partitions=[
                        reading.PartitionData(partition=partition_key.partition, leader_epoch=leader_epoch)
                    ],
                )
            ],
        )
        state = _result_of(await self._send(_READ, request), partition_key)
        if state.start_offset == UNKNOWN_OFFSET and not state.state_epoch:
            return None
        return ShareState(
            state_epoch=state.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=state.start_offset,
            batches=tuple(unlisted(state.state_batches)),
        )

    async def initialize(self, partition_key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        request = initializing.InitializeShareGroupStateRequest(
            group_id=partition_key.group_id,
            topics=[
                initializing.InitializeStateData(
                    topic_id=partition_key.topic_id,
                    partitions=[
                        initializing.PartitionData(
                            partition=partition_key.partition,
                            state_epoch=state_epoch,
                            start_offset=start_offset,
                        )
                    ],
                )
            ],
        )
        _result_of(await self._send(_INITIALIZE, request), partition_key)

    async def delete(self, partition_key: SharePartitionKey) -> None:
        request = deleting.DeleteShareGroupStateRequest(
            group_id=partition_key.group_id,
            topics=[
                deleting.DeleteStateData(
                    topic_id=partition_key.topic_id,
                    partitions=[deleting.PartitionData(partition=partition_key.partition)],
                )
            ],
        )
        _result_of(await self._send(_DELETE, request), partition_key)

    async def summary(self, partition_key: SharePartitionKey) -> Summary:
        request = summing.ReadShareGroupStateSummaryRequest(
            group_id=partition_key.group_id,
            topics=[
                summing.ReadStateSummaryData(
                    topic_id=partition_key.topic_id,
                    partitions=[summing.PartitionData(partition=partition_key.partition, leader_epoch=-1)],
                )
            ],
        )
        state = _result_of(await self._send(_SUMMARY, request), partition_key)
        return Summary(
            state.state_epoch,
            state.leader_epoch,
            state.start_offset,
            max(state.delivery_complete_count, 0),
        )

    # -- requests

    async def _send(self, api_key: int, request: Message) -> Any:
        ask = self.remote.send_to_peer()
        try:
            return await ask(self.keeper, api_key, request, timeout_s=_RESPONSE_SECONDS_MAX, lane=_LANE)
        except KafkaError:
            raise
        except OdradekError as error:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"broker {self.keeper} was not reached: {error}"
            ) from error

    async def send(self, changes: Sequence[_Change]) -> Sequence[ErrorContent | None]:
        """Sends one request for each group; the keeper applies them as they come."""
        by_group: dict[str, list[_Change]] = {}
        for change in changes:
            by_group.setdefault(change.partition_key.group_id, []).append(change)
        outcomes: dict[SharePartitionKey, ErrorContent | None] = {}
        for written in await asyncio.gather(
            *(self._send_of_group(group_id, of_group) for group_id, of_group in by_group.items())
        ):
            outcomes.update(written)
        return [outcomes[requested.partition_key] for requested in changes]

    async def _send_of_group(
        self, group_id: str, changes: Sequence[_Change]
    ) -> dict[SharePartitionKey, ErrorContent | None]:
        request = writing.WriteShareGroupStateRequest(group_id=group_id, topics=_written(changes))
        outcomes: dict[SharePartitionKey, ErrorContent | None] = {}
        try:
            response = await self._send(_WRITE, request)
        except KafkaError as error:
            return dict.fromkeys((change.partition_key for change in changes), ErrorContent.of(error))
        for change in changes:
            try:
                _result_of(response, change.partition_key)
                outcomes[change.partition_key] = None
            except KafkaError as error:
                outcomes[change.partition_key] = ErrorContent.of(error)
        return outcomes


def _settle(stored: asyncio.Future[None], answered: asyncio.Future[ErrorContent | None]) -> None:
    if stored.done():
        return
    if answered.cancelled():
        stored.cancel()
    elif (refused := answered.result()) is not None:
        stored.set_exception(refused.error())
        stored.exception()  # the writer may be gone: that is no fault to report
    else:
        stored.set_result(None)


def _result_of(response: Any, partition_key: SharePartitionKey) -> Any:
    """Returns the response's result for the partition; raises its error, or UNKNOWN_SERVER_ERROR when it has none."""
    for topic in response.results:
        for partition in topic.partitions:
            if (topic.topic_id, partition.partition) == (partition_key.topic_id, partition_key.partition):
                if partition.error_code != ErrorCode.NONE:
                    raise KafkaError(ErrorCode.of(partition.error_code), partition.error_message)
                return partition
    raise KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"the answer leaves out partition {partition_key.partition} of {partition_key.topic_id}",
    )


def _written(changes: Iterable[_Change]) -> list[writing.WriteStateData]:
    topics: dict[Any, list[writing.PartitionData]] = {}
    for partition_key, change in changes:
        topics.setdefault(partition_key.topic_id, []).append(
            writing.PartitionData(
                partition=partition_key.partition,
                state_epoch=change.state_epoch,
                leader_epoch=change.leader_epoch,
                start_offset=change.start_offset,
                state_batches=[
                    writing.StateBatch(
                        first_offset=batch.first_offset,
                        last_offset=batch.last_offset,
                        delivery_state=batch.state,
                        delivery_count=batch.delivery_count,
                    )
                    for batch in change.batches
                ],
            )
        )
    return [
        writing.WriteStateData(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in topics.items()
    ]
