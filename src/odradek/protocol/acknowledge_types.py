"""The decisions of a member of a share group about records (KIP-932), with the numbers of ShareFetch and ShareAcknowledge."""

from __future__ import annotations

from enum import IntEnum

from odradek.model.public import public


@public("odradek")
class AcknowledgeType(IntEnum):
    """A member's decision about records that it acquired."""

    GAP = 0
    """There is no record at this offset. Clients send it by themselves; programs do not."""
    ACCEPT = 1
    """The record is done."""
    RELEASE = 2
    """The record is delivered again, to this member or another one, until the group's limit of deliveries is reached."""
    REJECT = 3
    """The record cannot be handled and is not delivered again."""
    RENEW = 4
    """The record is not done yet: its lock begins again (KIP-1222)."""
