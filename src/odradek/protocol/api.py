"""The table of APIs: what a broker offers, and where each API's messages are declared.

The numbers stand here, apart from the declarations, so that building an ApiVersions answer or reading a
request header imports no message module: `Api.request` and `Api.response` do that, once each. A test compares
the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.lazy import lazy
from odradek.protocol.schema import Message
from odradek.protocol.versions import VersionRange

API_VERSIONS_KEY: Final = 18


@dataclass(frozen=True, kw_only=True)
class Api:
    """One API. `versions` can be encoded and decoded; up to `latest_stable` they are offered by default."""

    key: int
    name: str
    family: str
    """What it is about: the folder that its messages and its handler are in."""
    versions: VersionRange
    flexible_from: int | None
    latest_stable: int
    advertised_min: int
    """Lowest version to name in an ApiVersions answer. Below `versions.min` only for Produce, see
    `API_TABLE`."""
    internal: bool = False
    """Spoken between brokers alone: ApiVersions names it to a broker, and to nobody else."""

    @property
    def module(self) -> str:
        """Dotted name of the module with the declarations."""
        return f"odradek.protocol.messages.{self.family}.{self.snake_name}"

    @property
    def snake_name(self) -> str:
        """The name of the API in files: "list_offsets"."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()

    @cached_property
    def request(self) -> type[Message]:
        """The request's class; imports its module on first use."""
        cls: type[Message] = getattr(lazy(self.module), f"{self.name}Request")
        return cls

    @cached_property
    def response(self) -> type[Message]:
        """The response's class; imports its module on first use."""
        cls: type[Message] = getattr(lazy(self.module), f"{self.name}Response")
        return cls

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields (KIP-482)."""
        return self.flexible_from is not None and version >= self.flexible_from

    def offered(self, *, unstable: bool = False) -> VersionRange:
        """The range to advertise; `unstable` adds versions that Kafka has not released yet."""
        return VersionRange(self.advertised_min, self.versions.max if unstable else self.latest_stable)


# key, name, family (the folder of its messages and its handler), lowest and highest version, first flexible version.
_ROWS: Final = (
    (0, "Produce", "data", 3, 13, 9),
    (1, "Fetch", "data", 4, 18, 12),
    (2, "ListOffsets", "data", 1, 11, 6),
    (3, "Metadata", "metadata", 0, 13, 9),
    (8, "OffsetCommit", "groups", 2, 10, 8),
    (9, "OffsetFetch", "groups", 1, 10, 6),
    (10, "FindCoordinator", "metadata", 0, 6, 3),
    (11, "JoinGroup", "groups", 0, 9, 6),
    (12, "Heartbeat", "groups", 0, 4, 4),
    (13, "LeaveGroup", "groups", 0, 5, 4),
    (14, "SyncGroup", "groups", 0, 5, 4),
    (15, "DescribeGroups", "groups", 0, 6, 5),
    (16, "ListGroups", "groups", 0, 5, 3),
    (17, "SaslHandshake", "security", 0, 1, None),
    (18, "ApiVersions", "metadata", 0, 4, 3),
    (19, "CreateTopics", "topics", 2, 7, 5),
    (20, "DeleteTopics", "topics", 1, 6, 4),
    (21, "DeleteRecords", "data", 0, 2, 2),
    (22, "InitProducerId", "transactions", 0, 6, 2),
    (23, "OffsetForLeaderEpoch", "data", 2, 4, 4),
    (24, "AddPartitionsToTxn", "transactions", 0, 5, 3),
    (25, "AddOffsetsToTxn", "transactions", 0, 4, 3),
    (26, "EndTxn", "transactions", 0, 5, 3),
    (27, "WriteTxnMarkers", "transactions", 1, 2, 1),
    (28, "TxnOffsetCommit", "transactions", 0, 5, 3),
    (29, "DescribeAcls", "security", 1, 3, 2),
    (30, "CreateAcls", "security", 1, 3, 2),
    (31, "DeleteAcls", "security", 1, 3, 2),
    (32, "DescribeConfigs", "configs", 1, 4, 4),
    (33, "AlterConfigs", "configs", 0, 2, 2),
    (34, "AlterReplicaLogDirs", "topics", 1, 2, 2),
    (35, "DescribeLogDirs", "topics", 1, 5, 2),
    (36, "SaslAuthenticate", "security", 0, 2, 2),
    (37, "CreatePartitions", "topics", 0, 3, 2),
    (42, "DeleteGroups", "groups", 0, 2, 2),
    (43, "ElectLeaders", "topics", 0, 2, 2),
    (44, "IncrementalAlterConfigs", "configs", 0, 1, 1),
    (45, "AlterPartitionReassignments", "topics", 0, 1, 0),
    (46, "ListPartitionReassignments", "topics", 0, 0, 0),
    (47, "OffsetDelete", "groups", 0, 0, None),
    (48, "DescribeClientQuotas", "quotas", 0, 1, 1),
    (49, "AlterClientQuotas", "quotas", 0, 1, 1),
    (50, "DescribeUserScramCredentials", "security", 0, 0, 0),
    (51, "AlterUserScramCredentials", "security", 0, 0, 0),
    (55, "DescribeQuorum", "cluster", 0, 2, 0),
    (56, "AlterPartition", "cluster", 2, 3, 0),
    (57, "UpdateFeatures", "cluster", 0, 2, 0),
    (60, "DescribeCluster", "metadata", 0, 2, 0),
    (61, "DescribeProducers", "data", 0, 0, 0),
    (64, "UnregisterBroker", "cluster", 0, 0, 0),
    (65, "DescribeTransactions", "transactions", 0, 0, 0),
    (66, "ListTransactions", "transactions", 0, 2, 0),
    (67, "AllocateProducerIds", "cluster", 0, 0, 0),
    (68, "ConsumerGroupHeartbeat", "groups", 0, 1, 0),
    (69, "ConsumerGroupDescribe", "groups", 0, 1, 0),
    (71, "GetTelemetrySubscriptions", "configs", 0, 0, 0),
    (72, "PushTelemetry", "configs", 0, 0, 0),
    (74, "ListConfigResources", "configs", 0, 1, 0),
    (75, "DescribeTopicPartitions", "metadata", 0, 0, 0),
    (76, "ShareGroupHeartbeat", "share", 1, 1, 0),
    (77, "ShareGroupDescribe", "share", 1, 1, 0),
    (78, "ShareFetch", "share", 1, 2, 0),
    (79, "ShareAcknowledge", "share", 1, 2, 0),
    (83, "InitializeShareGroupState", "share", 0, 0, 0),
    (84, "ReadShareGroupState", "share", 0, 0, 0),
    (85, "WriteShareGroupState", "share", 0, 1, 0),
    (86, "DeleteShareGroupState", "share", 0, 0, 0),
    (87, "ReadShareGroupStateSummary", "share", 0, 1, 0),
    (90, "DescribeShareGroupOffsets", "share", 0, 1, 0),
    (91, "AlterShareGroupOffsets", "share", 0, 0, 0),
    (92, "DeleteShareGroupOffsets", "share", 0, 0, 0),
    (10000, "ClusterSync", "cluster", 0, 0, 0),
    (10001, "Forward", "cluster", 0, 0, 0),
    (10002, "IdentifyBroker", "cluster", 0, 0, 0),
)

_LATEST_STABLE: Final = {22: 5}
"""InitProducerId 6 carries two-phase commit (KIP-939), which Kafka 4.3 still marks unstable."""

_INTERNAL: Final = frozenset({56, 58, 67, 83, 84, 85, 86, 87, 10000, 10001, 10002})

_ADVERTISED_MIN: Final = {0: 0}
"""librdkafka switches features off when Produce does not start at 0 (KAFKA-18659), so brokers advertise 0-2
and then refuse them."""

BROKER_SOFTWARE: Final = "odradek-broker"
"""What a broker calls its software when it asks another for ApiVersions."""

APIS: Final[dict[int, Api]] = {
    key: Api(
        key=key,
        name=name,
        family=family,
        versions=VersionRange(lowest, highest),
        flexible_from=flexible_from,
        latest_stable=_LATEST_STABLE.get(key, highest),
        advertised_min=_ADVERTISED_MIN.get(key, lowest),
        internal=key in _INTERNAL,
    )
    for key, name, family, lowest, highest, flexible_from in _ROWS
}
"""Every API with declared messages, by key."""

_BY_NAME: Final = {api.name: api for api in APIS.values()}


def api_by_key(key: int) -> Api:
    """Raises KafkaError UNSUPPORTED_VERSION for a key without messages, as Kafka answers unknown APIs."""
    api = APIS.get(key)
    if api is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no API with key {key}")
    return api


def api_by_name(name: str) -> Api:
    """Look up Kafka's name: "ListOffsets". KeyError when there is none."""
    return _BY_NAME[name]


def api_of(message: Message | type[Message]) -> Api:
    """The API that a request or response belongs to."""
    key = message.API_KEY
    if key is None:
        cls = message if isinstance(message, type) else type(message)
        raise KeyError(f"{cls.__name__} is not part of an API")
    return APIS[key]
