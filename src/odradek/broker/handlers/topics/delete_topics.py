"""DeleteTopics (20). Versions 1-6: by name, from v6 also by topic id (KIP-516)."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.throttling import Mutations
from odradek.cluster.image import ClusterImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID
from odradek.protocol.messages.topics.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_SINCE_DISABLED = 3
_SINCE_QUOTA_ERROR = 5
_SINCE_TOPIC_STATES = 6


async def handle(
    broker: BrokerContext, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    wanted = request.topics
    if context.api_version < _SINCE_TOPIC_STATES:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    named = Counter((topic.name, topic.topic_id) for topic in wanted)
    mutations = Mutations(broker, context, strict_since=_SINCE_QUOTA_ERROR)
    turn = broker.turns.begin()
    responses = []
    for (name, topic_id), times in named.items():
        await turn.step()
        if times > 1:
            responses.append(_named_twice(name, topic_id))
            continue
        state = DeleteTopicState(name=name, topic_id=topic_id)
        responses.append(await _delete(broker, context, state, mutations))
    return DeleteTopicsResponse(throttle_time_ms=mutations.throttle_time_ms, responses=responses)


def _named_twice(name: str | None, topic_id: UUID) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"topic {topic_id if name is None else repr(name)} is named more than once: name each topic once",
    )


async def _delete(
    broker: BrokerContext, context: RequestContext, wanted: DeleteTopicState, mutations: Mutations
) -> DeletableTopicResult:
    try:
        if not broker.config.topics.delete_topic_enable:
            has_disabled_code = context.api_version >= _SINCE_DISABLED
            raise KafkaError(
                ErrorCode.TOPIC_DELETION_DISABLED if has_disabled_code else ErrorCode.INVALID_REQUEST,
                "topics cannot be deleted: delete.topic.enable is false",
            )
        image = broker.controller.latest  # what is committed: this broker may still be about to apply it
        name = _name_of(image, wanted.name, wanted.topic_id)
        if name in image.topics:
            mutations.record(len(image.topics[name].partitions))
        topic = await broker.controller.delete_topic(
            name,
            topic_id=None if wanted.topic_id == ZERO_UUID else wanted.topic_id,
        )
    except KafkaError as error:
        return DeletableTopicResult(
            name=wanted.name, topic_id=wanted.topic_id, error_code=error.code, error_message=error.message
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE)


def _name_of(image: ClusterImage, name: str | None, topic_id: UUID) -> str:
    if topic_id == ZERO_UUID:
        if name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "name a topic by its name or by its id")
        return name
    if name is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "name a topic by its name or by its id, not by both")
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
    return topic.name


SERVED = ApiHandler(20, handle)
