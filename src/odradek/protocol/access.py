"""The table of access rules: for each API, which field names resources, what must be allowed on them, and what is answered
else.

It belongs to the table of APIs (`api.py`), whose column of ACLs is the short form:
`tests/lint/access_table.py` compares the two, so an API without rows fails `make check`. `broker/access`
carries the rules out, and the matrix of access tests is made of them.

A field is written `topics[].name`: of each element of an array; `""` is the cluster itself, and `*` any resource of the kind
that there could be. Of alternatives one is enough. Rules of one API are asked in order; a request that is refused whole is
asked no further.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode
from odradek.protocol.acls import AclResourceType, RequiredAcl, parse_acl
from odradek.protocol.versions import VersionRange, parse_versions


class Refusal(Enum):
    """How a request is answered that may not do all that it asks."""

    REQUEST = "the whole request gets the error"
    ELEMENT = "the element gets the error, the others are served"
    OMITTED = "it is left out of the answer, without a word"
    SHOWN = "the answer shows less"


REQUEST, ELEMENT, OMITTED, SHOWN = Refusal.REQUEST, Refusal.ELEMENT, Refusal.OMITTED, Refusal.SHOWN

CODES: Final = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    AclResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class AccessRule(NamedTuple):
    """One row of the table. `field` is in the request; for OMITTED and SHOWN it is in the answer."""

    alternatives: tuple[RequiredAcl, ...]
    field: str
    refusal: Refusal
    answer: str
    """The answer's array that contains the elements, for ELEMENT."""
    versions: VersionRange
    when: str
    """`field=value|value` of the request, or of the element; or a name of a condition in `broker/access`."""
    code: ErrorCode
    apart: bool
    """True if a function of the API itself carries the row out, because the other columns cannot express it."""

    @property
    def required(self) -> RequiredAcl:
        """The ACL that decides the error: the most particular alternative."""
        return self.alternatives[-1]


def _rule(
    acls: str,
    field: str = "",
    refusal: Refusal = REQUEST,
    response_array: str = "",
    *,
    versions: str = "0+",
    when: str = "",
    code: ErrorCode | None = None,
    apart: bool = False,
) -> AccessRule:
    alternatives = tuple(parse_acl(acl) for acl in acls.split(" or "))
    return AccessRule(
        alternatives=alternatives,
        field=field,
        refusal=refusal,
        answer=response_array,
        versions=parse_versions(versions),
        when=when,
        code=code or CODES[alternatives[-1].resource],
        apart=apart,
    )


def _cluster(operation: str) -> tuple[AccessRule, ...]:
    return (_rule(f"{operation} CLUSTER"),)


def _configs(operation: str, response_array: str) -> tuple[AccessRule, ...]:
    """Types of resources: 2 topic, 4 broker, 8 loggers, 16 clients' metrics, 32 group."""
    field = "resources[].resource_name"
    return (
        _rule(f"{operation} CLUSTER", field, ELEMENT, response_array, when="resource_type=4|8|16"),
        _rule(f"{operation} TOPIC", field, ELEMENT, response_array, when="resource_type=2"),
        _rule(f"{operation} GROUP", field, ELEMENT, response_array, when="resource_type=32"),
    )


_GROUP_MEMBER: Final = (_rule("READ GROUP", "group_id"),)
_CLUSTER_ACTION: Final = _cluster("CLUSTER_ACTION")

# fmt: off
ACCESS: Final[dict[str, tuple[AccessRule, ...]]] = {
    "Produce": (
        _rule("WRITE TRANSACTIONAL_ID", "transactional_id", when="transactional batches"),
        _rule("WRITE TOPIC", "topic_data[].name", ELEMENT, "responses", versions="0-12"),
        _rule("WRITE TOPIC", "topic_data[].topic_id", ELEMENT, "responses", versions="13+"),
    ),
    "Fetch": (
        _rule("CLUSTER_ACTION CLUSTER", when="by a replica", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, apart=True),
        _rule("READ TOPIC", "topics[].topic", ELEMENT, "responses", versions="0-12", when="by a consumer", apart=True),
        _rule("READ TOPIC", "topics[].topic_id", ELEMENT, "responses", versions="13+", when="by a consumer", apart=True),
    ),
    "ListOffsets": (_rule("DESCRIBE TOPIC", "topics[].name", ELEMENT, "topics"),),
    "Metadata": (
        _rule("DESCRIBE TOPIC", "topics[].name", ELEMENT, "topics"),
        _rule("DESCRIBE TOPIC", "topics[].topic_id", ELEMENT, "topics", versions="12+"),
        _rule("CREATE CLUSTER or CREATE TOPIC", "topics[].name", ELEMENT, "topics", when="would be created"),
        _rule("DESCRIBE TOPIC", "topics[].name", OMITTED, when="all topics are asked for"),
        _rule("DESCRIBE CLUSTER", "cluster_authorized_operations", SHOWN, versions="8-10", apart=True),
    ),
    "OffsetCommit": (
        _rule("READ GROUP", "group_id"),
        _rule("READ TOPIC", "topics[].name", ELEMENT, "topics", versions="0-9"),
        _rule("READ TOPIC", "topics[].topic_id", ELEMENT, "topics", versions="10+"),
    ),
    "OffsetFetch": (
        _rule("DESCRIBE GROUP", "group_id", versions="0-7", apart=True),
        _rule("DESCRIBE TOPIC", "topics[].name", ELEMENT, "topics", versions="0-7", apart=True),
        _rule("DESCRIBE GROUP", "groups[].group_id", ELEMENT, "groups", versions="8+", apart=True),
        _rule("DESCRIBE TOPIC", "groups[].topics[].name", ELEMENT, "groups", versions="8-9", apart=True),
        _rule("DESCRIBE TOPIC", "groups[].topics[].topic_id", ELEMENT, "groups", versions="10+", apart=True),
    ),
    "FindCoordinator": (
        _rule("CLUSTER_ACTION CLUSTER", when="key_type=2"),
        _rule("DESCRIBE GROUP", "key", versions="0-3", when="key_type=0"),
        _rule("DESCRIBE TRANSACTIONAL_ID", "key", versions="0-3", when="key_type=1"),
        _rule("DESCRIBE GROUP", "coordinator_keys[]", ELEMENT, "coordinators", versions="4+", when="key_type=0"),
        _rule("DESCRIBE TRANSACTIONAL_ID", "coordinator_keys[]", ELEMENT, "coordinators", versions="4+", when="key_type=1"),
    ),
    "JoinGroup": _GROUP_MEMBER,
    "Heartbeat": _GROUP_MEMBER,
    "LeaveGroup": _GROUP_MEMBER,
    "SyncGroup": _GROUP_MEMBER,
    "DescribeGroups": (_rule("DESCRIBE GROUP", "groups[]", ELEMENT, "groups"),),
    "ListGroups": (_rule("DESCRIBE CLUSTER or DESCRIBE GROUP", "groups[].group_id", OMITTED),),
    "SaslHandshake": (),
    "ApiVersions": (),
    "CreateTopics": (
        _rule("CREATE CLUSTER or CREATE TOPIC", "topics[].name", ELEMENT, "topics"),
        _rule("DESCRIBE_CONFIGS TOPIC", "topics[].configs", SHOWN, versions="5+", apart=True),
    ),
    "DeleteTopics": (
        _rule("DELETE CLUSTER or DESCRIBE TOPIC", "topic_names[]", ELEMENT, "responses", versions="0-5"),
        _rule("DELETE CLUSTER or DELETE TOPIC", "topic_names[]", ELEMENT, "responses", versions="0-5"),
        _rule("DELETE CLUSTER or DESCRIBE TOPIC", "topics[].name", ELEMENT, "responses", versions="6+"),
        _rule("DELETE CLUSTER or DELETE TOPIC", "topics[].name", ELEMENT, "responses", versions="6+"),
        _rule("DELETE CLUSTER or DESCRIBE TOPIC", "topics[].topic_id", ELEMENT, "responses", versions="6+"),
        _rule("DELETE CLUSTER or DELETE TOPIC", "topics[].topic_id", ELEMENT, "responses", versions="6+"),
    ),
    "DeleteRecords": (_rule("DELETE TOPIC", "topics[].name", ELEMENT, "topics"),),
    "InitProducerId": (
        _rule("WRITE TRANSACTIONAL_ID", "transactional_id"),
        _rule("TWO_PHASE_COMMIT TRANSACTIONAL_ID", "transactional_id", versions="6+", when="enable_2pc=True"),
        _rule("IDEMPOTENT_WRITE CLUSTER or WRITE TOPIC", "*", when="transactional_id=None",
              code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ),
    "OffsetForLeaderEpoch": (_rule("CLUSTER_ACTION CLUSTER or DESCRIBE TOPIC", "topics[].topic", ELEMENT, "topics"),),
    "AddPartitionsToTxn": (
        _rule("CLUSTER_ACTION CLUSTER", versions="4+"),
        _rule("WRITE TRANSACTIONAL_ID", "v3_and_below_transactional_id", versions="0-3"),
        _rule("WRITE TOPIC", "v3_and_below_topics[].name", ELEMENT, "results_by_topic_v3_and_below", versions="0-3"),
    ),
    "AddOffsetsToTxn": (_rule("WRITE TRANSACTIONAL_ID", "transactional_id"), _rule("READ GROUP", "group_id")),
    "EndTxn": (_rule("WRITE TRANSACTIONAL_ID", "transactional_id"),),
    "WriteTxnMarkers": (_rule("ALTER CLUSTER or CLUSTER_ACTION CLUSTER"),),
    "TxnOffsetCommit": (
        _rule("WRITE TRANSACTIONAL_ID", "transactional_id"),
        _rule("READ GROUP", "group_id"),
        _rule("READ TOPIC", "topics[].name", ELEMENT, "topics", versions="0-5"),
        _rule("READ TOPIC", "topics[].topic_id", ELEMENT, "topics", versions="6+"),
    ),
    "DescribeAcls": _cluster("DESCRIBE"),
    "CreateAcls": _cluster("ALTER"),
    "DeleteAcls": _cluster("ALTER"),
    "DescribeConfigs": _configs("DESCRIBE_CONFIGS", "results"),
    "AlterConfigs": _configs("ALTER_CONFIGS", "responses"),
    "AlterReplicaLogDirs": _cluster("ALTER"),
    "DescribeLogDirs": _cluster("DESCRIBE"),
    "SaslAuthenticate": (),
    "CreatePartitions": (_rule("ALTER TOPIC", "topics[].name", ELEMENT, "results"),),
    "CreateDelegationToken": (
        _rule("CREATE_TOKENS USER", "owner_principal_name", versions="3+", when="for another", apart=True),
    ),
    "RenewDelegationToken": (),
    "ExpireDelegationToken": (),
    "DescribeDelegationToken": (
        _rule("DESCRIBE DELEGATION_TOKEN or DESCRIBE_TOKENS USER", "tokens[].token_id", OMITTED, apart=True),
    ),
    "DeleteGroups": (_rule("DELETE GROUP", "groups_names[]", ELEMENT, "results"),),
    "ElectLeaders": _cluster("ALTER"),
    "IncrementalAlterConfigs": _configs("ALTER_CONFIGS", "responses"),
    "AlterPartitionReassignments": _cluster("ALTER"),
    "ListPartitionReassignments": _cluster("DESCRIBE"),
    "OffsetDelete": (_rule("DELETE GROUP", "group_id"), _rule("READ TOPIC", "topics[].name", ELEMENT, "topics")),
    "DescribeClientQuotas": _cluster("DESCRIBE_CONFIGS"),
    "AlterClientQuotas": _cluster("ALTER_CONFIGS"),
    "DescribeUserScramCredentials": _cluster("DESCRIBE"),
    "AlterUserScramCredentials": _cluster("ALTER"),
    "DescribeQuorum": _cluster("DESCRIBE"),
    "AlterPartition": _CLUSTER_ACTION,
    "UpdateFeatures": _cluster("ALTER"),
    "DescribeCluster": (_rule("DESCRIBE CLUSTER", "cluster_authorized_operations", SHOWN, apart=True),),
    "DescribeProducers": (_rule("READ TOPIC", "topics[].name", ELEMENT, "topics"),),
    "UnregisterBroker": _cluster("ALTER"),
    "AddRaftVoter": _cluster("ALTER"),
    "RemoveRaftVoter": _cluster("ALTER"),
    "UnregisterController": _cluster("ALTER"),
    "DescribeTransactions": (
        _rule("DESCRIBE TRANSACTIONAL_ID", "transactional_ids[]", ELEMENT, "transaction_states"),
        _rule("DESCRIBE TOPIC", "transaction_states[].topics[].topic", OMITTED),
    ),
    "ListTransactions": (
        _rule("DESCRIBE TRANSACTIONAL_ID", "transaction_states[].transactional_id", OMITTED),
    ),
    "AllocateProducerIds": _CLUSTER_ACTION,
    "ConsumerGroupHeartbeat": (
        _rule("READ GROUP", "group_id"),
        _rule("DESCRIBE TOPIC", "subscribed_topic_names[]"),
    ),
    "ConsumerGroupDescribe": (
        _rule("DESCRIBE GROUP", "group_ids[]", ELEMENT, "groups"),
        _rule("DESCRIBE TOPIC", "groups[].members", SHOWN, apart=True),
    ),
    "GetTelemetrySubscriptions": (),
    "PushTelemetry": (),
    "ListConfigResources": _cluster("DESCRIBE_CONFIGS"),
    "DescribeTopicPartitions": (
        _rule("DESCRIBE TOPIC", "topics[].name", ELEMENT, "topics", apart=True),
        _rule("DESCRIBE TOPIC", "topics[].name", OMITTED, when="all topics are asked for", apart=True),
    ),
    "ShareGroupHeartbeat": (
        _rule("READ GROUP", "group_id"),
        _rule("DESCRIBE TOPIC", "subscribed_topic_names[]"),
    ),
    "ShareGroupDescribe": (
        _rule("DESCRIBE GROUP", "group_ids[]", ELEMENT, "groups"),
        _rule("DESCRIBE TOPIC", "groups[].members", SHOWN, apart=True),
    ),
    "ShareFetch": (
        _rule("READ GROUP", "group_id"),
        _rule("READ TOPIC", "topics[].topic_id", ELEMENT, "responses", apart=True),
    ),
    "ShareAcknowledge": (
        _rule("READ GROUP", "group_id"),
        _rule("READ TOPIC", "topics[].topic_id", ELEMENT, "responses", apart=True),
    ),
    "StreamsGroupHeartbeat": (
        _rule("READ GROUP", "group_id"),
        _rule("DESCRIBE TOPIC", "topology.subtopologies", apart=True),
    ),
    "StreamsGroupDescribe": (
        _rule("DESCRIBE GROUP", "group_ids[]", ELEMENT, "groups"),
        _rule("DESCRIBE TOPIC", "groups[].topology", SHOWN, apart=True),
    ),
    "StreamsGroupTopologyDescriptionUpdate": (_rule("READ GROUP", "group_id"),),
    "InitializeShareGroupState": _CLUSTER_ACTION,
    "ReadShareGroupState": _CLUSTER_ACTION,
    "WriteShareGroupState": _CLUSTER_ACTION,
    "DeleteShareGroupState": _CLUSTER_ACTION,
    "ReadShareGroupStateSummary": _CLUSTER_ACTION,
    "DescribeShareGroupOffsets": (
        _rule("DESCRIBE GROUP", "groups[].group_id", ELEMENT, "groups"),
        _rule("DESCRIBE TOPIC", "groups[].topics[].topic_name", ELEMENT, "groups", apart=True),
    ),
    "AlterShareGroupOffsets": (
        _rule("READ GROUP", "group_id"),
        _rule("READ TOPIC", "topics[].topic_name", ELEMENT, "responses"),
    ),
    "DeleteShareGroupOffsets": (
        _rule("DELETE GROUP", "group_id"),
        _rule("READ TOPIC", "topics[].topic_name", ELEMENT, "responses"),
    ),
    "ClusterSync": _CLUSTER_ACTION,
    "Forward": _CLUSTER_ACTION,
    "IdentifyBroker": _CLUSTER_ACTION,
}
# fmt: on
