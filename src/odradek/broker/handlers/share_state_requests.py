"""Shared parts of the handlers of share groups' state: they apply requests to this broker's state in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar
from uuid import UUID

from odradek.broker.requests.context import BrokerContext
from odradek.broker.share.state_store import LocalShareState, ShareStateStore
from odradek.groups.share.state_formats import SharePartitionKey
from odradek.model.errors import KafkaError
from odradek.runtime.turns import slices

_BEGUN_MAX: Final = 1024
"""The number of operations that wait for durable records at the same time: they share the flushes."""


class _Partition(Protocol):
    @property
    def partition(self) -> int: ...


P = TypeVar("P", bound=_Partition)
"""A partition's part of the request."""
P_co = TypeVar("P_co", bound=_Partition, covariant=True)
A = TypeVar("A")
"""The store's answer for a partition."""
R = TypeVar("R")
"""A partition's part of the response."""
T = TypeVar("T", covariant=True)


class _Topic(Protocol[P_co]):
    @property
    def topic_id(self) -> UUID: ...
    @property
    def partitions(self) -> Sequence[P_co]: ...


class _Request(Protocol[P_co]):
    @property
    def group_id(self) -> str: ...
    @property
    def topics(self) -> Sequence[_Topic[P_co]]: ...


class _TopicResult(Protocol[R, T]):
    def __call__(self, *, topic_id: UUID, partitions: list[R]) -> T: ...


async def for_each_partition(
    broker: BrokerContext,
    request: _Request[P],
    operation: Callable[[ShareStateStore, SharePartitionKey, P], Awaitable[A]],
    make_result: Callable[[int, A | KafkaError], R],
    topic_result: _TopicResult[R, T],
) -> list[T]:
    """Carries out `operation` for each partition and its part of the request: many are begun before the first is waited for.

    In the request's order: what `topic_result` makes of a topic's id and of what `make_result` makes of each of its partitions
    and its reply, or the KafkaError that refused it.
    """
    store = LocalShareState(broker.kinds.shares.shards)
    turn = broker.turns.begin()
    outcomes: list[tuple[UUID, list[R]]] = []
    begun: deque[tuple[int, int, Awaitable[A] | KafkaError]] = deque()

    async def settle(left: int) -> None:
        while len(begun) > left:
            number, partition, reply = begun.popleft()
            outcomes[number][1].append(make_result(partition, await _outcome(reply)))

    for number, topic in enumerate(request.topics):
        await turn.step()
        outcomes.append((topic.topic_id, []))
        for some in slices(topic.partitions):
            await turn.step()
            for requested in some:
                reply = _begin(store, request.group_id, topic, requested, operation)
                begun.append((number, requested.partition, reply))
            await settle(_BEGUN_MAX)
    await settle(0)
    return await turn.map(lambda outcome: topic_result(topic_id=outcome[0], partitions=outcome[1]), outcomes)


def _begin(
    store: ShareStateStore,
    group_id: str,
    topic: _Topic[P],
    requested: P,
    operation: Callable[[ShareStateStore, SharePartitionKey, P], Awaitable[A]],
) -> Awaitable[A] | KafkaError:
    partition_key = SharePartitionKey(group_id, topic.topic_id, requested.partition)
    try:
        return operation(store, partition_key, requested)
    except KafkaError as error:
        return error.as_outcome()


async def _outcome(reply: Awaitable[A] | KafkaError) -> A | KafkaError:
    if isinstance(reply, KafkaError):
        return reply
    try:
        return await reply
    except KafkaError as error:
        return error.as_outcome()
