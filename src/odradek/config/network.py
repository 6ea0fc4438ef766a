"""The settings of connections, requests and their quotas: a part of `BrokerConfig` (`broker.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.config.definition import (
    INT_MAX,
    Bounds,
    Importance,
    SettingType,
    Update,
    at_least,
    setting_field,
)
from odradek.config.shares import ShareConfig

BOOLEAN, STRING, INT, LONG = SettingType.BOOLEAN, SettingType.STRING, SettingType.INT, SettingType.LONG
_BUFFER_BYTES: Final = Bounds(allowed="1 or more, or -1", accepts=lambda value: value == -1 or value > 0)


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class NetworkConfig(ShareConfig):
    """How much may come in, wait and go out at once."""

    connections_max_idle_ms: int = setting_field(
        "connections.max.idle.ms",
        LONG,
        600_000,
        "A connection idle for longer is closed; -1 never closes it.",
    )
    max_connections: int = setting_field(
        "max.connections",
        INT,
        INT_MAX,
        "The most connections held at once.",
        at_least(0),
        dynamic=Update.CLUSTER_WIDE,
    )
    max_connections_per_ip: int = setting_field(
        "max.connections.per.ip",
        INT,
        INT_MAX,
        "The most connections held at once from one address.",
        at_least(0),
        dynamic=Update.CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: Mapping[str, int] = setting_field(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Other limits for certain addresses: ADDRESS:COUNT, separated by commas.",
        value={"default_factory": dict},
        dynamic=Update.CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = setting_field(
        "max.connection.creation.rate",
        INT,
        INT_MAX,
        "The most connections accepted in a second, over time; who comes faster waits.",
        at_least(0),
        dynamic=Update.CLUSTER_WIDE,
    )
    queued_max_requests: int = setting_field(
        "queued.max.requests",
        INT,
        500,
        "Requests that may wait at once before the broker stops reading from connections.",
        at_least(1),
        importance=Importance.HIGH,
    )
    queued_max_request_bytes: int = setting_field(
        "queued.max.request.bytes",
        LONG,
        256 << 20,
        "Bytes of large requests (over 64 KiB) that are received or wait, in all connections; at least "
        "`socket.request.max.bytes`. 0 or less: no limit.",
        importance=Importance.MEDIUM,
    )
    queued_max_response_bytes: int = setting_field(
        "queued.max.response.bytes",
        LONG,
        256 << 20,
        "Bytes of answers held in memory for clients that do not read them. Near it fetches find little, and the clients that "
        "stand still are let go.",
        at_least(1 << 20),
    )
    socket_request_max_bytes: int = setting_field(
        "socket.request.max.bytes",
        INT,
        100 << 20,
        "The largest request. A larger one ends its connection before anything is allocated for it.",
        at_least(1),
        importance=Importance.HIGH,
    )
    socket_receive_buffer_bytes: int = setting_field(
        "socket.receive.buffer.bytes",
        INT,
        -1,
        "SO_RCVBUF of connections; -1 leaves it to the system, which tunes it.",
        _BUFFER_BYTES,
    )
    socket_send_buffer_bytes: int = setting_field(
        "socket.send.buffer.bytes",
        INT,
        -1,
        "SO_SNDBUF of connections; -1 leaves it to the system, which tunes it.",
        _BUFFER_BYTES,
    )
    socket_listen_backlog_size: int = setting_field(
        "socket.listen.backlog.size", INT, 50, "Connections that may wait to be accepted.", at_least(1)
    )
    fetch_max_bytes: int = setting_field(
        "fetch.max.bytes", INT, 55 << 20, "The most bytes that one fetch is answered with.", at_least(1024)
    )
    max_incremental_fetch_session_cache_slots: int = setting_field(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1000,
        "The most fetch sessions held at once.",
        at_least(0),
    )
    max_request_partition_size_limit: int = setting_field(
        "max.request.partition.size.limit",
        INT,
        2000,
        "The most partitions that one DescribeTopicPartitions is answered with.",
        at_least(1),
    )
    odradek_loop_held_warn_ms: int = setting_field(
        "odradek.loop.held.warn.ms",
        INT,
        100,
        "A line in the log says what held the event loop, when that took longer than this. 0: nobody looks.",
        at_least(0),
    )
    odradek_log_peer_lines_max: int = setting_field(
        "odradek.log.peer.lines.max",
        INT,
        40,
        "How many lines at once one address may cause in the log for each event; they grow again by one a second. 0: no limit.",
        at_least(0),
    )
    max_request_elements: int = setting_field(
        "max.request.elements",
        INT,
        250_000,
        "The most elements in all arrays of one request. Odradek's own: a larger one is refused before it is read.",
        at_least(1000),
    )
    num_io_threads: int = setting_field(
        "num.io.threads",
        INT,
        8,
        "Threads for what blocks: fsync and reads from a cold disk. They start when they are needed.",
        at_least(1),
        dynamic=Update.CLUSTER_WIDE,
        as_started=True,
        importance=Importance.HIGH,
    )
    quota_window_num: int = setting_field(
        "quota.window.num",
        INT,
        11,
        "Samples of a quota's window: all but one of them say how much a client that was silent may use at once.",
        at_least(1),
        importance=Importance.LOW,
    )
    quota_window_size_seconds: int = setting_field(
        "quota.window.size.seconds",
        INT,
        1,
        "The length of such a sample.",
        at_least(1),
        importance=Importance.LOW,
    )
    controller_quota_window_num: int = setting_field(
        "controller.quota.window.num",
        INT,
        11,
        "Samples of the window of controller_mutation_rate: a client may save up what they bring.",
        at_least(1),
        importance=Importance.LOW,
    )
    controller_quota_window_size_seconds: int = setting_field(
        "controller.quota.window.size.seconds",
        INT,
        1,
        "The length of such a sample.",
        at_least(1),
        importance=Importance.LOW,
    )
    unstable_api_versions_enable: bool = setting_field(
        "unstable.api.versions.enable",
        BOOLEAN,
        False,
        "Whether clients are offered versions of the protocol that Kafka has not declared stable.",
        importance=Importance.LOW,
    )
