"""What a consumer's metadata says about its topics: the one thing in there that a coordinator looks at."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.protocol import MalformedMessage, decode
from odradek.protocol.messages.groups.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"
_VERSION_BYTES = 2


def topics_of(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that members subscribe to; None when one of them says it in a way that cannot be read.

    Read as version 0, with which every later version begins.
    """
    topics: set[str] = set()
    try:
        for data in metadata:
            subscription, _ = decode(ConsumerProtocolSubscription, 0, data, _VERSION_BYTES)
            topics.update(subscription.topics)
    except MalformedMessage:
        return None
    return frozenset(topics)
