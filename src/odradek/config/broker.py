"""The settings of a broker: Kafka 4's keys, and a `BrokerConfig` with those that this version implements.

`BROKER_SETTINGS` knows three kinds of key: the rows of the sections of `BrokerConfig`, the broker's twins of the topic
settings (`log.retention.hours`, `message.max.bytes`, ...: they arrive in `BrokerConfig.log`), and
those that have no effect in this version (`unsupported.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from odradek.config.access import AccessConfig, AuditConfig, DelegationConfig
from odradek.config.cluster import ClusterConfig, ControllerConfig, ReplicationConfig
from odradek.config.coordinator import GroupConfig, OffsetsConfig, ShareCoordinatorConfig, TransactionConfig
from odradek.config.definition import DynamicUpdate, Importance, Scope, Setting, SettingType, by_key
from odradek.config.listener_security import ListenerSecurity
from odradek.config.network import NetworkConfig, QuotaConfig
from odradek.config.sasl import SaslConfig
from odradek.config.section import Path, Section, declared, section, value_at
from odradek.config.server import (
    CleanerConfig,
    MetricsConfig,
    OtlpConfig,
    ServerConfig,
    StorageConfig,
    TopicCreationConfig,
)
from odradek.config.tls import SslConfig
from odradek.config.topic import TOPIC_ATTRIBUTES, TOPIC_SETTINGS, LogConfig
from odradek.config.unsupported import unsupported_settings
from odradek.config.zookeeper import ZooKeeperConfig

LIST, INT = SettingType.LIST, SettingType.INT
HIGH, LOW = Importance.HIGH, Importance.LOW


@section()
class BrokerConfig(Section):
    """The settings of one broker. `BrokerConfig()` is a broker on 127.0.0.1:9092 with Kafka's defaults.

    Build it with `loading.load_broker_config`, which checks what people write; the constructor trusts its caller.

    Its own settings are read once, at the start, except those that are declared dynamic. So are the defaults
    of topics: a new default reaches every log that does not override it.
    """

    server: ServerConfig = field(default_factory=ServerConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    quota: QuotaConfig = field(default_factory=QuotaConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)
    log: LogConfig = field(default_factory=LogConfig)
    """The settings of a topic that sets nothing itself."""
    topics: TopicCreationConfig = field(default_factory=TopicCreationConfig)
    group: GroupConfig = field(default_factory=GroupConfig)
    offsets: OffsetsConfig = field(default_factory=OffsetsConfig)
    transaction: TransactionConfig = field(default_factory=TransactionConfig)
    share_coordinator: ShareCoordinatorConfig = field(default_factory=ShareCoordinatorConfig)
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    zookeeper: ZooKeeperConfig = field(default_factory=ZooKeeperConfig)
    access: AccessConfig = field(default_factory=AccessConfig)
    ssl: SslConfig = field(default_factory=SslConfig)
    sasl: SaslConfig = field(default_factory=SaslConfig)
    delegation: DelegationConfig = field(default_factory=DelegationConfig)
    security: Mapping[str, ListenerSecurity] = field(default_factory=dict)
    """Each listener's security by its name: the sections `ssl` and `sasl`, and the settings of that listener alone."""
    audit: AuditConfig = field(default_factory=AuditConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    otlp: OtlpConfig = field(default_factory=OtlpConfig)

    originals: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The values that it was loaded from, as text: the broker's static configuration. Not in its `repr`: it may hold
    passwords."""
    dynamic: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values changed on this running broker (`loading.reconfigured`), as text: they override all others."""
    dynamic_defaults: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values changed for all running brokers, as text: they override `originals`."""


TWIN_UNIT_MS: Final = {".hours": 3_600_000, ".minutes": 60_000}
"""The endings of broker keys that count in another unit than their topic setting."""


def _twin(topic: Setting, position: int) -> Setting:
    """Returns the broker's setting at `position` among the synonyms of a topic's setting.

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
        dynamic=DynamicUpdate.CLUSTER_WIDE if position == 0 else DynamicUpdate.READ_ONLY,
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
"""Known keys without effect, and the end of the warning about each."""

_carried = [(path, setting) for path, setting in declared(BrokerConfig) if setting.scope is Scope.BROKER]
BROKER_PATHS: Final[dict[str, Path]] = {setting.key: path for path, setting in _carried}
"""The path of each key's value in `BrokerConfig`."""

TWINS: Final[dict[str, str]] = {
    key: TOPIC_ATTRIBUTES[topic.key] for topic in TOPIC_SETTINGS.values() for key in topic.synonyms
}
"""The attribute of `LogConfig` for each broker twin of a topic setting."""

BROKER_SETTINGS: Final[dict[str, Setting]] = by_key(
    [
        *(setting for _, setting in _carried),
        *OLDER_NAMES,
        *(
            _twin(topic, position)
            for topic in TOPIC_SETTINGS.values()
            for position in range(len(topic.synonyms))
        ),
        *(setting for setting, _ in _unsupported),
    ]
)


def value_of(config: BrokerConfig, key: str) -> object:
    """Returns the value of one of the broker's own settings."""
    return value_at(config, BROKER_PATHS[key])
