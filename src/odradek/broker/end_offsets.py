"""Where a partition ends that this broker leads, or another: for who tells how far others are behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.asking import leader_of
from odradek.cluster.image import NO_LEADER
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId, TopicPartition

if TYPE_CHECKING:
    from odradek.broker.context import Parts

_LIST_OFFSETS: Final = 2
_LATEST: Final = -1
_CONSUMER: Final = -1
_ASK_SECONDS_MAX: Final = 10.0


async def high_watermark_of(parts: Parts, name: TopicPartition) -> int:
    """UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NETWORK_EXCEPTION, and what the leader refuses."""
    leader = leader_of(parts.image, *name)
    if leader is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}")
    if leader == NO_LEADER:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no leader")
    if leader == parts.coordinators.here:
        partition = parts.replicas.leader(*name)
        partition.check_leads()
        return partition.high_watermark
    return await _asked(parts, leader, name)


async def _asked(parts: Parts, leader: BrokerId, name: TopicPartition) -> int:
    from odradek.protocol.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsResponse,
        ListOffsetsTopic,
    )

    asked = ListOffsetsPartition(partition_index=name.partition, timestamp=_LATEST)
    request = ListOffsetsRequest(
        replica_id=_CONSUMER, topics=[ListOffsetsTopic(name=name.topic, partitions=[asked])]
    )
    try:
        response = await parts.coordinators.ask_peer(
            leader, _LIST_OFFSETS, request, timeout_s=_ASK_SECONDS_MAX
        )
    except OdradekError as error:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {leader} was not reached: {error}") from error
    assert isinstance(response, ListOffsetsResponse)
    for topic in response.topics:
        for one in topic.partitions:
            if (topic.name, one.partition_index) == name:
                if one.error_code != ErrorCode.NONE:
                    raise KafkaError(ErrorCode.of(one.error_code), f"broker {leader}, the leader of {name}")
                return one.offset
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the answer of broker {leader} leaves out {name}")
