"""Settings of the clients in a consumer that tries again: the user's, and those that it needs itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.client.settings.security_settings import SecuritySettings
from odradek.client.settings.settings import AdminSettings, ConsumerSettings, ProducerSettings
from odradek.dead_letters.sending_back import PRODUCER_SETTINGS
from odradek.model.errors import ConfigError
from odradek.model.java_numbers import trimmed, whole_number
from odradek.retry.policy import CONFIG_KEYS, RetryPolicy
from odradek.runtime.real_clock import SystemEntropy

PRODUCER_PREFIX: Final = "producer."
_TRANSACTION_TIMEOUT_MS: Final = 10_000
"""A transaction begins after the records are handled, and is short; one of a member that died holds up its successor."""
_LONGEST_SHARE: Final = 0.5
"""The part of max.poll.interval.ms after which a poll's remaining records are left, to be read again: the next poll must be in
time for the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfigs:
    """Keyword arguments of each client."""

    group_id: str
    longest_turn_s: float
    consumer: Any
    producer: Any
    admin: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSections:
    """A mapping with all settings, sorted by whom they are for."""

    bootstrap_servers: Any
    topics: tuple[str, ...]
    policy: RetryPolicy
    transactional_id: str | None
    consumer: Any
    producer: dict[str, Any]


def client_configs(
    policy: RetryPolicy,
    settings: Mapping[str, object],
    producer: Mapping[str, object],
    transactional_id: str | None,
) -> ClientConfigs:
    """Raises ConfigError for what cannot be, such as no group, or offsets that the consumer commits by itself."""
    group_id = str(settings.get("group_id") or "")
    if not group_id:
        raise ConfigError("a consumer that tries again is a member of a group: set group_id")
    if settings.get("enable_auto_commit"):
        raise ConfigError(
            "enable_auto_commit=True would commit records before they are handled: leave it out"
        )
    consumer = {"auto_offset_reset": "earliest", **settings, "enable_auto_commit": False}
    login = {key: value for key, value in settings.items() if key in SecuritySettings.settings}
    sending = {**PRODUCER_SETTINGS, **login, **producer}
    if policy.exactly_once:
        if settings.get("isolation_level", "read_committed") != "read_committed":
            raise ConfigError("delivery=exactly_once needs isolation_level=read_committed")
        consumer["isolation_level"] = "read_committed"
        name = settings.get("group_instance_id") or SystemEntropy().uuid().hex
        sending.setdefault("transactional_id", transactional_id or f"{group_id}-retry-{name}")
        sending.setdefault("transaction_timeout_ms", _TRANSACTION_TIMEOUT_MS)
    elif transactional_id:
        raise ConfigError("transactional_id is only of use with delivery=exactly_once")
    interval_ms = _milliseconds("max.poll.interval.ms", settings.get("max_poll_interval_ms", 300_000))
    admin = {key: value for key, value in settings.items() if key in AdminSettings.settings}
    return ClientConfigs(
        group_id=group_id,
        longest_turn_s=interval_ms / 1000 * _LONGEST_SHARE,
        consumer=consumer,
        producer=sending,
        admin=admin,
    )


def given_config(config: Mapping[str, object]) -> ConfigSections:
    """Sort a user's mapping; ConfigError names what is missing or unknown."""
    policy = RetryPolicy.from_config({key: value for key, value in config.items() if key in CONFIG_KEYS})
    rest = {key: value for key, value in config.items() if key not in CONFIG_KEYS}
    topics = _topics(rest.pop("topics", ()))
    transactional_id = rest.pop("transactional.id", None)
    servers = rest.pop("bootstrap.servers", None)
    if not servers:
        raise ConfigError("bootstrap.servers is missing: where is the cluster?")
    sending = {
        key.removeprefix(PRODUCER_PREFIX): value
        for key, value in rest.items()
        if key.startswith(PRODUCER_PREFIX)
    }
    elsewhere = sending.pop("bootstrap.servers", servers)
    if elsewhere != servers:
        raise ConfigError(
            f"producer.bootstrap.servers={elsewhere!r}: retry and dead-letter topics are in the cluster of the topics that are"
            " read; leave it out"
        )
    reading = {key: value for key, value in rest.items() if not key.startswith(PRODUCER_PREFIX)}
    return ConfigSections(
        bootstrap_servers=servers,
        topics=topics,
        policy=policy,
        transactional_id=None if transactional_id is None else str(transactional_id),
        consumer=_arguments(ConsumerSettings, reading, servers),
        producer=_arguments(ProducerSettings, sending, servers),
    )


def _milliseconds(key: str, value: object) -> int:
    try:
        return whole_number(trimmed(str(value)))
    except ValueError:
        raise ConfigError(
            f"{key}={value!r:.80} is no number of milliseconds: write digits only, such as 1000"
        ) from None


def _topics(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Iterable):
        raise ConfigError(
            f"topics={value!r} is no list of topics: give a text such as 'orders,refunds', or a list"
        )
    return tuple(str(topic).strip() for topic in items if str(topic).strip())


def _arguments(
    kind: type[ConsumerSettings | ProducerSettings], config: Mapping[str, object], servers: object
) -> dict[str, Any]:
    arguments = kind.arguments({**config, "bootstrap.servers": servers})
    arguments.pop("bootstrap_servers")
    return arguments
