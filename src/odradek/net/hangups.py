"""Peers that leave while no one reads from their connections.

A connection that is muted, held, or waits for its peer to read is not read from, so the end of the stream
does not reach it. The system is asked about connections that have been paused for a while: it reports the end
(POLLRDHUP) even when unread bytes precede it. A simulated transport has no descriptor, and answers for itself
(`hung_up`).
"""

from __future__ import annotations

import select
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

PAUSED_SECONDS_MIN: Final = 1.0
"""Most pauses are over by then, and cost nothing here."""
_LEFT: Final = getattr(select, "POLLRDHUP", 0)
_RESET: Final = select.POLLHUP | select.POLLERR | select.POLLNVAL


class HangUp(Enum):
    FINISHED = "finished"
    """The peer sends nothing more; it may still read."""
    RESET = "reset"
    """The connection is dead."""


class Pausable(Protocol):
    """A connection that may be paused. It is hashed by identity."""

    @property
    def descriptor(self) -> int | None: ...

    @property
    def simulated_hang_up(self) -> str | None: ...


PausableT = TypeVar("PausableT", bound=Pausable)


class Hangups(Generic[PausableT]):
    """The paused connections of one server."""

    def __init__(self) -> None:
        self._paused: dict[PausableT, float] = {}
        """The time since which each connection is paused, the longest first."""
        self._polled: dict[int, PausableT] = {}
        """Connections that `poll` watches, by descriptor."""
        self._descriptors: dict[PausableT, int] = {}
        self._poll = select.poll()

    @property
    def any_paused(self) -> bool:
        return bool(self._paused) or bool(self._descriptors)

    def paused(self, connection: PausableT, now: float) -> None:
        self._paused[connection] = now

    def resumed(self, connection: PausableT) -> None:
        """Forgets a connection that is read from again, or gone."""
        self._paused.pop(connection, None)
        descriptor = self._descriptors.pop(connection, None)
        if descriptor is not None:
            del self._polled[descriptor]
            self._poll.unregister(descriptor)

    def check(self, now: float) -> list[tuple[PausableT, HangUp]]:
        """Returns connections whose peers have left, each once."""
        left: list[tuple[PausableT, HangUp]] = []
        for connection, since in list(self._paused.items()):
            if now - since < PAUSED_SECONDS_MIN:
                break
            descriptor = connection.descriptor
            if descriptor is not None:
                del self._paused[connection]
                self._descriptors[connection] = descriptor
                self._polled[descriptor] = connection
                self._poll.register(descriptor, _LEFT)
            elif (end := connection.simulated_hang_up) is not None:
                left.append((connection, HangUp(end)))
        if self._polled:
            for descriptor, event in self._poll.poll(0):
                left.append((self._polled[descriptor], HangUp.RESET if event & _RESET else HangUp.FINISHED))
        for connection, _ in left:
            self.resumed(connection)
        return left
