"""DescribeQuorum (55): who decides about the cluster. Versions 0-2 (KIP-595, 836, 853).

Kafka's clients ask for the partition 0 of `__cluster_metadata`, and understand a quorum of voters with a
leader. This cluster has no such log; its controller is a quorum of one, and is described as that: one voter,
which leads in the epoch of its term, and the other brokers as observers. An offset is the number of an image,
which grows with each change: a lower one lags. Any other partition is unknown, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
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
    broker: BrokerContext, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    version = context.api_version
    asked = [
        (topic.topic_name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    knows = asked == [(CLUSTER_METADATA, 0)]
    turn = broker.turns.begin()

    def quorum(partition: PartitionData) -> QuorumState:
        return _quorum(broker, version) if knows else _unknown(partition.partition_index, version)

    topics = [
        QuorumTopic(topic_name=topic.topic_name, partitions=await turn.map(quorum, topic.partitions))
        for topic in request.topics
    ]
    if version < _SINCE_NODES:
        return DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=topics)
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        topics=topics,
        nodes=_nodes(broker, context) if knows else [],
    )


def _quorum(broker: BrokerContext, version: int) -> QuorumState:
    controller = broker.controller
    image = controller.latest
    versions = controller.applied_versions()
    return QuorumState(
        partition_index=0,
        error_code=ErrorCode.NONE,
        leader_id=image.controller_id,
        leader_epoch=image.controller_epoch,
        high_watermark=image.version,
        current_voters=[_state(broker, version, image.controller_id, image.version, is_level=True)],
        observers=[
            _state(broker, version, broker_id, applied, is_level=applied == image.version)
            for broker_id, applied in versions.items()
            if broker_id != image.controller_id
        ],
    )


def _state(
    broker: BrokerContext, version: int, broker_id: int, offset: int, *, is_level: bool
) -> ReplicaState:
    state = ReplicaState(replica_id=broker_id, log_end_offset=offset)
    if version >= _SINCE_TIMES and is_level:
        now_ms = broker.runtime.clock.wall_ms()
        return state.replace(last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms)
    return state


def _unknown(index: int, version: int) -> QuorumState:
    state = QuorumState(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return state.replace(error_message=_UNKNOWN) if version >= _SINCE_NODES else state


def _nodes(broker: BrokerContext, context: RequestContext) -> list[Node]:
    nodes, name = [], context.connection.listener.name
    if name == broker.config.network.control_plane_listener_name:
        name = broker.config.network.listener_of_brokers
    for node in broker.image.brokers:
        address = context.address_of(node)
        if address is not None:
            listener = Listener(name=name, host=address[0], port=address[1])
            nodes.append(Node(node_id=node.broker_id, listeners=[listener]))
    return nodes


SERVED = ApiHandler(55, handle, is_quick=True)
