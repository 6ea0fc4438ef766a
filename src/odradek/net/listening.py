"""The settings of a server: where it listens, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Kafka's socket settings, resolved."""

    frame_bytes_max: int = 104_857_600
    in_flight_max: int = 500
    connections_max: int = 2**31 - 1
    descriptors_max: int = 2**31 - 1
    """Connections that the process has file descriptors for."""
    connections_per_host_max: int = 2**31 - 1
    idle_seconds_max: float = 600.0
    request_bytes_max: int | None = None
    """Of the large requests in flight, in all connections; None for no limit."""
    response_bytes_max: int = 256 << 20
    """Of the answers in memory that peers have not read, in all connections."""
    backlog: int = 50
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    connections_per_host_overrides: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenListener:
    """A listener as its connections see it: the address that clients of it get, if there is one."""

    name: str
    advertised: tuple[str, int] | None = None
    broker_id: int = -1
    """Of the broker that listens."""
    is_for_brokers: bool = False
    """Other brokers come through it, and clients have listeners of their own: no limit for all keeps brokers out."""
