"""The settings of the three clients: Kafka's names, defaults and meaning (Apache Kafka 4.3), each declared once.

In Python a setting is a keyword argument with underscores (`linger_ms=5`); `from_config` takes Kafka's own spelling
(`{"linger.ms": 5}`), with values of the right type or as text. What is not declared here is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

from odradek.client.durations import iso_duration_ms
from odradek.client.groups.assignors import assignors_of
from odradek.client.network.address import Address, parse_bootstrap
from odradek.config.definition import (
    INT_MAX,
    LONG_MAX,
    Bounds,
    Importance,
    Setting,
    SettingType,
    at_least,
    between,
    declare,
    declared,
    nearest,
    one_of,
)
from odradek.model.errors import ConfigError

_NO_IDLE_LIMIT: Final = -1
_BY_DURATION: Final = "by_duration:"
_RESETS: Final = Bounds(
    allowed="one of latest, earliest, none, or by_duration: and a duration such as P1DT6H",
    accepts=lambda value: value in ("latest", "earliest", "none") or _duration_ms(value) is not None,
)

_ANSWERS_TO: Final[Mapping[str, str]] = MappingProxyType(
    {
        "key.serializer": "pass key_serializer=, a callable, to the constructor",
        "value.serializer": "pass value_serializer=, a callable, to the constructor",
        "key.deserializer": "pass key_deserializer=, a callable, to the constructor",
        "value.deserializer": "pass value_deserializer=, a callable, to the constructor",
    }
)
"""What to say about settings that a Kafka user may well bring along."""


def _whole(key: str, default: int, meaning: str, *, least: int = 0, most: int = INT_MAX, **more: Any) -> Any:
    kind = SettingType.INT if most <= INT_MAX else SettingType.LONG
    valid = between(least, most) if most < INT_MAX else at_least(least)
    return declare(Setting(key=key, type=kind, default=default, meaning=meaning, valid=valid, **more))


def _flag(key: str, default: bool, meaning: str) -> Any:
    return declare(Setting(key=key, type=SettingType.BOOLEAN, default=default, meaning=meaning))


def _word(key: str, default: str, meaning: str, *allowed: str) -> Any:
    valid = one_of(*allowed) if allowed else None
    return declare(Setting(key=key, type=SettingType.STRING, default=default, meaning=meaning, valid=valid))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What every client has."""

    bootstrap: tuple[Address, ...]
    """Where to ask for the cluster first: `bootstrap.servers`, parsed."""

    client_id: str = _word("client.id", "odradek", "a name that shows in the brokers' logs and quotas")
    security_protocol: str = _word(
        "security.protocol",
        "PLAINTEXT",
        "how to talk to brokers; only PLAINTEXT in this version",
        "PLAINTEXT",
    )
    request_timeout_ms: int = _whole(
        "request.timeout.ms",
        30_000,
        "how long to wait for one answer before the connection is given up",
        least=1,
    )
    retry_backoff_ms: int = _whole(
        "retry.backoff.ms", 100, "the first pause before a retry; it doubles each time"
    )
    retry_backoff_max_ms: int = _whole("retry.backoff.max.ms", 1_000, "the longest pause before a retry")
    reconnect_backoff_ms: int = _whole(
        "reconnect.backoff.ms",
        50,
        "the first pause before connecting again to a broker that could not be reached",
    )
    reconnect_backoff_max_ms: int = _whole("reconnect.backoff.max.ms", 1_000, "the longest such pause")
    socket_connection_setup_timeout_ms: int = _whole(
        "socket.connection.setup.timeout.ms", 10_000, "how long connecting and greeting may take", least=1
    )
    connections_max_idle_ms: int = _whole(
        "connections.max.idle.ms",
        540_000,
        "close a connection unused for this long; -1: never",
        least=_NO_IDLE_LIMIT,
    )
    metadata_max_age_ms: int = _whole(
        "metadata.max.age.ms",
        300_000,
        "ask for metadata again after this long even when nothing seems wrong",
        least=1,
    )
    send_buffer_bytes: int = _whole(
        "send.buffer.bytes", -1, "SO_SNDBUF; -1 leaves it to the system, which adapts it", least=-1
    )
    receive_buffer_bytes: int = _whole(
        "receive.buffer.bytes", -1, "SO_RCVBUF; -1 leaves it to the system, which adapts it", least=-1
    )
    response_bytes_max: int = _whole(
        "response.bytes.max",
        256 << 20,
        "Odradek's own: the largest answer to accept from a broker",
        least=1 << 16,
    )

    WHOSE: ClassVar[str] = "client"

    @classmethod
    def of(cls, bootstrap_servers: str | list[str] | tuple[str, ...], given: Mapping[str, object]) -> Self:
        """From keyword arguments; ConfigError names what is unknown or not allowed."""
        declared_here = declared(cls)
        values: dict[str, Any] = {}
        for name, value in given.items():
            setting = declared_here.get(name)
            if setting is None:
                raise ConfigError(_unknown(cls.WHOSE, name, [*declared_here, "bootstrap_servers"]))
            values[name] = _checked(setting, value)
        return cls(bootstrap=parse_bootstrap(bootstrap_servers), **values)._completed(frozenset(values))

    @classmethod
    def arguments(cls, config: Mapping[str, object]) -> dict[str, Any]:
        """Keyword arguments for a client from a mapping with Kafka's own names; values are checked later, by `of`."""
        names = {setting.key: name for name, setting in declared(cls).items()}
        names["bootstrap.servers"] = "bootstrap_servers"
        arguments: dict[str, Any] = {}
        for key, value in config.items():
            if key not in names:
                raise ConfigError(_unknown(cls.WHOSE, key, list(names)))
            arguments[names[key]] = value
        if "bootstrap_servers" not in arguments:
            raise ConfigError("bootstrap.servers is missing: name at least one broker, as host:port")
        return arguments

    def _completed(self, given: frozenset[str]) -> Self:
        """Settle what depends on several settings; `given` are the names that the user set."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """A producer's."""

    WHOSE: ClassVar[str] = "producer"

    transactional_id: str = _word(
        "transactional.id",
        "",
        "a name under which transactions survive this process, and by which older ones are fenced; empty: none",
    )
    transaction_timeout_ms: int = _whole(
        "transaction.timeout.ms",
        60_000,
        "brokers abort a transaction that stays open for longer",
        least=1,
    )

    acks: int = field(
        default=-1,
        metadata={
            "setting": Setting(
                key="acks",
                type=SettingType.STRING,
                default="all",
                meaning="who must have a batch before it counts as sent: 0 nobody, 1 the leader, all in-sync replicas",
                valid=one_of("all", "-1", "0", "1"),
                importance=Importance.HIGH,
            )
        },
    )
    """-1 stands for all."""
    enable_idempotence: bool = _flag(
        "enable.idempotence", True, "brokers drop duplicates that retries make, and order is kept"
    )
    linger_ms: int = _whole("linger.ms", 5, "how long a batch waits for more records before it is sent")
    batch_size: int = _whole(
        "batch.size", 16_384, "bytes of a batch, before compression; a larger record goes alone"
    )
    buffer_memory: int = _whole(
        "buffer.memory", 32 << 20, "bytes that may wait to be sent; beyond, send() waits", most=LONG_MAX
    )
    max_block_ms: int = _whole(
        "max.block.ms", 60_000, "how long send() may wait for room or for a topic's metadata", most=LONG_MAX
    )
    max_request_size: int = _whole(
        "max.request.size", 1 << 20, "the largest record, and the largest request", least=1_024
    )
    max_in_flight_requests_per_connection: int = _whole(
        "max.in.flight.requests.per.connection",
        5,
        "requests under way to one broker; at most 5 if idempotent",
        least=1,
    )
    metadata_max_idle_ms: int = _whole(
        "metadata.max.idle.ms",
        300_000,
        "stop asking about a topic that was not sent to for this long",
        least=5_000,
    )
    delivery_timeout_ms: int = _whole(
        "delivery.timeout.ms", 120_000, "after this long a record is given up, retries included", least=1
    )
    retries: int = _whole("retries", INT_MAX, "how often a batch is tried again, within the delivery timeout")
    compression_type: str = _word(
        "compression.type", "none", "how batches are compressed", "none", "gzip", "snappy", "lz4", "zstd"
    )
    compression_gzip_level: int = _whole(
        "compression.gzip.level", -1, "1 to 9; -1: the usual one", least=-1, most=9
    )
    compression_lz4_level: int = _whole(
        "compression.lz4.level", 0, "0 to 16; above 2 slow and small", least=0, most=16
    )
    compression_zstd_level: int = _whole("compression.zstd.level", 3, "1 to 22", least=1, most=22)
    partitioner_adaptive_partitioning_enable: bool = _flag(
        "partitioner.adaptive.partitioning.enable",
        True,
        "records without a key go more often where the queue is short",
    )
    partitioner_ignore_keys: bool = _flag(
        "partitioner.ignore.keys", False, "spread records with a key as if they had none"
    )

    @property
    def codec_level(self) -> int | None:
        """The level of the chosen codec; None for its usual one."""
        if self.compression_type == "gzip":
            return self.compression_gzip_level if self.compression_gzip_level > 0 else None
        if self.compression_type == "lz4":
            return self.compression_lz4_level
        return self.compression_zstd_level if self.compression_type == "zstd" else None

    def _completed(self, given: frozenset[str]) -> Self:
        settings = self
        conflict = self._idempotence_conflict()
        if self.transactional_id and (conflict or not self.enable_idempotence):
            raise ConfigError(f"transactional.id needs {conflict or 'enable.idempotence=true'}")
        if conflict and "enable_idempotence" in given:
            raise ConfigError(f"enable.idempotence=true needs {conflict}")
        if conflict:  # KIP-679: an explicit acks=1 turns the default off, without a fuss
            settings = replace(settings, enable_idempotence=False)
        shortest = self.linger_ms + self.request_timeout_ms
        if self.delivery_timeout_ms < shortest:
            if "delivery_timeout_ms" in given:
                raise ConfigError(
                    f"delivery.timeout.ms={self.delivery_timeout_ms} is less than linger.ms + request.timeout.ms"
                    f" ({shortest})"
                )
            settings = replace(settings, delivery_timeout_ms=shortest)
        return settings

    def _idempotence_conflict(self) -> str | None:
        if not self.enable_idempotence:
            return None
        if self.acks != -1:
            return "acks=all"
        if self.retries == 0:
            return "retries above 0"
        if self.max_in_flight_requests_per_connection > 5:
            return "max.in.flight.requests.per.connection of at most 5"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    """A consumer's."""

    WHOSE: ClassVar[str] = "consumer"

    group_id: str = _word(
        "group.id", "", "the group that this consumer reads with and commits for; empty: none"
    )
    group_instance_id: str = _word(
        "group.instance.id",
        "",
        "a name that outlives restarts: a static member keeps its partitions while it is away (KIP-345)",
    )
    group_protocol: str = _word(
        "group.protocol",
        "classic",
        "classic: members agree among themselves; consumer: the broker assigns (KIP-848)",
        "classic",
        "consumer",
    )
    group_remote_assignor: str = _word(
        "group.remote.assignor",
        "",
        "with group.protocol=consumer: uniform or range; empty: the broker's choice",
    )
    partition_assignment_strategy: str = _word(
        "partition.assignment.strategy",
        "range,cooperative-sticky",
        "with group.protocol=classic: range, roundrobin, sticky, cooperative-sticky; what all members have is used",
    )
    session_timeout_ms: int = _whole(
        "session.timeout.ms", 45_000, "a member that is not heard of for this long is dead", least=1
    )
    heartbeat_interval_ms: int = _whole(
        "heartbeat.interval.ms", 3_000, "how often a member shows that it is alive", least=1
    )
    max_poll_interval_ms: int = _whole(
        "max.poll.interval.ms",
        300_000,
        "a member whose user does not poll for this long leaves the group; the limit for a rebalance, too",
        least=1,
    )
    enable_auto_commit: bool = _flag(
        "enable.auto.commit", True, "commit, inside poll() and close(), what earlier polls have returned"
    )
    auto_commit_interval_ms: int = _whole("auto.commit.interval.ms", 5_000, "how often")
    auto_offset_reset: str = declare(
        Setting(
            key="auto.offset.reset",
            type=SettingType.STRING,
            default="latest",
            meaning="where to go when there is no position, or none that the partition still holds; none: raise",
            valid=_RESETS,
        )
    )
    fetch_min_bytes: int = _whole(
        "fetch.min.bytes", 1, "a broker waits until it has this much to answer with"
    )
    fetch_max_wait_ms: int = _whole("fetch.max.wait.ms", 500, "but no longer than this")
    fetch_max_bytes: int = _whole(
        "fetch.max.bytes", 50 << 20, "the most that one answer should hold", least=1
    )
    max_partition_fetch_bytes: int = _whole(
        "max.partition.fetch.bytes", 1 << 20, "the most of one partition in one answer", least=1
    )
    prefetch_max_bytes: int = _whole(
        "prefetch.max.bytes",
        64 << 20,
        "Odradek's own: stop fetching ahead while this much waits for poll()",
        least=1,
        most=LONG_MAX,
    )
    max_poll_records: int = _whole("max.poll.records", 500, "the most records that poll() returns", least=1)
    check_crcs: bool = _flag("check.crcs", True, "check each batch's CRC32C before it is read")
    isolation_level: str = _word(
        "isolation.level",
        "read_uncommitted",
        "whether records of open and aborted transactions are seen",
        "read_uncommitted",
        "read_committed",
    )
    allow_auto_create_topics: bool = _flag(
        "allow.auto.create.topics",
        True,
        "let the broker create an assigned topic that does not exist, if it does that",
    )
    default_api_timeout_ms: int = _whole(
        "default.api.timeout.ms", 60_000, "how long calls without a timeout of their own may take", least=1
    )

    @property
    def reset_duration_ms(self) -> int:
        """How far back auto.offset.reset=by_duration:... goes; 0 for the other policies."""
        return _duration_ms(self.auto_offset_reset) or 0

    def _completed(self, given: frozenset[str]) -> Self:
        assignors_of(self.partition_assignment_strategy)
        if self.group_instance_id and not self.group_id:
            raise ConfigError("group.instance.id needs group.id")
        if self.group_protocol == "classic" and self.heartbeat_interval_ms >= self.session_timeout_ms:
            if "heartbeat_interval_ms" in given:
                raise ConfigError(
                    f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be below session.timeout.ms"
                    f" ({self.session_timeout_ms})"
                )
            return replace(self, heartbeat_interval_ms=max(1, self.session_timeout_ms // 3))
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings(ClientSettings):
    """An admin client's."""

    WHOSE: ClassVar[str] = "admin client"

    default_api_timeout_ms: int = _whole(
        "default.api.timeout.ms", 60_000, "how long calls without a timeout of their own may take", least=1
    )


def _duration_ms(policy: str) -> int | None:
    """None unless it is by_duration: with a duration that makes sense (KIP-1106)."""
    return iso_duration_ms(policy.removeprefix(_BY_DURATION)) if policy.startswith(_BY_DURATION) else None


def _checked(setting: Setting, value: object) -> object:
    """`value` as the attribute wants it; ConfigError when it has the wrong type or is out of bounds."""
    if setting.key == "acks":
        word = str(value)
        setting.parse(word)
        return -1 if word in ("all", "-1") else int(word)
    if isinstance(value, str):
        return setting.parse(value)
    wanted = {SettingType.BOOLEAN: bool, SettingType.STRING: str}.get(setting.type, int)
    if type(value) is not wanted or (setting.valid is not None and not setting.valid.accepts(value)):
        raise ConfigError(f"{setting.key}={value!r} is not allowed: expected {setting.allowed}")
    return value


def _unknown(whose: str, key: str, known: list[str]) -> str:
    answer = _ANSWERS_TO.get(key.replace("_", "."))
    if answer:
        return f"{whose} setting {key!r} is not supported: {answer}"
    likely = nearest(key, known)
    hint = f": did you mean {likely!r}?" if likely else ""
    return f"unknown {whose} setting {key!r}{hint}"
