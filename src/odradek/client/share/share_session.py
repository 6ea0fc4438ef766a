"""A member's share session with one broker (KIP-932). No I/O.

The broker remembers which partitions the session reads; requests carry what changed. Both sides count requests: epoch 0 opens
the session, -1 closes it. It belongs to one connection, and ends with it. What was acquired in a session can be acknowledged
in that session alone, so each one has a number of its own, its incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from odradek.client.share.share_record import SharePartitionId, ShareSource

OPENING_EPOCH: Final = 0
CLOSING_EPOCH: Final = -1
_EPOCH_MAX: Final = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSessionRequest:
    """The epoch of the next ShareFetch, and how the session's partitions change with it."""

    epoch: int
    added: tuple[SharePartitionId, ...]
    forgotten: tuple[SharePartitionId, ...]


class ClientShareSession:
    """Alternate `next_fetch` or `next_acknowledgement` with one of `succeeded` and `end`."""

    __slots__ = ("_epoch", "_known", "_sent", "broker", "incarnation")

    def __init__(self, broker: int) -> None:
        self.broker: Final = broker
        self.incarnation = 0
        self._epoch = OPENING_EPOCH
        self._known: dict[SharePartitionId, None] = {}
        """The partitions that the broker has in its session."""
        self._sent: dict[SharePartitionId, None] | None = None
        """The partitions that it has once it has answered the request under way; None: they stay."""

    @property
    def source(self) -> ShareSource:
        """The session's name on records that it acquires."""
        return ShareSource(self.broker, self.incarnation)

    @property
    def partitions(self) -> AbstractSet[SharePartitionId]:
        """The partitions that the session reads, by the last answer."""
        return self._known.keys()

    @property
    def is_open(self) -> bool:
        return self._epoch != OPENING_EPOCH

    def next_fetch(self, wanted: Iterable[SharePartitionId]) -> ShareSessionRequest:
        """Returns the request by which the session comes to read exactly `wanted`."""
        self._sent = dict.fromkeys(wanted)
        return ShareSessionRequest(
            epoch=self._epoch,
            added=tuple(partition for partition in self._sent if partition not in self._known),
            forgotten=tuple(partition for partition in self._known if partition not in self._sent),
        )

    def next_acknowledgement(self) -> int:
        """Returns the epoch of a ShareAcknowledge. The session must be open."""
        assert self.is_open, "a session is opened by ShareFetch alone"
        return self._epoch

    def succeeded(self) -> None:
        """Notes an answer without an error of the whole request."""
        if self._sent is not None:
            self._known, self._sent = self._sent, None
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def end(self) -> None:
        """The session is over: it was closed, refused or lost. The next request opens another one."""
        self.incarnation += 1
        self._epoch = OPENING_EPOCH
        self._known = {}
        self._sent = None
