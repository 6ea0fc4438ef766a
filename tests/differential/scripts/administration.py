"""Elections, moves of replicas and log directories, features, quorum, resources that have settings."""

from typing import Any
from uuid import UUID

from tests.differential.asker import Asker
from tests.differential.requests import make_topic

from odradek.protocol.messages.cluster.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from odradek.protocol.messages.cluster.unregister_broker import UnregisterBrokerRequest
from odradek.protocol.messages.cluster.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.configs.list_config_resources import ListConfigResourcesRequest
from odradek.protocol.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.topics.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.topics.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.topics.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

PREFERRED, UNCLEAN = 0, 1
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def script(peer: Asker) -> None:
    make_topic(peer, "ad-one", 2)
    _electing(peer)
    _moving(peer)
    _disks(peer)
    _features(peer)
    _quorum(peer)
    _resources(peer)


def _electing(peer: Asker) -> None:
    def elect(kind: int, *wanted: tuple[str, int]) -> ElectLeadersRequest:
        topics = [TopicPartitions(topic=name, partitions=[partition]) for name, partition in wanted]
        return ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=5000)

    for version in (0, 1, 2):
        peer.ask(f"an election not needed, version {version}", elect(PREFERRED, ("ad-one", 0)), version)
    peer.ask("an unclean election not needed", elect(UNCLEAN, ("ad-one", 0)))
    peer.ask("an election of an unknown kind", elect(9, ("ad-one", 0)))
    peer.ask("an election for an unknown topic", elect(PREFERRED, ("ad-none", 0)))
    peer.ask("an election for an unknown partition", elect(PREFERRED, ("ad-one", 7)))
    peer.ask("an election for nothing", elect(PREFERRED))
    peer.ask("an election for all", ElectLeadersRequest(topic_partitions=None, timeout_ms=5000), only=_mine)

    peer.ask("unregistering an unknown broker", UnregisterBrokerRequest(broker_id=9))


def _mine(response: Any) -> Any:
    own_results = [topic for topic in response.replica_election_results if topic.topic == "ad-one"]
    return response.replace(replica_election_results=own_results)


def _moving(peer: Asker) -> None:
    def move(
        name: str, partition: int, replicas: list[int] | None, **more: Any
    ) -> AlterPartitionReassignmentsRequest:
        wanted = ReassignablePartition(partition_index=partition, replicas=replicas)
        return AlterPartitionReassignmentsRequest(
            timeout_ms=5000, topics=[ReassignableTopic(name=name, partitions=[wanted])], **more
        )

    for version in (0, 1):
        peer.ask(f"moving to where it is, version {version}", move("ad-one", 0, [1]), version)
    peer.ask("moving to an unknown broker", move("ad-one", 0, [9]))
    peer.ask("moving to one broker twice", move("ad-one", 0, [1, 1]))
    peer.ask("moving to nowhere", move("ad-one", 0, []))
    peer.ask("moving to a broker below zero", move("ad-one", 0, [-1]))
    peer.ask("moving to more brokers", move("ad-one", 0, [1, 9]))
    peer.ask(
        "moving to more brokers, which is forbidden",
        move("ad-one", 0, [1, 9], allow_replication_factor_change=False),
    )
    peer.ask("not moving any more", move("ad-one", 0, None))
    peer.ask("moving an unknown topic", move("ad-none", 0, [1]))
    peer.ask("moving an unknown partition", move("ad-one", 7, [1]))
    peer.ask("moving nothing", AlterPartitionReassignmentsRequest(timeout_ms=5000))
    peer.ask("all that moves", ListPartitionReassignmentsRequest(topics=None, timeout_ms=5000))
    for name, partition in (("ad-one", 0), ("ad-one", 7), ("ad-none", 0)):
        wanted = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[partition])]
        peer.ask(
            f"whether {name} {partition} moves",
            ListPartitionReassignmentsRequest(topics=wanted, timeout_ms=5000),
        )


def _disks(peer: Asker) -> None:
    def move(path: str, name: str, partition: int) -> AlterReplicaLogDirsRequest:
        topics = [AlterReplicaLogDirTopic(name=name, partitions=[partition])]
        return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])

    for version in (1, 2):
        peer.ask(
            f"to a directory that is not the broker's, version {version}",
            move("/not/ours", "ad-one", 0),
            version,
        )
    peer.ask("to a directory that is no path", move("relative", "ad-one", 0))
    peer.ask("an unknown topic to a directory", move("/not/ours", "ad-none", 0))
    peer.ask("nothing to a directory", AlterReplicaLogDirsRequest(dirs=[]))


def _features(peer: Asker) -> None:
    def update(
        name: str, level: int, *, version: int = 1, validate_only: bool = True, **more: Any
    ) -> UpdateFeaturesRequest:
        key = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=version, **more)
        return UpdateFeaturesRequest(feature_updates=[key], validate_only=validate_only, timeout_ms=5000)

    for version in (1, 2):
        peer.ask(f"the same level, version {version}", update("transaction.version", 2), version)
    peer.ask("an unknown feature", update("nonsense", 1))
    peer.ask("a level too high", update("transaction.version", 99))
    peer.ask("a level below zero", update("transaction.version", -1))
    peer.ask("a level that is lower", update("transaction.version", 1))
    peer.ask("an unknown kind of update", update("transaction.version", 2, version=9))
    peer.ask("no feature", UpdateFeaturesRequest(timeout_ms=5000))


def _quorum(peer: Asker) -> None:
    def about(name: str, partition: int) -> DescribeQuorumRequest:
        return DescribeQuorumRequest(
            topics=[TopicData(topic_name=name, partitions=[PartitionData(partition_index=partition)])]
        )

    for version in (0, 1, 2):
        peer.ask(
            f"the quorum, version {version}", about("__cluster_metadata", 0), version, only=_without_offsets
        )
    peer.ask("the quorum of an unknown partition", about("__cluster_metadata", 1))
    peer.ask("the quorum of an ordinary topic", about("ad-one", 0))
    peer.ask("the quorum of nothing", DescribeQuorumRequest(topics=[]))


def _without_offsets(response: Any) -> Any:
    """How far the metadata's log is differs from run to run."""

    def still(group: Any) -> Any:
        return group.replace(
            log_end_offset=0,
            last_fetch_timestamp=0,
            last_caught_up_timestamp=0,
            replica_directory_id=UUID(int=0),
        )

    partition = response.topics[0].partitions[0]
    voters, observers = map(still, partition.current_voters), map(still, partition.observers)
    quiet = partition.replace(
        high_watermark=0, leader_epoch=0, current_voters=list(voters), observers=list(observers)
    )
    return response.replace(topics=[response.topics[0].replace(partitions=[quiet])])


def _resources(peer: Asker) -> None:
    def mine(response: Any) -> Any:
        results = response.config_resources
        return response.replace(
            config_resources=[
                outcome
                for outcome in results
                if outcome.resource_type != TOPIC or outcome.resource_name.startswith("ad-")
            ]
        )

    peer.ask("resources, version 0", ListConfigResourcesRequest(), 0, only=mine)
    for kinds in ([TOPIC], [BROKER], [LOGGER], [METRICS], [99], [TOPIC, BROKER]):
        peer.ask(f"resources of {kinds}", ListConfigResourcesRequest(resource_types=kinds), only=mine)
