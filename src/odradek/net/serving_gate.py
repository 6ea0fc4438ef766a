"""The gate before the requests of one connection: whether the next one may be served, or what it waits for.

A connection waits while its peer does not read what was written, while a `HeldReply` is due, while it is muted, while it queues
for its turn among connections with much work (`runtime/turns.py`), and while requests that were served before have no answer
yet, unless the next one may overlap with them. The connection asks before each request, so the answers cost attributes and
comparisons only: the fields are the connection's to set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.net.connection_owner import RequestTerms
    from odradek.net.replies import ReplyQueue, ReplySlot

_PARKED_BYTES_MAX: Final = 1024 * 1024
"""A connection whose requests that wait for their answers hold more than this is not served further."""


class ServingGate:
    """The reasons for which the next request of a connection waits. Used on the event loop only."""

    __slots__ = (
        "_in_flight_max",
        "_mute",
        "_replies",
        "_terms",
        "_turn",
        "held",
        "is_of_broker",
        "peer_reads",
        "pipeline",
    )

    def __init__(self, terms: RequestTerms, replies: ReplyQueue) -> None:
        self._terms = terms
        self._in_flight_max = terms.limits.in_flight_max
        self._replies = replies
        self.peer_reads = True
        """The peer took everything that was written."""
        self.held: ReplySlot | None = None
        """The request whose answer is due before the next one is served."""
        self.pipeline: int | None = None
        """The pipeline of the requests that wait for their answers."""
        self.is_of_broker = False
        """True if the requests that wait come from another broker: they overlap with any other."""
        self._mute: asyncio.TimerHandle | None = None
        self._turn: asyncio.Future[None] | None = None
        """The connection's turn in the queue of connections with much work."""

    def may_serve(self) -> bool:
        """Returns whether a request may be served now, if it can overlap with those that wait."""
        if self.held is not None or self._mute is not None or self._turn is not None:
            return False
        replies, slots = self._replies, self._replies.slots
        if not slots or not self.peer_reads:
            return self.peer_reads
        has_room = len(slots) < self._in_flight_max and replies.parked_bytes < _PARKED_BYTES_MAX
        return has_room and (self.pipeline is not None or self.is_of_broker)

    def may_begin(self, frame: memoryview) -> bool:
        """Returns whether the request of this frame cannot miss the effect of an unanswered one of the connection."""
        if not self._replies.slots or self.is_of_broker:
            return True
        return self.pipeline is not None and self._terms.pipeline_of(frame) == self.pipeline

    @property
    def may_wait(self) -> bool:
        """A small request may be received early: most peers send none, and each pause would cost two system calls."""
        is_free = self.peer_reads and self.held is None and self._mute is None and self._turn is None
        return is_free and len(self._replies.slots) == 1

    def mute_for(self, seconds: float, then: Callable[[], None]) -> None:
        """Shuts for a while, and calls `then` when it is over. The longest of several counts."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        if self._mute is not None:
            if self._mute.when() >= end:
                return
            self._mute.cancel()
        self._mute = loop.call_at(end, self._unmute, then)

    def _unmute(self, then: Callable[[], None]) -> None:
        self._mute = None
        then()

    def queue(self, then: Callable[[], None]) -> None:
        """Shuts until the connection's turn has come, and calls `then`."""
        self._turn = self._terms.turns.queue()
        self._turn.add_done_callback(partial(self._in_turn, then))

    def _in_turn(self, then: Callable[[], None], queued: asyncio.Future[None]) -> None:
        self._turn = None
        if not queued.cancelled():
            then()

    def close(self) -> None:
        """Ends the wait: the connection is lost, and `then` is not called any more."""
        if self._mute is not None:
            self._mute.cancel()
        if self._turn is not None:
            self._turn.cancel()
