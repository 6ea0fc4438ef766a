"""Cuts the stream of bytes from a peer into frames: four bytes of size, then that many bytes. No I/O.

Made for `asyncio.BufferedProtocol`, which asks where to put bytes (`get_buffer`) and reports how many came
(`buffer_updated`):

    def get_buffer(self, size_hint): return self._frames.get_buffer(size_hint)
    def buffer_updated(self, count):
        for frame in self._frames.received(count): ...

Two ways lead to a frame. Small ones arrive, several at a time, in one receive buffer and are copied out of it
(16 KiB cost about half a microsecond). A frame that does not fit into the receive buffer gets a bytearray of
its own, the rest of it is received straight into that, and not a byte of the next frame with it; so a produce
request can be patched and written to disk from where the network put it.

Memory. A size is compared with the limit before anything is allocated for it. A peer that announces much and
sends little does not get much: a frame's own buffer starts at what the peer is trusted with and grows with
what has arrived. Above the most that a peer is trusted with it is a private mapping, whose pages come with
the bytes, and go back to the system when the frame is freed. The receive buffer starts small, for the sake of
idle connections, and grows as long as reads fill it.

A client that is sent large frames one after another, each an answer to a question, gives the reader a way to `allocate`
memory that is used again. Once such a frame has arrived, the next one is received into a buffer of about its size from its
first byte on: no byte of it is copied, and it takes fewer reads.

A server that shares memory among many readers makes them `gated`: a frame larger than the receive buffer then waits, `starved`,
until `allow` grants a part of it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Final

from odradek.protocol.errors import FrameTooLarge, InvalidFrame

_SIZE: Final = Struct(">i")
SIZE_BYTES: Final = 4
RECEIVE_BYTES_MIN: Final = 4 * 1024
RECEIVE_BYTES_MAX: Final = 64 * 1024
TRUSTED_BYTES_MIN: Final = 128 * 1024
TRUSTED_BYTES: Final = 2 * 1024 * 1024
"""How many bytes an announced size may make us allocate before they arrive. A new peer is trusted with `TRUSTED_BYTES_MIN`;
one that has sent a large frame whole, with twice that frame, up to this: a producer's default request size, twice."""

READ_BYTES_MAX: Final = 256 * 1024
"""The most bytes of one read into a mapped frame, whose pages the kernel has to clear first: others wait meanwhile."""

QUIET_READS: Final = 64
"""After this many reads in a row that needed little of the receive buffer, it shrinks by half."""

_SLACK_SHARE: Final = 8
"""A buffer for the next large frame has an eighth more than the last one took."""

_STRANGERS: Final = {
    b"\x16\x03": "a TLS handshake",
    b"GET ": "an HTTP request",
    b"POST": "an HTTP request",
    b"HEAD": "an HTTP request",
    b"PUT ": "an HTTP request",
    b"OPTI": "an HTTP request",
    b"CONN": "an HTTP request",
    b"PRI ": "an HTTP/2 preface",
    b"HTTP": "an HTTP response",
    b"SSH-": "an SSH greeting",
}
"""How other protocols begin: read as a size, each is far above any limit in use."""


class FrameReader:
    """The frames of one connection, in order.

    A frame is a writable memoryview without its size, over memory that is used for nothing else afterwards. After
    an InvalidFrame or FrameTooLarge the reader is of no further use: the stream has lost its boundaries.
    """

    __slots__ = (
        "_ahead",
        "_allocate",
        "_end",
        "_expected_bytes",
        "_frame",
        "_frame_bytes",
        "_is_gated",
        "_max_frame_bytes",
        "_quiet_reads",
        "_received",
        "_room_bytes",
        "_trusted_bytes",
        "_trusted_bytes_max",
    )

    def __init__(
        self,
        max_frame_bytes: int,
        *,
        trusted_bytes: int = TRUSTED_BYTES,
        gated: bool = False,
        allocate: Callable[[int], memoryview] | None = None,
    ) -> None:
        """`trusted_bytes`: the most that an announced size may make this reader allocate before its bytes arrive.

        `allocate` returns writable memory of a size, not necessarily cleared. With it, large frames are received ahead of their
        sizes; not for a gated reader."""
        assert not (gated and allocate), "a gated reader receives nothing ahead"
        self._allocate = allocate
        self._expected_bytes = 0
        """The size of the buffer for the next large frame, with its size in front; 0 where none is expected."""
        self._ahead: memoryview | None = None
        """The buffer for a frame whose size has not arrived."""
        self._is_gated = gated
        self._room_bytes = 0
        """How much of `_frame` may be filled."""
        self._max_frame_bytes = max_frame_bytes
        self._trusted_bytes_max = trusted_bytes
        self._received = bytearray(RECEIVE_BYTES_MIN)
        self._quiet_reads = 0
        self._trusted_bytes = TRUSTED_BYTES_MIN
        self._frame: memoryview | mmap.mmap | None = None
        self._frame_bytes = 0
        self._end = 0
        """Bytes in the buffer now being filled: `_frame` or `_ahead` if there is one, else `_received`."""

    @property
    def pending_bytes(self) -> int:
        """Bytes received of a frame that is not complete yet: 0 exactly when the stream may end here."""
        return self._end

    @property
    def allocated_bytes(self) -> int:
        """Memory that the reader itself holds at the moment."""
        frame = self._frame
        own = 0 if frame is None else self._end if isinstance(frame, mmap.mmap) else len(frame)
        return len(self._received) + own + (0 if self._ahead is None else len(self._ahead))

    @property
    def large_frame_bytes(self) -> int:
        """The size of the frame that is being received, if it is larger than any receive buffer; else 0."""
        return self._frame_bytes if self._frame is not None and self._frame_bytes > RECEIVE_BYTES_MAX else 0

    @property
    def starved(self) -> bool:
        """Whether nothing may be received before `allow` makes room."""
        return self._frame is not None and self._end >= self._room_bytes

    def allow(self, room_bytes: int) -> None:
        """Allows the first `room_bytes` bytes of the large frame to be received."""
        self._room_bytes = max(room_bytes, self._room_bytes)

    def allow_frames(self, bytes_max: int) -> None:
        """Allows the next frames to be as large as `bytes_max`."""
        self._max_frame_bytes = bytes_max

    def drop(self) -> None:
        """Releases the memory; the reader must not be used afterwards."""
        self._frame = self._ahead = None
        self._received = bytearray(1)
        self._end = 0

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Returns the buffer for the next bytes; never empty. Valid until the next `received`. Ignores the hint."""
        if self._frame is None:
            if self._expected_bytes and not self._end and self._allocate is not None:
                self._ahead = self._ahead or self._allocate(self._expected_bytes)
                return self._ahead
            received = memoryview(self._received)
            return received[self._end :] if self._end else received
        if isinstance(self._frame, mmap.mmap):
            return memoryview(self._frame)[self._end : min(self._room_bytes, self._end + READ_BYTES_MAX)]
        return self._frame[self._end : self._room_bytes]

    def received(self, count: int) -> list[memoryview]:
        """Takes in `count` bytes of the last buffer; returns the frames that they complete.

        Raises InvalidFrame for a size below 1, FrameTooLarge for one above the limit. Complete frames before it in
        the stream are then not returned: a peer that does this gets no answers.
        """
        self._end += count
        if self._ahead is not None:
            self._settle(self._ahead)
        if self._frame is None:
            return self._cut()
        if self._end < len(self._frame):
            return []
        return self._complete_or_grow(self._frame)

    def _settle(self, ahead: memoryview) -> None:
        """Takes over the first bytes that were received ahead: as one large frame, or like any other
        bytes."""
        self._ahead = None
        if self._end >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(ahead)
            stop = SIZE_BYTES + size
            if RECEIVE_BYTES_MAX < stop <= len(ahead) and stop >= self._end and size <= self._max_frame_bytes:
                self._frame = ahead[SIZE_BYTES:stop]
                self._frame_bytes = self._room_bytes = size
                self._end -= SIZE_BYTES
                return
        self._expected_bytes = 0
        if self._end > len(self._received):
            self._received = bytearray(ahead[: self._end])
        else:
            self._received[: self._end] = ahead[: self._end]

    def _cut(self) -> list[memoryview]:
        """Copies the complete frames out of the receive buffer, and keeps what is left at its front."""
        buffer, end = self._received, self._end
        frames: list[memoryview] = []
        start = 0
        while end - start >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(buffer, start)
            if not 0 < size <= self._max_frame_bytes:
                raise self._refusal(size, bytes(buffer[start : start + SIZE_BYTES]))
            stop = start + SIZE_BYTES + size
            if stop > end:
                if SIZE_BYTES + size > len(buffer):
                    self._begin_large(start + SIZE_BYTES, size)
                    return frames
                break
            frames.append(memoryview(buffer[start + SIZE_BYTES : stop]))
            start = stop
        self._keep(start)
        return frames

    def _keep(self, start: int) -> None:
        """Continues with the bytes from `start`, in a buffer that fits what the peer has been sending."""
        buffer, end = self._received, self._end
        self._end = end - start
        if end - start < RECEIVE_BYTES_MAX < len(buffer):  # what was received ahead was no large frame
            self._resize(RECEIVE_BYTES_MAX, start, end)
        elif end == len(buffer) < RECEIVE_BYTES_MAX:
            self._resize(2 * len(buffer), start, end)
        elif end * 8 < len(buffer) > RECEIVE_BYTES_MIN:
            self._quiet_reads += 1
            if self._quiet_reads >= QUIET_READS:
                self._resize(len(buffer) // 2, start, end)
                return
        else:
            self._quiet_reads = 0
        if 0 < start < end and self._received is buffer:
            buffer[: end - start] = buffer[start:end]

    def _resize(self, size: int, start: int, end: int) -> None:
        self._quiet_reads = 0
        resized = bytearray(size)
        resized[: end - start] = self._received[start:end]
        self._received = resized

    def _refusal(self, size: int, raw: bytes) -> InvalidFrame:
        stranger = _STRANGERS.get(raw) or _STRANGERS.get(raw[:2])
        if stranger:
            return InvalidFrame(f"{stranger} arrived where a Kafka request was expected")
        if size > 0:
            return FrameTooLarge(size, self._max_frame_bytes)
        return InvalidFrame(f"a frame of {size} bytes was announced")

    def _begin_large(self, start: int, size: int) -> None:
        """Moves the beginning of a frame that the receive buffer cannot hold into a buffer of its own."""
        head = self._received[start : self._end]
        self._frame_bytes = size
        self._frame = new_mapping(size) if size > self._trusted_bytes_max else None
        if self._frame is None:
            self._frame = self._new_frame(min(size, self._trusted_bytes))
        self._frame[: len(head)] = head
        self._end = len(head)
        self._room_bytes = len(head) if self._is_gated and size > RECEIVE_BYTES_MAX else size
        self._quiet_reads = 0
        if len(self._received) < RECEIVE_BYTES_MAX:
            self._received = bytearray(2 * len(self._received))

    def _new_frame(self, size: int) -> memoryview:
        return memoryview(bytearray(size)) if self._allocate is None else self._allocate(size)

    def _complete_or_grow(self, frame: memoryview | mmap.mmap) -> list[memoryview]:
        """Returns the frame, once all of it is there; else twice the room, since as much has arrived as was trusted."""
        if len(frame) < self._frame_bytes:
            self._frame = self._new_frame(min(self._frame_bytes, 2 * len(frame)))
            self._frame[: len(frame)] = memoryview(frame)
            return []
        self._frame = None
        self._end = 0
        self._trusted_bytes = max(self._trusted_bytes, min(2 * len(frame), self._trusted_bytes_max))
        if self._allocate is not None:
            self._expect_another(SIZE_BYTES + len(frame))
        return [memoryview(frame)]

    def _expect_another(self, stream_bytes: int) -> None:
        """Makes the next buffer a little larger than this frame: answers to the same question have about the same size."""
        expected_bytes = stream_bytes + stream_bytes // _SLACK_SHARE
        is_large = stream_bytes > RECEIVE_BYTES_MAX and expected_bytes <= self._trusted_bytes_max
        if not is_large:
            self._expected_bytes = 0
        elif not stream_bytes <= self._expected_bytes <= 2 * expected_bytes:
            self._expected_bytes = expected_bytes


def new_mapping(size: int) -> mmap.mmap | None:
    """Returns memory whose pages come when they are written to; None where the system refuses it, or has no such thing."""
    with suppress(OSError, ValueError, AttributeError):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return None
