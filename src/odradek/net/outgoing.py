"""The bytes on their way to one peer.

On a plain socket, answers go from where they are straight into the kernel, several pieces with one system
call, and what the socket does not take waits here as it is. asyncio's own buffer would copy it, and it may be
memory that this process must not touch (`runtime/mapped_range.py`). To learn when there is room again, the
loop watches a duplicate of the descriptor, for it does not let anyone watch the transport's own. With TLS,
and in the simulator, everything goes through the transport.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from odradek.runtime.mapped_range import is_mapped, report_unreadable
from odradek.runtime.ports import Buffer
from odradek.telemetry import events

_log = events.caused_by_peers("net")
_COALESCE_BYTES: Final = 64 * 1024
"""The most bytes to join into one write; above this, copying costs more than several system calls."""
_PIECES_MAX: Final = 64


class Outgoing:
    """Writes to one transport, in order. `on_full` is called when the peer takes no more, `on_room` when it took all."""

    __slots__ = (
        "_descriptor",
        "_ending",
        "_on_full",
        "_on_room",
        "_queue",
        "_queued_bytes",
        "_socket_descriptor",
        "_transport",
        "_watched",
        "_written_bytes",
    )

    def __init__(
        self, transport: asyncio.Transport, *, on_full: Callable[[], None], on_room: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._socket_descriptor = _descriptor_of(transport)
        has_tls = transport.get_extra_info("sslcontext") is not None
        self._descriptor = None if has_tls else self._socket_descriptor
        """The descriptor to write to; None under TLS, which must not be bypassed."""
        self._on_full = on_full
        self._on_room = on_room
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._written_bytes = 0
        self._watched: int | None = None
        self._ending = False

    @property
    def is_direct(self) -> bool:
        """True if bytes reach the kernel without anyone reading them on the way."""
        return self._descriptor is not None

    @property
    def waits(self) -> bool:
        """True if something waits here for the peer to read."""
        return bool(self._queue)

    @property
    def size_bytes(self) -> int:
        """The bytes that the kernel has not taken yet."""
        return self._queued_bytes + self._transport.get_write_buffer_size()

    @property
    def memory_bytes(self) -> int:
        """The same without what is sent from files."""
        mapped = sum(len(piece) for piece in self._queue if is_mapped(piece))
        return self.size_bytes - mapped

    @property
    def sent_bytes(self) -> int:
        """How many bytes the kernel has taken in all."""
        return self._written_bytes - self.size_bytes

    @property
    def descriptor(self) -> int | None:
        """The descriptor of the socket, if there is one: for queries, not for writes."""
        return self._socket_descriptor

    def write(self, chunks: list[Buffer], total_bytes: int) -> None:
        self._written_bytes += total_bytes
        if total_bytes <= _COALESCE_BYTES:
            chunks = [chunks[0] if len(chunks) == 1 else b"".join(chunks)]
        if self._descriptor is None:
            self._transport.writelines(chunks)
            return
        if len(chunks) == 1 and not self._queue and self._watched is None:
            self._write_now(self._descriptor, chunks[0])
            return
        self._queue.extend(memoryview(chunk).cast("B") for chunk in chunks if len(chunk))
        self._queued_bytes += total_bytes
        if self._watched is None:
            self._pump(self._descriptor)

    def _write_now(self, descriptor: int, chunk: Buffer) -> None:
        """Writes one piece that nothing goes before, as most answers are; what the kernel does not take is queued."""
        if self._transport.is_closing():
            return
        try:
            sent = os.write(descriptor, chunk)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._broken(error, [memoryview(chunk)])
            return
        if sent < len(chunk):
            rest = memoryview(chunk).cast("B")[sent:]
            self._queue.append(rest)
            self._queued_bytes += len(rest)
            self._watch(descriptor)

    def close(self) -> None:
        """Closes the transport once everything has been sent."""
        self._ending = True
        if not self._queue:
            self._transport.close()

    def drop(self) -> None:
        """Drops unsent bytes: the connection is lost."""
        self._queue.clear()
        self._queued_bytes = 0
        self._unwatch()

    # -- a plain socket

    def _pump(self, descriptor: int) -> None:
        while self._queue and not self._transport.is_closing():
            pieces = list(islice(self._queue, _PIECES_MAX))
            try:
                sent = os.writev(descriptor, pieces)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._broken(error, pieces)
                return
            self._skip(sent)
            if self._queue and sent < sum(map(len, pieces)):
                self._watch(descriptor)
                return

    def _broken(self, error: OSError, pieces: list[memoryview]) -> None:
        if error.errno == errno.EFAULT:
            report_unreadable(pieces)
            _log.error("answer_unreadable", reason="the disk did not return bytes that a peer waits for")
        self.drop()
        self._transport.abort()

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

    def _watch(self, descriptor: int) -> None:
        if self._watched is not None:
            return
        try:
            self._watched = os.dup(descriptor)
        except OSError as error:
            _log.error("answer_given_up", reason=error)
            self.drop()
            self._transport.abort()
            return
        asyncio.get_running_loop().add_writer(self._watched, self._writable)
        self._on_full()

    def _unwatch(self) -> None:
        if self._watched is not None:
            asyncio.get_running_loop().remove_writer(self._watched)
            os.close(self._watched)
            self._watched = None

    def _writable(self) -> None:
        if self._descriptor is not None:
            self._pump(self._descriptor)
        if self._queue and not self._transport.is_closing():
            return
        self._unwatch()
        if self._ending:
            self._transport.close()
        else:
            self._on_room()


def break_own_cycle(transport: asyncio.Transport | None) -> None:
    """Removes a method of asyncio's socket transport that it keeps to read with. Once it is closed, that is of no use."""
    getattr(transport, "__dict__", {}).pop("_read_ready_cb", None)


def _descriptor_of(transport: asyncio.Transport) -> int | None:
    sock = transport.get_extra_info("socket")
    return int(sock.fileno()) if sock is not None and hasattr(sock, "fileno") else None
