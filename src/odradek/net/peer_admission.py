"""What happens to a connection that was accepted just now: its addresses, its socket's options, the server's limits and pace,
and the name that a certificate gives to its peer."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from odradek.net.hangups import Pausable
from odradek.security.principals import Requester, by_certificate
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.net.connection_owner import ConnectionOwner
    from odradek.net.listening import OpenListener, ServerLimits
    from odradek.net.tls import TlsFailure

_log = events.caused_by_peers("net")
_REFUSED_SECONDS_MAX: Final = 5.0
"""How long a connection of an address over its own limit stays open, unserved, at most."""


class NewConnection(Pausable, Protocol):
    """A connection, as its admission sees it."""

    peer_host: str
    peer_port: int
    local_host: str
    local_port: int
    requester: Requester
    is_dropped: bool

    @property
    def listener(self) -> OpenListener: ...

    @property
    def peer(self) -> str: ...

    def mute_for(self, seconds: float) -> None: ...

    def abort(self) -> None: ...


NewConnectionT = TypeVar("NewConnectionT", bound=NewConnection)


def admit(
    connection: NewConnectionT, server: ConnectionOwner[NewConnectionT], transport: asyncio.Transport
) -> bool:
    """Takes in the peer; its TLS handshake may not be finished. Returns False, and closes, when it may not stay."""
    connection.peer_host, connection.peer_port = _endpoint_of(transport.get_extra_info("peername"))
    connection.local_host, connection.local_port = _endpoint_of(transport.get_extra_info("sockname"))
    connection.requester = Requester(host=connection.peer_host)
    sock = transport.get_extra_info("socket")
    if sock is not None:
        _set_options(sock, server.limits)
    refusal = server.admit(connection)
    if refusal is not None:
        _log.warning("connection_refused", peer=connection.peer, reason=refusal)
        connection.abort()
        return False
    delay_seconds, is_over_limit = server.pace(connection.peer_host)
    if delay_seconds > 0:
        _delay(connection, delay_seconds, is_over_limit=is_over_limit)
    return True


def _delay(connection: NewConnection, seconds: float, *, is_over_limit: bool) -> None:
    """Delays a connection, because too many were made lately, or closes it then (of an address over its own limit)."""
    connection.mute_for(seconds)
    if is_over_limit:
        _log.warning("connection_refused", peer=connection.peer, reason="connection_creation_rate reached")
        connection.is_dropped = True
        asyncio.get_running_loop().call_later(min(seconds, _REFUSED_SECONDS_MAX), connection.abort)


def identify(
    connection: NewConnectionT, server: ConnectionOwner[NewConnectionT], transport: asyncio.Transport
) -> None:
    """Names the peer by the certificate of its TLS handshake, which is finished. Closes where no rule gives a name."""
    tls = connection.listener.tls
    if tls is None:
        return
    _acknowledge_now(transport)
    principal = tls.principal_of(transport.get_extra_info("peercert"))
    connection.requester = by_certificate(principal, connection.peer_host)
    if principal is None:
        _log.warning("connection_refused", peer=connection.peer, reason="its certificate names no principal")
        server.failed_handshakes[connection.listener.name] += 1
        connection.abort()


def note_failed_handshake(
    connection: NewConnectionT, server: ConnectionOwner[NewConnectionT], failure: TlsFailure
) -> None:
    """Logs and counts a TLS handshake that failed."""
    tls = connection.listener.tls
    if tls is not None:
        reason = tls.explain(failure.code, failure.verify_code, str(failure))
        _log.warning("tls_handshake_failed", peer=connection.peer, reason=reason)
        server.failed_handshakes[connection.listener.name] += 1


def _endpoint_of(address: object) -> tuple[str, int]:
    """Returns (host, port) of a socket address; IPv4-mapped IPv6 addresses in their IPv4 form."""
    if isinstance(address, tuple) and len(address) >= 2:
        return str(address[0]).removeprefix("::ffff:"), int(address[1])
    return "local", 0


def _acknowledge_now(transport: asyncio.BaseTransport) -> None:
    """Lets TCP acknowledge received bytes at once, where the system has an option for it.

    A handshake of TLS 1.3 ends with bytes of the client, to which nothing is sent: TCP would acknowledge them 40 ms later, and
    a client with Nagle's algorithm (librdkafka has it on) would hold back its first request until then.
    """
    sock = transport.get_extra_info("socket")
    if sock is not None and hasattr(socket, "TCP_QUICKACK") and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _set_options(sock: socket.socket, limits: ServerLimits) -> None:
    """Sets the options of an accepted connection's socket."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if limits.send_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
    if limits.receive_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
