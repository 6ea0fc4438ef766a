"""Where this broker is reached: what it registers, for clients and for other brokers."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

from odradek.cluster.registration import Registration
from odradek.config.broker import BrokerConfig
from odradek.model.ids import BrokerId

_EVERY: Final = ("", "0.0.0.0", "::")


def registration(
    config: BrokerConfig, addresses: Sequence[tuple[str, int]], *, directory_id: str
) -> Registration:
    """`addresses` are those that the listeners got, in their order.

    A listener on every interface advertises the name of this machine; but where all brokers are on one machine it names none,
    and clients get the address that they already use.
    """
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
    host, port = endpoints[config.network.inter_broker_listener_name or config.network.listeners[0].name]
    return Registration(
        broker_id=BrokerId(config.server.node_id),
        directory_id=directory_id,
        host=host,
        port=port,
        endpoints=endpoints,
        rack=config.server.broker_rack,
        is_cordoned=config.cluster.odradek_broker_cordoned,
    )
