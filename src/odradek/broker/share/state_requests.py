"""What the handlers of share groups' state have in common: the state that this broker keeps, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from odradek.broker.context import BrokerContext
from odradek.broker.share.state_store import LocalShareState, ShareStateStore
from odradek.groups.share.state_formats import SharePlace
from odradek.model.errors import KafkaError
from odradek.runtime.turns import slices

_BEGUN_MAX: Final = 1024
"""As many operations wait for their records to be durable: they share the flushes."""
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
    broker: BrokerContext,
    request: _Request,
    operation: Operation,
    result: Callable[[int, Any], R],
) -> list[tuple[UUID, list[R]]]:
    """Carry out `operation` for each place and its part of the request: many are begun before the first is waited for.

    By topic id, in the request's order: what `result` makes of each partition and its reply, or the KafkaError that refused it.
    """
    store = LocalShareState(broker.kinds.shares.shards)
    turn = broker.turns.begin()
    places = [
        (number, topic, asked) for number, topic in enumerate(request.topics) for asked in topic.partitions
    ]
    outcomes: list[tuple[UUID, list[R]]] = [(topic.topic_id, []) for topic in request.topics]
    begun: deque[tuple[int, int, Awaitable[Any] | KafkaError]] = deque()

    async def settle(left: int) -> None:
        while len(begun) > left:
            number, partition, reply = begun.popleft()
            outcomes[number][1].append(result(partition, await _outcome(reply)))

    for some in slices(places):
        await turn.step()
        for number, topic, asked in some:
            begun.append((number, asked.partition, _begin(store, request.group_id, topic, asked, operation)))
        await settle(_BEGUN_MAX)
    await settle(0)
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
