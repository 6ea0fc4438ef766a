"""A client of the broker in simulation: the protocol package over one connection, requests pipelined."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Final, TypeVar, cast

from odradek.net.outgoing_security import LoginCredentials, log_in
from odradek.protocol import (
    FrameReader,
    Message,
    RequestHeader,
    correlation_id_of,
    decode_response,
    encode_request,
)
from odradek.protocol.messages.security.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.messages.security.sasl_handshake import SaslHandshakeResponse

ANSWER_S_MAX: Final = 10.0
_FRAME_BYTES_MAX: Final = 16 << 20
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 2
M = TypeVar("M", bound=Message)


class WireClient(asyncio.BufferedProtocol):
    """One connection. When it is lost, everything under way fails with ConnectionError."""

    def __init__(self, api_timeout_s: float = ANSWER_S_MAX) -> None:
        self._api_timeout_s = api_timeout_s
        self._frames = FrameReader(_FRAME_BYTES_MAX)
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Message]]] = deque()
        self._sent = 0
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        api_timeout_s: float = ANSWER_S_MAX,
        login: LoginCredentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> WireClient:
        """Connects, and logs in. `api_timeout_s` bounds the wait for the connection, and for each answer. Raises
        LoginFailed."""
        async with asyncio.timeout(api_timeout_s):
            _, client = await asyncio.get_running_loop().create_connection(
                lambda: cls(api_timeout_s), host, port, ssl=tls
            )
        if login is not None:
            try:
                await log_in(client._send_login, login, host)
            except BaseException:
                client.close()
                raise
        return client

    async def _send_login(self, request: Message) -> Message:
        if isinstance(request, SaslAuthenticateRequest):
            return await self.call(request, _AUTHENTICATE_VERSION, SaslAuthenticateResponse)
        return await self.call(request, _HANDSHAKE_VERSION, SaslHandshakeResponse)

    def send(self, request: Message, version: int) -> asyncio.Future[Message]:
        """Send now; the future is the answer."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is lost")
        self._sent += 1
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        key = type(request).API_KEY
        assert key is not None
        header = RequestHeader(key, version, self._sent, "simulated")
        self._waiting.append((self._sent, header.api_key, version, future))
        self._transport.write(encode_request(header, request))
        return future

    async def call(self, request: Message, version: int, answer_type: type[M]) -> M:
        """Send, and wait a bounded time."""
        return await self.answer(self.send(request, version), answer_type)

    async def answer(self, future: asyncio.Future[Message], answer_type: type[M]) -> M:
        async with asyncio.timeout(self._api_timeout_s):
            return cast(M, await future)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        for frame in self._frames.received(nbytes):
            self._answered(frame)

    def _answered(self, frame: memoryview) -> None:
        number, api_key, version, future = self._waiting.popleft()
        if correlation_id_of(frame) != number:
            raise AssertionError(f"answer {correlation_id_of(frame)} came where {number} was due")
        _, message = decode_response(api_key, version, bytes(frame))
        if not future.done():
            future.set_result(message)

    def connection_lost(self, exc: Exception | None) -> None:
        while self._waiting:
            future = self._waiting.popleft()[3]
            if not future.done():
                future.set_exception(ConnectionResetError("the connection was lost under way"))
                future.exception()  # the waiter sees it; no one has to
