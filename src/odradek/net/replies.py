"""The replies of one connection: made in any order, written in the order of the requests (Kafka's contract).

Each request that needs a response has a slot. Replies that are ready leave through `drain` in the order of
requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from odradek.net.connection_owner import AnswerObserver
from odradek.net.request_budget import Share
from odradek.runtime.ports import Buffer
from odradek.runtime.prompt import PromptFuture

Chunks = list[Buffer]
PendingReply = asyncio.Future[Chunks | None] | PromptFuture[Chunks | None]


class HeldReply:
    """A reply that comes later, before which no other request of the connection is served."""

    __slots__ = ("chunks",)

    def __init__(self, chunks: Awaitable[Chunks | None]) -> None:
        self.chunks = chunks


Reply = Chunks | None | Awaitable[Chunks | None] | HeldReply
"""Ready bytes, nothing at all (acks=0), or either of them later."""


def at_once(chunks: Chunks | HeldReply) -> Chunks:
    """Returns the bytes of a response of few elements."""
    assert not isinstance(chunks, HeldReply), "only a response of many elements is written in steps"
    return chunks


class PeerError(Exception):
    """The peer broke the protocol: the connection is closed, with one event that has the reason."""


class ClosedHandler:
    """The handler of a closed connection."""

    def handle(self, connection: object, frame: memoryview) -> Reply:
        raise PeerError("the connection is closed")


NOT_SERVED: Final = ClosedHandler()


class ReplySlot:
    """The place of one reply in the queue."""

    __slots__ = ("chunks", "done", "observer", "parked_bytes", "pending", "ready_at", "share")

    def __init__(self, share: Share | None, observer: AnswerObserver | None) -> None:
        self.observer = observer
        self.ready_at = 0.0
        """The time when the reply was ready."""
        self.done = False
        self.chunks: Chunks | None = None
        self.pending: PendingReply | None = None
        self.share = share
        self.parked_bytes = 0
        """The frame's bytes, for a small request that keeps its frame until it is answered."""


class ReplyQueue:
    """The replies of one connection, which leave in the order of the requests. Used on the event loop only."""

    __slots__ = (
        "_now",
        "_observed",
        "_ready",
        "_sending",
        "_sending_since",
        "parked_bytes",
        "ready_bytes",
        "slots",
    )

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._observed: list[tuple[AnswerObserver, float]] = []
        """Observers of the replies that `drain` would return, and the times when these were ready."""
        self._sending: list[tuple[AnswerObserver, float]] = []
        """Observers of replies that were drained and are not sent yet, and how long each reply was queued."""
        self._sending_since = 0.0
        self.slots: Final[deque[ReplySlot]] = deque()
        """Slots of requests that are not answered, and of replies that are ready too early."""
        self.parked_bytes = 0
        """The bytes of all frames that small requests keep."""
        self.ready_bytes = 0
        """The bytes that `drain` would return."""
        self._ready: Chunks = []

    def add(self, share: Share | None, observer: AnswerObserver | None = None) -> ReplySlot:
        """Returns the slot of the next reply. `share` is of the memory for large requests; it is released with the reply."""
        slot = ReplySlot(share, observer)
        self.slots.append(slot)
        return slot

    def answer(self, chunks: Chunks, share: Share | None, observer: AnswerObserver | None = None) -> None:
        """Takes in the reply of a request that did not wait. It needs no slot while no earlier request waits."""
        if self.slots or share is not None:
            self.settle(self.add(share, observer), chunks)
            return
        if observer is not None:
            self._observed.append((observer, self._now()))
        self._ready.extend(chunks)
        self.ready_bytes += len(chunks[0]) if len(chunks) == 1 else sum(map(len, chunks))

    @property
    def request_bytes(self) -> int:
        """The bytes of requests that are being handled: of frames that are kept, and of large ones."""
        large = (slot.share for slot in self.slots if slot.share is not None and not slot.share.is_released)
        return self.parked_bytes + sum(share.granted_bytes for share in large)

    @property
    def unwritten_bytes(self) -> int:
        """The bytes of replies that are ready and not written yet: also of those that wait for earlier ones."""
        early = (slot.chunks for slot in self.slots if slot.chunks is not None)
        return self.ready_bytes + sum(sum(map(len, chunks)) for chunks in early)

    def park(self, slot: ReplySlot, frame_bytes: int) -> None:
        """Notes that the request keeps its frame while it waits."""
        slot.parked_bytes = frame_bytes
        self.parked_bytes += frame_bytes

    def settle(self, slot: ReplySlot, chunks: Chunks | None) -> None:
        """Takes in a reply; None when there will be none."""
        slot.done, slot.chunks, slot.pending = True, chunks, None
        slot.ready_at = self._now()
        self.parked_bytes -= slot.parked_bytes
        if slot.share is not None:
            slot.share.release()
        slots = self.slots
        while slots and slots[0].done:
            first = slots.popleft()
            ready = first.chunks
            if ready is not None:
                if first.observer is not None:
                    self._observed.append((first.observer, first.ready_at))
                self._ready.extend(ready)
                self.ready_bytes += len(ready[0]) if len(ready) == 1 else sum(map(len, ready))

    def drain(self, now: float) -> Chunks:
        """Returns the bytes that may be written now."""
        ready, self._ready, self.ready_bytes = self._ready, [], 0
        if self._observed:
            self._sending_since = now
            self._sending += [(observer, now - ready_at) for observer, ready_at in self._observed]
            self._observed.clear()
        return ready

    def sent(self) -> None:
        """Notes that the kernel has everything that was drained."""
        if self._sending:
            sending, self._sending = self._sending, []
            sending_s = self._now() - self._sending_since
            for observer, queued_s in sending:
                observer.sent(queued_s, sending_s)

    def give_up_from(self, failed: ReplySlot) -> None:
        """Gives up the reply to a request, and all later replies."""
        while failed in self.slots:
            slot = self.slots.pop()
            if slot.pending is not None:
                _cancel(slot.pending)
            if slot.share is not None:
                slot.share.release()
            self.parked_bytes -= slot.parked_bytes
            slot.parked_bytes = 0

    def cancel(self) -> None:
        """Ends the work on pending replies: no one reads them any more."""
        for slot in self.slots:
            if slot.pending is not None:
                _cancel(slot.pending)

    def drop(self) -> None:
        """Releases all memory at once."""
        for slot in self.slots:
            if slot.share is not None:
                slot.share.release()
        self.slots.clear()
        self.drain(self._now())
        self._sending.clear()


def _cancel(pending: PendingReply) -> None:
    """Cancels a task after its first step: one that never makes a step leaves its coroutine unawaited."""
    asyncio.get_running_loop().call_soon(pending.cancel)
