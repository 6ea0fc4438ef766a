"""DescribeQuorum (55): who decides about the cluster. Versions 0-2 (KIP-595, 836, 853).

Kafka's clients ask for the partition 0 of `__cluster_metadata`, and understand a quorum of voters with a leader. This cluster
has no such log; its controller is a quorum of one, and is described as that: one voter, which leads in the epoch of its term,
and the other brokers as observers. An offset is the number of an image, which grows with each change: who has a lower one is
behind. Any other partition is unknown, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.cluster.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    QuorumState,
    QuorumTopic,
    ReplicaState,
)

CLUSTER_METADATA: Final = "__cluster_metadata"
_SINCE_TIMES: Final = 1
_SINCE_NODES: Final = 2
_UNKNOWN: Final = "this broker has no such partition"


async def handle(
    parts: BrokerContext, circumstances: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    version = circumstances.api_version
    asked = [(topic.topic_name, one.partition_index) for topic in request.topics for one in topic.partitions]
    knows = asked == [(CLUSTER_METADATA, 0)]
    turn = parts.turns.begin()

    def quorum(one: PartitionData) -> QuorumState:
        return _quorum(parts, version) if knows else _unknown(one.partition_index, version)

    topics = [
        QuorumTopic(topic_name=topic.topic_name, partitions=await turn.map(quorum, topic.partitions))
        for topic in request.topics
    ]
    if version < _SINCE_NODES:
        return DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=topics)
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        topics=topics,
        nodes=_nodes(parts, circumstances) if knows else [],
    )


def _quorum(parts: BrokerContext, version: int) -> QuorumState:
    controller = parts.controller
    image = controller.latest
    versions = controller.applied_versions()
    return QuorumState(
        partition_index=0,
        error_code=ErrorCode.NONE,
        leader_id=image.controller_id,
        leader_epoch=image.controller_epoch,
        high_watermark=image.version,
        current_voters=[_state(parts, version, image.controller_id, image.version, is_level=True)],
        observers=[
            _state(parts, version, broker, applied, is_level=applied == image.version)
            for broker, applied in versions.items()
            if broker != image.controller_id
        ],
    )


def _state(parts: BrokerContext, version: int, broker: int, offset: int, *, is_level: bool) -> ReplicaState:
    state = ReplicaState(replica_id=broker, log_end_offset=offset)
    if version >= _SINCE_TIMES and is_level:
        now_ms = parts.runtime.clock.wall_ms()
        return state.replace(last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms)
    return state


def _unknown(index: int, version: int) -> QuorumState:
    state = QuorumState(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return state.replace(error_message=_UNKNOWN) if version >= _SINCE_NODES else state


def _nodes(parts: BrokerContext, circumstances: RequestContext) -> list[Node]:
    nodes = []
    for broker in parts.image.brokers:
        address = circumstances.address_of(broker)
        if address is not None:
            listener = Listener(name=circumstances.connection.listener.name, host=address[0], port=address[1])
            nodes.append(Node(node_id=broker.broker_id, listeners=[listener]))
    return nodes


SERVED = ApiHandler(55, handle, is_quick=True)
