"""What the handlers of share groups' state have in common: operations on shards of this broker, begun in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from odradek.broker.context import SHARE_GROUP_STATE, Parts
from odradek.broker.share_keeper import shard_key
from odradek.groups.share.state import ShareStates
from odradek.groups.share.state_formats import SharePlace
from odradek.model.errors import KafkaError
from odradek.shards import Moment, Outcome

Operation = Callable[[ShareStates, Moment], Outcome[Any]]
Kept = dict[SharePlace, Any]


async def kept(parts: Parts, operations: Iterable[tuple[SharePlace, Operation]]) -> Kept:
    """The reply to each, or the KafkaError that refused it. All are begun before any is waited for."""
    outcomes: Kept = {}
    begun: list[tuple[SharePlace, Awaitable[Any]]] = []
    shards = parts.coordinators.shards(SHARE_GROUP_STATE)
    for place, operation in operations:
        try:
            begun.append((place, shards.for_key(shard_key(place)).execute(operation)))
        except KafkaError as error:
            outcomes[place] = error
    for place, reply in begun:
        try:
            outcomes[place] = await reply
        except KafkaError as error:
            outcomes[place] = error
    return outcomes
