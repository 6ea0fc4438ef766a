"""The settings of the clients: Kafka's names, defaults and meaning (Apache Kafka 4.4), each declared once.

In Python a setting is a keyword argument with underscores (`linger_ms=5`); `from_config` takes Kafka's own spelling
(`{"linger.ms": 5}`), with values of the right type or as text. What is not declared here is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from odradek.client.settings.address import Address, parse_bootstrap
from odradek.client.settings.assignor_names import assignor_names
from odradek.client.settings.security_settings import OTHER_SPELLINGS, SecuritySettings
from odradek.config.definition import (
    INT_MAX,
    Bounds,
    Setting,
    SettingType,
    at_least,
    between,
    one_of,
)
from odradek.config.section import HIGH, STRING, Boolean, Int, Long, String, section, setting
from odradek.model.durations import by_duration_ms
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.model.near_names import KEYS_ALIKE, near_name

if TYPE_CHECKING:
    from odradek.config.files import providers
else:
    providers = lazy("odradek.config.files.providers")

_PROVIDERS: Final = "config.providers"

_NO_IDLE_LIMIT: Final = -1
_RESETS: Final = Bounds(
    allowed="one of latest, earliest, none, or by_duration: and a duration such as P1DT6H",
    accepts=lambda value: value in ("latest", "earliest", "none") or by_duration_ms(value) is not None,
)
_RECOVERIES: Final = Bounds(
    allowed="one of rebootstrap, none", accepts=lambda name: name.lower() in ("rebootstrap", "none")
)

_ANSWERS_TO: Final[Mapping[str, str]] = MappingProxyType(
    {
        "key.serializer": "pass key_serializer=, a callable, to the constructor",
        "value.serializer": "pass value_serializer=, a callable, to the constructor",
        "key.deserializer": "pass key_deserializer=, a callable, to the constructor",
        "value.deserializer": "pass value_deserializer=, a callable, to the constructor",
    }
)
"""Answers for settings of other Kafka clients that users may try."""
_OF_THE_GROUP: Final = "it is a setting of the group: `odradek config set --group GROUP {}=...`"
_ANSWERS_TO_SHARE_CONSUMERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "auto.offset.reset": _OF_THE_GROUP.format("share.auto.offset.reset"),
        "isolation.level": _OF_THE_GROUP.format("share.isolation.level"),
        "session.timeout.ms": _OF_THE_GROUP.format("share.session.timeout.ms"),
        "heartbeat.interval.ms": _OF_THE_GROUP.format("share.heartbeat.interval.ms"),
        "enable.auto.commit": "records are acknowledged one by one: see share.acknowledgement.mode",
        "auto.commit.interval.ms": "records are acknowledged one by one: see share.acknowledgement.mode",
        "group.instance.id": "share groups have no static members",
        "group.protocol": "share groups have one protocol",
        "group.remote.assignor": "share groups have one assignor, of the broker",
        "partition.assignment.strategy": "share groups have one assignor, of the broker",
    }
)
"""Answers for settings of a `Consumer` that a `ShareConsumer` does not have."""
_ANSWERS_TO_MEMBERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "session.timeout.ms": _OF_THE_GROUP.format("consumer.session.timeout.ms"),
        "heartbeat.interval.ms": _OF_THE_GROUP.format("consumer.heartbeat.interval.ms"),
        "partition.assignment.strategy": "the broker assigns: set group.remote.assignor",
    }
)
"""Answers for settings of the classic protocol that members in the consumer protocol do not have."""
_OF_CLASSIC_GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {key.replace(".", "_"): key for key in _ANSWERS_TO_MEMBERS}
)
"""The settings that only the classic protocol has, by the name of their argument."""


@section()
class ClientSettings(SecuritySettings):
    """The settings of every client."""

    bootstrap: tuple[Address, ...]
    """The addresses at which the client asks for the cluster first: `bootstrap.servers`, parsed."""

    # fmt: off
    client_id: String = setting(default="odradek", meaning=
        "a name that shows in the brokers' logs and quotas")
    request_timeout_ms: Int = setting(default=30_000, valid=at_least(1), meaning=
        "how long to wait for one answer before the connection is given up")
    retry_backoff_ms: Int = setting(default=100, valid=at_least(0), meaning=
        "the first pause before a retry; it doubles each time")
    retry_backoff_max_ms: Int = setting(default=1_000, valid=at_least(0), meaning=
        "the longest pause before a retry")
    reconnect_backoff_ms: Int = setting(default=50, valid=at_least(0), meaning=
        "the first pause before connecting again to a broker that could not be reached")
    reconnect_backoff_max_ms: Int = setting(default=1_000, valid=at_least(0), meaning=
        "the longest such pause")
    socket_connection_setup_timeout_ms: Int = setting(default=10_000, valid=at_least(1), meaning=
        "how long connecting and greeting may take")
    connections_max_idle_ms: Int = setting(default=540_000, valid=at_least(_NO_IDLE_LIMIT), meaning=
        "close a connection unused for this long; -1: never")
    metadata_max_age_ms: Int = setting(default=300_000, valid=at_least(1), meaning=
        "ask for metadata again after this long even when nothing seems wrong")
    metadata_recovery_strategy: String = setting(default="rebootstrap", valid=_RECOVERIES, meaning=
        "rebootstrap: when no broker of the last metadata answers, bootstrap.servers is asked again (KIP-899); none: it is not,"
        " and calls fail until one of those brokers is back")
    metadata_recovery_rebootstrap_trigger_ms: Long = setting(default=300_000, valid=at_least(0), meaning=
        "with rebootstrap: give up those brokers after this long without metadata, however long they take to fail (KIP-1102)")
    send_buffer_bytes: Int = setting(default=-1, valid=at_least(-1), meaning=
        "SO_SNDBUF; -1 leaves it to the system, which adapts it")
    receive_buffer_bytes: Int = setting(default=-1, valid=at_least(-1), meaning=
        "SO_RCVBUF; -1 leaves it to the system, which adapts it")
    response_bytes_max: Int = setting(default=256 << 20, valid=at_least(1 << 16), meaning=
        "Odradek's own: the largest answer to accept from a broker")
    # fmt: on

    WHOSE: ClassVar[str] = "client"
    ANSWERS: ClassVar[Mapping[str, str]] = _ANSWERS_TO

    @classmethod
    def of(cls, bootstrap_servers: str | list[str] | tuple[str, ...], given: Mapping[str, object]) -> Self:
        """Returns settings for keyword arguments. Raises ConfigError, which names what is unknown or not allowed."""
        values: dict[str, Any] = {}
        for name, value in given.items():
            setting = cls.settings.get(name)
            if setting is None:
                raise ConfigError(_unknown(cls, name, [*cls.settings, "bootstrap_servers"]))
            values[name] = _checked(setting, value)
        settings = cls(bootstrap=parse_bootstrap(bootstrap_servers), **values)
        return settings.check_security()._completed(frozenset(values))

    @classmethod
    def arguments(cls, config: Mapping[str, object]) -> dict[str, Any]:
        """Keyword arguments for a client from a mapping with Kafka's own names; values are checked later, by `of`.

        Values that `config.providers` has are looked up here.
        """
        if _PROVIDERS in config:
            written = {key: text for key, text in config.items() if isinstance(text, str)}
            config = {**config, **providers.resolved(written)}
            config = {key: value for key, value in config.items() if not key.startswith(_PROVIDERS)}
        names = {setting.key: name for name, setting in cls.settings.items()}
        names["bootstrap.servers"] = "bootstrap_servers"
        names |= {key: name for key, name in OTHER_SPELLINGS.items() if name in cls.settings}
        arguments: dict[str, object] = {}
        for key, value in config.items():
            if key not in names:
                raise ConfigError(_unknown(cls, key, list(names)))
            arguments[names[key]] = value
        if "bootstrap_servers" not in arguments:
            raise ConfigError("bootstrap.servers is missing: name at least one broker, as host:port")
        return arguments

    def _completed(self, given: frozenset[str]) -> Self:
        """Settle what depends on several settings; `given` are the names that the user set."""
        return self


@section()
class ProducerSettings(ClientSettings):
    """A producer's."""

    WHOSE: ClassVar[str] = "producer"

    # fmt: off
    transactional_id: String = setting(default="", meaning=
        "a name under which transactions survive this process, and by which older ones are fenced; empty: none")
    transaction_timeout_ms: Int = setting(default=60_000, valid=at_least(1), meaning=
        "brokers abort a transaction that stays open for longer")
    transaction_two_phase_commit_enable: Boolean = setting(default=False, meaning=
        "transactions never time out, however long no one ends them (KIP-939); the brokers' setting of this name must allow it")
    acks: int = setting(default=-1, written_default="all", valid=one_of("all", "-1", "0", "1"), importance=HIGH,
        type_=STRING, meaning=
        "who must have a batch before it counts as sent: 0 no one, 1 the leader, all in-sync replicas")
    """The value -1, which means all."""
    enable_idempotence: Boolean = setting(default=True, meaning=
        "brokers drop duplicates that retries make, and order is kept")
    linger_ms: Int = setting(default=5, valid=at_least(0), meaning=
        "how long a batch waits for more records before it is sent")
    batch_size: Int = setting(default=16_384, valid=at_least(0), meaning=
        "bytes of a batch, before compression; a larger record goes alone")
    buffer_memory: Long = setting(default=32 << 20, valid=at_least(0), meaning=
        "bytes that may wait to be sent; beyond, send() waits")
    max_block_ms: Long = setting(default=60_000, valid=at_least(0), meaning=
        "how long send() may wait for room or for a topic's metadata")
    max_request_size: Int = setting(default=1 << 20, valid=at_least(1_024), meaning=
        "the largest record, and the largest request")
    max_in_flight_requests_per_connection: Int = setting(default=5, valid=at_least(1), meaning=
        "requests under way to one broker; at most 5 if idempotent")
    metadata_max_idle_ms: Int = setting(default=300_000, valid=at_least(5_000), meaning=
        "stop asking about a topic that was not sent to for this long")
    delivery_timeout_ms: Int = setting(default=120_000, valid=at_least(1), meaning=
        "after this long a record is given up, retries included")
    retries: Int = setting(default=INT_MAX, valid=at_least(0), meaning=
        "how often a batch is tried again, within the delivery timeout")
    compression_type: String = setting(default="none", valid=one_of("none", "gzip", "snappy", "lz4", "zstd"), meaning=
        "how batches are compressed")
    compression_gzip_level: Int = setting(default=-1, valid=between(-1, 9), meaning=
        "1 to 9; -1: the usual one")
    compression_lz4_level: Int = setting(default=0, valid=between(0, 16), meaning=
        "0 to 16; above 2 slow and small")
    compression_zstd_level: Int = setting(default=3, valid=between(1, 22), meaning=
        "1 to 22")
    partitioner_adaptive_partitioning_enable: Boolean = setting(default=True, meaning=
        "records without a key go more often where the queue is short")
    partitioner_ignore_keys: Boolean = setting(default=False, meaning=
        "spread records with a key as if they had none")
    enable_metrics_push: Boolean = setting(default=True, meaning=
        "push metrics of this client to brokers that ask for them (KIP-714)")
    enable_opentelemetry: Boolean = setting(default=False, meaning=
        "Odradek's own: a span of OpenTelemetry for each record sent, whose context goes into its headers; needs odradek[otel]")
    # fmt: on

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


@section()
class ConsumerSettings(ClientSettings):
    """A consumer's."""

    WHOSE: ClassVar[str] = "consumer"

    # fmt: off
    group_id: String = setting(default="", meaning=
        "the group that this consumer reads with and commits for; empty: none")
    group_instance_id: String = setting(default="", meaning=
        "a name that outlives restarts: a static member keeps its partitions while it is away (KIP-345)")
    group_protocol: String = setting(default="auto", valid=one_of("auto", "consumer", "classic"), meaning=
        "consumer: the broker assigns (KIP-848); classic: members agree among themselves; auto, Odradek's own: consumer where"
        " the broker serves it, else classic")
    group_remote_assignor: String = setting(default="", meaning=
        "uniform or range, and makes group.protocol=auto consumer; empty: the broker's choice")
    partition_assignment_strategy: String = setting(default="range,cooperative-sticky", meaning=
        "range, roundrobin, sticky, cooperative-sticky, and makes group.protocol=auto classic; what all members have is used")
    session_timeout_ms: Int = setting(default=45_000, valid=at_least(1), meaning=
        "a member that is not heard of for this long is dead; makes group.protocol=auto classic")
    heartbeat_interval_ms: Int = setting(default=3_000, valid=at_least(1), meaning=
        "how often a member shows that it is alive; makes group.protocol=auto classic")
    max_poll_interval_ms: Int = setting(default=300_000, valid=at_least(1), meaning=
        "a member whose user does not poll for this long leaves the group; the limit for a rebalance, too")
    enable_auto_commit: Boolean = setting(default=True, meaning=
        "commit, inside poll() and close(), what earlier polls have returned")
    auto_commit_interval_ms: Int = setting(default=5_000, valid=at_least(0), meaning=
        "how often")
    auto_offset_reset: String = setting(default="latest", valid=_RESETS, meaning=
        "where to go when there is no position, or none that the partition still holds; none: raise")
    fetch_min_bytes: Int = setting(default=1, valid=at_least(0), meaning=
        "a broker waits until it has this much to answer with")
    fetch_max_wait_ms: Int = setting(default=500, valid=at_least(0), meaning=
        "but no longer than this")
    fetch_max_bytes: Int = setting(default=50 << 20, valid=at_least(1), meaning=
        "the most that one answer should hold")
    max_partition_fetch_bytes: Int = setting(default=1 << 20, valid=at_least(1), meaning=
        "the most of one partition in one answer")
    prefetch_max_bytes: Long = setting(default=64 << 20, valid=at_least(1), meaning=
        "Odradek's own: stop fetching ahead while this much waits for poll()")
    max_poll_records: Int = setting(default=500, valid=at_least(1), meaning=
        "the most records that poll() returns")
    check_crcs: Boolean = setting(default=True, meaning=
        "check each batch's CRC32C before it is read")
    client_rack: String = setting(default="", meaning=
        "the rack of this client: it reads from a replica there, if the brokers have a replica.selector.class (KIP-392);"
        " empty: from leaders")
    isolation_level: String = setting(default="read_uncommitted", valid=one_of("read_uncommitted", "read_committed"),
        meaning=
        "whether records of open and aborted transactions are seen")
    allow_auto_create_topics: Boolean = setting(default=True, meaning=
        "let the broker create an assigned topic that does not exist, if it does that")
    default_api_timeout_ms: Int = setting(default=60_000, valid=at_least(1), meaning=
        "how long calls without a timeout of their own may take")
    enable_metrics_push: Boolean = setting(default=True, meaning=
        "push metrics of this client to brokers that ask for them (KIP-714)")
    enable_opentelemetry: Boolean = setting(default=False, meaning=
        "Odradek's own: a span of OpenTelemetry for each record of a trace that poll returns; needs odradek[otel]")
    # fmt: on

    @property
    def reset_duration_ms(self) -> int:
        """The duration of auto.offset.reset=by_duration:...; 0 for the other policies."""
        return by_duration_ms(self.auto_offset_reset) or 0

    def _completed(self, given: frozenset[str]) -> Self:
        assignor_names(self.partition_assignment_strategy)
        if self.group_instance_id and not self.group_id:
            raise ConfigError("group.instance.id needs group.id")
        settings = self._with_protocol(given)
        if settings.group_protocol == "classic" and self.heartbeat_interval_ms >= self.session_timeout_ms:
            if "heartbeat_interval_ms" in given:
                raise ConfigError(
                    f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be below session.timeout.ms"
                    f" ({self.session_timeout_ms})"
                )
            return replace(settings, heartbeat_interval_ms=max(1, self.session_timeout_ms // 3))
        return settings

    def _with_protocol(self, given: frozenset[str]) -> Self:
        """Returns settings whose protocol has all settings that the user set; ConfigError if neither protocol has them."""
        classic = next((key for name, key in _OF_CLASSIC_GROUPS.items() if name in given), None)
        remote = self.group_remote_assignor
        if self.group_protocol == "consumer" and classic:
            raise ConfigError(
                f"{classic} cannot be set with group.protocol=consumer: {_ANSWERS_TO_MEMBERS[classic]}"
            )
        if self.group_protocol == "classic" and remote:
            raise ConfigError(
                "group.remote.assignor cannot be set with group.protocol=classic: set partition.assignment.strategy"
            )
        if classic and remote:
            raise ConfigError(
                f"{classic} is a setting of group.protocol=classic, group.remote.assignor of group.protocol=consumer:"
                " set one of the two"
            )
        if self.group_protocol == "auto" and (classic or remote):
            return replace(self, group_protocol="classic" if classic else "consumer")
        return self


@section()
class ShareConsumerSettings(ClientSettings):
    """A share consumer's."""

    WHOSE: ClassVar[str] = "share consumer"
    ANSWERS: ClassVar[Mapping[str, str]] = MappingProxyType({**_ANSWERS_TO, **_ANSWERS_TO_SHARE_CONSUMERS})

    # fmt: off
    group_id: String = setting(default="", meaning=
        "the share group that this consumer is a member of; it must be set")
    share_acknowledgement_mode: String = setting(default="implicit", valid=one_of("implicit", "explicit"), meaning=
        "implicit: the next poll() or commit() accepts what the last poll() returned; explicit: acknowledge() decides about"
        " each record")
    share_acquire_mode: String = setting(default="batch_optimized", valid=one_of("batch_optimized", "record_limit"), meaning=
        "batch_optimized: brokers lock whole batches for this consumer, which may exceed max.poll.records; record_limit: never"
        " more records than that (KIP-1206)")
    max_poll_records: Int = setting(default=500, valid=at_least(1), meaning=
        "the most records that poll() returns, and that a request asks for")
    max_poll_interval_ms: Int = setting(default=300_000, valid=at_least(1), meaning=
        "a member whose user does not poll for this long leaves the group until the next poll()")
    fetch_min_bytes: Int = setting(default=1, valid=at_least(0), meaning=
        "a broker waits until it has this much to answer with")
    fetch_max_wait_ms: Int = setting(default=500, valid=at_least(0), meaning=
        "but no longer than this")
    fetch_max_bytes: Int = setting(default=50 << 20, valid=at_least(1), meaning=
        "the most that one answer should hold")
    check_crcs: Boolean = setting(default=True, meaning=
        "check each batch's CRC32C before it is read")
    client_rack: String = setting(default="", meaning=
        "the rack of this client, which its heartbeats carry; empty: none")
    default_api_timeout_ms: Int = setting(default=60_000, valid=at_least(1), meaning=
        "how long calls without a timeout of their own may take")
    enable_metrics_push: Boolean = setting(default=True, meaning=
        "push metrics of this client to brokers that ask for them (KIP-714)")
    enable_opentelemetry: Boolean = setting(default=False, meaning=
        "Odradek's own: a span of OpenTelemetry for each record of a trace that poll returns; needs odradek[otel]")
    # fmt: on

    def _completed(self, given: frozenset[str]) -> Self:
        if not self.group_id:
            raise ConfigError("a share consumer needs group.id: the name of its share group")
        return self


@section()
class AdminSettings(ClientSettings):
    """An admin client's."""

    WHOSE: ClassVar[str] = "admin client"

    # fmt: off
    default_api_timeout_ms: Int = setting(default=60_000, valid=at_least(1), meaning=
        "how long calls without a timeout of their own may take")
    # fmt: on


def _checked(setting: Setting, value: object) -> object:
    """Returns `value` as the attribute holds it; raises ConfigError when it has the wrong type or is out of bounds."""
    if setting.key == "acks":
        word = str(value)
        setting.parse(word)
        return -1 if word in ("all", "-1") else int(word)
    if isinstance(value, str):
        return setting.parse(value)
    if setting.type is SettingType.LIST and isinstance(value, list | tuple):
        return setting.parse(",".join(map(str, value)))
    wanted = {SettingType.BOOLEAN: bool, SettingType.STRING: str, SettingType.PASSWORD: str}.get(
        setting.type, int
    )
    if type(value) is not wanted or (setting.valid is not None and not setting.valid.accepts(value)):
        shown = "(hidden)" if setting.sensitive else repr(value)
        raise ConfigError(f"{setting.key}={shown} is not allowed: expected {setting.allowed}")
    return value


def _unknown(settings: type[ClientSettings], key: str, known: list[str]) -> str:
    whose, advice = settings.WHOSE, settings.ANSWERS.get(key.replace("_", "."))
    if advice:
        return f"{whose} setting {key!r} is not supported: {advice}"
    likely = near_name(key, known, likeness=KEYS_ALIKE)
    hint = f": did you mean {likely!r}?" if likely else ""
    return f"unknown {whose} setting {key!r}{hint}"
