"""This broker's addresses for clients and for other brokers, as it registers them, and the limits of its servers."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

from odradek.cluster.registration import Registration
from odradek.config.broker import BrokerConfig
from odradek.model.ids import BrokerId
from odradek.net.listening import ServerLimits
from odradek.runtime.ports import Runtime

_EVERY: Final = ("", "0.0.0.0", "::")


def registration(
    config: BrokerConfig, addresses: Sequence[tuple[str, int]], *, directory_id: str
) -> Registration:
    """Returns the registration of this broker, with the addresses of its listeners. `addresses` are those that the listeners
    got, in their order.

    A listener on every interface advertises the name of this machine; but where all brokers are on one machine it names
    none, and clients get the address that they already use."""
    endpoints: dict[str, tuple[str, int]] = {}
    advertised = {
        listener.name: (listener.host, listener.port) for listener in config.network.advertised_listeners
    }
    for listener, (host, port) in zip(config.network.listeners, addresses, strict=True):
        if listener.name in advertised:
            endpoints[listener.name] = advertised[listener.name]
        elif host not in _EVERY:
            endpoints[listener.name] = (host, port)
        else:
            endpoints[listener.name] = (socket.gethostname() if config.zookeeper.connect else "", port)
    host, port = endpoints[config.network.listener_of_brokers]
    return Registration(
        broker_id=BrokerId(config.server.node_id),
        directory_id=directory_id,
        host=host,
        port=port,
        endpoints=endpoints,
        rack=config.server.broker_rack,
        is_cordoned=config.cluster.odradek_broker_cordoned,
        control_plane=config.network.control_plane_listener_name,
    )


def server_limits(config: BrokerConfig, runtime: Runtime) -> ServerLimits:
    """Returns the limits of connections and their requests from the settings."""
    return ServerLimits(
        frame_bytes_max=config.network.socket_request_max_bytes,
        in_flight_max=config.network.queued_max_requests,
        connections_max=config.network.max_connections,
        descriptors_max=runtime.descriptors.for_connections(config.network.max_connections).connections,
        connections_per_host_max=config.network.max_connections_per_ip,
        connections_per_host_overrides=config.network.max_connections_per_ip_overrides,
        idle_seconds_max=config.network.connections_max_idle_ms / 1000
        if config.network.connections_max_idle_ms > 0
        else 1e12,
        request_bytes_max=config.network.queued_max_request_bytes
        if config.network.queued_max_request_bytes > 0
        else None,
        response_bytes_max=config.network.queued_max_response_bytes,
        backlog=config.network.socket_listen_backlog_size,
        send_buffer_bytes=config.network.socket_send_buffer_bytes,
        receive_buffer_bytes=config.network.socket_receive_buffer_bytes,
    )
