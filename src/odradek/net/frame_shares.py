"""The large frames of one connection, and what they hold of the budget that all connections share (`request_budget.py`)."""

from __future__ import annotations

from odradek.net.request_budget import RequestBudget, Share
from odradek.protocol.framing import RECEIVE_BYTES_MAX, FrameReader


class FrameShares:
    """A share follows its frame: it is received, waits in the backlog, and is served."""

    __slots__ = (
        "_in_backlog",
        "_is_proven",
        "_requests",
        "being_served",
        "is_starved",
        "receiving",
    )

    def __init__(self, requests: RequestBudget) -> None:
        self._requests = requests
        self.receiving: Share | None = None
        self._in_backlog: Share | None = None
        """There is at most one, for nothing is received after it."""
        self.being_served: Share | None = None
        self._is_proven = False
        """The connection has sent a large frame whole."""
        self.is_starved = False
        """The frame that is received needs more room, and waits for it."""

    def request_room(self, reader: FrameReader, owner: object, now: float, *, is_of_broker: bool) -> bool:
        """Requests room for a large frame of `owner` that has begun, or continues. Returns whether more may
        be received now."""
        share = self.receiving
        if share is None:
            share = self._requests.begin(
                owner,
                reader.large_frame_bytes,
                is_proven=self._is_proven,
                is_of_broker=is_of_broker,
            )
            self.receiving = share
        share.received_bytes = reader.pending_bytes
        if reader.starved:
            if self._requests.request_room(share, now):
                reader.allow(share.granted_bytes)
            else:
                self.is_starved = True
        return not self.is_starved

    def grant_room(self, reader: FrameReader) -> None:
        """Lets the frame that waited receive more."""
        if self.receiving is not None:
            reader.allow(self.receiving.granted_bytes)
            self.is_starved = False

    def complete(self, now: float) -> None:
        """Notes that the frame that was being received, if there was one, is whole."""
        if self.receiving is not None:
            self._requests.complete(self.receiving, now)
            self._in_backlog, self.receiving = self.receiving, None
            self._is_proven = True

    def begin_serving(self, frame_bytes: int) -> Share | None:
        """Returns the share of the frame that is served now, if it is a large one."""
        self.being_served = None
        if self._in_backlog is not None and frame_bytes > RECEIVE_BYTES_MAX:
            self.being_served, self._in_backlog = self._in_backlog, None
        return self.being_served

    def end_serving(self, *, is_parked: bool) -> None:
        """Ends the serving of a request; one that waits for its answer keeps its share."""
        if self.being_served is not None and not is_parked:
            self.being_served.release()
        self.being_served = None

    def release_served(self) -> None:
        """Releases the frame of the request being served, which does not need it any more."""
        if self.being_served is not None:
            self.being_served.release()

    def release(self) -> None:
        """Releases the memory of frames that are not served."""
        for share in (self.receiving, self._in_backlog):
            if share is not None:
                share.release()
        self.receiving = self._in_backlog = None
        self.is_starved = False
