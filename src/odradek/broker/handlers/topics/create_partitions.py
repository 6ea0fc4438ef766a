"""CreatePartitions (37). Versions 0-3. The count is the new total; partitions are never removed."""

from __future__ import annotations

from collections import Counter

from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.throttling import Mutations
from odradek.cluster.planning import MorePartitions
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_SINCE_QUOTA_ERROR = 3


async def handle(
    broker: BrokerContext, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    names = Counter(topic.name for topic in request.topics)
    unique = {topic.name: topic for topic in request.topics}
    mutations = Mutations(broker, context, strict_since=_SINCE_QUOTA_ERROR)
    turn = broker.turns.begin()
    results = []
    for topic in unique.values():
        await turn.step()
        doubled = names[topic.name] > 1
        results.append(
            await _grow(broker, topic, mutations, doubled=doubled, validate_only=request.validate_only)
        )
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_time_ms, results=results)


async def _grow(
    broker: BrokerContext,
    topic: CreatePartitionsTopic,
    mutations: Mutations,
    *,
    doubled: bool,
    validate_only: bool,
) -> CreatePartitionsTopicResult:
    assignment = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
    try:
        if doubled:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named more than once")
        present = broker.image.topics.get(topic.name)
        if present is not None and not validate_only:
            mutations.record(max(0, topic.count - len(present.partitions)))
        more = MorePartitions(name=topic.name, total=topic.count, assignment=assignment)
        await broker.controller.create_partitions(more, validate_only=validate_only)
    except KafkaError as error:
        return CreatePartitionsTopicResult(
            name=topic.name, error_code=error.code, error_message=error.message
        )
    return CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE)


SERVED = ApiHandler(37, handle)
