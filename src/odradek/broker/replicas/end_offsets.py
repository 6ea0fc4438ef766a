"""Where partitions end: those that this broker leads, and those of other leaders.

A record with acks=1 is acknowledged before it is readable: readers see it when it is on disk, about a millisecond later
(decision 0002). In Kafka a leader without followers in sync shows it at once. So an answer that depends on the end of a
partition waits for the leader's own disk first (`readable`): a client always finds what was acknowledged to it. With followers
in sync Kafka's leader does not show it at once either, and nothing waits here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from odradek.broker.cluster.peer_requests import leader_of
from odradek.broker.dispatch import with_timeout
from odradek.cluster.image import NO_LEADER
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.broker.context import BrokerContext
    from odradek.protocol.messages.data import list_offsets
    from odradek.replication.partition import Partition
else:
    list_offsets = lazy("odradek.protocol.messages.data.list_offsets")

_LIST_OFFSETS: Final = 2
_LATEST: Final = -1
_CONSUMER: Final = -1
_RESPONSE_SECONDS_MAX: Final = 10.0
FLUSH_MS_MAX: Final = 5_000
"""How long an answer waits for a disk, if the request does not say."""


def unreadable(partitions: Iterable[Partition]) -> list[asyncio.Future[None]]:
    """What to wait for until everything in these partitions is readable, as far as this broker's disk decides it."""
    waits = (partition.when_own_records_are_readable() for partition in dict.fromkeys(partitions))
    return [wait for wait in waits if wait is not None]


async def readable(waits: list[asyncio.Future[None]], timeout_ms: int = FLUSH_MS_MAX) -> None:
    """Wait for what `unreadable` found, or until time is up. What fails meanwhile says so when it is asked."""
    await with_timeout(_all_settled(waits), timeout_ms)


async def _all_settled(waits: list[asyncio.Future[None]]) -> None:
    await asyncio.gather(*waits, return_exceptions=True)


async def high_watermark_of(broker: BrokerContext, name: TopicPartition) -> int:
    """UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NETWORK_EXCEPTION, and what the leader refuses."""
    leader = leader_of(broker.image, *name)
    if leader is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}")
    if leader == NO_LEADER:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no leader")
    if leader == broker.coordinators.here:
        partition = broker.replicas.leader(*name)
        partition.check_leads()
        if waits := unreadable((partition,)):
            await readable(waits)
            partition.check_leads()
        return partition.high_watermark
    return await _requested_end(broker, leader, name)


async def _requested_end(broker: BrokerContext, leader: BrokerId, name: TopicPartition) -> int:
    asked = list_offsets.ListOffsetsPartition(partition_index=name.partition, timestamp=_LATEST)
    request = list_offsets.ListOffsetsRequest(
        replica_id=_CONSUMER, topics=[list_offsets.ListOffsetsTopic(name=name.topic, partitions=[asked])]
    )
    try:
        response = await broker.coordinators.send_to_peer(
            leader, _LIST_OFFSETS, request, timeout_s=_RESPONSE_SECONDS_MAX
        )
    except OdradekError as error:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {leader} was not reached: {error}") from error
    assert isinstance(response, list_offsets.ListOffsetsResponse)
    for topic in response.topics:
        for partition in topic.partitions:
            if (topic.name, partition.partition_index) == name:
                if partition.error_code != ErrorCode.NONE:
                    raise KafkaError(
                        ErrorCode.of(partition.error_code), f"broker {leader}, the leader of {name}"
                    )
                return partition.offset
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the answer of broker {leader} leaves out {name}")
