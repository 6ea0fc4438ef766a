"""The partitions that a transaction's end is written into, whether this broker or another one leads them.

`ClusterMarkers` knows who leads. The port is `Markers`, with two adapters: `LocalMarkers` here, and RemoteMarkers for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.cluster.peer_requests import SendToPeer, by_leader
from odradek.broker.coordinators.local_or_remote import LocalOrRemote
from odradek.broker.replicas.replica_manager import ReplicaManager
from odradek.cluster.image import CONSUMER_OFFSETS, ClusterImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.model.lazy import lazy
from odradek.replication.crowded_appends import append_with_room
from odradek.runtime.ports import Clock
from odradek.shards import Moment, Outcome, Shards
from odradek.transactions.markers import MarkerBatch, Markers

if TYPE_CHECKING:
    from odradek.broker.coordinators import remote_transaction_markers
    from odradek.groups.shard.machine import GroupMachine
else:
    remote_transaction_markers = lazy("odradek.broker.coordinators.remote_transaction_markers")

DURABLE_SECONDS_MAX: Final = 5.0
"""The time in which a marker for another broker must be on every replica in sync; otherwise it is requested again. Answers of
one connection keep their order: one partition must not delay the markers of all others for longer."""


class ClusterMarkers:
    """Writes transaction markers into all partitions of the cluster, each on the broker that leads it by this broker's
    image. Implements `Markers`."""

    def __init__(
        self,
        local: Markers,
        here: Callable[[], BrokerId],
        image: Callable[[], ClusterImage],
        send_to_peer: Callable[[], SendToPeer],
    ) -> None:
        self._image = image
        self._leaders = LocalOrRemote[Markers](
            here, lambda: local, lambda: remote_transaction_markers.RemoteMarkers(send_to_peer)
        )

    async def write(self, batch: MarkerBatch) -> dict[TopicPartition, ErrorCode]:
        led, leaderless, missing = by_leader(self._image(), batch.partitions)
        outcomes = dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        outcomes |= dict.fromkeys(leaderless, ErrorCode.LEADER_NOT_AVAILABLE)
        writes = [self._write_at(leader, batch, partitions) for leader, partitions in led.items()]
        for written in [await writes[0]] if len(writes) == 1 else await asyncio.gather(*writes):
            outcomes |= written
        return outcomes

    def close(self) -> None:
        self._leaders.close()

    async def _write_at(
        self, leader: BrokerId, batch: MarkerBatch, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        written = await self._leaders.at(leader).write(replace(batch, partitions=tuple(partitions)))
        image = self._image()
        return {name: by_image(image, name, code) for name, code in written.items()}


def by_image(image: ClusterImage, name: TopicPartition, code: ErrorCode) -> ErrorCode:
    """Decides by the cluster's image whether a partition exists: a leader may not know of it yet, or its log may just
    not be open."""
    if code is ErrorCode.NONE:
        return code
    topic = image.topics.get(name.topic)
    if topic is None or not 0 <= name.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else code


class GroupShards(Protocol):
    """The coordinators of groups: markers of `__consumer_offsets` go to their shards."""

    @property
    def shards(self) -> Shards[GroupMachine]: ...


class LocalMarkers:
    """Writes transaction markers into partitions that this broker leads, and refuses the others. Implements `Markers`."""

    def __init__(
        self,
        groups: GroupShards,
        replicas: ReplicaManager,
        clock: Clock,
        image: Callable[[], ClusterImage],
    ) -> None:
        self._groups = groups
        self._replicas = replicas
        self._clock = clock
        self._image = image

    async def write(self, batch: MarkerBatch) -> dict[TopicPartition, ErrorCode]:
        outcomes = await asyncio.gather(*(self.write_one(batch, partition) for partition in batch.partitions))
        return dict(zip(batch.partitions, outcomes, strict=True))

    async def write_for_another(self, batch: MarkerBatch) -> dict[TopicPartition, ErrorCode]:
        """Does what `write` does; returns REQUEST_TIMED_OUT for a partition whose marker is not durable soon."""
        outcomes = await asyncio.gather(
            *(_soon(partial(self.write_one, batch, partition)) for partition in batch.partitions)
        )
        return dict(zip(batch.partitions, outcomes, strict=True))

    async def write_one(self, batch: MarkerBatch, name: TopicPartition) -> ErrorCode:
        try:
            if name.topic == CONSUMER_OFFSETS:
                await self._append_offsets_marker(batch, name.partition)
            else:
                await self._append_marker(batch, name)
        except KafkaError as error:
            return by_image(self._image(), name, error.code)
        return ErrorCode.NONE

    async def _append_marker(self, batch: MarkerBatch, name: TopicPartition) -> None:
        partition = self._replicas.leader(*name)
        leader = partition.leader()
        leader.check_in_sync()
        refusal = None
        try:
            appended = await append_with_room(
                partition.log,
                lambda: leader.append_marker(
                    batch.producer_id,
                    batch.producer_epoch,
                    is_commit=batch.is_commit,
                    coordinator_epoch=batch.coordinator_epoch,
                    transaction_version=batch.version,
                    now_ms=self._clock.wall_ms(),
                ),
            )
            last_offset = appended.last_offset
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
                raise
            # The marker may be there already, and not be durable yet.
            refusal, last_offset = error, partition.log.end_offset - 1
        acknowledgement = leader.acknowledgement(last_offset) if last_offset >= 0 else None
        if acknowledgement is not None:
            await acknowledgement
        if refusal is not None:
            raise refusal

    async def _append_offsets_marker(self, batch: MarkerBatch, index: int) -> None:
        shard = self._groups.shards.shard(index)
        try:
            await shard.append_marker(
                batch.producer_id,
                batch.producer_epoch,
                is_commit=batch.is_commit,
                coordinator_epoch=batch.coordinator_epoch,
                transaction_version=batch.version,
            )
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                await shard.execute(_nothing)  # the marker may be there already, and not be durable yet
            raise


def _nothing(_machine: object, _now: Moment) -> Outcome[None]:
    return Outcome(None)


async def _soon(write: Callable[[], Awaitable[ErrorCode]]) -> ErrorCode:
    """Begins to write when it is run itself: if the asker has left by then, nothing was begun."""
    try:
        async with asyncio.timeout(DURABLE_SECONDS_MAX):
            return await write()
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT
