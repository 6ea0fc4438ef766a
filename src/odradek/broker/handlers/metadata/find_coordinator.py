"""FindCoordinator (10): which broker keeps a group (key type 0), a transactional id (1), or a share group's partition (2).

Versions 0-6; several keys at once from v4. The kind's internal topic is created with its first request, so
that the response can be used at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.image import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.java_numbers import is_digits
from odradek.protocol.messages.metadata.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_SINCE_BATCHES: Final = 4
_SINCE_SHARE_GROUPS: Final = 6
_TOPICS: Final = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE, 2: SHARE_GROUP_STATE}
_SHARE: Final = 2

_NO_ERROR = "NONE"
"""Kafka's message in the versions for one key; those for several leave the message empty."""


async def handle(
    broker: BrokerContext, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    batched = context.api_version >= _SINCE_BATCHES
    keys = request.coordinator_keys if batched else [request.key]
    topic = _TOPICS.get(request.key_type)
    refusal = _refusal(broker, context, request, topic)
    if refusal is not None:
        return _response(batched, [_refused(key, refusal) for key in keys])
    assert topic is not None
    if topic not in broker.image.topics and broker.coordinators.has(topic) and _makes_sense(topic, keys):
        try:
            await broker.coordinators.ensure_topic(topic)
        except KafkaError as error:
            return _response(batched, [_refused(key, error) for key in keys])
    coordinators = await broker.turns.begin().map(partial(_one, broker, context, topic), keys)
    return _response(batched, coordinators)


def _refusal(
    broker: BrokerContext, context: RequestContext, request: FindCoordinatorRequest, topic: str | None
) -> KafkaError | None:
    if topic is None:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"key type {request.key_type} is not known")
    if request.key_type == _SHARE and context.api_version < _SINCE_SHARE_GROUPS:
        return KafkaError(
            ErrorCode.INVALID_REQUEST, f"share groups need FindCoordinator version {_SINCE_SHARE_GROUPS}"
        )
    return None


def _one(broker: BrokerContext, context: RequestContext, topic: str, key: str) -> Coordinator:
    try:
        if topic == SHARE_GROUP_STATE:
            _check_share_key(key)
        if not broker.coordinators.has(topic):
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"this broker has no coordinator for {topic}"
            )
        index, leader = broker.coordinators.coordinator_of(topic, key)
        for node in broker.image.brokers:
            if node.broker_id == leader and (address := context.address_of(node)) is not None:
                return Coordinator(key=key, node_id=leader, host=address[0], port=address[1])
    except KafkaError as error:
        return _refused(key, error)
    return _refused(
        key,
        KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{topic}-{index} has no leader that this client can reach: try again",
        ),
    )


def _makes_sense(topic: str, keys: Iterable[str]) -> bool:
    """Tells whether any of the keys could have a coordinator: the topic is not made for others."""
    return topic != SHARE_GROUP_STATE or any(_is_share_key(key) for key in keys)


def _is_share_key(key: str) -> bool:
    try:
        _check_share_key(key)
    except KafkaError:
        return False
    return True


def _check_share_key(key: str) -> None:
    """Checks a key `group:topic-id:partition`, with the id in Kafka's base64 form or as a UUID; the group may hold colons
    itself."""
    rest, _, partition = key.rpartition(":")
    group, _, topic_id = rest.rpartition(":")
    if not group or not topic_id or not is_digits(partition):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"a share group's key is GROUP:TOPIC-ID:PARTITION, not {key!r}"
        )


def _refused(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message
    )


def _response(batched: bool, coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    if batched:
        return FindCoordinatorResponse(coordinators=coordinators)
    (coordinator,) = coordinators
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=_NO_ERROR if coordinator.error_code == ErrorCode.NONE else coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


SERVED = ApiHandler(10, handle)
