"""A blocking connection to a broker, for tests on threads of their own: messages of the schemas, or bytes as they are."""

from __future__ import annotations

import socket
import struct
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from tests.kit.frames import receive_frame

from odradek.protocol import Message, RequestHeader, api_of, decode_response, encode_request

ANSWER_SECONDS: Final = 60.0


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT; the first, where there are several."""
    host, _, port = text.split(",")[0].rpartition(":")
    return host, int(port)


def request_frame(
    message: Message, version: int, correlation_id: int = 1, *, client_id: str = "hostile"
) -> bytes:
    """A whole request, its size in front."""
    header = RequestHeader(api_of(message).key, version, correlation_id, client_id)
    return encode_request(header, message)


class BlockingWire:
    """One connection; a context manager. `ask` sends and waits; `ask_later` and `response` pipeline.

    Raises ConnectionError when the broker closes, TimeoutError when it is silent for too long.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        timeout_s: float = ANSWER_SECONDS,
        client_id: str = "hostile",
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation_id = 0
        self._waiting: deque[tuple[int, int, int]] = deque()
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise

    def ask(self, message: Message, version: int | None = None) -> Any:
        """Returns the response to one request, in the newest version that is offered without another."""
        self.ask_later(message, version)
        return self.response()

    def ask_later(self, message: Message, version: int | None = None) -> None:
        """Sends a request; `response` returns the responses in the same order."""
        api = api_of(message)
        asked = api.latest_stable if version is None else version
        self._correlation_id += 1
        self.send(request_frame(message, asked, self._correlation_id, client_id=self._client_id))
        self._waiting.append((api.key, asked, self._correlation_id))

    def response(self) -> Any:
        api_key, version, expected = self._waiting.popleft()
        correlation_id, response = decode_response(api_key, version, self.receive())
        if correlation_id != expected:
            raise ConnectionError(f"answer {correlation_id} to request {expected}")
        return response

    def expect_no_response(self) -> None:
        """Says that the last request gets none: a produce request with acks=0."""
        self._waiting.pop()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """Returns the next frame, without its size."""
        return receive_frame(self.socket)

    def is_closed_within(self, seconds: float) -> bool:
        """Whether the broker hangs up in time; what it sends before is read and dropped."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def abandon(self) -> None:
        """Leave with a reset: nothing waits for what was under way."""
        with suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
