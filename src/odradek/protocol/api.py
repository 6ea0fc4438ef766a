"""The table of APIs: what a broker offers and who may ask for it, and where each API's messages and handler are.

The numbers are here, apart from the declarations, so that building an ApiVersions answer or reading a
request header imports no message module: `Api.request` and `Api.response` do that, once each. A test compares
the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.lazy import lazy
from odradek.protocol.schema import Message
from odradek.protocol.versions import VersionRange

if TYPE_CHECKING:
    from odradek.protocol import acls
    from odradek.protocol.acls import RequiredAcl
else:
    acls = lazy("odradek.protocol.acls")

API_VERSIONS_KEY: Final = 18


@dataclass(frozen=True, kw_only=True)
class Api:
    """One API. `versions` can be encoded and decoded; up to `latest_stable` they are offered by default."""

    key: int
    name: str
    family: str
    """The subject of the API: the folder of its messages and its handler."""
    versions: VersionRange
    flexible_from: int | None
    latest_stable: int
    advertised_min: int
    """Lowest version to name in an ApiVersions answer. Below `versions.min` only for Produce."""
    acls_text: str
    """See `acls`."""
    internal: bool = False
    """Spoken between brokers alone: ApiVersions names it to a broker, and to no one else."""
    forwarded: bool = False
    """The controller serves it for all brokers (KIP-590): it changes the cluster, or only the controller knows the answer."""
    served: bool = True
    """Brokers have a handler: `broker/handlers/<family>/<snake_name>.py`."""

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

    @cached_property
    def acls(self) -> tuple[tuple[RequiredAcl, ...], ...]:
        """The questions to Kafka's authorizer before this is served. `parse_acls` explains the form."""
        return acls.parse_acls(self.acls_text)

    def is_flexible(self, version: int) -> bool:
        """Returns whether this version has compact lengths and tagged fields (KIP-482)."""
        return self.flexible_from is not None and version >= self.flexible_from

    def offered(self, *, unstable: bool = False) -> VersionRange:
        """Returns the range to advertise; `unstable` adds versions that Kafka has not released yet."""
        return VersionRange(self.advertised_min, self.versions.max if unstable else self.latest_stable)


_PIPELINED: Final = frozenset({0, 8})
"""Produce and OffsetCommit: their effects come in the order of the requests, and none reads what an earlier one wrote."""

BROKER_SOFTWARE: Final = "odradek-broker"
"""The software name of a broker that sends ApiVersions to another."""


def pipeline_of(frame: memoryview) -> int | None:
    """Returns the pipeline of a request: it may begin while earlier ones of its connection and pipeline wait for the disk.

    None: the request begins when all earlier ones of its connection are answered, as in Kafka.
    """
    api_key = int.from_bytes(frame[:2], "big", signed=True)
    return api_key if api_key in _PIPELINED else None


def _api(
    key: int,
    name: str,
    family: str,
    lowest: int,
    highest: int,
    flexible_from: int | None,
    acls_text: str,
    *,
    latest_stable: int | None = None,
    advertised_min: int | None = None,
    internal: bool = False,
    forwarded: bool = False,
    served: bool = True,
) -> Api:
    return Api(
        key=key,
        name=name,
        family=family,
        versions=VersionRange(lowest, highest),
        flexible_from=flexible_from,
        acls_text=acls_text,
        latest_stable=highest if latest_stable is None else latest_stable,
        advertised_min=lowest if advertised_min is None else advertised_min,
        internal=internal,
        forwarded=forwarded,
        served=served,
    )


# An API is added here: number, name, family (the folder of its messages and of its handler), lowest and highest version, first
# flexible version, and what a client must be allowed to do (`acls.py`). What only decides how much an answer shows, such as
# the authorized operations of KIP-430, is not among the latter.
# Produce: librdkafka switches features off when it does not start at 0 (KAFKA-18659), so brokers advertise 0-2 and then refuse
# them. InitProducerId 6 carries two-phase commit (KIP-939), which Kafka 4.4 still marks unstable.
# fmt: off
_TABLE: Final = (
    _api(0, "Produce", "data", 3, 13, 9, "WRITE TRANSACTIONAL_ID, WRITE TOPIC", advertised_min=0),
    _api(1, "Fetch", "data", 4, 18, 12, "CLUSTER_ACTION CLUSTER | READ TOPIC"),
    _api(2, "ListOffsets", "data", 1, 11, 6, "DESCRIBE TOPIC"),
    _api(3, "Metadata", "metadata", 0, 13, 9, "DESCRIBE TOPIC, CREATE CLUSTER | CREATE TOPIC"),
    _api(8, "OffsetCommit", "groups", 2, 10, 8, "READ GROUP, READ TOPIC"),
    _api(9, "OffsetFetch", "groups", 1, 10, 6, "DESCRIBE GROUP, DESCRIBE TOPIC"),
    _api(10, "FindCoordinator", "metadata", 0, 6, 3,
        "DESCRIBE GROUP | DESCRIBE TRANSACTIONAL_ID | CLUSTER_ACTION CLUSTER"),
    _api(11, "JoinGroup", "groups", 0, 9, 6, "READ GROUP"),
    _api(12, "Heartbeat", "groups", 0, 4, 4, "READ GROUP"),
    _api(13, "LeaveGroup", "groups", 0, 5, 4, "READ GROUP"),
    _api(14, "SyncGroup", "groups", 0, 5, 4, "READ GROUP"),
    _api(15, "DescribeGroups", "groups", 0, 6, 5, "DESCRIBE GROUP"),
    _api(16, "ListGroups", "groups", 0, 5, 3, "DESCRIBE CLUSTER | DESCRIBE GROUP"),
    _api(17, "SaslHandshake", "security", 0, 1, None, ""),
    _api(18, "ApiVersions", "metadata", 0, 5, 3, ""),
    _api(19, "CreateTopics", "topics", 2, 7, 5, "CREATE CLUSTER | CREATE TOPIC", forwarded=True),
    _api(20, "DeleteTopics", "topics", 1, 6, 4,
        "DELETE CLUSTER | DESCRIBE TOPIC, DELETE CLUSTER | DELETE TOPIC", forwarded=True),
    _api(21, "DeleteRecords", "data", 0, 2, 2, "DELETE TOPIC"),
    _api(22, "InitProducerId", "transactions", 0, 6, 2,
        "WRITE TRANSACTIONAL_ID | IDEMPOTENT_WRITE CLUSTER | WRITE TOPIC, TWO_PHASE_COMMIT TRANSACTIONAL_ID", latest_stable=5),
    _api(23, "OffsetForLeaderEpoch", "data", 2, 4, 4, "CLUSTER_ACTION CLUSTER | DESCRIBE TOPIC"),
    _api(24, "AddPartitionsToTxn", "transactions", 0, 5, 3,
        "CLUSTER_ACTION CLUSTER | WRITE TRANSACTIONAL_ID, CLUSTER_ACTION CLUSTER | WRITE TOPIC"),
    _api(25, "AddOffsetsToTxn", "transactions", 0, 4, 3, "WRITE TRANSACTIONAL_ID, READ GROUP"),
    _api(26, "EndTxn", "transactions", 0, 5, 3, "WRITE TRANSACTIONAL_ID"),
    _api(27, "WriteTxnMarkers", "transactions", 1, 2, 1, "ALTER CLUSTER | CLUSTER_ACTION CLUSTER"),
    _api(28, "TxnOffsetCommit", "transactions", 0, 6, 3, "WRITE TRANSACTIONAL_ID, READ GROUP, READ TOPIC"),
    _api(29, "DescribeAcls", "security", 1, 3, 2, "DESCRIBE CLUSTER"),
    _api(30, "CreateAcls", "security", 1, 3, 2, "ALTER CLUSTER", forwarded=True),
    _api(31, "DeleteAcls", "security", 1, 3, 2, "ALTER CLUSTER", forwarded=True),
    _api(32, "DescribeConfigs", "configs", 1, 4, 4,
        "DESCRIBE_CONFIGS CLUSTER | DESCRIBE_CONFIGS TOPIC | DESCRIBE_CONFIGS GROUP"),
    _api(33, "AlterConfigs", "configs", 0, 2, 2,
        "ALTER_CONFIGS CLUSTER | ALTER_CONFIGS TOPIC | ALTER_CONFIGS GROUP", forwarded=True),
    _api(34, "AlterReplicaLogDirs", "topics", 1, 2, 2, "ALTER CLUSTER"),
    _api(35, "DescribeLogDirs", "topics", 1, 5, 2, "DESCRIBE CLUSTER"),
    _api(36, "SaslAuthenticate", "security", 0, 2, 2, ""),
    _api(37, "CreatePartitions", "topics", 0, 3, 2, "ALTER TOPIC", forwarded=True),
    _api(38, "CreateDelegationToken", "security", 1, 3, 2, "CREATE_TOKENS USER", forwarded=True),
    _api(39, "RenewDelegationToken", "security", 1, 2, 2, "", forwarded=True),
    _api(40, "ExpireDelegationToken", "security", 1, 2, 2, "", forwarded=True),
    _api(41, "DescribeDelegationToken", "security", 1, 3, 2, "DESCRIBE DELEGATION_TOKEN | DESCRIBE_TOKENS USER"),
    _api(42, "DeleteGroups", "groups", 0, 3, 2, "DELETE GROUP"),
    _api(43, "ElectLeaders", "topics", 0, 2, 2, "ALTER CLUSTER", forwarded=True),
    _api(44, "IncrementalAlterConfigs", "configs", 0, 1, 1,
        "ALTER_CONFIGS CLUSTER | ALTER_CONFIGS TOPIC | ALTER_CONFIGS GROUP", forwarded=True),
    _api(45, "AlterPartitionReassignments", "topics", 0, 1, 0, "ALTER CLUSTER", forwarded=True),
    _api(46, "ListPartitionReassignments", "topics", 0, 0, 0, "DESCRIBE CLUSTER", forwarded=True),
    _api(47, "OffsetDelete", "groups", 0, 0, None, "DELETE GROUP, READ TOPIC"),
    _api(48, "DescribeClientQuotas", "quotas", 0, 1, 1, "DESCRIBE_CONFIGS CLUSTER"),
    _api(49, "AlterClientQuotas", "quotas", 0, 1, 1, "ALTER_CONFIGS CLUSTER", forwarded=True),
    _api(50, "DescribeUserScramCredentials", "security", 0, 0, 0, "DESCRIBE CLUSTER"),
    _api(51, "AlterUserScramCredentials", "security", 0, 0, 0, "ALTER CLUSTER", forwarded=True),
    _api(55, "DescribeQuorum", "cluster", 0, 2, 0, "DESCRIBE CLUSTER", forwarded=True),
    _api(56, "AlterPartition", "cluster", 2, 3, 0, "CLUSTER_ACTION CLUSTER", internal=True),
    _api(57, "UpdateFeatures", "cluster", 0, 2, 0, "ALTER CLUSTER", forwarded=True),
    _api(60, "DescribeCluster", "metadata", 0, 2, 0, ""),
    _api(61, "DescribeProducers", "data", 0, 0, 0, "READ TOPIC"),
    _api(64, "UnregisterBroker", "cluster", 0, 0, 0, "ALTER CLUSTER", forwarded=True),
    _api(65, "DescribeTransactions", "transactions", 0, 0, 0, "DESCRIBE TRANSACTIONAL_ID, DESCRIBE TOPIC"),
    _api(66, "ListTransactions", "transactions", 0, 2, 0, "DESCRIBE TRANSACTIONAL_ID"),
    _api(67, "AllocateProducerIds", "cluster", 0, 0, 0, "CLUSTER_ACTION CLUSTER", internal=True),
    _api(68, "ConsumerGroupHeartbeat", "groups", 0, 1, 0, "READ GROUP, DESCRIBE TOPIC"),
    _api(69, "ConsumerGroupDescribe", "groups", 0, 1, 0, "DESCRIBE GROUP, DESCRIBE TOPIC"),
    _api(71, "GetTelemetrySubscriptions", "configs", 0, 0, 0, ""),
    _api(72, "PushTelemetry", "configs", 0, 0, 0, ""),
    _api(74, "ListConfigResources", "configs", 0, 1, 0, "DESCRIBE_CONFIGS CLUSTER"),
    _api(75, "DescribeTopicPartitions", "metadata", 0, 0, 0, "DESCRIBE TOPIC"),
    _api(76, "ShareGroupHeartbeat", "share", 1, 1, 0, "READ GROUP, DESCRIBE TOPIC"),
    _api(77, "ShareGroupDescribe", "share", 1, 1, 0, "DESCRIBE GROUP, DESCRIBE TOPIC"),
    _api(78, "ShareFetch", "share", 1, 2, 0, "READ GROUP, READ TOPIC"),
    _api(79, "ShareAcknowledge", "share", 1, 2, 0, "READ GROUP, READ TOPIC"),
    _api(80, "AddRaftVoter", "cluster", 0, 1, 0, "ALTER CLUSTER", forwarded=True),
    _api(81, "RemoveRaftVoter", "cluster", 0, 0, 0, "ALTER CLUSTER", forwarded=True),
    _api(83, "InitializeShareGroupState", "share", 0, 0, 0, "CLUSTER_ACTION CLUSTER", internal=True),
    _api(84, "ReadShareGroupState", "share", 0, 0, 0, "CLUSTER_ACTION CLUSTER", internal=True),
    _api(85, "WriteShareGroupState", "share", 0, 1, 0, "CLUSTER_ACTION CLUSTER", internal=True),
    _api(86, "DeleteShareGroupState", "share", 0, 0, 0, "CLUSTER_ACTION CLUSTER", internal=True),
    _api(87, "ReadShareGroupStateSummary", "share", 0, 1, 0, "CLUSTER_ACTION CLUSTER", internal=True),
    _api(88, "StreamsGroupHeartbeat", "groups", 0, 1, 0, "READ GROUP, DESCRIBE TOPIC"),
    _api(89, "StreamsGroupDescribe", "groups", 0, 1, 0, "DESCRIBE GROUP, DESCRIBE TOPIC"),
    _api(90, "DescribeShareGroupOffsets", "share", 0, 1, 0, "DESCRIBE GROUP, DESCRIBE TOPIC"),
    _api(91, "AlterShareGroupOffsets", "share", 0, 0, 0, "READ GROUP, READ TOPIC"),
    _api(92, "DeleteShareGroupOffsets", "share", 0, 0, 0, "DELETE GROUP, READ TOPIC"),
    _api(93, "StreamsGroupTopologyDescriptionUpdate", "groups", 0, 0, 0, "READ GROUP"),
    _api(94, "UnregisterController", "cluster", 0, 0, 0, "ALTER CLUSTER", forwarded=True),
    _api(10000, "ClusterSync", "cluster", 0, 0, 0, "CLUSTER_ACTION CLUSTER", internal=True),
    _api(10001, "Forward", "cluster", 0, 0, 0, "CLUSTER_ACTION CLUSTER", internal=True),
    _api(10002, "IdentifyBroker", "cluster", 0, 0, 0, "CLUSTER_ACTION CLUSTER", internal=True),
)
# fmt: on

APIS: Final[dict[int, Api]] = {api.key: api for api in _TABLE}
"""Every API with declared messages, by key."""

_BY_NAME: Final = {api.name: api for api in APIS.values()}


def api_by_key(key: int) -> Api:
    """Raises KafkaError UNSUPPORTED_VERSION for a key without messages, as Kafka answers unknown APIs."""
    api = APIS.get(key)
    if api is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no API with key {key}")
    return api


def api_by_name(name: str) -> Api:
    """Returns the API with Kafka's name, such as "ListOffsets". Raises KeyError when there is none."""
    return _BY_NAME[name]


def api_of(message: Message | type[Message]) -> Api:
    """Returns the API that a request or response belongs to."""
    key = message.API_KEY
    if key is None:
        cls = message if isinstance(message, type) else type(message)
        raise KeyError(f"{cls.__name__} is not part of an API")
    return APIS[key]
