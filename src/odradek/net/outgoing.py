"""The bytes on their way to one peer.

A large answer goes from where it is straight into the socket, several pieces with one system call; what the socket does not
take waits here as it is. asyncio's own buffer would copy all of that, twice, which costs more than everything else in a large
fetch. The transport is still what tells when the socket has room again: a small piece is handed to it, which it buffers, and
once that is gone it calls `resume_writing`.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from itertools import islice
from typing import Final

from odradek.runtime.ports import Buffer

_COALESCE_BYTES: Final = 64 * 1024
"""Below this much, one joined write beats several; above it, copying costs more than system calls do."""
_HANDOVER_BYTES: Final = 64 * 1024
_PIECES_MAX: Final = 64


class Outgoing:
    """Writes to one transport, in order. Its protocol calls `resume` from `resume_writing`."""

    __slots__ = ("_descriptor", "_ending", "_queue", "_queued_bytes", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._ending = False
        self._descriptor = _plain_socket(transport)
        if self._descriptor is not None:
            transport.set_write_buffer_limits(
                high=0
            )  # any byte that it keeps is announced, and so is its end

    @property
    def size_bytes(self) -> int:
        """What the kernel has not taken yet."""
        return self._queued_bytes + self._transport.get_write_buffer_size()

    def write(self, chunks: list[Buffer], total_bytes: int) -> None:
        if not self._queue:
            if len(chunks) == 1 and total_bytes <= _COALESCE_BYTES:
                self._transport.write(chunks[0])
                return
            if total_bytes <= _COALESCE_BYTES:
                self._transport.write(b"".join(chunks))
                return
        if self._descriptor is None:
            self._transport.writelines(chunks)
            return
        self._queue.extend(memoryview(chunk).cast("B") for chunk in chunks if len(chunk))
        self._queued_bytes += total_bytes
        self._pump()

    def resume(self) -> None:
        """The transport has handed on all that it held."""
        self._pump()
        if self._ending and not self._queue:
            self._transport.close()

    def close(self) -> None:
        """Close the transport once everything has been sent."""
        self._ending = True
        if not self._queue:
            self._transport.close()

    def drop(self) -> None:
        """Forget what was not sent: the connection is gone."""
        self._queue.clear()
        self._queued_bytes = 0

    def _pump(self) -> None:
        queue, transport = self._queue, self._transport
        while queue and not transport.get_write_buffer_size() and not transport.is_closing():
            if not self._send():
                piece = queue[0][:_HANDOVER_BYTES]
                self._skip(len(piece))
                transport.write(piece)

    def _send(self) -> bool:
        """Put as much as it takes into the socket; False when it is full, or broken (the transport will notice)."""
        assert self._descriptor is not None
        pieces = list(islice(self._queue, _PIECES_MAX))
        try:
            sent = os.writev(self._descriptor, pieces)
        except OSError:
            return False
        self._skip(sent)
        return sent == sum(map(len, pieces))

    def _skip(self, count: int) -> None:
        queue = self._queue
        self._queued_bytes -= count
        while count:
            head = queue[0]
            if len(head) > count:
                queue[0] = head[count:]
                return
            count -= len(head)
            queue.popleft()


def _plain_socket(transport: asyncio.Transport) -> int | None:
    """The descriptor under a transport that changes nothing on the way; None behind TLS, and in the simulator."""
    sock = transport.get_extra_info("socket")
    if sock is None or not hasattr(sock, "fileno") or transport.get_extra_info("sslcontext") is not None:
        return None
    return int(sock.fileno())
