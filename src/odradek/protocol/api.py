"""The table of APIs: what a broker offers, and where each API's messages are declared.

The numbers stand here, apart from the declarations, so that building an ApiVersions answer or reading a
request header imports no message module: `Api.request` and `Api.response` do that, once each. A test compares
the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.schema import Message
from odradek.protocol.versions import VersionRange

API_VERSIONS_KEY: Final = 18


@dataclass(frozen=True, kw_only=True)
class Api:
    """One API. `versions` can be encoded and decoded; up to `latest_stable` they are offered by default."""

    key: int
    name: str
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
        return f"odradek.protocol.messages.{self.snake_name}"

    @property
    def snake_name(self) -> str:
        """The name of the API in files: "list_offsets"."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()

    @cached_property
    def request(self) -> type[Message]:
        """The request's class; imports its module on first use."""
        cls: type[Message] = getattr(import_module(self.module), f"{self.name}Request")
        return cls

    @cached_property
    def response(self) -> type[Message]:
        """The response's class; imports its module on first use."""
        cls: type[Message] = getattr(import_module(self.module), f"{self.name}Response")
        return cls

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields (KIP-482)."""
        return self.flexible_from is not None and version >= self.flexible_from

    def offered(self, *, unstable: bool = False) -> VersionRange:
        """The range to advertise; `unstable` adds versions that Kafka has not released yet."""
        return VersionRange(self.advertised_min, self.versions.max if unstable else self.latest_stable)


# key, name, lowest and highest version, first flexible version.
_ROWS: Final = (
    (0, "Produce", 3, 13, 9),
    (1, "Fetch", 4, 18, 12),
    (2, "ListOffsets", 1, 11, 6),
    (3, "Metadata", 0, 13, 9),
    (8, "OffsetCommit", 2, 10, 8),
    (9, "OffsetFetch", 1, 10, 6),
    (10, "FindCoordinator", 0, 6, 3),
    (11, "JoinGroup", 0, 9, 6),
    (12, "Heartbeat", 0, 4, 4),
    (13, "LeaveGroup", 0, 5, 4),
    (14, "SyncGroup", 0, 5, 4),
    (15, "DescribeGroups", 0, 6, 5),
    (16, "ListGroups", 0, 5, 3),
    (17, "SaslHandshake", 0, 1, None),
    (18, "ApiVersions", 0, 4, 3),
    (19, "CreateTopics", 2, 7, 5),
    (20, "DeleteTopics", 1, 6, 4),
    (21, "DeleteRecords", 0, 2, 2),
    (22, "InitProducerId", 0, 6, 2),
    (23, "OffsetForLeaderEpoch", 2, 4, 4),
    (24, "AddPartitionsToTxn", 0, 5, 3),
    (25, "AddOffsetsToTxn", 0, 4, 3),
    (26, "EndTxn", 0, 5, 3),
    (27, "WriteTxnMarkers", 1, 2, 1),
    (28, "TxnOffsetCommit", 0, 5, 3),
    (29, "DescribeAcls", 1, 3, 2),
    (30, "CreateAcls", 1, 3, 2),
    (31, "DeleteAcls", 1, 3, 2),
    (32, "DescribeConfigs", 1, 4, 4),
    (33, "AlterConfigs", 0, 2, 2),
    (34, "AlterReplicaLogDirs", 1, 2, 2),
    (35, "DescribeLogDirs", 1, 5, 2),
    (36, "SaslAuthenticate", 0, 2, 2),
    (37, "CreatePartitions", 0, 3, 2),
    (42, "DeleteGroups", 0, 2, 2),
    (43, "ElectLeaders", 0, 2, 2),
    (44, "IncrementalAlterConfigs", 0, 1, 1),
    (45, "AlterPartitionReassignments", 0, 1, 0),
    (46, "ListPartitionReassignments", 0, 0, 0),
    (47, "OffsetDelete", 0, 0, None),
    (48, "DescribeClientQuotas", 0, 1, 1),
    (49, "AlterClientQuotas", 0, 1, 1),
    (50, "DescribeUserScramCredentials", 0, 0, 0),
    (51, "AlterUserScramCredentials", 0, 0, 0),
    (55, "DescribeQuorum", 0, 2, 0),
    (56, "AlterPartition", 2, 3, 0),
    (57, "UpdateFeatures", 0, 2, 0),
    (60, "DescribeCluster", 0, 2, 0),
    (61, "DescribeProducers", 0, 0, 0),
    (64, "UnregisterBroker", 0, 0, 0),
    (65, "DescribeTransactions", 0, 0, 0),
    (66, "ListTransactions", 0, 2, 0),
    (67, "AllocateProducerIds", 0, 0, 0),
    (68, "ConsumerGroupHeartbeat", 0, 1, 0),
    (69, "ConsumerGroupDescribe", 0, 1, 0),
    (71, "GetTelemetrySubscriptions", 0, 0, 0),
    (72, "PushTelemetry", 0, 0, 0),
    (74, "ListConfigResources", 0, 1, 0),
    (75, "DescribeTopicPartitions", 0, 0, 0),
    (76, "ShareGroupHeartbeat", 1, 1, 0),
    (77, "ShareGroupDescribe", 1, 1, 0),
    (78, "ShareFetch", 1, 2, 0),
    (79, "ShareAcknowledge", 1, 2, 0),
    (83, "InitializeShareGroupState", 0, 0, 0),
    (84, "ReadShareGroupState", 0, 0, 0),
    (85, "WriteShareGroupState", 0, 1, 0),
    (86, "DeleteShareGroupState", 0, 0, 0),
    (87, "ReadShareGroupStateSummary", 0, 1, 0),
    (90, "DescribeShareGroupOffsets", 0, 1, 0),
    (91, "AlterShareGroupOffsets", 0, 0, 0),
    (92, "DeleteShareGroupOffsets", 0, 0, 0),
    (10000, "ClusterSync", 0, 0, 0),
    (10001, "Forward", 0, 0, 0),
    (10002, "IdentifyBroker", 0, 0, 0),
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
        versions=VersionRange(lowest, highest),
        flexible_from=flexible_from,
        latest_stable=_LATEST_STABLE.get(key, highest),
        advertised_min=_ADVERTISED_MIN.get(key, lowest),
        internal=key in _INTERNAL,
    )
    for key, name, lowest, highest, flexible_from in _ROWS
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
