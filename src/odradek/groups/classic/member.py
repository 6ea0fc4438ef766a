"""One member of a classic group."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.protocol.messages.groups.join_group import JoinGroupResponse
from odradek.protocol.messages.groups.sync_group import SyncGroupResponse
from odradek.shards import Ticket

Protocols = tuple[tuple[str, bytes], ...]
"""(Name, metadata), in the member's order of preference."""


@dataclass(slots=True, kw_only=True)
class ClassicGroupMember:
    """What a member said of itself, what it was assigned, and the requests of its that wait."""

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
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """The first of its protocols that every member knows."""
        return next(name for name, _ in self.protocols if name in candidates)
