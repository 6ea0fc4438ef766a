"""A TCP proxy in front of a broker that understands frames: it records requests, and loses answers on demand.

Clients find their way back to it because the broker behind it advertises the proxy's address.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One request frame, without its size prefix, and what its header starts with."""

    api_key: int
    api_version: int
    frame: bytes


class Proxy:
    """Use as a context manager; set `target` before clients connect."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._lose: Counter[int] = Counter()
        self.target: tuple[str, int] = ("127.0.0.1", 0)
        self.recorded: list[RecordedRequest] = []
        self.lost = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def lose_answers(self, api_key: int, count: int) -> None:
        """For the next `count` answers to `api_key`: throw the answer away and cut the connection instead."""
        with self._lock:
            self._lose[api_key] = count
            self.lost = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                _cut(connection)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open += [client, broker]
            asked: dict[int, int] = {}
            for work in (self._requests, self._answers):
                threading.Thread(target=work, args=(client, broker, asked), name="proxy", daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        for frame in _frames(client):
            api_key, api_version, correlation_id = struct.unpack_from(">hhi", frame)
            with self._lock:
                asked[correlation_id] = api_key
                self.recorded.append(RecordedRequest(api_key=api_key, api_version=api_version, frame=frame))
            if not _send(broker, frame):
                break
        _cut(client, broker)

    def _answers(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        for frame in _frames(broker):
            (correlation_id,) = struct.unpack_from(">i", frame)
            with self._lock:
                api_key = asked.pop(correlation_id, -1)
                lose = self._lose[api_key] > 0
                if lose:
                    self._lose[api_key] -= 1
                    self.lost += 1
            if lose or not _send(client, frame):
                break
        _cut(client, broker)


def _frames(source: socket.socket) -> Iterator[bytes]:
    while True:
        size = _exactly(source, 4)
        if size is None:
            return
        frame = _exactly(source, struct.unpack(">i", size)[0])
        if frame is None:
            return
        yield frame


def _exactly(source: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        try:
            part = source.recv(min(count - len(parts), 1 << 20))
        except OSError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)


def _send(sink: socket.socket, frame: bytes) -> bool:
    try:
        sink.sendall(struct.pack(">i", len(frame)) + frame)
    except OSError:
        return False
    return True


def _cut(*sockets: socket.socket) -> None:
    for connection in sockets:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        connection.close()
