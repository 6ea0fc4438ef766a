"""What clients are answered when they may not: every API that asks the authorizer, in every version, refused.

`SETTINGS`: a broker of its own, with Kafka's StandardAuthorizer. All clients are the same user here, the broker's own: so what
is refused to it is what this script denies, and CLUSTER_ACTION stays allowed.
"""

import itertools
from typing import Any

from tests.differential.asker import Asker
from tests.scenarios.security.requests import GROUP, TOPIC, TRANSACTIONAL_ID, Names, request_of

from odradek.protocol import APIS
from odradek.protocol.access import ACCESS
from odradek.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.protocol.messages.security.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
LITERAL, DENY, ALLOW = 3, 2, 3
OTHER, ME = "User:other", "User:ANONYMOUS"
TOPICS = (TOPIC, "absent", "new-topic", "*")
GROUPS = (GROUP, "modern", "sharers")
NEEDS_ALTER = (
    "CreateAcls",
    "DeleteAcls",
    "AlterReplicaLogDirs",
    "ElectLeaders",
    "AlterPartitionReassignments",
    "AlterUserScramCredentials",
    "UpdateFeatures",
    "UnregisterBroker",
    "UnregisterController",
    "AddRaftVoter",
    "RemoveRaftVoter",
)
NOT_ASKED = (
    "WriteTxnMarkers",  # CLUSTER_ACTION is enough
    "ListGroups",
    "ListTransactions",
    "DescribeCluster",
    "ShareFetch",
    "ShareAcknowledge",
    "Fetch",
    *(api.name for api in APIS.values() if api.internal or not ACCESS[api.name]),
)

SERVED = {
    ("FindCoordinator", 6, "key_type=2"): "CLUSTER_ACTION is enough",
    ("Metadata", 0, "all topics are asked for"): "it is the request without a condition",
    (
        "DescribeTopicPartitions",
        0,
        "all topics are asked for",
    ): "what it lists depends on the internal topics",
}


def acl(kind: AclResourceType, name: str, who: str, operation: AclOperation, permission: int) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal=who,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def script(peer: Asker) -> None:
    prepare(peer)
    everything = AclOperation.ALL
    rules = [acl(AclResourceType.TOPIC, name, OTHER, everything, ALLOW) for name in TOPICS]
    rules += [acl(AclResourceType.GROUP, name, OTHER, everything, ALLOW) for name in GROUPS]
    rules += [acl(AclResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID, OTHER, everything, ALLOW)]
    rules += [acl(AclResourceType.CLUSTER, CLUSTER_NAME, ME, everything, ALLOW)]
    rules += [
        acl(AclResourceType.CLUSTER, CLUSTER_NAME, ME, operation, DENY)
        for operation in (
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
        )
    ]
    peer.ask("the rules are made", CreateAclsRequest(creations=rules))
    wait_for_rules(peer)
    for api in APIS.values():
        if api.name not in (*NEEDS_ALTER, *NOT_ASKED):
            ask_in_every_version(peer, api.name)
    peer.quietly(
        CreateAclsRequest(
            creations=[acl(AclResourceType.CLUSTER, CLUSTER_NAME, ME, AclOperation.ALTER, DENY)]
        )
    )
    peer.until(
        lambda response: response.results[0].error_code != 0,
        request_of("CreateAcls", 3).replace(
            creations=[acl(AclResourceType.GROUP, "none", OTHER, everything, ALLOW)]
        ),
    )
    for name in NEEDS_ALTER:
        ask_in_every_version(peer, name)


def prepare(peer: Asker) -> None:
    """A topic, and the internal ones, while everything is allowed."""
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    peer.quietly(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))

    def has_topic(response: Any) -> bool:
        return any(topic.name == TOPIC and topic.partitions for topic in response.topics)

    response = peer.until(has_topic, MetadataRequest(topics=None), 12)
    Names.topic_id = next(topic.topic_id for topic in response.topics if topic.name == TOPIC)
    Names.new = "new-topic"  # whatever other tests of this process have called it
    for kind, key in ((0, GROUP), (1, TRANSACTIONAL_ID)):
        wanted = FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
        peer.until(lambda response: response.coordinators[0].error_code == 0, wanted)


def wait_for_rules(peer: Asker) -> None:
    request = request_of("Metadata", 12)
    peer.until(lambda response: response.topics[0].error_code != 0, request, 12)


def ask_in_every_version(peer: Asker, name: str) -> None:
    api = next(api for api in APIS.values() if api.name == name)
    if api.key not in peer.offered:
        return
    whens = dict.fromkeys(rule.when for rule in ACCESS[name])
    for version, when in itertools.product(api.versions, whens):
        applies = any(rule.when == when and version in rule.versions for rule in ACCESS[name])
        if not applies or version > api.latest_stable or (name, version, when) in SERVED:
            continue
        request = request_of(name, version, when)
        peer.ask(f"{name} version {version}{when and ', '}{when}", request, version)
