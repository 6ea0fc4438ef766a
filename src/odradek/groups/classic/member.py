"""One member of a classic group, and the topics that members subscribe to: all that a coordinator reads of their metadata."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek.protocol import MalformedMessage, decode
from odradek.protocol.messages.groups.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.groups.join_group import JoinGroupResponse
from odradek.protocol.messages.groups.sync_group import SyncGroupResponse
from odradek.shards import Ticket

Protocols = tuple[tuple[str, bytes], ...]
"""(Name, metadata), in the member's order of preference."""


@dataclass(slots=True, kw_only=True)
class ClassicGroupMember:
    """A member's metadata, its assignment, and its waiting requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: Ticket[JoinGroupResponse] | None = None
    syncing: Ticket[SyncGroupResponse] | None = None
    is_new: bool = False
    """It joined for the first time and has not been answered yet."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def waits(self) -> bool:
        """A member whose request waits is alive, however long that takes."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: set[str]) -> str:
        """Returns the first of its protocols that every member knows."""
        return next(name for name, _ in self.protocols if name in candidates)


CONSUMER_PROTOCOL_TYPE = "consumer"
_VERSION_BYTES = 2


def topics_of(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Returns all topics that members subscribe to; None when the metadata of one of them cannot be read.

    Read as version 0, with which every later version begins.
    """
    topics: set[str] = set()
    try:
        for data in set(metadata):  # most members of a large group send the same
            subscription, _ = decode(ConsumerProtocolSubscription, 0, data, _VERSION_BYTES)
            topics.update(subscription.topics)
    except MalformedMessage:
        return None
    return frozenset(topics)
