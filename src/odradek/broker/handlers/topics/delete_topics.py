"""DeleteTopics (20). Versions 1-6: by name, from v6 also by topic id (KIP-516)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.requests.throttling import Mutations
from odradek.cluster.image import ClusterImage, TopicImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID
from odradek.protocol.messages.topics.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.runtime.turns import slices

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
    responses: list[DeletableTopicResult | None] = []
    doomed: list[_Doomed] = []
    for (name, topic_id), times in named.items():
        await turn.step()
        state = DeleteTopicState(name=name, topic_id=topic_id)
        if times > 1:
            responses.append(_named_twice(name, topic_id))
            continue
        try:
            doomed.append(_checked(broker, context, state, mutations, len(responses)))
            responses.append(None)
        except KafkaError as error:
            responses.append(_refused(state, error))
    for some in slices(doomed) if doomed else ():
        await turn.step()
        await _delete(broker, some, responses)
    done = [response for response in responses if response is not None]
    return DeleteTopicsResponse(throttle_time_ms=mutations.throttle_time_ms, responses=done)


def _named_twice(name: str | None, topic_id: UUID) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"topic {topic_id if name is None else repr(name)} is named more than once: name each topic once",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doomed:
    """One topic of a request that is deleted."""

    wanted: DeleteTopicState
    name: str
    position: int
    """The index of its result in the response."""


def _checked(
    broker: BrokerContext,
    context: RequestContext,
    wanted: DeleteTopicState,
    mutations: Mutations,
    position: int,
) -> _Doomed:
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
    return _Doomed(wanted=wanted, name=name, position=position)


async def _delete(
    broker: BrokerContext, doomed: Sequence[_Doomed], responses: list[DeletableTopicResult | None]
) -> None:
    """Deletes topics, and puts the result of each into the response. A topic named by name and by id goes once."""
    first_of = {topic.name: topic for topic in reversed(doomed)}
    wanted = [
        (name, None if topic.wanted.topic_id == ZERO_UUID else topic.wanted.topic_id)
        for name, topic in first_of.items()
    ]
    outcomes = dict(zip(first_of, await broker.controller.delete_topics(wanted), strict=True))
    for topic in doomed:
        outcome = outcomes[topic.name]
        if first_of[topic.name] is not topic and isinstance(outcome, TopicImage):
            outcome = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name!r}")
        responses[topic.position] = (
            _refused(topic.wanted, outcome)
            if isinstance(outcome, KafkaError)
            else DeletableTopicResult(name=outcome.name, topic_id=outcome.topic_id, error_code=ErrorCode.NONE)
        )


def _refused(wanted: DeleteTopicState, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=wanted.name, topic_id=wanted.topic_id, error_code=error.code, error_message=error.message
    )


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
