"""What the handlers of share groups' state have in common: the state that this broker keeps, in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

from odradek.broker.context import BrokerContext
from odradek.broker.share.state_store import LocalShareState, ShareStateStore
from odradek.groups.share.state_formats import SharePlace
from odradek.model.errors import KafkaError
from odradek.runtime.turns import slices

Operation = Callable[[ShareStateStore, SharePlace, Any], Awaitable[Any]]
R = TypeVar("R")


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
    parts: BrokerContext,
    request: _Request,
    operation: Operation,
    result: Callable[[int, Any], R],
) -> list[tuple[UUID, list[R]]]:
    """Carry out `operation` for each place and its part of the request: some are begun before any is waited for.

    By topic id, in the request's order: what `result` makes of each partition and its reply, or the KafkaError that refused it.
    """
    store = LocalShareState(parts.kinds.shares.shards)
    turn = parts.turns.begin()
    places = [(number, topic, one) for number, topic in enumerate(request.topics) for one in topic.partitions]
    outcomes: list[tuple[UUID, list[R]]] = [(topic.topic_id, []) for topic in request.topics]
    for some in slices(places):
        await turn.step()
        begun = [_begin(store, request.group_id, topic, one, operation) for _, topic, one in some]
        for (number, _, one), reply in zip(some, begun, strict=True):
            outcomes[number][1].append(result(one.partition, await _outcome(reply)))
    return outcomes


def _begin(
    store: ShareStateStore,
    group_id: str,
    topic: _Topic,
    asked: Any,
    operation: Operation,
) -> Awaitable[Any] | KafkaError:
    place = SharePlace(group_id, topic.topic_id, asked.partition)
    try:
        return operation(store, place, asked)
    except KafkaError as error:
        return error


async def _outcome(reply: Awaitable[Any] | KafkaError) -> Any:
    if isinstance(reply, KafkaError):
        return reply
    try:
        return await reply
    except KafkaError as error:
        return error
