"""Settings of listeners, connections and requests, and of quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.config.definition import INT_MAX, Bounds, at_least, one_of
from odradek.config.listening.listeners import SECURITY_PROTOCOLS, Listener
from odradek.config.section import (
    CLUSTER_WIDE,
    HIGH,
    LIST,
    LOW,
    PER_BROKER,
    STRING,
    Int,
    List,
    Long,
    Section,
    String,
    section,
    setting,
)

_BUFFER_BYTES: Final = Bounds(allowed="1 or more, or -1", accepts=lambda value: value == -1 or value > 0)


@section()
class NetworkConfig(Section):
    """The addresses on which a broker listens, and its limits for incoming, waiting and outgoing data."""

    # fmt: off
    listeners: tuple[Listener, ...] = setting(default=(Listener(),), written_default=("PLAINTEXT://127.0.0.1:9092",),
        importance=HIGH, dynamic=PER_BROKER, as_started=True, type_=LIST, meaning=
        "Where to listen: NAME://HOST:PORT, separated by commas. No host: every interface. Port 0: any.")
    advertised_listeners: tuple[Listener, ...] = setting(default=(), written_default=None, importance=HIGH,
        type_=LIST, meaning=
        "The address that brokers give to clients. Not set: the address to which they connected already.")
    listener_security_protocol_map: Mapping[str, str] = setting(default_factory=lambda: {"PLAINTEXT": "PLAINTEXT"},
        written_default=("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
        importance=LOW, dynamic=PER_BROKER, as_started=True, type_=LIST, meaning=
        "The security protocol of each listener name: NAME:PROTOCOL, separated by commas.")
    inter_broker_listener_name: String | None = setting(default=None, meaning=
        "The listener that other brokers use. No other one serves what only brokers may ask, so keep clients away from its "
        "address. Not set: the first of listeners, and every listener serves brokers.")
    security_inter_broker_protocol: String | None = setting(default=None, written_default="PLAINTEXT",
        valid=one_of(*SECURITY_PROTOCOLS), meaning=
        "The listener that other brokers use, by its protocol: the one of that name. Short for inter.broker.listener.name.")
    control_plane_listener_name: String | None = setting(default=None, importance=HIGH, meaning=
        "The listener for what brokers ask of the controller, so that neither clients nor replication hold it up. It serves "
        "nothing else, so keep clients away from its address. Not set: the listener that other brokers use.")
    controller_listener_names: List = setting(default=(), importance=LOW, meaning=
        "Listeners meant for a KRaft controller. They are not opened, since there is none.")
    connections_max_idle_ms: Long = setting(default=600_000, meaning=
        "A connection idle for longer is closed; -1 never closes it.")
    max_connections: Int = setting(default=INT_MAX, valid=at_least(0), dynamic=CLUSTER_WIDE, meaning=
        "The most connections held at once.")
    max_connections_per_ip: Int = setting(default=INT_MAX, valid=at_least(0), dynamic=CLUSTER_WIDE, meaning=
        "The most connections held at once from one address.")
    max_connections_per_ip_overrides: Mapping[str, int] = setting(default_factory=dict, written_default="",
        dynamic=CLUSTER_WIDE, type_=STRING, meaning=
        "Other limits for certain addresses: ADDRESS:COUNT, separated by commas.")
    max_connection_creation_rate: Int = setting(default=INT_MAX, valid=at_least(0), dynamic=CLUSTER_WIDE, meaning=
        "The most connections accepted in a second, over time; faster ones wait.")
    queued_max_requests: Int = setting(default=500, valid=at_least(1), importance=HIGH, meaning=
        "Requests that may wait at once before the broker stops reading from connections.")
    queued_max_request_bytes: Long = setting(default=256 << 20, meaning=
        "Bytes of large requests (over 64 KiB) that are received or wait, in all connections; at least "
        "`socket.request.max.bytes`. 0 or less: no limit.")
    queued_max_response_bytes: Long = setting(default=256 << 20, valid=at_least(1 << 20), meaning=
        "Bytes of answers held in memory for clients that do not read them. Near it fetches return little, and clients that "
        "make no progress are disconnected.")
    max_request_elements: Int = setting(default=250_000, valid=at_least(1000), meaning=
        "The most elements in all arrays of one request. Odradek's own: a larger one is refused before it is read.")
    socket_request_max_bytes: Int = setting(default=100 << 20, valid=at_least(1), importance=HIGH, meaning=
        "The largest request. A larger one ends its connection before anything is allocated for it.")
    socket_receive_buffer_bytes: Int = setting(default=-1, valid=_BUFFER_BYTES, meaning=
        "SO_RCVBUF of connections; -1 leaves it to the system, which tunes it.")
    socket_send_buffer_bytes: Int = setting(default=-1, valid=_BUFFER_BYTES, meaning=
        "SO_SNDBUF of connections; -1 leaves it to the system, which tunes it.")
    socket_listen_backlog_size: Int = setting(default=50, valid=at_least(1), meaning=
        "Connections that may wait to be accepted.")
    # fmt: on

    @property
    def listener_of_brokers(self) -> str:
        """The name of the one that other brokers use."""
        return self.inter_broker_listener_name or self.listeners[0].name


@section()
class QuotaConfig(Section):
    """The windows that quotas of clients are measured in."""

    # fmt: off
    quota_window_num: Int = setting(default=11, valid=at_least(1), importance=LOW, meaning=
        "Samples of a quota's window: all but one of them say how much a client that was silent may use at once.")
    quota_window_size_seconds: Int = setting(default=1, valid=at_least(1), importance=LOW, meaning=
        "The length of such a sample.")
    controller_quota_window_num: Int = setting(default=11, valid=at_least(1), importance=LOW, meaning=
        "Samples of the window of controller_mutation_rate: a client may save up what they bring.")
    controller_quota_window_size_seconds: Int = setting(default=1, valid=at_least(1), importance=LOW, meaning=
        "The length of such a sample.")
    # fmt: on
