"""Cuts the stream of bytes from a peer into frames: four bytes of size, then that many bytes. No I/O.

Made for `asyncio.BufferedProtocol`, which asks where to put bytes (`get_buffer`) and says how many came
(`buffer_updated`):

    def get_buffer(self, size_hint): return self._frames.get_buffer(size_hint)
    def buffer_updated(self, count):
        for frame in self._frames.received(count): ...

Two ways lead to a frame. Small ones arrive, several at a time, in one receive buffer and are copied out of it
(16 KiB cost about half a microsecond). A frame that does not fit into the receive buffer gets a bytearray of
its own, the rest of it is received straight into that, and not a byte of the next frame with it; so a produce
request can be patched and written to disk from where the network put it.

Memory. A size is compared with the limit before anything is allocated for it. A peer that announces much and
sends little does not get much: a frame's own buffer starts at no more than `TRUSTED_BYTES` and grows with
what has arrived. The receive buffer starts small, for the sake of idle connections, and grows as long as
reads fill it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from odradek.protocol.errors import FrameTooLarge, InvalidFrame

_SIZE: Final = Struct(">i")
SIZE_BYTES: Final = 4
RECEIVE_BYTES_MIN: Final = 4 * 1024
RECEIVE_BYTES_MAX: Final = 64 * 1024
TRUSTED_BYTES: Final = 2 * 1024 * 1024
"""What one announced size can make us allocate before its bytes arrive: a producer's default largest request,
twice."""


class FrameReader:
    """The frames of one connection, in order.

    A frame is a writable memoryview without its size, over memory that is used for nothing else afterwards.
    After an InvalidFrame or FrameTooLarge the reader is of no further use: the stream has lost its
    boundaries.
    """

    __slots__ = ("_end", "_frame", "_frame_bytes", "_max_frame_bytes", "_received", "_view")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._received = bytearray(RECEIVE_BYTES_MIN)
        self._end = 0
        """Bytes in the buffer now being filled: `_frame` if there is one, else `_received`."""
        self._frame: bytearray | None = None
        self._frame_bytes = 0
        self._view: memoryview | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes received that belong to a frame that is not complete: 0 exactly at a boundary."""
        return self._end

    @property
    def allocated_bytes(self) -> int:
        """Memory that the reader holds at the moment."""
        return len(self._received) + (len(self._frame) if self._frame is not None else 0)

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where the next bytes go; never empty. Valid until the next call of `received`. The hint is not
        needed."""
        target = self._received if self._frame is None else self._frame
        view = self._view = memoryview(target)[self._end :]
        return view

    def received(self, count: int) -> list[memoryview]:
        """Take note of `count` bytes in the last buffer given out: the frames they complete.

        Raises InvalidFrame for a size below 1, FrameTooLarge for one above the limit. Complete frames before
        it in the stream are then not returned: a peer that does this gets no answers.
        """
        if self._view is not None:
            self._view.release()
            self._view = None
        self._end += count
        if self._frame is not None:
            return self._continue_large(self._frame)
        return self._cut()

    def _cut(self) -> list[memoryview]:
        """Copy the complete frames out of the receive buffer, and keep what is left at its front."""
        buffer, end = self._received, self._end
        frames: list[memoryview] = []
        start = 0
        filled = end == len(buffer)
        while end - start >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(buffer, start)
            if not 0 < size <= self._max_frame_bytes:
                raise self._refusal(size)
            stop = start + SIZE_BYTES + size
            if stop > end:
                if size + SIZE_BYTES > len(buffer):
                    self._begin_large(start + SIZE_BYTES, size)
                    return frames
                break
            frames.append(memoryview(buffer[start + SIZE_BYTES : stop]))
            start = stop
        if start:
            buffer[: end - start] = buffer[start:end]
            self._end = end - start
        if filled and len(buffer) < RECEIVE_BYTES_MAX:
            self._received = buffer + bytes(len(buffer))
        return frames

    def _refusal(self, size: int) -> InvalidFrame:
        if size > 0:
            return FrameTooLarge(size, self._max_frame_bytes)
        return InvalidFrame(f"a frame of {size} bytes was announced")

    def _begin_large(self, start: int, size: int) -> None:
        """Move the beginning of a frame that the receive buffer cannot hold into a buffer of its own."""
        head = memoryview(self._received)[start : self._end]
        self._frame_bytes = size
        self._frame = frame = bytearray(min(size, max(TRUSTED_BYTES, len(head))))
        frame[: len(head)] = head
        self._end = len(head)
        if len(self._received) < RECEIVE_BYTES_MAX:
            head.release()
            self._received = bytearray(2 * len(self._received))

    def _continue_large(self, frame: bytearray) -> list[memoryview]:
        if self._end < len(frame):
            return []
        if len(frame) < self._frame_bytes:
            grown = bytearray(min(self._frame_bytes, 2 * len(frame)))
            grown[: len(frame)] = frame
            self._frame = grown
            return []
        self._frame = None
        self._end = 0
        return [memoryview(frame)]
