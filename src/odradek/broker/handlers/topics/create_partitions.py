"""CreatePartitions (37). Versions 0-3. The count is the new total; partitions are never removed.

The topics of a request grow together: one commit for many of them, and one wait until their logs exist.
"""

from __future__ import annotations

from collections import Counter

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.requests.throttling import Mutations
from odradek.cluster.image import TopicImage
from odradek.cluster.planning import MorePartitions, together
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
    mutations = Mutations(broker, context, strict_since=_SINCE_QUOTA_ERROR)
    turn = broker.turns.begin()
    wanted: list[MorePartitions] = []
    outcomes: dict[str, TopicImage | KafkaError] = {}
    for topic in request.topics:
        await turn.step()
        if topic.name in outcomes:
            continue
        try:
            if names[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named more than once")
            wanted.append(_wanted(broker, topic, mutations, validate_only=request.validate_only))
        except KafkaError as error:
            outcomes[topic.name] = error.as_outcome()
    for some in together(wanted, lambda more: more.total):
        await turn.step()
        grown = await broker.controller.create_partitions(some, validate_only=request.validate_only)
        outcomes.update((more.name, outcome) for more, outcome in zip(some, grown, strict=True))
    results = await turn.map(lambda name: _result(name, outcomes[name]), names)
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_time_ms, results=results)


def _wanted(
    broker: BrokerContext, topic: CreatePartitionsTopic, mutations: Mutations, *, validate_only: bool
) -> MorePartitions:
    present = broker.image.topics.get(topic.name)
    if present is not None and not validate_only:
        mutations.record(max(0, topic.count - len(present.partitions)))
    assignment = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
    return MorePartitions(name=topic.name, total=topic.count, assignment=assignment)


def _result(name: str, outcome: TopicImage | KafkaError) -> CreatePartitionsTopicResult:
    if isinstance(outcome, KafkaError):
        return CreatePartitionsTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
    return CreatePartitionsTopicResult(name=name, error_code=ErrorCode.NONE)


SERVED = ApiHandler(37, handle)
