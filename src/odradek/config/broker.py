"""The settings of a broker: Kafka 4's keys, and a `BrokerConfig` with those that this version acts upon.

`BROKER_SETTINGS` knows three kinds of key: the fields of `BrokerConfig`, the broker's twins of the topic
settings (`log.retention.hours`, `message.max.bytes`, ...: they arrive in `BrokerConfig.topic_defaults`), and
those that have no effect in this version (`unsupported.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Final

from odradek.config.coordinator import CoordinatorConfig
from odradek.config.data_directory import default_data_directory
from odradek.config.definition import (
    Importance,
    Setting,
    SettingType,
    Update,
    at_least,
    by_key,
    declared,
    setting_field,
)
from odradek.config.listeners import Listener
from odradek.config.topic import TOPIC_ATTRIBUTES, TOPIC_SETTINGS, LogConfig
from odradek.config.unsupported import unsupported_settings

BOOLEAN, STRING, LIST, INT = SettingType.BOOLEAN, SettingType.STRING, SettingType.LIST, SettingType.INT
HIGH, LOW = Importance.HIGH, Importance.LOW


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokerConfig(CoordinatorConfig):
    """What governs one broker. `BrokerConfig()` is a broker on 127.0.0.1:9092 with Kafka's defaults.

    Build it with `load`, which checks what people write; the constructor trusts its caller.

    Its own settings are read once, at the start, but for those that are declared dynamic. So are the defaults of topics: a
    new one reaches every log that does not override it.

    The fields of a subject are in a module of their own, each a class that the next one extends, down to this one.
    """

    # Who this broker is
    node_id: int = setting_field(
        "node.id",
        INT,
        1,
        "This broker's number, unique in its cluster.",
        at_least(0),
        importance=HIGH,
        synonyms=("broker.id",),
    )
    broker_rack: str | None = setting_field(
        "broker.rack", STRING, None, "Where this broker stands: told to clients."
    )

    # Where it listens
    listeners: tuple[Listener, ...] = setting_field(
        "listeners",
        LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where to listen: NAME://HOST:PORT, separated by commas. No host: every interface. Port 0: any.",
        dynamic=Update.PER_BROKER,
        as_started=True,
        value={"default": (Listener(),)},
        importance=HIGH,
    )
    advertised_listeners: tuple[Listener, ...] = setting_field(
        "advertised.listeners",
        LIST,
        None,
        "What clients are told to connect to. Not set: the address to which they connected already.",
        value={"default": ()},
        importance=HIGH,
    )
    listener_security_protocol_map: Mapping[str, str] = setting_field(
        "listener.security.protocol.map",
        LIST,
        ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
        "The security protocol of each listener name: NAME:PROTOCOL, separated by commas.",
        dynamic=Update.PER_BROKER,
        as_started=True,
        value={"default_factory": lambda: {"PLAINTEXT": "PLAINTEXT"}},
        importance=LOW,
    )
    controller_listener_names: tuple[str, ...] = setting_field(
        "controller.listener.names",
        LIST,
        (),
        "Listeners meant for a KRaft controller. They are not opened, since there is none.",
        importance=LOW,
    )

    # Where it keeps data
    log_dirs: tuple[str, ...] = setting_field(
        "log.dirs",
        LIST,
        None,
        "The data directories, separated by commas; each partition lives in one of them.",
        value={"default_factory": lambda: (default_data_directory(),)},
        importance=HIGH,
        synonyms=("log.dir",),
    )

    # Topics
    auto_create_topics_enable: bool = setting_field(
        "auto.create.topics.enable",
        BOOLEAN,
        True,
        "Whether a topic is created when a client asks for one that does not exist.",
        importance=HIGH,
    )
    default_replication_factor: int = setting_field(
        "default.replication.factor",
        INT,
        1,
        "Replicas of a topic whose creator does not say how many.",
        at_least(1),
    )
    delete_topic_enable: bool = setting_field(
        "delete.topic.enable", BOOLEAN, True, "Whether topics may be deleted at all.", importance=HIGH
    )
    num_partitions: int = setting_field(
        "num.partitions", INT, 1, "Partitions of a topic whose creator does not say how many.", at_least(1)
    )

    topic_defaults: LogConfig = field(default_factory=LogConfig)
    """What a topic has that sets nothing itself."""
    originals: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What was given to `load`, as text: the broker's static configuration. Not in its `repr`: it may hold
    passwords."""
    dynamic: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What was changed on this running broker (`reconfigured`), as text: it outranks all else."""
    dynamic_defaults: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What was changed for all running brokers, as text: it outranks `originals`."""

    @classmethod
    def load(cls, values: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
        """What `values` (Kafka's keys, as text) describe, and a warning for each that has no effect.

        ConfigError names every value that cannot be used, and what is allowed.
        """
        from odradek.config.loading import load

        return load(values)

    def reconfigured(
        self, defaults: Mapping[str, str], own: Mapping[str, str] = MappingProxyType({})
    ) -> BrokerConfig:
        """This configuration with dynamic settings on top of what it was loaded from: those of all brokers (`defaults`),
        and above them this broker's own. ConfigError as in `load`.

        Of the settings that are known, only those that a running broker may take are accepted.
        """
        from odradek.config.loading import reconfigure

        return reconfigure(self, defaults, own)

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal. Not left to `dataclass`, which would compile two tuples of them at every start."""
        if not isinstance(other, BrokerConfig):
            return NotImplemented
        return all(getattr(self, each.name) == getattr(other, each.name) for each in fields(self))

    __hash__ = None  # type: ignore[assignment]


TWIN_UNIT_MS: Final = {".hours": 3_600_000, ".minutes": 60_000}
"""The endings of broker keys that count in another unit than the topic setting that they stand for."""


def _twin(topic: Setting, position: int) -> Setting:
    """The broker's setting at `position` among those that stand for a topic's setting.

    The strongest may change while the broker runs; the last carries the default, in its own unit.
    """
    key = topic.synonyms[position]
    unit_ms = next((ms for ending, ms in TWIN_UNIT_MS.items() if key.endswith(ending)), 1)
    default = topic.default
    if position + 1 < len(topic.synonyms):
        default = None
    elif isinstance(default, int) and unit_ms > 1:
        default //= unit_ms
    return Setting(
        key=key,
        type=INT if unit_ms > 1 else topic.type,
        default=default,
        meaning=f"For topics that do not set {topic.key}. {topic.meaning}",
        valid=topic.valid,
        importance=topic.importance,
        dynamic=Update.CLUSTER_WIDE if position == 0 else Update.READ_ONLY,
        synonyms=topic.synonyms[position + 1 :],
        effective=topic.effective,
    )


OLDER_NAMES: Final = (
    Setting(key="broker.id", type=INT, default=-1, meaning="The older name of node.id.", importance=LOW),
    Setting(
        key="log.dir",
        type=LIST,
        default=None,
        meaning="The data directory where log.dirs is not set; by default in the user's XDG data home.",
        importance=HIGH,
    ),
)

_unsupported = unsupported_settings()
UNSUPPORTED: Final[dict[str, str]] = {setting.key: reason for setting, reason in _unsupported}
"""Known keys without effect, and how the warning about each ends."""

BROKER_ATTRIBUTES: Final[dict[str, str]] = {
    setting.key: attribute for attribute, setting in declared(BrokerConfig).items()
}
"""The attribute of `BrokerConfig` that carries each key."""

TWINS: Final[dict[str, str]] = {
    key: TOPIC_ATTRIBUTES[topic.key] for topic in TOPIC_SETTINGS.values() for key in topic.synonyms
}
"""The attribute of `LogConfig` that each broker twin of a topic setting stands for."""

BROKER_SETTINGS: Final[dict[str, Setting]] = by_key(
    [
        *declared(BrokerConfig).values(),
        *OLDER_NAMES,
        *(
            _twin(topic, position)
            for topic in TOPIC_SETTINGS.values()
            for position in range(len(topic.synonyms))
        ),
        *(setting for setting, _ in _unsupported),
    ]
)
