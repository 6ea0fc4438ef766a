"""The state of the cluster at one moment: immutable values that every part of a broker may read without locks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.model.parted import Parted
from odradek.security.quota_entities import Entity
from odradek.security.sasl.delegation_tokens import NO_TOKENS, DelegationTokens
from odradek.security.sasl.users import NO_SCRAM_USERS, ScramUsers

if TYPE_CHECKING:
    from odradek.security.acls import Acl

ResourceConfigs = Parted[tuple[int, str], Mapping[str, str]]
"""Overrides by (type, name) of a resource; the types are Kafka's numbers."""
ClientQuotas = Parted[Entity, Mapping[str, float]]
"""Limits by name, of each entity."""


NO_LEADER: Final = BrokerId(-1)
ACL_PARTS: Final = 8
"""See `documents.py`."""
NO_RESOURCE_CONFIGS: Final[ResourceConfigs] = Parted(lambda resource: f"{resource[0]}:{resource[1]}")
NO_QUOTAS: Final[ClientQuotas] = Parted(lambda entity: "\0".join(f"{kind}:{name}" for kind, name in entity))
NO_ACLS: Final[tuple[frozenset[Acl], ...]] = (frozenset(),) * ACL_PARTS


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A live broker and where it is reached.

    `host` and `port` are for other brokers; `endpoints` are for clients, by the name of the listener. A host of "" means the
    machine of the broker that is asked: clients get the address that they already use, with this port.
    """

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None = None
    epoch: int = -1
    """The epoch of this run of the broker; it grows with every registration."""
    endpoints: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    is_leaving: bool = False
    """True in controlled shutdown: the broker leads nothing and joins no ISR any more (KIP-841)."""
    is_cordoned: bool = False
    """True if the broker gets no new replicas."""
    control_plane: str | None = None
    """The name of the endpoint in `endpoints` for brokers' requests to the controller. None: they use `host` and `port` for
    that, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """The leader of a partition, its epoch, and the replicas.

    `partition_epoch` grows with every change of this record, `leader_epoch` with every election.
    """

    leader: BrokerId
    """`NO_LEADER` while no one can lead."""
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    partition_epoch: int = 0
    adding: tuple[BrokerId, ...] = ()
    """Replicas that a reassignment under way brings; they are among `replicas`."""
    removing: tuple[BrokerId, ...] = ()
    """Replicas that it takes away in the end; they are among `replicas`, too."""
    eligible: tuple[BrokerId, ...] = ()
    """Not in sync, yet safe to lead: they left the ISR when it was below min.insync.replicas (KIP-966's ELR)."""
    last_known_leader: BrokerId = NO_LEADER
    """The last leader before no replica was left to lead."""
    recovering: bool = False
    """The leader was elected uncleanly: what it lacks is lost (KIP-704)."""

    @property
    def is_reassigned(self) -> bool:
        """True if a move is under way."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas after the move."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """A topic; `configs` are the overrides its creator gave, in Kafka's keys."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevels:
    """The finalized levels of features (KIP-584), by name; `epoch` counts the changes."""

    epoch: int = 0
    levels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """The state of the whole cluster at one moment. `version` grows with every change, so that answers made from an image
    can be cached."""

    version: int
    cluster_id: str
    controller_id: BrokerId
    brokers: tuple[BrokerImage, ...]
    topics: Mapping[str, TopicImage]
    topics_by_id: Mapping[UUID, TopicImage]
    broker_configs: Mapping[str, str] = field(default_factory=dict)
    """Dynamic overrides of all brokers' settings, in Kafka's keys."""
    resource_configs: ResourceConfigs = NO_RESOURCE_CONFIGS
    """Dynamic overrides of single brokers, of groups, and of subscriptions to clients' metrics."""
    client_quotas: ClientQuotas = NO_QUOTAS
    features: FeatureLevels = field(default_factory=FeatureLevels)
    acls: tuple[frozenset[Acl], ...] = NO_ACLS
    """All ACLs, in `ACL_PARTS` parts."""
    scram_users: ScramUsers = NO_SCRAM_USERS
    delegation_tokens: DelegationTokens = NO_TOKENS
    """Delegation tokens by id (KIP-48)."""
    controller_epoch: int = 0

    def with_topics(self, changed: Iterable[TopicImage]) -> ClusterImage:
        """Returns the image with topics added or replaced."""
        return self.with_changed_topics(changed, ())

    def without_topics(self, names: Collection[str]) -> ClusterImage:
        """Returns the image without topics; KeyError for one that there is not."""
        return self.with_changed_topics((), names)

    def with_changed_topics(self, changed: Iterable[TopicImage], gone: Iterable[str]) -> ClusterImage:
        """Returns the image without the topics in `gone`, and with the others added or replaced.

        The tables are copied as they are, so that a change of one topic of ten thousand does not hash all of their ids again.
        """
        topics, by_id = dict(self.topics), dict(self.topics_by_id)
        for name in gone:
            del by_id[topics.pop(name).topic_id]
        for topic in changed:
            present = topics.get(topic.name)
            if present is not None and present.topic_id != topic.topic_id:
                del by_id[present.topic_id]
            topics[topic.name] = by_id[topic.topic_id] = topic
        return replace(self, version=self.version + 1, topics=topics, topics_by_id=by_id)

    def with_only_topics(self, topics: Mapping[str, TopicImage]) -> ClusterImage:
        """Returns the image with these topics and no others."""
        by_id = {topic.topic_id: topic for topic in topics.values()}
        return replace(self, version=self.version + 1, topics=dict(topics), topics_by_id=by_id)

    def with_broker_configs(self, configs: Mapping[str, str]) -> ClusterImage:
        return replace(self, version=self.version + 1, broker_configs=configs)

    def with_brokers(self, brokers: tuple[BrokerImage, ...]) -> ClusterImage:
        return replace(self, version=self.version + 1, brokers=brokers)


def differ(before: object, after: object) -> bool:
    """Returns whether two values of a field differ. Most changes leave most fields as they are: the same object is not
    compared with itself, entry by entry."""
    return before is not after and before != after
