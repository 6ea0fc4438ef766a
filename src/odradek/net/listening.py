"""The settings of a server: where it listens, and its limits."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Kafka's socket settings, resolved."""

    frame_bytes_max: int = 104_857_600
    in_flight_max: int = 500
    connections_max: int = 2**31 - 1
    descriptors_max: int = 2**31 - 1
    """How many connections the process has file descriptors for."""
    connections_per_host_max: int = 2**31 - 1
    idle_seconds_max: float = 600.0
    request_bytes_max: int | None = None
    """The most memory of large requests in flight, in all connections; None for no limit."""
    response_bytes_max: int = 256 << 20
    """The most memory of answers that peers have not read, in all connections."""
    backlog: int = 50
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    connections_per_host_overrides: Mapping[str, int] = field(default_factory=dict)


class ListenerTls(Protocol):
    """The TLS of a listener for new connections: certificates may be replaced meanwhile."""

    @property
    def context(self) -> ssl.SSLContext: ...

    @property
    def handshake_s(self) -> float: ...

    def principal_of(self, certificate: Mapping[str, object] | None) -> str | None:
        """Returns the principal of a verified certificate, or of none; None for a client that no rule gives a name."""

    def explain(self, code: str, verify_code: int | None, message: str) -> str:
        """Returns the cause of a failed handshake in plain words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenListener:
    """A listener as its connections see it: the address that clients of it get, if there is one."""

    name: str
    advertised: tuple[str, int] | None = None
    broker_id: int = -1
    """The id of the broker that listens."""
    is_for_brokers: bool = False
    """Other brokers come through it, and clients have listeners of their own: no limit for all keeps brokers out."""
    tls: ListenerTls | None = None
    login: Callable[[Any], Any] | None = None
    """Returns what serves a connection's frames (`RequestHandler`) where clients have to log in."""
    first_frames_bytes_max: int | None = None
    """The largest frame until the client has logged in."""
