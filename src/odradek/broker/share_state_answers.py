"""What the handlers of share groups' state have in common: operations on shards of this broker, begun in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

from odradek.broker.context import SHARE_GROUP_STATE, Parts
from odradek.broker.share_keeper import shard_key
from odradek.groups.share.state import ShareStates
from odradek.groups.share.state_formats import SharePlace
from odradek.model.errors import KafkaError
from odradek.shards import Moment, Outcome

Operation = Callable[[ShareStates, Moment], Outcome[Any]]
Outcomes = list[tuple[UUID, list[tuple[int, Any]]]]
"""By topic id: partitions, each with the reply, or with the KafkaError that refused it. In the request's order."""


class _Topic(Protocol):
    @property
    def topic_id(self) -> UUID: ...
    @property
    def partitions(self) -> Sequence[Any]: ...


class _Request(Protocol):
    @property
    def group_id(self) -> str: ...
    @property
    def topics(self) -> Sequence[_Topic]: ...


async def kept(
    parts: Parts, request: _Request, operation: Callable[[SharePlace, Any], Operation]
) -> Outcomes:
    """Carry out what `operation` makes of each place and its part of the request. All are begun before any is waited for."""
    begun = [
        (
            topic.topic_id,
            [
                (one.partition, _begin(parts, request.group_id, topic, one, operation))
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return [
        (topic_id, [(partition, await _outcome(reply)) for partition, reply in replies])
        for topic_id, replies in begun
    ]


def _begin(
    parts: Parts, group_id: str, topic: _Topic, asked: Any, operation: Callable[[SharePlace, Any], Operation]
) -> Awaitable[Any] | KafkaError:
    place = SharePlace(group_id, topic.topic_id, asked.partition)
    try:
        shard = parts.coordinators.shards(SHARE_GROUP_STATE).for_key(shard_key(place))
        return shard.execute(operation(place, asked))
    except KafkaError as error:
        return error


async def _outcome(reply: Awaitable[Any] | KafkaError) -> Any:
    if isinstance(reply, KafkaError):
        return reply
    try:
        return await reply
    except KafkaError as error:
        return error
