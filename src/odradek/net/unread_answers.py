"""The answers that wait in memory for peers to read them, in all connections together. A core: no I/O, no clock.

A connection whose peer does not read is not served, so it holds what was written to it last, and no more. What is sent from a
mapping of a file (decision 0008) costs no memory and is not counted.

Fetches ask for `room_bytes` before they read. Near the limit they get a small piece each, so that peers that
read continue. Peers that make no progress while others have too little room are `stuck`: only they lose their
connections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PROGRESS_BYTES: Final = 64 * 1024
STALL_SECONDS: Final = 2.0
_SMALL_PIECE_BYTES: Final = 1024 * 1024


@dataclass(slots=True, kw_only=True)
class AnswerCounters:
    """Counters for metrics; they only grow, except `peak_bytes`."""

    stuck: int = 0
    stalled: int = 0
    peak_bytes: int = 0


@dataclass(slots=True)
class _Unread:
    bytes_held: int
    marked_at: float
    marked_sent_bytes: int


class UnreadAnswers:
    """The unread answers of each connection. Times are seconds of any steady clock."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.counters = AnswerCounters()
        self._unread: dict[object, _Unread] = {}

    def room_bytes(self) -> int:
        """Returns how many bytes a fetch may put into memory; 0 or less means none."""
        comfortable = self.limit_bytes - self.limit_bytes // 4 - self.held_bytes
        return max(comfortable, min(_SMALL_PIECE_BYTES, self.limit_bytes - self.held_bytes))

    @property
    def is_short(self) -> bool:
        """True if fetches get less than they could have."""
        return self.held_bytes > self.limit_bytes // 2

    @property
    def count(self) -> int:
        """Connections whose peers have not read all they were sent."""
        return len(self._unread)

    def hold(self, connection: object, count: int, *, sent_bytes: int, now: float) -> None:
        """Notes that the connection's peer left `count` bytes in memory. `sent_bytes`: all that it has taken."""
        unread = self._unread.get(connection)
        if unread is None:
            unread = self._unread[connection] = _Unread(0, now, sent_bytes)
        self.held_bytes += count - unread.bytes_held
        unread.bytes_held = count
        if self.held_bytes > self.counters.peak_bytes:
            self.counters.peak_bytes = self.held_bytes

    def forget(self, connection: object) -> None:
        """Forgets a connection whose peer has read everything, or disconnected."""
        unread = self._unread.pop(connection, None)
        if unread is not None:
            self.held_bytes -= unread.bytes_held

    def connections(self) -> list[object]:
        return list(self._unread)

    def note_sent(self, connection: object, sent_bytes: int, now: float) -> None:
        """Notes how many bytes the peer has taken in all. An increase below `PROGRESS_BYTES` changes nothing."""
        unread = self._unread.get(connection)
        if unread is not None and sent_bytes - unread.marked_sent_bytes >= PROGRESS_BYTES:
            unread.marked_at, unread.marked_sent_bytes = now, sent_bytes

    def stuck(self, now: float) -> object | None:
        """Returns, when room is short, the connection that holds most among those whose peers take next to nothing; else
        None."""
        if not self.is_short:
            return None
        late = self._still_since(now - STALL_SECONDS)
        holding = [connection for connection in late if self._unread[connection].bytes_held]
        if not holding:
            return None
        self.counters.stuck += 1
        return max(holding, key=lambda connection: self._unread[connection].bytes_held)

    def stalled(self, now: float, seconds_max: float) -> list[object]:
        """Returns connections whose peers took next to nothing for `seconds_max`, however much room there is."""
        late = self._still_since(now - seconds_max)
        self.counters.stalled += len(late)
        return late

    def _still_since(self, moment: float) -> list[object]:
        return [connection for connection, unread in self._unread.items() if unread.marked_at <= moment]
