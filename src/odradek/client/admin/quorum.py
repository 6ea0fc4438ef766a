"""The quorum of controllers and the brokers that it knows (KIP-595, KIP-631): values, messages, readers of answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.client.admin.calls import AlreadyDone, CallOutcome, Exchange
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID
from odradek.protocol.messages.cluster.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    QuorumState,
    ReplicaState,
    TopicData,
)
from odradek.protocol.messages.cluster.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

_METADATA_TOPIC: Final = "__cluster_metadata"

UNREGISTERED: Final = AlreadyDone(code=ErrorCode.BROKER_ID_NOT_REGISTERED, result=lambda broker: None)
"""The outcome of a removal whose first answer was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """A voter or an observer of the quorum; times are milliseconds since 1970, None where the leader does not know."""

    replica_id: int
    directory_id: UUID | None
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumEndpoint:
    """An address at which a node of the quorum listens."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """The state of the quorum that decides about the cluster; `nodes` is empty for brokers before Kafka 3.9."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    nodes: dict[int, tuple[QuorumEndpoint, ...]]


def describe_quorum() -> Exchange:
    """Returns the exchange, whose outcome has one result. An error of the quorum is raised."""

    def read(response: DescribeQuorumResponse) -> CallOutcome:
        _check(response.error_code, response.error_message)
        states = [
            partition
            for topic in response.topics
            if topic.topic_name == _METADATA_TOPIC
            for partition in topic.partitions
            if partition.partition_index == 0
        ]
        if len(states) != 1:
            message = (
                f"the broker describes {len(states)} quorums of {_METADATA_TOPIC}-0 where one is expected"
            )
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        [state] = states
        _check(state.error_code, state.error_message)
        return CallOutcome(results={"quorum": _description(response, state)}, errors={})

    topic = TopicData(topic_name=_METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
    return Exchange(request=DescribeQuorumRequest(topics=[topic]), answer=DescribeQuorumResponse, read=read)


def unregister_broker(wanted: Iterable[int], _timeout_s: float) -> Exchange:
    """Returns the exchange that removes the one broker of `wanted` from the cluster."""
    [broker] = wanted

    def read(response: UnregisterBrokerResponse) -> CallOutcome:
        outcome: CallOutcome = CallOutcome.none()
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            outcome.results[broker] = None
        else:
            message = response.error_message or f"broker {broker}: {code.meaning}"
            outcome.errors[broker] = KafkaError(code, message)
        return outcome

    request = UnregisterBrokerRequest(broker_id=broker)
    return Exchange(request=request, answer=UnregisterBrokerResponse, read=read)


def _check(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        error_code = ErrorCode.of(code)
        raise KafkaError(error_code, message or f"the quorum cannot be described: {error_code.meaning}")


def _description(response: DescribeQuorumResponse, state: QuorumState) -> QuorumDescription:
    return QuorumDescription(
        leader_id=state.leader_id,
        leader_epoch=state.leader_epoch,
        high_watermark=state.high_watermark,
        voters=_replicas(state.current_voters),
        observers=_replicas(state.observers),
        nodes={
            node.node_id: tuple(
                QuorumEndpoint(listener=listener.name, host=listener.host, port=listener.port)
                for listener in node.listeners
            )
            for node in response.nodes
        },
    )


def _replicas(states: Iterable[ReplicaState]) -> tuple[QuorumReplica, ...]:
    return tuple(
        QuorumReplica(
            replica_id=state.replica_id,
            directory_id=None if state.replica_directory_id == ZERO_UUID else state.replica_directory_id,
            log_end_offset=state.log_end_offset,
            last_fetch_ms=_time_ms(state.last_fetch_timestamp),
            last_caught_up_ms=_time_ms(state.last_caught_up_timestamp),
        )
        for state in states
    )


def _time_ms(timestamp: int) -> int | None:
    return None if timestamp < 0 else timestamp
