"""One connection to another broker: requests out, pipelined; answers in, in the same order (Kafka's contract).

An overdue response means that the broker, or the network to it, is stuck, and so are all later requests: the
connection is closed, and every request in flight fails. Whether the broker acted on them is then unknown. So
a half-open connection, whose peer lost its power, costs at most the timeout of its oldest request.

Answers are received straight into the frame reader's buffers, and decoded in place.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from odradek.model.errors import ErrorCode, ErrorValue, KafkaError, OdradekError
from odradek.model.lazy import lazy
from odradek.model.ports import check_port
from odradek.model.version import __version__
from odradek.protocol import (
    Api,
    FieldNotInVersion,
    FrameReader,
    Message,
    RequestHeader,
    UnencodableMessage,
    VersionRange,
    api_by_name,
    api_of,
    correlation_id_of,
    decode_response,
    encode_flexible_request,
    encode_request_chunks,
)
from odradek.protocol.api import BROKER_SOFTWARE
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from odradek.net import outgoing_security
    from odradek.net.outgoing_security import OutgoingSecurity
    from odradek.security.tls import contexts
else:
    outgoing_security = lazy("odradek.net.outgoing_security")
    contexts = lazy("odradek.security.tls.contexts")

_API_VERSIONS: Final = api_by_name("ApiVersions")
_OLDEST_GREETING: Final = 0
"""The version of ApiVersions that every broker answers, and in which it refuses the others."""
_REFUSED: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
_CORRELATION_ID_MAX: Final = 0x7FFF_FFFF
_COALESCE_BYTES: Final = 64 * 1024
"""The most bytes for which one joined write is cheaper than several."""
_GATHERS: Final = sys.version_info >= (3, 12)  # from 3.12 on, `writelines` is one sendmsg; before, it joins
FRAME_BYTES_MAX: Final = 1 << 30
_LIFETIME_USED: Final = 0.85
"""The part of a login's lifetime after which it is renewed, as in Kafka's clients."""
_TRUSTED_BYTES: Final = 16 * 1024 * 1024
"""How many bytes a broker's announcement of a large answer may make us allocate at once."""
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_ERRNO: Final = re.compile(r"\[Errno ([0-9]+)\]")


class PeerUnreachable(OdradekError):
    """The error of a request to another broker that got no response. There may be none for a while; the
    message has the reason.

    `refused`: nothing listens at the broker's address. `sent`: the request may have reached it, so it is unknown whether it
    acted."""

    def __init__(self, message: str, *, refused: bool = False, sent: bool = False) -> None:
        super().__init__(message)
        self.refused: Final = refused
        self.sent: Final = sent


AnswerReceiver = Callable[[memoryview, asyncio.Future[Message]], bool]
"""Called with the frame of an answer in the newest version of its API, and the future of the request. Returns False, with
nothing done, for an answer that the future is to get; else the receiver settles the future."""


class _Pending(NamedTuple):
    correlation_id: int
    api: Api
    version: int
    deadline: float
    answer: asyncio.Future[Message]
    receive: AnswerReceiver | None


class PeerConnection(asyncio.BufferedProtocol):
    """One connection to another broker. `open` it; once `closed` it stays closed. Used on the event loop."""

    def __init__(
        self, peer: str, *, client_id: str, now: Callable[[], float], on_lost: Callable[[], None]
    ) -> None:
        self._peer = peer
        self._client_id = client_id
        self._now = now
        self._on_lost = on_lost
        self._frames = FrameReader(FRAME_BYTES_MAX, trusted_bytes=_TRUSTED_BYTES)
        self._transport: asyncio.Transport | None = None
        self._pending: deque[_Pending] = deque()
        self._last_id = 0
        self._offered: dict[int, VersionRange] = {}
        self._failure: ErrorValue[PeerUnreachable] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self.has_answered = False
        """More than the greeting."""
        self._expires = float("inf")
        self._is_retired = False

    @classmethod
    async def open(
        cls,
        peer: str,
        address: tuple[str, int],
        *,
        client_id: str,
        now: Callable[[], float],
        timeout_s: float,
        on_lost: Callable[[], None],
        security: OutgoingSecurity | None = None,
    ) -> PeerConnection:
        """Connects, logs in and agrees on versions. Raises PeerUnreachable, in plain words, when that fails or takes too long.

        `on_lost` is called when the other side, or the network, ends the connection.
        """
        connection = cls(peer, client_id=client_id, now=now, on_lost=on_lost)
        try:
            check_port(address[1])
            async with asyncio.timeout(timeout_s):
                loop = asyncio.get_running_loop()
                if security is None:
                    await loop.create_connection(lambda: connection, *address)
                    await connection._greet(timeout_s)
                else:
                    await connection._open_secured(security, address, timeout_s)
        except TimeoutError as error:
            connection.close()
            raise PeerUnreachable(f"{peer} did not answer within {timeout_s:g} s") from error
        except OverflowError as error:
            connection.close()
            raise PeerUnreachable(f"{peer}: {error}") from error
        except OSError as error:
            connection.close()
            raise PeerUnreachable(f"{peer}: {error}", refused=_was_refused(error)) from error
        except BaseException:
            connection.close()
            raise
        return connection

    async def _open_secured(
        self, security: OutgoingSecurity, address: tuple[str, int], timeout_s: float
    ) -> None:
        secured = outgoing_security.SecuredProtocol(self, security, address[0], timeout_s=timeout_s)
        try:
            await asyncio.get_running_loop().create_connection(lambda: secured.protocol, *address)
            await secured.handshake
            await self._greet(timeout_s)
            if security.login is not None:
                lifetime_ms = await outgoing_security.log_in(
                    partial(self._send_login, timeout_s), security.login, address[0]
                )
                if lifetime_ms:
                    self._expires = self._now() + lifetime_ms / 1000 * _LIFETIME_USED
        except outgoing_security.TlsFailure as error:
            reason = contexts.explain_tls(error.code, error.verify_code, str(error), address[0])
            raise PeerUnreachable(f"no TLS with {self._peer}: {reason}") from None
        except outgoing_security.LoginFailed as error:
            raise PeerUnreachable(f"{self._peer} does not let this broker in: {error}") from None
        except BaseException:
            secured.abort()
            raise

    def _send_login(self, timeout_s: float, request: Message) -> asyncio.Future[Message]:
        api = api_of(request)
        return self._send(api, api.latest_stable, request, timeout_s)

    # -- what users need

    @property
    def is_expiring(self) -> bool:
        """Whether the connection's login ends soon: use another connection, and `retire` this one."""
        return self._now() >= self._expires

    def retire(self) -> None:
        """Closes the connection once the requests under way are answered."""
        self._is_retired = True
        if not self._pending:
            self.close()

    @property
    def closed(self) -> bool:
        return self._failure is not None or self._transport is None or self._transport.is_closing()

    @property
    def in_flight(self) -> int:
        """The number of requests without a response yet."""
        return len(self._pending)

    def version_of(self, api: Api) -> int:
        """Returns the highest version that both sides know; raises PeerUnreachable when there is none."""
        offered = self._offered.get(api.key)
        if offered is not None:
            version = min(api.latest_stable, offered.max)
            if version >= max(offered.min, api.versions.min):
                return version
        speaks = f"only {offered}" if offered is not None else "none"
        raise PeerUnreachable(
            f"{self._peer} speaks no version of {api.name} that this broker knows"
            f" ({speaks}; known here: {VersionRange(api.versions.min, api.latest_stable)})"
        )

    def send(
        self, api: Api, request: Message, *, timeout_s: float, receive: AnswerReceiver | None = None
    ) -> asyncio.Future[Message]:
        """Sends now. The future gets the answer, unless `receive` applies it, or PeerUnreachable. Raises PeerUnreachable when
        nothing was sent."""
        return self._send(api, self.version_of(api), request, timeout_s, receive)

    def send_body(
        self,
        api: Api,
        version: int,
        body: bytes,
        *,
        timeout_s: float,
        reply: asyncio.Future[Message],
        receive: AnswerReceiver,
    ) -> None:
        """Sends a request that is encoded already. `reply` gets what `send` returns a future of. Raises PeerUnreachable when
        nothing was sent, also if `version` is not the one that both sides speak."""
        if self.version_of(api) != version:
            raise PeerUnreachable(f"{self._peer} does not speak {api.name} {version}")
        transport, correlation_id = self._next_request()
        frame = encode_flexible_request(
            RequestHeader(api.key, version, correlation_id, self._client_id), body
        )
        deadline = self._now() + timeout_s
        self._pending.append(_Pending(correlation_id, api, version, deadline, reply, receive))
        transport.write(frame)
        self._expect_answer(timeout_s)

    def close(self, reason: PeerUnreachable | None = None) -> None:
        """Closes at once; requests under way fail with `reason`. Idempotent."""
        if self._failure is None:
            reason = reason or PeerUnreachable(f"the connection to {self._peer} was closed", sent=True)
            self._failure = ErrorValue.of(reason)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending = self._pending, deque()
        for pending_request in pending:
            if not pending_request.answer.done():
                pending_request.answer.set_exception(self._failure.exception())

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self._transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        if self._failure is not None:  # closed while it was being made
            transport.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:  # asyncio has set TCP_NODELAY already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE:
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._receive(frame)
        except OdradekError as error:
            self.close(PeerUnreachable(f"{self._peer} sent what is no answer: {error}", sent=True))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if self._failure is not None:
            return
        detail = f": {error}" if error is not None else ""
        self.close(PeerUnreachable(f"{self._peer} closed the connection{detail}", sent=True))
        self._on_lost()

    # -- inside

    async def _greet(self, timeout_s: float) -> None:
        """Sends ApiVersions at our newest version, and once more at one that the peer names if it does not know ours."""
        version = _API_VERSIONS.latest_stable
        response = await self._request_versions(version, timeout_s)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and version > _OLDEST_GREETING:
            named = [
                api_key.max_version for api_key in response.api_keys if api_key.api_key == _API_VERSIONS.key
            ]
            again = max(_OLDEST_GREETING, min([*named[:1], version])) if named else _OLDEST_GREETING
            response = await self._request_versions(again, timeout_s)
        if response.error_code != ErrorCode.NONE:
            raise PeerUnreachable(
                f"{self._peer} refused ApiVersions: {ErrorCode.of(response.error_code).name}"
            )
        self._offered = {
            api_key.api_key: VersionRange(api_key.min_version, api_key.max_version)
            for api_key in response.api_keys
        }

    async def _request_versions(self, version: int, timeout_s: float) -> ApiVersionsResponse:
        request = ApiVersionsRequest(
            client_software_name=BROKER_SOFTWARE, client_software_version=__version__
        )
        response = await self._send(_API_VERSIONS, version, request, timeout_s)
        assert isinstance(response, ApiVersionsResponse)
        return response

    def _next_request(self) -> tuple[asyncio.Transport, int]:
        """Returns the transport, and the next correlation id. Raises PeerUnreachable for a connection that is closed."""
        transport = self._transport
        if self._failure is not None or transport is None or transport.is_closing():
            reason = self._failure.reason if self._failure is not None else f"{self._peer} is gone"
            raise PeerUnreachable(reason)
        self._last_id = self._last_id % _CORRELATION_ID_MAX + 1
        return transport, self._last_id

    def _send(
        self,
        api: Api,
        version: int,
        request: Message,
        timeout_s: float,
        receive: AnswerReceiver | None = None,
    ) -> asyncio.Future[Message]:
        transport, correlation_id = self._next_request()
        header = RequestHeader(api.key, version, correlation_id, self._client_id)
        try:
            chunks = encode_request_chunks(header, request)
        except (FieldNotInVersion, UnencodableMessage) as error:
            reason = f"{self._peer} speaks {api.name} {version}, which cannot say what is asked: {error}"
            raise PeerUnreachable(reason) from error
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        deadline = self._now() + timeout_s
        self._pending.append(_Pending(correlation_id, api, version, deadline, future, receive))
        if len(chunks) == 1:
            transport.write(chunks[0])
        elif _GATHERS or sum(map(len, chunks)) <= _COALESCE_BYTES:
            transport.writelines(chunks)
        else:
            for chunk in chunks:
                transport.write(chunk)
        self._expect_answer(timeout_s)
        return future

    def _expect_answer(self, timeout_s: float) -> None:
        if self._alarm is None:
            self._set_alarm(timeout_s)
        elif self._alarm.when() > asyncio.get_running_loop().time() + timeout_s:
            self._alarm.cancel()
            self._set_alarm(timeout_s)

    def _receive(self, frame: memoryview) -> None:
        correlation_id = correlation_id_of(frame)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"answer {correlation_id} is not the one awaited")
        request = self._pending.popleft()
        version = request.version
        if request.api is _API_VERSIONS:
            if bytes(frame[4:6]) == _REFUSED:
                version = _OLDEST_GREETING
        else:
            self.has_answered = True
        if (
            request.receive is None
            or version != request.api.latest_stable
            or not request.receive(frame, request.answer)
        ):
            self._decode(request, version, frame)
        if self._is_retired and not self._pending:
            self.close()

    def _decode(self, request: _Pending, version: int, frame: memoryview) -> None:
        try:
            _, message = decode_response(request.api.key, version, frame)
        except KafkaError as error:
            if not request.answer.done():
                reason = f"the answer of {self._peer} to {request.api.name} cannot be read: {error.message}"
                request.answer.set_exception(PeerUnreachable(reason, sent=True))
            raise
        if not request.answer.done():
            request.answer.set_result(message)

    def _set_alarm(self, delay_s: float) -> None:
        self._alarm = asyncio.get_running_loop().call_later(max(delay_s, 0.0), self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Checks deadlines with one alarm for all requests: it is set again as long as any is under way, not with each of
        them."""
        self._alarm = None
        if not self._pending:
            return
        now = self._now()
        first = min(self._pending, key=lambda waiting: waiting.deadline)
        if first.deadline > now:
            self._set_alarm(first.deadline - now)
            return
        reason = f"{self._peer} did not answer {first.api.name} in time; the connection was closed"
        self.close(PeerUnreachable(reason, sent=True))


def _was_refused(error: OSError) -> bool:
    """Returns whether nothing listens there. A name with several addresses gives one error that only quotes the others."""
    if isinstance(error, ConnectionRefusedError):
        return True
    quoted = _ERRNO.findall(str(error))
    return error.errno is None and bool(quoted) and set(quoted) == {str(errno.ECONNREFUSED)}
