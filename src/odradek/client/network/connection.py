"""One connection to one broker: requests out, pipelined; answers in, in the same order (Kafka's contract).

`RequestQueue` (`requests.py`) is the part without I/O: which answer belongs to which request, and when one is
overdue. `BrokerConnection` puts it on a socket. An overdue response means that the broker, or the network to
it, is stuck, and so are all later requests: the connection is closed, and every request in flight fails with
NETWORK_EXCEPTION or REQUEST_TIMED_OUT. Whether the broker acted on them is then unknown.

A broker that asks for a pause gets it (`throttled.py`): requests wait in their order, and neither they nor those under way
spend their time meanwhile. They wait for a login as well.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from odradek.client.network.api_versions import GREETING_FALLBACK, PeerVersions, greeting_retry
from odradek.client.network.errors import BrokerUnreachableError, TimedOutError, WrongPeerError
from odradek.client.network.requests import OutgoingRequest, PendingRequest, RequestQueue
from odradek.client.network.throttled import SendGate
from odradek.client.network.wrong_peer import (
    closed_unanswered,
    closed_while_greeting,
    connect_problem,
    describe_peer,
)
from odradek.client.settings.address import Address
from odradek.client.settings.settings import ClientSettings
from odradek.model.errors import ConfigError, ErrorCode, ErrorValue, KafkaError
from odradek.model.lazy import lazy
from odradek.model.ports import check_port
from odradek.model.version import __version__
from odradek.protocol import (
    Api,
    FrameReader,
    InvalidFrame,
    Message,
    RequestHeader,
    api_by_name,
    api_of,
    decode_response,
    encode_request_chunks,
)
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.records import engine
from odradek.runtime.ports import Clock

if TYPE_CHECKING:
    from odradek.client.network import security as network_security
    from odradek.client.network.security import ConnectionLogin
    from odradek.net import outgoing_security
    from odradek.net.outgoing_security import OutgoingSecurity
else:
    network_security = lazy("odradek.client.network.security")
    outgoing_security = lazy("odradek.net.outgoing_security")

SOFTWARE_NAME: Final = "odradek"
_COALESCE_BYTES: Final = 64 * 1024
"""Below this size, one joined write is faster than several; above it, copying costs more than system calls do."""
_TRUSTED_BYTES: Final = 16 * 1024 * 1024
"""The size that a broker which has sent large answers may announce: their memory stays in the process and is used again."""
_GATHERS: Final = sys.version_info >= (3, 12)  # from 3.12 on, `writelines` is one sendmsg; before, it joins
_API_VERSIONS: Final = api_by_name("ApiVersions")
_REFUSED: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class BrokerIdentity(NamedTuple):
    """The broker that a client means to reach at an address (KIP-1242)."""

    cluster_id: str | None
    node_id: int


_ANY_BROKER: Final = BrokerIdentity(None, -1)


class MisroutedError(BrokerUnreachableError):
    """The broker at an address is not the one that the metadata names there. Retriable: fresh metadata has
    the right address."""

    def __init__(self, address: Address, identity: BrokerIdentity) -> None:
        super().__init__(
            f"the broker at {address} is not broker {identity.node_id} of cluster {identity.cluster_id!r}, as the metadata"
            " says: the cluster is asked again who is where"
        )


class BrokerConnection(asyncio.BufferedProtocol):
    """One connection to one broker. Open it with `BrokerConnection.open`. It belongs to one event loop."""

    def __init__(self, address: Address, settings: ClientSettings, clock: Clock) -> None:
        self.address: Final = address
        self._settings = settings
        self._clock = clock
        self._requests = RequestQueue()
        self._frames = FrameReader(
            settings.response_bytes_max, trusted_bytes=_TRUSTED_BYTES, allocate=engine.active.allocate
        )
        self._view: memoryview | None = None
        self._transport: asyncio.Transport | None = None
        self._versions = PeerVersions({}, str(address))
        self._greeted = False
        self._identity: BrokerIdentity | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._failure: ErrorValue[KafkaError] | None = None
        self._used_at = clock.monotonic()
        self._takes_bytes = True
        self._gate = SendGate(clock, self._transmit, on_open=self._opened)
        self._login: ConnectionLogin | None = None
        self._answers = 0
        """The number of answers after the greeting."""
        self.on_writable: Callable[[], None] = _nothing
        self.on_closed: Callable[[], None] = _nothing

    @classmethod
    async def open(
        cls,
        address: Address,
        settings: ClientSettings,
        clock: Clock,
        security: OutgoingSecurity | None = None,
        identity: BrokerIdentity | None = None,
    ) -> BrokerConnection:
        """Connect, agree on versions and log in. BrokerUnreachableError, WrongPeerError or LoginError in words for people.

        `identity`: the broker that should be there; MisroutedError if a broker that can tell is another one."""
        connection = cls(address, settings, clock)
        connection._identity = identity
        try:
            async with asyncio.timeout(settings.socket_connection_setup_timeout_ms / 1000):
                if security is None:
                    await _connect(address, connection)
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
            await _connect(address, secured.protocol)
            await secured.handshake
            await self._greet()
            if security.login is not None:
                self._login = network_security.ConnectionLogin(
                    self.address, security.login, self._gate, send=self._send_login, on_failed=self.close
                )
                await self._login.log_in()
        except (outgoing_security.TlsFailure, outgoing_security.LoginFailed, ConfigError) as error:
            raise network_security.explained(address, error) from None
        except BaseException:
            secured.abort()
            raise

    def _send_login(self, message: Message) -> asyncio.Future[object]:
        api = api_of(message)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._transmit(OutgoingRequest(api, self._versions.choose(api), message, future, None))
        return future

    # -- what users of a connection need

    @property
    def closed(self) -> bool:
        return self._failure is not None or self._transport is None or self._transport.is_closing()

    @property
    def writable(self) -> bool:
        """False while the peer does not take what was written, or asked to be left alone; `on_writable` ends both."""
        return self._takes_bytes and self._gate.is_open

    @property
    def in_flight(self) -> int:
        """The number of requests without a response yet."""
        return len(self._requests) + len(self._gate)

    @property
    def idle_s(self) -> float:
        """Seconds since something was last sent or received; 0 while an answer is awaited."""
        return 0.0 if self.in_flight else self._clock.monotonic() - self._used_at

    def version_of(self, api: Api, *, at_most: int | None = None) -> int:
        """Returns the version that `send` would choose. Raises UNSUPPORTED_VERSION when there is no common version."""
        return self._versions.choose(api, at_most=at_most)

    def offers(self, api: Api) -> bool:
        return self._versions.offers(api)

    def feature(self, name: str) -> int:
        """Returns the level of a feature that the cluster has agreed on; 0 where it has not."""
        return self._versions.features.get(name, 0)

    def send(
        self, message: Message, *, at_most: int | None = None, timeout_s: float | None = None
    ) -> asyncio.Future[Any]:
        """Send now, or when the broker's mute ends; `timeout_s` counts from then. The future gets the response message, or
        a KafkaError (NETWORK_EXCEPTION: unknown).
        """
        api = api_of(message)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        try:
            version = self._versions.choose(api, at_most=at_most)
            self._gate.submit(OutgoingRequest(api, version, message, future, timeout_s))
        except KafkaError as error:
            future.set_exception(error)
        return future

    def send_unanswered(self, message: Message, *, at_most: int | None = None) -> None:
        """Send a request to which brokers do not answer (Produce with acks=0)."""
        api = api_of(message)
        version = self._versions.choose(api, at_most=at_most)
        self._gate.submit(OutgoingRequest(api, version, message, None, None))

    def close(self, reason: KafkaError | None = None) -> None:
        """Close at once; requests under way fail with `reason`. Idempotent."""
        if self._failure is None:
            reason = reason or BrokerUnreachableError(f"the connection to {self.address} was closed")
            self._failure = ErrorValue.of(reason)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._login is not None:
            self._login.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._fail_pending(self._failure)

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self._transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
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
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._identity is not None:
            raise MisroutedError(self.address, self._identity)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(response.error_code), f"{self.address} refused ApiVersions")
        self._versions = PeerVersions.from_answer(response, str(self.address))
        self._greeted = True

    async def _request_versions(self, version: int) -> ApiVersionsResponse:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        identity = self._identity or _ANY_BROKER
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME,
            client_software_version=__version__,
            cluster_id=identity.cluster_id,
            node_id=identity.node_id,
        )
        self._transmit(OutgoingRequest(_API_VERSIONS, version, request, future, None))
        reply = await future
        assert isinstance(reply, ApiVersionsResponse)
        return reply

    def _opened(self) -> None:
        self.on_writable()

    def _transmit(self, request: OutgoingRequest) -> None:
        correlation_id = self._requests.next_id()
        self._write(request.api, request.version, correlation_id, request.message)
        if request.answer is None:
            return
        timeout_s = request.timeout_s
        wait_s = self._settings.request_timeout_ms / 1000 if timeout_s is None else timeout_s
        deadline = self._clock.monotonic() + wait_s
        self._requests.sent(
            PendingRequest(correlation_id, request.api, request.version, deadline, request.answer)
        )
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
            self._requests.postpone(self._gate.throttle(throttle_ms))
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
        for future in under_way + self._gate.close():
            if not future.done():
                future.set_exception(failure.exception())

    def _tune(self, sock: socket.socket) -> None:
        """Options of TCP; asyncio has set TCP_NODELAY already."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._settings.send_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.send_buffer_bytes)
        if self._settings.receive_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings.receive_buffer_bytes)


async def _connect(address: Address, protocol: asyncio.BaseProtocol) -> None:
    try:
        check_port(address.port)
        await asyncio.get_running_loop().create_connection(lambda: protocol, address.host, address.port)
    except (ValueError, OverflowError) as error:  # no host has such a name, or such a port
        raise BrokerUnreachableError(connect_problem(address, error)) from error


def _unreadable(api: Api, address: Address, error: KafkaError) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST, f"the answer of {address} to {api.name} cannot be read: {error.message}"
    )


def _nothing() -> None:
    return None
