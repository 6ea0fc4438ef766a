"""ElectLeaders (43). Versions 0-2: elections on demand; one broker leads every partition already (KIP-460).

So every partition that exists answers ELECTION_NOT_NEEDED, unless its log is offline: then there is no leader to elect. Without
a list all partitions are meant, and of these only what was done or failed is told, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.context import Circumstances, Parts, Served
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_PREFERRED: Final = 0
_UNCLEAN: Final = 1


def handle(parts: Parts, circumstances: Circumstances, request: ElectLeadersRequest) -> ElectLeadersResponse:
    refusal = None
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        refusal = KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"election type {request.election_type} is not known: 0 is preferred, 1 unclean",
        )
    wanted = request.topic_partitions
    if wanted is None:
        results = _all(parts, request.election_type)
    else:
        results = [
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    _result(index, refusal or _outcome(parts, topic.topic, index, request.election_type))
                    for index in topic.partitions
                ],
            )
            for topic in wanted
        ]
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if refusal is None else refusal.code, replica_election_results=results
    )


def _all(parts: Parts, election_type: int) -> list[ReplicaElectionResult]:
    results = []
    for topic in parts.image.topics.values():
        outcomes = [
            (index, _outcome(parts, topic.name, index, election_type))
            for index in range(len(topic.partitions))
        ]
        failed = [
            _result(index, error)
            for index, error in outcomes
            if error.code is not ErrorCode.ELECTION_NOT_NEEDED
        ]
        results.append(ReplicaElectionResult(topic=topic.name, partition_result=failed))
    return results


def _outcome(parts: Parts, topic: str, index: int, election_type: int) -> KafkaError:
    known = parts.image.topics.get(topic)
    if known is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
    if not 0 <= index < len(known.partitions):
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} has no partition {index}")
    if parts.replicas.is_offline(TopicPartition(topic, index)):
        return KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if election_type == _PREFERRED
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"the only replica of {topic}-{index} is offline",
        )
    return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"the preferred replica leads {topic}-{index} already")


def _result(index: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)


SERVED = Served(43, handle)
