"""The types of the admin client's arguments and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.model.public import public
from odradek.protocol.acls import AclOperation


@public("odradek")
@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 leaves a number to the broker's default.

    `configs`: settings by Kafka's names, with their values as text. `assignments`: the brokers of each partition, its
    preferred leader first, in place of the two numbers.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    assignments: Sequence[Sequence[int]] | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic that was created, or would be with `validate_only`. Numbers are -1 and configs None if the broker sends none."""

    name: str
    topic_id: UUID = ZERO_UUID
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition. `leader` is -1 while it has none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """One topic and its partitions, in order."""

    name: str
    topic_id: UUID
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None
    """What this client may do to the topic (KIP-430); None where it was not asked for, or the broker does not say."""

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The topic's partitions, in order."""
        return tuple(TopicPartition(self.name, partition.partition) for partition in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """One broker, as it wants to be reached from here."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The cluster. `controller_id` may be any broker's in a KRaft cluster: brokers pass requests on."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


ClusterOperations = frozenset[AclOperation] | None
"""What a client may do to the cluster as a whole (KIP-430); None where brokers do not say."""


class ResourceType(IntEnum):
    """The types of resources that can have settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@public("odradek")
@dataclass(frozen=True, slots=True)
class ConfigResource:
    """Something with settings. `ConfigResource.broker()` without an id is the default of all brokers."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """Returns the settings of a topic as a resource."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigResource:
        """Returns the settings of one broker as a resource; without an id, those that all brokers share."""
        return cls(ResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def group(cls, name: str) -> ConfigResource:
        """Returns the settings of a group as a resource."""
        return cls(ResourceType.GROUP, name)

    @classmethod
    def loggers(cls, broker_id: int) -> ConfigResource:
        """Returns the levels of a broker's loggers as a resource."""
        return cls(ResourceType.BROKER_LOGGER, str(broker_id))

    @classmethod
    def client_metrics(cls, name: str) -> ConfigResource:
        """Returns a subscription to clients' metrics."""
        return cls(ResourceType.CLIENT_METRICS, name)

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(default)'}"


class ConfigSource(IntEnum):
    """The source of a setting's value."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """A value that a setting has or would have, and where it is set: for a topic's `segment.bytes`, `log.segment.bytes`."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting's value. None: not set, or not shown because it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN
    read_only: bool = False
    sensitive: bool = False
    documentation: str | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()
    """The values that count where those before them are not set, the present one first; empty unless asked for."""

    @property
    def is_default(self) -> bool:
        """Whether the value is the broker's default, set nowhere."""
        return self.source is ConfigSource.DEFAULT

    @property
    def inherited(self) -> ConfigSynonym | None:
        """The value that it goes back to when the present one is unset; None when that is not known, or there is none."""
        return self.synonyms[1] if len(self.synonyms) > 1 else None


@dataclass(frozen=True, slots=True)
class Append:
    """A change for `alter_configs` that adds these items (separated by commas) to a list."""

    items: str


@dataclass(frozen=True, slots=True)
class Subtract:
    """A change for `alter_configs` that removes these items from a list."""

    items: str


ConfigChange = str | Append | Subtract | None
"""A new value, a change to a list, or None: back to the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLogDescription:
    """One replica in a log directory."""

    size_bytes: int
    offset_lag: int
    future: bool
    """Whether the replica is being moved here from another directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """One log directory of one broker. Sizes are -1 where the broker does not report them."""

    path: str
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, ReplicaLogDescription]
    error: str | None = None
    """The reason why the directory is offline; None if it is online."""
    condition: str = ""
    """`full` or `slow` if an Odradek broker reports it: other brokers lead the partitions of this
    directory."""
