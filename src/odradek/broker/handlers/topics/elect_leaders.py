"""ElectLeaders (43). Versions 0-2: elections on demand, of preferred leaders, or of any replica without a leader (KIP-460).

The controller answers; others forward the request to it. Without a list all partitions are meant, and of these only what was
done or failed is reported, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.topics.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from odradek.runtime.turns import slices

_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_SINCE_ERROR: Final = 1
_AT_ONCE: Final = 250


async def handle(
    broker: BrokerContext, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    try:
        outcomes = await _elect(broker, request)
    except KafkaError as refusal:
        results = await _results(broker, dict.fromkeys(_named(request), refusal))
        if context.api_version < _SINCE_ERROR:
            return ElectLeadersResponse(replica_election_results=results)
        return ElectLeadersResponse(error_code=refusal.code, replica_election_results=results)
    if request.topic_partitions is None:
        news = {
            name: error
            for name, error in outcomes.items()
            if error is None or error.code is not ErrorCode.ELECTION_NOT_NEEDED
        }
        return ElectLeadersResponse(
            replica_election_results=await _results(
                broker, news, topics=dict.fromkeys(name.topic for name in outcomes)
            )
        )
    return ElectLeadersResponse(replica_election_results=await _results(broker, outcomes))


async def _elect(
    broker: BrokerContext, request: ElectLeadersRequest
) -> dict[TopicPartition, KafkaError | None]:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"election type {request.election_type} is not known: 0 is preferred, 1 unclean",
        )
    unclean = request.election_type == _UNCLEAN
    wanted = None if request.topic_partitions is None else _named(request)
    outcomes: dict[TopicPartition, KafkaError | None] = {}
    if wanted is None:
        outcomes = await broker.controller.elect_leaders(None, unclean=unclean)
    else:
        turn = broker.turns.begin()
        for some in slices(list(dict.fromkeys(wanted)), _AT_ONCE):
            await turn.step()
            outcomes |= await broker.controller.elect_leaders(some, unclean=unclean)
    for name in outcomes:
        if broker.replicas.is_offline(name) and _is_only_replica(broker, name):
            outcomes[name] = KafkaError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
                if unclean
                else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"the only replica of {name} is offline",
            )
    return outcomes


def _is_only_replica(broker: BrokerContext, name: TopicPartition) -> bool:
    topic = broker.image.topics.get(name.topic)
    return topic is not None and len(topic.partitions[name.partition].replicas) == 1


def _named(request: ElectLeadersRequest) -> list[TopicPartition]:
    return [
        TopicPartition(topic.topic, index)
        for topic in request.topic_partitions or ()
        for index in topic.partitions
    ]


async def _results(
    broker: BrokerContext,
    outcomes: dict[TopicPartition, KafkaError | None],
    topics: dict[str, None] | None = None,
) -> list[ReplicaElectionResult]:
    """Returns the results by topic; `topics` are named even if there is nothing to report about them."""
    results: dict[str, list[PartitionResult]] = {name: [] for name in topics or ()}
    turn = broker.turns.begin()
    for name, error in outcomes.items():
        await turn.step()
        partition_result = PartitionResult(
            partition_id=name.partition,
            error_code=ErrorCode.NONE if error is None else error.code,
            error_message=None if error is None else error.message,
        )
        results.setdefault(name.topic, []).append(partition_result)
    return [
        ReplicaElectionResult(topic=topic, partition_result=partitions)
        for topic, partitions in results.items()
    ]


SERVED = ApiHandler(43, handle)
