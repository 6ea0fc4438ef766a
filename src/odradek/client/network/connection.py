"""One connection to one broker: requests out, pipelined; answers in, in the same order (Kafka's contract).

`RequestQueue` is the part without I/O: which answer belongs to which request, and when one is overdue. `BrokerConnection` puts
it on a socket. An overdue answer means that the broker, or the way to it, is stuck, and everything behind it is stuck as
well: the connection is closed, and every request under way fails with NETWORK_EXCEPTION or REQUEST_TIMED_OUT. Whether
the broker acted on them is then unknown.

A broker that asks for a pause (`throttled.py`) gets it: requests wait here, in their order, and neither they nor those under
way spend their time meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.client.errors import BrokerUnreachableError, TimedOutError, WrongPeerError
from odradek.client.network.address import Address
from odradek.client.network.api_versions import GREETING_FALLBACK, PeerVersions, greeting_retry
from odradek.client.network.throttled import ThrottleState
from odradek.client.network.wrong_peer import (
    closed_unanswered,
    closed_while_greeting,
    connect_problem,
    describe_peer,
)
from odradek.client.settings import ClientSettings
from odradek.model.errors import ConfigError, ErrorCode, ErrorValue, KafkaError
from odradek.model.lazy import lazy
from odradek.model.version import __version__
from odradek.protocol import (
    Api,
    Buffer,
    FrameReader,
    InvalidFrame,
    Message,
    RequestHeader,
    api_by_name,
    api_of,
    correlation_id_of,
    decode_response,
    encode_request_chunks,
)
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.runtime.ports import Clock

if TYPE_CHECKING:
    from odradek.client.network import security as network_security
    from odradek.net import outgoing_security
    from odradek.net.outgoing_security import LoginCredentials, OutgoingSecurity
else:
    network_security = lazy("odradek.client.network.security")
    outgoing_security = lazy("odradek.net.outgoing_security")

SOFTWARE_NAME: Final = "odradek"
_COALESCE_BYTES: Final = 64 * 1024
"""Below this much, one joined write beats several; above it, copying costs more than system calls do."""
_GATHERS: Final = sys.version_info >= (3, 12)  # from 3.12 on, `writelines` is one sendmsg; before, it joins
_LIFETIME_USED: Final = 0.85
"""Of a login's lifetime, before it is renewed."""
_CORRELATION_ID_MAX: Final = 0x7FFF_FFFF
_API_VERSIONS: Final = api_by_name("ApiVersions")
_REFUSED: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class PendingRequest(NamedTuple):
    """A request whose answer is to come."""

    correlation_id: int
    api: Api
    version: int
    deadline: float
    answer: asyncio.Future[Any]


class HeldRequest(NamedTuple):
    """A request that waits until the broker may be asked again."""

    api: Api
    version: int
    message: Message
    answer: asyncio.Future[Any] | None
    """None for a request that is not answered."""
    timeout_s: float | None


class RequestQueue:
    """The requests under way on one connection, oldest first. No I/O."""

    __slots__ = ("_pending", "last_id")

    def __init__(self) -> None:
        self._pending: deque[PendingRequest] = deque()
        self.last_id = 0

    def __len__(self) -> int:
        return len(self._pending)

    def next_id(self) -> int:
        self.last_id = self.last_id % _CORRELATION_ID_MAX + 1
        return self.last_id

    def sent(self, request: PendingRequest) -> None:
        self._pending.append(request)

    def answered(self, frame: Buffer) -> PendingRequest:
        """The request that `frame` answers. KafkaError when it is not the oldest: the stream is out of step."""
        correlation_id = correlation_id_of(frame)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            expected = self._pending[0].correlation_id if self._pending else "none"
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"an answer to request {correlation_id} came, the one awaited is {expected}",
            )
        return self._pending.popleft()

    def overdue(self, now: float) -> PendingRequest | None:
        return next(
            (pending_request for pending_request in self._pending if pending_request.deadline <= now), None
        )

    @property
    def next_deadline(self) -> float | None:
        return min((pending_request.deadline for pending_request in self._pending), default=None)

    def postpone(self, by_s: float) -> None:
        """Give every request that much more time."""
        self._pending = deque(
            pending_request._replace(deadline=pending_request.deadline + by_s)
            for pending_request in self._pending
        )

    def clear(self) -> list[PendingRequest]:
        """Take all: they will not be answered."""
        pending = list(self._pending)
        self._pending.clear()
        return pending


class BrokerConnection(asyncio.BufferedProtocol):
    """Open with `BrokerConnection.open`. Lives on one event loop."""

    def __init__(self, address: Address, settings: ClientSettings, clock: Clock) -> None:
        self.address: Final = address
        self._settings = settings
        self._clock = clock
        self._requests = RequestQueue()
        self._frames = FrameReader(settings.response_bytes_max)
        self._view: memoryview | None = None
        self._transport: asyncio.Transport | None = None
        self._versions = PeerVersions({}, str(address))
        self._greeted = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._failure: ErrorValue[KafkaError] | None = None
        self._used_at = clock.monotonic()
        self._takes_bytes = True
        self._mute = ThrottleState()
        self._held: deque[HeldRequest] = deque()
        self._end_of_mute: asyncio.TimerHandle | None = None
        self._login: LoginCredentials | None = None
        self._is_logging_in = False
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._answers = 0
        """After the greeting."""
        self.on_writable: Callable[[], None] = _nothing
        self.on_closed: Callable[[], None] = _nothing

    @classmethod
    async def open(
        cls,
        address: Address,
        settings: ClientSettings,
        clock: Clock,
        security: OutgoingSecurity | None = None,
    ) -> BrokerConnection:
        """Connect, agree on versions and log in. BrokerUnreachableError, WrongPeerError or LoginError in words for people."""
        connection = cls(address, settings, clock)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(settings.socket_connection_setup_timeout_ms / 1000):
                if security is None:
                    await loop.create_connection(lambda: connection, address.host, address.port)
                    await connection._greet()
                else:
                    await connection._open_secured(security)
        except (OSError, TimeoutError) as error:
            connection.close()
            raise BrokerUnreachableError(connect_problem(address, error)) from error
        except BaseException:
            connection.close()
            raise
        return connection

    async def _open_secured(self, security: OutgoingSecurity) -> None:
        address = self.address
        timeout_s = self._settings.socket_connection_setup_timeout_ms / 1000
        secured = outgoing_security.SecuredProtocol(self, security, address.host, timeout_s=timeout_s)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: secured.protocol, address.host, address.port
            )
            await secured.handshake
            await self._greet()
            if security.login is not None:
                self._login = security.login
                self._is_logging_in = True
                await self._log_in(security.login)
                self._is_logging_in = False
        except (outgoing_security.TlsFailure, outgoing_security.LoginFailed, ConfigError) as error:
            raise network_security.explained(address, error) from None

    async def _log_in(self, login: LoginCredentials) -> None:
        lifetime_ms = await outgoing_security.log_in(self._send_login, login, self.address.host)
        if lifetime_ms:
            delay_s = lifetime_ms / 1000 * _LIFETIME_USED
            self._renewal = asyncio.get_running_loop().call_later(delay_s, self._begin_renewal)

    def _send_login(self, message: Message) -> asyncio.Future[Any]:
        api = api_of(message)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._transmit(api, self._versions.choose(api), message, future, None)
        return future

    def _begin_renewal(self) -> None:
        """Log in again (KIP-368): what is under way is answered before, what comes now waits."""
        if not self.closed:
            self._is_logging_in = True
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        assert self._login is not None
        try:
            await self._log_in(self._login)
        except (outgoing_security.LoginFailed, ConfigError) as error:
            self.close(network_security.explained(self.address, error))
        except KafkaError as error:
            self.close(error)
        else:
            self._is_logging_in = False
            if self._end_of_mute is None:
                self._send_held()

    # -- what users of a connection need

    @property
    def closed(self) -> bool:
        return self._failure is not None or self._transport is None or self._transport.is_closing()

    @property
    def writable(self) -> bool:
        """False while the peer does not take what was written, or asked to be left alone; `on_writable` ends both."""
        return self._takes_bytes and self._end_of_mute is None and not self._is_logging_in

    @property
    def in_flight(self) -> int:
        """Requests whose answers are to come."""
        return len(self._requests) + len(self._held)

    @property
    def idle_s(self) -> float:
        """Seconds since something was last sent or received; 0 while an answer is awaited."""
        return 0.0 if self.in_flight else self._clock.monotonic() - self._used_at

    def version_of(self, api: Api, *, at_most: int | None = None) -> int:
        """What `send` would choose; UNSUPPORTED_VERSION when there is no common version."""
        return self._versions.choose(api, at_most=at_most)

    def offers(self, api: Api) -> bool:
        return self._versions.offers(api)

    def feature(self, name: str) -> int:
        """The level of a feature that the cluster has agreed on; 0 where it has not."""
        return self._versions.features.get(name, 0)

    def send(
        self, message: Message, *, at_most: int | None = None, timeout_s: float | None = None
    ) -> asyncio.Future[Any]:
        """Send now, or when the broker's mute ends; `timeout_s` counts from then. The future gets the response message, or
        a KafkaError (NETWORK_EXCEPTION: unknown).
        """
        api = api_of(message)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            version = self._versions.choose(api, at_most=at_most)
            self._transmit_or_hold(HeldRequest(api, version, message, future, timeout_s))
        except KafkaError as error:
            future.set_exception(error)
        return future

    def send_unanswered(self, message: Message, *, at_most: int | None = None) -> None:
        """Send a request to which brokers do not answer (Produce with acks=0)."""
        api = api_of(message)
        version = self._versions.choose(api, at_most=at_most)
        self._transmit_or_hold(HeldRequest(api, version, message, None, None))

    def close(self, reason: KafkaError | None = None) -> None:
        """Close at once; requests under way fail with `reason`. Idempotent."""
        if self._failure is None:
            reason = reason or BrokerUnreachableError(f"the connection to {self.address} was closed")
            self._failure = ErrorValue.of(reason)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for timer in (self._end_of_mute, self._renewal):
            if timer is not None:
                timer.cancel()
        self._end_of_mute = self._renewal = None
        if self._transport is not None:
            self._transport.abort()
        self._fail_pending(self._failure)

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self._tune(sock)

    def get_buffer(self, sizehint: int) -> memoryview:
        self._view = self._frames.get_buffer(sizehint)
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        if not self._greeted and self._view is not None:
            stranger = describe_peer(bytes(self._view[: min(nbytes, 16)]))
            if stranger:
                self.close(WrongPeerError(f"what listens at {self.address} {stranger}"))
                return
        self._view = None
        self._used_at = self._clock.monotonic()
        try:
            for frame in self._frames.received(nbytes):
                self._receive(frame)
        except InvalidFrame as error:
            words = "sent" if self._greeted else "does not speak Kafka: it sent"
            self.close(
                WrongPeerError(
                    f"what listens at {self.address} {words} bytes that are no answer ({error.message})"
                )
            )
        except KafkaError as error:
            self.close(BrokerUnreachableError(f"{self.address}: {error.message}"))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        has_tls = exc is not None and self._settings.uses_tls
        if self._failure is None and has_tls and isinstance(exc, outgoing_security.TlsFailure):
            # A server judges a client's certificate after the handshake.
            self._failure = ErrorValue.of(network_security.explained(self.address, exc))
        if self._failure is None:
            protocol = self._settings.security_protocol
            if not self._greeted:
                reason = closed_while_greeting(self.address, protocol)
            elif not self._answers and len(self._requests):
                reason = closed_unanswered(self.address, protocol)
            else:
                detail = f": {exc}" if exc is not None else ""
                reason = f"{self.address} closed the connection{detail}"
            self._failure = ErrorValue.of(BrokerUnreachableError(reason))
        self.close()
        self.on_closed()

    def pause_writing(self) -> None:
        self._takes_bytes = False

    def resume_writing(self) -> None:
        self._takes_bytes = True
        self.on_writable()

    # -- inside

    async def _greet(self) -> None:
        """ApiVersions at our newest version, and once more at one that the broker names if it does not know ours."""
        version = _API_VERSIONS.latest_stable
        response = await self._request_versions(version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and version > GREETING_FALLBACK:
            response = await self._request_versions(greeting_retry(response, _API_VERSIONS))
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(response.error_code), f"{self.address} refused ApiVersions")
        self._versions = PeerVersions.from_answer(response, str(self.address))
        self._greeted = True

    async def _request_versions(self, version: int) -> ApiVersionsResponse:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        self._transmit(_API_VERSIONS, version, request, future, None)
        reply = await future
        assert isinstance(reply, ApiVersionsResponse)
        return reply

    def _transmit_or_hold(self, request: HeldRequest) -> None:
        if self._end_of_mute is None and not self._is_logging_in:
            self._transmit_held(request)
        else:
            self._held.append(request)

    def _transmit_held(self, request: HeldRequest) -> None:
        if request.answer is None:
            self._write(request.api, request.version, self._requests.next_id(), request.message)
        else:
            self._transmit(request.api, request.version, request.message, request.answer, request.timeout_s)

    def _throttled(self, throttle_ms: int) -> None:
        """The broker reads nothing for a while: nothing is sent to it, and no time passes for what was."""
        now = self._clock.monotonic()
        longer_s = self._mute.record(throttle_ms, now)
        if longer_s > 0:
            self._requests.postpone(longer_s)
            if self._end_of_mute is None:
                self._wait_out_mute(now)

    def _wait_out_mute(self, now: float) -> None:
        left_s = self._mute.left_s(now)
        self._end_of_mute = asyncio.get_running_loop().call_later(left_s, self._end_mute)

    def _end_mute(self) -> None:
        self._end_of_mute = None
        now = self._clock.monotonic()
        if self._mute.left_s(now) > 0:
            self._wait_out_mute(now)
        elif not self._is_logging_in:
            self._send_held()

    def _send_held(self) -> None:
        while self._held:
            request = self._held.popleft()
            if request.answer is not None and request.answer.done():
                continue  # nothing waits for it any more
            try:
                self._transmit_held(request)
            except KafkaError as error:
                if request.answer is not None:
                    request.answer.set_exception(error)
        self.on_writable()

    def _transmit(
        self, api: Api, version: int, message: Message, future: asyncio.Future[Any], timeout_s: float | None
    ) -> None:
        correlation_id = self._requests.next_id()
        self._write(api, version, correlation_id, message)
        wait_s = self._settings.request_timeout_ms / 1000 if timeout_s is None else timeout_s
        deadline = self._clock.monotonic() + wait_s
        self._requests.sent(PendingRequest(correlation_id, api, version, deadline, future))
        if self._timer is None or deadline < self._timer_due:
            self._arm(deadline)

    def _write(self, api: Api, version: int, correlation_id: int, message: Message) -> None:
        if self._failure is not None:
            raise self._failure.exception()
        transport = self._transport
        if transport is None or transport.is_closing():
            raise BrokerUnreachableError(f"the connection to {self.address} is closed")
        header = RequestHeader(api.key, version, correlation_id, self._settings.client_id)
        chunks = encode_request_chunks(header, message)
        self._used_at = self._clock.monotonic()
        if len(chunks) == 1:
            transport.write(chunks[0])
        elif _GATHERS or sum(map(len, chunks)) <= _COALESCE_BYTES:
            transport.writelines(chunks)
        else:
            for chunk in chunks:
                transport.write(chunk)

    def _receive(self, frame: memoryview) -> None:
        request = self._requests.answered(frame)
        version = request.version
        if request.api is _API_VERSIONS and bytes(frame[4:6]) == _REFUSED:
            version = GREETING_FALLBACK  # a broker that does not know our version answers in this one
        self._answers += self._greeted
        try:
            _, message = decode_response(request.api.key, version, frame)
        except KafkaError as error:
            if not request.answer.done():
                request.answer.set_exception(_unreadable(request.api, self.address, error))
            raise
        throttle_ms = getattr(message, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._throttled(throttle_ms)
        if not request.answer.done():
            request.answer.set_result(message)

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = deadline
        delay = max(0.0, deadline - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        late = self._requests.overdue(self._clock.monotonic())
        if late is not None:
            problem = f"{self.address} did not answer {late.api.name} in time; the connection was closed"
            self.close(TimedOutError(problem))
            return
        following = self._requests.next_deadline
        if following is not None:
            self._arm(following)

    def _fail_pending(self, failure: ErrorValue[KafkaError]) -> None:
        under_way = [pending_request.answer for pending_request in self._requests.clear()]
        held = [held_request.answer for held_request in self._held if held_request.answer is not None]
        self._held.clear()
        for future in under_way + held:
            if not future.done():
                future.set_exception(failure.exception())

    def _tune(self, sock: socket.socket) -> None:
        """Options of TCP; asyncio has set TCP_NODELAY already."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._settings.send_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.send_buffer_bytes)
        if self._settings.receive_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings.receive_buffer_bytes)


def _unreadable(api: Api, address: Address, error: KafkaError) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST, f"the answer of {address} to {api.name} cannot be read: {error.message}"
    )


def _nothing() -> None:
    return None
