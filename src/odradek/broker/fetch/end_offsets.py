"""End offsets of partitions, whether this broker or another one leads them.

A record with acks=1 is acknowledged before it is readable: readers see it when it is on disk, about a millisecond later
(decision 0002). In Kafka a leader without followers in sync shows it at once. So an answer that depends on the end of a
partition waits for the leader's own disk first (`readable`): a client always finds what was acknowledged to it. With followers
in sync Kafka's leader does not show it at once either, and nothing waits here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from odradek.broker.cluster.peer_requests import by_leader, leader_of
from odradek.broker.requests.dispatch import with_timeout
from odradek.cluster.image import NO_LEADER
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.model.lazy import lazy
from odradek.runtime.turns import slices

if TYPE_CHECKING:
    from odradek.broker.requests.context import BrokerContext
    from odradek.protocol.messages.data import list_offsets
    from odradek.replication.partition import Partition
    from odradek.runtime.turns import Turn
else:
    list_offsets = lazy("odradek.protocol.messages.data.list_offsets")

_LIST_OFFSETS: Final = 2
_LATEST: Final = -1
_CONSUMER: Final = -1
_RESPONSE_SECONDS_MAX: Final = 10.0
_TOGETHER_MAX: Final = 500
"""Partitions of one request to another broker."""
FLUSH_MS_MAX: Final = 5_000
"""The time that an answer waits for a disk, if the request has no timeout."""


def unreadable(partitions: Iterable[Partition]) -> list[asyncio.Future[None]]:
    """Returns futures to wait for until all records of these partitions are readable, as far as this broker's disk decides."""
    waits = (partition.when_own_records_are_readable() for partition in dict.fromkeys(partitions))
    return [wait for wait in waits if wait is not None]


async def readable(waits: list[asyncio.Future[None]], timeout_ms: int = FLUSH_MS_MAX) -> None:
    """Waits for the futures of `unreadable`, or until the time is up. A failure is raised when the end offset is read."""
    await with_timeout(_all_settled(waits), timeout_ms)


async def _all_settled(waits: list[asyncio.Future[None]]) -> None:
    await asyncio.gather(*waits, return_exceptions=True)


async def high_watermark_of(broker: BrokerContext, name: TopicPartition) -> int:
    """Returns the high watermark. Raises UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NETWORK_EXCEPTION, or the leader's
    error."""
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


async def known_ends(
    broker: BrokerContext, names: Collection[TopicPartition], turn: Turn, *, timeout_s: float
) -> dict[TopicPartition, int]:
    """Returns the high watermarks of those partitions that are known within a time; the rest is left out.

    Each other leader is asked in a few requests, one after another. What this broker leads is read last, so that it is newest.
    """
    led: dict[BrokerId, list[TopicPartition]] = {}
    for some in slices(list(names)):
        await turn.step()
        for leader, theirs in by_leader(broker.image, some)[0].items():
            led.setdefault(leader, []).extend(theirs)
    own = led.pop(broker.coordinators.here, [])
    ends: dict[TopicPartition, int] = {}
    if led:
        requests = [_add_ends_of(broker, leader, theirs, ends, timeout_s) for leader, theirs in led.items()]
        await asyncio.gather(*requests)
    for name in own:
        await turn.step()
        try:
            ends[name] = broker.replicas.leader(*name).high_watermark
        except KafkaError:
            continue  # it is led elsewhere by now
    return ends


async def _add_ends_of(
    broker: BrokerContext,
    leader: BrokerId,
    names: Sequence[TopicPartition],
    ends: dict[TopicPartition, int],
    timeout_s: float,
) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            for first in range(0, len(names), _TOGETHER_MAX):
                some = names[first : first + _TOGETHER_MAX]
                known = await _requested_ends(broker, leader, some, timeout_s)
                ends.update((name, end) for name, error, end in known if error == ErrorCode.NONE)
    except (OdradekError, TimeoutError):
        return  # the caller counts what is missing


async def _requested_end(broker: BrokerContext, leader: BrokerId, name: TopicPartition) -> int:
    try:
        (end,) = await _requested_ends(broker, leader, [name], _RESPONSE_SECONDS_MAX)
    except OdradekError as error:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {leader} was not reached: {error}") from error
    except ValueError:
        reason = f"the answer of broker {leader} leaves out {name}"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from None
    _, error_code, end_offset = end
    if error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode.of(error_code), f"broker {leader}, the leader of {name}")
    return end_offset


async def _requested_ends(
    broker: BrokerContext, leader: BrokerId, names: Sequence[TopicPartition], timeout_s: float
) -> list[tuple[TopicPartition, int, int]]:
    """Returns partition, error code and end of each of those partitions that the leader's answer contains."""
    topics: dict[str, list[list_offsets.ListOffsetsPartition]] = {}
    for name in names:
        partition = list_offsets.ListOffsetsPartition(partition_index=name.partition, timestamp=_LATEST)
        topics.setdefault(name.topic, []).append(partition)
    request = list_offsets.ListOffsetsRequest(
        replica_id=_CONSUMER,
        topics=[
            list_offsets.ListOffsetsTopic(name=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )
    response = await broker.coordinators.send_to_peer(leader, _LIST_OFFSETS, request, timeout_s=timeout_s)
    assert isinstance(response, list_offsets.ListOffsetsResponse)
    wanted = frozenset(names)
    return [
        (name, partition.error_code, partition.offset)
        for topic in response.topics
        for partition in topic.partitions
        if (name := TopicPartition(topic.name, partition.partition_index)) in wanted
    ]
